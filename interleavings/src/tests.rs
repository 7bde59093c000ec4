//! A signal of life against each verdict of the monitor.

use crate::{
    clock::Instant,
    liveness::{ClientLivenessRecord, Listener, Observed, Verdict},
    types::LivenessState::{Active, Offline, Suspected},
};
use loom::{sync::Arc, thread};
use std::time::Duration;

/// The TTL of these tests, nanoseconds; the first signal is at 1.
const TTL: u64 = 10;
const NOW: u64 = 100;
const DATA: Listener = Listener::new(1);
const OTHER: Listener = Listener::new(2);

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn active() -> Arc<ClientLivenessRecord> {
    Arc::new(ClientLivenessRecord::new(1, 1, at(1)))
}

fn suspected() -> Arc<ClientLivenessRecord> {
    let record = active();
    assert!(record.suspect(record.read(), at(20)));
    record
}

/// What the monitor does with a reading in the state that it looks for.
fn judge(
    record: &ClientLivenessRecord,
    when: crate::types::LivenessState,
    commit: impl Fn(Verdict) -> bool,
) -> bool {
    let seen = record.read();
    seen.state() == when && NOW - seen.since().as_nanos() >= TTL && commit(seen)
}

#[test]
fn a_client_that_was_just_heard_is_not_suspected() {
    loom::model(|| {
        let record = active();
        let heard = {
            thread::spawn({
                let record = record.clone();
                move || record.observe(at(NOW), DATA)
            })
        };
        let suspected = judge(&record, Active, |seen| record.suspect(seen, at(NOW)));
        let observed = heard.join().unwrap();
        // Either the verdict came first and was taken back, or it was not committed.
        assert_eq!(record.state(), Active);
        assert_eq!(observed == Observed::Recovered, suspected);
        assert_eq!(record.heard_by(), DATA);
    });
}

#[test]
fn a_recovery_and_the_commit_of_offline_never_both_win() {
    loom::model(|| {
        let record = suspected();
        let ping = thread::spawn({
            let record = record.clone();
            move || record.observe(at(NOW), DATA)
        });
        let mount = thread::spawn({
            let record = record.clone();
            move || record.observe(at(NOW), OTHER)
        });
        let retired = judge(&record, Suspected, |seen| record.retire(seen, at(NOW)));
        let observed = [ping.join().unwrap(), mount.join().unwrap()];
        if retired {
            assert_eq!((record.state(), observed), (Offline, [Observed::Offline; 2]));
        } else {
            assert_eq!(record.state(), Active);
            let recovered = observed.iter().filter(|of| **of == Observed::Recovered).count();
            assert_eq!((recovered, observed.contains(&Observed::Offline)), (1, false), "counted once");
        }
        // Offline is terminal.
        let later = record.observe(at(NOW + 1), DATA);
        assert_eq!(later == Observed::Offline, retired);
    });
}

#[test]
fn a_hold_never_outlives_a_recovery() {
    loom::model(|| {
        let record = suspected();
        let heard = thread::spawn({
            let record = record.clone();
            move || record.observe(at(NOW), DATA)
        });
        let seen = record.read();
        let held = seen.state() == Suspected && record.hold(seen);
        assert_eq!(heard.join().unwrap(), Observed::Recovered);
        assert!(record.state() == Active && !record.read().is_held());
        assert!(!held || seen.since() == at(20));
    });
}

#[test]
fn what_is_forgiven_is_lost_to_no_signal_and_no_verdict() {
    loom::model(|| {
        let record = suspected();
        let heard = thread::spawn({
            let record = record.clone();
            move || record.observe(at(NOW), DATA)
        });
        let forgiving = thread::spawn({
            let record = record.clone();
            move || record.forgive(Duration::from_nanos(50), at(NOW))
        });
        let retired = judge(&record, Suspected, |seen| record.retire(seen, at(NOW)));
        forgiving.join().unwrap();
        let observed = heard.join().unwrap();
        assert_eq!(retired, observed == Observed::Offline);
        assert_eq!(record.read().since(), at(NOW), "of the signal or of the commit, never an older time");
    });
}

#[test]
fn whoever_knows_of_a_signal_knows_who_heard_it() {
    loom::model(|| {
        let record = active();
        let heard = thread::spawn({
            let record = record.clone();
            move || record.observe(at(NOW), OTHER)
        });
        let seen = record.read();
        if seen.since() == at(NOW) {
            assert_eq!(record.heard_by(), OTHER);
        }
        heard.join().unwrap();
    });
}
