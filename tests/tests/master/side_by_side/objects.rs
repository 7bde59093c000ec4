//! Calls about objects: Put, Get, Upsert, Remove, with their batches.

use super::session::{
    ALL, Config, DFS, LOCAL_DISK, MEMORY, NOF, Session, client, meta, segment, tenant, text, texts,
};
use mooncake_master::rpc::native::{generation::Method, value::Value};

pub(crate) fn start_args(owner: u64, key: &str, size: u64, config: &Config) -> Vec<Value> {
    vec![client(owner), text(key), Value::U64(size), config.value(), tenant()]
}

pub(crate) fn end_args(owner: u64, key: &str, checksum: Option<u64>, kind: i32) -> Vec<Value> {
    vec![client(owner), meta(key, checksum), Value::I32(kind), tenant()]
}

pub(crate) fn own_args(owner: u64, key: &str, kind: i32) -> Vec<Value> {
    vec![client(owner), text(key), Value::I32(kind), tenant()]
}

pub(crate) fn key_args(key: &str) -> Vec<Value> {
    vec![text(key), tenant()]
}

pub(crate) fn remove_args(key: &str, force: bool) -> Vec<Value> {
    vec![text(key), Value::Bool(force), tenant()]
}

fn batch_start_args(owner: u64, keys: &[&str], sizes: &[u64], config: &Config) -> Vec<Value> {
    let sizes = Value::Seq(sizes.iter().map(|size| Value::U64(*size)).collect());
    vec![client(owner), texts(keys), sizes, config.value(), tenant()]
}

fn metas(keys: &[&str]) -> Value {
    Value::Seq(keys.iter().map(|key| meta(key, None)).collect())
}

/// PutStart and PutEnd of a key whose name says what it is for.
pub(crate) fn put(session: &mut Session, owner: u64, key: &str, config: &Config) {
    session.call(Method::PutStart, key, start_args(owner, key, 1000, config));
    session.call(Method::PutEnd, key, end_args(owner, key, None, ALL));
}

/// With segment 1 of client 1 mounted.
pub(crate) fn run(s: &mut Session) {
    reads(s);
    refused_starts(s);
    puts(s);
    batches(s);
    upserts(s);
    removes(s);
    pins(s);
}

fn reads(s: &mut Session) {
    s.call(Method::ExistKey, "missing", key_args("missing"));
    s.call(Method::GetReplicaList, "missing", key_args("missing"));
    s.call(Method::BatchExistKey, "none", vec![texts(&[]), tenant()]);
    s.call(Method::BatchExistKey, "missing", vec![texts(&["a", "b"]), tenant()]);
    s.call(Method::BatchGetReplicaList, "none", vec![texts(&[]), tenant()]);
    s.call(Method::BatchGetReplicaList, "missing", vec![texts(&["a", "b"]), tenant()]);
    s.call(Method::GetReplicaListByRegex, "matches nothing", key_args("^nothing$"));
    s.call(Method::GetReplicaListByRegex, "bad pattern", key_args("(["));
    s.call(Method::ExistKey, "empty key", key_args(""));
    s.call(Method::GetReplicaList, "empty key", key_args(""));
    s.call(Method::ExistKey, "empty tenant", vec![text("missing"), text("")]);
    s.call(Method::ExistKey, "unknown tenant", vec![text("missing"), text("somebody")]);
}

