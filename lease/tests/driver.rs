//! The driver and the election against a small API server on loopback, in real time with short periods.

#![allow(clippy::unwrap_used, reason = "a test")]
#![cfg(feature = "kube")]

#[path = "support/apiserver.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with other tests")]
mod apiserver;

use apiserver::ApiServer;
use mooncake_lease::{
    BootClock, Clock, ElectorConfig, Identity, Timings,
    driver::DriverConfig,
    election::{Election, random_incarnation},
};
use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/m";

fn config(url: &str, pod: u8) -> DriverConfig {
    let ms = Duration::from_millis;
    DriverConfig {
        elector: ElectorConfig {
            identity: Identity {
                address: format!("10.0.0.{pod}:50051"),
                pod_name: format!("m-{pod}"),
                pod_uid: format!("uid-of-{pod}"),
                incarnation: random_incarnation(),
            },
            namespace: "ns".into(),
            lease_name: "m".into(),
            timings: Timings::new(ms(1000), ms(600), ms(200)).unwrap(),
            read_lease_ttl: None,
            empty_promotion_after: Some(ms(1000)),
            epoch_floor: 0,
            duration_floor: Duration::ZERO,
            may_claim: true,
        },
        kube: kube::Config::new(url.parse().unwrap()),
    }
}

fn start(server: &ApiServer, pod: u8) -> (Election, mpsc::Receiver<String>) {
    let (sender, lost) = mpsc::channel();
    let election = Election::start(config(&server.url, pod), Arc::new(BootClock), move |reason| {
        sender.send(reason).unwrap();
    });
    (election.unwrap(), lost)
}

/// Waits for a condition, and says how long it took.
async fn when(what: &str, condition: impl Fn() -> bool) -> Duration {
    let started = BootClock.now();
    while !condition() {
        assert!(BootClock.now().saturating_since(started) < Duration::from_secs(10), "waited for: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    BootClock.now().saturating_since(started)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elects_creates_fails_over_on_release_and_loses_to_another() {
    let server = ApiServer::start().await;
    let (a, a_lost) = start(&server, 1);
    when("a leads", || a.is_leader()).await;
    assert_eq!(server.get(LEASE).unwrap()["spec"]["leaseTransitions"], 1);

    let (b, b_lost) = start(&server, 2);
    when("b sees a", || b.standing().borrow().leader.as_ref().is_some_and(|l| l.address == "10.0.0.1:50051"))
        .await;
    assert!(!b.is_leader());
    assert!(a.resign(Duration::from_secs(1)));
    let gap = when("b leads", || b.is_leader()).await;
    println!("claimed {gap:?} after the release");
    assert!(gap < Duration::from_millis(300), "the watch tells of the release: {gap:?}");
    assert_eq!(b.standing().borrow().epoch, 2);
    drop(a_lost);

    // A stranger takes it: the watch tells b, which ends.
    let mut lease = server.get(LEASE).unwrap();
    lease["spec"]["holderIdentity"] = "10.0.0.9:1".into();
    lease["spec"]["leaseTransitions"] = 3.into();
    lease["metadata"]["annotations"][mooncake_lease::record::INCARNATION] = "other".into();
    server.put(LEASE, lease);
    when("b is out", || !b.is_leader()).await;
    let reason = b_lost.recv_timeout(Duration::from_secs(2)).unwrap();
    assert!(reason.contains("10.0.0.9:1"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_api_server_ends_the_permit_in_time_and_the_epoch_goes_on_after_it() {
    let server = ApiServer::start().await;
    let (a, _lost) = start(&server, 1);
    when("a leads", || a.is_leader()).await;
    server.stall(true);
    let held = when("the permit ends", || !a.is_leader()).await;
    assert!(held <= Duration::from_millis(650), "{held:?}");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(!a.is_leader());
    server.stall(false);
    let back = when("a leads again", || a.is_leader()).await;
    assert!(back < Duration::from_secs(1), "{back:?}");
    assert_eq!(a.standing().borrow().epoch, 1, "nobody claimed it in between");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_lease_is_created_again_by_its_holder_without_a_gap() {
    let server = ApiServer::start().await;
    let (a, _lost) = start(&server, 1);
    when("a leads", || a.is_leader()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.delete(LEASE);
    when("it is there again", || server.get(LEASE).is_some()).await;
    when("in the next epoch", || a.standing().borrow().epoch == 2).await;
    assert!(a.is_leader());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replace_names_the_object_it_replaces() {
    let server = ApiServer::start().await;
    server.put(
        LEASE,
        serde_json::json!({
            "metadata": { "name": "m", "namespace": "ns", "ownerReferences": [{ "uid": "owner" }] },
            "spec": { "leaseTransitions": 6 },
        }),
    );
    let (a, _lost) = start(&server, 1);
    when("a leads", || a.is_leader()).await;
    assert_eq!(a.standing().borrow().epoch, 7);
    let lease = server.get(LEASE).unwrap();
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], "owner");
    assert_eq!(lease["metadata"]["uid"], "uid-1");
    assert!(server.requests().iter().all(|(method, ..)| *method != http::Method::POST));
}
