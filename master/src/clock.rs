//! Injected time. Only monotonic clocks decide anything; this module is the one place that reads them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A point on a monotonic clock, in nanoseconds since an arbitrary origin that is fixed per process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Instant = Instant(0);
    /// Later than every reading.
    pub const MAX: Instant = Instant(u64::MAX);

    /// From nanoseconds since the origin.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Milliseconds since the origin, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// `self - earlier`, zero when `earlier` is later.
    pub const fn saturating_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self + duration`, at most [`Instant::MAX`].
    #[must_use]
    pub const fn saturating_add(self, duration: Duration) -> Instant {
        let nanos = duration.as_nanos();
        if nanos > u64::MAX as u128 { Instant::MAX } else { Instant(self.0.saturating_add(nanos as u64)) }
    }

    /// `self - duration`, at least [`Instant::ZERO`].
    #[must_use]
    pub const fn saturating_sub(self, duration: Duration) -> Instant {
        let nanos = duration.as_nanos();
        if nanos > u64::MAX as u128 { Instant::ZERO } else { Instant(self.0.saturating_sub(nanos as u64)) }
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// A monotonic clock.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Now.
    fn now(&self) -> Instant;
}

/// `CLOCK_BOOTTIME`: monotonic, and it counts a suspended machine's time, so that a permit ends during a suspend.
#[derive(Debug, Default, Clone, Copy)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Instant {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Instant(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }
}

/// A clock that a test moves by hand.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn new(start: Instant) -> Arc<ManualClock> {
        Arc::new(ManualClock(AtomicU64::new(start.as_nanos())))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant(self.0.load(Ordering::SeqCst))
    }
}
