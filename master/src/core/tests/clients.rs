//! Mounts and the liveness of clients.

use super::*;
use crate::types::{ClientStatus, LivenessState};

fn state(rig: &Rig, n: u64) -> Option<LivenessState> {
    rig.core.client_state(client(n)).map(|of| of.0)
}

#[test]
fn mounts_are_checked_and_idempotent() {
    let rig = Rig::new();
    let mount = |n, spec| rig.core.mount_segment(client(n), spec);
    assert_eq!(mount(1, SegmentSpec { base: 0, ..spec(1, MIB) }), Err(ErrorCode::InvalidParams));
    assert_eq!(mount(1, spec(1, 0)), Err(ErrorCode::InvalidParams));
    assert_eq!(mount(1, SegmentSpec { base: u64::MAX, ..spec(1, 2) }), Err(ErrorCode::InvalidParams));
    assert_eq!(mount(1, spec(1, u64::MAX - (1 << 41))), Err(ErrorCode::InvalidParams));
    assert_eq!(state(&rig, 1), None, "a failed mount creates no record");
    mount(1, spec(1, MIB)).unwrap();
    mount(1, spec(1, MIB)).unwrap();
    assert_eq!(mount(1, spec(1, 2 * MIB)), Err(ErrorCode::InvalidParams));
    assert_eq!(mount(2, spec(1, MIB)), Err(ErrorCode::InvalidParams), "it is another client's");
    assert_eq!(rig.core.stats().capacity_bytes, MIB);
    assert_eq!(rig.core.unmount_segment(segment_id(9), client(1)), Ok(()), "unknown ids are fine");
    assert_eq!(rig.core.unmount_segment(segment_id(1), client(2)), Err(ErrorCode::InvalidParams));
}

#[test]
fn readiness_comes_from_a_remount_only() {
    let rig = Rig::new();
    assert_eq!(rig.core.ping(client(1)), ClientStatus::NeedRemount);
    assert_eq!(state(&rig, 1), None, "a Ping creates no record");
    rig.core.mount_segment(client(1), spec(1, MIB)).unwrap();
    assert_eq!(rig.core.ping(client(1)), ClientStatus::NeedRemount);
    rig.core.remount_segments(client(1), vec![spec(1, MIB)]).unwrap();
    assert_eq!(rig.core.ping(client(1)), ClientStatus::Ok);
    rig.core.remount_segments(client(2), vec![]).unwrap();
    assert_eq!(rig.core.ping(client(2)), ClientStatus::Ok, "without segments, too");
    // A known client that remounts more gets more.
    rig.core.remount_segments(client(2), vec![spec(2, MIB), spec(2, MIB)]).unwrap();
    assert_eq!(rig.core.stats().capacity_bytes, 2 * MIB);
    let refused = rig.core.remount_segments(client(2), vec![spec(3, MIB), spec(2, 2 * MIB)]);
    assert_eq!(refused, Err(ErrorCode::InvalidParams));
    let refused = rig.core.remount_segments(client(3), vec![spec(3, MIB), spec(3, 2 * MIB)]);
    assert_eq!(refused, Err(ErrorCode::InvalidParams));
    assert_eq!(rig.core.stats().capacity_bytes, 2 * MIB, "nothing of a refused remount is mounted");
    assert_eq!(state(&rig, 3), None);
    rig.core.remount_segments(client(3), vec![spec(4, 0), spec(3, MIB)]).unwrap();
    assert_eq!(rig.core.stats().capacity_bytes, 3 * MIB, "one without memory is left out");
}

#[test]
fn a_segment_first_known_by_a_remount_waits_with_allocations() {
    let rig = Rig::new();
    rig.core.remount_segments(client(1), vec![spec(1, MIB)]).unwrap();
    assert_eq!(code(rig.start(1, b"k", 1)), ErrorCode::NoAvailableHandle);
    rig.core.remount_segments(client(1), vec![spec(1, MIB)]).unwrap();
    rig.core.mount_segment(client(1), spec(1, MIB)).unwrap();
    assert_eq!(code(rig.start(1, b"k", 1)), ErrorCode::NoAvailableHandle);
    rig.core.mount_segment(client(2), spec(2, MIB)).unwrap();
    assert_eq!(&*rig.start(1, b"k", 1).unwrap()[0].segment.name, b"segment-2");
    rig.clock.advance(Duration::from_nanos(29_999_999_999));
    let config = ReplicateConfig { preferred_segment: b"segment-1", ..ReplicateConfig::default() };
    assert_eq!(&*rig.start_with(1, b"k2", 1, &config).unwrap()[0].segment.name, b"segment-2");
    rig.clock.advance(Duration::from_nanos(1));
    assert_eq!(&*rig.start_with(1, b"k3", 1, &config).unwrap()[0].segment.name, b"segment-1");
    // What was known before is not held.
    rig.core.remount_segments(client(2), vec![spec(2, MIB)]).unwrap();
    let config = ReplicateConfig { preferred_segment: b"segment-2", ..config };
    assert_eq!(&*rig.start_with(1, b"k4", 1, &config).unwrap()[0].segment.name, b"segment-2");
}

