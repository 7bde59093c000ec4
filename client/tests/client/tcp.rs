//! The same over TCP on loopback, in real time.

use crate::master::{Door, Master};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use mooncake_client::{Client, ClientOptions, HeartbeatMode, Route};
use mooncake_proto::v1::master_service_server::MasterServiceServer;
use std::net::SocketAddr;
use tokio::{net::TcpListener, task::JoinSet};

/// Serves until it is dropped, then every connection is closed.
fn serve(listener: TcpListener, door: Door) -> JoinSet<()> {
    let mut set = JoinSet::new();
    set.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(MasterServiceServer::new(door.clone()));
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            connections
                .spawn(async move { drop(http.serve_connection(TokioIo::new(stream), service).await) });
        }
    });
    set
}

#[tokio::test]
async fn a_restart_on_the_same_ports() {
    let bind = |port: u16| TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port)));
    let (main, heartbeat) = (bind(0).await.unwrap(), bind(0).await.unwrap());
    let (port, heartbeat_port) = (main.local_addr().unwrap().port(), heartbeat.local_addr().unwrap().port());
    let master = Master::new(heartbeat_port, false);
    let mut running = serve(main, Door { master: master.clone(), main: true });
    let mut beating = serve(heartbeat, Door { master, main: false });
    let options = ClientOptions {
        heartbeat: Some(HeartbeatMode::Strict(heartbeat_port)),
        ..ClientOptions::new(format!("localhost:{port}"))
    };
    let client = Client::connect(options).await.unwrap();
    client.mount_segment(crate::segment()).await.unwrap();
    for _ in 0..3 {
        running.shutdown().await;
        beating.shutdown().await;
        let master = Master::new(heartbeat_port, false);
        running = serve(bind(port).await.unwrap(), Door { master: master.clone(), main: true });
        beating = serve(bind(heartbeat_port).await.unwrap(), Door { master, main: false });
        client.reconnect().await.expect("no false HEARTBEAT_RPC_UNREACHABLE");
        assert!(client.exist_key("key").await.unwrap());
        assert_eq!(client.route(), Some(Route::Dedicated(heartbeat_port)));
    }
}
