//! 0.3.13: every function of the release, and the three of ours that all generations have.

use super::{
    Method, Row, Table,
    common::{
        CLIENT, DISK, DONE, DONE_EACH, FORCE, KEY, KEYS, LOCAL_DISK, MEMORY, NOF, NOF_OWNER, NOF_SEGMENT,
        OFFLOAD_TASK, OFFLOADING, PATTERN, PING_RESPONSE, QUERY_TASK, REPLICA_TYPE, SEGMENT, SEGMENT_ID,
        SEGMENT_NAME, SLICE_LENGTH, SLICE_LENGTHS, SOURCE, STORAGE_CONFIG, STORED_EACH, TARGET, TARGETS,
        TASK_ASSIGNMENT, TASK_COMPLETE, TENANT, UUID, describe, rpcs,
    },
};
use crate::rpc::native::types::{
    Member,
    Type::{Bool, Expected, I32, I64, Map, Opt, Seq, Str, U8, U64, Variant},
};

describe! {
    DFS = "DistributedFSDescriptor" {
        "file_path": Str, "offset": U64, "object_size": U64, "aligned_size": U64, "shard_idx": I32,
    };
    REPLICA = "Replica::Descriptor" {
        "id": U64, "descriptor_variant": Variant(&[MEMORY, NOF, DISK, LOCAL_DISK, DFS]), "status": I32,
    };
    REPLICA_LIST = "GetReplicaListResponse" {
        "replicas": Seq(&REPLICA), "lease_ttl_ms": U64, "object_checksum": Opt(&U64),
    };
    REPLICATE_CONFIG = "ReplicateConfig" {
        "replica_num": U64, "nof_replica_num": U64, "dfs_replica_num": U64, "soft_pin_action": U8,
        "soft_pin_ttl_ms": Opt(&U64), "with_hard_pin": Bool, "preferred_segments": Seq(&Str),
        "preferred_segment": Str, "preferred_nof_segments": Seq(&Str), "prefer_alloc_in_same_node": Bool,
        "data_type": U8, "host_id": Str, "group_ids": Opt(&Seq(&Str)),
    };
    OBJECT_META = "ObjectMeta" { "key": Str, "object_checksum": Opt(&U64) };
    COPY_STARTED = "CopyStartResponse" { "source": REPLICA, "targets": Seq(&REPLICA) };
    MOVE_STARTED = "MoveStartResponse" { "source": REPLICA, "target": Opt(&REPLICA) };
    PROMOTION_STARTED = "PromotionAllocStartResponse" { "memory_descriptor": REPLICA };
}

const CONFIG: Member = ("config", REPLICATE_CONFIG);
const META: Member = ("object_meta", OBJECT_META);
const METAS: Member = ("object_metas", Seq(&OBJECT_META));
const LEASE: Member = ("lease_id", UUID);
const EPOCH: Member = ("version_epoch", U64);

pub(super) const TABLE: Table = Table { name: "0.3.13", rows: ROWS, unsent: &[] };

