//! The life of an object: Put, Get, Exist, Remove, Clear.

use super::*;
use crate::types::{EvictionOptions, ReplicaStatus, SoftPinAction};

#[test]
fn put_start_checks_its_arguments_in_order() {
    let rig = Rig::with_segment();
    let check = |key: &[u8], size, config: &ReplicateConfig<'_>| code(rig.start_with(1, key, size, config));
    let ok = ReplicateConfig::default();
    let none = ReplicateConfig { replica_num: 0, ..ok.clone() };
    assert_eq!(check(b"k", 1, &none), ErrorCode::InvalidParams);
    assert_eq!(check(b"", 1, &ok), ErrorCode::InvalidParams);
    assert_eq!(check(b"k", 0, &ok), ErrorCode::InvalidParams);
    let nof = ReplicateConfig { nof_replica_num: 1, ..ok.clone() };
    assert_eq!(check(b"k", 1, &nof), ErrorCode::InvalidParams);
    let near = ReplicateConfig { prefer_alloc_in_same_node: true, ..nof.clone() };
    assert_eq!(check(b"k", 1, &near), ErrorCode::InvalidParams);
    assert_eq!(check(b"", 1, &nof), ErrorCode::InvalidParams, "the key is checked first");
    let dfs = |replica_num, dfs_replica_num| ReplicateConfig { replica_num, dfs_replica_num, ..ok.clone() };
    assert_eq!(check(b"k", 1, &dfs(1, 1)), ErrorCode::DfsServiceUnavailable);
    assert_eq!(check(b"k", 1, &dfs(1, 2)), ErrorCode::InvalidParams);
    assert_eq!(check(b"k", 1, &dfs(0, 1)), ErrorCode::InvalidParams);
    let pin = |soft_pin_action, ttl| ReplicateConfig { soft_pin_action, soft_pin_ttl_ms: ttl, ..ok.clone() };
    assert_eq!(check(b"k", 1, &pin(SoftPinAction::Preserve, Some(1))), ErrorCode::InvalidParams);
    assert_eq!(check(b"k", 1, &pin(SoftPinAction::Enable, Some(86_400_001))), ErrorCode::InvalidParams);
    assert!(rig.start_with(1, b"k", 1, &pin(SoftPinAction::Enable, Some(86_400_000))).is_ok());
    assert_eq!(code(rig.start(1, b"large", 65 * MIB)), ErrorCode::NoAvailableHandle);
    assert_eq!(rig.core.stats().alloc_failures, 1);
}

#[test]
fn put_start_end_flow() {
    let rig = Rig::with_segment();
    let started = rig.start(2, b"k", 1000).unwrap();
    assert_eq!((started.len(), started[0].status), (1, ReplicaStatus::Processing));
    assert_eq!((started[0].address, started[0].size), (1 << 40, 1000));
    assert_eq!(&*started[0].segment.name, b"segment-1");
    assert_eq!(rig.core.exist_key(b"k"), Ok(false));
    assert_eq!(code(rig.core.get_replica_list(b"k")), ErrorCode::ReplicaIsNotReady);
    assert_eq!(code(rig.core.get_replica_list(b"other")), ErrorCode::ObjectNotFound);
    assert_eq!(code(rig.core.remove(b"k", true)), ErrorCode::ReplicaIsNotReady);
    assert_eq!(code(rig.start(2, b"k", 1000)), ErrorCode::ObjectAlreadyExists);
    assert_eq!(code(rig.end(1, b"k")), ErrorCode::IllegalClient);
    rig.core.put_end(client(2), b"k", Some(99), ReplicaType::Memory).unwrap();
    assert_eq!(rig.end(2, b"k"), Ok(()), "an End is idempotent");
    let got = rig.core.get_replica_list(b"k").unwrap();
    assert_eq!(got.replicas[0].status, ReplicaStatus::Complete);
    assert_eq!((got.replicas[0].id, got.replicas[0].address), (started[0].id, started[0].address));
    assert_eq!((got.object_checksum, got.lease_ttl_ms), (Some(99), 10_000));
    assert_eq!(rig.core.exist_key(b"k"), Ok(true));
    assert_eq!(code(rig.core.put_revoke(client(2), b"k", ReplicaType::All)), ErrorCode::InvalidWrite);
    assert_eq!(code(rig.end(2, b"none")), ErrorCode::ObjectNotFound);
    let stats = rig.core.stats();
    assert_eq!((stats.keys, stats.unfinished_keys, stats.allocated_bytes), (1, 0, 1000));
}

