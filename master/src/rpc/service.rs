//! What both front ends call: the core behind the permit, with calls that park instead of blocking.

use super::{
    generations::Generations,
    native::generation::{Generation, Method},
    telemetry::Telemetry,
};
use crate::{
    admin::Metrics,
    clock::{Clock, Instant},
    core::{Core, SHARDS},
    error::ErrorCode,
    fault::Faults,
    ha::Leader,
    permit::ServingPermit,
    types::{Attempt, ClientStatus, OpError, Walk},
};
use regex::bytes::{Regex, RegexBuilder};
use std::{
    future::Future,
    iter::Peekable,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

/// A long batch lets other calls run after this many keys.
pub(super) const KEYS_PER_TURN: usize = 256;
/// A parked call is tried again this often without a pause, then with one.
const EAGER_TRIES: u32 = 16;
const PAUSE: Duration = Duration::from_millis(1);
/// The longest pause: many calls parked at one shard must not keep their thread busy with trying.
const LONG_PAUSE: Duration = Duration::from_millis(16);
/// The longest pattern, bytes.
const MAX_PATTERN: usize = 4096;
/// How long HealthCheck waits before it tries a busy shard again (A2).
const HEALTH_BACK_OFF: Duration = Duration::from_millis(10);

/// The version string that every released client compares with its own (wire notes §4).
pub(super) const STORE_VERSION: &str = "2.0.0";

/// Whether a call works on the store; what else there is must be answered whatever the store suffers.
pub(super) fn is_data(method: Method) -> bool {
    !matches!(method, Method::Ping | Method::ServiceReady | Method::HealthCheck)
}

/// What the process says about itself.
pub struct ServiceInfo {
    /// The cached answer of `/readyz` (A5).
    pub readiness: super::grpc::Readiness,
    /// The bound port of the heartbeat server, 0 when there is none (C3).
    pub heartbeat_port: AtomicU32,
    /// Whether the main server answers Ping while a heartbeat server runs (C2).
    pub heartbeat_keep_on_main: bool,
    /// `root_fs_dir`/`cluster_id`, empty without `root_fs_dir`.
    pub fsdir: String,
    /// Told to clients.
    pub enable_disk_eviction: bool,
    /// Told to clients, bytes.
    pub quota_bytes: u64,
    /// The whole time that one HealthCheck may take: min(2 s, ⅔ of `rpc_probe_timeout_seconds`) (A2).
    pub health_budget: Duration,
    /// Who leads, as far as this process knows: the hint for a call that believes in another epoch.
    pub leader: Arc<dyn Fn() -> Option<Leader> + Send + Sync>,
    /// What data handlers suffer in tests.
    pub faults: Arc<Faults>,
    /// What a native client is taken for of which nothing tells the generation.
    pub default_generation: &'static Generation,
}

/// The answer to HealthCheck (A1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealthReport {
    /// Every shard could be read within the budget.
    pub ok: bool,
    /// Shards that were read.
    pub shards_checked: u64,
    /// Index of the first shard that could not, 0 if all could.
    pub shards_blocked: u64,
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The call was refused with this code.
    Code(ErrorCode),
    /// The serving permit ended: nothing may be answered, the connection goes.
    NoPermit,
}

/// Whether a step of a longer call finished it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Finished.
    Done,
    /// A shard is held; pause before the next step.
    Parked,
    /// Others should run before the next step.
    Yield,
    /// The permit ended.
    NoPermit,
}

/// The core and what surrounds it in every call.
pub struct Service {
    core: Arc<Core>,
    permit: Arc<ServingPermit>,
    clock: Arc<dyn Clock>,
    info: ServiceInfo,
    telemetry: Telemetry,
    generations: Arc<Generations>,
}

impl Service {
    /// Around a core.
    pub fn new(
        core: Arc<Core>,
        permit: Arc<ServingPermit>,
        clock: Arc<dyn Clock>,
        info: ServiceInfo,
        metrics: Arc<Metrics>,
    ) -> Arc<Service> {
        let generations = Generations::new(info.default_generation, metrics.clone());
        Arc::new(Service { core, permit, clock, info, telemetry: Telemetry::new(metrics), generations })
    }

