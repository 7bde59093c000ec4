//! `/clients` and `/clients/summary`. The list costs a little for each client and segment, so it is made on a thread of
//! its own, for a few callers at a time; neither waits for the store. Not on the threads of the pages that do: those are
//! taken for as long as a shard is held, which is when one wants to see the clients.

use super::routes::{Shared, error};
use crate::{
    core::{ClientInfo, ClientList, Core},
    rpc::{Generations, native::generation::Generation},
    types::LivenessState,
};
use arc_swap::ArcSwapOption;
use axum::{
    Json,
    extract::{RawQuery, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

/// Lists that are made at the same time.
const AT_ONCE: usize = 2;
/// How long a caller waits for its turn.
const TURN: Duration = Duration::from_secs(1);
/// Clients in an answer, unless the caller says how many.
const LIMIT: usize = 100;
/// Clients in an answer at the most.
const MAX_LIMIT: usize = 1000;

/// Where clients are known.
#[derive(Debug)]
struct Known {
    core: Arc<Core>,
    generations: Arc<Generations>,
}

/// Whose clients are shown, and how many callers are being served.
#[derive(Debug)]
pub(super) struct ClientPages {
    known: ArcSwapOption<Known>,
    turns: Semaphore,
}

impl Default for ClientPages {
    fn default() -> Self {
        ClientPages { known: ArcSwapOption::empty(), turns: Semaphore::new(AT_ONCE) }
    }
}

impl ClientPages {
    pub(super) fn open(&self, core: Arc<Core>, generations: Arc<Generations>) {
        self.known.store(Some(Arc::new(Known { core, generations })));
    }

    pub(super) fn close(&self) {
        self.known.store(None);
    }
}

fn nothing_serves() -> Response {
    error(StatusCode::SERVICE_UNAVAILABLE, "this process does not serve, so it has no clients")
}

pub(super) async fn summary(State(state): Shared) -> Response {
    let Some(known) = state.client_pages.known.load_full() else { return nothing_serves() };
    let counts = known.core.client_counts();
    Json(json!({
        "clients": {"active": counts.active, "suspected": counts.suspected, "offline": counts.offline},
        "mass_silence": counts.held > 0,
        "heartbeat_routing_mismatches": state.metrics.heartbeat_routing_mismatches(),
    }))
    .into_response()
}

pub(super) async fn list(State(state): Shared, RawQuery(query): RawQuery) -> Response {
    let (wanted, limit) = match parse(query.as_deref().unwrap_or_default()) {
        Ok(asked) => asked,
        Err(message) => return error(StatusCode::BAD_REQUEST, &message),
    };
    let Some(known) = state.client_pages.known.load_full() else { return nothing_serves() };
    let Ok(Ok(_turn)) = tokio::time::timeout(TURN, state.client_pages.turns.acquire()).await else {
        return error(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many callers ask for the clients at the same time",
        );
    };
    let made = move || known.render(&known.core.client_list(wanted, limit));
    match tokio::task::spawn_blocking(made).await {
        Ok(list) => Json(list).into_response(),
        Err(failure) => error(StatusCode::INTERNAL_SERVER_ERROR, &failure.to_string()),
    }
}

fn parse(query: &str) -> Result<(Option<LivenessState>, usize), String> {
    let (mut state, mut limit) = (None, LIMIT);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "state" => {
                let all = LivenessState::ALL;
                let found = all.into_iter().find(|state| name_of(*state) == value);
                let message = || {
                    let value: String = value.chars().take(100).collect();
                    format!("state={value:?} is not one of {}", all.map(name_of).join(", "))
                };
                state = Some(found.ok_or_else(message)?);
            }
            "limit" => {
                let found = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                limit = found.ok_or_else(|| format!("limit is not a whole number from 1 to {MAX_LIMIT}"))?;
            }
            other => {
                let other: String = other.chars().take(100).collect();
                return Err(format!("/clients takes state and limit, not {other:?}"));
            }
        }
    }
    Ok((state, limit))
}

fn name_of(state: LivenessState) -> &'static str {
    match state {
        LivenessState::Active => "active",
        LivenessState::Suspected => "suspected",
        LivenessState::Offline => "offline",
    }
}

impl Known {
    fn render(&self, list: &ClientList) -> Value {
        json!({
            "total": list.total,
            "clients": list.clients.iter().map(|client| self.render_one(client)).collect::<Vec<_>>(),
        })
    }

    fn render_one(&self, client: &ClientInfo) -> Value {
        json!({
            "id": client.id.to_string(),
            "incarnation": format!("{:016x}", client.incarnation),
            "generation": self.generations.of_client(client.id).map(Generation::name),
            "state": name_of(client.state),
            "held": client.held,
            "since_ms_ago": client.in_state.as_millis() as u64,
            "silent_ms": client.silent.map(|silent| silent.as_millis() as u64),
            "remount_ready": client.ready,
            "segments": client.segments,
            "capacity_bytes": client.capacity_bytes,
            "bytes": client.bytes,
            "keys": client.keys,
            "offboarding": client.offboarding.map(|job| json!({"step": job.step, "failures": job.failures})),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_and_refused_by_name() {
        assert_eq!(parse(""), Ok((None, LIMIT)));
        assert_eq!(parse("state=offline&limit=1000"), Ok((Some(LivenessState::Offline), 1000)));
        for (bad, name) in
            [("state=", "state"), ("limit=0", "limit"), ("limit=1001", "limit"), ("x", "\"x\"")]
        {
            let message = parse(bad).expect_err("refused");
            assert!(message.contains(name), "{bad}: {message}");
        }
    }
}
