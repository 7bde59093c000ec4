//! What becomes of clients and segments that are gone.

use super::*;
use crate::{
    core::ClientInfo,
    fault::{FaultRequest, FaultStep, Faults},
    types::{LivenessState, OffboardingMode},
};

fn state(rig: &Rig, n: u64) -> Option<LivenessState> {
    rig.core.client_state(client(n)).map(|of| of.0)
}

fn faulty(rig: &mut Rig) -> Arc<Faults> {
    let faults = Faults::new(rig.clock.clone());
    faults.enable();
    let core = std::mem::replace(&mut rig.core, Rig::new().core);
    rig.core = core.with_faults(faults.clone());
    faults
}

#[test]
fn a_failing_step_of_offboarding_keeps_the_barrier() {
    let mut rig = Rig::with_segment();
    let faults = faulty(&mut rig);
    for step in FaultStep::OFFBOARDING {
        faults.begin(FaultRequest::FailStep { step, times: 2 }).unwrap();
    }
    rig.core.liveness_tick();
    rig.pass(40, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Offline));
    let mut barrier = 0;
    while let Err(code) = rig.core.mount_segment(client(1), spec(1, MIB)) {
        assert_eq!(code, ErrorCode::UnavailableInCurrentStatus);
        assert!(barrier < 100, "the barrier never went");
        barrier += 1;
        rig.clock.advance(SECOND);
        rig.core.background_tick();
    }
    assert!(barrier >= 6, "{barrier}");
    let stats = rig.core.stats().offboarding;
    assert_eq!((stats.failures, stats.retries), (6, 6));
    assert_eq!(faults.list()["active"], serde_json::json!([]));
}

#[test]
fn an_old_clean_up_leaves_the_new_incarnation_alone() {
    let rig = Rig::new();
    rig.core.liveness_tick();
    rig.core.mount_segment(client(1), spec(1, MIB)).unwrap();
    rig.core.mount_segment(client(3), spec(3, MIB)).unwrap();
    for n in 0..5000u32 {
        rig.put(9, &n.to_le_bytes(), 100);
    }
    rig.pass(45, &[3]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Offline));
    // Another client mounts under the same name while the old one is being cleaned up.
    let successor = SegmentSpec { id: segment_id(2), ..spec(1, MIB) };
    rig.core.mount_segment(client(2), successor).unwrap();
    let config = ReplicateConfig { preferred_segment: b"segment-1", ..ReplicateConfig::default() };
    rig.start_with(9, b"new", 100, &config).unwrap();
    rig.end(9, b"new").unwrap();
    rig.settle();
    let stats = rig.core.stats();
    let named = stats.segments.iter().find(|segment| &*segment.name == b"segment-1").unwrap();
    assert_eq!((named.allocated_bytes, named.capacity_bytes), (100, MIB));
    assert!(rig.core.get_replica_list(b"new").is_ok());
    assert_eq!(state(&rig, 2), Some(LivenessState::Active));
    assert_eq!(stats.keys * 100, stats.allocated_bytes);
}

#[test]
fn clean_up_write_locks_only_shards_with_something_to_clean() {
    let rig = Rig::new();
    for n in [1, 2] {
        rig.core.mount_segment(client(n), spec(n, MIB)).unwrap();
    }
    let mut touched = BTreeSet::new();
    for n in 0..4000u32 {
        let key = n.to_le_bytes();
        let mine = rig.core.shard_of(&key) < 100;
        let name = if mine { b"segment-1".as_slice() } else { b"segment-2" };
        let config = ReplicateConfig { preferred_segment: name, ..ReplicateConfig::default() };
        rig.start_with(9, &key, 10, &config).unwrap();
        rig.end(9, &key).unwrap();
        touched.extend(mine.then(|| rig.core.shard_of(&key)));
    }
    assert!(touched.len() > 90);
    // Readers sit in all the others: a write lock there could not be had, and the clean-up would never end.
    let readers: Vec<_> = (100..SHARDS).map(|shard| rig.core.store.shard(shard).read()).collect();
    rig.core.unmount_segment(segment_id(1), client(1)).unwrap();
    while rig.core.background_tick().is_zero() {}
    assert_eq!(rig.core.stats().offboarding.queue_depth, 0);
    drop(readers);
    rig.check();
}

#[test]
fn synchronous_offboarding_is_over_when_the_tick_is() {
    let options = CoreOptions { offboarding_mode: OffboardingMode::Sync, ..CoreOptions::default() };
    let mut rig = Rig::with(options);
    rig.core.mount_segment(client(1), spec(1, 64 * MIB)).unwrap();
    for n in 0..5000u32 {
        rig.put(9, &n.to_le_bytes(), 100);
    }
    rig.core.liveness_tick();
    rig.pass(40, &[]);
    assert_eq!((state(&rig, 1), rig.core.stats().offboarding.queue_depth), (None, 0));
    let stats = rig.core.stats();
    assert_eq!((stats.keys, stats.allocated_bytes, stats.offboarding.visited_keys), (0, 0, 5000));
    rig.check();
    // A step that fails leaves the rest to the background, behind the same barrier.
    let faults = faulty(&mut rig);
    faults.begin(FaultRequest::FailStep { step: FaultStep::RemoveSegment, times: 1 }).unwrap();
    rig.core.mount_segment(client(1), spec(1, MIB)).unwrap();
    rig.pass(30, &[]);
    assert_eq!(state(&rig, 1), Some(LivenessState::Offline));
    let refused = rig.core.mount_segment(client(1), spec(1, MIB));
    assert_eq!(refused, Err(ErrorCode::UnavailableInCurrentStatus));
    rig.clock.advance(SECOND);
    rig.settle();
    rig.core.mount_segment(client(1), spec(1, MIB)).unwrap();
}