const ROWS: &[Row] = rpcs! {
    ExistKey(KEY, TENANT) -> Expected(&Bool);
    BatchExistKey(KEYS, TENANT) -> Seq(&Expected(&Bool));
    BatchQueryIp(("client_ids", Seq(&UUID))) -> Expected(&Map(&UUID, &Seq(&Str)));
    BatchReplicaClear(KEYS, CLIENT, SEGMENT_NAME) -> Expected(&Seq(&Str));
    GetReplicaListByRegex(PATTERN, TENANT) -> Expected(&Map(&Str, &Seq(&REPLICA)));
    GetReplicaList(KEY, TENANT) -> Expected(&REPLICA_LIST);
    BatchGetReplicaList(KEYS, TENANT) -> Seq(&Expected(&REPLICA_LIST));
    PutStart(CLIENT, KEY, SLICE_LENGTH, CONFIG, TENANT) -> Expected(&Seq(&REPLICA));
    PutEnd(CLIENT, META, REPLICA_TYPE, TENANT) -> DONE;
    PutRevoke(CLIENT, KEY, REPLICA_TYPE, TENANT) -> DONE;
    BatchPutStart(CLIENT, KEYS, SLICE_LENGTHS, CONFIG, TENANT) -> Seq(&Expected(&Seq(&REPLICA)));
    BatchPutEnd(CLIENT, METAS, REPLICA_TYPE, TENANT) -> DONE_EACH;
    BatchPutRevoke(CLIENT, KEYS, REPLICA_TYPE, TENANT) -> DONE_EACH;
    UpsertStart(CLIENT, KEY, SLICE_LENGTH, CONFIG, TENANT) -> Expected(&Seq(&REPLICA));
    UpsertEnd(CLIENT, META, REPLICA_TYPE, TENANT) -> DONE;
    UpsertRevoke(CLIENT, KEY, REPLICA_TYPE, TENANT) -> DONE;
    BatchUpsertStart(CLIENT, KEYS, SLICE_LENGTHS, CONFIG, TENANT) -> Seq(&Expected(&Seq(&REPLICA)));
    BatchUpsertEnd(CLIENT, METAS, TENANT) -> DONE_EACH;
    BatchUpsertRevoke(CLIENT, KEYS, TENANT) -> DONE_EACH;
    Remove(KEY, FORCE, TENANT) -> DONE;
    BatchRemove(KEYS, FORCE, TENANT) -> DONE_EACH;
    RemoveByRegex(PATTERN, FORCE, TENANT) -> Expected(&I64);
    RemoveAll(FORCE, TENANT) -> I64;
    MountSegment(("segment", SEGMENT), CLIENT) -> DONE;
    ReMountSegment(("segments", Seq(&SEGMENT)), CLIENT) -> DONE;
    UnmountSegment(SEGMENT_ID, CLIENT) -> DONE;
    GracefulUnmountSegment(SEGMENT_ID, CLIENT, ("grace_period_ms", U64)) -> DONE;
    QuerySegmentStatus(SEGMENT_NAME) -> Expected(&I32);
    QuerySegmentStatusById(SEGMENT_ID) -> Expected(&I32);
    MountNoFSegment(("segment", NOF_SEGMENT), CLIENT) -> DONE;
    ReMountNoFSegment(("segments", Seq(&NOF_SEGMENT)), CLIENT) -> DONE;
    UnmountNoFSegment(SEGMENT_ID, CLIENT) -> DONE;
    GetAllNoFSegments() -> Expected(&Seq(&NOF_SEGMENT));
    GetNoFSegmentsByName(SEGMENT_NAME) -> Expected(&Seq(&NOF_OWNER));
    Ping(CLIENT) -> Expected(&PING_RESPONSE);
    GetFsdir() -> Expected(&Str);
    GetStorageConfig() -> Expected(&STORAGE_CONFIG);
    ServiceReady() -> Expected(&Str);
    MountLocalDiskSegment(CLIENT, OFFLOADING) -> DONE;
    UnmountLocalDiskSegment(CLIENT) -> DONE;
    OffloadObjectHeartbeat(CLIENT, OFFLOADING) -> Expected(&Seq(&OFFLOAD_TASK));
    PollRemoveAll(CLIENT) -> Expected(&Bool);
    ReportSsdCapacity(CLIENT, ("ssd_total_capacity_bytes", I64)) -> DONE;
    NotifyOffloadSuccess(CLIENT, ("tasks", Seq(&OFFLOAD_TASK)), STORED_EACH) -> DONE;
    PromotionObjectHeartbeat(CLIENT) -> Expected(&Seq(&OFFLOAD_TASK));
    PromotionAllocStart(CLIENT, KEY, TENANT, ("size", U64), ("preferred_segments", Seq(&Str)))
        -> Expected(&PROMOTION_STARTED);
    NotifyPromotionSuccess(CLIENT, KEY, TENANT) -> DONE;
    NotifyPromotionFailure(CLIENT, KEY, TENANT) -> DONE;
    CopyStart(CLIENT, KEY, TENANT, SOURCE, TARGETS) -> Expected(&COPY_STARTED);
    CopyEnd(CLIENT, KEY, TENANT) -> DONE;
    CopyRevoke(CLIENT, KEY, TENANT) -> DONE;
    DynamicReplicaCopyStart(CLIENT, KEY, TENANT, SOURCE, TARGETS, LEASE, EPOCH) -> Expected(&COPY_STARTED);
    DynamicReplicaCopyEnd(CLIENT, KEY, TENANT, LEASE, EPOCH) -> DONE;
    DynamicReplicaCopyRevoke(CLIENT, KEY, TENANT, LEASE, EPOCH) -> DONE;
    MoveStart(CLIENT, KEY, TENANT, SOURCE, TARGET) -> Expected(&MOVE_STARTED);
    MoveEnd(CLIENT, KEY, TENANT) -> DONE;
    MoveRevoke(CLIENT, KEY, TENANT) -> DONE;
    EvictDiskReplica(CLIENT, KEY, TENANT, REPLICA_TYPE) -> DONE;
    BatchEvictDiskReplica(CLIENT, KEYS, TENANT, REPLICA_TYPE) -> DONE_EACH;
    CreateCopyTask(KEY, TENANT, ("targets", Seq(&Str))) -> Expected(&UUID);
    CreateMoveTask(KEY, TENANT, ("source", Str), ("target", Str)) -> Expected(&UUID);
    QueryTask(("task_id", UUID)) -> Expected(&QUERY_TASK);
    FetchTasks(CLIENT, ("batch_size", U64)) -> Expected(&Seq(&TASK_ASSIGNMENT));
    MarkTaskToComplete(CLIENT, ("request", TASK_COMPLETE)) -> DONE;
};
