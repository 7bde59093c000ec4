//! Planned hand-overs by designation.

use crate::{
    LEASE,
    apiserver::ApiServer,
    assert_one_label_at_a_time,
    child::{Child, DRAIN, SEE_OFF, SUCCESSOR_READY, Setup},
    cluster, end_of, holder, label, pod_path, when,
};
use mooncake_lease::record::{DESIGNATED, RELEASED, RELEASED_FOR};
use mooncake_master::clock::{BootClock, Clock};
use serde_json::{Value, json};
use std::{
    io::{ErrorKind, Read},
    net::TcpStream,
    time::Duration,
};

/// The lease duration and the retry period of the children.
const DURATION: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(200);

/// Asks the holder as the operator does.
fn designate(server: &ApiServer, incarnation: &str) {
    server.patch(LEASE, &json!({ "metadata": { "annotations": { DESIGNATED: incarnation } } }));
}

fn annotation(server: &ApiServer, name: &str) -> Value {
    server.get(LEASE).unwrap()["metadata"]["annotations"][name].clone()
}

fn epoch(server: &ApiServer) -> u64 {
    server.get(LEASE).unwrap()["spec"]["leaseTransitions"].as_u64().unwrap()
}

fn set_ready(server: &ApiServer, ordinal: u8, ready: bool) {
    let status = if ready { "True" } else { "False" };
    let conditions = json!([{ "type": "Ready", "status": status }]);
    server.patch(&pod_path(ordinal), &json!({ "status": { "conditions": conditions } }));
}

/// A leader, and a connection to it.
async fn leader(server: &ApiServer, setup: &Setup) -> (Child, TcpStream) {
    let a = Child::start(setup);
    when("a is promoted", || a.said("promoted 1")).await;
    when("a is labelled", || label(server, 0) == "leader").await;
    let connection = TcpStream::connect(a.address()).unwrap();
    when("a accepted it", || a.said("accepted")).await;
    (a, connection)
}

async fn standby(server: &ApiServer) -> Child {
    let b = Child::start(&Setup::new(server, 1));
    when("b stands by", || b.said("state standby")).await;
    b
}

fn is_open(connection: &mut TcpStream) -> bool {
    connection.set_nonblocking(true).unwrap();
    let open = connection.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    connection.set_nonblocking(false).unwrap();
    open
}

pub(crate) async fn a_designation_is_obeyed_and_connections_stay_until_the_successor_is_ready() {
    let server = cluster().await;
    let (mut a, mut connection) = leader(&server, &Setup::new(&server, 0)).await;
    let b = standby(&server).await;
    set_ready(&server, 1, false);
    designate(&server, &b.incarnation(0));
    let gap = when("b is promoted", || b.said("promoted 2")).await;
    println!("  designation to the promotion of the successor: {gap:?}");
    when("b is labelled", || label(&server, 1) == "leader").await;
    let history = server.history();
    let released = |value: &&Value| !value["metadata"]["annotations"][RELEASED].is_null();
    let release = history.iter().map(|(_, value)| value).find(released).unwrap();
    assert_eq!(release["metadata"]["annotations"][RELEASED], a.incarnation(0).as_str());
    assert_eq!(release["metadata"]["annotations"][RELEASED_FOR], b.incarnation(0).as_str());
    assert_eq!(annotation(&server, DESIGNATED), Value::Null);

    // Ready for less than it takes is not ready.
    set_ready(&server, 1, true);
    tokio::time::sleep(SUCCESSOR_READY / 3).await;
    set_ready(&server, 1, false);
    tokio::time::sleep(SUCCESSOR_READY).await;
    assert!(is_open(&mut connection) && a.starts() == 1);
    set_ready(&server, 1, true);
    let settled = when("a starts anew", || a.starts() == 2).await;
    println!("  ready to the end of the old connections: {settled:?}");
    assert!(settled >= SUCCESSOR_READY, "{settled:?}");
    let end = tokio::task::spawn_blocking(move || end_of(connection)).await.unwrap();
    assert_eq!(end, ErrorKind::ConnectionReset);
    assert_eq!(a.pids().len(), 1, "the same process");
    when("a stands by", || a.last_state() == "standby").await;
    assert_one_label_at_a_time(&server);
    a.terminate().await;
}

pub(crate) async fn connections_do_not_stay_for_ever() {
    let server = cluster().await;
    let (a, mut connection) = leader(&server, &Setup::new(&server, 0)).await;
    let b = standby(&server).await;
    designate(&server, &b.incarnation(0));
    when("b is promoted", || b.said("promoted 2")).await;
    let stayed = when("a starts anew", || a.starts() == 2).await;
    assert!(stayed + Duration::from_millis(500) >= SEE_OFF, "{stayed:?}");
    assert!(!is_open(&mut connection));
}

pub(crate) async fn connections_go_when_the_successor_has_released_again() {
    let server = cluster().await;
    let (a, mut connection) = leader(&server, &Setup::new(&server, 0)).await;
    let mut b = standby(&server).await;
    set_ready(&server, 1, false);
    designate(&server, &b.incarnation(0));
    when("b is promoted", || b.said("promoted 2")).await;
    assert_eq!(a.last_state(), "candidate", "it cannot claim before it starts anew");
    b.terminate().await;
    let stayed = when("a leads again", || a.said("promoted 3")).await;
    println!("  release of the successor to the promotion of the old one: {stayed:?}");
    assert!(stayed < SEE_OFF, "{stayed:?}");
    assert_eq!(a.starts(), 2);
    assert!(!is_open(&mut connection));
}

