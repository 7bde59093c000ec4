//! What only the core can count.

use super::{Core, eviction::Obstacle, liveness::LivenessState, offboarding::OffboardingStats, store::Queue};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Counters of events that are rare, or that happen only when something went wrong: none of them is touched on the
/// ordinary way of a Put, Get or Exist.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) alloc_failures: AtomicU64,
    pub(crate) partial_allocations: AtomicU64,
    pub(crate) puts_discarded: AtomicU64,
    pub(crate) ranges_released: AtomicU64,
    pub(crate) suspected: AtomicU64,
    pub(crate) recovered: AtomicU64,
    pub(crate) offline: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) mass_silence_held: AtomicU64,
    pub(crate) offboarded_replicas: AtomicU64,
    pub(crate) ceiling_refusals: AtomicU64,
    pub(crate) evictions_attempted: AtomicU64,
    pub(crate) evictions_successful: AtomicU64,
    pub(crate) evicted_keys: AtomicU64,
    pub(crate) evicted_bytes: AtomicU64,
    /// By [`Obstacle`].
    pub(crate) evictions_without_effect: [AtomicU64; Obstacle::ALL.len()],
}

/// Bytes of all segments of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentStats {
    /// The name.
    pub name: Arc<[u8]>,
    /// Bytes that were asked for and are not free again.
    pub allocated_bytes: u64,
    /// Bytes of the mounted segments.
    pub capacity_bytes: u64,
}

/// Clients by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Active.
    pub active: u64,
    /// Suspected.
    pub suspected: u64,
    /// Of these, those that are held for one more window, because many fell silent at once (B2).
    pub held: u64,
    /// Offline, that is being offboarded.
    pub offline: u64,
    /// Remounted and not Offline.
    pub ready: u64,
}

/// A picture of the core for metrics and status, taken without any shard lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreStats {
    /// Keys, unfinished puts included (`master_key_count`).
    pub keys: u64,
    /// Puts that have started and not ended.
    pub unfinished_keys: u64,
    /// Bytes allocated in mounted segments; ranges set aside count (`master_allocated_bytes`).
    pub allocated_bytes: u64,
    /// Bytes of all mounted segments (`master_total_capacity_bytes`).
    pub capacity_bytes: u64,
    /// Bytes set aside because an earlier writer may still write into them
    /// (`master_put_start_discarded_staging_size`).
    pub aside_bytes: u64,
    /// The same by segment name.
    pub segments: Vec<SegmentStats>,
    /// Clients per state.
    pub active_clients: u64,
    /// See `active_clients`.
    pub suspected_clients: u64,
    /// Clients whose offboarding is not complete.
    pub offline_clients: u64,
    /// Clients that have remounted and are not Offline (`master_active_clients`).
    pub ready_clients: u64,
    /// Transitions Active → Suspected since the start.
    pub suspected_transitions: u64,
    /// Transitions Suspected → Active.
    pub recoveries: u64,
    /// Transitions Suspected → Offline.
    pub offline_transitions: u64,
    /// Times in which the master noticed that it had not listened.
    pub stalls: u64,
    /// Suspected clients that are held for one more window, because many fell silent at once (B2).
    pub held_clients: u64,
    /// Clients that were held since the start.
    pub mass_silence_held: u64,
    /// The offboarding queue.
    pub offboarding: OffboardingStats,
    /// Replicas that offboarding removed.
    pub offboarded_replicas: u64,
    /// Starts for which no room was found (`master_put_start_alloc_failures_total`).
    pub alloc_failures: u64,
    /// Starts that got fewer replicas than asked for (`master_put_start_partial_allocations_total`).
    pub partial_allocations: u64,
    /// Abandoned puts that were discarded (`master_put_start_discard_cnt`).
    pub puts_discarded: u64,
    /// Ranges set aside that were released again (`master_put_start_release_cnt`).
    pub ranges_released: u64,
    /// DISK replicas that are complete (`file_cache_nums_`).
    pub disk_files: u64,
    /// Bytes of DISK replicas, unfinished ones included (`master_allocated_file_size_bytes`).
    pub disk_bytes: u64,
    /// Bytes that they may take (`master_total_file_capacity_bytes`); 0 without a limit, or without DISK replicas.
    pub disk_capacity_bytes: u64,
    /// Bytes of memory that the objects take, about.
    pub metadata_bytes: u64,
    /// `max_keys`, 0 for none.
    pub max_keys: u64,
    /// `max_metadata_bytes`, 0 for none.
    pub max_metadata_bytes: u64,
    /// Starts that one of these two has refused.
    pub ceiling_refusals: u64,
    /// Objects with a soft pin (`master_soft_pin_key_count`).
    pub soft_pinned_keys: u64,
    /// Finished objects without a hard pin: what may be evicted as soon as nobody has a lease on it.
    pub evictable_keys: u64,
    /// Rounds of eviction (`master_attempted_evictions_total`).
    pub evictions_attempted: u64,
    /// Those that evicted something (`master_successful_evictions_total`).
    pub evictions_successful: u64,
    /// Objects that were evicted (`master_evicted_key_count`).
    pub evicted_keys: u64,
    /// Bytes of their values, all replicas (`master_evicted_size_bytes`).
    pub evicted_bytes: u64,
    /// Rounds that evicted nothing, by what was in the way, in the order of [`Obstacle::ALL`].
    pub evictions_without_effect: [u64; Obstacle::ALL.len()],
}