#[test]
fn revoke_frees_the_space() {
    let rig = Rig::with_segment();
    rig.start(2, b"k", 64 * MIB).unwrap();
    assert_eq!(code(rig.core.put_revoke(client(1), b"k", ReplicaType::All)), ErrorCode::IllegalClient);
    rig.core.put_revoke(client(2), b"k", ReplicaType::All).unwrap();
    assert_eq!(code(rig.core.put_revoke(client(2), b"k", ReplicaType::All)), ErrorCode::ObjectNotFound);
    assert_eq!((rig.core.stats().keys, rig.core.stats().allocated_bytes), (0, 0));
    rig.put(3, b"k", 64 * MIB);
}

#[test]
fn leases_hold_removal_back_unless_it_is_forced() {
    let rig = Rig::with_segment();
    for reader in
        [|rig: &Rig| rig.core.exist_key(b"k").is_ok(), |rig: &Rig| rig.core.get_replica_list(b"k").is_ok()]
    {
        rig.put(1, b"k", 10);
        assert!(reader(&rig));
        assert_eq!(code(rig.core.remove(b"k", false)), ErrorCode::ObjectHasLease);
        rig.clock.advance(10 * SECOND);
        rig.core.remove(b"k", false).unwrap();
        assert_eq!(code(rig.core.remove(b"k", false)), ErrorCode::ObjectNotFound);
    }
    rig.put(1, b"k", 10);
    rig.core.exist_key(b"k").unwrap();
    rig.core.remove(b"k", true).unwrap();
    assert_eq!(rig.core.stats().allocated_bytes, 0);
}

#[test]
fn an_abandoned_put_is_replaced_and_its_memory_kept_aside() {
    let eviction = EvictionOptions { ratio: 0.0, high_watermark: 1.0, allow_soft_pinned: true };
    let rig = Rig::with(CoreOptions { eviction, ..CoreOptions::default() });
    rig.core.mount_segment(client(1), spec(1, 64 * MIB)).unwrap();
    rig.start(1, b"k", 40 * MIB).unwrap();
    rig.clock.advance(30 * SECOND);
    assert_eq!(code(rig.start(2, b"k", MIB)), ErrorCode::ObjectAlreadyExists);
    rig.clock.advance(Duration::from_nanos(1));
    let second = rig.start(2, b"k", MIB).unwrap();
    assert_eq!(second[0].address, (1 << 40) + 40 * MIB, "not where the first writer may still be writing");
    assert_eq!(code(rig.end(1, b"k")), ErrorCode::IllegalClient);
    rig.end(2, b"k").unwrap();
    assert_eq!(code(rig.start(2, b"more", 30 * MIB)), ErrorCode::NoAvailableHandle);
    assert_eq!((rig.core.stats().aside_bytes, rig.core.stats().puts_discarded), (40 * MIB, 1));
    rig.clock.advance(569 * SECOND);
    rig.settle();
    assert_eq!(rig.core.stats().aside_bytes, 40 * MIB);
    rig.clock.advance(SECOND);
    rig.settle();
    let stats = rig.core.stats();
    assert_eq!((stats.aside_bytes, stats.ranges_released, stats.allocated_bytes), (0, 1, MIB));
    rig.put(2, b"more", 40 * MIB);
}

#[test]
fn the_background_discards_abandoned_puts() {
    let rig = Rig::with_segment();
    for n in 0..1000u32 {
        rig.start(1, &n.to_le_bytes(), 1000).unwrap();
    }
    rig.put(1, b"done", 1000);
    rig.clock.advance(31 * SECOND);
    rig.start(1, b"fresh", 1000).unwrap();
    rig.settle();
    let stats = rig.core.stats();
    assert_eq!((stats.keys, stats.unfinished_keys, stats.puts_discarded), (2, 1, 1000));
    assert_eq!((stats.aside_bytes, stats.allocated_bytes), (1_000_000, 1_002_000));
    assert_eq!(code(rig.end(1, &0u32.to_le_bytes())), ErrorCode::ObjectNotFound);
    rig.clock.advance(570 * SECOND);
    rig.settle();
    assert_eq!(
        (rig.core.stats().aside_bytes, rig.core.stats().allocated_bytes),
        (1000, 2000),
        "the fresh one is aside now"
    );
}

#[test]
fn unfinished_puts_in_every_shard_do_not_keep_ranges_aside_for_ever() {
    let rig = Rig::with_segment();
    rig.start(1, b"abandoned", MIB).unwrap();
    rig.clock.advance(31 * SECOND);
    rig.settle();
    rig.clock.advance(600 * SECOND);
    let mut shards = BTreeSet::new();
    let mut n = 0u32;
    while shards.len() < usize::from(SHARDS) {
        n += 1;
        if shards.insert(rig.core.shard_of(&n.to_le_bytes())) {
            rig.start(1, &n.to_le_bytes(), 10).unwrap();
        }
    }
    rig.settle();
    assert_eq!((rig.core.stats().ranges_released, rig.core.stats().aside_bytes), (1, 0));
}

