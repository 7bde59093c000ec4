//! The lease thread in real processes: SIGTERM, exec of itself, labels, a holder that never gets to serve, an API server
//! that does not answer. The test program is its own child, so that a signal or an exec meets a whole process.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../../../lease/tests/support/apiserver.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with other tests")]
mod apiserver;
mod child;
mod handover;

use apiserver::ApiServer;
use child::{Child, Setup};
use mooncake_master::{
    clock::{BootClock, Clock},
    ha::{EPOCH_ANNOTATION, ROLE_LABEL},
};
use serde_json::{Value, json};
use std::{
    future::Future,
    io::{ErrorKind, Read},
    net::TcpStream,
    time::Duration,
};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/m";

fn pod_path(ordinal: u8) -> String {
    format!("/api/v1/namespaces/ns/pods/m-{ordinal}")
}

/// A cluster with pods m-0 and m-1, as they are before a master has written to them.
async fn cluster() -> ApiServer {
    let server = ApiServer::start().await;
    for ordinal in 0..2 {
        let pod = json!({
            "metadata": { "name": format!("m-{ordinal}"), "namespace": "ns", "labels": { "app": "m" } },
            "status": { "phase": "Running" },
        });
        server.put(&pod_path(ordinal), pod);
    }
    server
}

async fn when(what: &str, condition: impl Fn() -> bool) -> Duration {
    let started = BootClock.now();
    while !condition() {
        assert!(BootClock.now().saturating_since(started) < Duration::from_secs(15), "waited for: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    BootClock.now().saturating_since(started)
}

fn label(server: &ApiServer, ordinal: u8) -> Value {
    server.get(&pod_path(ordinal)).unwrap()["metadata"]["labels"][ROLE_LABEL].clone()
}

fn holder(server: &ApiServer) -> Option<String> {
    Some(server.get(LEASE)?["spec"]["holderIdentity"].as_str()?.to_owned())
}

/// Reads until the connection ends, and says how.
fn end_of(mut stream: TcpStream) -> ErrorKind {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return ErrorKind::UnexpectedEof,
            Ok(_) => {}
            Err(error) => return error.kind(),
        }
    }
}

async fn sigterm_fences_releases_and_ends_and_the_other_takes_over() {
    let server = cluster().await;
    let mut a = Child::start(&Setup::new(&server, 0));
    when("a is promoted", || a.said("promoted 1")).await;
    when("a is labelled", || label(&server, 0) == "leader").await;
    let b = Child::start(&Setup::new(&server, 1));
    when("b stands by", || b.said("state standby")).await;
    assert_eq!(server.get(&pod_path(1)).unwrap()["metadata"]["annotations"][EPOCH_ANNOTATION], "1");

    // One connection is read by a thread that will never look again, as a stuck data thread would.
    let stuck = TcpStream::connect(a.address()).unwrap();
    when("a accepted it", || a.said("accepted")).await;
    let reset = tokio::task::spawn_blocking(move || end_of(stuck));
    let took = a.terminate().await;
    println!("  SIGTERM to the end of the process: {took:?}");
    assert!(took < Duration::from_millis(300), "{took:?}");
    assert_eq!(reset.await.unwrap(), ErrorKind::ConnectionReset);
    let gap = when("b is promoted", || b.said("promoted 2")).await;
    println!("  end of the process to the promotion of the other: {gap:?}");
    assert!(gap < Duration::from_secs(1), "the lease was released: {gap:?}");
    when("b is labelled", || label(&server, 1) == "leader").await;
    assert_eq!(label(&server, 0), Value::Null);
    assert_one_label_at_a_time(&server);
}

/// In every state that a watcher of the pods could have seen.
fn assert_one_label_at_a_time(server: &ApiServer) {
    let mut labelled = std::collections::BTreeSet::new();
    for (path, object) in server.history() {
        if object["metadata"]["labels"][ROLE_LABEL] == "leader" {
            labelled.insert(path);
        } else {
            labelled.remove(&path);
        }
        assert!(labelled.len() <= 1, "{labelled:?}");
    }
}