    /// The core.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The permit.
    pub fn permit(&self) -> &Arc<ServingPermit> {
        &self.permit
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// What the process says about itself.
    pub fn info(&self) -> &ServiceInfo {
        &self.info
    }

    /// What is known of native clients' generations.
    pub fn generations(&self) -> &Arc<Generations> {
        &self.generations
    }

    /// Where calls are counted.
    pub(super) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// The port that a client should send its heartbeats to, 0 for the main one.
    pub fn heartbeat_port(&self) -> u32 {
        self.info.heartbeat_port.load(Ordering::Relaxed)
    }

    /// Whether the main server answers Ping (C2).
    pub fn ping_on_main(&self) -> bool {
        self.info.heartbeat_keep_on_main || self.heartbeat_port() == 0
    }

    /// The epoch and the state of the client.
    pub fn ping(&self, client: crate::types::ClientId) -> (i64, ClientStatus) {
        (self.permit.epoch() as i64, self.core.ping(client))
    }

    /// One attempt of a single-key call.
    pub fn attempt<T>(&self, call: impl FnOnce() -> Attempt<T>) -> Result<Result<T, ErrorCode>, Step> {
        if !self.permit.may_answer() {
            return Err(Step::NoPermit);
        }
        match call() {
            Ok(value) => Ok(Ok(value)),
            Err(OpError::Failed(code)) => Ok(Err(code)),
            Err(OpError::Busy { .. }) => Err(Step::Parked),
        }
    }

    /// Goes on with a batch, for one turn.
    fn batch_turn<I: Iterator, T>(
        done: &mut Vec<Result<T, ErrorCode>>,
        items: &mut Peekable<I>,
        mut each: impl FnMut(&I::Item) -> Attempt<T>,
    ) -> Step {
        for served in 0..KEYS_PER_TURN {
            let Some(item) = items.peek() else { return Step::Done };
            match each(item) {
                Ok(value) => done.push(Ok(value)),
                Err(OpError::Failed(code)) => done.push(Err(code)),
                Err(OpError::Busy { .. }) if served > 0 => return Step::Yield,
                Err(OpError::Busy { .. }) => return Step::Parked,
            }
            items.next();
        }
        if items.peek().is_none() { Step::Done } else { Step::Yield }
    }

    /// Walks all shards from `report.shards_checked` on without waiting. `Done` when every shard was read.
    pub fn health_turn(&self, report: &mut HealthReport) -> Step {
        while report.shards_checked < u64::from(SHARDS) {
            if !self.core.try_read_shard(report.shards_checked as u16) {
                return Step::Parked;
            }
            report.shards_checked += 1;
        }
        report.ok = true;
        report.shards_blocked = 0;
        Step::Done
    }

    /// The whole of HealthCheck (A2): walks, retries a busy shard, gives up when the budget since `started` is used up.
    pub async fn health_check(&self, started: Instant, mut report: HealthReport) -> HealthReport {
        while self.health_turn(&mut report) != Step::Done {
            let spent = self.clock.now().saturating_since(started);
            let left = self.info.health_budget.saturating_sub(spent);
            if left.is_zero() {
                report.shards_blocked = report.shards_checked;
                return report;
            }
            tokio::time::sleep(left.min(HEALTH_BACK_OFF)).await;
        }
        report
    }

    /// Repeats turns of a call until it is done, pausing as each turn asks. None begins without the permit.
    pub async fn drive(&self, mut turn: impl FnMut() -> Step) -> Result<(), Refusal> {
        let mut tries = 0;
        loop {
            let step = if self.permit.may_answer() { turn() } else { Step::NoPermit };
            match step {
                Step::Done => return Ok(()),
                Step::NoPermit => return Err(self.no_permit().await),
                step => pause(step, &mut tries).await,
            }
        }
    }

    /// Nothing may be answered any more. In a hand-over the call waits for the end of its connection (design §6.7).
    async fn no_permit(&self) -> Refusal {
        self.permit.hold_over().await;
        Refusal::NoPermit
    }

    /// A single-key call, parked for as long as its shard is held.
    pub async fn call<T>(&self, mut call: impl FnMut() -> Attempt<T>) -> Result<T, Refusal> {
        let mut tries = 0;
        loop {
            match self.attempt(&mut call) {
                Ok(result) => return result.map_err(Refusal::Code),
                Err(Step::NoPermit) => return Err(self.no_permit().await),
                Err(step) => pause(step, &mut tries).await,
            }
        }
    }

    /// A batch, item by item.
    pub async fn batch<I: Iterator, T>(
        &self,
        items: I,
        mut each: impl FnMut(&I::Item) -> Attempt<T>,
    ) -> Result<Vec<Result<T, ErrorCode>>, Refusal> {
        let mut done = Vec::with_capacity(items.size_hint().0);
        let mut items = items.peekable();
        self.drive(|| Service::batch_turn(&mut done, &mut items, &mut each)).await?;
        Ok(done)
    }

    /// A walk over all shards, step by step.
    pub async fn walk(&self, mut step: impl FnMut() -> Attempt<Walk>) -> Result<(), Refusal> {
        let turn = || match self.attempt(&mut step) {
            Ok(Ok(Walk::Done)) => Step::Done,
            // A walk is refused only for its arguments, which are checked before; it never fails on its way.
            Ok(Ok(Walk::More) | Err(_)) => Step::Yield,
            Err(step) => step,
        };
        self.drive(turn).await
    }
}

/// A pattern as a caller writes it: unanchored, over bytes, in linear time (no look-around, no back-references), at most
/// [`MAX_PATTERN`] long.
pub(super) fn parse_regex(pattern: &[u8]) -> Result<Regex, ErrorCode> {
    if pattern.len() > MAX_PATTERN {
        return Err(ErrorCode::InvalidParams);
    }
    let text = std::str::from_utf8(pattern).map_err(|_| ErrorCode::InvalidParams)?;
    RegexBuilder::new(text)
        .size_limit(1 << 20)
        .dfa_size_limit(1 << 20)
        .nest_limit(64)
        .build()
        .map_err(|_| ErrorCode::InvalidParams)
}

impl HealthReport {
    /// Nothing walked yet.
    pub const START: HealthReport = HealthReport { ok: false, shards_checked: 0, shards_blocked: 0 };
}

/// Lets others run before the next turn. A lock is nearly always free again within microseconds; only a long hold
/// makes the pause one of the timer.
pub(super) fn pause(step: Step, tries: &mut u32) -> impl Future<Output = ()> {
    // If it got on, the next shard that is busy is another one.
    *tries = if step == Step::Parked { *tries + 1 } else { 0 };
    let sleep = (*tries > EAGER_TRIES)
        .then(|| LONG_PAUSE.min(PAUSE * 2u32.saturating_pow((*tries - EAGER_TRIES) / 4)));
    async move {
        match sleep {
            Some(time) => tokio::time::sleep(time).await,
            None => tokio::task::yield_now().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_bounded_and_linear() {
        assert!(parse_regex(b"^k.*").expect("a pattern").is_match(b"k1"));
        for refused in [&b"("[..], b"\xff", &[b'a'; MAX_PATTERN + 1], b"(?:x{1000}){1000}", b"(a)\\1"] {
            assert_eq!(parse_regex(refused).err(), Some(ErrorCode::InvalidParams));
        }
    }
}
