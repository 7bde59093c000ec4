//! Calls about segments, clients, files, and what the wheel's master has not.

use super::{
    objects::{end_args, key_args, own_args, put, remove_args, start_args},
    session::{
        ALL, Config, DISK, LOCAL_DISK, MEMORY, Session, base, client, segment, segment_at, tenant, text,
        texts,
    },
};
use mooncake_master::rpc::native::{generation::Method, value::Value};
use mooncake_tests::native::uuid;

fn unmount_args(n: u64, owner: u64) -> Vec<Value> {
    vec![uuid(super::session::id(n)), client(owner)]
}

/// The process, and mounting segment 1 for client 1.
pub(crate) fn first(s: &mut Session) {
    s.call(Method::ServiceReady, "version", vec![]);
    s.call(Method::GetFsdir, "without files", vec![]);
    s.call(Method::GetStorageConfig, "without files", vec![]);
    s.call(Method::Ping, "unknown client", vec![client(1)]);
    s.call(Method::PutStart, "no memory at all", start_args(1, "none", 10, &Config::default()));
    let mount = |segment| vec![segment, client(1)];
    s.call(Method::MountSegment, "size 0", mount(segment_at(1, "seg-1", base(1), 0, "seg-1")));
    s.call(Method::MountSegment, "base 0", mount(segment_at(1, "seg-1", 0, 1 << 20, "seg-1")));
    s.call(Method::MountSegment, "new", mount(segment(1, "seg-1", 64)));
    s.call(Method::MountSegment, "again", mount(segment(1, "seg-1", 64)));
    s.call(Method::Ping, "mounted only", vec![client(1)]);
    let remount = |segments| vec![Value::Seq(segments), client(1)];
    s.call(Method::ReMountSegment, "another size", remount(vec![segment(1, "seg-1", 32)]));
    s.call(Method::ReMountSegment, "another name", remount(vec![segment(1, "seg-x", 64)]));
    s.call(Method::ReMountSegment, "another client's", {
        vec![Value::Seq(vec![segment(1, "seg-1", 64)]), client(2)]
    });
    s.call(Method::ReMountSegment, "the same", remount(vec![segment(1, "seg-1", 64)]));
    s.call(Method::Ping, "remounted", vec![client(1)]);
    s.call(Method::ReMountSegment, "nothing", vec![Value::Seq(vec![]), client(3)]);
    s.call(Method::Ping, "remounted with nothing", vec![client(3)]);
    // A client that is known already says that it has more.
    let known = vec![segment(1, "seg-1", 64), segment(9, "seg-9", 16)];
    s.call(Method::ReMountSegment, "a further segment of a known client", remount(known));
    s.call(Method::QuerySegmentStatus, "of the further segment", vec![text("seg-9")]);
    s.call(Method::UnmountSegment, "the further segment", unmount_args(9, 1));
    s.call(Method::QuerySegmentStatus, "mounted", vec![text("seg-1")]);
    s.call(Method::QuerySegmentStatus, "unknown", vec![text("nowhere")]);
    s.call(Method::QuerySegmentStatusById, "mounted", vec![client(1)]);
    s.call(Method::QuerySegmentStatusById, "unknown", vec![client(77)]);
}

pub(crate) fn run(s: &mut Session) {
    hosts(s);
    unmounts(s);
    graceful(s);
    not_there(s);
    expiry(s);
}

fn hosts(s: &mut Session) {
    let endpoints =
        ["10.0.0.7:1", "10.0.0.7:2", "[2001:db8::1]:5", "host-1:5", "fe80::1%eth0", "2001:db8::2", ""];
    for (n, endpoint) in (20..).zip(endpoints) {
        let spec = segment_at(n, &format!("h{n}"), base(n), 1 << 20, endpoint);
        let owner = if n < 22 { 20 } else { n };
        s.call(Method::MountSegment, &format!("at {endpoint}"), vec![spec, client(owner)]);
    }
    let ask = |ids: &[u64]| vec![Value::Seq(ids.iter().map(|n| client(*n)).collect())];
    s.call(Method::BatchQueryIp, "nobody", ask(&[]));
    s.call(Method::BatchQueryIp, "unknown", ask(&[77]));
    s.call(Method::BatchQueryIp, "all of them and one twice", ask(&[20, 22, 23, 24, 25, 26, 77, 20]));
    for n in 20..27 {
        let owner = if n < 22 { 20 } else { n };
        s.call(Method::UnmountSegment, &format!("segment {n}"), unmount_args(n, owner));
    }
    s.until(Method::BatchQueryIp, "after their unmount", ask(&[20, 22]), "ok {}");
}

