//! The endpoints (facts §9.2). Every answer of this file comes from atomics and prepared text; those that look into the
//! store are in `store` and do so on threads of their own.

use super::{AdminState, clients, faults, store};
use axum::{
    Json, Router,
    extract::State,
    http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// The paths that exist.
const PATHS: &str = "/health, /readyz, /metrics, /metrics/summary, /role, /leader, /ha_status, /clients, /clients/summary, /config, /fault, \
    /query_key, /batch_query_keys, /get_all_keys, /get_all_segments, /get_segments_detail, /query_segment, \
    /kv_events/status, /api/v1/segments/status, /api/v1/remove_all, /api/v1/drain_jobs, /api/v1/tenant_quotas";

const INCARNATION: HeaderName = HeaderName::from_static("mooncake-incarnation");
const EPOCH: HeaderName = HeaderName::from_static("mooncake-epoch");
const READY: HeaderName = HeaderName::from_static("mooncake-ready");

pub(super) fn router(state: Arc<AdminState>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/metrics/summary", get(summary))
        .route("/role", get(role))
        .route("/leader", get(leader))
        .route("/ha_status", get(ha_status))
        .route("/clients", get(clients::list))
        .route("/clients/summary", get(clients::summary))
        .route("/config", get(config))
        .route("/fault", get(faults::list).delete(faults::clear))
        .route("/fault/{name}", post(faults::inject))
        .merge(store::router())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(state)
}

pub(super) type Shared = State<Arc<AdminState>>;

/// Liveness of the process: always 200.
async fn health(State(state): Shared) -> Json<Value> {
    let ha = state.role.state();
    let leader = state.role.leader();
    Json(json!({
        "status": "ok",
        "role": ha.role(),
        "ha_state": ha.name(),
        "service_ready": state.readiness.service_available(),
        "leader_address": leader.as_ref().map(|leader| &leader.address),
        "view_version": leader.as_ref().map(|leader| leader.epoch),
    }))
}

/// A5: reads the cache only.
async fn readyz(State(state): Shared) -> Response {
    let readiness = &state.readiness;
    if readiness.is_ready() {
        return (StatusCode::OK, "ready\n").into_response();
    }
    let why = if readiness.service_available() { "the RPC path does not answer" } else { "not serving" };
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response()
}

async fn metrics(State(state): Shared) -> Response {
    ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], state.rendered()).into_response()
}

async fn summary(State(state): Shared) -> String {
    state.metrics.summary() + "\n"
}

async fn role(State(state): Shared) -> &'static str {
    state.role.state().role()
}

/// One word, and in headers what the operator needs beside it, on a standby, too: which process image this is
/// (`mooncake-incarnation`), in which epoch it leads if it does (`mooncake-epoch`), what `/readyz` would say
/// (`mooncake-ready`).
async fn ha_status(State(state): Shared) -> Response {
    let mut response = state.role.state().name().into_response();
    let (headers, permit) = (response.headers_mut(), state.readiness.permit());
    if let Some(incarnation) = state.role.incarnation().and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(INCARNATION, incarnation);
    }
    if state.role.state().role() == "leader" && permit.held() {
        headers.insert(EPOCH, HeaderValue::from(permit.epoch()));
    }
    let ready = if state.readiness.is_ready() { "true" } else { "false" };
    headers.insert(READY, HeaderValue::from_static(ready));
    response
}

async fn leader(State(state): Shared) -> Json<Value> {
    Json(match state.role.leader() {
        Some(leader) => {
            json!({"present": true, "leader_address": leader.address, "view_version": leader.epoch})
        }
        None => json!({"present": false, "leader_address": null, "view_version": null}),
    })
}

async fn config(State(state): Shared) -> Json<Value> {
    Json(state.config.clone())
}

async fn not_found(uri: Uri) -> Response {
    let message = format!("no such path: {}; there are {PATHS}", shortened(uri.path()));
    error(StatusCode::NOT_FOUND, &message)
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let takes = match uri.path() {
        "/fault" => "GET and DELETE",
        path if path.starts_with("/fault/") => "POST",
        "/api/v1/tenant_quotas" => "GET, PUT and DELETE",
        "/api/v1/remove_all" | "/api/v1/drain_jobs" | "/api/v1/drain_jobs/cancel" => "POST",
        _ => "GET",
    };
    let message = format!("{} takes {takes}, not {}", shortened(uri.path()), shortened(method.as_str()));
    error(StatusCode::METHOD_NOT_ALLOWED, &message)
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Upstream's shape of an error.
pub(super) fn error(status: StatusCode, message: &str) -> Response {
    let code = crate::error::ErrorCode::InvalidParams.number();
    (status, Json(json!({"success": false, "error_code": code, "error_message": message}))).into_response()
}
