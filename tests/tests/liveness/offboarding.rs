//! What becomes of a client that is gone (B9), and of one that comes back too early.

use crate::support::{Beating, Way, endpoint, id, liveness, mount, native, start, wait_liveness};
use mooncake_master::{
    error::ErrorCode,
    rpc::native::{
        generation::{Generation, Method},
        value::Value,
    },
};
use mooncake_tests::{
    Master, NativeClient,
    fault::{clear, inject, metric},
    native::{segment_value, uuid},
    wait_for,
};
use rustix::process::Signal;
use serde_json::Value as Json;
use std::time::Duration;
use tokio::time::Instant;

const MIB: u64 = 1 << 20;

/// A master with client 0, which lives, and client 1 with keys in its memory, which has just gone Offline.
fn with_a_dead_client(args: &[&str], faults: &[&str]) -> (Master, NativeClient, Beating) {
    let master = start(2, 1, args);
    let mut client = native(&master);
    mount(&mut client, 1);
    for key in 0..500 {
        client.put(id(9999), &format!("old{key}"), 1000).expect("an answer").expect("room");
    }
    mount(&mut client, 0);
    let beating = Beating::start(&master, 0, Way::Patient);
    for fault in faults {
        inject(&master, fault);
    }
    wait_liveness(&master, "offline_transitions_total", 1, 15);
    (master, client, beating)
}