fn unmounts(s: &mut Session) {
    s.call(Method::UnmountSegment, "unknown", unmount_args(77, 1));
    s.call(Method::MountSegment, "to be unmounted", vec![segment(3, "seg-3", 16), client(3)]);
    put(s, 3, "in-the-third", &Config::on("seg-3"));
    s.call(Method::UnmountSegment, "its owner", unmount_args(3, 3));
    s.call(Method::GetReplicaList, "after the unmount", key_args("in-the-third"));
    s.call(Method::ExistKey, "after the unmount", key_args("in-the-third"));
    s.until(Method::QuerySegmentStatusById, "after the unmount", vec![client(3)], "SEGMENT_NOT_FOUND");
    s.call(Method::UnmountSegment, "again", unmount_args(3, 3));
    s.until(Method::MountSegment, "again after the unmount", vec![segment(3, "seg-3", 16), client(3)], "ok");
    s.call(Method::UnmountSegment, "another client", unmount_args(3, 1));
    s.call(Method::UnmountSegment, "after another client", unmount_args(3, 3));
}

fn graceful(s: &mut Session) {
    let args = |n, owner, ms| vec![uuid(super::session::id(n)), client(owner), Value::U64(ms)];
    s.call(Method::MountSegment, "to go gracefully", vec![segment(4, "seg-4", 16), client(4)]);
    s.call(Method::MountSegment, "of the neighbour", vec![segment(5, "seg-5", 16), client(5)]);
    put(s, 4, "in-the-fourth", &Config::on("seg-4"));
    s.call(Method::GracefulUnmountSegment, "unknown segment", args(77, 4, 1000));
    s.call(Method::GracefulUnmountSegment, "unknown client", args(4, 78, 1000));
    s.call(Method::GracefulUnmountSegment, "another client", args(4, 5, 1000));
    s.call(Method::GracefulUnmountSegment, "its owner", args(4, 4, 2000));
    s.call(Method::GracefulUnmountSegment, "again", args(4, 4, 60_000));
    s.call(Method::QuerySegmentStatus, "going gracefully", vec![text("seg-4")]);
    s.call(Method::QuerySegmentStatusById, "going gracefully", vec![client(4)]);
    s.call(Method::GetReplicaList, "going gracefully", key_args("in-the-fourth"));
    s.page("GET", "/query_segment?segment=seg-4", str::to_owned);
    s.page("GET", "/api/v1/segments/status?segment=seg-4", super::pages::json);
    s.call(Method::MountSegment, "going gracefully", vec![segment(4, "seg-4", 16), client(4)]);
    s.call(
        Method::ReMountSegment,
        "going gracefully",
        vec![Value::Seq(vec![segment(4, "seg-4", 16)]), client(4)],
    );
    s.until(Method::QuerySegmentStatusById, "gone gracefully", vec![client(4)], "SEGMENT_NOT_FOUND");
    s.until(Method::GetReplicaList, "gone gracefully", key_args("in-the-fourth"), "OBJECT_NOT_FOUND");
    s.call(Method::GracefulUnmountSegment, "at once", args(5, 5, 0));
    s.until(Method::QuerySegmentStatusById, "gone at once", vec![client(5)], "SEGMENT_NOT_FOUND");
    s.call(Method::MountSegment, "to go faster", vec![segment(6, "seg-6", 16), client(6)]);
    s.call(Method::GracefulUnmountSegment, "long", args(6, 6, 600_000));
    s.call(Method::UnmountSegment, "during the grace period", unmount_args(6, 6));
    s.until(Method::QuerySegmentStatusById, "gone faster", vec![client(6)], "SEGMENT_NOT_FOUND");
}