fn refused_starts(s: &mut Session) {
    let d = Config::default;
    let cases: Vec<(&str, &str, u64, Config)> = vec![
        ("empty key", "", 1000, d()),
        ("empty value", "r", 0, d()),
        ("no replicas", "r", 1000, Config { replica_num: 0, ..d() }),
        ("NoF", "r", 1000, Config { nof_replica_num: 1, ..d() }),
        ("NoF only", "r", 1000, Config { replica_num: 0, nof_replica_num: 1, ..d() }),
        (
            "NoF in the same node",
            "r",
            1000,
            Config { nof_replica_num: 1, prefer_alloc_in_same_node: true, ..d() },
        ),
        ("DFS", "r", 1000, Config { dfs_replica_num: 1, ..d() }),
        ("two DFS", "r", 1000, Config { dfs_replica_num: 2, ..d() }),
        ("DFS without memory", "r", 1000, Config { replica_num: 0, dfs_replica_num: 1, ..d() }),
        ("ttl without a pin", "r", 1000, Config { soft_pin_ttl_ms: Some(5), ..d() }),
        (
            "ttl with an end of the pin",
            "r",
            1000,
            Config { soft_pin_action: 2, soft_pin_ttl_ms: Some(5), ..d() },
        ),
        ("ttl too long", "r", 1000, Config { soft_pin_action: 1, soft_pin_ttl_ms: Some(86_400_001), ..d() }),
        ("two groups for one key", "r", 1000, Config { group_ids: Some(vec!["g", "h"]), ..d() }),
        ("no group for one key", "r", 1000, Config { group_ids: Some(vec![]), ..d() }),
        ("too large", "r", 1 << 40, d()),
    ];
    for (what, key, size, config) in &cases {
        s.call(Method::PutStart, what, start_args(1, key, *size, config));
        s.call(Method::UpsertStart, what, start_args(1, key, *size, config));
    }
    s.call(Method::ExistKey, "after refused starts", key_args("r"));
}

fn puts(s: &mut Session) {
    let d = Config::default();
    s.call(Method::PutEnd, "missing", end_args(1, "missing", None, ALL));
    s.call(Method::PutRevoke, "missing", own_args(1, "missing", ALL));
    s.call(Method::PutStart, "new", start_args(1, "k", 1000, &d));
    s.call(Method::PutStart, "being written", start_args(1, "k", 1000, &d));
    s.call(Method::PutStart, "being written by another", start_args(2, "k", 1000, &d));
    s.call(Method::ExistKey, "being written", key_args("k"));
    s.call(Method::GetReplicaList, "being written", key_args("k"));
    s.call(Method::Remove, "being written", remove_args("k", false));
    s.call(Method::Remove, "being written, forced", remove_args("k", true));
    s.call(Method::PutEnd, "another client", end_args(2, "k", None, ALL));
    s.call(Method::PutRevoke, "another client", own_args(2, "k", ALL));
    for (what, kind) in [("NoF", NOF), ("local disk", LOCAL_DISK), ("DFS", DFS)] {
        s.call(Method::PutEnd, &format!("{what} while memory is written"), end_args(1, "k", None, kind));
        s.call(Method::GetReplicaList, &format!("after an end of {what}"), key_args("k"));
    }
    s.call(Method::PutEnd, "the writer", end_args(1, "k", Some(77), ALL));
    s.call(Method::GetReplicaList, "written", key_args("k"));
    s.call(Method::PutEnd, "again", end_args(1, "k", None, ALL));
    s.call(Method::PutEnd, "again, memory", end_args(1, "k", None, MEMORY));
    s.call(Method::PutEnd, "again, NoF", end_args(1, "k", None, NOF));
    s.call(Method::PutEnd, "again by another", end_args(2, "k", None, ALL));
    s.call(Method::GetReplicaList, "checksum after a second end", key_args("k"));
    s.call(Method::PutRevoke, "written", own_args(1, "k", ALL));
    s.call(Method::PutStart, "written", start_args(1, "k", 1000, &d));
    s.call(Method::ExistKey, "written", key_args("k"));
    s.call(Method::GetReplicaListByRegex, "matches one", key_args("k"));
    s.call(Method::GetReplicaListByRegex, "unanchored", key_args("^.$"));
    s.call(Method::PutStart, "to be revoked", start_args(1, "v", 1000, &d));
    s.call(Method::PutRevoke, "NoF while memory is written", own_args(1, "v", NOF));
    s.call(Method::PutRevoke, "memory", own_args(1, "v", MEMORY));
    s.call(Method::GetReplicaList, "revoked", key_args("v"));
    s.call(Method::PutRevoke, "again", own_args(1, "v", MEMORY));
    s.call(Method::PutStart, "three replicas of one segment", {
        start_args(1, "three", 1000, &Config { replica_num: 3, ..Config::default() })
    });
    s.call(Method::PutEnd, "three replicas", end_args(1, "three", None, ALL));
    // An empty tenant means the default one, and so does any other while tenants are off.
    s.call(Method::PutStart, "empty tenant", {
        vec![client(1), text("t1"), Value::U64(10), d.value(), text("")]
    });
    s.call(Method::PutStart, "some tenant", {
        vec![client(1), text("t2"), Value::U64(10), d.value(), text("somebody")]
    });
    s.call(Method::PutEnd, "key of some tenant in the default one", end_args(1, "t2", None, ALL));
    s.call(Method::PutStart, "bytes that are no text", {
        vec![client(1), Value::Str(b"\xff\0\xfe".to_vec()), Value::U64(10), d.value(), tenant()]
    });
    // Abandoned: another writer may have the key after put_start_discard_timeout_sec.
    s.call(Method::PutStart, "abandoned", start_args(1, "ab", 1000, &d));
    s.until(Method::PutStart, "abandoned, by another", start_args(2, "ab", 1000, &d), "ok");
    s.call(Method::PutEnd, "abandoned, too late", end_args(1, "ab", None, ALL));
    s.call(Method::PutEnd, "abandoned, the new writer", end_args(2, "ab", None, ALL));
    // The same writer again: a late end of the first put must not make the second one readable.
    s.call(Method::PutStart, "abandoned by the same", start_args(1, "ab2", 1000, &d));
    s.until(Method::PutStart, "abandoned, again by the same", start_args(1, "ab2", 1000, &d), "ok");
    s.call(Method::PutEnd, "abandoned, the same again", end_args(1, "ab2", None, ALL));
    s.call(Method::PutEnd, "abandoned, both Ends came", end_args(1, "ab2", None, ALL));
}

