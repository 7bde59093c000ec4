//! The serving permit (design §6.5): may this process answer from its state right now?

use crate::clock::{Clock, Instant};
use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering, fence},
    },
};
use tokio::sync::watch;

/// One atomic that the lease thread writes and that every data call and every Ping reads before it works and again
/// directly before the write to the socket. Without it nothing is answered and nothing moves: no liveness transition,
/// eviction, discard or offboarding step.
///
/// For a planned hand-over the lease thread *holds* it (design §6.7): calls then wait for the end of their connection
/// instead of being refused. First running calls may end ([`ServingPermit::begin_hold`]), then nothing is written any
/// more ([`ServingPermit::suspend`]).
///
/// Invariant: the stored instant is never later than the last proven renewal (stamped before the request was sent)
/// plus the renew deadline; standalone it is [`Instant::MAX`].
pub struct ServingPermit {
    until: AtomicU64,
    epoch: AtomicU64,
    hold: AtomicU8,
    /// Whether there is a hold, for those who wait for its end.
    holding: watch::Sender<bool>,
    since: AtomicU64,
    clock: Arc<dyn Clock>,
}

/// No hold.
const OPEN: u8 = 0;
/// No call begins; what runs may end and be answered.
const DRAINING: u8 = 1;
/// Nothing is written.
const SUSPENDED: u8 = 2;

impl ServingPermit {
    fn new(until: u64, clock: Arc<dyn Clock>) -> ServingPermit {
        ServingPermit {
            until: AtomicU64::new(until),
            epoch: AtomicU64::new(0),
            since: AtomicU64::new(0),
            hold: AtomicU8::new(OPEN),
            holding: watch::Sender::new(false),
            clock,
        }
    }

    /// A permit that is not given: the state in which a master with HA starts.
    pub fn withheld(clock: Arc<dyn Clock>) -> ServingPermit {
        ServingPermit::new(0, clock)
    }

    /// A permit for ever, epoch 0: a standalone master.
    pub fn standalone(clock: Arc<dyn Clock>) -> ServingPermit {
        ServingPermit::new(u64::MAX, clock)
    }

    /// Whether a call or a step of the process's own may begin now.
    pub fn held(&self) -> bool {
        self.hold.load(Ordering::Acquire) == OPEN && self.stands()
    }

    /// Whether a call that has begun may go on and be answered now.
    pub fn may_answer(&self) -> bool {
        self.hold.load(Ordering::Acquire) != SUSPENDED && self.stands()
    }

    fn stands(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == u64::MAX || self.clock.now().as_nanos() < until
    }

    /// The epoch under which the permit was last given; 0 without HA. It is the `view_version` of the native wire.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Gives or extends the permit. The lease thread only.
    pub fn extend(&self, epoch: u64, until: Instant) {
        if !self.held() {
            self.since.store(self.clock.now().as_nanos(), Ordering::Release);
        }
        self.epoch.store(epoch, Ordering::Release);
        self.until.store(until.as_nanos(), Ordering::Release);
    }

    /// Takes the permit away at once. The lease thread only.
    pub fn revoke(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// Since when the permit has been held without a gap, or was held last.
    pub fn since(&self) -> Instant {
        Instant::from_nanos(self.since.load(Ordering::Acquire))
    }

    /// When the permit ends, as last written.
    pub fn until(&self) -> Instant {
        Instant::from_nanos(self.until.load(Ordering::Acquire))
    }

    /// From now on no call begins. The lease thread only.
    pub fn begin_hold(&self) {
        self.hold.store(DRAINING, Ordering::Release);
        self.holding.send_replace(true);
    }

    /// From now on nothing is answered, and who would answer waits for the end of the hold. The permit is revoked. Who
    /// announced a write before it looked at the permit is seen by whoever looks for announcements after this
    /// ([`Connections::abort_writing`](crate::ha::connections::Connections::abort_writing)). The lease thread only.
    pub fn suspend(&self) {
        self.hold.store(SUSPENDED, Ordering::Release);
        self.revoke();
        fence(Ordering::SeqCst);
    }

    /// Ends a hold and wakes those who wait for that, without waiting for them. The lease thread only.
    pub fn end_hold(&self) {
        self.since.store(self.clock.now().as_nanos(), Ordering::Release);
        self.hold.store(OPEN, Ordering::Release);
        self.holding.send_replace(false);
    }

    /// Whether calls are held at present.
    pub fn is_holding(&self) -> bool {
        self.hold.load(Ordering::Acquire) != OPEN
    }

    /// Whether nothing is written because of a hold.
    pub fn is_suspended(&self) -> bool {
        self.hold.load(Ordering::Acquire) == SUSPENDED
    }

    /// Ends when there is no hold; at once if there is none.
    pub fn hold_over(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut holding = self.holding.subscribe();
        async move {
            // The permit lives as long as the process; without it there is nothing to wait for, either.
            let _ = holding.wait_for(|holding| !holding).await;
        }
    }
}

impl fmt::Debug for ServingPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingPermit")
            .field("until", &self.until())
            .field("epoch", &self.epoch())
            .field("holding", &self.is_holding())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use futures::FutureExt;
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
        assert_eq!(permit.since(), Instant::from_nanos(1));
        permit.extend(7, clock.now().saturating_add(Duration::from_secs(3)));
        assert!(permit.held());
        clock.advance(Duration::from_secs(1));
        permit.extend(7, clock.now().saturating_add(Duration::from_secs(3)));
        assert_eq!(permit.since(), Instant::from_nanos(3_000_000_001), "an extension is no new beginning");
        permit.revoke();
        assert!(!permit.held());
        assert!(ServingPermit::standalone(clock).held());
    }

    #[test]
    fn a_hold_lets_nothing_begin_and_then_nothing_end() {
        let clock = ManualClock::new(Instant::from_nanos(1));
        let permit = ServingPermit::withheld(clock.clone());
        let extend = || permit.extend(7, clock.now().saturating_add(Duration::from_secs(3)));
        extend();
        assert_eq!(permit.hold_over().now_or_never(), Some(()));
        permit.begin_hold();
        assert!(!permit.held() && permit.may_answer());
        extend();
        assert!(!permit.held() && permit.may_answer(), "a renewal is no end of the hold");
        let mut over = Box::pin(permit.hold_over());
        assert!(over.as_mut().now_or_never().is_none());
        permit.suspend();
        assert!(!permit.may_answer() && permit.is_suspended());
        extend();
        assert!(!permit.held() && !permit.may_answer(), "not even under a new permit");
        permit.end_hold();
        assert!(permit.held() && permit.may_answer() && !permit.is_holding());
        assert_eq!(over.now_or_never(), Some(()));
    }
}