async fn a_lost_lease_makes_it_start_anew_in_the_same_process() {
    let server = cluster().await;
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("termination-log");
    std::fs::write(&log, "old").unwrap();
    let mut setup = Setup::new(&server, 0);
    setup.termination_log = Some(log.clone());
    let mut a = Child::start(&setup);
    when("a is promoted", || a.said("promoted 1")).await;
    let first = a.incarnation(0);
    assert!(std::fs::read_to_string(&log).unwrap().contains(&first));
    let connection = TcpStream::connect(a.address()).unwrap();
    when("a accepted it", || a.said("accepted")).await;

    let mut lease = server.get(LEASE).unwrap();
    lease["spec"]["holderIdentity"] = "10.9.9.9:50051".into();
    lease["spec"]["leaseTransitions"] = 2.into();
    lease["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z".into();
    lease["metadata"]["annotations"]["mooncake.io/incarnation"] = "other".into();
    server.put(LEASE, lease);
    when("it starts anew", || a.starts() == 2).await;
    let second = a.incarnation(1);
    assert_ne!(first, second);
    assert!(std::fs::read_to_string(&log).unwrap().contains(&second));
    assert_eq!(a.pids().len(), 1, "the same process");
    assert_eq!(
        tokio::task::spawn_blocking(move || end_of(connection)).await.unwrap(),
        ErrorKind::ConnectionReset
    );
    // Nobody renews the other's lease; after its duration it leads again, with the label.
    when("it leads again", || a.said("promoted 3")).await;
    when("it is labelled", || label(&server, 0) == "leader").await;
    // SIGTERM is handled after the exec as before it.
    assert!(a.terminate().await < Duration::from_millis(300));
}

async fn sigterm_ends_it_in_time_while_the_api_server_does_not_answer() {
    let server = cluster().await;
    let mut a = Child::start(&Setup::new(&server, 0));
    when("a is promoted", || a.said("promoted 1")).await;
    let connection = TcpStream::connect(a.address()).unwrap();
    when("a accepted it", || a.said("accepted")).await;
    server.stall(true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let took = a.terminate().await;
    println!("  SIGTERM to the end of the process: {took:?}");
    assert!(took < Duration::from_millis(300), "{took:?}");
    let reset = tokio::task::spawn_blocking(move || end_of(connection));
    assert_eq!(reset.await.unwrap(), ErrorKind::ConnectionReset);
}

async fn an_api_server_that_is_away_costs_the_permit_and_the_connections_but_not_the_epoch() {
    let server = cluster().await;
    let mut a = Child::start(&Setup::new(&server, 0));
    when("a is promoted", || a.said("promoted 1")).await;
    let connection = TcpStream::connect(a.address()).unwrap();
    when("a accepted it", || a.said("accepted")).await;
    server.stall(true);
    let reset = tokio::task::spawn_blocking(move || end_of(connection)).await.unwrap();
    assert_eq!(reset, ErrorKind::ConnectionReset);
    when("it is a candidate", || a.said("state candidate")).await;
    server.stall(false);
    when("it serves again", || a.last_state() == "serving").await;
    assert_eq!((a.starts(), a.said("promoted 2")), (1, false));
    assert_eq!(server.get(LEASE).unwrap()["spec"]["leaseTransitions"], 1);
    a.terminate().await;
}

async fn a_holder_that_never_gets_to_serve_leaves_the_lease_to_the_other() {
    let server = cluster().await;
    let mut setup = Setup::new(&server, 0);
    setup.never_promotes = true;
    let mut a = Child::start(&setup);
    when("a was elected", || holder(&server) == Some(setup.advertised())).await;
    let b = Child::start(&Setup::new(&server, 1));
    when("b stands by", || b.said("state standby")).await;
    when("a gave up", || a.starts() == 2).await;
    when("b leads", || b.said("promoted 2")).await;
    assert_eq!(label(&server, 0), Value::Null);
    // Alone it would try again at once; with the other there it stays a standby.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(a.starts(), 2);
    assert_eq!(holder(&server), Some(Setup::new(&server, 1).advertised()));
    a.terminate().await;
}

async fn a_crashed_process_is_released_by_its_successor_in_the_same_pod() {
    let server = cluster().await;
    let mut a = Child::start(&Setup::new(&server, 0));
    when("a is promoted", || a.said("promoted 1")).await;
    a.kill();
    let a = Child::start(&Setup::new(&server, 0));
    let gap = when("it leads again", || a.said("promoted 2")).await;
    println!("  start of the successor to its promotion: {gap:?}");
    assert!(gap < Duration::from_millis(900), "less than a lease duration: {gap:?}");
}

async fn the_label_comes_back_and_foreign_labels_stay() {
    let server = cluster().await;
    // A label left from another time, on both pods.
    for ordinal in 0..2 {
        let mut pod = server.get(&pod_path(ordinal)).unwrap();
        pod["metadata"]["labels"][ROLE_LABEL] = "leader".into();
        server.put(&pod_path(ordinal), pod);
    }
    let a = Child::start(&Setup::new(&server, 0));
    when("a cleared itself first", || label(&server, 0) == Value::Null).await;
    when("a is labelled", || label(&server, 0) == "leader").await;
    assert_eq!(label(&server, 1), Value::Null, "the others are cleared before");
    assert_eq!(server.get(&pod_path(0)).unwrap()["metadata"]["labels"]["app"], "m");
    let mut pod = server.get(&pod_path(0)).unwrap();
    pod["metadata"]["labels"].as_object_mut().unwrap().remove(ROLE_LABEL);
    server.put(&pod_path(0), pod);
    let back = when("it is put back", || label(&server, 0) == "leader").await;
    assert!(back < Duration::from_secs(6), "{back:?}");
    drop(a);
}

fn mark(server: &ApiServer, ordinal: u8, epoch: u64) {
    let mut pod = server.get(&pod_path(ordinal)).unwrap();
    pod["metadata"]["annotations"] = json!({ EPOCH_ANNOTATION: epoch.to_string() });
    server.put(&pod_path(ordinal), pod);
}

async fn a_new_lease_goes_on_above_the_epochs_on_the_pods() {
    let server = cluster().await;
    mark(&server, 1, 7);
    let a = Child::start(&Setup::new(&server, 0));
    when("a leads", || a.said("promoted 8")).await;
    when("a is labelled", || label(&server, 0) == "leader").await;
    assert_eq!(a.starts(), 1);
}

async fn a_later_epoch_on_a_pod_makes_the_holder_start_anew_above_it() {
    let server = cluster().await;
    server.put(
        LEASE,
        json!({
            "metadata": { "name": "m", "namespace": "ns" },
            "spec": {
                "holderIdentity": "10.9.9.9:50051", "leaseDurationSeconds": 2, "leaseTransitions": 2,
                "renewTime": "2026-01-01T00:00:00.000000Z",
            },
        }),
    );
    let a = Child::start(&Setup::new(&server, 0));
    when("a stands by", || a.said("state standby")).await;
    let looked = |server: &ApiServer| server.requests().iter().any(|(_, path, _)| path.contains("pods/m-1"));
    when("it has looked at the pods", || looked(&server)).await;
    mark(&server, 1, 7);
    when("it starts anew", || a.starts() == 2).await;
    when("it leads above the later epoch", || a.said("promoted 8")).await;
    assert!(!a.said("promoted 3"), "it must not serve in an epoch that was used before");
    assert_eq!(a.starts(), 2);
}

async fn a_promotion_that_fails_gives_the_lease_up_in_the_same_process() {
    let server = cluster().await;
    let mut setup = Setup::new(&server, 0);
    setup.promotion_fails = true;
    let a = Child::start(&setup);
    when("a was elected", || holder(&server) == Some(setup.advertised())).await;
    let b = Child::start(&Setup::new(&server, 1));
    let gave_up = when("a starts anew", || a.starts() == 2).await;
    assert!(gave_up < Duration::from_millis(1900), "before any deadline: {gave_up:?}");
    when("b leads", || b.said("promoted 2")).await;
    assert_eq!(
        (a.starts(), a.pids().len()),
        (2, 1),
        "the same process, and it leaves the lease to the other"
    );
    when("a says that it is no standby", || a.last_state() == "candidate").await;
    when("a stands by in the end", || a.last_state() == "standby").await;
    assert_eq!(a.starts(), 2);
}

async fn standalone_leads_at_once_and_ends_on_sigterm() {
    let server = cluster().await;
    let mut setup = Setup::new(&server, 0);
    setup.solo = true;
    let mut a = Child::start(&setup);
    when("it is promoted", || a.said("promoted 0")).await;
    assert!(a.terminate().await < Duration::from_millis(300));
    assert!(a.said("closed"), "it was asked to close first");
    assert_eq!(server.requests(), []);
}

fn main() {
    if child::is_child() {
        return child::main();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let only = std::env::args().nth(1).unwrap_or_default();
    let run = |name: &str, test: std::pin::Pin<Box<dyn Future<Output = ()>>>| {
        if !only.starts_with('-') && !name.contains(&only) {
            return;
        }
        println!("test {name}");
        runtime.block_on(test);
    };
    macro_rules! tests {
        ($($name:path),* $(,)?) => { $(run(stringify!($name), Box::pin($name()));)* };
    }
    tests!(
        standalone_leads_at_once_and_ends_on_sigterm,
        sigterm_fences_releases_and_ends_and_the_other_takes_over,
        a_lost_lease_makes_it_start_anew_in_the_same_process,
        sigterm_ends_it_in_time_while_the_api_server_does_not_answer,
        an_api_server_that_is_away_costs_the_permit_and_the_connections_but_not_the_epoch,
        a_holder_that_never_gets_to_serve_leaves_the_lease_to_the_other,
        a_crashed_process_is_released_by_its_successor_in_the_same_pod,
        the_label_comes_back_and_foreign_labels_stay,
        a_new_lease_goes_on_above_the_epochs_on_the_pods,
        a_later_epoch_on_a_pod_makes_the_holder_start_anew_above_it,
        a_promotion_that_fails_gives_the_lease_up_in_the_same_process,
        handover::a_designation_is_obeyed_and_connections_stay_until_the_successor_is_ready,
        handover::connections_do_not_stay_for_ever,
        handover::connections_go_when_the_successor_has_released_again,
        handover::a_call_that_never_ends_delays_it_by_the_bound_and_the_release_comes_last,
        handover::a_successor_that_does_not_come_costs_a_lease_duration,
        handover::sigterm_in_the_middle_ends_it_in_time,
        handover::nobody_hands_over_to_itself,
    );
    println!("all ok");
}