/// NoF, local disks and files, which neither master has here; tasks nobody has made.
fn not_there(s: &mut Session) {
    let nof =
        || Value::Struct(vec![client(1), text("n"), Value::U64(base(40)), Value::U64(1 << 20), text("n:1")]);
    s.call(Method::MountNoFSegment, "not built", vec![nof(), client(1)]);
    s.call(Method::ReMountNoFSegment, "not built", vec![Value::Seq(vec![nof()]), client(1)]);
    s.call(Method::UnmountNoFSegment, "not built", unmount_args(1, 1));
    s.call(Method::GetAllNoFSegments, "not built", vec![]);
    s.call(Method::GetNoFSegmentsByName, "not built", vec![text("n")]);
    s.call(Method::MountLocalDiskSegment, "no offload", vec![client(1), Value::Bool(true)]);
    s.call(Method::UnmountLocalDiskSegment, "no offload", vec![client(1)]);
    s.call(Method::PollRemoveAll, "no offload", vec![client(1)]);
    s.call(Method::OffloadObjectHeartbeat, "no offload", vec![client(1), Value::Bool(true)]);
    s.call(Method::ReportSsdCapacity, "no offload", vec![client(1), Value::I64(1000)]);
    s.call(Method::PromotionObjectHeartbeat, "no offload", vec![client(1)]);
    s.call(Method::NotifyOffloadSuccess, "nothing", vec![client(1), Value::Seq(vec![]), Value::Seq(vec![])]);
    let evict = |key: &str, kind| vec![client(1), text(key), tenant(), Value::I32(kind)];
    put(s, 1, "without-a-file", &Config::on("seg-1"));
    s.call(Method::EvictDiskReplica, "missing", evict("missing", DISK));
    s.call(Method::EvictDiskReplica, "missing, memory", evict("missing", MEMORY));
    s.call(Method::EvictDiskReplica, "memory", evict("without-a-file", MEMORY));
    s.call(Method::EvictDiskReplica, "no file", evict("without-a-file", DISK));
    s.call(Method::EvictDiskReplica, "no local disk", evict("without-a-file", LOCAL_DISK));
    s.call(Method::BatchEvictDiskReplica, "none", vec![client(1), texts(&[]), tenant(), Value::I32(DISK)]);
    s.call(Method::BatchEvictDiskReplica, "one missing", {
        vec![client(1), texts(&["without-a-file", "missing"]), tenant(), Value::I32(DISK)]
    });
    s.call(Method::FetchTasks, "none", vec![client(1), Value::U64(16)]);
    s.call(Method::QueryTask, "unknown", vec![client(1)]);
    let mark = |status| vec![client(1), Value::Struct(vec![client(1), Value::I32(status), text("")])];
    s.call(Method::MarkTaskToComplete, "unknown", mark(3));
    s.call(Method::MarkTaskToComplete, "not an end", mark(1));
}

/// A client that falls silent; both masters forget it within a few seconds.
fn expiry(s: &mut Session) {
    s.call(Method::MountSegment, "of a client that falls silent", vec![segment(7, "seg-7", 16), client(7)]);
    s.call(Method::ReMountSegment, "of a client that falls silent", {
        vec![Value::Seq(vec![segment(7, "seg-7", 16)]), client(7)]
    });
    s.call(Method::Ping, "a client that falls silent", vec![client(7)]);
    put(s, 7, "of-a-silent-client", &Config::on("seg-7"));
    s.until(Method::ExistKey, "of a silent client", key_args("of-a-silent-client"), "ok false");
    s.until(Method::QuerySegmentStatusById, "of a silent client", vec![client(7)], "SEGMENT_NOT_FOUND");
    s.until(Method::GetReplicaList, "of a silent client", key_args("of-a-silent-client"), "OBJECT_NOT_FOUND");
    s.until(Method::Ping, "a silent client", vec![client(7)], "ok");
    s.until(Method::MountSegment, "a silent client returns", vec![segment(7, "seg-7", 16), client(7)], "ok");
    s.call(Method::UnmountSegment, "of the one that returned", unmount_args(7, 7));
}

