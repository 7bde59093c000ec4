//! DISK replicas: a file beside the memory of each object (facts §3.1, §3.2; answers as the C++ master gives them).

use super::{MIB, Rig, SECOND, client, code, segment_id, spec};
use crate::{
    error::ErrorCode,
    types::{CoreOptions, ReplicaStatus, ReplicaType},
};

fn rig() -> Rig {
    let options = CoreOptions { disk_directory: Some("/pool/cluster".to_owned()), ..CoreOptions::default() };
    let rig = Rig::with(options);
    rig.core.mount_segment(client(1), spec(1, 64 * MIB)).unwrap();
    rig
}

fn end_disk(rig: &Rig, key: &[u8]) -> crate::types::Attempt<()> {
    rig.core.put_end(client(1), key, Some(9), ReplicaType::Disk)
}

/// Replicas in memory and on disk that a reader sees.
fn readable(rig: &Rig, key: &[u8]) -> (usize, usize) {
    let list = rig.core.get_replica_list(key).unwrap();
    (list.replicas.memory.len(), usize::from(list.replicas.disk.is_some()))
}

fn on_disk(rig: &Rig) -> (u64, u64) {
    let stats = rig.core.stats();
    (stats.disk_files, stats.disk_bytes)
}

#[test]
fn an_object_gets_a_file_which_is_ended_by_itself() {
    let rig = rig();
    let started = rig.start(1, b"k", 1000).unwrap();
    let disk = started.disk.as_ref().unwrap();
    assert!(disk.file_path.starts_with(b"/pool/cluster/") && disk.file_path.ends_with(b"/k"));
    assert_eq!((disk.status, disk.size, started.count()), (ReplicaStatus::Processing, 1000, 2));
    assert_ne!(disk.id, started[0].id);
    rig.end(1, b"k").unwrap();
    assert_eq!((readable(&rig, b"k"), on_disk(&rig)), ((1, 0), (0, 1000)));
    assert_eq!(code(rig.core.remove(b"k", true)), ErrorCode::ReplicaIsNotReady, "the file is being written");
    end_disk(&rig, b"k").unwrap();
    assert_eq!((readable(&rig, b"k"), on_disk(&rig)), ((1, 1), (1, 1000)));
    assert_eq!(rig.core.get_replica_list(b"k").unwrap().object_checksum, Some(9));
    for kind in [ReplicaType::Disk, ReplicaType::All, ReplicaType::Memory] {
        assert_eq!(rig.core.put_end(client(1), b"k", None, kind), Ok(()), "again");
    }
    for kind in [ReplicaType::NofSsd, ReplicaType::LocalDisk] {
        assert_eq!(code(rig.core.put_end(client(1), b"k", None, kind)), ErrorCode::InvalidWrite);
    }
    assert_eq!(rig.core.get_replica_list(b"k").unwrap().object_checksum, Some(9), "nothing has changed");
    rig.core.remove(b"k", true).unwrap();
    assert_eq!(on_disk(&rig), (0, 0));
}

#[test]
fn the_file_alone_is_enough_for_a_reader() {
    let rig = rig();
    for key in [&b"both"[..], b"file-only"] {
        rig.start(1, key, 10).unwrap();
        end_disk(&rig, key).unwrap();
    }
    rig.end(1, b"both").unwrap();
    assert_eq!((readable(&rig, b"both"), readable(&rig, b"file-only")), ((1, 1), (0, 1)));
    rig.core.unmount_segment(segment_id(1), client(1)).unwrap();
    rig.core.background_tick();
    for key in [&b"both"[..], b"file-only"] {
        assert_eq!((readable(&rig, key), rig.core.exist_key(key)), ((0, 1), Ok(true)));
    }
    assert_eq!(rig.end(1, b"file-only"), Err(ErrorCode::InvalidWrite.into()), "its memory is gone");
    assert_eq!(
        code(rig.start(1, b"new", 10)),
        ErrorCode::NoAvailableHandle,
        "a file needs memory to come from"
    );
    rig.clock.advance(SECOND * 11);
    assert_eq!(rig.core.batch_replica_clear(client(1), b"both", b""), Ok(true));
    assert_eq!(code(rig.core.get_replica_list(b"both")), ErrorCode::ObjectNotFound);
    assert_eq!((rig.core.stats().keys, on_disk(&rig)), (1, (1, 10)));
}

#[test]
fn memory_and_file_are_revoked_each_by_itself() {
    let rig = rig();
    let revoke = |kind| rig.core.put_revoke(client(1), b"k", kind);
    rig.start(1, b"k", 10).unwrap();
    revoke(ReplicaType::All).unwrap();
    assert_eq!(code(rig.core.get_replica_list(b"k")), ErrorCode::ReplicaIsNotReady);
    revoke(ReplicaType::Disk).unwrap();
    assert_eq!(code(rig.core.get_replica_list(b"k")), ErrorCode::ObjectNotFound);
    rig.start(1, b"k", 10).unwrap();
    rig.end(1, b"k").unwrap();
    assert_eq!(code(revoke(ReplicaType::All)), ErrorCode::InvalidWrite);
    revoke(ReplicaType::Disk).unwrap();
    assert_eq!(code(revoke(ReplicaType::Disk)), ErrorCode::InvalidWrite, "nothing is being written");
    assert_eq!((readable(&rig, b"k"), on_disk(&rig)), ((1, 0), (0, 0)));
}

