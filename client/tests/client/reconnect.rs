//! Restarts, stale connections, failover (C5).

use crate::{
    MAIN, Network, PORT, at, connect, master::Master, mounted, network::Line, options, seconds, settle,
};
use mooncake_client::{Client, ConnectCode, Error, HeartbeatMode, Route};
use std::net::SocketAddr;
use tonic::Status;

#[tokio::test(start_paused = true)]
async fn a_stale_connection_is_replaced_once_on_both_ports() {
    // Stale: found out by using it. Silent: found out by waiting. Cut: known before it is used.
    for line in [Line::Stale, Line::Cut, Line::Silent] {
        for mode in [HeartbeatMode::Auto, HeartbeatMode::Strict(PORT)] {
            let network = Network::new();
            network.start(&Master::new(PORT, false), "10.0.0.1");
            let client = connect(&network, mode).await.unwrap();
            for port in [MAIN, PORT] {
                network.set(at(port), line);
            }
            network.start(&Master::new(PORT, false), "10.0.0.1");
            network.attempts.lock().clear();
            client.reconnect().await.unwrap_or_else(|error| panic!("{line:?} {mode:?}: {error}"));
            assert_eq!(client.route(), Some(Route::Dedicated(PORT)));
            assert_eq!(*network.attempts.lock(), [MAIN, PORT], "{line:?} {mode:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_survives_a_restart_and_a_mutation_is_not_sent_twice() {
    let (network, client) = mounted(HeartbeatMode::Strict(PORT), &Master::new(PORT, true)).await;
    let second = Master::new(PORT, true);
    network.set(at(MAIN), Line::Stale);
    network.set(at(PORT), Line::Stale);
    network.start(&second, "10.0.0.1");
    assert!(client.exist_key("key").await.unwrap());
    assert_eq!(client.route(), Some(Route::Dedicated(PORT)), "no false HEARTBEAT_RPC_UNREACHABLE");
    network.set(at(MAIN), Line::Stale);
    network.start(&second, "10.0.0.1");
    let error = client.put_start("key", 1, None).await.unwrap_err();
    assert!(matches!(error, Error::Broken(_)), "{error}");
    assert_eq!(second.notes.lock().put_calls, 0);
    client.put_start("key", 1, None).await.expect("the next one goes over a new connection");
    network.set(at(MAIN), Line::Cut);
    network.start(&second, "10.0.0.1");
    settle().await;
    client.put_start("key", 1, None).await.expect("the old one is known to be dead: nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn a_failed_new_connection_is_not_retried_and_the_address_is_forgotten() {
    let network = Network::new();
    network.name("master:50051", at(MAIN));
    network.start(&Master::new(0, true), "10.0.0.1");
    let mut options = options(&network, HeartbeatMode::Auto);
    options.masters = vec!["master:50051".into()];
    let client = Client::connect(options).await.unwrap();
    network.close(at(MAIN), Line::Cut);
    settle().await;
    network.attempts.lock().clear();
    let error = client.exist_key("key").await.unwrap_err();
    assert!(matches!(&error, Error::Connect(error) if error.code() == ConnectCode::RpcFail), "{error}");
    assert_eq!(network.attempts.lock().len(), 1);
    assert_eq!(network.resolved.lock().len(), 1);
    // The name leads somewhere else now.
    network.name("master:50051", SocketAddr::from(([10, 0, 0, 2], MAIN)));
    network.start(&Master::new(0, true), "10.0.0.2");
    assert!(client.exist_key("key").await.unwrap());
    assert_eq!(network.resolved.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_follow_a_failover_to_the_other_port() {
    let old = Master::with_epoch(PORT, true, 4);
    let (network, client) = mounted(HeartbeatMode::Auto, &old).await;
    assert_eq!(client.epoch(), Some(4));
    seconds(3).await;
    // Behind the same address another pod answers, with another heartbeat port.
    let new = Master::with_epoch(crate::WRONG, true, 5);
    for port in [MAIN, PORT] {
        network.close(at(port), Line::Cut);
    }
    seconds(2).await;
    assert!(client.heartbeat().borrow().error.is_some());
    network.start(&new, "10.0.0.1");
    seconds(3).await;
    assert_eq!(client.epoch(), Some(5));
    let status = client.heartbeat().borrow().clone();
    assert_eq!((status.route, status.error, status.remounts), (Route::Dedicated(crate::WRONG), None, 1));
}

#[tokio::test(start_paused = true)]
async fn another_epoch_on_the_heartbeat_port_brings_a_new_handshake() {
    let (network, client) = mounted(HeartbeatMode::Auto, &Master::with_epoch(PORT, true, 4)).await;
    seconds(2).await;
    // Only the connection to the heartbeat port has ended; the one to the old active hangs on.
    let new = Master::with_epoch(PORT, true, 5);
    network.set(at(PORT), Line::Cut);
    network.start(&new, "10.0.0.1");
    seconds(3).await;
    assert_eq!(client.epoch(), Some(5));
    assert!(new.notes.lock().pings_on_port > 1);
}

#[tokio::test(start_paused = true)]
async fn unavailable_and_not_leader_bring_a_new_handshake() {
    let master = Master::with_epoch(PORT, true, 7);
    let (_network, client) = mounted(HeartbeatMode::Auto, &master).await;
    let handshakes =
        || master.notes.lock().epochs.iter().filter(|(name, _)| *name == "heartbeat_service_ready").count();
    assert_eq!(handshakes(), 1);
    master.refuse("exist_key", Status::unavailable("stopped"));
    assert!(client.exist_key("key").await.unwrap(), "a read is repeated");
    assert_eq!(handshakes(), 2);
    master.refuse("put_start", Status::unavailable("stopped"));
    let error = client.put_start("key", 1, None).await.unwrap_err();
    assert!(matches!(error, Error::NotServing(_)), "{error}");
    let not_leader = || Status::failed_precondition("NOT_LEADER: the call believes in epoch 6");
    master.refuse("put_start", not_leader());
    client.put_start("key", 1, None).await.expect("refused before it was done, so it is repeated");
    assert_eq!(handshakes(), 4);
    for _ in 0..2 {
        master.refuse("put_start", not_leader());
    }
    let error = client.put_start("key", 1, None).await.unwrap_err();
    assert!(matches!(error, Error::NotServing(_)), "{error}");
    assert_eq!(handshakes(), 5);
    master.refuse("ping", not_leader());
    seconds(2).await;
    assert_eq!(handshakes(), 6, "a heartbeat leads to a handshake, too");
    assert_eq!(client.heartbeat().borrow().error, None);
}

#[tokio::test(start_paused = true)]
async fn of_several_masters_the_one_that_serves_is_found() {
    let network = Network::new();
    network.start(&Master::with_epoch(PORT, true, 3), "10.0.0.2");
    let mut options = options(&network, HeartbeatMode::Strict(PORT));
    options.masters.push("10.0.0.2:50051".into());
    let client = Client::connect(options.clone()).await.unwrap();
    assert_eq!(client.epoch(), Some(3));
    options.heartbeat = Some(HeartbeatMode::Strict(crate::WRONG));
    let error = Client::connect(options).await.unwrap_err();
    assert_eq!(
        error.code(),
        ConnectCode::HeartbeatRpcUnreachable,
        "it says more than that a standby is closed"
    );
}