#[test]
fn a_full_queue_puts_off_what_would_be_one_too_many() {
    let rig = Rig::with(CoreOptions {
        offboarding_queue_limit: 2,
        mass_silence_ratio: 0.0,
        ..CoreOptions::default()
    });
    rig.core.liveness_tick();
    for n in 1..=4 {
        rig.core.mount_segment(client(n), spec(n, MIB)).unwrap();
    }
    rig.put(9, b"k", 100);
    rig.core.unmount_segment(segment_id(1), client(1)).unwrap();
    rig.pass(40, &[1]);
    let stats = rig.core.stats();
    assert_eq!((stats.offline_clients, stats.suspected_clients), (1, 2), "the others wait in Suspected");
    assert_eq!(stats.offboarding.queue_depth, 2);
    assert!(stats.offboarding.refused >= 2);
    rig.core.mount_segment(client(1), spec(7, MIB)).unwrap();
    let unmount = rig.core.unmount_segment(segment_id(7), client(1));
    assert_eq!(unmount, Err(ErrorCode::UnavailableInCurrentStatus));
    assert_eq!(rig.core.segment_status(segment_id(7)), Some(SegmentStatus::Ok), "refused is refused");
    rig.settle();
    rig.core.unmount_segment(segment_id(7), client(1)).unwrap();
    rig.pass(1, &[1]);
    assert_eq!(rig.core.stats().offline_clients, 1);
    rig.settle();
    rig.pass(1, &[1]);
    rig.settle();
    let stats = rig.core.stats();
    assert_eq!((stats.offboarding.queue_depth, stats.active_clients, stats.suspected_clients), (0, 1, 0));
    assert!(rig.core.is_offboarded());
}

#[test]
fn what_offboarding_costs_follows_from_what_the_client_has() {
    for others in [0u32, 20_000] {
        let rig = Rig::new();
        for n in [1, 2] {
            rig.core.mount_segment(client(n), spec(n, 64 * MIB)).unwrap();
        }
        let only = |name| ReplicateConfig { preferred_segment: name, ..ReplicateConfig::default() };
        for n in 0..others + 1000 {
            let config = only(if n < others { b"segment-2".as_slice() } else { b"segment-1" });
            rig.start_with(9, &n.to_le_bytes(), 100, &config).unwrap();
            rig.end(9, &n.to_le_bytes()).unwrap();
        }
        rig.core.liveness_tick();
        rig.pass(60, &[2]);
        rig.settle();
        let stats = rig.core.stats();
        assert_eq!((stats.offboarding.visited_keys, stats.offboarded_replicas), (1000, 1000));
        assert_eq!(stats.keys, u64::from(others));
    }
}

#[test]
fn clients_are_listed_with_what_they_have() {
    let mut rig = Rig::new();
    let faults = faulty(&mut rig);
    rig.core.liveness_tick();
    for n in [2, 1] {
        rig.core.mount_segment(client(n), spec(n, MIB)).unwrap();
        rig.core.remount_segments(client(n), vec![spec(n + 10, MIB)]).unwrap();
    }
    for n in 0..100u32 {
        let config = ReplicateConfig { preferred_segment: b"segment-1", ..ReplicateConfig::default() };
        rig.start_with(9, &n.to_le_bytes(), 10, &config).unwrap();
        rig.end(9, &n.to_le_bytes()).unwrap();
    }
    rig.pass(4, &[2]);
    let list = |state, limit| rig.core.client_list(state, limit);
    let all = list(None, 10);
    assert_eq!((all.total, all.clients.len()), (2, 2));
    let one = &all.clients[0];
    let expected = ClientInfo {
        id: client(1),
        incarnation: one.incarnation,
        state: LivenessState::Active,
        held: false,
        in_state: 4 * SECOND,
        silent: Some(4 * SECOND),
        ready: true,
        segments: 2,
        capacity_bytes: 2 * MIB,
        bytes: 1000,
        keys: 100,
        offboarding: None,
    };
    assert_eq!(*one, expected);
    assert_ne!(all.clients[1].incarnation, one.incarnation);
    assert_eq!((all.clients[1].id, all.clients[1].silent), (client(2), Some(Duration::ZERO)));
    assert_eq!(list(None, 1).clients, [expected]);
    assert_eq!(list(None, 1).total, 2);
    rig.pass(7, &[2]);
    let suspected = list(Some(LivenessState::Suspected), 10);
    assert_eq!(
        (suspected.total, suspected.clients[0].in_state, suspected.clients[0].silent),
        (1, SECOND, None)
    );
    // Being offboarded, with a last step that fails: what is left is seen, and where it stands.
    faults.begin(FaultRequest::FailStep { step: FaultStep::RemoveRecord, times: 1 }).unwrap();
    rig.pass(40, &[2]);
    let offline = |rig: &Rig| rig.core.client_list(Some(LivenessState::Offline), 10).clients[0].clone();
    assert_eq!((offline(&rig).keys, offline(&rig).segments), (100, 2));
    assert_eq!(offline(&rig).offboarding.unwrap().step, "clean_segment");
    rig.settle();
    let job = offline(&rig).offboarding.unwrap();
    assert_eq!((job.step, job.failures), ("remove_record", 1));
    assert_eq!((offline(&rig).keys, offline(&rig).segments, offline(&rig).bytes), (0, 0, 0));
    rig.clock.advance(SECOND);
    rig.settle();
    assert_eq!(rig.core.client_list(None, 10).total, 1);
}