#[test]
fn a_client_evicts_a_file_and_the_object_goes_with_its_last_replica() {
    let rig = rig();
    let evict = |key: &[u8], kind| rig.core.evict_disk_replica(key, kind);
    assert_eq!(code(evict(b"k", ReplicaType::Memory)), ErrorCode::ObjectNotFound, "that is asked first");
    rig.start(1, b"k", 10).unwrap();
    end_disk(&rig, b"k").unwrap();
    for kind in [ReplicaType::Memory, ReplicaType::All, ReplicaType::NofSsd] {
        assert_eq!(code(evict(b"k", kind)), ErrorCode::InvalidParams);
    }
    evict(b"k", ReplicaType::LocalDisk).unwrap();
    assert_eq!(on_disk(&rig), (1, 10));
    evict(b"k", ReplicaType::Disk).unwrap();
    evict(b"k", ReplicaType::Disk).unwrap();
    assert_eq!(on_disk(&rig), (0, 0));
    rig.end(1, b"k").unwrap();
    assert_eq!(readable(&rig, b"k"), (1, 0));
    rig.start(1, b"l", 10).unwrap();
    end_disk(&rig, b"l").unwrap();
    rig.core.put_revoke(client(1), b"l", ReplicaType::Memory).unwrap();
    evict(b"l", ReplicaType::Disk).unwrap();
    assert_eq!(code(evict(b"l", ReplicaType::Disk)), ErrorCode::ObjectNotFound);
}

#[test]
fn an_upsert_writes_the_file_anew() {
    let rig = rig();
    rig.put(1, b"k", 10);
    end_disk(&rig, b"k").unwrap();
    let started = rig.upsert(1, b"k", 10).unwrap();
    assert_eq!(started.disk.as_ref().unwrap().status, ReplicaStatus::Processing, "in place");
    rig.end(1, b"k").unwrap();
    assert_eq!(readable(&rig, b"k"), (1, 0));
    end_disk(&rig, b"k").unwrap();
    assert_eq!(readable(&rig, b"k"), (1, 1));
    let other = rig.upsert(1, b"k", 20).unwrap();
    assert_ne!(other.disk.as_ref().unwrap().id, started.disk.as_ref().unwrap().id);
    rig.end(1, b"k").unwrap();
    let third = rig.upsert(1, b"k", 20).unwrap();
    assert!(third.disk.is_none(), "the file of the write before was never ended");
    rig.end(1, b"k").unwrap();
    assert_eq!((readable(&rig, b"k"), on_disk(&rig)), ((1, 0), (0, 0)));
}

#[test]
fn a_file_that_is_never_ended_is_given_up_alone() {
    let rig = rig();
    rig.put(1, b"k", 10);
    rig.clock.advance(SECOND * 40);
    rig.core.background_tick();
    assert_eq!(on_disk(&rig), (0, 0));
    assert_eq!((readable(&rig, b"k"), rig.core.stats().aside_bytes), ((1, 0), 0));
    assert_eq!(rig.core.stats().unfinished_keys, 0);
}

/// Every write to a key goes to the same file, and its End names no write either.
#[test]
fn a_late_end_of_a_file_never_completes_a_newer_write() {
    let rig = rig();
    rig.start(1, b"k", 10).unwrap();
    rig.clock.advance(31 * SECOND);
    rig.start(1, b"k", 10).unwrap();
    assert_eq!(code(end_disk(&rig, b"k")), ErrorCode::ObjectNotFound, "whose is it?");
    assert_eq!(code(rig.core.get_replica_list(b"k")), ErrorCode::ReplicaIsNotReady);
    end_disk(&rig, b"k").unwrap();
    assert_eq!(readable(&rig, b"k"), (0, 1), "both have come");
    assert_eq!(code(rig.end(1, b"k")), ErrorCode::ObjectNotFound, "memory is counted by itself");
    rig.end(1, b"k").unwrap();
    assert_eq!(readable(&rig, b"k"), (1, 1));
    // The file of the first write is still being written when the second one begins.
    rig.put(1, b"l", 10);
    rig.upsert(1, b"l", 20).unwrap();
    rig.end(1, b"l").expect("the first write to memory has ended");
    assert_eq!(code(end_disk(&rig, b"l")), ErrorCode::ObjectNotFound);
    assert_eq!(readable(&rig, b"l"), (1, 0));
    end_disk(&rig, b"l").unwrap();
    assert_eq!(readable(&rig, b"l"), (1, 1));
    // One that found no file is not waited for any more.
    rig.put(1, b"m", 10);
    rig.clock.advance(40 * SECOND);
    rig.settle();
    assert_eq!(code(end_disk(&rig, b"m")), ErrorCode::InvalidWrite, "it was given up");
    rig.upsert(1, b"m", 20).unwrap();
    end_disk(&rig, b"m").unwrap();
    rig.check();
}
