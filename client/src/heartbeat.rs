//! The heartbeat loop: one Ping per interval on the route, the way back to the main port, and remounts.

use crate::{
    options::HeartbeatMode,
    pool::{Answer, Failure},
    session::{Inner, Kind, Route, Session},
};
use mooncake_proto::v1::{self, ClientStatus, ErrorCode};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

/// The longest that a Ping on the main port may take. It may wait there behind data, and giving it up would take it
/// out of that queue: a master counts a Ping that it answers late, not one that was withdrawn.
const MAIN_PING_TIMEOUT: Duration = Duration::from_secs(5);

/// How the heartbeats stand; see [`crate::Client::heartbeat`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatStatus {
    /// Where the next one goes.
    pub route: Route,
    /// An auto client that gave the heartbeat port up for now.
    pub fell_back: bool,
    /// What the master last said, `None` before the first answer.
    pub client: Option<ClientStatus>,
    /// Failures in a row, 0 while all is well.
    pub failures: u32,
    /// The last failure, `None` while all is well.
    pub error: Option<String>,
    /// Heartbeats that were answered.
    pub answered: u64,
    /// Times that the segments were mounted again.
    pub remounts: u64,
}

impl HeartbeatStatus {
    pub(crate) fn new(route: Route) -> HeartbeatStatus {
        HeartbeatStatus {
            route,
            fell_back: false,
            client: None,
            failures: 0,
            error: None,
            answered: 0,
            remounts: 0,
        }
    }
}

/// The loop's own state.
#[derive(Debug)]
struct Beat {
    /// [`Session::id`] of the session that the route comes from.
    session: u64,
    route: Route,
    /// Failed Pings in a row on the heartbeat port.
    port_failures: u32,
    /// When to try the heartbeat port again, after a fall-back.
    retry_at: Option<Instant>,
    status: HeartbeatStatus,
}

/// Runs until the client is dropped.
pub(crate) async fn run(inner: Weak<Inner>, status: watch::Sender<HeartbeatStatus>) {
    let Some(period) = inner.upgrade().map(|inner| inner.options.heartbeat_interval) else { return };
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let route = status.borrow().route;
    let mut beat =
        Beat { session: 0, route, port_failures: 0, retry_at: None, status: HeartbeatStatus::new(route) };
    loop {
        ticks.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        // Without a segment the master keeps no record of this client: there is nothing to keep alive.
        if inner.segments.lock().is_empty() {
            continue;
        }
        beat.once(&inner).await;
        beat.status.route = beat.route;
        beat.status.fell_back = beat.retry_at.is_some();
        status.send_if_modified(|old| {
            let changed = *old != beat.status;
            old.clone_from(&beat.status);
            changed
        });
    }
}

impl Beat {
    async fn once(&mut self, inner: &Arc<Inner>) {
        // A session that is found to be over is followed by a new one at once, but only once per tick.
        for last in [false, true] {
            let session = match inner.session().await {
                Ok((session, _)) => session,
                Err(error) => return self.failed(error.to_string()),
            };
            self.adopt(inner, &session);
            let mut outcome = self.ping(inner, &session).await;
            if outcome.is_err() && self.falls_back(inner, &session) {
                outcome = self.ping(inner, &session).await;
            }
            let over = match outcome {
                Ok(answer) => self.answered(inner, &session, &answer).await,
                Err(failure) => {
                    self.failed(failure.to_string());
                    self.is_over(&session, &failure)
                }
            };
            if !over {
                return self.try_port(inner, &session).await;
            }
            inner.invalidate(&session);
            if last {
                return;
            }
        }
    }

    /// A new session brings a new route; one that had just been found to end at a silent port keeps that in mind.
    fn adopt(&mut self, inner: &Inner, session: &Session) {
        if self.session != session.id() {
            self.session = session.id();
            self.route = session.route;
            self.port_failures = 0;
            // An auto client whose handshake ended on the main port, although another is advertised, has fallen back.
            let fell_back =
                inner.mode == HeartbeatMode::Auto && session.route == Route::Main && session.advertised != 0;
            self.retry_at = fell_back.then(|| Instant::now() + inner.options.port_retry);
        }
    }

    async fn ping(&mut self, inner: &Inner, session: &Session) -> Result<Answer<v1::PingResponse>, Failure> {
        let limit = inner.options.ping_timeout;
        let result = match (self.route, session.heartbeat) {
            (Route::Dedicated(_), Some(address)) => inner.ping_at(address, limit).await,
            _ => inner.ping_on(&session.main, limit.max(MAIN_PING_TIMEOUT)).await,
        };
        let result = result.and_then(|answer| match ErrorCode::try_from(answer.value.code) {
            Ok(ErrorCode::Ok) => Ok(answer),
            Ok(code) => Err(Failure::Status(tonic::Status::failed_precondition(code.as_str_name()))),
            Err(_) => Err(Failure::Status(tonic::Status::internal(format!("code {}", answer.value.code)))),
        });
        if let Route::Dedicated(_) = self.route {
            self.port_failures = if result.is_ok() { 0 } else { self.port_failures + 1 };
        }
        result
    }

