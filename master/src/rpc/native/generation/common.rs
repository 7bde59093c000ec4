//! Descriptions that more than one generation uses.

use crate::rpc::native::types::{
    Member, Struct,
    Type::{self, Bool, Expected, I32, I64, Opt, Seq, Str, U64, Variant},
};

/// A struct with reflection.
macro_rules! describe {
    ($($(#[$doc:meta])* $const:ident = $name:literal { $($member:literal: $ty:expr),* $(,)? };)*) => {
        $($(#[$doc])* pub(super) const $const: $crate::rpc::native::types::Type =
            $crate::rpc::native::types::Type::Struct(&$crate::rpc::native::types::Struct {
                name: $name,
                members: &[$(($member, $ty)),*],
                plain: false,
            });)*
    };
}
pub(super) use describe;

/// The rows of a table: `Name(members) -> result;`.
macro_rules! rpcs {
    ($($method:ident($($member:expr),*) -> $result:expr;)*) => {
        &[$(Row { method: Method::$method, args: &[$($member),*], result: $result }),*]
    };
}
pub(super) use rpcs;

pub(super) const UUID: Type =
    Type::Struct(&Struct { name: "UUID", members: &[("first", U64), ("second", U64)], plain: true });

describe! {
    BUFFER = "AllocatedBuffer::Descriptor" {
        "size_": U64, "buffer_address_": U64, "protocol_": Str, "transport_endpoint_": Str,
    };
    MEMORY = "MemoryDescriptor" { "buffer_descriptor": BUFFER };
    NOF = "NoFDescriptor" { "buffer_descriptor": BUFFER };
    DISK = "DiskDescriptor" { "file_path": Str, "object_size": U64 };
    LOCAL_DISK = "LocalDiskDescriptor" { "client_id": UUID, "object_size": U64, "transport_endpoint": Str };
    /// With NoF but without DFS: 0.3.11 and 0.3.12.
    REPLICA_NOF = "Replica::Descriptor" {
        "id": U64, "descriptor_variant": Variant(&[MEMORY, NOF, DISK, LOCAL_DISK]), "status": I32,
    };
    /// Without the checksum: before 0.3.13.
    REPLICA_LIST_NOF = "GetReplicaListResponse" { "replicas": Seq(&REPLICA_NOF), "lease_ttl_ms": U64 };
    /// With replicas as above: 0.3.11 and 0.3.12.
    COPY_STARTED_NOF = "CopyStartResponse" { "source": REPLICA_NOF, "targets": Seq(&REPLICA_NOF) };
    /// The same.
    MOVE_STARTED_NOF = "MoveStartResponse" { "source": REPLICA_NOF, "target": Opt(&REPLICA_NOF) };
    /// Without a host: before 0.3.12.
    SEGMENT_HOSTLESS = "Segment" {
        "id": UUID, "name": Str, "base": U64, "size": U64, "te_endpoint": Str, "protocol": Str,
    };
    SEGMENT = "Segment" {
        "id": UUID, "name": Str, "base": U64, "size": U64, "te_endpoint": Str, "protocol": Str, "host_id": Str,
    };
    PING_RESPONSE = "PingResponse" { "view_version_id": I64, "client_status": I32 };
    STORAGE_CONFIG = "GetStorageConfigResponse" { "fsdir": Str, "enable_disk_eviction": Bool, "quota_bytes": U64 };
    QUERY_TASK = "QueryTaskResponse" {
        "id": UUID, "type": I32, "status": I32, "created_at_ms_epoch": I64, "last_updated_at_ms_epoch": I64,
        "assigned_client": UUID, "message": Str,
    };
    TASK_ASSIGNMENT = "TaskAssignment" {
        "id": UUID, "type": I32, "payload": Str, "created_at_ms_epoch": I64, "max_retry_attempts": Type::U32,
    };
    TASK_COMPLETE = "TaskCompleteRequest" { "id": UUID, "status": I32, "message": Str };
    NOF_SEGMENT = "NoFSegment" { "id": UUID, "name": Str, "base": U64, "size": U64, "te_endpoint": Str };
    NOF_OWNER = "NoFSegmentOwnerInfo" { "segment_id": UUID, "client_id": UUID };
    /// With its tenant: from 0.3.12 on.
    OFFLOAD_TASK = "OffloadTaskItem" { "tenant_id": Str, "key": Str, "size": I64 };
    STORED = "StorageObjectMetadata" {
        "bucket_id": I64, "offset": I64, "key_size": I64, "data_size": I64, "transport_endpoint": Str,
    };
    /// Ours (C3); no upstream release has it.
    HEALTH_CHECK = "HealthCheckResponse" { "ok": Bool, "shards_checked": U64, "shards_blocked": U64 };
    /// Ours (C3).
    HEARTBEAT_READY = "HeartbeatServiceReadyResponse" { "heartbeat_rpc_port": Type::U32 };
}

pub(super) const CLIENT: Member = ("client_id", UUID);
pub(super) const KEY: Member = ("key", Str);
pub(super) const KEYS: Member = ("keys", Seq(&Str));
pub(super) const TENANT: Member = ("tenant_id", Str);
pub(super) const PATTERN: Member = ("str", Str);
pub(super) const REPLICA_TYPE: Member = ("replica_type", I32);
pub(super) const FORCE: Member = ("force", Bool);
pub(super) const SLICE_LENGTH: Member = ("slice_length", U64);
pub(super) const SLICE_LENGTHS: Member = ("slice_lengths", Seq(&U64));
pub(super) const SEGMENT_ID: Member = ("segment_id", UUID);
pub(super) const SEGMENT_NAME: Member = ("segment_name", Str);

/// `tl::expected<void, ErrorCode>`.
pub(super) const DONE: Type = Expected(&Type::Void);
/// One of them for each key.
pub(super) const DONE_EACH: Type = Seq(&DONE);
pub(super) const SOURCE: Member = ("src_segment", Str);
pub(super) const TARGET: Member = ("tgt_segment", Str);
pub(super) const TARGETS: Member = ("tgt_segments", Seq(&Str));
pub(super) const OFFLOADING: Member = ("enable_offloading", Bool);
pub(super) const STORED_EACH: Member = ("metadatas", Seq(&STORED));
