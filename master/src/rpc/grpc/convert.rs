//! From messages to the core's terms and back. A bad field is INVALID_ARGUMENT naming it and what was expected.

use crate::{
    error::ErrorCode,
    rpc::native::field::Wishes,
    types::{
        DiskDescriptor, ReplicaRef, ReplicaStatus, ReplicaType, Replicas, ReplicasRef, ReplicateConfig,
        SegmentSpec, SoftPinAction, Uuid,
    },
};
use mooncake_proto::v1;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

pub(super) fn uuid(id: Option<v1::Uuid>, field: &str) -> Result<Uuid, Status> {
    let id = id.ok_or_else(|| Status::invalid_argument(format!("{field}: is missing, expected a Uuid")))?;
    Ok(Uuid { first: id.first, second: id.second })
}

pub(super) fn replica_type(number: Option<i32>) -> Result<ReplicaType, Status> {
    let number = number.unwrap_or(v1::ReplicaType::All as i32);
    ReplicaType::from_number(number)
        .ok_or_else(|| Status::invalid_argument(format!("replica_type: {number} is not a ReplicaType")))
}

/// `keys` is the number of keys in the call, which `group_ids` must match when it is not empty.
pub(super) fn config(
    config: Option<&v1::ReplicateConfig>,
    keys: usize,
) -> Result<ReplicateConfig<'_>, Status> {
    let Some(config) = config else { return Ok(ReplicateConfig::default()) };
    let soft_pin_action = match v1::SoftPinAction::try_from(config.soft_pin_action) {
        Ok(v1::SoftPinAction::Preserve) => SoftPinAction::Preserve,
        Ok(v1::SoftPinAction::Enable) => SoftPinAction::Enable,
        Ok(v1::SoftPinAction::Disable) => SoftPinAction::Disable,
        Err(_) => {
            let number = config.soft_pin_action;
            return Err(Status::invalid_argument(format!(
                "config.soft_pin_action: {number} is not a SoftPinAction"
            )));
        }
    };
    let data_type = u8::try_from(config.data_type).map_err(|_| {
        Status::invalid_argument(format!("config.data_type: {}, expected 0 to 255", config.data_type))
    })?;
    if !config.group_ids.is_empty() && config.group_ids.len() != keys {
        return Err(Status::invalid_argument(format!(
            "config.group_ids: {} entries, expected none or one for each of {keys} keys",
            config.group_ids.len()
        )));
    }
    if config.preferred_segments.len() > Wishes::LIMIT {
        return Err(Status::invalid_argument(format!(
            "config.preferred_segments: {} names, expected at most {}",
            config.preferred_segments.len(),
            Wishes::LIMIT
        )));
    }
    Ok(ReplicateConfig {
        replica_num: config.replica_num.unwrap_or(1),
        nof_replica_num: 0,
        dfs_replica_num: 0,
        soft_pin_action,
        soft_pin_ttl_ms: config.soft_pin_ttl_ms,
        with_hard_pin: config.with_hard_pin,
        preferred_segments: config.preferred_segments.iter().map(String::as_bytes).collect(),
        preferred_segment: config.preferred_segment.as_bytes(),
        prefer_alloc_in_same_node: config.prefer_alloc_in_same_node,
        data_type,
        host_id: config.host_id.as_bytes(),
        group_id: b"",
    })
}

/// The group of the key at `index`.
pub(super) fn group_id(config: Option<&v1::ReplicateConfig>, index: usize) -> &[u8] {
    config.and_then(|config| config.group_ids.get(index)).map_or(b"", String::as_bytes)
}

pub(super) fn segment(segment: Option<v1::Segment>, field: &str) -> Result<SegmentSpec, Status> {
    let segment = segment
        .ok_or_else(|| Status::invalid_argument(format!("{field}: is missing, expected a Segment")))?;
    let bytes = |text: String| text.into_bytes().into();
    Ok(SegmentSpec {
        id: uuid(segment.id, &format!("{field}.id"))?,
        name: bytes(segment.name),
        base: segment.base,
        size: segment.size,
        te_endpoint: bytes(segment.te_endpoint),
        protocol: bytes(segment.protocol),
        host_id: bytes(segment.host_id),
    })
}

/// Every replica of an object.
pub(super) fn replicas(replicas: &Replicas) -> Vec<v1::Replica> {
    let memory = replicas.memory.iter().map(|of| replica(&of.borrow()));
    memory.chain(replicas.disk.as_ref().map(disk_replica)).collect()
}

/// The same, as they stand in the store.
pub(super) fn replicas_ref(replicas: &ReplicasRef<'_>) -> Vec<v1::Replica> {
    replicas.memory.iter().map(replica).chain(replicas.disk.as_ref().map(disk_replica)).collect()
}

fn status(status: ReplicaStatus) -> i32 {
    let status = match status {
        ReplicaStatus::Processing => v1::ReplicaStatus::Processing,
        ReplicaStatus::Complete => v1::ReplicaStatus::Complete,
    };
    status as i32
}

fn disk_replica(disk: &DiskDescriptor) -> v1::Replica {
    v1::Replica {
        id: disk.id,
        status: status(disk.status),
        descriptor: Some(v1::replica::Descriptor::Disk(v1::DiskDescriptor {
            file_path: String::from_utf8_lossy(&disk.file_path).into_owned(),
            object_size: disk.size,
        })),
    }
}

fn replica(replica: &ReplicaRef<'_>) -> v1::Replica {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    v1::Replica {
        id: replica.id,
        status: status(replica.status),
        descriptor: Some(v1::replica::Descriptor::Memory(v1::MemoryDescriptor {
            size: replica.size,
            buffer_address: replica.address,
            protocol: text(&replica.segment.protocol),
            transport_endpoint: text(&replica.segment.te_endpoint),
        })),
    }
}

/// The number of a result's code, 0 for success.
pub(super) fn code<T>(result: &Result<T, ErrorCode>) -> i32 {
    result.as_ref().err().map_or(0, |code| code.number())
}

/// The refusal of a Ping on the main port; its details name the port that takes it (C2).
pub(super) fn routing_mismatch(port: u32) -> Status {
    let message = format!("HEARTBEAT_ROUTING_MISMATCH: heartbeats are served on port {port} only");
    let port = std::collections::HashMap::from([("heartbeat_rpc_port".to_owned(), port.to_string())]);
    let details = ErrorDetails::with_error_info("HEARTBEAT_ROUTING_MISMATCH", "mooncake.master.v1", port);
    Status::with_error_details(Code::FailedPrecondition, message, details)
}
