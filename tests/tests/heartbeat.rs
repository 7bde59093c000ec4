//! Heartbeats that never queue behind data (C1 to C8): real processes on loopback.

mod support;

use mooncake_master::{
    error::ErrorCode,
    rpc::native::{generation::Method, value::Value},
    types::Uuid,
};
use mooncake_proto::v1;
use mooncake_tests::{
    MasterBuilder, NativeClient,
    fault::{figures, metric, quantile},
    master::free_ports,
    native::{config, uuid},
    wait_for,
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use support::Grpc;
use tokio::time::Instant;
use tonic::Code;
use tonic_types::StatusExt as _;

fn on(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn native(address: SocketAddr) -> NativeClient {
    NativeClient::connect(address).expect("the master accepts")
}

fn id(n: u64) -> Uuid {
    Uuid { first: n, second: n }
}

/// What one port says to a Ping, in terms of both protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Says {
    Served,
    Mismatch,
}

fn native_ping(address: SocketAddr) -> Says {
    match native(address).ping(id(77)).expect("an answer") {
        // Nobody mounted for this id.
        Ok((_, ok)) => {
            assert!(!ok);
            Says::Served
        }
        Err(code) => {
            assert_eq!((code, code.number()), (ErrorCode::HeartbeatRoutingMismatch, -902));
            Says::Mismatch
        }
    }
}

fn grpc_ping(address: SocketAddr, right_port: u16) -> Says {
    let request = v1::PingRequest { client_id: Some(v1::Uuid { first: 77, second: 77 }) };
    match Grpc::connect(address).call(async |client| client.ping(request).await) {
        Ok(answer) => {
            assert_eq!(answer.client_status(), v1::ClientStatus::NeedRemount);
            Says::Served
        }
        Err(status) => {
            assert_eq!(status.code(), Code::FailedPrecondition);
            assert!(status.message().starts_with("HEARTBEAT_ROUTING_MISMATCH"), "{status}");
            let details = status.get_error_details();
            let port = details.error_info().and_then(|info| info.metadata.get("heartbeat_rpc_port"));
            assert_eq!(port, Some(&right_port.to_string()), "{status}");
            Says::Mismatch
        }
    }
}

/// The master's side of C4's matrix: {no port, a port} × keep-on-main × protocol. The client library tests its own.
#[test]
fn every_port_says_what_it_serves() {
    for with_port in [false, true] {
        for keep in [true, false] {
            let [port] = free_ports();
            let number = if with_port { port } else { 0 };
            let master = MasterBuilder::default()
                .arg(format!("--heartbeat_rpc_port={number}"))
                .arg(format!("--heartbeat_keep_on_main={keep}"))
                .start();
            let main = master.rpc_address();
            let cell = format!("port {number}, keep_on_main {keep}");

            let mut client = native(main);
            let advertised = client.call(Method::GetHeartbeatRpcPort, vec![]).expect("an answer");
            assert_eq!(advertised, Ok(Value::U32(u32::from(number))), "{cell}");
            let ready = client.call(Method::HeartbeatServiceReady, vec![]).expect("an answer");
            assert_eq!(ready, Ok(Value::Struct(vec![Value::U32(u32::from(number))])), "{cell}");
            let grpc = Grpc::connect(main);
            let advertised =
                grpc.call(async |c| c.get_heartbeat_rpc_port(v1::GetHeartbeatRpcPortRequest {}).await);
            assert_eq!(advertised.expect("an answer").heartbeat_rpc_port, u32::from(number), "{cell}");
            let ready =
                grpc.call(async |c| c.heartbeat_service_ready(v1::HeartbeatServiceReadyRequest {}).await);
            assert_eq!(ready.expect("an answer").heartbeat_rpc_port, u32::from(number), "{cell}");

            let on_main = if keep || !with_port { Says::Served } else { Says::Mismatch };
            assert_eq!((native_ping(main), grpc_ping(main, port)), (on_main, on_main), "{cell}");
            let misrouted = |protocol: &str| {
                let name =
                    format!("mooncake_master_heartbeat_routing_mismatches_total{{protocol=\"{protocol}\"}}");
                metric(&master, &name).unwrap_or(0.0)
            };
            let expected = f64::from(u8::from(on_main == Says::Mismatch));
            assert_eq!((misrouted("native"), misrouted("grpc")), (expected, expected), "{cell}");
            assert_eq!(
                master.log().matches("HEARTBEAT_ROUTING_MISMATCH").count(),
                expected as usize,
                "{cell}"
            );

            if !with_port {
                assert!(NativeClient::connect(on(port)).is_err(), "{cell}");
                continue;
            }
            assert_eq!(
                (native_ping(on(port)), grpc_ping(on(port), port)),
                (Says::Served, Says::Served),
                "{cell}"
            );
            only_heartbeats_there(on(port), &cell);
        }
    }
}

/// C1: anything but Ping and ServiceReady is native error 11 or UNIMPLEMENTED.
fn only_heartbeats_there(address: SocketAddr, cell: &str) {
    let mut client = native(address);
    assert!(client.call(Method::ServiceReady, vec![]).expect("an answer").is_ok(), "{cell}");
    for method in Method::ALL.iter().filter(|m| !matches!(m, Method::Ping | Method::ServiceReady)) {
        // The arguments do not matter: it is not registered.
        let error = client.request(*method, vec![]).expect_err("not served here").to_string();
        assert!(error.starts_with("rpc error 11: "), "{cell}: {method:?}: {error}");
    }
    let grpc = Grpc::connect(address);
    assert!(grpc.call(async |c| c.service_ready(v1::ServiceReadyRequest {}).await).is_ok(), "{cell}");
    let refused = [
        grpc.call(async |c| c.exist_key(v1::ExistKeyRequest { key: "k".into(), ..Default::default() }).await)
            .err(),
        grpc.call(async |c| c.health_check(v1::HealthCheckRequest {}).await).err(),
        grpc.call(async |c| c.remove_all(v1::RemoveAllRequest::default()).await).err(),
        grpc.call(async |c| c.heartbeat_service_ready(v1::HeartbeatServiceReadyRequest {}).await).err(),
        grpc.call(async |c| c.get_storage_config(v1::GetStorageConfigRequest {}).await).err(),
    ];
    for status in refused {
        assert_eq!(status.expect("not served here").code(), Code::Unimplemented, "{cell}");
    }
}

#[test]
fn a_port_that_is_another_of_the_masters_stops_the_start() {
    let [rpc, metrics] = free_ports();
    for taken in [rpc, metrics] {
        let output = std::process::Command::new(mooncake_tests::master::binary("mooncake-master"))
            .args([format!("--rpc_port={rpc}"), format!("--metrics_port={metrics}")])
            .arg(format!("--heartbeat_rpc_port={taken}"))
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains("heartbeat_rpc_port"), "{text}");
    }
}

