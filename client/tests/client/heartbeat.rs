//! Fall-back and return, remounts, and what the status tells.

use crate::{
    MAIN, Network, PORT, TTL, at, connect, master::Door, master::Master, mounted, network::Line, seconds,
};
use mooncake_client::{HeartbeatMode, Route, v1::ClientStatus};

#[tokio::test(start_paused = true)]
async fn a_client_without_a_segment_sends_no_heartbeat() {
    let network = Network::new();
    let master = Master::new(PORT, true);
    network.start(&master, "10.0.0.1");
    let _client = connect(&network, HeartbeatMode::Auto).await.unwrap();
    seconds(10).await;
    assert_eq!(master.notes.lock().pings_on_port, 1, "only the handshake's");
}

#[tokio::test(start_paused = true)]
async fn auto_falls_back_from_a_blackholed_port_and_returns() {
    let master = Master::new(PORT, true);
    let (network, client) = mounted(HeartbeatMode::Auto, &master).await;
    seconds(5).await;
    assert_eq!(client.heartbeat().borrow().route, Route::Dedicated(PORT));
    network.blackhole(at(PORT));
    // Two Pings of 1 s each, and one in between.
    seconds(4).await;
    let status = client.heartbeat().borrow().clone();
    assert_eq!((status.route, status.fell_back, status.error), (Route::Main, true, None));
    seconds(30).await;
    assert!(client.heartbeat().borrow().fell_back);
    network.listen(at(PORT), Door { master: master.clone(), main: false });
    seconds(12).await;
    let status = client.heartbeat().borrow().clone();
    assert_eq!((status.route, status.fell_back), (Route::Dedicated(PORT), false));
    assert!(master.silence() < TTL / 2, "{:?}", master.silence());
    assert_eq!(client.heartbeat().borrow().client, Some(ClientStatus::ClientOk));
}

#[tokio::test(start_paused = true)]
async fn strict_reports_a_blackholed_port_and_stays_there() {
    let master = Master::new(PORT, true);
    let (network, client) = mounted(HeartbeatMode::Strict(PORT), &master).await;
    network.blackhole(at(PORT));
    seconds(10).await;
    let status = client.heartbeat().borrow().clone();
    assert_eq!(status.route, Route::Dedicated(PORT));
    assert!(status.failures >= 4, "{status:?}");
    assert!(status.error.as_deref().is_some_and(|error| error.contains("no answer within 1s")), "{status:?}");
    assert_eq!(master.notes.lock().pings_on_main, 0);
    assert!(client.exist_key("key").await.unwrap(), "data goes on");
    network.listen(at(PORT), Door { master: master.clone(), main: false });
    seconds(3).await;
    assert_eq!(client.heartbeat().borrow().error, None);
}

#[tokio::test(start_paused = true)]
async fn auto_without_heartbeats_on_main_has_nothing_to_fall_back_to() {
    let master = Master::new(PORT, false);
    let (network, client) = mounted(HeartbeatMode::Auto, &master).await;
    network.blackhole(at(PORT));
    seconds(20).await;
    let status = client.heartbeat().borrow().clone();
    assert!(status.error.is_some() && status.failures > 5, "{status:?}");
    assert!(client.exist_key("key").await.unwrap(), "data goes on");
    network.listen(at(PORT), Door { master: master.clone(), main: false });
    seconds(5).await;
    assert_eq!(client.heartbeat().borrow().error, None);
}

#[tokio::test(start_paused = true)]
async fn segments_are_mounted_again_on_need_remount() {
    let (network, client) = mounted(HeartbeatMode::Auto, &Master::new(PORT, true)).await;
    seconds(2).await;
    let restarted = Master::new(PORT, true);
    network.set(at(MAIN), Line::Cut);
    network.set(at(PORT), Line::Cut);
    network.start(&restarted, "10.0.0.1");
    seconds(3).await;
    assert_eq!(restarted.notes.lock().remounts, 1);
    let status = client.heartbeat().borrow().clone();
    assert_eq!((status.remounts, status.client), (1, Some(ClientStatus::ClientOk)));
    client.unmount_segment(crate::segment().id.unwrap()).await.unwrap();
    let pings = restarted.notes.lock().pings_on_port;
    seconds(5).await;
    assert_eq!(restarted.notes.lock().pings_on_port, pings, "nothing to keep alive any more");
}

#[tokio::test(start_paused = true)]
async fn heartbeats_end_with_the_last_clone() {
    let master = Master::new(0, true);
    let (_network, client) = mounted(HeartbeatMode::Auto, &master).await;
    let clone = client.clone();
    drop(client);
    seconds(5).await;
    let pings = master.notes.lock().pings_on_main;
    assert!(pings >= 4);
    drop(clone);
    seconds(5).await;
    assert_eq!(master.notes.lock().pings_on_main, pings);
}