impl Core {
    /// The present figures. Costs one load for each shard, segment and client; waits for nobody.
    pub fn stats(&self) -> CoreStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (keys, unfinished_keys) = self.store.counts();
        let (disk_files, disk_bytes) = self.disk.as_ref().map(|disk| disk.usage()).unwrap_or_default();
        let mut stats = CoreStats {
            keys,
            unfinished_keys,
            disk_files,
            disk_bytes,
            disk_capacity_bytes: self.disk.as_ref().map_or(0, |_| self.options.disk_capacity),
            suspected_transitions: read(&self.counters.suspected),
            recoveries: read(&self.counters.recovered),
            offline_transitions: read(&self.counters.offline),
            stalls: read(&self.counters.stalls),
            mass_silence_held: read(&self.counters.mass_silence_held),
            offboarding: self.offboarding.stats(),
            offboarded_replicas: read(&self.counters.offboarded_replicas),
            alloc_failures: read(&self.counters.alloc_failures),
            partial_allocations: read(&self.counters.partial_allocations),
            puts_discarded: read(&self.counters.puts_discarded),
            ranges_released: read(&self.counters.ranges_released),
            metadata_bytes: self.store.bytes(),
            max_keys: self.options.max_keys,
            max_metadata_bytes: self.options.max_metadata_bytes,
            ceiling_refusals: read(&self.counters.ceiling_refusals),
            soft_pinned_keys: self.store.queued(Queue::Expiry),
            evictable_keys: self.store.queued(Queue::Plain) + self.store.queued(Queue::Pinned),
            evictions_attempted: read(&self.counters.evictions_attempted),
            evictions_successful: read(&self.counters.evictions_successful),
            evicted_keys: read(&self.counters.evicted_keys),
            evicted_bytes: read(&self.counters.evicted_bytes),
            evictions_without_effect: std::array::from_fn(|at| {
                read(&self.counters.evictions_without_effect[at])
            }),
            ..CoreStats::default()
        };
        for (name, segments) in self.placement.load().by_name() {
            let mut of_name = SegmentStats { name: name.clone(), allocated_bytes: 0, capacity_bytes: 0 };
            for segment in segments.iter().filter(|segment| !segment.is_unmounting()) {
                let (allocated, aside) = segment.usage();
                of_name.allocated_bytes += allocated;
                of_name.capacity_bytes += segment.spec().size;
                stats.aside_bytes += aside;
            }
            stats.allocated_bytes += of_name.allocated_bytes;
            stats.capacity_bytes += of_name.capacity_bytes;
            stats.segments.push(of_name);
        }
        let clients = self.client_counts();
        stats.active_clients = clients.active;
        stats.suspected_clients = clients.suspected;
        stats.offline_clients = clients.offline;
        stats.held_clients = clients.held;
        stats.ready_clients = clients.ready;
        stats
    }

    /// Clients by state. One load or two for each; waits for nobody.
    pub fn client_counts(&self) -> ClientCounts {
        let mut counts = ClientCounts::default();
        self.clients.for_each(|record| {
            let seen = record.read();
            let state = seen.state();
            counts.held += u64::from(seen.is_held());
            counts.ready += u64::from(record.is_ready() && state != LivenessState::Offline);
            match state {
                LivenessState::Active => counts.active += 1,
                LivenessState::Suspected => counts.suspected += 1,
                LivenessState::Offline => counts.offline += 1,
            }
        });
        counts
    }
}
