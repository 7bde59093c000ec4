//! 0.3.11: without tenants and hosts.

use super::{
    Method, Row, Table,
    common::{
        CLIENT, COPY_STARTED_NOF, DONE, DONE_EACH, FORCE, KEY, KEYS, MOVE_STARTED_NOF, NOF_OWNER,
        NOF_SEGMENT, OFFLOADING, PATTERN, PING_RESPONSE, QUERY_TASK, REPLICA_LIST_NOF, REPLICA_NOF,
        REPLICA_TYPE, SEGMENT_HOSTLESS, SEGMENT_ID, SEGMENT_NAME, SLICE_LENGTH, SLICE_LENGTHS, SOURCE,
        STORAGE_CONFIG, STORED_EACH, TARGET, TARGETS, TASK_ASSIGNMENT, TASK_COMPLETE, UUID, describe, rpcs,
    },
};
use crate::rpc::native::types::{
    Member,
    Type::{Bool, Expected, I32, I64, Map, Seq, Str, U8, U64},
};

describe! {
    REPLICATE_CONFIG = "ReplicateConfig" {
        "replica_num": U64, "nof_replica_num": U64, "with_soft_pin": Bool, "with_hard_pin": Bool,
        "preferred_segments": Seq(&Str), "preferred_segment": Str, "preferred_nof_segments": Seq(&Str),
        "prefer_alloc_in_same_node": Bool, "data_type": U8,
    };
}

const CONFIG: Member = ("config", REPLICATE_CONFIG);

pub(super) const TABLE: Table = Table { name: "0.3.11", rows: ROWS, unsent: &[] };

const ROWS: &[Row] = rpcs! {
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
    BatchUpsertRevoke(CLIENT, KEYS) -> DONE_EACH;
    GracefulUnmountSegment(SEGMENT_ID, CLIENT, ("grace_period_ms", U64)) -> DONE;
    QuerySegmentStatus(SEGMENT_NAME) -> Expected(&I32);
    QuerySegmentStatusById(SEGMENT_ID) -> Expected(&I32);
    MountNoFSegment(("segment", NOF_SEGMENT), CLIENT) -> DONE;
    ReMountNoFSegment(("segments", Seq(&NOF_SEGMENT)), CLIENT) -> DONE;
    UnmountNoFSegment(SEGMENT_ID, CLIENT) -> DONE;
    GetAllNoFSegments() -> Expected(&Seq(&NOF_SEGMENT));
    GetNoFSegmentsByName(SEGMENT_NAME) -> Expected(&Seq(&NOF_OWNER));
    OffloadObjectHeartbeat(CLIENT, OFFLOADING) -> Expected(&Map(&Str, &I64));
    ReportSsdCapacity(CLIENT, ("ssd_total_capacity_bytes", I64)) -> DONE;
    NotifyOffloadSuccess(CLIENT, KEYS, STORED_EACH) -> DONE;
    CopyStart(CLIENT, KEY, SOURCE, TARGETS) -> Expected(&COPY_STARTED_NOF);
    CopyEnd(CLIENT, KEY) -> DONE;
    CopyRevoke(CLIENT, KEY) -> DONE;
    MoveStart(CLIENT, KEY, SOURCE, TARGET) -> Expected(&MOVE_STARTED_NOF);
    MoveEnd(CLIENT, KEY) -> DONE;
    MoveRevoke(CLIENT, KEY) -> DONE;
    EvictDiskReplica(CLIENT, KEY, REPLICA_TYPE) -> DONE;
    BatchEvictDiskReplica(CLIENT, KEYS, REPLICA_TYPE) -> DONE_EACH;
    CreateCopyTask(KEY, ("targets", Seq(&Str))) -> Expected(&UUID);
    CreateMoveTask(KEY, ("source", Str), ("target", Str)) -> Expected(&UUID);
};