/// A client that beats on a port of its choice, and mounts again when it is told to.
struct Beating {
    stop: Arc<AtomicBool>,
    remounts: Arc<AtomicU64>,
    thread: Option<JoinHandle<Vec<Duration>>>,
}

impl Beating {
    /// Mounted when this returns. `discovers`: it asks for the port at each connect, as migrated clients do; else it
    /// beats on the main port, as the old ones do.
    fn start(main: SocketAddr, n: u64, discovers: bool) -> Beating {
        let (stop, remounts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (stop.clone(), remounts.clone());
        let mount = move |client: &mut NativeClient| {
            client
                .remount(id(n), id(n), "127.0.0.1:9", n << 32, 1 << 31)
                .expect("an answer")
                .expect("mounted");
        };
        mount(&mut native(main));
        let thread = std::thread::spawn(move || {
            let (mut link, mut times) = (None, Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                let connected = match link.take() {
                    Some(connected) => Ok(connected),
                    None => connect(main, discovers),
                };
                let began = Instant::now();
                let answer = connected.and_then(|mut client: NativeClient| Ok((client.ping(id(n))?, client)));
                if let Ok((pinged, client)) = answer {
                    times.push(began.elapsed());
                    let (_, ok) = pinged.unwrap_or_else(|code| panic!("client {n}: {code:?}"));
                    link = Some(client);
                    if !ok {
                        counted.fetch_add(1, Ordering::Relaxed);
                        // The master may be gone again meanwhile; the next Ping says so.
                        let _ = NativeClient::connect(main)
                            .and_then(|mut c| c.remount(id(n), id(n), "127.0.0.1:9", n << 32, 1 << 31));
                    }
                }
                std::thread::sleep(Duration::from_millis(200));
            }
            times
        });
        Beating { stop, remounts, thread: Some(thread) }
    }

    fn remounts(&self) -> u64 {
        self.remounts.load(Ordering::Relaxed)
    }

    /// How long its heartbeats took.
    fn finish(mut self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("not finished before").join().expect("no Ping was refused")
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn connect(main: SocketAddr, discovers: bool) -> std::io::Result<NativeClient> {
    let mut client = NativeClient::connect(main)?;
    if !discovers {
        return Ok(client);
    }
    match client.call(Method::GetHeartbeatRpcPort, vec![])? {
        Ok(Value::U32(0)) => Ok(client),
        Ok(Value::U32(port)) => NativeClient::connect(on(port as u16)),
        other => panic!("no port: {other:?}"),
    }
}

/// C2: off; on, with keep-on-main; clients migrated; keep-on-main off; and all the way back, by flags and restarts.
#[test]
fn nobody_expires_in_any_phase_of_the_roll_out() {
    const TTL: Duration = Duration::from_secs(1);
    let [port] = free_ports();
    let (off, port) = ("--heartbeat_rpc_port=0".to_owned(), format!("--heartbeat_rpc_port={port}"));
    let ttl = "--client_active_ttl_sec=1";
    let phases: [(&str, &str, bool); 4] = [
        ("off", &off, true),
        ("on, keep-on-main", &port, true),
        ("on, keep-on-main off", &port, false),
        ("on, keep-on-main again", &port, true),
    ];
    let keep = |keep: bool| format!("--heartbeat_keep_on_main={keep}");
    let mut master = MasterBuilder::default().arg(off.as_str()).arg(ttl).start();
    let main = master.rpc_address();
    let mut old: Option<Beating> = Some(Beating::start(main, 1, false));
    let migrated = [Beating::start(main, 2, true), Beating::start(main, 3, true)];
    let mut restarts = 0;
    let order = [0usize, 1, 2, 3, 0];
    for (step, phase) in order.into_iter().enumerate() {
        let (name, flag, kept) = phases[phase];
        // Before keep-on-main goes off every client is migrated; an old one may come back with it.
        if !kept && let Some(old) = old.take() {
            old.finish();
        }
        if step > 0 {
            let before: Vec<u64> = migrated.iter().map(Beating::remounts).collect();
            master = master.restart_with(&[flag, &keep(kept), ttl]);
            restarts += 1;
            wait_for("everybody mounts again", 10, || {
                let mut all = migrated.iter().zip(&before);
                all.all(|(client, before)| client.remounts() > *before).then_some(())
            });
        }
        if kept && old.is_none() {
            old = Some(Beating::start(main, 1, false));
        }
        let clients = f64::from(2 + u8::from(old.is_some()));
        wait_for("everybody is known", 10, || {
            (metric(&master, "master_client_liveness_active_clients") == Some(clients)).then_some(())
        });
        std::thread::sleep(3 * TTL);
        for state in ["suspected", "offline"] {
            let name = format!("master_client_liveness_{state}_transitions_total");
            assert_eq!(metric(&master, &name), Some(0.0), "phase {step}: {name}");
        }
        println!("phase {step} ({name}): {clients} clients, nobody suspected in {:?}", 3 * TTL);
    }
    let misses: Vec<u64> = migrated.iter().map(Beating::remounts).collect();
    for client in migrated.into_iter().chain(old) {
        println!("heartbeats: {}", figures(client.finish()));
    }
    // Each restart loses what was mounted, and asks for it once.
    assert!(misses.iter().all(|remounts| *remounts == restarts), "{misses:?} in {restarts} restarts");
}

/// A writer that starts batches of puts as fast as it can, several on the way at once.
fn flood(main: SocketAddr, n: u64, keys: u32, stop: Arc<AtomicBool>) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let (mut client, mut batches) = (native(main), 0u64);
        let batch = |round: u64| {
            let keys =
                (0..keys).map(|key| Value::str(format!("{n}-{}-{key}", round % 4))).collect::<Vec<_>>();
            let lengths = keys.iter().map(|_| Value::U64(64)).collect();
            vec![uuid(id(9000 + n)), Value::Seq(keys), Value::Seq(lengths), config(), Value::str("default")]
        };
        for round in 0..4 {
            client.send(Method::BatchPutStart, batch(round)).expect("sent");
        }
        while !stop.load(Ordering::Relaxed) {
            client.receive().expect("an answer");
            client.send(Method::BatchPutStart, batch(batches)).expect("sent");
            batches += 1;
        }
        batches
    })
}

