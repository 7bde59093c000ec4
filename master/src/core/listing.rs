//! Clients one by one, for people: from atomics and immutable pictures, without any lock that data or sweeps hold.

use super::{Core, liveness::ClientLivenessRecord, segments::Segment};
use crate::types::{ClientId, LivenessState};
use hashbrown::HashMap;
use std::{sync::Arc, time::Duration};

/// One incarnation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// Its id.
    pub id: ClientId,
    /// Tells incarnations of one id apart (B13).
    pub incarnation: u64,
    /// Its liveness.
    pub state: LivenessState,
    /// Suspected for one more window, as one of many that fell silent at once (B2).
    pub held: bool,
    /// For how long it has been in this state.
    pub in_state: Duration,
    /// Time since its last signal, less what is forgiven; of an Active one only.
    pub silent: Option<Duration>,
    /// Whether it is remount-ready (B5).
    pub ready: bool,
    /// Segments, those that are still to be cleaned included.
    pub segments: u64,
    /// Their bytes.
    pub capacity_bytes: u64,
    /// Bytes in use there.
    pub bytes: u64,
    /// Keys with a replica there; one with replicas in several of its segments counts several times.
    pub keys: u64,
    /// Where its offboarding stands.
    pub offboarding: Option<OffboardingInfo>,
}

/// A client's offboarding under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffboardingInfo {
    /// The present step, as fault injection calls it.
    pub step: &'static str,
    /// Steps that got nowhere so far.
    pub failures: u32,
}

/// Some clients, and how many there are of that kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientList {
    /// Clients that match.
    pub total: u64,
    /// The first of them by id.
    pub clients: Vec<ClientInfo>,
}

/// What a client has in segments.
#[derive(Clone, Copy, Default)]
struct Holding {
    segments: u64,
    capacity_bytes: u64,
    bytes: u64,
    keys: u64,
}

impl Holding {
    fn add(&mut self, segment: &Segment) {
        self.segments += 1;
        self.capacity_bytes += segment.spec().size;
        self.bytes += segment.usage().0;
        self.keys += segment.keys();
    }
}

impl Core {
    /// The first `limit` clients by id, of those in that state if one is given. Costs a load or two for each client
    /// and segment.
    pub fn client_list(&self, state: Option<LivenessState>, limit: usize) -> ClientList {
        let mut wanted: Vec<Arc<ClientLivenessRecord>> = Vec::new();
        self.clients.for_each(|record| {
            if state.is_none_or(|state| record.state() == state) {
                wanted.push(record.clone());
            }
        });
        let total = wanted.len() as u64;
        if limit < wanted.len() {
            wanted.select_nth_unstable_by_key(limit, |record| record.id());
            wanted.truncate(limit);
        }
        wanted.sort_unstable_by_key(|record| record.id());
        // By incarnation, so that nothing of an old one is shown as a new one's.
        let mut holdings: HashMap<*const ClientLivenessRecord, Holding> =
            wanted.iter().map(|record| (Arc::as_ptr(record), Holding::default())).collect();
        for segment in self.placement.load().segments() {
            if let Some(holding) = holdings.get_mut(&Arc::as_ptr(segment.owner())) {
                holding.add(segment);
            }
        }
        let clients = wanted.iter().map(|record| {
            let holding = holdings.get(&Arc::as_ptr(record)).copied().unwrap_or_default();
            self.describe_client(record, holding)
        });
        ClientList { total, clients: clients.collect() }
    }

    fn describe_client(&self, record: &ClientLivenessRecord, mut holding: Holding) -> ClientInfo {
        let now = self.clock.now();
        let seen = record.read();
        let progress = match seen.state() {
            LivenessState::Offline => self.offboarding.progress(record.id()),
            LivenessState::Active | LivenessState::Suspected => None,
        };
        if let Some(progress) = &progress {
            // What is being taken out is in no placement any more.
            holding = Holding::default();
            progress.segments().for_each(|segment| holding.add(&segment));
        }
        ClientInfo {
            id: record.id(),
            incarnation: record.incarnation(),
            state: seen.state(),
            held: seen.is_held(),
            in_state: now.saturating_since(record.entered()),
            silent: (seen.state() == LivenessState::Active).then(|| now.saturating_since(seen.since())),
            ready: record.is_ready(),
            segments: holding.segments,
            capacity_bytes: holding.capacity_bytes,
            bytes: holding.bytes,
            keys: holding.keys,
            offboarding: progress.map(|progress| OffboardingInfo {
                step: progress.step().name(),
                failures: progress.failures(),
            }),
        }
    }
}
