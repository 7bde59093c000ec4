//! Mount, `ReMount`, Unmount, Ping (facts §4.2 to §4.4, §5.1; B3, B4).

use super::{
    Core,
    counters::add,
    liveness::{ClientLivenessRecord, Listener, LivenessState, Observed},
    segments::{Known, MAX_CAPACITY, Placement, Registry, Segment},
};
use crate::{
    clock::Instant,
    error::ErrorCode,
    types::{CACHELIB_SLAB, ClientId, ClientStatus, MemoryAllocator, SegmentId, SegmentSpec},
};
use std::{collections::BTreeMap, sync::Arc};

/// Whether a description is one of memory that exists, and that the allocator takes.
fn is_valid(spec: &SegmentSpec, allocator: MemoryAllocator) -> bool {
    spec.base != 0
        && spec.size != 0
        && spec.size <= MAX_CAPACITY
        && spec.base.checked_add(spec.size).is_some()
        && (allocator == MemoryAllocator::Offset
            || spec.base.is_multiple_of(CACHELIB_SLAB) && spec.size.is_multiple_of(CACHELIB_SLAB))
}

impl Core {
    /// Adds a segment to the pool; it takes allocations at once. The same segment again is a success and nothing
    /// more. A success is a liveness signal, and creates the client's record if it has none; it does not make the
    /// client remount-ready.
    ///
    /// # Errors
    /// `InvalidParams`: base or size is 0 or (with cachelib) no multiple of a slab, the end is beyond the address space,
    /// a name is over 1024 bytes, or another segment is mounted under that id. `UnavailableInCurrentStatus` (try again):
    /// the segment, or an earlier incarnation of the client, is still being taken out.
    pub fn mount_segment(&self, client: ClientId, segment: SegmentSpec) -> Result<(), ErrorCode> {
        if !is_valid(&segment, self.options.memory_allocator) || !is_short(&segment) {
            return Err(ErrorCode::InvalidParams);
        }
        let mut registry = self.registry.lock();
        let record = self.mountable(client)?;
        match registry.compare(&segment, record.as_ref()) {
            Known::Different => return Err(ErrorCode::InvalidParams),
            Known::Unmounting => return Err(ErrorCode::UnavailableInCurrentStatus),
            Known::Same => {
                self.heard(client, record, false);
                return Ok(());
            }
            Known::No => {}
        }
        let record = self.heard(client, record, false);
        let segment = Arc::new(Segment::new(Arc::new(segment), record, Instant::ZERO));
        registry.insert(segment.clone());
        self.change_placement(&mut registry, |placement| placement.insert(&segment));
        Ok(())
    }

    /// Everything that a client has, after it was told `NeedRemount`; makes it remount-ready, with no segments, too.
    /// A segment that is not known yet is readable at once, but takes no allocation for
    /// [`CoreOptions::remount_hold`](crate::types::CoreOptions::remount_hold): writers that an earlier master sent
    /// there may still be writing. Descriptions of no memory (base or size 0) are left out, as upstream does.
    ///
    /// # Errors
    /// `InvalidParams`: one differs from what is mounted under its id (name, base, size or owner), there are more than
    /// 1024, or a name is over 1024 bytes;
    /// `UnavailableInCurrentStatus` as for a mount. Nothing is mounted then.
    pub fn remount_segments(&self, client: ClientId, segments: Vec<SegmentSpec>) -> Result<(), ErrorCode> {
        if segments.len() > MAX_SEGMENTS || !segments.iter().all(is_short) {
            return Err(ErrorCode::InvalidParams);
        }
        let mut registry = self.registry.lock();
        let record = self.mountable(client)?;
        let mut new: BTreeMap<SegmentId, SegmentSpec> = BTreeMap::new();
        for segment in segments {
            match registry.compare(&segment, record.as_ref()) {
                Known::Different => return Err(ErrorCode::InvalidParams),
                Known::Unmounting => return Err(ErrorCode::UnavailableInCurrentStatus),
                Known::Same => {}
                Known::No => match new.get(&segment.id) {
                    Some(first) if *first != segment => return Err(ErrorCode::InvalidParams),
                    None if is_valid(&segment, self.options.memory_allocator) => {
                        new.insert(segment.id, segment);
                    }
                    _ => {}
                },
            }
        }
        let record = self.heard(client, record, true);
        if new.is_empty() {
            return Ok(());
        }
        let usable_from = self.clock.now().saturating_add(self.options.remount_hold);
        let segment = |spec| Arc::new(Segment::new(Arc::new(spec), record.clone(), usable_from));
        let new: Vec<Arc<Segment>> = new.into_values().map(segment).collect();
        for segment in &new {
            registry.insert(segment.clone());
        }
        self.change_placement(&mut registry, |placement| {
            for segment in &new {
                placement.insert(segment);
            }
        });
        Ok(())
    }

