//! The matrix of C4 against the real master: its own binary, on loopback, in real time.

use mooncake_client::{Client, ClientOptions, ConnectCode, HeartbeatMode, Route, v1};
use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A master with a TTL of two seconds; killed by its pid when dropped.
struct Master {
    child: Child,
    ports: [u16; 4],
}

/// Ports that were free a moment ago: main, admin, heartbeat, and one where nobody listens.
fn free_ports() -> [u16; 4] {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let listeners: [TcpListener; 4] = std::array::from_fn(bind);
    std::array::from_fn(|i| listeners[i].local_addr().expect("bound").port())
}

impl Master {
    fn start(ports: [u16; 4], heartbeat_port: bool, keep_on_main: bool) -> Master {
        let mut binary = std::env::current_exe().expect("a test has an executable");
        binary.pop();
        binary.pop();
        binary.push("mooncake-master");
        assert!(binary.exists(), "{} is missing: build the workspace first (cargo build)", binary.display());
        let [main, admin, heartbeat, _] = ports;
        let mut command = Command::new(binary);
        command
            .args(["--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1", "--termination_log="])
            .args(["--client_active_ttl_sec=2", "--client_suspicion_ttl_sec=2"])
            .arg(format!("--rpc_port={main}"))
            .arg(format!("--metrics_port={admin}"))
            .arg(format!("--heartbeat_keep_on_main={keep_on_main}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if heartbeat_port {
            command.arg(format!("--heartbeat_rpc_port={heartbeat}"));
        }
        let child = command.spawn().expect("the master starts");
        let master = Master { child, ports };
        for _ in 0..1000 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, main)).is_ok() {
                return master;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the master does not accept");
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[1])).expect("the admin port");
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answered");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn connect(master: &Master, mode: HeartbeatMode) -> Result<Client, ConnectCode> {
    let options = ClientOptions {
        heartbeat: Some(mode),
        heartbeat_interval: Duration::from_millis(200),
        ..ClientOptions::new(SocketAddr::from((Ipv4Addr::LOCALHOST, master.ports[0])).to_string())
    };
    Client::connect(options).await.map_err(|error| error.code())
}

async fn mount(client: &Client) {
    let segment = v1::Segment {
        id: Some(client.id()),
        name: format!("host-{}:1", client.id().first),
        base: 1 << 32,
        size: 64 << 20,
        te_endpoint: "host:1".into(),
        protocol: "tcp".into(),
        ..Default::default()
    };
    client.mount_segment(segment).await.expect("mounts");
}

const SUSPECTED: &str = "master_client_liveness_suspected_transitions_total";

#[tokio::test]
async fn no_cell_of_the_matrix_connects_and_then_expires() {
    tokio::join!(column(false, true), column(true, true), column(true, false));
}

/// Every kind of client against one master.
async fn column(heartbeat_port: bool, keep_on_main: bool) {
    use ConnectCode::{HeartbeatRoutingMismatch, HeartbeatRpcUnreachable};
    let ports = free_ports();
    let [_, _, port, wrong] = ports;
    let master = Master::start(ports, heartbeat_port, keep_on_main);
    let expected = |mode| match (heartbeat_port, keep_on_main, mode) {
        (false, _, HeartbeatMode::Strict(_)) | (true, false, HeartbeatMode::Legacy) => {
            Err(HeartbeatRoutingMismatch)
        }
        (true, _, HeartbeatMode::Strict(n)) if n == wrong => Err(HeartbeatRpcUnreachable),
        (true, _, HeartbeatMode::Auto | HeartbeatMode::Strict(_)) => Ok(Some(Route::Dedicated(port))),
        _ => Ok(Some(Route::Main)),
    };
    let mut clients = Vec::new();
    for mode in [
        HeartbeatMode::Auto,
        HeartbeatMode::Strict(port),
        HeartbeatMode::Strict(wrong),
        HeartbeatMode::Legacy,
    ] {
        let found = connect(&master, mode).await;
        let route = found.as_ref().map(Client::route).map_err(|code| *code);
        assert_eq!(route, expected(mode), "port {heartbeat_port}, main {keep_on_main}, {mode:?}");
        if let Ok(client) = found {
            mount(&client).await;
            clients.push(client);
        }
    }
    // Three TTLs.
    tokio::time::sleep(Duration::from_secs(6)).await;
    for client in &clients {
        let status = client.heartbeat().borrow().clone();
        assert_eq!(status.client, Some(v1::ClientStatus::ClientOk), "{status:?}");
        assert_eq!((status.remounts, status.error), (1, None), "the first Ping asks for it, none after it");
    }
    assert!(master.metric(SUSPECTED) < 1.0, "port {heartbeat_port}, main {keep_on_main}: somebody expired");
}

#[tokio::test]
async fn a_client_lives_through_restarts_on_the_same_ports() {
    let ports = free_ports();
    let mut master = Master::start(ports, true, false);
    let client = connect(&master, HeartbeatMode::Strict(ports[2])).await.expect("connects");
    mount(&client).await;
    client.put_start("key", 4096, None).await.expect("there is room");
    client.put_end("key", None, None).await.expect("ends");
    assert!(client.exist_key("key").await.expect("answers"));
    for _ in 0..2 {
        // Before the restart: the loop may be faster than this test.
        let remounts = client.heartbeat().borrow().remounts;
        drop(master);
        master = Master::start(ports, true, false);
        client.reconnect().await.expect("no false HEARTBEAT_RPC_UNREACHABLE");
        assert!(!client.exist_key("key").await.expect("answers"), "a new process starts empty");
        let mut heartbeat = client.heartbeat();
        tokio::time::timeout(Duration::from_secs(5), heartbeat.wait_for(|status| status.remounts > remounts))
            .await
            .expect("it mounts again")
            .expect("the loop runs");
    }
    assert!(client.health_check().await.expect("answers").ok);
}
