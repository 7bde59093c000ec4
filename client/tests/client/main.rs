//! The client against a scripted master, on a network in memory under paused time.

#![allow(unreachable_pub, reason = "modules of one test binary")]

mod calls;
mod heartbeat;
mod master;
mod matrix;
mod network;
mod reconnect;
mod tcp;

use master::Master;
use mooncake_client::{Client, ClientOptions, ConnectError, HeartbeatMode, v1};
use network::Network;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Ports of the masters.
const MAIN: u16 = 50051;
const PORT: u16 = 50052;
const WRONG: u16 = 50053;
/// The default active TTL.
const TTL: Duration = Duration::from_secs(10);

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn options(network: &Arc<Network>, mode: HeartbeatMode) -> ClientOptions {
    ClientOptions {
        heartbeat: Some(mode),
        connector: network.clone(),
        ..ClientOptions::new(format!("10.0.0.1:{MAIN}"))
    }
}

async fn connect(network: &Arc<Network>, mode: HeartbeatMode) -> Result<Client, ConnectError> {
    Client::connect(options(network, mode)).await
}

fn segment() -> v1::Segment {
    v1::Segment {
        id: Some(v1::Uuid { first: 1, second: 2 }),
        name: "host:1".into(),
        base: 1 << 32,
        size: 1 << 30,
        ..Default::default()
    }
}

/// A connected client with a mounted segment and its network, for the usual case.
async fn mounted(mode: HeartbeatMode, master: &Arc<Master>) -> (Arc<Network>, Client) {
    let network = Network::new();
    network.start(master, "10.0.0.1");
    let client = connect(&network, mode).await.expect("connects");
    client.mount_segment(segment()).await.expect("mounts");
    (network, client)
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Until everything that can happen now has happened: paused time moves only when nothing else does.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