/// C7, with `connections` for `seconds`: the client on the heartbeat port is never suspected.
fn under_flood(connections: u64, seconds: u64) {
    let [port] = free_ports();
    let master = MasterBuilder::default()
        .arg("--rpc_thread_num=1")
        .arg(format!("--heartbeat_rpc_port={port}"))
        .arg("--client_active_ttl_sec=3")
        .start();
    master.wait_ready(200, 10);
    let main = master.rpc_address();
    let (dedicated, on_main) = (Beating::start(main, 2, true), Beating::start(main, 1, false));
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..connections).map(|n| flood(main, n, 500, stop.clone())).collect();
    let watch = mooncake_tests::fault::Watch::start(&master);
    std::thread::sleep(Duration::from_secs(seconds));
    let seen = watch.finish();
    let suspected = metric(&master, "master_client_liveness_suspected_transitions_total");
    stop.store(true, Ordering::Relaxed);
    let remounts = dedicated.remounts();
    let times = dedicated.finish();
    println!(
        "{connections} connections, {seconds} s: heartbeat port: Ping {} (bar p99 5 ms)",
        figures(times.clone())
    );
    let queued = on_main.finish();
    println!("main port: Ping {}; suspected: {suspected:?}", figures(queued.clone()));
    println!("/readyz {:?}, {}", seen.statuses(), figures(seen.readyz.clone()));
    let batches: u64 =
        writers.into_iter().map(|writer| writer.join().expect("every batch was answered")).sum();
    println!("{} batches of 500 keys a second", batches / seconds);
    assert!(batches > 0 && remounts == 0, "{batches} batches, {remounts} remounts");
    assert!(
        quantile(&queued, 0.5) > quantile(&times, 0.5),
        "on the main port a Ping waits behind the batches"
    );
    assert!(times.len() as u64 >= seconds * 2 && quantile(&times, 0.99) < Duration::from_secs(2));
}

#[test]
fn a_flood_of_batches_costs_no_heartbeat() {
    under_flood(24, 6);
}

/// The size of the requirement; takes a machine for itself.
#[test]
#[ignore = "a minute of full load"]
fn a_flood_of_batches_costs_no_heartbeat_at_full_size() {
    under_flood(256, 60);
}