#[test]
fn descriptions_of_segments_are_bounded() {
    let rig = Rig::new();
    let long = SegmentSpec { te_endpoint: vec![b'x'; 1025].into(), ..spec(1, MIB) };
    assert_eq!(rig.core.mount_segment(client(1), long.clone()), Err(ErrorCode::InvalidParams));
    assert_eq!(rig.core.remount_segments(client(1), vec![long]), Err(ErrorCode::InvalidParams));
    let many = (1..=1025).map(|n| spec(n, MIB)).collect();
    assert_eq!(rig.core.remount_segments(client(1), many), Err(ErrorCode::InvalidParams));
}

#[test]
fn replicas_lie_on_distinct_segments_and_preferred_ones_come_first() {
    let rig = Rig::new();
    for n in 1..=4 {
        rig.core.mount_segment(client(n), spec(n, MIB)).unwrap();
    }
    let two_named_alike = SegmentSpec { name: b"segment-4".as_slice().into(), ..spec(5, MIB) };
    rig.core.mount_segment(client(5), two_named_alike).unwrap();
    let config = ReplicateConfig {
        replica_num: 9,
        preferred_segments: [b"segment-3".as_slice(), b"nowhere", b"segment-2"].into_iter().collect(),
        ..ReplicateConfig::default()
    };
    let placed = rig.start_with(1, b"k", 10, &config).unwrap();
    let names: Vec<_> = placed.iter().map(|replica| replica.segment.name.clone()).collect();
    assert_eq!(placed.len(), 4, "one per name, as many as there are");
    assert_eq!((&*names[0], &*names[1]), (b"segment-3".as_slice(), b"segment-2".as_slice()));
    assert_eq!(rig.core.stats().partial_allocations, 1);
    let ids: std::collections::BTreeSet<_> = placed.iter().map(|replica| replica.id).collect();
    assert_eq!(ids.len(), 4);
    rig.end(1, b"k").unwrap();
    assert_eq!(rig.core.get_replica_list(b"k").unwrap().replicas.len(), 4);

    let old_way = ReplicateConfig { preferred_segment: b"segment-1", replica_num: 1, ..config };
    let placed = rig.start_with(1, b"k2", 10, &old_way).unwrap();
    assert_eq!(&*placed[0].segment.name, b"segment-1", "the deprecated field counts alone");
    let near =
        ReplicateConfig { prefer_alloc_in_same_node: true, host_id: b"host-2", ..ReplicateConfig::default() };
    for n in 0..20u8 {
        let placed = rig.start_with(1, &[n], 10, &near).unwrap();
        assert_eq!(&*placed[0].segment.name, b"segment-2");
    }
    rig.start_with(1, b"fill", MIB - 22 * 16, &near).unwrap();
    assert_ne!(&*rig.start_with(1, b"fallback", 1000, &near).unwrap()[0].segment.name, b"segment-2");
}

#[test]
fn random_placement_reaches_every_segment_and_the_last_free_byte() {
    let rig = Rig::new();
    for n in 1..=300 {
        rig.core.mount_segment(client(n), spec(n, 1000)).unwrap();
    }
    for n in 0..300u32 {
        rig.start(1, &n.to_le_bytes(), 1000).unwrap();
    }
    assert_eq!(code(rig.start(1, b"one more", 1)), ErrorCode::NoAvailableHandle);
    let stats = rig.core.stats();
    assert_eq!((stats.allocated_bytes, stats.capacity_bytes), (300_000, 300_000));
    assert!(stats.segments.iter().all(|segment| segment.allocated_bytes == 1000));
}

