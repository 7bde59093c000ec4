//! The judge of silence. It runs on the control thread, takes no shard lock and cleans nothing up.

use super::{ClientLivenessRecord, LivenessState};
use crate::{
    clock::Instant,
    core::{Core, counters::add},
    lock::Mutex,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How often silence is judged (B2).
const PERIOD: Duration = Duration::from_secs(1);

/// The monitor's state.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    /// Nanoseconds for which other parts of the master did not listen, reported since the last tick.
    reported_stall: AtomicU64,
    judging: Mutex<Judging>,
}

#[derive(Debug, Default)]
struct Judging {
    /// Time served so far: ticks that came in time under the permit.
    served: Duration,
    last: Option<Instant>,
    had_permit: bool,
    /// Recoveries that were logged. The Ping that recovers a client does not log: it must not wait for a log.
    recoveries: u64,
}

impl Judging {
    /// How long the monitor itself was late.
    fn late(&mut self, now: Instant) -> Duration {
        let elapsed = self.last.map_or(Duration::ZERO, |last| now.saturating_since(last));
        self.last = Some(now);
        self.served += elapsed.min(2 * PERIOD);
        if elapsed < 2 * PERIOD { Duration::ZERO } else { elapsed.saturating_sub(PERIOD) }
    }
}

impl Core {
    /// One tick of the liveness monitor: call it again after the returned time. Commits Active → Suspected and
    /// Suspected → Offline, the latter with the isolation of the client's resources; the cleaning is left to
    /// [`Core::background_tick`].
    ///
    /// Time in which this master could not listen is nobody's silence: ticks that come late and reported stalls
    /// ([`Core::report_stall`]) are taken off every client's silence, and nothing is judged in that tick, so that
    /// heartbeats that queued up get in first. After a time without the permit each silence starts anew.
    pub fn liveness_tick(&self) -> Duration {
        let mut judging = self.monitor.judging.lock();
        let now = self.clock.now();
        if !self.permit.held() {
            judging.had_permit = false;
            judging.last = Some(now);
            return PERIOD;
        }
        if !judging.had_permit {
            judging.had_permit = true;
            judging.last = Some(now);
            self.clients.for_each(|record| record.forgive(Duration::MAX, now));
            return PERIOD;
        }
        let reported = Duration::from_nanos(self.monitor.reported_stall.swap(0, Ordering::Relaxed));
        let stall = judging.late(now).max(reported);
        if stall > Duration::ZERO {
            add(&self.counters.stalls, 1);
            tracing::warn!(
                stall_ms = stall.as_millis() as u64,
                "the master did not listen; no client is judged for it"
            );
            self.clients.for_each(|record| record.forgive(stall, now));
            return PERIOD;
        }
        let recoveries = self.counters.recovered.load(Ordering::Relaxed);
        if recoveries > judging.recoveries {
            tracing::info!(clients = recoveries - judging.recoveries, "suspected clients were heard again");
            judging.recoveries = recoveries;
        }
        let may_retire = judging.served >= self.options.offline_grace;
        self.clients.for_each(|record| self.judge(record, may_retire, now));
        PERIOD
    }

    /// Tells the monitor that a part of the master through which clients are heard (the acceptor, a data thread)
    /// did not run for `stalled`. Counted once per tick, the longest report wins.
    pub fn report_stall(&self, stalled: Duration) {
        let nanos = u64::try_from(stalled.as_nanos()).unwrap_or(u64::MAX);
        self.monitor.reported_stall.fetch_max(nanos, Ordering::Relaxed);
    }

    fn judge(&self, record: &Arc<ClientLivenessRecord>, may_retire: bool, now: Instant) {
        let seen = record.read();
        let silence = now.saturating_since(seen.since());
        match seen.state() {
            LivenessState::Active
                if silence >= self.options.client_active_ttl
                    && record.commit(seen, LivenessState::Suspected, now) =>
            {
                add(&self.counters.suspected, 1);
                tracing::warn!(
                    client = %record.id(),
                    silent_ms = silence.as_millis() as u64,
                    ever_pinged = record.ever_pinged(),
                    "client is suspected: nothing new depends on it until it is heard again"
                );
            }
            LivenessState::Suspected if may_retire && silence >= self.options.client_suspicion_ttl => {
                if let Some(job) = self.prepare_client_offboarding(record, seen, now) {
                    add(&self.counters.offline, 1);
                    tracing::warn!(
                        client = %record.id(),
                        segments = job.segments().len(),
                        ever_pinged = record.ever_pinged(),
                        "client is offline: its memory is isolated and will be cleaned up"
                    );
                    self.offboarding.enqueue(job);
                }
            }
            _ => {}
        }
    }
}
