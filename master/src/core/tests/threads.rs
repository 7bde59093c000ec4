//! Threads at work on one core, with the real clock; the oracle looks when they are done.

use super::*;
use crate::{
    clock::BootClock,
    types::{Walk, WalkCursor},
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Retries what is Busy, as a front end does with a parked request.
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> Attempt<T>) -> Result<T, ErrorCode> {
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(OpError::Failed(code)) => return Err(code),
            Err(OpError::Busy { .. }) => std::thread::yield_now(),
        }
    }
}

/// The same for a few keys together, each as far as nothing is held.
fn batch(core: &Core, writer: ClientId, n: u32) {
    let keys: Vec<[u8; 4]> = (n..n + 12).map(|n| (n % 700).to_le_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    // Two, so that an object outlives the segment that comes and goes: it stays its writer's until its End.
    let config = ReplicateConfig { replica_num: 2, ..ReplicateConfig::default() };
    let starts: Vec<(&[u8], u64)> = keys.iter().map(|key| (*key, 64)).collect();
    let mut started = Vec::new();
    let served = core.put_starts(&starts, (writer, &config), |result| started.push(result.is_ok()));
    assert_eq!(served, started.len());
    let ended: Vec<(&[u8], Option<u64>)> =
        keys.iter().zip(started).filter(|(_, started)| *started).map(|(key, _)| (*key, None)).collect();
    let mut at = 0;
    while at < ended.len() {
        at += core.put_ends(writer, &ended[at..], ReplicaType::All, |result| match result {
            Ok(()) | Err(ErrorCode::ObjectNotFound) => {}
            Err(code) => panic!("{code}"),
        });
    }
    core.exist_keys(&keys, |_| ());
    core.get_replica_lists(&keys, |list| {
        assert!(list.is_err() || list.is_ok_and(|list| !list.replicas.is_empty()));
    });
}

#[test]
fn writers_readers_walks_mounts_and_clean_up_at_once() {
    let clock = Arc::new(BootClock);
    let permit = Arc::new(ServingPermit::standalone(clock.clone()));
    let options = CoreOptions { read_lease_ttl: Duration::from_millis(1), ..CoreOptions::default() };
    let core = Core::new(options, clock, permit.clone());
    for n in 1..=3 {
        core.mount_segment(client(n), spec(n, MIB)).unwrap();
    }
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3u64)
            .map(|writer| {
                let core = &core;
                let reads = &reads;
                scope.spawn(move || {
                    let writer = client(100 + writer);
                    let config = ReplicateConfig { replica_num: 2, ..ReplicateConfig::default() };
                    for n in 0..8000u32 {
                        let key = (n % 700).to_le_bytes();
                        let start = PutStart { client: writer, key: &key, slice_length: 64, config: &config };
                        if let Ok(replicas) = patiently(|| core.put_start(&start)) {
                            assert!(!replicas.is_empty());
                            // The End may find the object gone with its segment, but never somebody else's.
                            match patiently(|| core.put_end(writer, &key, None, ReplicaType::All)) {
                                Ok(()) | Err(ErrorCode::ObjectNotFound) => {}
                                Err(code) => panic!("{code}"),
                            }
                        }
                        if n % 4 == 0 {
                            batch(core, writer, n);
                        }
                        if patiently(|| core.get_replica_list(&key)).is_ok() {
                            reads.fetch_add(1, Ordering::Relaxed);
                        }
                        if n % 3 == 0 {
                            let _ = patiently(|| core.remove(&key, true));
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            for round in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // Refused while the clean-up of the last round is under way.
                if core.mount_segment(client(3), spec(3, MIB)).is_ok() && round % 2 == 1 {
                    core.unmount_segment(segment_id(3), client(3)).unwrap();
                }
                core.ping(client(3));
                let mut cursor = WalkCursor::default();
                while patiently(|| core.remove_matching(None, false, &mut cursor)) != Ok(Walk::Done) {}
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                core.background_tick();
                core.liveness_tick();
                core.stats();
                std::thread::yield_now();
            }
        });
        let results: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        for result in results {
            result.expect("the worker ends well");
        }
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    let rig = Rig { core, clock: ManualClock::new(Instant::ZERO), permit };
    rig.settle();
    let stats = rig.core.stats();
    assert_eq!((stats.unfinished_keys, stats.offboarding.queue_depth), (0, 0));
    let mut cursor = WalkCursor::default();
    while rig.core.remove_matching(None, true, &mut cursor) != Ok(Walk::Done) {}
    assert_eq!((rig.core.stats().keys, rig.core.stats().allocated_bytes), (0, 0));
    rig.check();
}
