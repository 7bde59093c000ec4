//! Eviction: what goes, in which order, what never does, and what it does when nothing can go.

use super::*;
use crate::{
    clock::BootClock,
    core::{Obstacle, store::Queue},
    types::{EvictionOptions, SoftPinAction},
};
use std::sync::atomic::{AtomicBool, Ordering};

const KIB: u64 = 1 << 10;

fn rig(eviction: EvictionOptions) -> Rig {
    let rig = Rig::with(CoreOptions { eviction, ..CoreOptions::default() });
    rig.core.mount_segment(client(1), spec(1, 64 * KIB)).unwrap();
    rig
}

/// Eviction on demand only.
fn on_demand() -> EvictionOptions {
    EvictionOptions { high_watermark: 1.0, ..EvictionOptions::default() }
}

fn key(n: u32) -> Vec<u8> {
    format!("key-{n}").into_bytes()
}

fn here(rig: &Rig, n: u32) -> bool {
    rig.core.object_info(&key(n)).unwrap().is_some()
}

/// Keys `0..count` of 1 KiB, one a second.
fn fill(rig: &Rig, count: u32) {
    for n in 0..count {
        rig.put(1, &key(n), KIB);
        rig.clock.advance(SECOND);
    }
}

fn without_effect(rig: &Rig, obstacle: Obstacle) -> u64 {
    rig.core.stats().evictions_without_effect[obstacle as usize]
}

#[test]
fn above_the_watermark_the_least_recently_used_go() {
    let rig = rig(EvictionOptions::default());
    fill(&rig, 56);
    rig.settle();
    assert_eq!(rig.core.stats().evicted_keys, 0, "87.5 % is below the watermark");
    rig.core.get_replica_list(&key(0)).unwrap();
    for n in 56..61 {
        rig.put(1, &key(n), KIB);
    }
    rig.clock.advance(11 * SECOND);
    rig.settle();
    let stats = rig.core.stats();
    assert!(stats.allocated_bytes <= 64 * KIB * 9 / 10);
    // 95.3 % used: 5.3 % over, so a round takes 10.3 % of 61 keys.
    assert_eq!((stats.evicted_keys, stats.evicted_bytes), (7, 7 * KIB));
    assert_eq!((stats.evictions_attempted, stats.evictions_successful), (1, 1));
    let gone: Vec<u32> = (0..61).filter(|&n| !here(&rig, n)).collect();
    assert_eq!(gone, (1..8).collect::<Vec<_>>(), "0 was read, so it is younger than the others");
    assert_eq!(code(rig.core.get_replica_list(&key(1))), ErrorCode::ObjectNotFound);
}

#[test]
fn a_put_that_finds_no_room_makes_room_for_the_next() {
    let rig = rig(on_demand());
    fill(&rig, 64);
    rig.settle();
    assert_eq!(rig.core.stats().evictions_attempted, 0, "full is not above 1.0");
    assert_eq!(code(rig.start(1, b"more", KIB)), ErrorCode::NoAvailableHandle);
    rig.settle();
    assert_eq!(rig.core.stats().evicted_keys, 4, "5 % of 64, rounded up");
    assert!((0..4).all(|n| !here(&rig, n)) && (4..64).all(|n| here(&rig, n)));
    rig.put(1, b"more", KIB);
    rig.settle();
    assert_eq!(rig.core.stats().evictions_attempted, 1, "once for each time that it was asked for");
}

#[test]
fn a_ratio_of_zero_evicts_nothing_on_demand() {
    let rig = rig(EvictionOptions { ratio: 0.0, ..on_demand() });
    fill(&rig, 64);
    assert_eq!(code(rig.start(1, b"more", KIB)), ErrorCode::NoAvailableHandle);
    rig.settle();
    assert_eq!(rig.core.stats().evictions_attempted, 0);
}

#[test]
fn what_is_leased_stays_and_the_round_says_so() {
    let rig = rig(on_demand());
    fill(&rig, 64);
    for n in 0..64 {
        assert!(if n % 2 == 0 {
            rig.core.exist_key(&key(n)).unwrap()
        } else {
            rig.core.get_replica_list(&key(n)).is_ok()
        });
    }
    assert_eq!(code(rig.start(1, b"more", KIB)), ErrorCode::NoAvailableHandle);
    rig.settle();
    let stats = rig.core.stats();
    assert_eq!((stats.evicted_keys, stats.evictions_attempted, stats.evictions_successful), (0, 1, 0));
    assert_eq!(without_effect(&rig, Obstacle::InUse), 1);
    rig.clock.advance(10 * SECOND);
    assert_eq!(code(rig.start(1, b"more", KIB)), ErrorCode::NoAvailableHandle);
    rig.settle();
    assert_eq!(rig.core.stats().evicted_keys, 4);
}