#[test]
fn clearing_takes_own_finished_unleased_replicas_only() {
    let rig = Rig::new();
    rig.core.mount_segment(client(1), spec(1, MIB)).unwrap();
    rig.core.mount_segment(client(2), spec(2, MIB)).unwrap();
    let config = ReplicateConfig { replica_num: 2, ..ReplicateConfig::default() };
    rig.start_with(1, b"k", 10, &config).unwrap();
    let clear = |n, key: &[u8], name: &[u8]| rig.core.batch_replica_clear(client(n), key, name);
    assert_eq!(clear(1, b"k", b""), Ok(false), "not finished");
    rig.end(1, b"k").unwrap();
    rig.core.exist_key(b"k").unwrap();
    assert_eq!(clear(1, b"k", b""), Ok(false), "leased");
    rig.clock.advance(10 * SECOND);
    assert_eq!(clear(2, b"k", b""), Ok(false), "not its own");
    assert_eq!(clear(1, b"none", b""), Ok(false));
    assert_eq!(clear(1, b"", b""), Ok(false));
    assert_eq!(clear(1, b"k", b"segment-1"), Ok(true));
    assert_eq!(clear(1, b"k", b"segment-1"), Ok(false), "nothing there any more");
    assert_eq!(rig.core.get_replica_list(b"k").unwrap().replicas.len(), 1);
    rig.clock.advance(10 * SECOND);
    assert_eq!(clear(1, b"k", b""), Ok(true));
    assert_eq!((rig.core.stats().keys, rig.core.stats().allocated_bytes), (0, 0));
}

#[test]
fn pins_groups_and_types_are_kept() {
    let rig = Rig::with_segment();
    let config = ReplicateConfig {
        with_hard_pin: true,
        soft_pin_action: SoftPinAction::Enable,
        soft_pin_ttl_ms: Some(5000),
        data_type: 3,
        group_id: b"group",
        ..ReplicateConfig::default()
    };
    let long_key = [7u8; 100];
    rig.start_with(1, &long_key, 10, &config).unwrap();
    let info = |rig: &Rig| rig.core.object_info(&long_key).unwrap().unwrap();
    assert_eq!(info(&rig).soft_pin_left, None, "committed by the End");
    rig.end(1, &long_key).unwrap();
    rig.clock.advance(2 * SECOND);
    let known = info(&rig);
    assert_eq!((known.soft_pin_left, known.hard_pinned), (Some(3 * SECOND), true));
    assert_eq!((&*known.group, known.data_type, known.age), (b"group".as_slice(), 3, 2 * SECOND));
    rig.end(1, &long_key).unwrap();
    assert_eq!(info(&rig).soft_pin_left, Some(3 * SECOND), "a repeated End does not refresh it");
    rig.clock.advance(3 * SECOND);
    assert_eq!(info(&rig).soft_pin_left, None);
    rig.core.remove(&long_key, false).unwrap();
    assert!(rig.core.object_info(&long_key).unwrap().is_none());
}

/// The wire's End names no write: the one of a write that was given up could complete the next one, whose data are not
/// there yet.
#[test]
fn a_late_end_never_completes_a_newer_write() {
    let rig = Rig::with_segment();
    rig.start(1, b"k", 10).unwrap();
    rig.clock.advance(31 * SECOND);
    rig.start(1, b"k", 10).unwrap();
    assert_eq!(code(rig.end(1, b"k")), ErrorCode::ObjectNotFound, "whose is it?");
    assert_eq!(code(rig.core.get_replica_list(b"k")), ErrorCode::ReplicaIsNotReady);
    rig.end(1, b"k").unwrap();
    assert!(rig.core.get_replica_list(b"k").is_ok(), "both have come");
    // The same after the background has discarded it, and after somebody else had the key.
    rig.start(1, b"l", 10).unwrap();
    rig.clock.advance(31 * SECOND);
    rig.settle();
    rig.put(2, b"l", 10);
    rig.core.remove(b"l", true).unwrap();
    rig.start(1, b"l", 10).unwrap();
    assert_eq!(code(rig.end(1, b"l")), ErrorCode::ObjectNotFound);
    rig.end(1, b"l").unwrap();
    // And for two Upserts of one client at the same time.
    rig.upsert(1, b"m", 10).unwrap();
    rig.upsert(1, b"m", 10).unwrap();
    assert_eq!(code(rig.end(1, b"m")), ErrorCode::ObjectNotFound);
    rig.end(1, b"m").unwrap();
    // An End that found nothing is not waited for any more.
    rig.start(1, b"n", 10).unwrap();
    rig.clock.advance(31 * SECOND);
    rig.settle();
    assert_eq!(code(rig.end(1, b"n")), ErrorCode::ObjectNotFound);
    rig.put(1, b"n", 10);
    rig.check();
}

#[test]
fn a_late_revoke_frees_no_memory_that_a_newer_write_uses() {
    let rig = Rig::with_segment();
    rig.start(1, b"k", 10).unwrap();
    rig.clock.advance(31 * SECOND);
    rig.start(1, b"k", 10).unwrap();
    rig.core.put_revoke(client(1), b"k", ReplicaType::All).unwrap();
    assert_eq!(rig.core.stats().aside_bytes, 20, "the second write may still be going on");
    assert_eq!(code(rig.end(1, b"k")), ErrorCode::ObjectNotFound);
}