fn batches(s: &mut Session) {
    let d = Config::default();
    let keys = ["b1", "b2", "k"];
    s.call(Method::BatchPutStart, "none", batch_start_args(1, &[], &[], &d));
    s.call(Method::BatchPutStart, "lengths do not fit", batch_start_args(1, &keys, &[1], &d));
    s.call(Method::BatchPutStart, "groups do not fit", {
        batch_start_args(1, &keys, &[1, 2, 3], &Config { group_ids: Some(vec!["g"]), ..d.clone() })
    });
    s.call(Method::BatchPutStart, "two new, one there", batch_start_args(1, &keys, &[10, 20, 30], &d));
    s.call(Method::BatchPutStart, "an empty value among them", {
        batch_start_args(1, &["e1", "e2", ""], &[0, 5, 5], &d)
    });
    s.call(Method::BatchPutStart, "in the same node", {
        let near = Config { prefer_alloc_in_same_node: true, ..d.clone() };
        batch_start_args(1, &["n1", "n2"], &[5, 5], &near)
    });
    let end = |keys: &[&str]| vec![client(1), metas(keys), Value::I32(ALL), tenant()];
    s.call(Method::BatchPutEnd, "none", end(&[]));
    s.call(Method::BatchPutEnd, "one missing", end(&["b1", "e2", "missing"]));
    let revoke = |keys: &[&str]| vec![client(1), texts(keys), Value::I32(ALL), tenant()];
    s.call(Method::BatchPutRevoke, "none", revoke(&[]));
    s.call(Method::BatchPutRevoke, "one being written", revoke(&["b2", "b1", "missing"]));
    s.call(Method::BatchExistKey, "some there", vec![texts(&["b1", "b2", "k", "missing"]), tenant()]);
    s.call(Method::BatchGetReplicaList, "some there", vec![texts(&["b1", "n1", "missing"]), tenant()]);
    s.call(Method::BatchUpsertStart, "none", batch_start_args(1, &[], &[], &d));
    s.call(Method::BatchUpsertStart, "lengths do not fit", batch_start_args(1, &keys, &[1], &d));
    s.call(Method::BatchUpsertStart, "new and there", {
        batch_start_args(1, &["u1", "b1", ""], &[10, 10, 10], &d)
    });
    s.call(Method::BatchUpsertEnd, "one missing", {
        vec![client(1), metas(&["u1", "b1", "missing"]), tenant()]
    });
    s.call(Method::BatchUpsertStart, "to be revoked", batch_start_args(1, &["u2"], &[10], &d));
    s.call(Method::BatchUpsertRevoke, "one missing", vec![client(1), texts(&["u2", "missing"]), tenant()]);
}

