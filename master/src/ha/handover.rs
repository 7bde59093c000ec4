//! A planned hand-over as the old holder lives it (design §6.7): pure, without threads or network.
//!
//! Calls are held; running ones may end; then the permit goes, then the lease is released for the successor. From then on
//! nothing is answered. Once somebody has claimed, connections stay open until that one's pod is ready, so that a client
//! that reconnects finds a master where the Service leads it.

use super::Deadlines;
use crate::clock::Instant;
use std::time::Duration;

/// How often it is looked whether running calls have ended.
const LOOK: Duration = Duration::from_millis(5);
/// The last call has ended, but its answer may be on its way to the socket.
const GRACE: Duration = Duration::from_millis(20);

/// A hand-over under way.
#[derive(Debug)]
pub(super) struct Handover {
    successor: String,
    phase: Phase,
    deadlines: Deadlines,
}

#[derive(Debug)]
enum Phase {
    /// No call begins. Running ones may end until `until`; `quiet`: since when there is none.
    Draining { until: Instant, quiet: Option<Instant> },
    /// The permit is gone and the release is under way or written.
    Released,
    /// Somebody claimed. `ready`: since when that one's pod has been seen ready without a break. `gone`: it holds the
    /// lease no more.
    Succeeded { pod: String, until: Instant, ready: Option<Instant>, gone: bool },
}

/// The process that claimed, as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Successor {
    /// Its pod is ready.
    Ready,
    /// Its pod is not ready, or cannot be seen.
    NotReady,
    /// Its pod is gone, or the lease is not its any more.
    Gone,
}

impl Handover {
    /// Calls are held from now on.
    pub(super) fn begin(now: Instant, successor: String, deadlines: Deadlines) -> Handover {
        let until = now.saturating_add(deadlines.drain);
        Handover { successor, phase: Phase::Draining { until, quiet: None }, deadlines }
    }

    /// The incarnation that is to lead.
    pub(super) fn successor(&self) -> &str {
        &self.successor
    }

    /// Whether the permit is to go now; true once. `calls`: whether any is under way.
    pub(super) fn drained(&mut self, now: Instant, calls: bool) -> bool {
        let Phase::Draining { until, quiet } = &mut self.phase else { return false };
        let quiet_since = if calls { None } else { Some(quiet.unwrap_or(now)) };
        *quiet = quiet_since;
        let done = *until <= now || quiet_since.is_some_and(|since| since.saturating_add(GRACE) <= now);
        if done {
            self.phase = Phase::Released;
        }
        done
    }

    /// Whether the permit went because of this.
    pub(super) fn released(&self) -> bool {
        !matches!(self.phase, Phase::Draining { .. })
    }

    /// Somebody claimed, as it was read now. `pod`: of the new holder.
    pub(super) fn succeeded(&mut self, now: Instant, pod: String) {
        let until = now.saturating_add(self.deadlines.see_off);
        self.phase = Phase::Succeeded { pod, until, ready: None, gone: false };
    }

    /// The pod of the one that claimed.
    pub(super) fn new_holder(&self) -> Option<&str> {
        match &self.phase {
            Phase::Succeeded { pod, .. } => Some(pod),
            _ => None,
        }
    }

    /// What was seen of that one.
    pub(super) fn saw(&mut self, now: Instant, seen: Successor) {
        if let Phase::Succeeded { ready, gone, .. } = &mut self.phase {
            *ready = (seen == Successor::Ready).then(|| ready.unwrap_or(now));
            *gone |= seen == Successor::Gone;
        }
    }

    /// Whether the connections can go: the new holder was ready for long enough, or is one no more, or it has taken too
    /// long.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let Phase::Succeeded { until, ready, gone, .. } = &self.phase else { return false };
        let settled = ready.is_some_and(|since| since.saturating_add(self.deadlines.successor_ready) <= now);
        settled || *gone || *until <= now
    }

    /// When to look again.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Draining { until, .. } => Some(until.min(now.saturating_add(LOOK))),
            Phase::Released | Phase::Succeeded { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Successor::{Gone, NotReady, Ready},
        *,
    };

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn begun() -> Handover {
        Handover::begin(at(1000), "x".into(), Deadlines::default())
    }

    #[test]
    fn without_running_calls_it_takes_only_the_grace() {
        let mut h = begun();
        assert!(!h.drained(at(1000), false) && !h.released());
        assert_eq!(h.next(at(1000)), Some(at(1005)));
        assert!(!h.drained(at(1019), false));
        assert!(h.drained(at(1020), false) && h.released());
        assert!(!h.drained(at(1021), false), "once");
        assert_eq!((h.next(at(1021)), h.successor()), (None, "x"));
    }

    #[test]
    fn a_running_call_is_waited_for_but_not_for_ever() {
        let mut h = begun();
        assert!(!h.drained(at(1010), false));
        assert!(!h.drained(at(1015), true), "it may have begun before the hold");
        assert!(!h.drained(at(1500), false) && !h.drained(at(1519), false) && h.drained(at(1520), false));
        let mut h = begun();
        assert!(!h.drained(at(1999), true));
        assert_eq!(h.next(at(1999)), Some(at(2000)));
        assert!(h.drained(at(2000), true));
    }

    #[test]
    fn connections_go_when_the_new_holder_was_ready_for_two_seconds_or_after_ten() {
        let mut h = begun();
        assert!(h.drained(at(2000), true) && !h.is_over(at(60_000)), "nobody claimed yet");
        assert_eq!(h.new_holder(), None);
        h.saw(at(2500), Ready);
        h.succeeded(at(3000), "m-1".into());
        assert_eq!(h.new_holder(), Some("m-1"));
        h.saw(at(3500), Ready);
        assert!(!h.is_over(at(5499)) && h.is_over(at(5500)));
        h.saw(at(5400), NotReady);
        assert!(!h.is_over(at(5500)), "ready without a break");
        h.saw(at(6000), Ready);
        h.saw(at(7000), Ready);
        assert!(!h.is_over(at(7999)) && h.is_over(at(8000)));
        h.saw(at(7999), NotReady);
        assert!(!h.is_over(at(12_999)) && h.is_over(at(13_000)));
    }

    #[test]
    fn connections_go_at_once_when_the_new_holder_is_one_no_more() {
        let mut h = begun();
        assert!(h.drained(at(2000), true));
        h.succeeded(at(3000), "m-1".into());
        h.saw(at(3100), NotReady);
        assert!(!h.is_over(at(3100)));
        h.saw(at(3200), Gone);
        h.saw(at(3300), NotReady);
        assert!(h.is_over(at(3300)), "whatever comes in its place");
    }
}
