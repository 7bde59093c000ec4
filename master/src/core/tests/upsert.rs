//! Upsert, in its cases A, B and C.

use super::*;
use crate::types::{ReplicaStatus, SoftPinAction};

#[test]
fn case_a_is_a_put() {
    let rig = Rig::with_segment();
    rig.upsert(1, b"k", 100).unwrap();
    rig.end(1, b"k").unwrap();
    assert_eq!(rig.core.exist_key(b"k"), Ok(true));
}

#[test]
fn case_b_writes_in_place() {
    let rig = Rig::with_segment();
    rig.put(1, b"k", 100);
    let before = rig.core.get_replica_list(b"k").unwrap().replicas;
    let started = rig.upsert(2, b"k", 100).unwrap();
    assert_eq!((started[0].id, started[0].address), (before[0].id, before[0].address));
    assert_eq!(started[0].status, ReplicaStatus::Processing);
    assert_eq!(code(rig.core.get_replica_list(b"k")), ErrorCode::ReplicaIsNotReady);
    assert_eq!(rig.core.exist_key(b"k"), Ok(false));
    assert_eq!(code(rig.end(1, b"k")), ErrorCode::IllegalClient, "the key has a new writer");
    rig.core.put_end(client(2), b"k", Some(5), ReplicaType::All).unwrap();
    assert_eq!(rig.core.get_replica_list(b"k").unwrap().object_checksum, Some(5));
    rig.upsert(2, b"k", 100).unwrap();
    rig.end(2, b"k").unwrap();
    assert_eq!(
        rig.core.get_replica_list(b"k").unwrap().object_checksum,
        None,
        "an absent checksum clears it"
    );
    assert_eq!(rig.core.stats().allocated_bytes, 100);
}

#[test]
fn case_c_moves_and_keeps_the_old_range_aside() {
    let rig = Rig::with_segment();
    rig.put(1, b"k", 100);
    let before = rig.core.get_replica_list(b"k").unwrap().replicas;
    let started = rig.upsert(1, b"k", 200).unwrap();
    assert_ne!(started[0].address, before[0].address);
    rig.end(1, b"k").unwrap();
    assert_eq!((rig.core.stats().aside_bytes, rig.core.stats().allocated_bytes), (100, 300));
    rig.core.remove(b"k", false).unwrap();
    rig.clock.advance(600 * SECOND);
    rig.settle();
    assert_eq!((rig.core.stats().aside_bytes, rig.core.stats().allocated_bytes), (0, 0));
}

#[test]
fn without_room_nothing_changes() {
    let rig = Rig::with_segment();
    rig.put(1, b"k", 60 * MIB);
    assert_eq!(code(rig.upsert(2, b"k", 61 * MIB)), ErrorCode::NoAvailableHandle);
    assert_eq!(rig.core.get_replica_list(b"k").unwrap().replicas[0].size, 60 * MIB);
    rig.end(1, b"k").unwrap();
    assert_eq!((rig.core.stats().aside_bytes, rig.core.stats().unfinished_keys), (0, 0));
}

#[test]
fn a_write_under_way_is_pre_empted() {
    let rig = Rig::with_segment();
    let first = rig.start(1, b"k", 100).unwrap();
    let second = rig.upsert(2, b"k", 100).unwrap();
    assert_ne!(first[0].address, second[0].address);
    assert_eq!(code(rig.end(1, b"k")), ErrorCode::IllegalClient);
    // In place and pre-empted: the range may have two writers, so it is not used again either.
    rig.end(2, b"k").unwrap();
    rig.upsert(1, b"k", 100).unwrap();
    let third = rig.upsert(2, b"k", 100).unwrap();
    assert!(![first[0].address, second[0].address].contains(&third[0].address));
    rig.end(2, b"k").unwrap();
    let stats = rig.core.stats();
    assert_eq!(
        (stats.keys, stats.unfinished_keys, stats.aside_bytes, stats.allocated_bytes),
        (1, 0, 200, 300)
    );
}

