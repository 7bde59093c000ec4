//! The machine's monotonic clock, which the client processes of a scenario share: their readings can be compared.

use std::{fmt, time::Duration};

/// A reading, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(u64);

impl Moment {
    /// Now.
    pub fn now() -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Moment(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// From nanoseconds of the same clock, read by another process.
    pub const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    /// `self - earlier`, zero when `earlier` is later.
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self + duration`.
    #[must_use]
    pub const fn after(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration.as_nanos() as u64))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.0 as f64 / 1e9)
    }
}
