//! `/query_key`, `/get_all_keys`, segments and the like (facts §9.2). Descriptors of Suspected clients are hidden, what asks
//! for a state shows them with it (B13). No page grants a read lease.

use super::{
    Look, LookError,
    json::{buffers, of_key, of_segment, refusal, status_name},
};
use crate::{
    admin::{
        AdminState,
        query::{percent_decoded, raw},
        routes::Shared,
    },
    error::ErrorCode,
    types::{ReplicaList, SegmentStatus, WalkCursor},
};
use axum::{
    Json, Router,
    body::Body,
    extract::{RawQuery, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Bytes of `/get_all_keys` at the most: a page must not cost the master its memory.
const MAX_KEY_BYTES: usize = 256 << 20;
/// Keys of one `/batch_query_keys` at the most.
const MAX_KEYS: usize = 10_000;
/// Upstream's content type of plain pages.
const TEXT: &str = "text/plain; version=0.0.4";

pub(crate) fn router() -> Router<Arc<AdminState>> {
    Router::new()
        .route("/query_key", get(query_key))
        .route("/batch_query_keys", get(batch_query_keys))
        .route("/get_all_keys", get(get_all_keys))
        .route("/get_all_segments", get(get_all_segments))
        .route("/get_segments_detail", get(get_segments_detail))
        .route("/query_segment", get(query_segment))
        .route("/kv_events/status", get(kv_events_status))
        .route("/api/v1/segments/status", get(segment_status))
        .route("/api/v1/remove_all", post(remove_all))
        .route("/api/v1/drain_jobs", post(not_in_this_mode))
        .route("/api/v1/drain_jobs/query", get(no_such_job))
        .route("/api/v1/drain_jobs/cancel", post(no_such_job))
        .route("/api/v1/tenant_quotas", get(not_in_this_mode).put(not_in_this_mode).delete(not_in_this_mode))
}

impl IntoResponse for LookError {
    fn into_response(self) -> Response {
        let code = match self {
            LookError::NotServing => ErrorCode::UnavailableInCurrentMode,
            _ => ErrorCode::UnavailableInCurrentStatus,
        };
        let body = json!({"success": false, "error_code": code.number(), "error_message": self.to_string()});
        (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
    }
}

fn refused(code: ErrorCode) -> Response {
    let (status, body) = refusal(code);
    (status, Json(body)).into_response()
}

fn bad_request(message: &str) -> Response {
    let code = ErrorCode::InvalidParams.number();
    let body = json!({"success": false, "error_code": code, "error_message": message});
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

fn plain(text: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, TEXT)], text.into()).into_response()
}

/// What can be read of a key. It is looked for as it is written, as upstream does, and if there is no such key, decoded: one
/// with a blank in it cannot be asked for otherwise.
fn replicas_of(look: &Look<'_>, key: &str) -> Result<Result<ReplicaList, ErrorCode>, LookError> {
    let raw = look.call(|| look.core.peek_replica_list(key.as_bytes()))?;
    if raw.is_err() && key.contains('%') {
        let decoded = percent_decoded(key);
        return look.call(|| look.core.peek_replica_list(&decoded));
    }
    Ok(raw)
}

async fn query_key(State(state): Shared, RawQuery(query): RawQuery) -> Response {
    let key = raw(query.as_deref(), "key").unwrap_or_default().to_owned();
    match state.store.look(move |look| replicas_of(look, &key)).await {
        Ok(Ok(list)) => Json(json!({"success": true, "data": buffers(&list)})).into_response(),
        // Upstream says 404 whatever the reason.
        Ok(Err(code)) => (StatusCode::NOT_FOUND, Json(refusal(code).1)).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn batch_query_keys(State(state): Shared, RawQuery(query): RawQuery) -> Response {
    let keys: Vec<String> = match raw(query.as_deref(), "keys") {
        None | Some("") => Vec::new(),
        // Like a C++ line reader: nothing follows the last comma.
        Some(keys) => keys.strip_suffix(',').unwrap_or(keys).split(',').map(str::to_owned).collect(),
    };
    let bad = |error: &str| {
        (StatusCode::BAD_REQUEST, Json(json!({"success": false, "error": error}))).into_response()
    };
    if keys.is_empty() {
        return bad("No keys provided. Use ?keys=key1,key2,...");
    }
    if keys.len() > MAX_KEYS {
        return bad(&format!("{} keys, expected at most {MAX_KEYS}", keys.len()));
    }
    let found = state.store.look(move |look| {
        let mut data = Map::new();
        for key in keys {
            let result = replicas_of(look, &key)?;
            data.insert(key, of_key(&result));
        }
        Ok(data)
    });
    match found.await {
        Ok(data) => Json(json!({"success": true, "data": data})).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn get_all_keys(State(state): Shared) -> Response {
    let found = state.store.look(|look| {
        let (mut cursor, mut text) = (WalkCursor::default(), Vec::new());
        look.walk(|| look.core.list_keys(&mut cursor, MAX_KEY_BYTES, &mut text))?;
        if text.len() > MAX_KEY_BYTES { Err(LookError::TooLarge) } else { Ok(text) }
    });
    match found.await {
        Ok(text) => plain(text),
        Err(error) => error.into_response(),
    }
}

/// Bytes in use and bytes in all, by the names of the segments that take allocations; upstream shows no others here.
fn by_name(look: &Look<'_>) -> BTreeMap<Arc<[u8]>, (u64, u64)> {
    let mut names = BTreeMap::<Arc<[u8]>, (u64, u64)>::new();
    for segment in look.core.segment_infos() {
        if segment.status == SegmentStatus::Ok {
            let (used, capacity) = names.entry(segment.spec.name.clone()).or_default();
            *used += segment.allocated_bytes;
            *capacity += segment.spec.size;
        }
    }
    names
}

async fn get_all_segments(State(state): Shared) -> Response {
    match state.store.look(|look| Ok(by_name(look))).await {
        Ok(names) => {
            plain(names.into_keys().flat_map(|name| [&name[..], &b"\n"[..]].concat()).collect::<Vec<u8>>())
        }
        Err(error) => error.into_response(),
    }
}

async fn get_segments_detail(State(state): Shared) -> Response {
    match state.store.look(|look| Ok(look.core.segment_infos())).await {
        Ok(segments) => {
            let shown: Vec<Value> = segments.iter().map(of_segment).collect();
            Json(json!({"total_segments": shown.len(), "segments": shown})).into_response()
        }
        Err(error) => error.into_response(),
    }
}

async fn query_segment(State(state): Shared, RawQuery(query): RawQuery) -> Response {
    let name = raw(query.as_deref(), "segment").unwrap_or_default().to_owned();
    let wanted = percent_decoded(&name);
    match state.store.look(move |look| Ok(by_name(look).get(&*wanted).copied())).await {
        Ok(Some((used, capacity))) => {
            plain(format!("{name}\nUsed(bytes): {used}\nCapacity(bytes) : {capacity}\n"))
        }
        Ok(None) => {
            let type_ = [(header::CONTENT_TYPE, TEXT)];
            (StatusCode::INTERNAL_SERVER_ERROR, type_, "Failed to query segment").into_response()
        }
        Err(error) => error.into_response(),
    }
}

async fn segment_status(State(state): Shared, RawQuery(query): RawQuery) -> Response {
    let Some(name) = raw(query.as_deref(), "segment").filter(|name| !name.is_empty()).map(str::to_owned)
    else {
        return bad_request("Missing segment query parameter");
    };
    let wanted = percent_decoded(&name);
    match state.store.look(move |look| Ok(look.core.segment_status_by_name(&wanted))).await {
        Ok(Some(status)) => Json(json!({
            "success": true,
            "segment": name,
            "status": status as u8,
            "status_name": status_name(status),
            "error_code": 0,
            "error_message": "",
        }))
        .into_response(),
        Ok(None) => refused(ErrorCode::SegmentNotFound),
        Err(error) => error.into_response(),
    }
}

async fn remove_all(State(state): Shared, RawQuery(query): RawQuery) -> Response {
    let force = matches!(raw(query.as_deref(), "force"), Some("true" | "1"));
    let removed = state.store.look(move |look| {
        let mut cursor = WalkCursor::default();
        look.walk(|| look.core.remove_matching(None, force, &mut cursor))?;
        Ok(cursor.acted)
    });
    match removed.await {
        Ok(count) => Json(json!({"success": true, "removed_count": count})).into_response(),
        Err(error) => error.into_response(),
    }
}

/// Nothing publishes events in this version.
async fn kv_events_status(State(state): Shared) -> Response {
    if !state.readiness.service_available() {
        return LookError::NotServing.into_response();
    }
    Json(json!({
        "enabled": false,
        "published_batches": 0,
        "published_events": 0,
        "dropped_events": 0,
        "skipped_unparsed_keys": 0,
    }))
    .into_response()
}

/// There are no drain jobs in this version.
async fn no_such_job(State(state): Shared, RawQuery(query): RawQuery) -> Response {
    if !state.readiness.service_available() {
        return LookError::NotServing.into_response();
    }
    let is_id =
        |id: &str| id.split_once('-').is_some_and(|(a, b)| [a, b].iter().all(|n| n.parse::<u64>().is_ok()));
    if !raw(query.as_deref(), "job_id").is_some_and(is_id) {
        return bad_request("Missing or invalid job_id");
    }
    refused(ErrorCode::JobNotFound)
}

/// Tenants and new drain jobs.
async fn not_in_this_mode(State(state): Shared) -> Response {
    if !state.readiness.service_available() {
        return LookError::NotServing.into_response();
    }
    refused(ErrorCode::UnavailableInCurrentMode)
}
