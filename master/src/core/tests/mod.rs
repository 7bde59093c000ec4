//! Tests over the whole core: scenarios, a model, threads, and the bytes of a key.

mod architecture;
mod clients;
mod disk;
mod eviction;
mod footprint;
mod graceful;
mod model;
mod mounting;
mod objects;
mod offboarding;
mod shards;
mod strategies;
mod threads;
mod together;
mod upsert;

use super::{Core, SHARDS, store::Queue};
use crate::{
    clock::{Instant, ManualClock},
    error::ErrorCode,
    permit::ServingPermit,
    types::{
        Attempt, ClientId, CoreOptions, OpError, PutStart, ReplicaType, Replicas, ReplicateConfig, SegmentId,
        SegmentSpec, SegmentStatus,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

pub(super) struct Rig {
    pub(super) core: Core,
    pub(super) clock: Arc<ManualClock>,
    pub(super) permit: Arc<ServingPermit>,
}

pub(super) fn client(n: u64) -> ClientId {
    ClientId { first: 0xc11e, second: n }
}

pub(super) fn segment_id(n: u64) -> SegmentId {
    SegmentId { first: 0x5e9, second: n }
}

/// Segment `n`: `size` bytes from n × 2^40 on, with a name of its own.
pub(super) fn spec(n: u64, size: u64) -> SegmentSpec {
    SegmentSpec {
        id: segment_id(n),
        name: format!("segment-{n}").into_bytes().into(),
        base: n << 40,
        size,
        te_endpoint: format!("host-{n}:1234").into_bytes().into(),
        protocol: b"tcp".as_slice().into(),
        host_id: format!("host-{n}").into_bytes().into(),
    }
}

/// The code of a refusal; panics on a success.
#[track_caller]
pub(super) fn code<T: std::fmt::Debug>(result: Attempt<T>) -> ErrorCode {
    match result {
        Err(OpError::Failed(code)) => code,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

impl Rig {
    pub(super) fn new() -> Rig {
        Rig::with(CoreOptions::default())
    }

    pub(super) fn with(options: CoreOptions) -> Rig {
        let clock = ManualClock::new(Instant::from_nanos(1_000_000_000_000));
        let permit = Arc::new(ServingPermit::standalone(clock.clone()));
        Rig { core: Core::with_seed(options, clock.clone(), permit.clone(), 7), clock, permit }
    }

    /// With segment 1 of client 1, of 64 MiB.
    pub(super) fn with_segment() -> Rig {
        let rig = Rig::new();
        rig.core.mount_segment(client(1), spec(1, 64 * MIB)).unwrap();
        rig
    }

    pub(super) fn start(&self, writer: u64, key: &[u8], size: u64) -> Attempt<Replicas> {
        self.start_with(writer, key, size, &ReplicateConfig::default())
    }

    pub(super) fn start_with(
        &self,
        writer: u64,
        key: &[u8],
        size: u64,
        config: &ReplicateConfig<'_>,
    ) -> Attempt<Replicas> {
        self.core.put_start(&PutStart { client: client(writer), key, slice_length: size, config })
    }

    pub(super) fn upsert(&self, writer: u64, key: &[u8], size: u64) -> Attempt<Replicas> {
        let config = &ReplicateConfig::default();
        self.core.upsert_start(&PutStart { client: client(writer), key, slice_length: size, config })
    }

    pub(super) fn end(&self, writer: u64, key: &[u8]) -> Attempt<()> {
        self.core.put_end(client(writer), key, None, ReplicaType::All)
    }

    #[track_caller]
    pub(super) fn put(&self, writer: u64, key: &[u8], size: u64) {
        self.start(writer, key, size).unwrap();
        self.end(writer, key).unwrap();
    }

    /// Lets `seconds` pass with the monitor ticking each second, while `alive` clients ping.
    pub(super) fn pass(&self, seconds: u32, alive: &[u64]) {
        for _ in 0..seconds {
            self.clock.advance(SECOND);
            for &n in alive {
                self.core.ping(client(n));
            }
            self.core.liveness_tick();
        }
    }

    /// Runs the background until it has nothing to do at once; how many ticks that took.
    pub(super) fn settle(&self) -> usize {
        let ticks = (1..10_000).find(|_| !self.core.background_tick().is_zero());
        self.check();
        ticks.expect("the background gets done")
    }

    /// The oracle: recomputes from the raw state whatever is kept in step, and compares. Every range that a replica
    /// has is held in its segment, every held range has its replica, no two overlap, and all gauges agree.
    #[track_caller]
    pub(super) fn check(&self) {
        let mut by_segment: BTreeMap<SegmentId, BTreeSet<(u64, u64)>> = BTreeMap::new();
        let (mut keys, mut unfinished, mut ids) = (0, 0, BTreeSet::new());
        let (mut evictable, mut soft_pinned, mut bytes) = (0, 0, 0);
        let (mut files, mut file_bytes) = (0, 0);
        let mut groups: BTreeMap<Vec<u8>, (Vec<u64>, usize, usize)> = BTreeMap::new();
        let mut hard_pinned: BTreeMap<SegmentId, u64> = BTreeMap::new();
        for index in 0..SHARDS {
            let shard = self.core.store.shard(index).read();
            let mut waiting = Vec::new();
            let mut queued = shard.aging().check();
            for object in shard.objects() {
                keys += 1;
                assert_eq!(self.core.shard_of(object.key()), index);
                assert!(!object.is_empty());
                if let Some(disk) = object.disk() {
                    files += u64::from(disk.is_complete());
                    file_bytes += object.size();
                }
                if object.is_unfinished() {
                    waiting.push(self.core.store.hash(object.key()));
                }
                let (slot, pin) = object.slots();
                for (queue, slot) in
                    [(object.queue(), slot), (object.soft_pinned_until().map(|_| Queue::Expiry), pin)]
                {
                    let at = queued.iter().position(|of| Some(of.0) == queue && of.1 == slot);
                    assert_eq!(at.is_some(), queue.is_some(), "in its queue, and in no other");
                    at.map(|at| queued.swap_remove(at));
                }
                bytes += object.footprint();
                evictable += u64::from(object.queue().is_some());
                soft_pinned += u64::from(object.soft_pinned_until().is_some());
                if !object.group_name().is_empty() && !object.is_doomed() {
                    let (hashes, held, soft) = groups.entry(object.group_name().to_vec()).or_default();
                    let state = object.member_state();
                    hashes.push(self.core.store.hash(object.key()));
                    *held += usize::from(state.unfinished || state.hard_pinned);
                    *soft += usize::from(state.soft_pinned);
                }
                if object.is_hard_pinned() {
                    for replica in object.replicas() {
                        *hard_pinned.entry(replica.place().0).or_default() += object.size();
                    }
                }
                for replica in object.replicas() {
                    let (segment, address, id) = replica.place();
                    assert!(ids.insert(id), "replica ids are unique");
                    assert!(by_segment.entry(segment).or_default().insert((address, object.size())));
                }
            }
            unfinished += waiting.len() as u64;
            let mut listed = shard.unfinished().to_vec();
            listed.sort_unstable();
            waiting.sort_unstable();
            assert_eq!(listed, waiting);
            assert!(queued.is_empty(), "nothing is queued that is not there");
        }
        let groups: Vec<_> = groups
            .into_iter()
            .map(|(name, (mut hashes, held, soft))| {
                hashes.sort_unstable();
                (name.into_boxed_slice(), hashes, held, soft)
            })
            .collect();
        assert_eq!(self.core.store.groups().check(), groups);
        let stats = self.core.stats();
        assert_eq!((stats.evictable_keys, stats.soft_pinned_keys), (evictable, soft_pinned));
        assert_eq!(stats.metadata_bytes, bytes);
        assert_eq!((stats.disk_files, stats.disk_bytes), (files, file_bytes));
        assert_eq!((stats.keys, stats.unfinished_keys), (keys, unfinished));
        let (mut allocated, mut capacity, mut aside) = (0, 0, 0);
        let placement = self.core.placement.load();
        placement.check();
        let mut placed: BTreeSet<_> = placement.segments().map(Arc::as_ptr).collect();
        for segment in self.core.registry.lock().segments() {
            assert_eq!(placed.remove(&Arc::as_ptr(segment)), !segment.is_unmounting());
            let spec = segment.spec();
            let ranges = segment.check();
            let held: BTreeSet<_> = ranges.iter().filter(|range| !range.2).map(|r| (r.0, r.1)).collect();
            assert_eq!(held, by_segment.remove(&spec.id).unwrap_or_default());
            assert_eq!(segment.hard_pinned(), hard_pinned.remove(&spec.id).unwrap_or_default());
            assert!(
                ranges.iter().all(|range| range.0 >= spec.base && range.0 + range.1 <= spec.base + spec.size)
            );
            if !segment.is_unmounting() {
                allocated += ranges.iter().map(|range| range.1).sum::<u64>();
                aside += ranges.iter().filter(|range| range.2).map(|range| range.1).sum::<u64>();
                capacity += spec.size;
            }
        }
        assert!(placed.is_empty(), "nothing is allocated where nothing is mounted");
        assert!(by_segment.is_empty(), "no replica outlives its segment's clean-up: {by_segment:?}");
        assert_eq!(
            (stats.allocated_bytes, stats.capacity_bytes, stats.aside_bytes),
            (allocated, capacity, aside)
        );
        let named: Vec<_> = stats.segments.iter().map(|of| (of.allocated_bytes, of.capacity_bytes)).collect();
        let sums = named.iter().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        assert_eq!(sums, (allocated, capacity));
    }
}
