//! 0.3.12: tenants and hosts, but no DFS, no checksum, and the soft pin is a flag.

use super::{
    Method, Row, Table,
    common::{
        CLIENT, COPY_STARTED_NOF, DONE, DONE_EACH, FORCE, KEY, KEYS, MOVE_STARTED_NOF, NOF_OWNER,
        NOF_SEGMENT, OFFLOAD_TASK, OFFLOADING, PATTERN, PING_RESPONSE, QUERY_TASK, REPLICA_LIST_NOF,
        REPLICA_NOF, REPLICA_TYPE, SEGMENT, SEGMENT_ID, SEGMENT_NAME, SLICE_LENGTH, SLICE_LENGTHS, SOURCE,
        STORAGE_CONFIG, STORED_EACH, TARGET, TARGETS, TASK_ASSIGNMENT, TASK_COMPLETE, TENANT, UUID, describe,
        rpcs,
    },
};
use crate::rpc::native::types::{
    Member,
    Type::{Bool, Expected, I32, I64, Map, Opt, Seq, Str, U8, U64},
};

describe! {
    PROMOTION_STARTED = "PromotionAllocStartResponse" { "memory_descriptor": REPLICA_NOF };
    REPLICATE_CONFIG = "ReplicateConfig" {
        "replica_num": U64, "nof_replica_num": U64, "with_soft_pin": Bool, "with_hard_pin": Bool,
        "preferred_segments": Seq(&Str), "preferred_segment": Str, "preferred_nof_segments": Seq(&Str),
        "prefer_alloc_in_same_node": Bool, "data_type": U8, "host_id": Str, "group_ids": Opt(&Seq(&Str)),
    };
}

const CONFIG: Member = ("config", REPLICATE_CONFIG);

pub(super) const TABLE: Table = Table { name: "0.3.12", rows: ROWS, unsent: &[] };

const ROWS: &[Row] = rpcs! {
    ExistKey(KEY, TENANT) -> Expected(&Bool);
    BatchExistKey(KEYS, TENANT) -> Seq(&Expected(&Bool));
    GetReplicaList(KEY, TENANT) -> Expected(&REPLICA_LIST_NOF);
    BatchGetReplicaList(KEYS, TENANT) -> Seq(&Expected(&REPLICA_LIST_NOF));
    GetReplicaListByRegex(PATTERN, TENANT) -> Expected(&Map(&Str, &Seq(&REPLICA_NOF)));
    PutStart(CLIENT, KEY, SLICE_LENGTH, CONFIG, TENANT) -> Expected(&Seq(&REPLICA_NOF));
    PutEnd(CLIENT, KEY, REPLICA_TYPE, TENANT) -> DONE;
    PutRevoke(CLIENT, KEY, REPLICA_TYPE, TENANT) -> DONE;
    BatchPutStart(CLIENT, KEYS, SLICE_LENGTHS, CONFIG, TENANT) -> Seq(&Expected(&Seq(&REPLICA_NOF)));
    BatchPutEnd(CLIENT, KEYS, REPLICA_TYPE, TENANT) -> DONE_EACH;
    BatchPutRevoke(CLIENT, KEYS, REPLICA_TYPE, TENANT) -> DONE_EACH;
    Remove(KEY, FORCE, TENANT) -> DONE;
    RemoveByRegex(PATTERN, FORCE, TENANT) -> Expected(&I64);
    RemoveAll(FORCE, TENANT) -> I64;
    MountSegment(("segment", SEGMENT), CLIENT) -> DONE;
    ReMountSegment(("segments", Seq(&SEGMENT)), CLIENT) -> DONE;
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
    UpsertStart(CLIENT, KEY, SLICE_LENGTH, CONFIG, TENANT) -> Expected(&Seq(&REPLICA_NOF));
    UpsertEnd(CLIENT, KEY, REPLICA_TYPE, TENANT) -> DONE;
    UpsertRevoke(CLIENT, KEY, REPLICA_TYPE, TENANT) -> DONE;
    BatchUpsertStart(CLIENT, KEYS, SLICE_LENGTHS, CONFIG, TENANT) -> Seq(&Expected(&Seq(&REPLICA_NOF)));
    BatchUpsertEnd(CLIENT, KEYS, TENANT) -> DONE_EACH;
    BatchRemove(KEYS, FORCE, TENANT) -> DONE_EACH;
    BatchUpsertRevoke(CLIENT, KEYS, TENANT) -> DONE_EACH;
    GracefulUnmountSegment(SEGMENT_ID, CLIENT, ("grace_period_ms", U64)) -> DONE;
    QuerySegmentStatus(SEGMENT_NAME) -> Expected(&I32);
    QuerySegmentStatusById(SEGMENT_ID) -> Expected(&I32);
    MountNoFSegment(("segment", NOF_SEGMENT), CLIENT) -> DONE;
    ReMountNoFSegment(("segments", Seq(&NOF_SEGMENT)), CLIENT) -> DONE;
    UnmountNoFSegment(SEGMENT_ID, CLIENT) -> DONE;
    GetAllNoFSegments() -> Expected(&Seq(&NOF_SEGMENT));
    GetNoFSegmentsByName(SEGMENT_NAME) -> Expected(&Seq(&NOF_OWNER));
    OffloadObjectHeartbeat(CLIENT, OFFLOADING) -> Expected(&Seq(&OFFLOAD_TASK));
    PollRemoveAll(CLIENT) -> Expected(&Bool);
    ReportSsdCapacity(CLIENT, ("ssd_total_capacity_bytes", I64)) -> DONE;
    NotifyOffloadSuccess(CLIENT, ("tasks", Seq(&OFFLOAD_TASK)), STORED_EACH) -> DONE;
    PromotionObjectHeartbeat(CLIENT) -> Expected(&Seq(&OFFLOAD_TASK));
    PromotionAllocStart(CLIENT, KEY, TENANT, ("size", U64), ("preferred_segments", Seq(&Str)))
        -> Expected(&PROMOTION_STARTED);
    NotifyPromotionSuccess(CLIENT, KEY, TENANT) -> DONE;
    NotifyPromotionFailure(CLIENT, KEY, TENANT) -> DONE;
    CopyStart(CLIENT, KEY, TENANT, SOURCE, TARGETS) -> Expected(&COPY_STARTED_NOF);
    CopyEnd(CLIENT, KEY, TENANT) -> DONE;
    CopyRevoke(CLIENT, KEY, TENANT) -> DONE;
    MoveStart(CLIENT, KEY, TENANT, SOURCE, TARGET) -> Expected(&MOVE_STARTED_NOF);
    MoveEnd(CLIENT, KEY, TENANT) -> DONE;
    MoveRevoke(CLIENT, KEY, TENANT) -> DONE;
    EvictDiskReplica(CLIENT, KEY, TENANT, REPLICA_TYPE) -> DONE;
    BatchEvictDiskReplica(CLIENT, KEYS, TENANT, REPLICA_TYPE) -> DONE_EACH;
    CreateCopyTask(KEY, TENANT, ("targets", Seq(&Str))) -> Expected(&UUID);
    CreateMoveTask(KEY, TENANT, ("source", Str), ("target", Str)) -> Expected(&UUID);
};
