//! Who is alive (B1-B5): a record for each incarnation of a client, and the monitor that judges silence.

mod clients;
mod monitor;

pub(crate) use clients::Clients;
pub(crate) use monitor::Monitor;

pub(crate) use crate::types::LivenessState;
use crate::{clock::Instant, types::ClientId};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

const STATE_SHIFT: u32 = 62;
const TIME_MASK: u64 = (1 << STATE_SHIFT) - 1;

/// One incarnation of a client: created by its first successful Mount or `ReMount` (B3), and dead for good once it is
/// Offline. State and time share one word, so a signal and a verdict can never both win.
#[derive(Debug)]
pub(crate) struct ClientLivenessRecord {
    id: ClientId,
    /// State in the upper two bits; below, in nanoseconds: the last signal while Active, the commit of the
    /// present state otherwise (B2: suspicion lasts from its commit).
    word: AtomicU64,
    /// Remount readiness (`ok_client`, B5): set by a `ReMount`, independent of liveness.
    ready: AtomicBool,
    /// Whether it ever sent a Ping: tells "never started" from "stopped" in the log.
    pinged: AtomicBool,
}

/// A reading of a record, to compare and swap against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict(u64);

impl Verdict {
    pub(crate) fn state(self) -> LivenessState {
        match self.0 >> STATE_SHIFT {
            0 => LivenessState::Active,
            1 => LivenessState::Suspected,
            _ => LivenessState::Offline,
        }
    }

    pub(crate) fn since(self) -> Instant {
        Instant::from_nanos(self.0 & TIME_MASK)
    }

    fn new(state: LivenessState, since: Instant) -> Verdict {
        let state = match state {
            LivenessState::Active => 0,
            LivenessState::Suspected => 1,
            LivenessState::Offline => 2,
        };
        Verdict(since.as_nanos() & TIME_MASK | state << STATE_SHIFT)
    }
}

/// What a signal of life did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Observed {
    /// The client was and is Active.
    Active,
    /// It was Suspected and is Active again.
    Recovered,
    /// Too late: Offline is terminal.
    Offline,
}

impl ClientLivenessRecord {
    pub(crate) fn new(id: ClientId, now: Instant) -> ClientLivenessRecord {
        ClientLivenessRecord {
            id,
            word: AtomicU64::new(Verdict::new(LivenessState::Active, now).0),
            ready: AtomicBool::new(false),
            pinged: AtomicBool::new(false),
        }
    }

    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    pub(crate) fn read(&self) -> Verdict {
        Verdict(self.word.load(Ordering::Acquire))
    }

    pub(crate) fn state(&self) -> LivenessState {
        self.read().state()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    pub(crate) fn ever_pinged(&self) -> bool {
        self.pinged.load(Ordering::Relaxed)
    }

    pub(crate) fn note_ping(&self) {
        if !self.ever_pinged() {
            self.pinged.store(true, Ordering::Relaxed);
        }
    }

    /// A signal of life.
    pub(crate) fn observe(&self, now: Instant) -> Observed {
        let mut seen = self.read();
        loop {
            let observed = match seen.state() {
                LivenessState::Active => Observed::Active,
                LivenessState::Suspected => Observed::Recovered,
                LivenessState::Offline => return Observed::Offline,
            };
            let since = if observed == Observed::Active { now.max(seen.since()) } else { now };
            match self.swap(seen, Verdict::new(LivenessState::Active, since)) {
                Ok(()) => return observed,
                Err(newer) => seen = newer,
            }
        }
    }

    /// Commits `state`, unless anything happened since `seen`.
    pub(crate) fn commit(&self, seen: Verdict, state: LivenessState, now: Instant) -> bool {
        self.swap(seen, Verdict::new(state, now)).is_ok()
    }

    /// Takes `by` off the silence of the client: the master itself did not listen for that long.
    pub(crate) fn forgive(&self, by: Duration, now: Instant) {
        let mut seen = self.read();
        while seen.state() != LivenessState::Offline {
            let since = seen.since().saturating_add(by).min(now).max(seen.since());
            match self.swap(seen, Verdict::new(seen.state(), since)) {
                Ok(()) => return,
                Err(newer) => seen = newer,
            }
        }
    }

    fn swap(&self, seen: Verdict, new: Verdict) -> Result<(), Verdict> {
        self.word
            .compare_exchange(seen.0, new.0, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(Verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.saturating_add(SECOND * seconds as u32)
    }

    #[test]
    fn observation_recovers_suspected_but_not_offline() {
        let record = ClientLivenessRecord::new(ClientId { first: 1, second: 2 }, at(1));
        assert_eq!(record.observe(at(2)), Observed::Active);
        assert_eq!(record.read().since(), at(2));
        assert!(record.commit(record.read(), LivenessState::Suspected, at(20)));
        assert_eq!((record.state(), record.read().since()), (LivenessState::Suspected, at(20)));
        assert_eq!(record.observe(at(21)), Observed::Recovered);
        assert!(record.commit(record.read(), LivenessState::Offline, at(30)));
        assert_eq!(record.observe(at(31)), Observed::Offline);
        record.forgive(SECOND, at(40));
        assert_eq!((record.state(), record.read().since()), (LivenessState::Offline, at(30)));
    }

    #[test]
    fn a_verdict_loses_against_a_signal_in_between() {
        let record = ClientLivenessRecord::new(ClientId::default(), at(1));
        let seen = record.read();
        record.observe(at(5));
        assert!(!record.commit(seen, LivenessState::Suspected, at(5)));
        assert_eq!(record.state(), LivenessState::Active);
        // An older signal that arrives late takes nothing back.
        record.observe(at(3));
        assert_eq!(record.read().since(), at(5));
    }

    #[test]
    fn forgiving_never_reaches_into_the_future() {
        let record = ClientLivenessRecord::new(ClientId::default(), at(1));
        record.forgive(SECOND * 3, at(10));
        assert_eq!(record.read().since(), at(4));
        record.forgive(SECOND * 100, at(10));
        assert_eq!(record.read().since(), at(10));
        record.forgive(SECOND, at(9));
        assert_eq!(record.read().since(), at(10));
    }
}