/// Against a master with `--root_fs_dir`.
pub(crate) fn files(s: &mut Session) {
    let d = Config::default();
    s.call(Method::GetFsdir, "with files", vec![]);
    s.call(Method::GetStorageConfig, "with files", vec![]);
    s.call(Method::PutStart, "no memory for the file to come from", start_args(1, "f0", 10, &d));
    s.call(Method::MountSegment, "with files", vec![segment(1, "seg-1", 64), client(1)]);
    s.call(Method::PutStart, "memory and file", start_args(1, "f1", 1000, &d));
    s.call(Method::PutEnd, "memory of two", end_args(1, "f1", None, ALL));
    s.call(Method::GetReplicaList, "file being written", key_args("f1"));
    s.call(Method::Remove, "file being written", remove_args("f1", true));
    s.call(Method::PutEnd, "file of two", end_args(1, "f1", Some(7), DISK));
    s.call(Method::PutEnd, "file of two, again", end_args(1, "f1", None, DISK));
    s.call(Method::PutEnd, "local disk of two", end_args(1, "f1", None, LOCAL_DISK));
    s.call(Method::GetReplicaList, "memory and file", key_args("f1"));
    s.call(Method::PutStart, "file first", start_args(1, "f2", 1000, &d));
    s.call(Method::PutEnd, "file first", end_args(1, "f2", Some(9), DISK));
    s.call(Method::GetReplicaList, "file only", key_args("f2"));
    s.call(Method::PutEnd, "memory second", end_args(1, "f2", None, ALL));
    s.call(Method::GetReplicaList, "memory second", key_args("f2"));
    s.call(Method::PutStart, "both revoked", start_args(1, "f3", 1000, &d));
    s.call(Method::PutRevoke, "memory of two", own_args(1, "f3", ALL));
    s.call(Method::GetReplicaList, "memory of two revoked", key_args("f3"));
    s.call(Method::PutRevoke, "file of two", own_args(1, "f3", DISK));
    s.call(Method::GetReplicaList, "both revoked", key_args("f3"));
    s.call(Method::PutStart, "file revoked", start_args(1, "f4", 1000, &d));
    s.call(Method::PutEnd, "memory only", end_args(1, "f4", None, MEMORY));
    s.call(Method::PutRevoke, "memory that is written", own_args(1, "f4", MEMORY));
    s.call(Method::PutRevoke, "file that is not written", own_args(1, "f4", DISK));
    s.call(Method::PutRevoke, "file, again", own_args(1, "f4", DISK));
    let evict = |key: &str, kind| vec![client(1), text(key), tenant(), Value::I32(kind)];
    s.call(Method::EvictDiskReplica, "wrong kind", evict("f1", MEMORY));
    s.call(Method::EvictDiskReplica, "file", evict("f1", DISK));
    s.call(Method::EvictDiskReplica, "file, again", evict("f1", DISK));
    s.call(Method::GetReplicaList, "file evicted", key_args("f1"));
    s.call(Method::PutStart, "evicted while written", start_args(1, "f5", 1000, &d));
    s.call(Method::EvictDiskReplica, "while written", evict("f5", DISK));
    s.call(Method::PutEnd, "memory of an evicted file", end_args(1, "f5", None, ALL));
    s.call(Method::PutEnd, "evicted file", end_args(1, "f5", None, DISK));
    s.call(Method::UpsertStart, "file, same size", start_args(1, "f2", 1000, &d));
    s.call(Method::UpsertEnd, "memory, same size", end_args(1, "f2", None, ALL));
    s.call(Method::GetReplicaList, "memory, same size", key_args("f2"));
    s.call(Method::UpsertEnd, "file, same size", end_args(1, "f2", None, DISK));
    s.call(Method::UpsertStart, "file, other size", start_args(1, "f2", 2000, &d));
    s.call(Method::UpsertEnd, "memory, other size", end_args(1, "f2", None, ALL));
    s.call(Method::UpsertStart, "file never ended", start_args(1, "f2", 2000, &d));
    s.call(Method::UpsertEnd, "file never ended", end_args(1, "f2", None, ALL));
    s.call(Method::GetReplicaList, "file never ended", key_args("f2"));
    s.call(Method::BatchEvictDiskReplica, "files", {
        vec![client(1), texts(&["f1", "f2", "missing"]), tenant(), Value::I32(DISK)]
    });
    s.call(Method::PutStart, "to outlive the memory", start_args(1, "f6", 1000, &d));
    s.call(Method::PutEnd, "memory that goes", end_args(1, "f6", None, ALL));
    s.call(Method::PutEnd, "file that stays", end_args(1, "f6", None, DISK));
    s.call(Method::UnmountSegment, "the memory beside the files", unmount_args(1, 1));
    s.call(Method::GetReplicaList, "the file that stayed", key_args("f6"));
    s.call(Method::ExistKey, "the file that stayed", key_args("f6"));
    s.call(Method::RemoveAll, "with files", vec![Value::Bool(true), tenant()]);
    s.call(Method::GetReplicaList, "file removed", key_args("f6"));
}