#[test]
fn group_and_pins_stay_with_an_object_that_was_complete() {
    let rig = Rig::with_segment();
    let grouped = ReplicateConfig {
        group_id: b"g",
        with_hard_pin: true,
        soft_pin_action: SoftPinAction::Enable,
        ..ReplicateConfig::default()
    };
    let upsert = |size, config: &ReplicateConfig<'_>| {
        rig.core.upsert_start(&PutStart { client: client(1), key: b"k", slice_length: size, config })
    };
    // Not complete yet: the next one decides anew.
    rig.start(2, b"k", 10).unwrap();
    upsert(10, &grouped).unwrap();
    rig.end(1, b"k").unwrap();
    let other = ReplicateConfig { group_id: b"h", ..ReplicateConfig::default() };
    assert_eq!(code(upsert(10, &other)), ErrorCode::InvalidParams);
    rig.upsert(1, b"k", 10).expect("who names no group means the one that it has");
    rig.end(1, b"k").unwrap();
    let plain = ReplicateConfig { group_id: b"g", ..ReplicateConfig::default() };
    for size in [10, 20] {
        upsert(size, &plain).unwrap();
        rig.end(1, b"k").unwrap();
        let info = rig.core.object_info(b"k").unwrap().unwrap();
        assert!(info.hard_pinned && info.soft_pin_left.is_some());
        assert_eq!(&*info.group, b"g");
    }
    let unpin = ReplicateConfig { soft_pin_action: SoftPinAction::Disable, ..plain };
    upsert(20, &unpin).unwrap();
    assert!(rig.core.object_info(b"k").unwrap().unwrap().soft_pin_left.is_some());
    rig.end(1, b"k").unwrap();
    assert_eq!(rig.core.object_info(b"k").unwrap().unwrap().soft_pin_left, None);
}

#[test]
fn an_abandoned_upsert_in_place_is_discarded_like_a_put() {
    let rig = Rig::with_segment();
    rig.put(1, b"k", 100);
    rig.clock.advance(100 * SECOND);
    rig.upsert(2, b"k", 100).unwrap();
    rig.clock.advance(31 * SECOND);
    rig.settle();
    assert_eq!(code(rig.core.get_replica_list(b"k")), ErrorCode::ObjectNotFound);
    assert_eq!(rig.core.stats().aside_bytes, 100);
}

/// A client that lost the answer to its first Start cannot be told from one of which two threads write the key, so its
/// End counts only when it is repeated, or when nobody can come any more.
#[test]
fn a_client_that_starts_again_may_have_to_end_twice_but_never_publishes_what_is_not_written() {
    let rig = Rig::with_segment();
    let started = |got: Attempt<Replicas>| got.unwrap()[0].address;
    let first = started(rig.upsert(1, b"k", 100));
    assert_ne!(started(rig.upsert(1, b"k", 100)), first, "two threads do not write over each other");
    assert_eq!(code(rig.end(1, b"k")), ErrorCode::ObjectNotFound);
    assert_eq!(code(rig.core.get_replica_list(b"k")), ErrorCode::ReplicaIsNotReady);
    rig.end(1, b"k").unwrap();
    assert!(rig.core.get_replica_list(b"k").is_ok());
    // Who begins once more instead still owes the lost End; another client does not.
    rig.upsert(1, b"l", 100).unwrap();
    rig.upsert(1, b"l", 100).unwrap();
    assert_eq!(code(rig.end(1, b"l")), ErrorCode::ObjectNotFound);
    rig.upsert(1, b"l", 100).unwrap();
    assert_eq!(code(rig.end(1, b"l")), ErrorCode::ObjectNotFound);
    rig.upsert(2, b"l", 100).unwrap();
    rig.end(2, b"l").unwrap();
    rig.core.remove(b"l", true).unwrap();
    rig.clock.advance(600 * SECOND);
    rig.upsert(1, b"l", 100).unwrap();
    rig.end(1, b"l").expect("nobody comes that late");
    rig.check();
}

#[test]
fn a_client_that_gave_its_first_write_up_ends_the_second_at_once() {
    let rig = Rig::with_segment();
    rig.upsert(1, b"k", 100).unwrap();
    rig.core.put_revoke(client(1), b"k", ReplicaType::All).unwrap();
    rig.upsert(1, b"k", 100).unwrap();
    rig.end(1, b"k").unwrap();
    // A Put within the discard time is told that the key is there, and begins nothing.
    rig.start(1, b"l", 100).unwrap();
    assert_eq!(code(rig.start(1, b"l", 100)), ErrorCode::ObjectAlreadyExists);
    rig.end(1, b"l").unwrap();
    rig.check();
}
