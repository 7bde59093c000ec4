//! 0.3.11: without tenants and hosts.
//! Only the calls whose types are known from that release.

use super::{
    Method, Row,
    common::{
        CLIENT, DONE, DONE_EACH, FORCE, KEY, KEYS, PATTERN, PING_RESPONSE, QUERY_TASK, REPLICA_LIST_NOF,
        REPLICA_NOF, REPLICA_TYPE, SEGMENT_HOSTLESS, SEGMENT_ID, SEGMENT_NAME, SLICE_LENGTH, SLICE_LENGTHS,
        STORAGE_CONFIG, TASK_ASSIGNMENT, TASK_COMPLETE, UUID, describe, rpcs,
    },
};
use crate::rpc::native::types::{
    Member,
    Type::{Bool, Expected, I64, Map, Seq, Str, U8, U64},
};

describe! {
    REPLICATE_CONFIG = "ReplicateConfig" {
        "replica_num": U64, "nof_replica_num": U64, "with_soft_pin": Bool, "with_hard_pin": Bool,
        "preferred_segments": Seq(&Str), "preferred_segment": Str, "preferred_nof_segments": Seq(&Str),
        "prefer_alloc_in_same_node": Bool, "data_type": U8,
    };
}

const CONFIG: Member = ("config", REPLICATE_CONFIG);

pub(super) const ROWS: &[Row] = rpcs! {
    ExistKey(KEY) -> Expected(&Bool);
    BatchExistKey(KEYS) -> Seq(&Expected(&Bool));
    GetReplicaList(KEY) -> Expected(&REPLICA_LIST_NOF);
    BatchGetReplicaList(KEYS) -> Seq(&Expected(&REPLICA_LIST_NOF));
    GetReplicaListByRegex(PATTERN) -> Expected(&Map(&Str, &Seq(&REPLICA_NOF)));
    PutStart(CLIENT, KEY, SLICE_LENGTH, CONFIG) -> Expected(&Seq(&REPLICA_NOF));
    PutEnd(CLIENT, KEY, REPLICA_TYPE) -> DONE;
    PutRevoke(CLIENT, KEY, REPLICA_TYPE) -> DONE;
    BatchPutStart(CLIENT, KEYS, SLICE_LENGTHS, CONFIG) -> Seq(&Expected(&Seq(&REPLICA_NOF)));
    BatchPutEnd(CLIENT, KEYS, REPLICA_TYPE) -> DONE_EACH;
    BatchPutRevoke(CLIENT, KEYS, REPLICA_TYPE) -> DONE_EACH;
    Remove(KEY, FORCE) -> DONE;
    RemoveByRegex(PATTERN, FORCE) -> Expected(&I64);
    RemoveAll(FORCE) -> I64;
    MountSegment(("segment", SEGMENT_HOSTLESS), CLIENT) -> DONE;
    ReMountSegment(("segments", Seq(&SEGMENT_HOSTLESS)), CLIENT) -> DONE;
    UnmountSegment(SEGMENT_ID, CLIENT) -> DONE;
    Ping(CLIENT) -> Expected(&PING_RESPONSE);
    GetStorageConfig() -> Expected(&STORAGE_CONFIG);
    ServiceReady() -> Expected(&Str);
    GetFsdir() -> Expected(&Str);
    FetchTasks(CLIENT, ("batch_size", U64)) -> Expected(&Seq(&TASK_ASSIGNMENT));
    QueryTask(("task_id", UUID)) -> Expected(&QUERY_TASK);
    MarkTaskToComplete(CLIENT, ("request", TASK_COMPLETE)) -> DONE;
    BatchQueryIp(("client_ids", Seq(&UUID))) -> Expected(&Map(&UUID, &Seq(&Str)));
    BatchReplicaClear(KEYS, CLIENT, SEGMENT_NAME) -> Expected(&Seq(&Str));
    MountLocalDiskSegment(CLIENT, ("enable_offloading", Bool)) -> DONE;
    UpsertStart(CLIENT, KEY, SLICE_LENGTH, CONFIG) -> Expected(&Seq(&REPLICA_NOF));
    UpsertEnd(CLIENT, KEY, REPLICA_TYPE) -> DONE;
    UpsertRevoke(CLIENT, KEY, REPLICA_TYPE) -> DONE;
    BatchUpsertStart(CLIENT, KEYS, SLICE_LENGTHS, CONFIG) -> Seq(&Expected(&Seq(&REPLICA_NOF)));
    BatchUpsertEnd(CLIENT, KEYS) -> DONE_EACH;
    BatchRemove(KEYS, FORCE) -> DONE_EACH;
};