#[test]
fn an_impossible_request_frees_nothing() {
    let rig = rig(on_demand());
    let hard = ReplicateConfig { with_hard_pin: true, ..ReplicateConfig::default() };
    fill(&rig, 40);
    assert_eq!(code(rig.start(1, b"large", 65 * KIB)), ErrorCode::NoAvailableHandle);
    rig.settle();
    rig.start_with(1, b"hard", 20 * KIB, &hard).unwrap();
    rig.end(1, b"hard").unwrap();
    assert_eq!(code(rig.start(1, b"large", 45 * KIB)), ErrorCode::NoAvailableHandle);
    rig.settle();
    assert_eq!(rig.core.stats().evicted_keys, 0);
    assert_eq!(without_effect(&rig, Obstacle::TooLarge), 2);
    // Possible, if all that may go goes.
    for _ in 0..100 {
        match rig.start(1, b"large", 40 * KIB) {
            Ok(_) => break,
            refused => assert_eq!(code(refused), ErrorCode::NoAvailableHandle),
        }
        rig.settle();
    }
    rig.end(1, b"large").unwrap();
    rig.core.remove(b"hard", true).unwrap();
    assert_eq!(rig.core.placement.load().segments().map(|segment| segment.hard_pinned()).sum::<u64>(), 0);
}

#[test]
fn hard_pins_are_never_evicted() {
    let rig = rig(EvictionOptions::default());
    let hard = ReplicateConfig { with_hard_pin: true, ..ReplicateConfig::default() };
    for n in 0..64 {
        rig.start_with(1, &key(n), KIB, &hard).unwrap();
        rig.end(1, &key(n)).unwrap();
    }
    rig.clock.advance(1000 * SECOND);
    assert_eq!(code(rig.start(1, b"more", 1)), ErrorCode::NoAvailableHandle);
    rig.settle();
    let stats = rig.core.stats();
    assert_eq!((stats.keys, stats.evicted_keys, stats.evictable_keys), (64, 0, 0));
    assert!(without_effect(&rig, Obstacle::HardPinned) + without_effect(&rig, Obstacle::TooLarge) > 0);
}

fn soft(ttl_ms: u64) -> ReplicateConfig<'static> {
    ReplicateConfig {
        soft_pin_action: SoftPinAction::Enable,
        soft_pin_ttl_ms: Some(ttl_ms),
        ..ReplicateConfig::default()
    }
}

/// Keys 0 to 31 with a soft pin of 10 minutes, then 32 to 63 without.
fn half_soft_pinned(eviction: EvictionOptions) -> Rig {
    let rig = rig(eviction);
    for n in 0..32 {
        rig.start_with(1, &key(n), KIB, &soft(600_000)).unwrap();
        rig.end(1, &key(n)).unwrap();
    }
    rig.clock.advance(60 * SECOND);
    for n in 32..64 {
        rig.put(1, &key(n), KIB);
    }
    rig.clock.advance(SECOND);
    assert_eq!(rig.core.stats().soft_pinned_keys, 32);
    rig
}

/// Says that values found no room, one of them so large that there is none for it at the next look either.
fn ask(rig: &Rig) {
    rig.core.pressure.note(KIB);
    rig.core.pressure.note(u64::MAX);
}

fn ask_for_room(rig: &Rig, times: usize) {
    for _ in 0..times {
        ask(rig);
        rig.settle();
    }
}

#[test]
fn soft_pins_go_last_the_oldest_first() {
    let rig = half_soft_pinned(on_demand());
    ask_for_room(&rig, 100);
    let soft_left = (0..32).filter(|&n| here(&rig, n)).count();
    assert!((32..64).all(|n| !here(&rig, n)) && soft_left < 32);
    assert_eq!(rig.core.stats().soft_pinned_keys, soft_left as u64);
    let rig = half_soft_pinned(on_demand());
    ask_for_room(&rig, 8);
    assert!((0..32).all(|n| here(&rig, n)), "as long as anything else is left");
    assert_eq!(rig.core.stats().evicted_keys, 25, "each round 5 % of what is left, rounded up");
}

