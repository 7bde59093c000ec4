//! Where values go: preferences, strategies, allocators.

use super::*;
use crate::types::{AllocationStrategy, CACHELIB_MAX_VALUE, CACHELIB_SLAB, MemoryAllocator};

/// Six segments of 1 MiB on three hosts: 1 and 4 on `a`, 2 and 5 on `b`, 3 and 6 on `c`.
fn rig(allocation_strategy: AllocationStrategy) -> Rig {
    let rig = Rig::with(CoreOptions { allocation_strategy, ..CoreOptions::default() });
    for n in 1..=6 {
        let host: &[u8] = [b"a", b"b", b"c"][(n as usize - 1) % 3];
        rig.core.mount_segment(client(n), SegmentSpec { host_id: host.into(), ..spec(n, MIB) }).unwrap();
    }
    rig
}

/// The numbers of the segments in which the value lies.
fn segments(replicas: &Replicas) -> Vec<u64> {
    replicas.iter().map(|replica| replica.segment.id.second).collect()
}

fn put(rig: &Rig, writer: u64, key: &str, size: u64, config: &ReplicateConfig<'_>) -> Vec<u64> {
    let placed = segments(&rig.start_with(writer, key.as_bytes(), size, config).unwrap());
    rig.end(writer, key.as_bytes()).unwrap();
    rig.check();
    placed
}

#[test]
fn random_spreads_and_places_replicas_on_distinct_segments() {
    let rig = rig(AllocationStrategy::Random);
    let config = ReplicateConfig { replica_num: 3, ..ReplicateConfig::default() };
    let mut count = [0; 7];
    for n in 0..600 {
        let placed: BTreeSet<u64> = put(&rig, 9, &n.to_string(), 8, &config).into_iter().collect();
        assert_eq!(placed.len(), 3);
        for segment in placed {
            count[segment as usize] += 1;
        }
    }
    assert!(count[1..].iter().all(|&count| count > 100), "{count:?}");
}

#[test]
fn preferred_segments_come_first_whatever_the_strategy() {
    use AllocationStrategy::{FreeRatioFirst, LocalFirst, Random, SsdFreeRatioFirst};
    for strategy in [Random, FreeRatioFirst, SsdFreeRatioFirst, LocalFirst] {
        let rig = rig(strategy);
        let config = ReplicateConfig {
            replica_num: 2,
            preferred_segments: vec![b"unknown", b"segment-5", b"segment-2"],
            ..ReplicateConfig::default()
        };
        assert_eq!(put(&rig, 9, "k", 8, &config), [5, 2], "{strategy:?}");
        let alone = ReplicateConfig { replica_num: 1, preferred_segment: b"segment-3", ..config.clone() };
        assert_eq!(put(&rig, 9, "l", 8, &alone), [3], "{strategy:?}");
        put(&rig, 9, "m", MIB - 8, &alone);
        assert_ne!(put(&rig, 9, "n", 8, &alone), [3], "full: anywhere else");
    }
}

#[test]
fn the_freest_first() {
    let rig = rig(AllocationStrategy::FreeRatioFirst);
    let at = |name: &'static [u8]| ReplicateConfig { preferred_segment: name, ..ReplicateConfig::default() };
    for (n, name) in [b"segment-1", b"segment-2", b"segment-3", b"segment-5", b"segment-6"].iter().enumerate()
    {
        put(&rig, 9, &format!("fill{n}"), 1000, &at(*name));
    }
    assert_eq!(put(&rig, 9, "k", 1000, &ReplicateConfig::default()), [4], "the only empty one");
    for n in 0..60 {
        put(&rig, 9, &n.to_string(), 1000, &ReplicateConfig::default());
    }
    let used: Vec<u64> = rig.core.stats().segments.iter().map(|of| of.allocated_bytes).collect();
    assert_eq!(used, [11_000; 6], "they stay level");
}

#[test]
fn the_writers_host_first_then_host_by_host() {
    let rig = rig(AllocationStrategy::LocalFirst);
    let from = |host: &'static [u8]| ReplicateConfig { host_id: host, ..ReplicateConfig::default() };
    let hosts = |placed: Vec<u64>| placed.into_iter().map(|n| (n - 1) % 3).collect::<Vec<_>>();
    assert_eq!(hosts(put(&rig, 9, "k", 8, &from(b"b"))), [1]);
    assert_eq!(hosts(put(&rig, 3, "l", 8, &from(b""))), [2], "client 3 has a segment on c");
    let four = ReplicateConfig { replica_num: 5, ..from(b"b") };
    assert_eq!(hosts(put(&rig, 9, "m", 8, &four)), [1, 1, 2, 2, 0], "b, then c, then round to a");
    put(&rig, 9, "full", MIB / 2 + 100, &ReplicateConfig { replica_num: 2, ..from(b"c") });
    assert_eq!(hosts(put(&rig, 9, "n", MIB / 2, &from(b"c"))), [0], "c is full");
}

#[test]
fn the_same_node_is_preferred_when_asked_for_with_one_replica() {
    let rig = rig(AllocationStrategy::Random);
    let near =
        ReplicateConfig { prefer_alloc_in_same_node: true, host_id: b"b", ..ReplicateConfig::default() };
    for n in 0..50 {
        assert!([2, 5].contains(&put(&rig, 9, &n.to_string(), 8, &near)[0]));
    }
}

#[test]
fn cachelib_takes_slabs_and_values_that_fit_into_one() {
    let memory_allocator = MemoryAllocator::Cachelib;
    let rig = Rig::with(CoreOptions { memory_allocator, ..CoreOptions::default() });
    let mount = |spec| rig.core.mount_segment(client(1), spec);
    assert_eq!(mount(spec(1, CACHELIB_SLAB + 1)), Err(ErrorCode::InvalidParams));
    let shifted = SegmentSpec { base: (1 << 40) + 4096, ..spec(1, CACHELIB_SLAB) };
    assert_eq!(mount(shifted.clone()), Err(ErrorCode::InvalidParams));
    assert_eq!(rig.core.remount_segments(client(1), vec![shifted, spec(2, 4 * CACHELIB_SLAB)]), Ok(()));
    assert_eq!(rig.core.segment_status(segment_id(1)), None, "left out");
    assert_eq!(mount(spec(3, 4 * CACHELIB_SLAB)), Ok(()));
    assert_eq!(code(rig.start(1, b"k", CACHELIB_MAX_VALUE + 1)), ErrorCode::InvalidParams);
    rig.put(1, b"k", CACHELIB_MAX_VALUE);
}
