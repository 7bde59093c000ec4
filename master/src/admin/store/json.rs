//! The JSON of the store's pages, member for member as upstream writes it.

use crate::{
    core::SegmentInfo,
    error::ErrorCode,
    types::{LivenessState, ReplicaDescriptor, ReplicaList, SegmentStatus},
};
use axum::http::StatusCode;
use serde_json::{Value, json};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Where a replica in memory lies.
fn buffer(replica: &ReplicaDescriptor) -> Value {
    json!({
        "size_": replica.size,
        "buffer_address_": replica.address,
        "protocol_": text(&replica.segment.protocol),
        "transport_endpoint_": text(&replica.segment.te_endpoint),
    })
}

/// The replicas in memory, for `/query_key`.
pub(super) fn buffers(list: &ReplicaList) -> Value {
    list.replicas.memory.iter().map(buffer).collect()
}

/// One key of `/batch_query_keys`.
pub(super) fn of_key(result: &Result<ReplicaList, ErrorCode>) -> Value {
    let some = |values: Vec<Value>| if values.is_empty() { Value::Null } else { Value::Array(values) };
    let (memory, disk) = match result {
        Ok(list) => (&*list.replicas.memory, list.replicas.disk.as_ref()),
        Err(_) => (&[][..], None),
    };
    let file = |disk: &crate::types::DiskDescriptor| json!({"file_path": text(&disk.file_path), "object_size": disk.size});
    json!({
        "ok": result.is_ok(),
        "error": result.as_ref().err().map(|code| code.name()),
        "values": some(memory.iter().map(buffer).collect()),
        "disk_values": some(disk.map(file).into_iter().collect()),
        "local_disk_values": null,
        "nof_values": null,
    })
}

/// A refusal with upstream's status for its code.
pub(super) fn refusal(code: ErrorCode) -> (StatusCode, Value) {
    let status = match code {
        ErrorCode::InvalidParams => StatusCode::BAD_REQUEST,
        ErrorCode::JobNotFound
        | ErrorCode::SegmentNotFound
        | ErrorCode::ObjectNotFound
        | ErrorCode::TenantNotRegistered => StatusCode::NOT_FOUND,
        ErrorCode::UnavailableInCurrentStatus
        | ErrorCode::UnavailableInCurrentMode
        | ErrorCode::TenantNotEmpty => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, json!({"success": false, "error_code": code.number(), "error_message": code.name()}))
}

/// The name of a segment's status.
pub(super) fn status_name(status: SegmentStatus) -> &'static str {
    match status {
        SegmentStatus::Ok => "OK",
        SegmentStatus::GracefullyUnmounting => "GRACEFULLY_UNMOUNTING",
        SegmentStatus::Unmounting => "UNMOUNTING",
    }
}

/// One segment of `/get_segments_detail`; `client_state` is this master's own (B13).
pub(super) fn of_segment(segment: &SegmentInfo) -> Value {
    let spec = &segment.spec;
    let share = segment.allocated_bytes as f64 * 100.0 / spec.size as f64;
    json!({
        "segment_name": text(&spec.name),
        "segment_id": spec.id.to_string(),
        "client_id": segment.client.to_string(),
        "client_state": match segment.client_state {
            LivenessState::Active => "ACTIVE",
            LivenessState::Suspected => "SUSPECTED",
            LivenessState::Offline => "OFFLINE",
        },
        "base_address": format!("{:#x}", spec.base),
        "size_bytes": spec.size,
        "size_human": format!("{} GiB", six_digits(spec.size as f64 / f64::from(1 << 30))),
        "te_endpoint": text(&spec.te_endpoint),
        "protocol": text(&spec.protocol),
        "status": status_name(segment.status),
        "allocator_used_bytes": segment.allocated_bytes,
        "allocator_capacity_bytes": spec.size,
        "allocator_usage_percent": share,
    })
}

/// A number as C++ streams write it: six significant digits, without zeros at the end.
fn six_digits(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let exponent = number.abs().log10().floor() as i32;
    let decimals = usize::try_from(5 - exponent).unwrap_or(0).min(12);
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::six_digits;

    #[test]
    fn sizes_are_written_as_cpp_streams_write_them() {
        for (number, text) in [
            (0.0625, "0.0625"),
            (4.0, "4"),
            (1.5, "1.5"),
            (1.234_567_8, "1.23457"),
            (0.015_625, "0.015625"),
            (2048.0, "2048"),
        ] {
            assert_eq!(six_digits(number), text);
        }
    }
}