#[test]
fn soft_pins_can_be_kept_altogether_until_they_end() {
    let rig = half_soft_pinned(EvictionOptions { allow_soft_pinned: false, ..on_demand() });
    ask_for_room(&rig, 100);
    assert_eq!(rig.core.stats().keys, 32);
    assert!((0..32).all(|n| here(&rig, n)));
    assert!(without_effect(&rig, Obstacle::SoftPinned) > 0);
    rig.clock.advance(540 * SECOND);
    rig.settle();
    assert_eq!(rig.core.stats().soft_pinned_keys, 0, "600 s are over");
    ask_for_room(&rig, 1);
    assert_eq!(rig.core.stats().evicted_keys, 32 + 2);
}

#[test]
fn an_upsert_sets_and_takes_a_soft_pin_with_its_end() {
    let rig = rig(on_demand());
    let upsert = |config: &ReplicateConfig<'_>| {
        rig.core.upsert_start(&PutStart { client: client(1), key: b"k", slice_length: 10, config }).unwrap();
        rig.check();
        rig.end(1, b"k").unwrap();
        rig.check();
        rig.core.stats().soft_pinned_keys
    };
    assert_eq!(upsert(&soft(1000)), 1);
    rig.clock.advance(SECOND);
    assert_eq!(upsert(&soft(5000)), 1, "a longer one in its place");
    rig.clock.advance(2 * SECOND);
    rig.settle();
    assert_eq!(rig.core.stats().soft_pinned_keys, 1);
    let off = ReplicateConfig { soft_pin_action: SoftPinAction::Disable, ..ReplicateConfig::default() };
    assert_eq!(upsert(&off), 0);
}

