//! The judge of silence. It takes no shard lock, and cleans nothing up unless offboarding is synchronous.

use super::{ClientLivenessRecord, Listener, LivenessState};
use crate::{
    clock::Instant,
    core::{Core, counters::add},
    lock::Mutex,
};
use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How often silence is judged (B2).
const PERIOD: Duration = Duration::from_secs(1);

/// The monitor's state.
#[derive(Debug, Default)]
pub(crate) struct Monitor {
    /// What was reported since the last tick. Only the thread of the monitor touches it, and tests.
    stalls: Mutex<Stalls>,
    judging: Mutex<Judging>,
}

/// For how long parts of the master did not listen.
#[derive(Debug, Default)]
struct Stalls {
    /// Something through which every client is heard.
    all: Duration,
    /// One thread that owns connections.
    of: BTreeMap<Listener, Duration>,
}

#[derive(Debug, Default)]
struct Judging {
    /// Time served so far: ticks that came in time under the permit.
    served: Duration,
    last: Option<Instant>,
    had_permit: bool,
    /// Whether the last tick was one of a stall: each is counted and logged once.
    stalled: bool,
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

impl Stalls {
    fn is_empty(&self) -> bool {
        self.all.is_zero() && self.of.is_empty()
    }

    /// What that client's silence is to be shortened by.
    fn of(&self, record: &ClientLivenessRecord) -> Duration {
        self.of.get(&record.heard_by()).copied().unwrap_or_default().max(self.all)
    }
}

impl Core {
    /// One tick of the liveness monitor: call it again after the returned time. Commits Active → Suspected and
    /// Suspected → Offline, the latter with the isolation of the client's resources; the cleaning is left to
    /// [`Core::background_tick`], or done here in [`OffboardingMode::Sync`](crate::types::OffboardingMode), in which this
    /// waits for shards.
    ///
    /// Time in which this master could not listen is nobody's silence. A late tick and [`Core::report_stall`] are taken
    /// off every client's silence, [`Core::report_deaf`] off that of the clients which were last heard there; in that
    /// tick none of them is judged, so that heartbeats that queued up get in first. After a time without the permit
    /// each silence starts anew.
    pub fn liveness_tick(&self) -> Duration {
        let mut judging = self.monitor.judging.lock();
        let now = self.clock.now();
        if !self.permit.held() {
            judging.had_permit = false;
            judging.last = Some(now);
            return PERIOD;
        }
        let mut stalls = mem::take(&mut *self.monitor.stalls.lock());
        if !judging.had_permit {
            judging.had_permit = true;
            judging.last = Some(now);
            self.clients.for_each(|record| record.forgive(Duration::MAX, now));
            return PERIOD;
        }
        stalls.all = stalls.all.max(judging.late(now));
        self.forgive(&stalls, &mut judging, now);
        let recoveries = self.counters.recovered.load(Ordering::Relaxed);
        if recoveries > judging.recoveries {
            tracing::info!(clients = recoveries - judging.recoveries, "suspected clients were heard again");
            judging.recoveries = recoveries;
        }
        if stalls.all.is_zero() {
            let may_retire = judging.served >= self.options.offline_grace;
            self.judge_all(&stalls, may_retire, now);
        }
        PERIOD
    }

    /// Tells the monitor that a part of the master through which every client is heard (an acceptor) did not run for
    /// `stalled`. Counted once per tick, the longest report wins.
    pub fn report_stall(&self, stalled: Duration) {
        let mut stalls = self.monitor.stalls.lock();
        stalls.all = stalls.all.max(stalled);
    }

    /// The same of one thread that owns connections: it concerns those clients only that were last heard by it.
    pub fn report_deaf(&self, listener: Listener, stalled: Duration) {
        let mut stalls = self.monitor.stalls.lock();
        let longest = stalls.of.entry(listener).or_default();
        *longest = stalled.max(*longest);
    }

    fn forgive(&self, stalls: &Stalls, judging: &mut Judging, now: Instant) {
        if stalls.is_empty() {
            judging.stalled = false;
            return;
        }
        let mut forgiven = 0u64;
        self.clients.for_each(|record| {
            let stall = stalls.of(record);
            if !stall.is_zero() {
                record.forgive(stall, now);
                forgiven += 1;
            }
        });
        if !judging.stalled {
            judging.stalled = true;
            add(&self.counters.stalls, 1);
            tracing::warn!(
                everybody_ms = stalls.all.as_millis() as u64,
                threads = stalls.of.len(),
                clients = forgiven,
                "the master does not listen to these clients itself; they are not judged for it"
            );
        }
    }

    fn judge_all(&self, stalls: &Stalls, may_retire: bool, now: Instant) {
        self.clients.for_each(|record| {
            if stalls.of(record).is_zero() {
                self.judge_active(record, now);
            }
        });
        if let Some((held, before)) = self.hold_mass_silence(now) {
            tracing::warn!(
                clients = held,
                of = before,
                "MASS SILENCE: many clients fell silent at once, so this master may be the one that is cut off; they \
                 are held in Suspected for one more window"
            );
        }
        if may_retire {
            self.clients.for_each(|record| {
                if stalls.of(record).is_zero() {
                    self.judge_suspected(record, now);
                }
            });
        }
    }

    fn judge_active(&self, record: &ClientLivenessRecord, now: Instant) {
        let seen = record.read();
        let silence = now.saturating_since(seen.since());
        if seen.state() == LivenessState::Active
            && silence >= self.options.client_active_ttl
            && record.suspect(seen, now)
        {
            add(&self.counters.suspected, 1);
            tracing::warn!(
                client = %record.id(),
                silent_ms = silence.as_millis() as u64,
                ever_pinged = record.ever_pinged(),
                "client is suspected: nothing new depends on it until it is heard again"
            );
        }
    }

    fn judge_suspected(&self, record: &Arc<ClientLivenessRecord>, now: Instant) {
        let seen = record.read();
        let windows = if seen.is_held() { 2 } else { 1 };
        if seen.state() != LivenessState::Suspected
            || now.saturating_since(seen.since()) < self.options.client_suspicion_ttl * windows
        {
            return;
        }
        if !self.offboarding.reserve() {
            // It stays Suspected, and so kept but not served, until there is room.
            return;
        }
        let Some(job) = self.prepare_client_offboarding(record, seen, now) else {
            return self.offboarding.cancel();
        };
        add(&self.counters.offline, 1);
        tracing::warn!(
            client = %record.id(),
            segments = job.segments().len(),
            ever_pinged = record.ever_pinged(),
            "client is offline: its memory is isolated and will be cleaned up"
        );
        self.executor.submit(self, job);
    }
}
