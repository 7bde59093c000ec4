//! What the lease thread knows about its own leadership, and what it owes: pure, without threads or network.

use super::{Deadlines, Promotion};
use crate::clock::Instant;

/// Why a holder gives the lease up by itself (design §6.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("the promotion made no progress in time")]
    NoProgress,
    #[error("the first self-probe was not good in time")]
    NotServing,
}

/// The leadership of this process, from its claim on.
#[derive(Debug)]
pub(super) struct Tenure {
    pub(super) epoch: u64,
    claimed: Instant,
    progressed: Instant,
    promoted: bool,
    probed: bool,
    /// Serving is held back by label writes until then.
    held_back: Option<Instant>,
    /// Since when the permit is missing; `None` while it stands. Meanwhile the deadlines stand still: nothing can be
    /// promoted or probed then, and nothing could be given up.
    without_permit: Option<Instant>,
    promotion: Option<Promotion>,
    deadlines: Deadlines,
}

impl Tenure {
    pub(super) fn new(now: Instant, promotion: Promotion, labels: bool, deadlines: Deadlines) -> Tenure {
        Tenure {
            epoch: promotion.epoch,
            claimed: now,
            progressed: now,
            promoted: false,
            probed: false,
            held_back: labels.then(|| now.saturating_add(deadlines.label_hold)),
            without_permit: Some(now),
            promotion: Some(promotion),
            deadlines,
        }
    }

    /// The permit is given or extended.
    pub(super) fn permit_given(&mut self, now: Instant) {
        if let Some(since) = self.without_permit.take() {
            let missing = now.saturating_since(since);
            self.claimed = self.claimed.saturating_add(missing);
            self.progressed = self.progressed.saturating_add(missing);
        }
    }

    /// The permit ended, at that time.
    pub(super) fn permit_ended(&mut self, at: Instant) {
        self.without_permit.get_or_insert(at);
    }

    /// The labels are as they should be.
    #[cfg(feature = "kubernetes")]
    pub(super) fn labelled(&mut self) {
        self.held_back = None;
    }

    /// Whether the permit of the lease may become the serving permit.
    pub(super) fn may_serve(&self, now: Instant) -> bool {
        self.held_back.is_none_or(|until| until <= now)
    }

    /// The promotion, the first time.
    pub(super) fn take_promotion(&mut self, now: Instant) -> Option<Promotion> {
        let promotion = self.promotion.take();
        if promotion.is_some() {
            self.progressed = now;
        }
        promotion
    }

    pub(super) fn progress(&mut self, now: Instant) {
        // While the deadlines stand still, so does their clock.
        self.progressed = self.without_permit.unwrap_or(now);
    }

    pub(super) fn set_promoted(&mut self) {
        self.promoted = true;
    }

    pub(super) fn set_probed(&mut self) {
        self.probed = true;
    }

    pub(super) fn promoted(&self) -> bool {
        self.promoted
    }

    fn progress_deadline(&self) -> Option<Instant> {
        (!self.promoted && self.without_permit.is_none())
            .then(|| self.progressed.saturating_add(self.deadlines.progress))
    }

    fn probe_deadline(&self) -> Option<Instant> {
        (!self.probed && self.without_permit.is_none())
            .then(|| self.claimed.saturating_add(self.deadlines.first_probe))
    }

    /// What has not happened in time.
    pub(super) fn failure(&self, now: Instant) -> Option<Failure> {
        if self.progress_deadline().is_some_and(|at| at <= now) {
            return Some(Failure::NoProgress);
        }
        self.probe_deadline().is_some_and(|at| at <= now).then_some(Failure::NotServing)
    }

    /// When to look again. A time that has come is not named any more: what it asked for was done when it came.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let times = [self.held_back, self.progress_deadline(), self.probe_deadline()];
        times.into_iter().flatten().filter(|&at| at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_secs(seconds))
    }

    fn tenure(labels: bool) -> Tenure {
        let promotion = Promotion { epoch: 3, previous_read_lease_ttl: None };
        let mut tenure = Tenure::new(at(100), promotion, labels, Deadlines::default());
        tenure.permit_given(at(100));
        tenure
    }

    #[cfg(feature = "kubernetes")]
    #[test]
    fn labels_hold_serving_back_for_a_second_at_most() {
        let mut held = tenure(true);
        assert!(!held.may_serve(at(100)) && held.may_serve(at(101)));
        assert_eq!(held.next(at(100)), Some(at(101)));
        held.labelled();
        assert!(held.may_serve(at(100)));
        assert!(tenure(false).may_serve(at(100)));
    }

    #[test]
    fn a_holder_that_does_not_get_to_serve_fails_in_time() {
        let mut t = tenure(false);
        assert_eq!(t.failure(at(109)), None);
        assert_eq!(t.failure(at(110)), Some(Failure::NoProgress));
        t.progress(at(109));
        assert_eq!(t.failure(at(118)), None);
        t.set_promoted();
        assert_eq!(t.failure(at(124)), None);
        assert_eq!(t.failure(at(125)), Some(Failure::NotServing));
        t.set_probed();
        assert_eq!((t.failure(at(1000)), t.next(at(1000))), (None, None));
    }

    #[test]
    fn a_time_that_has_come_is_not_waited_for_again() {
        let mut t = tenure(true);
        assert_eq!(
            t.next(at(101)),
            Some(at(110)),
            "labels that stay unwritten must not wake the thread for ever"
        );
        t.permit_ended(at(105));
        assert_eq!(t.next(at(105)), None, "nothing is due without the permit");
        assert_eq!(t.next(at(500)), None);
        t.permit_given(at(500));
        assert_eq!(t.next(at(500)), Some(at(505)));
        assert_eq!(t.next(at(600)), None, "not even a deadline that nobody acts on");
    }

    #[test]
    fn deadlines_stand_still_while_the_permit_is_missing() {
        let mut t = tenure(false);
        t.permit_ended(at(105));
        t.permit_ended(at(107));
        assert_eq!(t.failure(at(200)), None);
        t.permit_given(at(205));
        t.permit_given(at(206));
        assert_eq!(t.failure(at(209)), None);
        assert_eq!(t.failure(at(210)), Some(Failure::NoProgress));
        t.permit_ended(at(209));
        t.progress(at(300));
        t.permit_given(at(309));
        assert_eq!(t.failure(at(318)), None);
        assert_eq!(t.failure(at(319)), Some(Failure::NoProgress));
        t.set_promoted();
        assert_eq!(t.failure(at(324)), None);
        assert_eq!(t.failure(at(325)), Some(Failure::NotServing), "25 s with the permit, 200 s without it");
    }

    #[test]
    fn a_promotion_is_handed_out_once() {
        let mut t = tenure(false);
        assert!(t.take_promotion(at(100)).is_some());
        assert_eq!(t.take_promotion(at(100)), None);
    }
}