fn member(group: &'static [u8]) -> ReplicateConfig<'static> {
    ReplicateConfig { group_id: group, ..ReplicateConfig::default() }
}

fn put_member(rig: &Rig, n: u32, config: &ReplicateConfig<'_>) {
    rig.start_with(1, &key(n), KIB, config).unwrap();
    rig.end(1, &key(n)).unwrap();
}

#[test]
fn a_group_goes_as_a_whole_and_at_one_moment() {
    let rig = rig(on_demand());
    for n in 0..60 {
        put_member(&rig, n, &member(b"g"));
    }
    rig.clock.advance(SECOND);
    ask(&rig);
    assert!(rig.core.background_tick().is_zero());
    let stats = rig.core.stats();
    assert!(stats.keys > 0, "not all of it is erased yet");
    assert!((0..60).all(|n| code(rig.core.get_replica_list(&key(n))) == ErrorCode::ObjectNotFound));
    assert!((0..60).all(|n| !rig.core.exist_key(&key(n)).unwrap() && !here(&rig, n)));
    // A key of it can be written again at once, into a group of its own.
    put_member(&rig, 7, &member(b"g"));
    rig.settle();
    let stats = rig.core.stats();
    assert_eq!((stats.keys, stats.allocated_bytes), (1, KIB));
    assert!(here(&rig, 7));
}

#[test]
fn one_member_protects_its_group() {
    let rig = rig(on_demand());
    let others = member(b"hard");
    let hard = ReplicateConfig { with_hard_pin: true, ..others.clone() };
    for n in 0..20 {
        put_member(&rig, n, &member(b"leased"));
        put_member(&rig, 20 + n, if n == 7 { &hard } else { &others });
    }
    for n in 40..59 {
        put_member(&rig, n, &member(b"unfinished"));
    }
    rig.clock.advance(11 * SECOND);
    rig.core.get_replica_list(&key(3)).unwrap();
    rig.start_with(1, &key(59), KIB, &member(b"unfinished")).unwrap();
    ask_for_room(&rig, 30);
    assert_eq!(rig.core.stats().keys, 60);
    assert_eq!(code(rig.core.remove(&key(4), false)), ErrorCode::ObjectHasLease, "one lease for all");
    rig.end(1, &key(59)).unwrap();
    rig.clock.advance(11 * SECOND);
    ask_for_room(&rig, 30);
    assert!((0..20).all(|n| !here(&rig, n)) && (40..60).all(|n| !here(&rig, n)));
    assert!((20..40).all(|n| here(&rig, n)), "the hard pin of one");
    rig.core.remove(&key(27), true).unwrap();
    rig.clock.advance(11 * SECOND);
    ask_for_room(&rig, 30);
    assert_eq!(rig.core.stats().keys, 0);
}

#[test]
fn what_lies_with_a_suspected_client_stays() {
    let rig = rig(on_demand());
    rig.core.liveness_tick();
    rig.core.mount_segment(client(2), spec(2, 64 * KIB)).unwrap();
    for n in 0..128 {
        rig.put(1, &key(n), KIB);
    }
    rig.pass(12, &[1]);
    let suspected = |n: &u32| rig.core.get_replica_list(&key(*n)).is_err();
    let theirs: Vec<u32> = (0..128).filter(suspected).collect();
    assert_eq!(theirs.len(), 64);
    rig.pass(10, &[1]);
    ask_for_room(&rig, 100);
    assert!(theirs.iter().all(|&n| here(&rig, n)));
    rig.pass(1, &[1, 2]);
    assert!(theirs.iter().all(|n| !suspected(n)), "and is served when it comes back");
}

#[test]
fn nothing_goes_for_a_put_whose_room_came_back_before_the_round() {
    let rig = rig(on_demand());
    rig.core.liveness_tick();
    rig.core.mount_segment(client(2), spec(2, 64 * KIB)).unwrap();
    let on = |name: &'static [u8]| ReplicateConfig { preferred_segment: name, ..ReplicateConfig::default() };
    for n in 0..64 {
        rig.start_with(1, &key(n), KIB, &on(b"segment-1")).unwrap();
        rig.end(1, &key(n)).unwrap();
    }
    rig.pass(12, &[1]);
    assert_eq!(code(rig.start(1, b"more", KIB)), ErrorCode::NoAvailableHandle, "the room is with client 2");
    rig.pass(1, &[1, 2]);
    rig.settle();
    assert_eq!(rig.core.stats().evictions_attempted, 0);
    rig.put(1, b"more", KIB);
    // Room for the smaller one of two that asked does not help the larger.
    for n in 100..162 {
        rig.put(1, &key(n), KIB);
    }
    rig.clock.advance(SECOND);
    assert_eq!(code(rig.start(1, b"large", 2 * KIB)), ErrorCode::NoAvailableHandle);
    rig.core.pressure.note(KIB / 2);
    rig.settle();
    assert!(rig.core.stats().evicted_keys > 0);
}

#[test]
fn nothing_is_evicted_without_the_permit_and_abandoned_puts_get_their_time_anew() {
    let rig = rig(on_demand());
    fill(&rig, 60);
    rig.start(2, b"in flight", KIB).unwrap();
    rig.clock.advance(29 * SECOND);
    rig.permit.revoke();
    ask_for_room(&rig, 3);
    assert_eq!(rig.core.stats().evicted_keys, 0);
    rig.clock.advance(100 * SECOND);
    rig.permit.extend(1, Instant::MAX);
    rig.clock.advance(30 * SECOND);
    rig.settle();
    assert_eq!(code(rig.start(1, b"in flight", KIB)), ErrorCode::ObjectAlreadyExists);
    rig.clock.advance(SECOND);
    rig.settle();
    assert_eq!(rig.core.stats().puts_discarded, 1);
    assert_eq!(code(rig.end(2, b"in flight")), ErrorCode::ObjectNotFound);
}

#[test]
fn probes_keep_an_object_for_ever_only_without_a_bound() {
    for (bound, kept) in [(None, true), (Some(60 * SECOND), false)] {
        let options =
            CoreOptions { eviction: on_demand(), exist_lease_bound: bound, ..CoreOptions::default() };
        let rig = Rig::with(options);
        rig.core.mount_segment(client(1), spec(1, 64 * KIB)).unwrap();
        rig.put(1, b"probed", KIB);
        for _ in 0..300 {
            rig.clock.advance(SECOND);
            assert!(rig.core.exist_key(b"probed").unwrap());
        }
        ask_for_room(&rig, 1);
        assert_eq!(rig.core.exist_key(b"probed").unwrap(), kept, "{bound:?}");
    }
}

#[test]
fn one_hold_looks_at_no_more_than_64_keys() {
    let rig = Rig::new();
    rig.core.mount_segment(client(1), spec(1, 64 * MIB)).unwrap();
    let shard = rig.core.shard_of(b"0");
    let keys: Vec<String> = (0..2_000_000u32)
        .map(|n| n.to_string())
        .filter(|key| rig.core.shard_of(key.as_bytes()) == shard)
        .take(300)
        .collect();
    for key in &keys {
        rig.put(1, key.as_bytes(), 8);
    }
    rig.clock.advance(SECOND);
    for _ in 0..4 {
        let mut doomed = Vec::new();
        let limit = Instant::MAX;
        let evicted = rig.core.evict_in_shard(shard, Queue::Plain, limit, u64::MAX, &mut doomed).unwrap();
        assert_eq!((evicted.keys, evicted.bytes), (64, 512));
        rig.check();
    }
}

/// Four threads and the background on one full pool: nobody who has a lease loses the object under it.
#[test]
fn leases_hold_while_others_evict() {
    let clock = Arc::new(BootClock);
    let permit = Arc::new(ServingPermit::standalone(clock.clone()));
    let options = CoreOptions { read_lease_ttl: Duration::from_secs(5), ..CoreOptions::default() };
    let core = Core::new(options, clock, permit.clone());
    core.mount_segment(client(1), spec(1, 256 * KIB)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u64)
            .map(|worker| {
                let core = &core;
                scope.spawn(move || {
                    let group = format!("g{worker}").into_bytes();
                    let writer = client(100 + worker);
                    let mut leased = Vec::new();
                    for n in 0..6000u64 {
                        let key = format!("{worker}/{n}").into_bytes();
                        let config = ReplicateConfig {
                            group_id: if n % 50 == 0 { &group } else { b"" },
                            ..ReplicateConfig::default()
                        };
                        let start = PutStart { client: writer, key: &key, slice_length: 64, config: &config };
                        if threads::patiently(|| core.put_start(&start)).is_err() {
                            std::thread::yield_now();
                            continue;
                        }
                        threads::patiently(|| core.put_end(writer, &key, None, ReplicaType::All)).unwrap();
                        if leased.len() < 40
                            && let Ok(list) = threads::patiently(|| core.get_replica_list(&key))
                        {
                            leased.push((key, list.replicas[0].id));
                        }
                        let Some((key, id)) = leased.get(n as usize % leased.len().max(1)) else { continue };
                        let list = threads::patiently(|| core.get_replica_list(key)).expect("leased");
                        assert_eq!(list.replicas[0].id, *id);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                core.background_tick();
                std::thread::yield_now();
            }
        });
        let results: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        for result in results {
            result.expect("the worker ends well");
        }
    });
    assert!(core.stats().evicted_keys > 0);
    let rig = Rig { core, clock: ManualClock::new(Instant::ZERO), permit };
    rig.settle();
}

#[test]
fn the_index_takes_no_more_than_its_ceiling_and_asks_for_eviction() {
    for (max_keys, max_metadata_bytes) in [(100, 0), (0, 100 * 200)] {
        let options =
            CoreOptions { max_keys, max_metadata_bytes, eviction: on_demand(), ..CoreOptions::default() };
        let rig = Rig::with(options);
        rig.core.mount_segment(client(1), spec(1, MIB)).unwrap();
        let mut n = 0;
        let refused = loop {
            match rig.start(1, &key(n), 8) {
                Ok(_) => rig.end(1, &key(n)).unwrap(),
                refused => break refused,
            }
            n += 1;
        };
        assert_eq!(code(refused), ErrorCode::KeysUltraLimit);
        assert_eq!(code(rig.upsert(1, b"new", 8)), ErrorCode::KeysUltraLimit);
        rig.upsert(1, &key(0), 8).unwrap();
        rig.end(1, &key(0)).unwrap();
        let stats = rig.core.stats();
        assert!((95..=110).contains(&stats.keys), "{}", stats.keys);
        assert!(max_metadata_bytes == 0 || stats.metadata_bytes <= max_metadata_bytes);
        assert_eq!((stats.ceiling_refusals, stats.alloc_failures), (2, 0));
        rig.clock.advance(SECOND);
        rig.settle();
        assert!(rig.core.stats().evicted_keys > 0);
        rig.put(1, b"new", 8);
        for n in 0..n {
            let _ = rig.core.remove(&key(n), true);
        }
        rig.core.remove(b"new", true).unwrap();
        assert_eq!(rig.core.stats().metadata_bytes, 0);
        for n in 0..95 {
            rig.put(1, &key(n), 8);
        }
    }
}
