//! What should be there: the plain model.

use crate::types::LivenessState;
use std::collections::BTreeMap;

const DISCARD: u64 = 30;
pub(super) const RELEASE: u64 = 600;
const GRACE: u64 = 40;
const ACTIVE_TTL: u64 = 10;
const SUSPICION_TTL: u64 = 20;
/// Small enough that few clients make a mass silence now and then.
pub(super) const MASS_MIN: u64 = 3;
pub(super) const MASS_RATIO: f64 = 0.7;

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) writer: u64,
    pub(super) size: u64,
    pub(super) started: u64,
    pub(super) leased_until: u64,
    pub(super) complete: bool,
    pub(super) established: bool,
    /// (incarnation of the segment, address)
    pub(super) replicas: Vec<(usize, u64)>,
}

/// An incarnation of a segment.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) owner: u64,
    pub(super) usable_from: u64,
    pub(super) gone: bool,
    pub(super) cleaned: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) state: LivenessState,
    pub(super) since: u64,
    /// Suspected for one more window, as one of many.
    pub(super) held: bool,
    pub(super) ready: bool,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) now: u64,
    pub(super) served: u64,
    pub(super) next_round: u64,
    pub(super) objects: BTreeMap<u8, Object>,
    pub(super) segments: Vec<Segment>,
    pub(super) clients: BTreeMap<u64, Client>,
    /// (incarnation of the segment, size, due)
    pub(super) aside: Vec<(usize, u64, u64)>,
}

impl Model {
    pub(super) fn state(&self, client: u64) -> Option<LivenessState> {
        self.clients.get(&client).map(|client| client.state)
    }

    pub(super) fn offline(&self, client: u64) -> bool {
        self.state(client) == Some(LivenessState::Offline)
    }

    pub(super) fn serves(&self, incarnation: usize) -> bool {
        let segment = &self.segments[incarnation];
        !segment.gone && self.state(segment.owner) == Some(LivenessState::Active)
    }

    /// The present incarnation under that number.
    pub(super) fn mounted(&self, number: u64) -> Option<usize> {
        (0..self.segments.len())
            .rev()
            .find(|&at| self.segments[at].number == number && !self.segments[at].cleaned)
    }

    pub(super) fn set_aside(&mut self, object: &Object, due: u64) {
        for &(segment, _) in &object.replicas {
            self.aside.push((segment, object.size, due));
        }
    }

    /// What a write finds under that key: gone replicas are dropped, and the object with the last.
    pub(super) fn live(&mut self, key: u8) -> Option<Object> {
        let segments = &self.segments;
        let object = self.objects.get_mut(&key)?;
        object.replicas.retain(|&(segment, _)| !segments[segment].gone);
        if object.replicas.is_empty() {
            self.objects.remove(&key);
        }
        self.objects.get(&key).cloned()
    }

    pub(super) fn abandoned(&self, object: &Object) -> bool {
        !object.complete && object.started + DISCARD < self.now
    }

    pub(super) fn hear(&mut self, client: u64) {
        if let Some(known) = self.clients.get_mut(&client)
            && known.state != LivenessState::Offline
        {
            known.state = LivenessState::Active;
            known.since = self.now;
            known.held = false;
        }
    }

    pub(super) fn tick(&mut self) {
        self.served += 1;
        let now = self.now;
        for client in self.clients.values_mut() {
            if client.state == LivenessState::Active && now - client.since >= ACTIVE_TTL {
                (client.state, client.since, client.held) = (LivenessState::Suspected, now, false);
            }
        }
        let fresh =
            |client: &Client| client.state == LivenessState::Suspected && now - client.since <= ACTIVE_TTL;
        let silent = self.clients.values().filter(|client| fresh(client)).count() as u64;
        let active =
            self.clients.values().filter(|client| client.state == LivenessState::Active).count() as u64;
        if silent >= MASS_MIN && silent as f64 >= MASS_RATIO * (active + silent) as f64 {
            self.clients.values_mut().filter(|client| fresh(client)).for_each(|client| client.held = true);
        }
        for (&id, client) in &mut self.clients {
            let window = if client.held { 2 * SUSPICION_TTL } else { SUSPICION_TTL };
            if client.state == LivenessState::Suspected
                && now - client.since >= window
                && self.served >= GRACE
            {
                (client.state, client.since, client.held) = (LivenessState::Offline, now, false);
                self.segments.iter_mut().filter(|segment| segment.owner == id).for_each(|of| of.gone = true);
            }
        }
    }

    pub(super) fn settle(&mut self) {
        let gone: Vec<bool> = self.segments.iter().map(|segment| segment.gone).collect();
        for object in self.objects.values_mut() {
            object.replicas.retain(|&(segment, _)| !gone[segment]);
        }
        self.objects.retain(|_, object| !object.replicas.is_empty());
        self.aside.retain(|&(segment, ..)| !gone[segment]);
        self.segments.iter_mut().filter(|segment| segment.gone).for_each(|segment| segment.cleaned = true);
        self.clients.retain(|_, client| client.state != LivenessState::Offline);
        if self.now >= self.next_round {
            self.next_round = self.now + 1;
            for key in 0..super::KEYS {
                if let Some(object) = self.objects.get(&key).cloned()
                    && self.abandoned(&object)
                {
                    self.set_aside(&object, object.started + RELEASE);
                    self.objects.remove(&key);
                }
            }
            self.aside.retain(|&(.., due)| due > self.now);
        }
    }

    pub(super) fn mount(&mut self, client: u64, number: u64, usable_from: u64) {
        self.segments.push(Segment { number, owner: client, usable_from, gone: false, cleaned: false });
    }

    pub(super) fn know(&mut self, client: u64) {
        let now = self.now;
        self.clients.entry(client).or_insert(Client {
            state: LivenessState::Active,
            since: now,
            held: false,
            ready: false,
        });
        self.hear(client);
    }
}