    /// Turns an auto client to the main port when the other one has failed often enough.
    fn falls_back(&mut self, inner: &Inner, session: &Session) -> bool {
        let Route::Dedicated(port) = self.route else { return false };
        if inner.mode != HeartbeatMode::Auto || self.port_failures < inner.options.fallback_after {
            return false;
        }
        tracing::warn!(
            port,
            failures = self.port_failures,
            main = %session.main.address(),
            "the heartbeat port does not answer: heartbeats go to the main port"
        );
        self.route = Route::Main;
        self.retry_at = Some(Instant::now() + inner.options.port_retry);
        true
    }

    /// Whether the answer shows that the session is over.
    async fn answered(
        &mut self,
        inner: &Inner,
        session: &Session,
        answer: &Answer<v1::PingResponse>,
    ) -> bool {
        if let (Route::Dedicated(port), Some(there), Some(main)) = (self.route, answer.epoch, session.epoch())
            && there != main
        {
            // The port leads to another active than the main connection does: one of them is old.
            tracing::info!(port, there, main, "another epoch answers heartbeats: a new handshake");
            self.failed(format!("epoch {there} answers on port {port}, the session has epoch {main}"));
            return true;
        }
        self.status.answered += 1;
        self.status.failures = 0;
        self.status.error = None;
        self.status.client = ClientStatus::try_from(answer.value.client_status).ok();
        if self.status.client == Some(ClientStatus::NeedRemount) {
            self.remount(inner).await;
        }
        false
    }

    async fn remount(&mut self, inner: &Inner) {
        let segments = inner.segments.lock().clone();
        let count = segments.len();
        let request = v1::ReMountSegmentRequest { segments, client_id: Some(inner.options.client_id) };
        let answer = inner.call(Kind::Repeatable, request, |mut stub, request| async move {
            stub.re_mount_segment(request).await
        });
        match answer.await.map(|answer| ErrorCode::try_from(answer.code)) {
            Ok(Ok(ErrorCode::Ok)) => {
                self.status.remounts += 1;
                tracing::info!(count, "segments mounted again");
            }
            // The next Ping says NEED_REMOUNT again.
            Ok(code) => self.failed(format!("ReMountSegment: {code:?}")),
            Err(error) => self.failed(format!("ReMountSegment: {error}")),
        }
    }

    /// Whether the session's main connection is of no more use.
    fn is_over(&mut self, session: &Session, failure: &Failure) -> bool {
        if let (true, Some(address), Some(_)) = (failure.misrouted(), session.heartbeat, self.retry_at) {
            // Nothing to fall back to: the silent port is the only one. Data calls go on, and the status tells.
            self.route = Route::Dedicated(address.port());
            self.retry_at = None;
            return false;
        }
        match (failure, self.route) {
            (failure, _) if failure.not_leader() || failure.not_serving() => true,
            // The port alone is silent: data calls go on, and the status tells.
            (_, Route::Dedicated(_)) => false,
            // A status: the master took heartbeats off the main port.
            (Failure::Broken { .. } | Failure::Connect(_) | Failure::Status(_), Route::Main) => true,
            // It may only be busy; a connection that is dead is found out by its keep-alive.
            (Failure::TimedOut(_), Route::Main) => self.status.failures > 2,
        }
    }

    /// After a fall-back: back to the heartbeat port once it answers again.
    async fn try_port(&mut self, inner: &Inner, session: &Session) {
        let (Some(at), Some(address)) = (self.retry_at, session.heartbeat) else { return };
        let now = Instant::now();
        if now < at {
            return;
        }
        match inner.probe_port(address, session.epoch(), inner.options.ping_timeout).await {
            Ok(()) => {
                tracing::info!(port = address.port(), "the heartbeat port answers again");
                self.route = Route::Dedicated(address.port());
                self.port_failures = 0;
                self.retry_at = None;
            }
            Err(fault) => {
                tracing::debug!(port = address.port(), ?fault, "the heartbeat port still does not answer");
                self.retry_at = Some(now + inner.options.port_retry);
            }
        }
    }

    fn failed(&mut self, error: String) {
        self.status.failures += 1;
        if self.status.failures == 1 {
            tracing::warn!(%error, "heartbeat failed");
        }
        self.status.error = Some(error);
    }
}
