//! The read lease of an object, or of all members of a group: one word that readers extend under a shared lock.

use crate::{clock::Instant, types::MAX_EXIST_LEASE_BOUND};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

const BEYOND_BITS: u32 = 24;
const BEYOND_MAX: u64 = (1 << BEYOND_BITS) - 1;
const UNTIL_MAX: u64 = (1 << (64 - BEYOND_BITS)) - 2;
/// Not a lease any more: whoever has it is being evicted. Above every lease, so that `fetch_max` leaves it alone.
const DOOMED: u64 = u64::MAX;
const NANOS_PER_MILLI: u64 = 1_000_000;

const _: () = assert!(MAX_EXIST_LEASE_BOUND.as_millis() <= BEYOND_MAX as u128, "it must fit into the word");

/// The end of a read lease in milliseconds of the clock (40 bits: 34 years), above how far existence probes alone have
/// carried it beyond the last use (24 bits, inverted: of two equal ends the one of a use is the larger word).
///
/// Invariant: it never moves back, except by [`Lease::reset`], for which the shard is locked exclusively.
#[derive(Debug, Default)]
pub(crate) struct Lease(AtomicU64);

fn pack(until_ms: u64, beyond_ms: u64) -> u64 {
    until_ms.min(UNTIL_MAX) << BEYOND_BITS | (BEYOND_MAX - beyond_ms.min(BEYOND_MAX))
}

fn until_ms(word: u64) -> u64 {
    word >> BEYOND_BITS
}

impl Lease {
    /// When it ends or has ended; [`Instant::MAX`] if it is doomed.
    pub(crate) fn until(&self) -> Instant {
        match self.0.load(Ordering::Relaxed) {
            DOOMED => Instant::MAX,
            word => Instant::from_nanos(until_ms(word) * NANOS_PER_MILLI),
        }
    }

    pub(crate) fn is_active(&self, now: Instant) -> bool {
        self.until() > now
    }

    pub(crate) fn is_doomed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == DOOMED
    }

    /// Extends it to `until` at least; false if it is doomed. Rounded up to the next millisecond, so that readers of a
    /// hot key mostly find it done and do not fight for its cache line.
    pub(crate) fn extend(&self, until: Instant) -> bool {
        let word = pack(until.as_nanos().div_ceil(NANOS_PER_MILLI), 0);
        let before = self.0.load(Ordering::Relaxed);
        if before >= word {
            return before != DOOMED;
        }
        self.0.fetch_max(word, Ordering::Relaxed) != DOOMED
    }

    /// Extends it to `until`, but to no more than `bound` beyond what the last use (anything but a probe) gave it;
    /// false if it is doomed.
    pub(crate) fn probe(&self, until: Instant, bound: Duration) -> bool {
        let until = until.as_nanos().div_ceil(NANOS_PER_MILLI);
        let bound = bound.min(MAX_EXIST_LEASE_BOUND).as_millis() as u64;
        let extend = |word| {
            let of_use = until_ms(word) - (BEYOND_MAX - (word & BEYOND_MAX)).min(until_ms(word));
            let until = until.min(of_use + bound);
            (word != DOOMED && until > until_ms(word)).then(|| pack(until, until - of_use))
        };
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, extend) {
            Ok(_) => true,
            Err(word) => word != DOOMED,
        }
    }

    /// Notes a use that grants nothing: the lease ends at `now` unless it is longer.
    pub(crate) fn touch(&self, now: Instant) {
        self.0.fetch_max(pack(now.as_millis(), 0), Ordering::Relaxed);
    }

    /// Ends it for ever if it has run out: from then on nobody gets it any more. Whether it did.
    pub(crate) fn doom(&self, now: Instant) -> bool {
        let doom = |word| (until_ms(word) * NANOS_PER_MILLI <= now.as_nanos()).then_some(DOOMED);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, doom).is_ok()
    }

    /// No lease.
    pub(crate) fn reset(&mut self) {
        *self.0.get_mut() = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn it_grows_and_ends_on_time() {
        let lease = Lease::default();
        assert!(!lease.is_active(at(0)));
        assert!(lease.extend(Instant::from_nanos(5_000_000_001)));
        assert_eq!(lease.until(), Instant::from_nanos(5_001_000_000), "rounded up");
        assert!(lease.extend(at(3)) && lease.is_active(at(5)) && !lease.is_active(at(6)));
        lease.touch(Instant::from_nanos(7_999_999_999));
        assert_eq!(lease.until(), Instant::from_nanos(7_999_000_000), "rounded down: it grants nothing");
        let mut lease = lease;
        lease.reset();
        assert_eq!(lease.until(), Instant::ZERO);
    }

    #[test]
    fn probes_alone_carry_it_only_so_far() {
        let lease = Lease::default();
        lease.touch(at(100));
        for second in 100..200 {
            assert!(lease.probe(at(second + 10), 30 * SECOND));
        }
        assert_eq!(lease.until(), at(130), "30 s beyond the write");
        assert!(lease.extend(at(140)));
        for second in 130..300 {
            lease.probe(at(second + 10), 30 * SECOND);
        }
        assert_eq!(lease.until(), at(170), "30 s beyond the lease of the read");
        lease.probe(at(170), 300 * SECOND);
        assert!(lease.extend(at(170)));
        lease.probe(at(250), 60 * SECOND);
        assert_eq!(lease.until(), at(230), "a read up to the same end counts as a use");
    }

    #[test]
    fn a_doomed_one_is_nobodys() {
        let lease = Lease::default();
        lease.extend(at(10));
        assert!(!lease.doom(at(9)));
        assert!(lease.doom(at(10)) && lease.is_doomed() && !lease.doom(at(10)));
        assert!(!lease.extend(at(50)) && !lease.probe(at(50), SECOND) && lease.is_doomed());
    }
}
