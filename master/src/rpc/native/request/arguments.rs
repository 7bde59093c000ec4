//! Arguments by the names that tables have for them.

use crate::{
    rpc::native::{
        body::{Parsed, Reader},
        field::{Field, Keys, Kind, List, Step, Tenant, Wishes, wire_structs},
        types::{Member, Type},
    },
    types::{ClientId, PutStart, ReplicateConfig, SegmentId, SegmentSpec, SoftPinAction, Uuid},
};
use std::sync::Arc;

wire_structs! {
    /// One key.
    OneKey<'a> {
        /// Any bytes.
        key: &'a [u8] = "key",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// Several keys.
    ManyKeys<'a> {
        /// Any bytes each.
        keys: Keys<'a> = "keys",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// All keys that match.
    Pattern<'a> {
        /// A regular expression in ECMAScript's syntax.
        pattern: &'a [u8] = "str",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// How an object is to be placed.
    Config<'a> {
        /// Memory replicas.
        replica_num: u64 = "replica_num",
        /// NoF replicas.
        nof_replica_num: u64 = "nof_replica_num",
        /// DFS replicas.
        dfs_replica_num: u64 = "dfs_replica_num",
        /// From 0.3.13 on.
        soft_pin_action: SoftPinAction = "soft_pin_action",
        /// Before 0.3.13.
        with_soft_pin: bool = "with_soft_pin",
        /// Milliseconds.
        soft_pin_ttl_ms: Option<u64> = "soft_pin_ttl_ms",
        /// Never evict.
        with_hard_pin: bool = "with_hard_pin",
        /// Tried first, in this order.
        preferred_segments: Wishes<'a> = "preferred_segments",
        /// The same, deprecated.
        preferred_segment: &'a [u8] = "preferred_segment",
        /// On the writer's host, if possible.
        prefer_alloc_in_same_node: bool = "prefer_alloc_in_same_node",
        /// Passed through, any number.
        data_type: u8 = "data_type",
        /// The writer's host.
        host_id: &'a [u8] = "host_id",
        /// One for each key.
        group_ids: Option<Keys<'a>> = "group_ids",
    }
    /// PutStart, UpsertStart.
    Start<'a> {
        /// The writer.
        client: ClientId = "client_id",
        /// Any bytes.
        key: &'a [u8] = "key",
        /// Bytes of the value.
        slice_length: u64 = "slice_length",
        /// Placement.
        config: Config<'a> = "config",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// BatchPutStart, BatchUpsertStart.
    BatchStart<'a> {
        /// The writer.
        client: ClientId = "client_id",
        /// Any bytes each.
        keys: Keys<'a> = "keys",
        /// Bytes of each value; the count may differ from that of the keys, which is for the caller to refuse.
        slice_lengths: List<'a, u64> = "slice_lengths",
        /// Placement of all.
        config: Config<'a> = "config",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// What is known of an object once it is written.
    ObjectMeta<'a> {
        /// Any bytes.
        key: &'a [u8] = "key",
        /// From 0.3.13 on, if the writer computes one.
        checksum: Option<u64> = "object_checksum",
    }
    /// PutEnd, UpsertEnd.
    End<'a> {
        /// The writer.
        client: ClientId = "client_id",
        /// Key and checksum.
        object: ObjectMeta<'a> = "object_meta" | "key",
        /// Which replicas.
        kind: Kind = "replica_type",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// BatchPutEnd, BatchUpsertEnd.
    BatchEnd<'a> {
        /// The writer.
        client: ClientId = "client_id",
        /// Key and checksum of each.
        objects: List<'a, ObjectMeta<'a>> = "object_metas" | "keys",
        /// Which replicas.
        kind: Kind = "replica_type",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// A client's own replicas of a key: PutRevoke, UpsertRevoke, EvictDiskReplica.
    OwnReplicas<'a> {
        /// Who asks.
        client: ClientId = "client_id",
        /// Any bytes.
        key: &'a [u8] = "key",
        /// Which replicas.
        kind: Kind = "replica_type",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// The same for several keys.
    ManyOwnReplicas<'a> {
        /// Who asks.
        client: ClientId = "client_id",
        /// Any bytes each.
        keys: Keys<'a> = "keys",
        /// Which replicas.
        kind: Kind = "replica_type",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// Remove.
    Remove<'a> {
        /// Any bytes.
        key: &'a [u8] = "key",
        /// Also while it has a read lease.
        force: bool = "force",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// BatchRemove.
    BatchRemove<'a> {
        /// Any bytes each.
        keys: Keys<'a> = "keys",
        /// Also while they have a read lease.
        force: bool = "force",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// RemoveByRegex.
    RemoveByRegex<'a> {
        /// A regular expression in ECMAScript's syntax.
        pattern: &'a [u8] = "str",
        /// Also while they have a read lease.
        force: bool = "force",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// RemoveAll.
    RemoveAll<'a> {
        /// Also while they have a read lease.
        force: bool = "force",
        /// Whose; empty for everybody's.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// BatchReplicaClear.
    ReplicaClear<'a> {
        /// Any bytes each.
        keys: Keys<'a> = "keys",
        /// Their writer.
        client: ClientId = "client_id",
        /// Only the replicas there; empty for all.
        segment_name: &'a [u8] = "segment_name",
    }
    /// A range of memory that a client offers.
    Segment<'a> {
        /// Chosen by the client.
        id: SegmentId = "id",
        /// Of its transfer engine.
        name: &'a [u8] = "name",
        /// First address.
        base: u64 = "base",
        /// Bytes.
        size: u64 = "size",
        /// Where its memory is reached.
        te_endpoint: &'a [u8] = "te_endpoint",
        /// How.
        protocol: &'a [u8] = "protocol",
        /// From 0.3.12 on.
        host_id: &'a [u8] = "host_id",
    }
    /// MountSegment.
    Mount<'a> {
        /// What.
        segment: Segment<'a> = "segment",
        /// Whose.
        client: ClientId = "client_id",
    }
    /// ReMountSegment.
    ReMount<'a> {
        /// All that the client has.
        segments: List<'a, Segment<'a>> = "segments",
        /// Whose.
        client: ClientId = "client_id",
    }
    /// UnmountSegment.
    Unmount {
        /// What.
        segment: SegmentId = "segment_id",
        /// Whose.
        client: ClientId = "client_id",
    }
    /// GracefulUnmountSegment.
    GracefulUnmount {
        /// What.
        segment: SegmentId = "segment_id",
        /// Whose.
        client: ClientId = "client_id",
        /// Milliseconds.
        grace_period_ms: u64 = "grace_period_ms",
    }
    /// QuerySegmentStatus.
    SegmentName<'a> {
        /// Of its transfer engine.
        name: &'a [u8] = "segment_name",
    }
    /// QuerySegmentStatusById.
    SegmentById {
        /// Chosen by its client.
        segment: SegmentId = "segment_id",
    }
    /// Calls with nothing but the client in them, Ping above all.
    OneClient {
        /// Who.
        client: ClientId = "client_id",
    }
    /// BatchQueryIp.
    ManyClients<'a> {
        /// Who.
        clients: List<'a, Uuid> = "client_ids",
    }
    /// FetchTasks.
    FetchTasks {
        /// Who.
        client: ClientId = "client_id",
        /// The most.
        batch_size: u64 = "batch_size",
    }
    /// MountLocalDiskSegment, OffloadObjectHeartbeat.
    Offloading {
        /// Who.
        client: ClientId = "client_id",
        /// Whether it takes part.
        enable: bool = "enable_offloading",
    }
    /// ReportSsdCapacity.
    SsdCapacity {
        /// Who.
        client: ClientId = "client_id",
        /// Bytes, all in all.
        bytes: i64 = "ssd_total_capacity_bytes",
    }
    /// An object on its way to a disk.
    OffloadTask<'a> {
        /// Any bytes; before 0.3.12 there is nothing else.
        key: &'a [u8] = "key",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
        /// Bytes.
        size: i64 = "size",
    }
    /// Where it lies there.
    Stored<'a> {
        /// Which file.
        bucket_id: i64 = "bucket_id",
        /// Where in it.
        offset: i64 = "offset",
        /// Bytes of the key.
        key_size: i64 = "key_size",
        /// Bytes of the value.
        data_size: i64 = "data_size",
        /// Where it is reached.
        transport_endpoint: &'a [u8] = "transport_endpoint",
    }
    /// NotifyOffloadSuccess.
    OffloadSuccess<'a> {
        /// Who.
        client: ClientId = "client_id",
        /// What.
        tasks: List<'a, OffloadTask<'a>> = "tasks" | "keys",
        /// Where, one for each task; a difference is for the caller to refuse.
        stored: List<'a, Stored<'a>> = "metadatas",
    }
    /// QueryTask.
    TaskById {
        /// Which.
        task: Uuid = "task_id",
    }
    /// CreateCopyTask.
    CreateCopy<'a> {
        /// Any bytes.
        key: &'a [u8] = "key",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
        /// Segment names.
        targets: Keys<'a> = "targets",
    }
    /// CreateMoveTask.
    CreateMove<'a> {
        /// Any bytes.
        key: &'a [u8] = "key",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
        /// A segment name.
        source: &'a [u8] = "source",
        /// A segment name.
        target: &'a [u8] = "target",
    }
    /// Ends of a copy or a move.
    ClientKey<'a> {
        /// Who.
        client: ClientId = "client_id",
        /// Any bytes.
        key: &'a [u8] = "key",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
    }
    /// CopyStart.
    CopyStart<'a> {
        /// Who.
        client: ClientId = "client_id",
        /// Any bytes.
        key: &'a [u8] = "key",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
        /// A segment name.
        source: &'a [u8] = "src_segment",
        /// Segment names.
        targets: Keys<'a> = "tgt_segments",
    }
    /// MoveStart.
    MoveStart<'a> {
        /// Who.
        client: ClientId = "client_id",
        /// Any bytes.
        key: &'a [u8] = "key",
        /// Whose.
        tenant: Tenant<'a> = "tenant_id",
        /// A segment name.
        source: &'a [u8] = "src_segment",
        /// A segment name.
        target: &'a [u8] = "tgt_segment",
    }
    /// How a task ended.
    TaskEnd<'a> {
        /// Which.
        id: Uuid = "id",
        /// 2 failed, 3 success; others are for the caller to refuse.
        status: i32 = "status",
        /// For people.
        message: &'a [u8] = "message",
    }
    /// MarkTaskToComplete.
    MarkTask<'a> {
        /// Who.
        client: ClientId = "client_id",
        /// What became of it.
        end: TaskEnd<'a> = "request",
    }
    /// Whatever the body of a call without arguments holds is ignored.
    Nothing {
        /// Never set.
        nothing: () = "",
    }
}

