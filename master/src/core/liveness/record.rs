//! One incarnation of a client. The crate `interleavings` runs every interleaving of what is here under loom.

use super::{
    Listener,
    sync::{AtomicBool, AtomicU16, AtomicU64, Ordering},
};
use crate::{
    clock::Instant,
    types::{ClientId, LivenessState},
};
use std::time::Duration;

const STATE_SHIFT: u32 = 62;
const TIME_MASK: u64 = (1 << STATE_SHIFT) - 1;

const ACTIVE: u64 = 0;
const SUSPECTED: u64 = 1;
const OFFLINE: u64 = 2;
/// Suspected, and held there for one more window because many fell silent at once (B2).
const HELD: u64 = 3;

/// One incarnation of a client: created by its first successful Mount or `ReMount` (B3), and dead for good once it is
/// Offline. State and time share one word, so a signal and a verdict can never both win.
#[derive(Debug)]
pub(crate) struct ClientLivenessRecord {
    id: ClientId,
    /// Tells incarnations of one client apart, in this process and from those of other masters (B13).
    incarnation: u64,
    /// State in the upper two bits; below, in nanoseconds: the last signal while Active, the commit of the
    /// present state otherwise (B2: suspicion lasts from its commit).
    word: AtomicU64,
    /// When the present state was entered, nanoseconds, and nothing forgiven: for people. It is written after the
    /// word, so it may be a moment behind.
    entered: AtomicU64,
    /// The number of the listener that heard the last signal. It is written before the word, so whoever has read a
    /// word knows at least the listener of that signal.
    heard_by: AtomicU16,
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
            ACTIVE => LivenessState::Active,
            SUSPECTED | HELD => LivenessState::Suspected,
            _ => LivenessState::Offline,
        }
    }

    /// Suspected for twice the time, as one of many that fell silent at once.
    pub(crate) fn is_held(self) -> bool {
        self.0 >> STATE_SHIFT == HELD
    }

    pub(crate) fn since(self) -> Instant {
        Instant::from_nanos(self.0 & TIME_MASK)
    }

    fn new(state: u64, since: Instant) -> Verdict {
        Verdict(since.as_nanos() & TIME_MASK | state << STATE_SHIFT)
    }

    /// The same state, since another time.
    fn at(self, since: Instant) -> Verdict {
        Verdict::new(self.0 >> STATE_SHIFT, since)
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
    pub(crate) fn new(id: ClientId, incarnation: u64, now: Instant) -> ClientLivenessRecord {
        ClientLivenessRecord {
            id,
            incarnation,
            word: AtomicU64::new(Verdict::new(ACTIVE, now).0),
            entered: AtomicU64::new(now.as_nanos()),
            heard_by: AtomicU16::new(Listener::UNKNOWN.number()),
            ready: AtomicBool::new(false),
            pinged: AtomicBool::new(false),
        }
    }

    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(crate) fn read(&self) -> Verdict {
        Verdict(self.word.load(Ordering::Acquire))
    }

    pub(crate) fn state(&self) -> LivenessState {
        self.read().state()
    }

    /// When the present state was entered.
    pub(crate) fn entered(&self) -> Instant {
        Instant::from_nanos(self.entered.load(Ordering::Relaxed))
    }

    /// Who heard the last signal.
    pub(crate) fn heard_by(&self) -> Listener {
        Listener::new(self.heard_by.load(Ordering::Relaxed))
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

    /// A signal of life, heard by that listener.
    pub(crate) fn observe(&self, now: Instant, by: Listener) -> Observed {
        if self.heard_by() != by {
            self.heard_by.store(by.number(), Ordering::Relaxed);
        }
        let mut seen = self.read();
        loop {
            let observed = match seen.state() {
                LivenessState::Active => Observed::Active,
                LivenessState::Suspected => Observed::Recovered,
                LivenessState::Offline => return Observed::Offline,
            };
            let since = if observed == Observed::Active { now.max(seen.since()) } else { now };
            match self.swap(seen, Verdict::new(ACTIVE, since)) {
                Ok(()) => {
                    if observed == Observed::Recovered {
                        self.entered.store(now.as_nanos(), Ordering::Relaxed);
                    }
                    return observed;
                }
                Err(newer) => seen = newer,
            }
        }
    }

    /// Commits Active → Suspected, unless anything happened since `seen`.
    pub(crate) fn suspect(&self, seen: Verdict, now: Instant) -> bool {
        debug_assert_eq!(seen.state(), LivenessState::Active);
        self.commit(seen, Verdict::new(SUSPECTED, now), Some(now))
    }

    /// Holds a Suspected client for one more window, unless anything happened since `seen`. Since when it is Suspected
    /// stays.
    pub(crate) fn hold(&self, seen: Verdict) -> bool {
        debug_assert_eq!(seen.state(), LivenessState::Suspected);
        self.commit(seen, Verdict::new(HELD, seen.since()), None)
    }

    /// Commits Offline, for good, unless anything happened since `seen`.
    pub(crate) fn retire(&self, seen: Verdict, now: Instant) -> bool {
        debug_assert_eq!(seen.state(), LivenessState::Suspected);
        self.commit(seen, Verdict::new(OFFLINE, now), Some(now))
    }

    fn commit(&self, seen: Verdict, new: Verdict, entered: Option<Instant>) -> bool {
        let committed = self.swap(seen, new).is_ok();
        if let (true, Some(now)) = (committed, entered) {
            self.entered.store(now.as_nanos(), Ordering::Relaxed);
        }
        committed
    }

    /// Takes `by` off the silence of the client: the master itself did not listen for that long.
    pub(crate) fn forgive(&self, by: Duration, now: Instant) {
        let mut seen = self.read();
        while seen.state() != LivenessState::Offline {
            let since = seen.since().saturating_add(by).min(now).max(seen.since());
            match self.swap(seen, seen.at(since)) {
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