fn upserts(s: &mut Session) {
    let d = Config::default();
    s.call(Method::UpsertStart, "new", start_args(1, "up", 1000, &d));
    s.call(Method::UpsertEnd, "another client", end_args(2, "up", None, ALL));
    s.call(Method::UpsertEnd, "new", end_args(1, "up", Some(5), ALL));
    s.call(Method::UpsertStart, "same size", start_args(1, "up", 1000, &d));
    s.call(Method::GetReplicaList, "same size, being written", key_args("up"));
    s.call(Method::UpsertEnd, "same size", end_args(1, "up", None, ALL));
    s.call(Method::GetReplicaList, "same size, written", key_args("up"));
    s.call(Method::UpsertStart, "other size", start_args(1, "up", 2000, &d));
    s.call(Method::UpsertEnd, "other size", end_args(1, "up", None, ALL));
    s.call(Method::GetReplicaList, "other size, written", key_args("up"));
    s.call(Method::UpsertStart, "by another client", start_args(2, "up", 2000, &d));
    s.call(Method::UpsertEnd, "the former writer", end_args(1, "up", None, ALL));
    s.call(Method::UpsertRevoke, "the former writer", own_args(1, "up", ALL));
    s.call(Method::UpsertStart, "while it is written", start_args(1, "up", 3000, &d));
    s.call(Method::UpsertRevoke, "the writer", own_args(1, "up", ALL));
    s.call(Method::GetReplicaList, "upsert revoked", key_args("up"));
    s.call(Method::UpsertRevoke, "missing", own_args(1, "missing", ALL));
    s.call(Method::UpsertEnd, "missing", end_args(1, "missing", None, ALL));
    let group = |name| Config { group_ids: Some(vec![name]), ..Config::default() };
    put(s, 1, "grouped", &group("g1"));
    s.call(Method::UpsertStart, "another group", start_args(1, "grouped", 1000, &group("g2")));
    s.call(Method::UpsertStart, "without its group", start_args(1, "grouped", 1000, &d));
    s.call(Method::UpsertStart, "its group", start_args(1, "grouped", 1000, &group("g1")));
    s.call(Method::UpsertEnd, "its group", end_args(1, "grouped", None, ALL));
    s.call(Method::UpsertEnd, "its group, both Ends came", end_args(1, "grouped", None, ALL));
}