fn clients(master: &Master, query: &str) -> Json {
    let (status, body) = master.get(&format!("/clients{query}"));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

fn remount(client: &mut NativeClient, n: u64) -> Result<(), ErrorCode> {
    client.remount(id(n), id(n), &endpoint(n), (n + 1) << 32, 16 * MIB).expect("an answer").map(|_| ())
}

/// Nothing of the old incarnation is left, and the new one has what it brought.
fn converged(master: &Master, client: &mut NativeClient, allocated: f64) {
    wait_for("every gauge is that of the living", 30, || {
        let gauges = ["master_client_offboarding_queue_depth", "master_client_liveness_offline_clients"];
        (gauges.iter().all(|name| metric(master, name) == Some(0.0))
            && metric(master, "master_allocated_bytes") == Some(allocated))
        .then_some(())
    });
    for key in 0..500 {
        assert_eq!(client.exist(&format!("old{key}")).expect("an answer"), Ok(false));
    }
}

#[test]
fn every_step_that_fails_is_tried_again_behind_the_barrier() {
    for mode in ["--offboarding_mode=async", "--offboarding_mode=sync"] {
        let faults = ["clean_segment", "remove_segment", "remove_record"]
            .map(|step| format!("fail_step?step={step}&times=2"));
        let (master, mut client, _beating) = with_a_dead_client(&[mode], &faults.each_ref().map(|f| &**f));
        // The same id comes back at once, again and again, and is refused, never kept waiting, until all is done.
        let mut refused = 0;
        wait_for("the barrier goes", 30, || match remount(&mut client, 1) {
            Ok(()) => Some(()),
            Err(code) => {
                assert_eq!(code, ErrorCode::UnavailableInCurrentStatus);
                assert_eq!(client.ping(id(1)).expect("an answer"), Ok((0, false)));
                refused += 1;
                std::thread::sleep(Duration::from_millis(50));
                None
            }
        });
        let _back = Beating::start(&master, 1, Way::Patient);
        assert!(refused > 2, "{mode}: {refused}");
        assert_eq!(metric(&master, "master_client_offboarding_failures_total"), Some(6.0), "{mode}");
        assert_eq!(metric(&master, "master_client_offboarding_retries_total"), Some(6.0), "{mode}");
        client.put(id(9999), "new", 1000).expect("an answer").expect("room");
        converged(&master, &mut client, 1000.0);
        assert!(client.get("new").expect("an answer").is_ok(), "{mode}");
        assert_eq!(liveness(&master, "active_clients"), 2, "{mode}");
    }
}

#[test]
fn a_job_is_seen_at_work_and_the_same_client_may_return_meanwhile() {
    let (master, mut client, _beating) =
        with_a_dead_client(&[], &["slow_step?step=clean_segment&ms=700&for_ms=60000"]);
    let offline = clients(&master, "?state=offline");
    let [one] = offline["clients"].as_array().expect("a list").as_slice() else { panic!("{offline}") };
    assert_eq!((&one["state"], &one["id"]), (&"offline".into(), &id(1).to_string().into()));
    assert_eq!(one["offboarding"]["step"], "clean_segment", "{one}");
    let keys = one["keys"].as_u64().expect("a number");
    assert!(keys > 0 && keys <= 500, "{one}");
    assert_eq!(one["bytes"], keys * 1000, "{one}");
    let old = one["incarnation"].clone();
    wait_for("it gets on", 10, || {
        let left = clients(&master, "?state=offline")["clients"][0]["keys"].as_u64()?;
        (left < keys).then_some(())
    });
    assert_eq!(remount(&mut client, 1), Err(ErrorCode::UnavailableInCurrentStatus));
    // Nobody else waits: a new client mounts, and data goes on.
    mount(&mut client, 2);
    let _new = Beating::start(&master, 2, Way::Patient);
    client.put(id(9999), "meanwhile", 1000).expect("an answer").expect("room");
    clear(&master);
    wait_for("the barrier goes", 30, || remount(&mut client, 1).ok());
    let _back = Beating::start(&master, 1, Way::Patient);
    converged(&master, &mut client, 1000.0);
    let again = clients(&master, "");
    let of = |n: u64| {
        let name = Json::from(id(n).to_string());
        again["clients"].as_array().expect("a list").iter().find(|one| one["id"] == name).cloned()
    };
    let back = of(1).expect("it is back");
    assert_eq!(
        (&back["state"], &back["segments"], &back["offboarding"]),
        (&"active".into(), &1.into(), &Json::Null)
    );
    assert_ne!(back["incarnation"], old, "another incarnation");
    assert_eq!(again["clients"].as_array().map(Vec::len), Some(3), "{again}");
}

/// What is being offboarded is finished first when the process is told to end, but no longer than ten seconds.
#[test]
fn a_shutdown_drains_what_is_being_offboarded_for_ten_seconds_at_most() {
    for (fault, at_least, at_most) in [
        // 500 keys are eight steps.
        ("slow_step?step=clean_segment&ms=600&for_ms=60000", 1.0, 9.5),
        ("fail_step?step=clean_segment&times=1000000", 9.0, 14.0),
    ] {
        let (mut master, client, beating) = with_a_dead_client(&[], &[fault]);
        drop((client, beating));
        let began = Instant::now();
        master.signal(Signal::TERM);
        assert_eq!(master.wait_exit(20), Some(0));
        let took = began.elapsed().as_secs_f64();
        println!("{fault}: ended after {took:.1} s");
        assert!((at_least..at_most).contains(&took), "{fault}: {took} s");
    }
}

#[test]
fn a_process_killed_in_the_middle_starts_from_nothing() {
    let (master, client, beating) =
        with_a_dead_client(&[], &["slow_step?step=clean_segment&ms=1000&for_ms=60000"]);
    drop((client, beating));
    let master = master.restart();
    let mut client = native(&master);
    assert_eq!(client.ping(id(1)).expect("an answer"), Ok((0, false)));
    remount(&mut client, 1).expect("no barrier is left");
    let _back = Beating::start(&master, 1, Way::Patient);
    converged(&master, &mut client, 0.0);
    assert_eq!(liveness(&master, "active_clients"), 1);
}

#[test]
fn clients_are_listed_filtered_and_bounded() {
    let master = start(60, 60, &[]);
    let mut client = native(&master);
    // The RPC port may answer a moment before the page knows of it.
    let body = wait_for("the master serves", 10, || {
        let (status, body) = master.get("/clients/summary");
        (status == 200).then_some(body)
    });
    let summary: Json = serde_json::from_str(&body).expect("JSON");
    let nobody = serde_json::json!({
        "clients": {"active": 0, "suspected": 0, "offline": 0},
        "mass_silence": false, "heartbeat_routing_mismatches": 0,
    });
    assert_eq!(summary, nobody);
    for n in 0..30 {
        mount(&mut client, n);
    }
    client.put(id(0), "k", 1000).expect("an answer").expect("room");
    let all = clients(&master, "");
    assert_eq!((&all["total"], all["clients"].as_array().map(Vec::len)), (&30.into(), Some(30)));
    let sum = |field: &str| -> u64 {
        let list = all["clients"].as_array().expect("a list");
        list.iter().map(|one| one[field].as_u64().expect("a number")).sum()
    };
    assert_eq!((sum("segments"), sum("keys"), sum("bytes")), (30, 1, 1000));
    let some = clients(&master, "?state=active&limit=7");
    assert_eq!((&some["total"], some["clients"].as_array().map(Vec::len)), (&30.into(), Some(7)));
    assert_eq!(clients(&master, "?state=suspected")["total"], 0);
    for (bad, names) in
        [("?state=dead", "state"), ("?limit=x", "limit"), ("?limit=0", "limit"), ("?who=1", "who")]
    {
        let (status, body) = master.get(&format!("/clients{bad}"));
        assert!(status == 400 && body.contains(names), "{bad}: {status} {body}");
    }
    wait_for("the summary says so, too", 3, || {
        master.get("/clients/summary").1.contains("\"active\":30").then_some(())
    });
}

#[test]
fn the_generation_of_a_client_is_shown_once_it_has_told() {
    let master = start(60, 60, &[]);
    let shown = |n: u64| {
        let all = clients(&master, "");
        let list = all["clients"].as_array().expect("a list");
        let found = list.iter().find(|client| client["id"] == id(n).to_string());
        found.unwrap_or_else(|| panic!("client {n}: {all}"))["generation"].clone()
    };
    let mut newest = native(&master);
    mount(&mut newest, 0);
    assert_eq!(shown(0), Json::Null, "a mount is the same in 0.3.12");
    newest.put(id(0), "k", 1000).expect("an answer").expect("room");
    assert_eq!(shown(0), "0.3.13");

    // The arguments of a client without hosts, tenants and hard pins.
    let generation = Generation::by_name("0.3.9").expect("a generation");
    let mut oldest = NativeClient::connect_as(master.rpc_address(), generation).expect("accepted");
    let Value::Struct(mut segment) = segment_value(id(1), &endpoint(1), 2 << 32, 16 * MIB) else {
        panic!("no segment")
    };
    segment.truncate(6);
    let mounted = oldest.call(Method::MountSegment, vec![Value::Struct(segment), uuid(id(1))]);
    mounted.expect("an answer").expect("mounted");
    assert_eq!(shown(1), Json::Null, "a mount is the same in 0.3.11");
    let config =
        vec![Value::U64(1), Value::Bool(false), Value::Seq(vec![]), Value::str(""), Value::Bool(false)];
    let put = vec![uuid(id(1)), Value::str("old"), Value::U64(1000), Value::Struct(config)];
    oldest.call(Method::PutStart, put).expect("an answer").expect("room");
    assert_eq!((shown(1), shown(0)), ("0.3.9".into(), "0.3.13".into()));
    // What it turned out to be outlives its connections.
    drop((newest, oldest));
    assert_eq!((shown(1), shown(0)), ("0.3.9".into(), "0.3.13".into()));
}
