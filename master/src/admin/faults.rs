//! `/fault`: fault injection from outside, refused unless the process was started with it (403).

use super::routes::{Shared, error};
use crate::fault::{FaultError, FaultRequest};
use axum::{
    Json,
    extract::{Path, RawQuery, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;
use std::time::Duration;

/// How long an answer waits for the fault to be in effect.
const IN_EFFECT: Duration = Duration::from_secs(1);

pub(super) async fn list(State(state): Shared) -> Response {
    if !state.faults.enabled() {
        return refused(&FaultError::Disabled);
    }
    Json(state.faults.list()).into_response()
}

pub(super) async fn clear(State(state): Shared) -> Response {
    if !state.faults.enabled() {
        return refused(&FaultError::Disabled);
    }
    state.faults.clear();
    Json(state.faults.list()).into_response()
}

pub(super) async fn inject(
    State(state): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    if !state.faults.enabled() {
        return refused(&FaultError::Disabled);
    }
    let request = FaultRequest::parse(&name, query.as_deref().unwrap_or_default());
    let in_effect = match request.and_then(|request| state.faults.begin(request)) {
        Ok(None) => true,
        Ok(Some(hears)) => matches!(tokio::time::timeout(IN_EFFECT, hears).await, Ok(Ok(()))),
        Err(failure) => return refused(&failure),
    };
    let mut answer = state.faults.list();
    answer["in_effect"] = json!(in_effect);
    Json(answer).into_response()
}

fn refused(failure: &FaultError) -> Response {
    let status = match failure {
        FaultError::Disabled => StatusCode::FORBIDDEN,
        FaultError::NothingServes => StatusCode::CONFLICT,
        FaultError::NoThread(_) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    };
    error(status, &failure.to_string())
}
