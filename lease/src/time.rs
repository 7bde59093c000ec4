//! Time as the crate sees it: a monotonic instant decides, a wall time is only written down.

use std::{fmt, time::Duration};

/// A point on one process's monotonic clock: nanoseconds since an origin that is fixed per process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
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
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// Microseconds since 1970 in UTC. It goes into `renewTime` for people and for clients that read the Lease; this crate
/// never compares it with another process's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct WallTime(pub i64);

/// The last microsecond that RFC 3339 can express (year 9999).
const LAST_WALL: i64 = 253_402_300_799_999_999;

impl fmt::Display for WallTime {
    /// RFC 3339 with microseconds, as the API server's `MicroTime` wants it; clamped to the years 1970 to 9999.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.clamp(0, LAST_WALL) as u64;
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        let (mut days, second_of_day) = (seconds / 86_400, seconds % 86_400);
        let leap =
            |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
        let mut year = 1970;
        loop {
            let length = if leap(year) { 366 } else { 365 };
            if days < length {
                break;
            }
            days -= length;
            year += 1;
        }
        let mut month = 1;
        for length in [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
        let day = days + 1;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

/// One reading of both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Monotonic: what decisions are made on.
    pub at: Instant,
    /// Wall clock: written into records only.
    pub wall: WallTime,
}

/// The clock of a process, injected.
pub trait Clock: Send + Sync {
    /// Now, on a monotonic clock that also counts a suspended machine's time.
    fn now(&self) -> Instant;
    /// The wall clock.
    fn wall(&self) -> WallTime;
    /// Both.
    fn moment(&self) -> Moment {
        Moment { at: self.now(), wall: self.wall() }
    }
}

/// `CLOCK_BOOTTIME` and `CLOCK_REALTIME` of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Instant {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Instant(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    fn wall(&self) -> WallTime {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        WallTime(t.tv_sec * 1_000_000 + t.tv_nsec / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_times_are_written_as_micro_time() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (-5, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (1_709_251_199_999_999, "2024-02-29T23:59:59.999999Z"),
            (1_796_083_200_000_000, "2026-12-01T00:00:00.000000Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
            (i64::MAX, "9999-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(WallTime(micros).to_string(), text);
        }
    }
}
