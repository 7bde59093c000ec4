//! Who is alive (B1-B5): a record for each incarnation of a client, and the monitor that judges silence.

mod clients;
mod listener;
mod mass;
mod monitor;
mod record;
mod sync;

pub(crate) use clients::Clients;
pub use listener::Listener;
pub(crate) use monitor::Monitor;
pub(crate) use record::{ClientLivenessRecord, Observed, Verdict};

pub(crate) use crate::types::LivenessState;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Instant, types::ClientId};
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);
    const BY: Listener = Listener::new(3);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.saturating_add(SECOND * seconds as u32)
    }

    fn record() -> ClientLivenessRecord {
        ClientLivenessRecord::new(ClientId { first: 1, second: 2 }, 7, at(1))
    }

    #[test]
    fn observation_recovers_suspected_but_not_offline() {
        let record = record();
        assert_eq!((record.heard_by(), record.entered()), (Listener::UNKNOWN, at(1)));
        assert_eq!(record.observe(at(2), BY), Observed::Active);
        assert_eq!((record.read().since(), record.heard_by(), record.entered()), (at(2), BY, at(1)));
        assert!(record.suspect(record.read(), at(20)));
        assert_eq!((record.state(), record.read().since()), (LivenessState::Suspected, at(20)));
        assert_eq!(record.observe(at(21), BY), Observed::Recovered);
        assert_eq!(record.entered(), at(21));
        assert!(record.suspect(record.read(), at(29)));
        assert!(record.retire(record.read(), at(30)));
        assert_eq!(record.observe(at(31), BY), Observed::Offline);
        record.forgive(SECOND, at(40));
        assert_eq!((record.state(), record.read().since()), (LivenessState::Offline, at(30)));
    }

    #[test]
    fn a_verdict_loses_against_a_signal_in_between() {
        let record = record();
        let seen = record.read();
        record.observe(at(5), BY);
        assert!(!record.suspect(seen, at(5)));
        assert_eq!(record.state(), LivenessState::Active);
        // An older signal that arrives late takes nothing back.
        record.observe(at(3), BY);
        assert_eq!(record.read().since(), at(5));
    }

    #[test]
    fn a_held_client_is_suspected_since_the_same_time_and_recovers_like_any_other() {
        let record = record();
        assert!(record.suspect(record.read(), at(20)));
        let seen = record.read();
        assert!(record.hold(seen) && !record.hold(seen), "once");
        let held = record.read();
        assert!(held.is_held() && !seen.is_held());
        assert_eq!(
            (held.state(), held.since(), record.entered()),
            (LivenessState::Suspected, at(20), at(20))
        );
        record.forgive(SECOND * 2, at(30));
        assert!(record.read().is_held(), "forgiving lets nobody go");
        assert!(!record.retire(held, at(40)), "something happened");
        assert_eq!(record.observe(at(41), BY), Observed::Recovered);
        assert!(!record.read().is_held());
    }

    #[test]
    fn forgiving_never_reaches_into_the_future() {
        let record = record();
        record.forgive(SECOND * 3, at(10));
        assert_eq!(record.read().since(), at(4));
        record.forgive(SECOND * 100, at(10));
        assert_eq!(record.read().since(), at(10));
        record.forgive(SECOND, at(9));
        assert_eq!(record.read().since(), at(10));
    }
}