impl<'a> Start<'a> {
    /// Placement in the core's terms. More or fewer than one group is for the caller to refuse.
    pub fn replicate_config(&self) -> ReplicateConfig<'a> {
        let group = self.config.group_ids.and_then(|groups| groups.iter().next());
        ReplicateConfig { group_id: group.unwrap_or_default(), ..self.config.to_core() }
    }

    /// In the core's terms.
    pub fn to_core<'b>(&self, config: &'b ReplicateConfig<'b>) -> PutStart<'b>
    where
        'a: 'b,
    {
        PutStart { client: self.client, key: self.key, slice_length: self.slice_length, config }
    }
}

impl<'a> Config<'a> {
    /// In the core's terms, without a group.
    pub fn to_core(&self) -> ReplicateConfig<'a> {
        ReplicateConfig {
            replica_num: self.replica_num,
            nof_replica_num: self.nof_replica_num,
            dfs_replica_num: self.dfs_replica_num,
            soft_pin_action: if self.with_soft_pin { SoftPinAction::Enable } else { self.soft_pin_action },
            soft_pin_ttl_ms: self.soft_pin_ttl_ms,
            with_hard_pin: self.with_hard_pin,
            preferred_segments: self.preferred_segments.0.iter().collect(),
            preferred_segment: self.preferred_segment,
            prefer_alloc_in_same_node: self.prefer_alloc_in_same_node,
            data_type: self.data_type,
            host_id: self.host_id,
            group_id: b"",
        }
    }
}

impl Segment<'_> {
    /// In the core's terms; copies.
    pub fn to_core(&self) -> SegmentSpec {
        SegmentSpec {
            id: self.id,
            name: Arc::from(self.name),
            base: self.base,
            size: self.size,
            te_endpoint: Arc::from(self.te_endpoint),
            protocol: Arc::from(self.protocol),
            host_id: Arc::from(self.host_id),
        }
    }
}
