//! Real time: a measurement is about nothing else.

use std::time::Duration;

#[allow(clippy::disallowed_types, reason = "the one place that reads the clock; results are in real time")]
pub(crate) type Instant = std::time::Instant;

/// Now.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Sleeps until then.
pub(crate) fn sleep_until(then: Instant) {
    let left = then.saturating_duration_since(now());
    if left > Duration::ZERO {
        std::thread::sleep(left);
    }
}
