//! The serving permit (design §6.5): may this process answer from its state right now?

use crate::clock::{Clock, Instant};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// One atomic that the lease thread writes and that every data call and every Ping reads before it works and again
/// directly before the write to the socket. Without it nothing is answered and nothing moves: no liveness transition,
/// eviction, discard or offboarding step.
///
/// Invariant: the stored instant is never later than the last proven renewal (stamped before the request was sent)
/// plus the renew deadline; standalone it is [`Instant::MAX`].
pub struct ServingPermit {
    until: AtomicU64,
    epoch: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl ServingPermit {
    /// A permit that is not given: the state in which a master with HA starts.
    pub fn withheld(clock: Arc<dyn Clock>) -> ServingPermit {
        ServingPermit { until: AtomicU64::new(0), epoch: AtomicU64::new(0), clock }
    }

    /// A permit for ever, epoch 0: a standalone master.
    pub fn standalone(clock: Arc<dyn Clock>) -> ServingPermit {
        ServingPermit { until: AtomicU64::new(u64::MAX), epoch: AtomicU64::new(0), clock }
    }

    /// Whether the process may answer now.
    pub fn held(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == u64::MAX || self.clock.now().as_nanos() < until
    }

    /// The epoch under which the permit was last given; 0 without HA. It is the `view_version` of the native wire.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Gives or extends the permit. The lease thread only.
    pub fn extend(&self, epoch: u64, until: Instant) {
        self.epoch.store(epoch, Ordering::Release);
        self.until.store(until.as_nanos(), Ordering::Release);
    }

    /// Takes the permit away at once. The lease thread only.
    pub fn revoke(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// When the permit ends, as last written.
    pub fn until(&self) -> Instant {
        Instant::from_nanos(self.until.load(Ordering::Acquire))
    }
}

impl fmt::Debug for ServingPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingPermit").field("until", &self.until()).field("epoch", &self.epoch()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use std::time::Duration;

    #[test]
    fn ends_by_itself_and_can_be_extended_and_revoked() {
        let clock = ManualClock::new(Instant::from_nanos(1));
        let permit = ServingPermit::withheld(clock.clone());
        assert!(!permit.held());
        permit.extend(7, clock.now().saturating_add(Duration::from_secs(3)));
        assert!(permit.held());
        assert_eq!(permit.epoch(), 7);
        clock.advance(Duration::from_secs(3));
        assert!(!permit.held());
        permit.extend(7, clock.now().saturating_add(Duration::from_secs(3)));
        assert!(permit.held());
        permit.revoke();
        assert!(!permit.held());
        assert!(ServingPermit::standalone(clock).held());
    }
}