    /// Takes a segment out of the pool: unreadable and without allocations when this returns; its keys are removed
    /// in the background. An id that is not known is a success.
    ///
    /// # Errors
    /// `InvalidParams`: it belongs to another client. `UnavailableInCurrentStatus`: it is being taken out already, or too
    /// much is being taken out at this time (try again).
    pub fn unmount_segment(&self, segment: SegmentId, client: ClientId) -> Result<(), ErrorCode> {
        let mut registry = self.registry.lock();
        let Some(mounted) = registry.get(segment).cloned() else { return Ok(()) };
        if mounted.owner().id() != client {
            return Err(ErrorCode::InvalidParams);
        }
        if mounted.is_unmounting() {
            return Err(ErrorCode::UnavailableInCurrentStatus);
        }
        if !self.offboarding.reserve() {
            return Err(ErrorCode::UnavailableInCurrentStatus);
        }
        self.offboarding.put_back(Core::prepare_unmount(mounted.clone(), self.clock.now()));
        self.change_placement(&mut registry, |placement| placement.remove(&mounted));
        Ok(())
    }

    /// A heartbeat: `Ok` for a client that is remount-ready and not Offline, which makes a Suspected one Active
    /// again; `NeedRemount` for everybody else. One lock-free look-up and one compare-and-swap: it waits for
    /// nothing. It never creates a record.
    pub fn ping(&self, client: ClientId) -> ClientStatus {
        let now = self.clock.now();
        let ready = self.clients.with(client, |record| {
            record.note_ping();
            match record.observe(now, Listener::current()) {
                Observed::Offline => return false,
                Observed::Recovered => add(&self.counters.recovered, 1),
                Observed::Active => {}
            }
            record.is_ready()
        });
        if ready == Some(true) { ClientStatus::Ok } else { ClientStatus::NeedRemount }
    }

    /// The liveness of a client and whether it is remount-ready; `None` without a record.
    pub fn client_state(&self, client: ClientId) -> Option<(LivenessState, bool)> {
        self.clients.with(client, |record| (record.state(), record.is_ready()))
    }

    /// Tells the lives of that client apart (B13): never 0, and another one for each record.
    pub fn incarnation(&self, client: ClientId) -> Option<u64> {
        self.clients.with(client, |record| record.incarnation())
    }

    /// The client's record, unless the client is behind the barrier of its own offboarding.
    fn mountable(&self, client: ClientId) -> Result<Option<Arc<ClientLivenessRecord>>, ErrorCode> {
        let record = self.clients.get(client);
        if record.as_ref().is_some_and(|record| record.state() == LivenessState::Offline) {
            return Err(ErrorCode::UnavailableInCurrentStatus);
        }
        Ok(record)
    }

    /// A mount that succeeds is a signal of life. Offline is committed under the registry's mutex only, which the
    /// caller holds, so the signal cannot come too late.
    fn heard(
        &self,
        client: ClientId,
        record: Option<Arc<ClientLivenessRecord>>,
        ready: bool,
    ) -> Arc<ClientLivenessRecord> {
        let now = self.clock.now();
        let record = record.unwrap_or_else(|| {
            let record = Arc::new(ClientLivenessRecord::new(client, rand::random_range(1..=u64::MAX), now));
            self.clients.insert(record.clone());
            record
        });
        match record.observe(now, Listener::current()) {
            Observed::Recovered => add(&self.counters.recovered, 1),
            observed => debug_assert_eq!(observed, Observed::Active),
        }
        if ready {
            record.set_ready();
        }
        record
    }

    /// Makes a change of the registry visible to data calls, at the cost of what changes (and of one pointer for each 64
    /// segments). The registry is what says that its mutex is held: of two changes at the same time one would be lost.
    pub(crate) fn change_placement(&self, _: &mut Registry, change: impl FnOnce(&mut Placement)) {
        let mut placement = Placement::clone(&self.placement.load());
        change(&mut placement);
        self.placement.store(Arc::new(placement));
    }
}

/// Segments in one ReMount, and bytes of each name in a description, at the most: a segment costs kilobytes here, and
/// its endpoint stands in every answer about a key in it.
const MAX_SEGMENTS: usize = 1024;
const MAX_NAME: usize = 1024;

fn is_short(segment: &SegmentSpec) -> bool {
    [&segment.name, &segment.te_endpoint, &segment.protocol, &segment.host_id]
        .iter()
        .all(|name| name.len() <= MAX_NAME)
}
