//! Whose silence is it: the client's, or the master's own (B2)?

use crate::support::{Beating, Way, id, liveness, mount, native, start, wait_liveness};
use mooncake_master::error::ErrorCode;
use mooncake_tests::{
    Master, NativeClient,
    fault::{inject, metric},
    wait_for,
};
use rustix::process::Signal;
use std::time::Duration;

/// How long a part of the master stands still; 40 in the requirement. What matters is that it is much longer than both
/// TTLs together.
fn stall_seconds() -> u64 {
    std::env::var("LIVENESS_STALL_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// The address of a peer's connections decides nothing, the thread does: with this many each of four has some.
const CLIENTS: u64 = 16;
const KEYS: u64 = 5;

/// Mounts that many clients and puts keys; where each key lies is up to the master.
fn fill(master: &Master, clients: u64) -> NativeClient {
    let mut client = native(master);
    for n in 0..clients {
        mount(&mut client, n);
    }
    for key in 0..clients * KEYS {
        client.put(id(9999), &format!("k{key}"), 1000).expect("an answer").expect("room");
    }
    client
}

fn all_there(client: &mut NativeClient, clients: u64) {
    for key in 0..clients * KEYS {
        assert!(client.get(&format!("k{key}")).expect("an answer").is_ok(), "k{key} is lost");
    }
}

#[test]
fn a_stuck_data_thread_is_not_the_silence_of_its_clients_and_nobody_elses_excuse() {
    let master = start(3, 3, &["--rpc_thread_num=4"]);
    let mut client = fill(&master, CLIENTS);
    let beating: Vec<_> = (0..CLIENTS).map(|n| Beating::start(&master, n, Way::Patient)).collect();
    // Client 100 dies before the stall, heard last by whichever thread has this connection.
    let mut dying = native(&master);
    mount(&mut dying, 100);
    let stall = stall_seconds();
    // Of four threads one is stuck. It may be that of the dying client or of `client`, never of both halves below.
    inject(&master, &format!("stick_thread?index=2&for_ms={}", stall * 1000));
    std::thread::sleep(Duration::from_secs(stall) + Duration::from_millis(500));
    wait_for("the stuck thread serves again", 10, || {
        mooncake_tests::master::http(master.admin_address(), "GET", "/fault")
            .1
            .contains("\"active\":[]")
            .then_some(())
    });
    all_there(&mut client, CLIENTS);
    wait_liveness(&master, "offline_transitions_total", 1, 15);
    assert_eq!(liveness(&master, "active_clients"), CLIENTS);
    assert!(metric(&master, "mooncake_master_liveness_stalls_total") >= Some(1.0));
    assert_eq!(client.ping(id(100)).expect("an answer"), Ok((0, false)), "the dead one is gone");
    drop(beating);
}

#[test]
fn while_nothing_is_accepted_nobody_is_to_blame() {
    let master = start(3, 3, &["--rpc_thread_num=4"]);
    let mut client = fill(&master, CLIENTS);
    // Each heartbeat on a connection of its own: the worst case.
    let beating: Vec<_> = (0..CLIENTS).map(|n| Beating::start(&master, n, Way::Anew)).collect();
    inject(&master, &format!("stop_accept?for_ms={}", stall_seconds() * 1000));
    std::thread::sleep(Duration::from_secs(stall_seconds() + 2));
    all_there(&mut client, CLIENTS);
    assert_eq!(liveness(&master, "offline_transitions_total"), 0);
    assert_eq!(liveness(&master, "active_clients"), CLIENTS);
    drop(beating);
    // The machinery still works: with everybody silent they go, and all at once, so one window later.
    wait_liveness(&master, "suspected_clients", CLIENTS, 15);
    assert_eq!(metric(&master, "mooncake_master_mass_silence"), Some(1.0));
    wait_liveness(&master, "offline_transitions_total", CLIENTS, 20);
}

#[test]
fn a_master_that_was_stopped_for_fifteen_seconds_declares_nobody_dead() {
    let master = start(3, 3, &[]);
    let mut client = fill(&master, 4);
    let beating: Vec<_> = (0..4).map(|n| Beating::start(&master, n, Way::Patient)).collect();
    master.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(15));
    master.signal(Signal::CONT);
    std::thread::sleep(Duration::from_secs(3));
    all_there(&mut client, 4);
    assert_eq!(liveness(&master, "offline_transitions_total"), 0);
    assert_eq!(liveness(&master, "active_clients"), 4);
    drop(beating);
}

#[test]
fn a_paused_monitor_does_not_shorten_the_suspicion() {
    let master = start(1, 6, &[]);
    let mut client = fill(&master, 1);
    wait_liveness(&master, "suspected_clients", 1, 10);
    assert_eq!(client.get("k0").expect("an answer"), Err(ErrorCode::ReplicaIsNotReady));
    inject(&master, "pause_monitor?for_ms=10000");
    // Until it runs again and for two seconds more; of the six seconds of suspicion hardly any were judged.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(liveness(&master, "offline_transitions_total"), 0);
    assert_eq!(client.ping(id(0)).expect("an answer"), Ok((0, true)));
    all_there(&mut client, 1);
}

/// 60 % of 20 at once are held one window longer; 4 of 4 and 1 of 1 are not.
#[test]
fn a_mass_silence_is_held_for_one_more_window_and_said() {
    for (clients, silent, held) in [(20, 12, true), (4, 4, false), (1, 1, false)] {
        let case = format!("{silent} of {clients}");
        let master = start(3, 4, &[]);
        let mut client = fill(&master, clients);
        let _beating: Vec<_> = (silent..clients).map(|n| Beating::start(&master, n, Way::Patient)).collect();
        wait_liveness(&master, "suspected_clients", silent, 15);
        let gauge = || metric(&master, "mooncake_master_mass_silence");
        let expected = Some(f64::from(u8::from(held)));
        wait_for(&format!("{case}: the gauge"), 3, || (gauge() == expected).then_some(()));
        let (_, summary) = master.get("/clients/summary");
        assert!(summary.contains(&format!("\"mass_silence\":{held}")), "{case}: {summary}");
        let counted = metric(&master, "mooncake_master_mass_silence_held_clients_total");
        assert_eq!(counted, Some(if held { silent as f64 } else { 0.0 }), "{case}");
        if held {
            // The plain rule would have retired them after 4 s; the second window ends after 8.
            std::thread::sleep(Duration::from_secs(6));
            assert_eq!(liveness(&master, "offline_transitions_total"), 0, "{case}");
            assert_eq!(client.ping(id(0)).expect("an answer"), Ok((0, true)), "{case}");
        }
        let gone = if held { silent - 1 } else { silent };
        wait_liveness(&master, "offline_transitions_total", gone, 15);
        wait_for("the mass silence is over", 5, || (gauge() == Some(0.0)).then_some(()));
    }
}

/// Silent for one and a half active TTLs, then heard again: nothing is lost.
#[test]
fn a_client_that_stumbles_keeps_its_memory() {
    let master = start(2, 20, &[]);
    let mut client = fill(&master, 1);
    let beating = Beating::start(&master, 0, Way::Patient);
    std::thread::sleep(Duration::from_millis(500));
    drop(beating);
    std::thread::sleep(Duration::from_secs(3));
    wait_liveness(&master, "suspected_clients", 1, 5);
    for key in 0..KEYS {
        let got = client.get(&format!("k{key}")).expect("an answer");
        assert_eq!(got, Err(ErrorCode::ReplicaIsNotReady), "no descriptor while it is suspected");
    }
    assert_eq!(client.ping(id(0)).expect("an answer"), Ok((0, true)));
    all_there(&mut client, 1);
    wait_liveness(&master, "recoveries_total", 1, 5);
}