#[test]
fn an_unmount_hides_at_once_and_cleans_up_later() {
    let rig = Rig::with_segment();
    rig.core.mount_segment(client(2), spec(2, 64 * MIB)).unwrap();
    let both = ReplicateConfig { replica_num: 2, ..ReplicateConfig::default() };
    let only = ReplicateConfig { preferred_segment: b"segment-1", ..ReplicateConfig::default() };
    for n in 0..1000u32 {
        rig.start_with(3, &n.to_le_bytes(), 100, if n % 2 == 0 { &both } else { &only }).unwrap();
        if n % 10 != 1 {
            rig.end(3, &n.to_le_bytes()).unwrap();
        }
    }
    rig.core.unmount_segment(segment_id(1), client(1)).unwrap();
    assert_eq!(rig.core.segment_status(segment_id(1)), Some(SegmentStatus::Unmounting));
    assert_eq!(
        rig.core.unmount_segment(segment_id(1), client(1)),
        Err(ErrorCode::UnavailableInCurrentStatus)
    );
    let mount = rig.core.mount_segment(client(1), spec(1, 64 * MIB));
    assert_eq!(mount, Err(ErrorCode::UnavailableInCurrentStatus));
    let mount = rig.core.remount_segments(client(1), vec![spec(1, 64 * MIB)]);
    assert_eq!(mount, Err(ErrorCode::UnavailableInCurrentStatus));
    let stats = rig.core.stats();
    assert_eq!((stats.capacity_bytes, stats.allocated_bytes, stats.keys), (64 * MIB, 50_000, 1000));
    // Before any cleaning: gone is gone, and a key may be written anew.
    assert_eq!(code(rig.core.get_replica_list(&3u32.to_le_bytes())), ErrorCode::ObjectNotFound);
    assert_eq!(rig.core.exist_key(&3u32.to_le_bytes()), Ok(false));
    assert_eq!(code(rig.core.remove(&5u32.to_le_bytes(), false)), ErrorCode::ObjectNotFound);
    assert_eq!(code(rig.end(3, &11u32.to_le_bytes())), ErrorCode::ObjectNotFound);
    assert_eq!(rig.core.get_replica_list(&4u32.to_le_bytes()).unwrap().replicas.len(), 1);
    rig.put(3, &7u32.to_le_bytes(), 100);
    assert_eq!(rig.core.stats().offboarding.queue_depth, 1);
    assert_eq!(rig.settle(), 1, "1000 keys in one tick of 32 × 64");
    let stats = rig.core.stats();
    assert_eq!((stats.keys, stats.unfinished_keys, stats.allocated_bytes), (501, 0, 50_100));
    assert_eq!(
        (stats.offboarding.queue_depth, stats.offboarded_replicas),
        (0, 997),
        "all but the three that writes met before"
    );
    assert_eq!(rig.core.segment_status(segment_id(1)), None);
    rig.core.mount_segment(client(1), spec(1, 64 * MIB)).unwrap();
    assert_eq!(rig.core.stats().capacity_bytes, 128 * MIB);
}

