//! Master {0, P} x client {auto, strict P, strict wrong, legacy} x keep-on-main: no cell connects and then expires.

use crate::{MAIN, Network, PORT, TTL, WRONG, at, connect, master::Master, segment};
use mooncake_client::{ConnectCode, HeartbeatMode, Route};

use ConnectCode::{HeartbeatRoutingMismatch, HeartbeatRpcUnreachable};
use HeartbeatMode::{Auto, Legacy, Strict};

/// Connects, mounts, and watches three TTLs; the route.
async fn cell(port: u16, keep_on_main: bool, mode: HeartbeatMode) -> Result<Route, ConnectCode> {
    let network = Network::new();
    let master = Master::new(port, keep_on_main);
    network.start(&master, "10.0.0.1");
    let client = connect(&network, mode).await.map_err(|error| error.code())?;
    client.mount_segment(segment()).await.expect("mounts");
    tokio::time::sleep(3 * TTL).await;
    assert!(master.silence() < TTL / 4, "{port} {keep_on_main} {mode:?}: silent for {:?}", master.silence());
    let notes = master.notes.lock();
    let route = client.route().expect("connected");
    match route {
        Route::Main => assert!(notes.pings_on_main >= 30 && notes.pings_on_port == 0),
        // The handshake makes one trial Ping on the port itself.
        Route::Dedicated(_) => assert!(notes.pings_on_port >= 30 && notes.pings_on_main == 0),
    }
    Ok(route)
}

#[tokio::test(start_paused = true)]
async fn every_cell_works_or_fails_at_connect_with_its_name() {
    let table = [
        // master, keep on main, client, result
        (0, true, Auto, Ok(Route::Main)),
        (0, true, Strict(PORT), Err(HeartbeatRoutingMismatch)),
        (0, true, Strict(WRONG), Err(HeartbeatRoutingMismatch)),
        (0, true, Legacy, Ok(Route::Main)),
        (0, false, Auto, Ok(Route::Main)),
        (0, false, Strict(PORT), Err(HeartbeatRoutingMismatch)),
        (0, false, Strict(WRONG), Err(HeartbeatRoutingMismatch)),
        (0, false, Legacy, Ok(Route::Main)),
        (PORT, true, Auto, Ok(Route::Dedicated(PORT))),
        (PORT, true, Strict(PORT), Ok(Route::Dedicated(PORT))),
        (PORT, true, Strict(WRONG), Err(HeartbeatRpcUnreachable)),
        (PORT, true, Legacy, Ok(Route::Main)),
        (PORT, false, Auto, Ok(Route::Dedicated(PORT))),
        (PORT, false, Strict(PORT), Ok(Route::Dedicated(PORT))),
        (PORT, false, Strict(WRONG), Err(HeartbeatRpcUnreachable)),
        (PORT, false, Legacy, Err(HeartbeatRoutingMismatch)),
        // The main port answers ServiceReady, too, so it passes for a heartbeat port until a Ping is refused.
        (PORT, false, Strict(MAIN), Err(HeartbeatRoutingMismatch)),
    ];
    for (port, keep_on_main, mode, expected) in table {
        let found = cell(port, keep_on_main, mode).await;
        assert_eq!(found, expected, "master {port}, keep on main {keep_on_main}, client {mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mapped_port_that_differs_from_the_advertised_one_is_used() {
    let network = Network::new();
    let master = Master::new(PORT, false);
    network.start(&master, "10.0.0.1");
    network.listen(at(WRONG), crate::master::Door { master: master.clone(), main: false });
    let client = connect(&network, Strict(WRONG)).await.expect("connects");
    assert_eq!(client.route(), Some(Route::Dedicated(WRONG)));
}

#[tokio::test(start_paused = true)]
async fn a_blackholed_heartbeat_port_at_connect() {
    for (keep_on_main, mode, expected) in [
        (true, Auto, Ok(Some(Route::Main))),
        (false, Auto, Err(HeartbeatRpcUnreachable)),
        (true, Strict(PORT), Err(HeartbeatRpcUnreachable)),
        (true, Legacy, Ok(Some(Route::Main))),
    ] {
        let network = Network::new();
        network.start(&Master::new(PORT, keep_on_main), "10.0.0.1");
        network.blackhole(at(PORT));
        let found = connect(&network, mode).await;
        let found = found.map(|client| client.route()).map_err(|error| error.code());
        assert_eq!(found, expected, "keep on main {keep_on_main}, client {mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_of_another_master_is_not_used() {
    let network = Network::new();
    let (active, other) = (Master::with_epoch(PORT, true, 5), Master::with_epoch(PORT, true, 4));
    network.start(&active, "10.0.0.1");
    network.listen(at(PORT), crate::master::Door { master: other, main: false });
    let error = connect(&network, Strict(PORT)).await.expect_err("epochs differ");
    assert_eq!(error.code(), HeartbeatRpcUnreachable);
    assert!(error.to_string().contains("epoch 4"), "{error}");
    let client = connect(&network, Auto).await.expect("main serves heartbeats");
    assert_eq!(client.route(), Some(Route::Main));
}

#[tokio::test(start_paused = true)]
async fn another_version_and_no_master_are_named() {
    let network = Network::new();
    let error = connect(&network, Auto).await.expect_err("nobody listens");
    assert_eq!(error.code(), ConnectCode::RpcFail);
    network.blackhole(at(MAIN));
    let error = connect(&network, Auto).await.expect_err("nobody answers");
    assert_eq!(error.code(), ConnectCode::RpcFail);
    assert!(error.to_string().contains("no answer within 3s"), "{error}");
    let master = Master {
        port: 0,
        keep_on_main: true,
        version: "3.0.0",
        epoch: 0,
        notes: parking_lot::Mutex::default(),
    };
    network.start(&std::sync::Arc::new(master), "10.0.0.1");
    let error = connect(&network, Auto).await.expect_err("another version");
    assert_eq!(error.code(), ConnectCode::InvalidVersion);
}