fn removes(s: &mut Session) {
    let d = Config::default();
    s.call(Method::Remove, "missing", remove_args("missing", false));
    s.call(Method::Remove, "missing, forced", remove_args("missing", true));
    s.call(Method::Remove, "empty key", remove_args("", false));
    put(s, 1, "leased", &d);
    s.call(Method::ExistKey, "leased", key_args("leased"));
    s.call(Method::Remove, "leased", remove_args("leased", false));
    s.call(Method::BatchRemove, "leased and missing", {
        vec![texts(&["leased", "missing"]), Value::Bool(false), tenant()]
    });
    s.call(Method::RemoveByRegex, "leased", remove_args("^leased$", false));
    s.until(Method::Remove, "lease over", remove_args("leased", false), "ok");
    put(s, 1, "forced", &d);
    s.call(Method::GetReplicaList, "forced", key_args("forced"));
    s.call(Method::Remove, "leased, forced", remove_args("forced", true));
    for key in ["rx-1", "rx-2", "ry"] {
        put(s, 1, key, &d);
    }
    s.call(Method::RemoveByRegex, "bad pattern", remove_args("([", true));
    s.call(Method::RemoveByRegex, "two", remove_args("rx-[0-9]", true));
    s.call(Method::RemoveByRegex, "again", remove_args("rx-[0-9]", true));
    s.call(Method::BatchRemove, "none", vec![texts(&[]), Value::Bool(true), tenant()]);
    s.call(Method::BatchRemove, "one there", vec![texts(&["ry", "ry"]), Value::Bool(true), tenant()]);
    for key in ["c1", "c2", "c3"] {
        put(s, 1, key, &d);
    }
    let clear = |keys: &[&str], owner, name: &str| vec![texts(keys), client(owner), text(name)];
    s.call(Method::BatchReplicaClear, "none", clear(&[], 1, ""));
    s.call(Method::BatchReplicaClear, "another client's", clear(&["c1"], 2, ""));
    s.call(Method::BatchReplicaClear, "missing and empty", clear(&["missing", ""], 1, ""));
    s.call(Method::BatchReplicaClear, "another segment", clear(&["c1"], 1, "elsewhere"));
    s.call(Method::BatchReplicaClear, "its segment", clear(&["c1", "c2"], 1, "seg-1"));
    s.call(Method::ExistKey, "cleared", key_args("c1"));
    s.call(Method::ExistKey, "not cleared", key_args("c3"));
    s.call(Method::BatchReplicaClear, "leased", clear(&["c3"], 1, ""));
    s.until(Method::BatchReplicaClear, "lease over", clear(&["c3"], 1, ""), "ok [c3");
    s.call(Method::PutStart, "to be cleared while written", start_args(1, "c4", 10, &d));
    s.call(Method::BatchReplicaClear, "being written", clear(&["c4"], 1, ""));
    s.call(Method::RemoveAll, "somebody's", vec![Value::Bool(true), text("somebody")]);
    s.call(Method::ExistKey, "after all was removed", key_args("k"));
    s.call(Method::RemoveAll, "again, not forced", vec![Value::Bool(false), tenant()]);
    s.call(Method::PutEnd, "one that remove all left", end_args(1, "c4", None, ALL));
    s.call(Method::RemoveAll, "all tenants", vec![Value::Bool(true), text("")]);
}

fn pins(s: &mut Session) {
    let d = Config::default();
    let pinned = |action, ttl| Config { soft_pin_action: action, soft_pin_ttl_ms: ttl, ..d.clone() };
    put(s, 1, "soft-pinned", &pinned(1, None));
    put(s, 1, "soft-pinned-for-a-while", &pinned(1, Some(60_000)));
    put(s, 1, "soft-pin-of-no-time", &pinned(1, Some(0)));
    put(s, 1, "not-pinned", &pinned(2, None));
    put(s, 1, "hard-pinned", &Config { with_hard_pin: true, ..d.clone() });
    put(s, 1, "of-a-type", &Config { data_type: 2, ..d.clone() });
    put(s, 1, "of-an-unknown-type", &Config { data_type: 200, ..d.clone() });
    put(s, 1, "preferred-nowhere", &Config::on("nowhere"));
    put(s, 1, "preferred-list", &Config { preferred_segments: vec!["nowhere", "seg-1"], ..d.clone() });
    s.call(Method::Remove, "hard-pinned", remove_args("hard-pinned", false));
    s.call(Method::Remove, "soft-pinned", remove_args("soft-pinned", false));
    s.call(Method::MountSegment, "second segment of the client", vec![segment(2, "seg-2", 16), client(1)]);
    let two = Config { replica_num: 2, ..d.clone() };
    put(s, 1, "two-replicas", &two);
    s.call(Method::GetReplicaList, "two replicas", key_args("two-replicas"));
    s.until(
        Method::BatchReplicaClear,
        "one of two",
        vec![texts(&["two-replicas"]), client(1), text("seg-2")],
        "ok [two",
    );
    s.call(Method::GetReplicaList, "one of two left", key_args("two-replicas"));
    put(s, 1, "on-the-second", &Config::on("seg-2"));
    s.call(Method::GetReplicaList, "on the second segment", key_args("on-the-second"));
}