#[test]
fn suspected_then_heard_again_then_offline() {
    let rig = Rig::new();
    rig.core.liveness_tick();
    for n in [1, 2] {
        rig.core.mount_segment(client(n), spec(n, MIB)).unwrap();
        rig.core.remount_segments(client(n), vec![]).unwrap();
    }
    rig.pass(60, &[1, 2]);
    let only = |name| ReplicateConfig { preferred_segment: name, ..ReplicateConfig::default() };
    let (one, two) = (only(b"segment-1".as_slice()), only(b"segment-2".as_slice()));
    rig.start_with(9, b"a", 10, &one).unwrap();
    rig.end(9, b"a").unwrap();
    rig.start_with(9, b"b", 10, &two).unwrap();
    rig.end(9, b"b").unwrap();
    rig.start_with(9, b"c", 10, &two).unwrap();

    rig.pass(9, &[1]);
    assert_eq!(state(&rig, 2), Some(LivenessState::Active));
    rig.pass(1, &[1]);
    assert_eq!(state(&rig, 2), Some(LivenessState::Suspected));
    // B7: nothing new depends on it, what is under way converges, and its own requests are served.
    assert_eq!(code(rig.core.get_replica_list(b"b")), ErrorCode::ReplicaIsNotReady);
    assert_eq!(rig.core.exist_key(b"b"), Ok(false));
    assert_eq!(code(rig.start(9, b"b", 10)), ErrorCode::ObjectAlreadyExists);
    rig.end(9, b"c").unwrap();
    assert_eq!(&*rig.start_with(9, b"d", 10, &two).unwrap()[0].segment.name, b"segment-1");
    assert_eq!(&*rig.start(2, b"e", 10).unwrap()[0].segment.name, b"segment-1");
    assert_eq!(&*rig.upsert(9, b"c", 10).unwrap()[0].segment.name, b"segment-1", "no write into it in place");
    assert_eq!(rig.core.stats().capacity_bytes, 2 * MIB, "but it is kept");
    let info = rig.core.object_info(b"b").unwrap().unwrap();
    assert_eq!(info.replicas[0].1, LivenessState::Suspected);

    rig.pass(5, &[1]);
    assert_eq!(rig.core.ping(client(2)), ClientStatus::Ok);
    assert_eq!(state(&rig, 2), Some(LivenessState::Active));
    assert!(rig.core.get_replica_list(b"b").is_ok());

    // Suspicion lasts from its commit.
    rig.pass(10, &[1]);
    assert_eq!(state(&rig, 2), Some(LivenessState::Suspected));
    rig.pass(19, &[1]);
    assert_eq!(state(&rig, 2), Some(LivenessState::Suspected));
    rig.pass(1, &[1]);
    assert_eq!(state(&rig, 2), Some(LivenessState::Offline));
    assert_eq!(code(rig.core.get_replica_list(b"b")), ErrorCode::ObjectNotFound);
    assert_eq!(rig.core.stats().capacity_bytes, MIB);

    // Behind the barrier.
    assert_eq!(rig.core.ping(client(2)), ClientStatus::NeedRemount);
    assert_eq!(rig.core.mount_segment(client(2), spec(3, MIB)), Err(ErrorCode::UnavailableInCurrentStatus));
    let remount = rig.core.remount_segments(client(2), vec![]);
    assert_eq!(remount, Err(ErrorCode::UnavailableInCurrentStatus));
    assert_eq!(code(rig.end(2, b"e")), ErrorCode::IllegalClient);
    assert_eq!(code(rig.core.put_revoke(client(2), b"e", ReplicaType::All)), ErrorCode::IllegalClient);
    assert_eq!(code(rig.start(2, b"f", 10)), ErrorCode::IllegalClient);
    assert_eq!(state(&rig, 2), Some(LivenessState::Offline), "Offline never recovers");

    rig.settle();
    assert_eq!(state(&rig, 2), None);
    assert_eq!(rig.core.ping(client(2)), ClientStatus::NeedRemount);
    rig.core.remount_segments(client(2), vec![spec(2, MIB)]).unwrap();
    assert_eq!(rig.core.ping(client(2)), ClientStatus::Ok);
    assert_eq!(code(rig.core.get_replica_list(b"b")), ErrorCode::ObjectNotFound, "old memory stays gone");
    let stats = rig.core.stats();
    assert_eq!((stats.suspected_transitions, stats.recoveries, stats.offline_transitions), (2, 1, 1));
    assert_eq!((stats.active_clients, stats.ready_clients, stats.offline_clients), (2, 2, 0));
    assert_eq!(stats.offboarding.duration_buckets.iter().sum::<u64>(), 1);
}

#[test]
fn a_failed_mount_does_not_recover_but_a_repeated_one_does() {
    let rig = Rig::with_segment();
    rig.core.liveness_tick();
    rig.pass(10, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Suspected));
    assert!(rig.core.mount_segment(client(1), spec(2, 0)).is_err());
    assert!(rig.core.remount_segments(client(1), vec![spec(1, 5)]).is_err());
    assert_eq!(state(&rig, 1), Some(LivenessState::Suspected));
    rig.core.mount_segment(client(1), spec(1, 64 * MIB)).unwrap();
    assert_eq!(state(&rig, 1), Some(LivenessState::Active));
}

