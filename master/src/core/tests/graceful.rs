//! GracefulUnmountSegment and what is asked about segments and clients.

use super::{MIB, Rig, SECOND, client, code, segment_id, spec};
use crate::{
    clock::Clock as _,
    error::ErrorCode,
    types::{ReplicateConfig, SegmentSpec, SegmentStatus},
};

#[test]
fn a_graceful_unmount_serves_reads_until_it_is_due() {
    let rig = Rig::with_segment();
    rig.core.mount_segment(client(2), spec(2, 64 * MIB)).unwrap();
    let there = ReplicateConfig { preferred_segment: b"segment-1", ..ReplicateConfig::default() };
    rig.start_with(1, b"k", 10, &there).unwrap();
    rig.end(1, b"k").unwrap();
    let status = || rig.core.segment_status(segment_id(1));
    let unmount =
        |segment, owner| rig.core.graceful_unmount_segment(segment_id(segment), client(owner), SECOND * 5);
    assert_eq!(unmount(1, 9), Err(ErrorCode::SegmentNotFound), "a client without segments");
    assert_eq!(
        (unmount(1, 2), unmount(9, 1)),
        (Err(ErrorCode::InvalidParams), Err(ErrorCode::InvalidParams))
    );
    assert_eq!((unmount(1, 1), status()), (Ok(()), Some(SegmentStatus::GracefullyUnmounting)));
    rig.clock.advance(SECOND * 3);
    assert_eq!(unmount(1, 1), Ok(()), "again; the deadline stays");
    rig.core.background_tick();
    assert_eq!(rig.core.get_replica_list(b"k").unwrap().replicas.len(), 1);
    let placed = rig.start_with(1, b"l", 10, &there).unwrap();
    assert_eq!(&*placed[0].segment.name, b"segment-2", "nothing new goes there");
    assert_eq!(
        rig.core.mount_segment(client(1), spec(1, 64 * MIB)),
        Err(ErrorCode::UnavailableInCurrentStatus)
    );
    assert_eq!(
        rig.core.remount_segments(client(1), vec![spec(1, 64 * MIB)]),
        Err(ErrorCode::UnavailableInCurrentStatus)
    );
    rig.clock.advance(SECOND * 2);
    rig.core.background_tick();
    assert_eq!(status(), None);
    assert_eq!(code(rig.core.get_replica_list(b"k")), ErrorCode::ObjectNotFound);
    assert_eq!(rig.core.stats().capacity_bytes, 64 * MIB);
    rig.core.mount_segment(client(1), spec(1, 64 * MIB)).unwrap();
}

#[test]
fn an_earlier_end_of_the_segment_ends_its_grace_period() {
    let rig = Rig::with_segment();
    let unmount = |segment| rig.core.graceful_unmount_segment(segment_id(segment), client(1), SECOND * 5);
    unmount(1).unwrap();
    rig.core.unmount_segment(segment_id(1), client(1)).unwrap();
    rig.core.background_tick();
    // The same id again: what was due to the one before does not end this one.
    rig.core.mount_segment(client(1), spec(1, MIB)).unwrap();
    rig.clock.advance(SECOND * 6);
    rig.core.ping(client(1));
    rig.core.background_tick();
    assert_eq!(rig.core.segment_status(segment_id(1)), Some(SegmentStatus::Ok));
    // With its client.
    unmount(1).unwrap();
    rig.pass(60, &[]);
    rig.core.background_tick();
    assert_eq!(rig.core.segment_status(segment_id(1)), None);
}

#[test]
fn a_segment_is_found_by_its_name_and_a_client_by_its_hosts() {
    let rig = Rig::with_segment();
    assert_eq!(rig.core.segment_status_by_name(b"segment-1"), Some(SegmentStatus::Ok));
    assert_eq!(rig.core.segment_status_by_name(b"segment-9"), None);
    rig.core.mount_segment(client(1), SegmentSpec { id: segment_id(2), ..spec(1, MIB) }).unwrap();
    rig.core.graceful_unmount_segment(segment_id(1), client(1), SECOND).unwrap();
    assert_eq!(rig.core.segment_status_by_name(b"segment-1"), Some(SegmentStatus::Ok), "the other one is");
    let endpoint = |n, endpoint: &[u8]| SegmentSpec { te_endpoint: endpoint.into(), ..spec(n, MIB) };
    for (n, at) in [(3, &b"10.0.0.7:1"[..]), (4, b"10.0.0.7:2"), (5, b"[2001:db8::1]:1"), (6, b"")] {
        rig.core.mount_segment(client(3), endpoint(n, at)).unwrap();
    }
    rig.core.mount_segment(client(4), endpoint(7, b"")).unwrap();
    let hosts = vec![Box::from(&b"10.0.0.7"[..]), Box::from(&b"2001:db8::1"[..])];
    let asked = [client(9), client(4), client(3), client(3)];
    assert_eq!(rig.core.hosts_of(asked), [(client(3), hosts), (client(4), vec![])], "only who has memory");
}

/// What was forgotten, and until when it had to be written for that.
#[derive(Debug, Default)]
struct Forgotten(crate::lock::Mutex<Vec<(Vec<u8>, crate::clock::Instant)>>);

impl crate::core::ExternalMetadata for Forgotten {
    fn forget(&self, segment_name: &[u8], written_until: crate::clock::Instant) {
        self.0.lock().push((segment_name.to_vec(), written_until));
    }
}

#[test]
fn what_is_kept_elsewhere_goes_with_its_client_but_not_with_a_later_one_of_that_name() {
    let forgotten = std::sync::Arc::new(Forgotten::default());
    let mut rig = Rig::new();
    rig.core = rig.core.with_external_metadata(forgotten.clone());
    let last_heard = rig.clock.now();
    rig.core.mount_segment(client(1), spec(1, MIB)).unwrap();
    rig.core.mount_segment(client(2), spec(2, MIB)).unwrap();
    rig.core.unmount_segment(segment_id(2), client(2)).unwrap();
    rig.core.background_tick();
    assert!(forgotten.0.lock().is_empty(), "an unmount is no end of its client");
    rig.core.mount_segment(client(3), SegmentSpec { id: segment_id(3), ..spec(2, MIB) }).unwrap();
    rig.core.mount_segment(client(2), SegmentSpec { id: segment_id(4), ..spec(2, MIB) }).unwrap();
    // Client 3 is the next process at the address of client 2.
    rig.pass(60, &[3]);
    rig.core.background_tick();
    rig.core.background_tick();
    let forgotten = forgotten.0.lock();
    let names: Vec<_> = forgotten.iter().map(|(name, _)| name.as_slice()).collect();
    assert_eq!(names, [b"segment-1"]);
    let until = forgotten[0].1;
    assert!(until >= last_heard && until <= last_heard.saturating_add(SECOND * 2), "{until:?}");
}