pub(crate) async fn a_call_that_never_ends_delays_it_by_the_bound_and_the_release_comes_last() {
    let server = cluster().await;
    let mut setup = Setup::new(&server, 0);
    setup.calls_never_end = true;
    let (a, mut connection) = leader(&server, &setup).await;
    let b = standby(&server).await;
    designate(&server, &b.incarnation(0));
    let began = BootClock.now();
    when("calls are held", || a.said("hold draining")).await;
    assert_eq!(a.last_state(), "serving");
    // Whatever is written from now on waits: the permit must go without it.
    server.stall(true);
    when("nothing is answered", || a.said("hold suspended")).await;
    let drained = BootClock.now().saturating_since(began);
    println!("  designation to the end of the permit with a call that never ends: {drained:?}");
    assert!(drained >= DRAIN && drained < DRAIN + Duration::from_millis(300), "{drained:?}");
    assert_eq!(annotation(&server, RELEASED), Value::Null, "released before the permit was gone");
    server.stall(false);
    when("b is promoted", || b.said("promoted 2")).await;
    assert!(is_open(&mut connection));
}

pub(crate) async fn a_successor_that_does_not_come_costs_a_lease_duration() {
    let server = cluster().await;
    let (a, connection) = leader(&server, &Setup::new(&server, 0)).await;
    designate(&server, "nobody");
    when("nothing is answered", || a.said("hold suspended")).await;
    when("it is released", || annotation(&server, RELEASED_FOR) == "nobody").await;
    let end = tokio::task::spawn_blocking(move || end_of(connection));
    let gap = when("a serves again", || a.last_state() == "serving" && a.said("hold none")).await;
    println!("  release to the take-back: {gap:?}");
    assert!(gap < DURATION + 3 * RETRY, "{gap:?}");
    assert_eq!(end.await.unwrap(), ErrorKind::ConnectionReset);
    assert_eq!((epoch(&server), a.starts()), (1, 1), "the same epoch, the same memory");
    assert_eq!(annotation(&server, RELEASED), Value::Null);
    when("a is labelled", || label(&server, 0) == "leader").await;

    // The release has removed the request: the same one again is a new one.
    designate(&server, "nobody");
    when("it is released again", || annotation(&server, RELEASED_FOR) == "nobody").await;
    let serves = || annotation(&server, RELEASED).is_null() && a.last_state() == "serving";
    when("a serves again", serves).await;
    let b = standby(&server).await;
    designate(&server, &b.incarnation(0));
    when("b is promoted", || b.said("promoted 2")).await;
    assert_one_label_at_a_time(&server);
}

pub(crate) async fn sigterm_in_the_middle_ends_it_in_time() {
    // While running calls may end.
    let server = cluster().await;
    let mut setup = Setup::new(&server, 0);
    setup.calls_never_end = true;
    let (mut a, _connection) = leader(&server, &setup).await;
    designate(&server, "nobody");
    when("calls are held", || a.said("hold draining")).await;
    let took = a.terminate().await;
    assert!(took < Duration::from_millis(300), "{took:?}");
    assert_eq!(annotation(&server, RELEASED_FOR), Value::Null);
    assert_ne!(annotation(&server, RELEASED), Value::Null);

    // While the successor does not come.
    let server = cluster().await;
    let (mut a, _connection) = leader(&server, &Setup::new(&server, 0)).await;
    designate(&server, "nobody");
    when("it is released", || annotation(&server, RELEASED_FOR) == "nobody").await;
    let took = a.terminate().await;
    assert!(took < Duration::from_millis(300), "{took:?}");
    assert_eq!(annotation(&server, RELEASED_FOR), Value::Null, "for anyone");
    assert_ne!(annotation(&server, RELEASED), Value::Null);

    // While the successor is not ready.
    let server = cluster().await;
    let (mut a, _connection) = leader(&server, &Setup::new(&server, 0)).await;
    let b = standby(&server).await;
    designate(&server, &b.incarnation(0));
    when("b is promoted", || b.said("promoted 2")).await;
    let took = a.terminate().await;
    println!("  SIGTERM to the end of the process, while it sees connections off: {took:?}");
    assert!(took < Duration::from_millis(300), "{took:?}");
    assert_eq!((a.starts(), holder(&server)), (1, Some(Setup::new(&server, 1).advertised())));
}

pub(crate) async fn nobody_hands_over_to_itself() {
    let server = cluster().await;
    let (a, mut connection) = leader(&server, &Setup::new(&server, 0)).await;
    designate(&server, &a.incarnation(0));
    // It renews several times meanwhile, so it has seen it.
    tokio::time::sleep(4 * RETRY).await;
    assert!(is_open(&mut connection) && !a.said("hold draining"));
    assert_eq!((a.last_state().as_str(), epoch(&server)), ("serving", 1));
}