#[test]
fn the_masters_own_silence_is_nobodys() {
    let rig = Rig::with_segment();
    rig.core.liveness_tick();
    rig.pass(100, &[1]);
    // Stopped for longer than both times: nobody is even suspected.
    rig.clock.advance(100 * SECOND);
    rig.core.liveness_tick();
    rig.pass(8, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Active));
    assert_eq!(rig.core.stats().stalls, 1);
    rig.pass(2, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Suspected));
    // Nor does a late monitor shorten suspicion, nor a deaf data thread.
    rig.clock.advance(100 * SECOND);
    rig.core.liveness_tick();
    rig.pass(10, &[]);
    rig.core.report_stall(10 * SECOND);
    rig.pass(17, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Suspected));
    rig.pass(1, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Offline));
}

/// `n` clients without memory, heard for long enough that the grace of the start is over.
fn crowd(n: u64) -> (Rig, Vec<u64>) {
    let rig = Rig::new();
    rig.core.liveness_tick();
    let all: Vec<u64> = (1..=n).collect();
    for &n in &all {
        rig.core.remount_segments(client(n), vec![]).unwrap();
    }
    rig.pass(60, &all);
    (rig, all)
}

#[test]
fn many_that_fall_silent_at_once_are_held_for_one_more_window() {
    let (rig, all) = crowd(20);
    rig.pass(10, &all[12..]);
    let stats = rig.core.stats();
    assert_eq!((stats.suspected_clients, stats.held_clients, stats.mass_silence_held), (12, 12, 12));
    // The plain rule would have retired them after 20 s.
    rig.pass(39, &all[12..]);
    assert_eq!(rig.core.stats().suspected_clients, 12);
    // One that is heard again is free, and falls silent by the plain rule next time.
    assert_eq!(rig.core.ping(client(1)), ClientStatus::Ok);
    rig.pass(1, &all[12..]);
    let stats = rig.core.stats();
    assert_eq!((stats.active_clients, stats.offline_clients, stats.held_clients), (9, 11, 0));
    rig.settle();
    rig.pass(28, &all[12..]);
    assert_eq!(rig.core.stats().offline_clients, 0);
    rig.pass(1, &all[12..]);
    assert_eq!((rig.core.stats().offline_clients, rig.core.stats().mass_silence_held), (1, 12));
}

#[test]
fn a_mass_silence_is_a_matter_of_share_number_and_time() {
    for (clients, silent, held) in
        [(1, 1, false), (4, 4, false), (5, 5, true), (20, 9, false), (20, 10, true)]
    {
        let (rig, all) = crowd(clients);
        rig.pass(10, &all[silent..]);
        let stats = rig.core.stats();
        assert_eq!(stats.suspected_clients, silent as u64);
        assert_eq!(stats.held_clients, if held { silent as u64 } else { 0 }, "{silent} of {clients}");
        rig.pass(20, &all[silent..]);
        let offline = if held { 0 } else { silent as u64 };
        assert_eq!(rig.core.stats().offline_clients, offline, "{silent} of {clients}");
    }
    // One after the other, a second apart, until enough of them lie within ten seconds: the first are held, too.
    let (rig, all) = crowd(20);
    for gone in 1..=10 {
        rig.pass(1, &all[gone..]);
    }
    rig.pass(8, &all[10..]);
    assert_eq!((rig.core.stats().suspected_clients, rig.core.stats().held_clients), (9, 0));
    rig.pass(1, &all[10..]);
    assert_eq!((rig.core.stats().suspected_clients, rig.core.stats().held_clients), (10, 10));
    // Two seconds apart they are never many within ten.
    let (rig, all) = crowd(20);
    for gone in 1..=10 {
        rig.pass(2, &all[gone..]);
    }
    rig.pass(30, &all[10..]);
    assert_eq!((rig.core.stats().offline_clients, rig.core.stats().mass_silence_held), (10, 0));
    // 0 turns it off.
    let rig = Rig::with(CoreOptions { mass_silence_ratio: 0.0, ..CoreOptions::default() });
    rig.core.liveness_tick();
    for n in 1..=20 {
        rig.core.remount_segments(client(n), vec![]).unwrap();
    }
    rig.pass(40, &[]);
    assert_eq!(rig.core.stats().offline_clients, 20);
}

