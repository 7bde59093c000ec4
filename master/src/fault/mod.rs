//! Fault injection: what a test, from outside, makes a real process suffer. Compiled in, and refused unless the process
//! was started with `--enable_fault_injection`.
//!
//! A fault happens where the real one would: a shard is held by a thread that took its lock, a data thread blocks in a
//! handler, the accept thread stops to accept. Every fault ends by itself.

mod request;
#[cfg(test)]
mod tests;

pub use request::{FaultError, FaultRequest, FaultStep};

use crate::{
    clock::{Clock, Instant},
    lock::{Condvar, Mutex},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

/// Somebody who is held up looks at the clock at least this often.
const LOOK: Duration = Duration::from_millis(50);

/// Locks the shard of that index for writing for as long as the given function runs. `false` if there is no store.
pub type HoldShard = Arc<dyn Fn(u16, &mut dyn FnMut()) -> bool + Send + Sync>;

/// What serves at present, as far as faults need it.
#[derive(Clone)]
pub struct FaultTarget {
    /// Data threads of the main server.
    pub threads: usize,
    /// How a shard is held.
    pub hold_shard: HoldShard,
}

/// The faults of one process. Nothing happens while it is not enabled, and the hot path then pays one relaxed load.
pub struct Faults {
    enabled: AtomicBool,
    /// Whether any fault was asked for since the last clear; looked at before anything is locked.
    armed: AtomicBool,
    /// For how long each data handler sleeps, milliseconds; 0 nearly always.
    handler_ms: AtomicU64,
    active: Mutex<Active>,
    changed: Condvar,
    target: Mutex<Option<FaultTarget>>,
    clock: Arc<dyn Clock>,
}

/// What is being suffered, each with its end.
#[derive(Debug, Default)]
struct Active {
    /// Grows with each clear, which thereby ends what waits for a time of its own.
    clears: u64,
    handlers: Option<Instant>,
    shards: BTreeMap<u16, Instant>,
    threads: BTreeMap<usize, Instant>,
    accept: Option<Instant>,
    monitor: Option<Instant>,
    failing: BTreeMap<FaultStep, u64>,
    slow: BTreeMap<FaultStep, (Duration, Instant)>,
}

impl Faults {
    /// Off.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Faults> {
        Arc::new(Faults {
            enabled: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            handler_ms: AtomicU64::new(0),
            active: Mutex::default(),
            changed: Condvar::new(),
            target: Mutex::new(None),
            clock,
        })
    }

    /// Allows faults from now on, and says so loudly.
    pub fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
        tracing::warn!(
            "FAULT INJECTION IS ENABLED (--enable_fault_injection): anybody who reaches the admin port can stop this \
             master; never run it like this in production"
        );
    }

    /// Whether faults are allowed.
    pub fn enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// What faults apply to from now on; None when nothing serves.
    pub fn set_target(&self, target: Option<FaultTarget>) {
        *self.target.lock() = target;
    }

    /// Begins a fault. The receiver, if there is one, hears when it is in effect.
    pub fn begin(
        self: &Arc<Faults>,
        request: FaultRequest,
    ) -> Result<Option<oneshot::Receiver<()>>, FaultError> {
        if !self.enabled() {
            return Err(FaultError::Disabled);
        }
        self.armed.store(true, Ordering::Relaxed);
        let told = self.inject(request)?;
        tracing::warn!(?request, "fault injected");
        Ok(told)
    }

    fn inject(
        self: &Arc<Faults>,
        request: FaultRequest,
    ) -> Result<Option<oneshot::Receiver<()>>, FaultError> {
        let until = |time| self.clock.now().saturating_add(time);
        match request {
            FaultRequest::HoldShard { index, time } => return self.hold_shard(index, until(time)).map(Some),
            FaultRequest::SleepHandlers { each, time } => {
                self.active.lock().handlers = Some(until(time));
                self.handler_ms.store(each.as_millis() as u64, Ordering::Relaxed);
            }
            FaultRequest::StickThread { index, time } => {
                let threads = self.target.lock().as_ref().ok_or(FaultError::NothingServes)?.threads;
                if index >= threads {
                    return Err(FaultError::NoSuchThread { index, last: threads.saturating_sub(1) });
                }
                self.active.lock().threads.insert(index, until(time));
            }
            FaultRequest::StopAccept { time } => self.active.lock().accept = Some(until(time)),
            FaultRequest::PauseMonitor { time } => self.active.lock().monitor = Some(until(time)),
            FaultRequest::FailStep { step, times } => {
                self.active.lock().failing.insert(step, times);
            }
            FaultRequest::SlowStep { step, each, time } => {
                self.active.lock().slow.insert(step, (each, until(time)));
            }
        }
        Ok(None)
    }

    fn hold_shard(
        self: &Arc<Faults>,
        index: u16,
        until: Instant,
    ) -> Result<oneshot::Receiver<()>, FaultError> {
        let target = self.target.lock().clone().ok_or(FaultError::NothingServes)?;
        let (held, hears) = oneshot::channel();
        if self.active.lock().shards.insert(index, until).is_some() {
            // Its thread finds the new end.
            let _ = held.send(());
            return Ok(hears);
        }
        let (faults, mut held) = (self.clone(), Some(held));
        let thread = std::thread::Builder::new().name(format!("hold-{index}")).spawn(move || {
            (target.hold_shard)(index, &mut || {
                // Nobody waits any more: the shard is held all the same.
                let _ = held.take().map(|held| held.send(()));
                faults.wait_while(|active| active.shards.get(&index).copied());
            });
            faults.active.lock().shards.remove(&index);
        });
        match thread {
            Ok(_) => Ok(hears),
            Err(error) => {
                self.active.lock().shards.remove(&index);
                Err(FaultError::NoThread(error.to_string()))
            }
        }
    }

    /// Ends every fault.
    pub fn clear(&self) {
        let mut active = self.active.lock();
        let clears = active.clears + 1;
        *active = Active { clears, ..Active::default() };
        self.handler_ms.store(0, Ordering::Relaxed);
        self.armed.store(false, Ordering::Relaxed);
        drop(active);
        self.changed.notify_all();
        tracing::warn!("every fault cleared");
    }

    /// What is active, with the milliseconds that are left, and which steps can be made to fail.
    pub fn list(&self) -> Value {
        let now = self.clock.now();
        let left = |until: &Instant| until.saturating_since(now).as_millis() as u64;
        let lasts = |until: &&Instant| **until > now;
        let active = self.active.lock();
        let mut list = Vec::new();
        for (index, until) in active.shards.iter().filter(|(_, until)| lasts(until)) {
            list.push(json!({"fault": "hold_shard", "index": index, "left_ms": left(until)}));
        }
        if let Some(until) = active.handlers.as_ref().filter(lasts) {
            let ms = self.handler_ms.load(Ordering::Relaxed);
            list.push(json!({"fault": "sleep_handlers", "ms": ms, "left_ms": left(until)}));
        }
        for (index, until) in active.threads.iter().filter(|(_, until)| lasts(until)) {
            list.push(json!({"fault": "stick_thread", "index": index, "left_ms": left(until)}));
        }
        for (name, until) in [("stop_accept", &active.accept), ("pause_monitor", &active.monitor)] {
            if let Some(until) = until.as_ref().filter(lasts) {
                list.push(json!({"fault": name, "left_ms": left(until)}));
            }
        }
        for (step, times) in &active.failing {
            list.push(json!({"fault": "fail_step", "step": step.name(), "times": times}));
        }
        for (step, (each, until)) in active.slow.iter().filter(|(_, (_, until))| lasts(&until)) {
            let ms = each.as_millis() as u64;
            list.push(json!({"fault": "slow_step", "step": step.name(), "ms": ms, "left_ms": left(until)}));
        }
        json!({"active": list, "steps": FaultStep::ALL.map(FaultStep::name), "faults": request::NAMES})
    }

    /// In front of every data handler: blocks the thread if that is asked for.
    #[inline]
    pub(crate) fn before_handler(&self) {
        if self.handler_ms.load(Ordering::Relaxed) != 0 {
            self.sleep_in_handler();
        }
    }

    #[cold]
    fn sleep_in_handler(&self) {
        let (until, clears) = {
            let mut active = self.active.lock();
            let now = self.clock.now();
            if active.handlers.is_none_or(|until| until <= now) {
                active.handlers = None;
                self.handler_ms.store(0, Ordering::Relaxed);
                return;
            }
            let each = Duration::from_millis(self.handler_ms.load(Ordering::Relaxed));
            (now.saturating_add(each), active.clears)
        };
        self.wait_while(|active| (active.clears == clears).then_some(until));
    }

    /// On each tick of a data thread of the main server: blocks it if that is asked for.
    pub(crate) fn in_data_thread(&self, index: usize) {
        self.wait_while(|active| active.threads.get(&index).copied());
    }

    /// In the accept loop of the main server: blocks it if that is asked for, until `stop`.
    pub(crate) fn in_accept_loop(&self, stop: &AtomicBool) {
        self.wait_while(|active| active.accept.filter(|_| !stop.load(Ordering::Relaxed)));
    }

    /// How long the liveness monitor is to do nothing.
    pub(crate) fn monitor_pause(&self) -> Option<Duration> {
        if !self.armed.load(Ordering::Relaxed) {
            return None;
        }
        let left = self.active.lock().monitor?.saturating_since(self.clock.now());
        (!left.is_zero()).then(|| left.min(LOOK))
    }

    /// Before a step: blocks the thread if it is to be slow; whether it is to fail.
    pub(crate) fn fails(&self, step: FaultStep) -> bool {
        if !self.armed.load(Ordering::Relaxed) {
            return false;
        }
        if let Some((until, clears)) = self.slow(step) {
            self.wait_while(|active| (active.clears == clears).then_some(until));
        }
        self.is_to_fail(step)
    }

    /// The same on a thread that has other things to do meanwhile.
    pub(crate) async fn fails_async(&self, step: FaultStep) -> bool {
        if !self.armed.load(Ordering::Relaxed) {
            return false;
        }
        if let Some((until, clears)) = self.slow(step) {
            while self.clock.now() < until && self.active.lock().clears == clears {
                tokio::time::sleep(LOOK).await;
            }
        }
        self.is_to_fail(step)
    }

    /// Until when a step that begins now is held up, if no clear comes.
    fn slow(&self, step: FaultStep) -> Option<(Instant, u64)> {
        let active = self.active.lock();
        let now = self.clock.now();
        let (each, _) = active.slow.get(&step).filter(|(_, until)| *until > now)?;
        Some((now.saturating_add(*each), active.clears))
    }

    fn is_to_fail(&self, step: FaultStep) -> bool {
        let mut active = self.active.lock();
        let Some(times) = active.failing.get_mut(&step) else { return false };
        *times -= 1;
        if *times == 0 {
            active.failing.remove(&step);
        }
        true
    }

    /// Blocks the calling thread until the end that `until` names has passed or it names none any more.
    fn wait_while(&self, mut until: impl FnMut(&Active) -> Option<Instant>) {
        if !self.armed.load(Ordering::Relaxed) {
            return;
        }
        let mut active = self.active.lock();
        while let Some(end) = until(&active) {
            let left = end.saturating_since(self.clock.now());
            if left.is_zero() {
                return;
            }
            self.changed.wait_for(&mut active, left.min(LOOK));
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("enabled", &self.enabled()).finish_non_exhaustive()
    }
}

impl fmt::Debug for FaultTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultTarget").field("threads", &self.threads).finish_non_exhaustive()
    }
}
