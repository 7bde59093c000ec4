//! Mass silence (B2): many clients that fall silent at once are more likely cut off than dead.

use super::LivenessState;
use crate::{
    clock::Instant,
    core::{Core, counters::add},
};

impl Core {
    /// Holds whoever fell silent within the last active TTL for one more window, if these are enough of all: at least
    /// `mass_silence_min`, and at least `mass_silence_ratio` of those that were Active before. How many were held, and
    /// of how many.
    ///
    /// The order of a tick matters: this runs between the commits of Suspected and those of Offline, so that nobody is
    /// retired in the tick that finds the mass.
    pub(super) fn hold_mass_silence(&self, now: Instant) -> Option<(u64, u64)> {
        let options = &self.options;
        if options.mass_silence_ratio <= 0.0 {
            return None;
        }
        let (mut active, mut silent, mut loose) = (0u64, 0u64, 0u64);
        self.clients.for_each(|record| {
            let seen = record.read();
            match seen.state() {
                LivenessState::Active => active += 1,
                LivenessState::Suspected
                    if now.saturating_since(seen.since()) <= options.client_active_ttl =>
                {
                    silent += 1;
                    loose += u64::from(!seen.is_held());
                }
                LivenessState::Suspected | LivenessState::Offline => {}
            }
        });
        let before = active + silent;
        let many =
            silent >= options.mass_silence_min && silent as f64 >= options.mass_silence_ratio * before as f64;
        if loose == 0 || !many {
            return None;
        }
        let mut held = 0;
        self.clients.for_each(|record| {
            let seen = record.read();
            let fresh = seen.state() == LivenessState::Suspected
                && !seen.is_held()
                && now.saturating_since(seen.since()) <= options.client_active_ttl;
            held += u64::from(fresh && record.hold(seen));
        });
        add(&self.counters.mass_silence_held, held);
        Some((held, before))
    }
}