#[test]
fn a_deaf_thread_excuses_its_own_clients_only() {
    let (rig, _) = crowd(3);
    let heard_by = |n: u64, number| {
        crate::core::Listener::new(number).enter();
        rig.core.ping(client(n));
        crate::core::Listener::UNKNOWN.enter();
    };
    // Thread 1 hears clients 1 and 2, thread 2 hears client 3; then client 2 comes over to thread 2.
    for (n, thread) in [(1, 1), (2, 1), (3, 2), (2, 2)] {
        heard_by(n, thread);
    }
    for _ in 0..40 {
        rig.core.report_deaf(crate::core::Listener::new(1), SECOND);
        rig.pass(1, &[]);
    }
    let states = [1, 2, 3].map(|n| state(&rig, n).unwrap());
    assert_eq!(states, [LivenessState::Active, LivenessState::Offline, LivenessState::Offline]);
    assert_eq!(rig.core.stats().stalls, 1, "one stall, however many ticks saw it");
    rig.pass(9, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Active), "its own silence begins now");
    rig.pass(1, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Suspected));
}

#[test]
fn nothing_moves_without_the_permit() {
    let rig = Rig::with_segment();
    rig.core.liveness_tick();
    rig.start(1, b"abandoned", 10).unwrap();
    rig.core.mount_segment(client(2), spec(2, MIB)).unwrap();
    rig.core.unmount_segment(segment_id(2), client(2)).unwrap();
    rig.pass(25, &[1]);
    rig.permit.revoke();
    rig.pass(700, &[]);
    rig.settle();
    let stats = rig.core.stats();
    assert_eq!((stats.active_clients, stats.suspected_clients, stats.offboarding.queue_depth), (1, 1, 1));
    assert_eq!(stats.puts_discarded, 0);
    rig.permit.extend(1, Instant::MAX);
    rig.core.liveness_tick();
    rig.pass(9, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Active), "silence starts anew");
    rig.settle();
    assert_eq!((rig.core.stats().offboarding.queue_depth, rig.core.stats().puts_discarded), (0, 0));
    rig.pass(22, &[1]);
    rig.settle();
    assert_eq!(rig.core.stats().puts_discarded, 1, "the writer's time started anew, too");
    rig.pass(30, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Offline));
}

#[test]
fn no_client_goes_offline_before_the_grace_of_a_new_master() {
    let rig = Rig::with_segment();
    rig.core.liveness_tick();
    rig.pass(39, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Suspected), "30 s would have been enough later");
    rig.pass(1, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Offline));
}

#[test]
fn a_ping_waits_for_nothing() {
    let rig = Rig::with_segment();
    rig.core.remount_segments(client(1), vec![]).unwrap();
    // A mount that never ends, every shard held, a segment's allocator stuck in the background's hands.
    let registry = rig.core.registry.lock();
    let holds: Vec<_> = (0..SHARDS).map(|shard| rig.core.hold_shard(shard)).collect();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| send.send((rig.core.ping(client(1)), rig.core.ping(client(2)))));
        let answers = receive.recv_timeout(20 * SECOND);
        drop((holds, registry));
        assert_eq!(answers, Ok((ClientStatus::Ok, ClientStatus::NeedRemount)));
    });
}

#[test]
fn a_client_that_is_still_starting_is_not_swept_away() {
    let options = CoreOptions { client_active_ttl: 3 * SECOND, ..CoreOptions::default() };
    let rig = Rig::with(options);
    rig.core.liveness_tick();
    // It mounts ten segments, one every two seconds, and never pings: each of them is a sign of life.
    for n in 1..=10 {
        rig.core.mount_segment(client(1), spec(n, MIB)).unwrap();
        rig.pass(2, &[]);
        assert_eq!(state(&rig, 1), Some(LivenessState::Active), "after mount {n}");
    }
    // What it holds before its first ReMount is held like anything else.
    rig.put(1, b"early", 100);
    rig.settle();
    assert!(rig.core.get_replica_list(b"early").is_ok());
    assert_eq!(rig.core.ping(client(1)), ClientStatus::NeedRemount, "alive, but not remount-ready");
    // Then it falls silent, and goes on time.
    rig.pass(3, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Suspected));
    rig.pass(20, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Offline));
}

#[test]
fn each_life_of_a_client_has_its_own_incarnation() {
    let rig = Rig::with_segment();
    assert_eq!(rig.core.incarnation(client(2)), None);
    let first = rig.core.incarnation(client(1)).unwrap();
    rig.core.liveness_tick();
    rig.pass(5, &[1]);
    assert_eq!(rig.core.incarnation(client(1)), Some(first));
    rig.pass(45, &[]);
    rig.settle();
    assert_eq!(rig.core.incarnation(client(1)), None);
    rig.core.mount_segment(client(1), spec(1, MIB)).unwrap();
    assert_ne!(rig.core.incarnation(client(1)), Some(first));
}
