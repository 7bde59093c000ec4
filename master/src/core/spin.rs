//! Waiting for a lock for a few microseconds at most.

/// Attempts; the pauses between them double up to 32. About 200 pauses in sum: 3 to 9 µs, much longer than any hold
/// on the data path and much shorter than what a parked request costs.
const ATTEMPTS: u32 = 10;

/// Tries until `attempt` succeeds or a few microseconds are over.
pub(crate) fn try_for_moments<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    for round in 0..ATTEMPTS {
        if let Some(value) = attempt() {
            return Some(value);
        }
        for _ in 0..1u32 << round.min(5) {
            std::hint::spin_loop();
        }
    }
    attempt()
}
