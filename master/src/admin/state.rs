//! Readiness: what the process says about itself, as atomics that anybody may read at any time.

use super::probe::ProbeTarget;
use crate::permit::ServingPermit;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

const AVAILABLE: u64 = 1;
const PROBE_OK: u64 = 2;
const GENERATION: u64 = 4;

/// The two facts behind `/readyz`, `service_available` and `rpc_probe_ok`, in one atomic word (A5).
///
/// Invariant: `rpc_probe_ok` is false whenever `service_available` is. The word also carries a generation that changes
/// with every change of `service_available`; a probe's result is taken only in the generation in which it began, so a
/// late one is discarded however late it is.
pub struct Readiness {
    word: AtomicU64,
    probe_enabled: bool,
    latency_ms: AtomicU64,
    failures: AtomicU64,
    permit: Arc<ServingPermit>,
    target: watch::Sender<Target>,
}

/// What the probe should be looking at.
#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    pub(super) generation: u64,
    pub(super) serving: Option<Arc<ProbeTarget>>,
}

impl Readiness {
    /// Not serving. With the probe off `/readyz` follows `service_available` alone (A8).
    pub fn new(probe_enabled: bool, permit: Arc<ServingPermit>) -> Readiness {
        Readiness {
            word: AtomicU64::new(0),
            probe_enabled,
            latency_ms: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            permit,
            target: watch::channel(Target::default()).0,
        }
    }

    /// `service_available` turns true: the RPC server of `target` serves. The first probe begins at once.
    pub fn serve(&self, target: ProbeTarget) {
        self.change(Some(Arc::new(target)), AVAILABLE);
    }

    /// `service_available` turns false, and with it `rpc_probe_ok`.
    pub fn stop_serving(&self) {
        self.change(None, 0);
    }

    fn change(&self, serving: Option<Arc<ProbeTarget>>, bits: u64) {
        self.target.send_modify(|target| {
            let generation = target.generation + 1;
            self.word.store((generation * GENERATION) | bits, Ordering::Release);
            *target = Target { generation, serving };
        });
    }

    /// The cached answer of `/readyz`, of the gRPC health service, and of nobody's lock.
    pub fn is_ready(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        let wanted = if self.probe_enabled { AVAILABLE | PROBE_OK } else { AVAILABLE };
        word & wanted == wanted && self.permit.held()
    }

    /// Whether this process is the one that serves; false on a standby and while the permit is missing.
    pub fn service_available(&self) -> bool {
        self.word.load(Ordering::Acquire) & AVAILABLE != 0 && self.permit.held()
    }

    /// Whether the last probe was good.
    pub fn probe_ok(&self) -> bool {
        self.word.load(Ordering::Acquire) & PROBE_OK != 0
    }

    /// Whether there is a probe at all.
    pub fn probe_enabled(&self) -> bool {
        self.probe_enabled
    }

    /// Time of the last probe, milliseconds.
    pub fn probe_latency_ms(&self) -> u64 {
        self.latency_ms.load(Ordering::Relaxed)
    }

    /// Probes that failed since the start.
    pub fn probe_failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Takes up the result of a probe that began in `generation`. False if it came too late and was discarded.
    pub(super) fn record(&self, generation: u64, ok: bool, latency: Duration) -> bool {
        let serving = (generation * GENERATION) | AVAILABLE;
        let bits = if ok { serving | PROBE_OK } else { serving };
        let taken = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (word & !PROBE_OK == serving).then_some(bits)
            })
            .is_ok();
        if taken {
            self.latency_ms.store(latency.as_millis() as u64, Ordering::Relaxed);
            self.failures.fetch_add(u64::from(!ok), Ordering::Relaxed);
        }
        taken
    }

    /// The permit is missing: what the last probe said holds no more.
    pub(super) fn forget_probe(&self) {
        self.word.fetch_and(!PROBE_OK, Ordering::AcqRel);
    }

    pub(super) fn watch(&self) -> watch::Receiver<Target> {
        self.target.subscribe()
    }

    /// When each data thread last ticked, clock milliseconds; empty while nothing serves.
    pub(super) fn ticks(&self) -> Vec<u64> {
        let serving = self.target.borrow().serving.clone();
        serving.map_or_else(Vec::new, |target| (target.ticks)())
    }

    pub(super) fn permit(&self) -> &ServingPermit {
        &self.permit
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness")
            .field("service_available", &self.service_available())
            .field("probe_ok", &self.probe_ok())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{BootClock, Clock, Instant, ManualClock};

    fn target() -> ProbeTarget {
        ProbeTarget { address: ([127, 0, 0, 1], 1).into(), ticks: Arc::new(Vec::new) }
    }

    #[test]
    fn truth_table_of_readyz() {
        for (probe, available, ok, permit, ready) in [
            (true, true, true, true, true),
            (true, true, false, true, false),
            (true, true, true, false, false),
            (true, false, true, true, false),
            (true, false, false, true, false),
            (false, true, false, true, true),
            (false, true, false, false, false),
            (false, false, false, true, false),
        ] {
            let clock: Arc<dyn Clock> = Arc::new(BootClock);
            let given = ServingPermit::standalone(clock.clone());
            let readiness =
                Readiness::new(probe, Arc::new(if permit { given } else { ServingPermit::withheld(clock) }));
            if available {
                readiness.serve(target());
            }
            readiness.record(1, ok, Duration::ZERO);
            assert_eq!(readiness.is_ready(), ready, "{probe} {available} {ok} {permit}");
            assert_eq!(readiness.service_available(), available && permit);
        }
    }

    #[test]
    fn late_results_are_discarded_and_a_restart_begins_unready() {
        let readiness = Readiness::new(true, Arc::new(ServingPermit::standalone(Arc::new(BootClock))));
        readiness.serve(target());
        let first = readiness.watch().borrow().generation;
        assert!(readiness.record(first, true, Duration::from_millis(4)));
        assert!(readiness.is_ready());
        assert_eq!(readiness.probe_latency_ms(), 4);
        readiness.stop_serving();
        assert!(!readiness.probe_ok() && !readiness.is_ready());
        assert!(!readiness.record(first, true, Duration::ZERO), "after the end");
        readiness.serve(target());
        assert!(!readiness.record(first, true, Duration::ZERO), "of the time before");
        assert!(!readiness.is_ready());
        let second = readiness.watch().borrow().generation;
        assert!(readiness.record(second, false, Duration::from_secs(3)));
        assert_eq!((readiness.probe_failures(), readiness.probe_latency_ms()), (1, 3000));
        assert!(readiness.record(second, true, Duration::ZERO) && readiness.is_ready());
    }

    #[test]
    fn without_the_permit_nothing_is_ready() {
        let clock = ManualClock::new(Instant::from_nanos(1));
        let permit = Arc::new(ServingPermit::withheld(clock.clone()));
        permit.extend(4, clock.now().saturating_add(Duration::from_secs(3)));
        let readiness = Readiness::new(true, permit.clone());
        readiness.serve(target());
        readiness.record(1, true, Duration::ZERO);
        assert!(readiness.is_ready());
        clock.advance(Duration::from_secs(3));
        assert!(!readiness.is_ready() && !readiness.service_available());
    }
}
