//! 0.3.9: without NoF and Upsert.

use super::{
    Method, Row, Table,
    common::{
        CLIENT, DISK, DONE, DONE_EACH, FORCE, KEY, KEYS, LOCAL_DISK, MEMORY, OFFLOADING, PATTERN,
        PING_RESPONSE, QUERY_TASK, REPLICA_TYPE, SEGMENT_HOSTLESS, SEGMENT_ID, SEGMENT_NAME, SLICE_LENGTH,
        SLICE_LENGTHS, SOURCE, STORAGE_CONFIG, STORED_EACH, TARGET, TARGETS, TASK_COMPLETE, UUID, describe,
        rpcs,
    },
};
use crate::rpc::native::types::{
    Member,
    Type::{Bool, Expected, I32, I64, Map, Opt, Seq, Str, U64, Variant},
};

describe! {
    REPLICA = "Replica::Descriptor" {
        "id": U64, "descriptor_variant": Variant(&[MEMORY, DISK, LOCAL_DISK]), "status": I32,
    };
    REPLICA_LIST = "GetReplicaListResponse" { "replicas": Seq(&REPLICA), "lease_ttl_ms": U64 };
    TASK_ASSIGNMENT = "TaskAssignment" { "id": UUID, "type": I32, "payload": Str, "created_at_ms_epoch": I64 };
    COPY_STARTED = "CopyStartResponse" { "source": REPLICA, "targets": Seq(&REPLICA) };
    MOVE_STARTED = "MoveStartResponse" { "source": REPLICA, "target": Opt(&REPLICA) };
    REPLICATE_CONFIG = "ReplicateConfig" {
        "replica_num": U64, "with_soft_pin": Bool, "preferred_segments": Seq(&Str), "preferred_segment": Str,
        "prefer_alloc_in_same_node": Bool,
    };
}

const CONFIG: Member = ("config", REPLICATE_CONFIG);

pub(super) const TABLE: Table = Table { name: "0.3.9", rows: ROWS, unsent: &[Method::FetchTasks] };

const ROWS: &[Row] = rpcs! {
    ExistKey(KEY) -> Expected(&Bool);
    BatchExistKey(KEYS) -> Seq(&Expected(&Bool));
    GetReplicaList(KEY) -> Expected(&REPLICA_LIST);
    BatchGetReplicaList(KEYS) -> Seq(&Expected(&REPLICA_LIST));
    GetReplicaListByRegex(PATTERN) -> Expected(&Map(&Str, &Seq(&REPLICA)));
    PutStart(CLIENT, KEY, SLICE_LENGTH, CONFIG) -> Expected(&Seq(&REPLICA));
    PutEnd(CLIENT, KEY, REPLICA_TYPE) -> DONE;
    PutRevoke(CLIENT, KEY, REPLICA_TYPE) -> DONE;
    BatchPutStart(CLIENT, KEYS, SLICE_LENGTHS, CONFIG) -> Seq(&Expected(&Seq(&REPLICA)));
    BatchPutEnd(CLIENT, KEYS) -> DONE_EACH;
    BatchPutRevoke(CLIENT, KEYS) -> DONE_EACH;
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
    OffloadObjectHeartbeat(CLIENT, OFFLOADING) -> Expected(&Map(&Str, &I64));
    NotifyOffloadSuccess(CLIENT, KEYS, STORED_EACH) -> DONE;
    CopyStart(CLIENT, KEY, SOURCE, TARGETS) -> Expected(&COPY_STARTED);
    CopyEnd(CLIENT, KEY) -> DONE;
    CopyRevoke(CLIENT, KEY) -> DONE;
    MoveStart(CLIENT, KEY, SOURCE, TARGET) -> Expected(&MOVE_STARTED);
    MoveEnd(CLIENT, KEY) -> DONE;
    MoveRevoke(CLIENT, KEY) -> DONE;
    CreateCopyTask(KEY, ("targets", Seq(&Str))) -> Expected(&UUID);
    CreateMoveTask(KEY, ("source", Str), ("target", Str)) -> Expected(&UUID);
};
