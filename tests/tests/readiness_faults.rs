//! Readiness tells the truth (A1 to A9): a real process on loopback that suffers injected faults.
//!
//! Times of the requirements are printed with what was measured. Asserted is a bound with room for a machine that does
//! other things, too: a test fails because something is wrong, not because it was late.

use mooncake_master::{
    rpc::native::{generation::Method, value::Value},
    types::Uuid,
};
use mooncake_proto::v1::{HealthCheckRequest, master_service_client::MasterServiceClient};
use mooncake_tests::{
    Master, MasterBuilder, NativeClient,
    fault::{self, ENABLE, Watch, figures, inject, metric, quantile},
};
use std::{
    collections::BTreeSet,
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(3);
/// What a busy machine may add to a time.
const SLACK: Duration = Duration::from_secs(2);

/// Ready, with faults allowed, probing every second with the default timeout.
fn start(args: &[&str]) -> Master {
    let builder = args.iter().fold(MasterBuilder::default(), |builder, arg| builder.arg(*arg));
    let master = builder
        .arg(ENABLE)
        .arg("--rpc_probe_interval_seconds=1")
        .arg("--rpc_probe_timeout_seconds=3")
        .start();
    master.wait_ready(200, 20);
    master
}

fn native(master: &Master) -> NativeClient {
    NativeClient::connect(master.rpc_address()).expect("the master accepts")
}

/// HealthCheck over gRPC.
fn grpc_health(address: SocketAddr) -> (bool, u64, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut client = MasterServiceClient::connect(format!("http://{address}")).await.expect("accepts");
        let report = client.health_check(HealthCheckRequest {}).await.expect("an answer").into_inner();
        (report.ok, report.shards_checked, report.shards_blocked)
    })
}

/// While `fault` is on for `lasts`, `/readyz` turns 503 in time, and back afterwards; `/health` stays 200.
fn detects(master: &Master, what: &str, fault: &str, lasts: Duration, during: impl FnOnce()) {
    let watch = Watch::start(master);
    let began = inject(master, fault);
    during();
    let end = began + lasts;
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    master.wait_ready(200, (INTERVAL + TIMEOUT + SLACK).as_secs());
    // So that the watch sees it, too.
    std::thread::sleep(Duration::from_millis(200));
    let seen = watch.finish();
    let gone = seen.first(503, began).unwrap_or_else(|| panic!("{what}: /readyz never turned 503"));
    let back = seen.first(200, began + gone).expect("it came back") + gone;
    println!(
        "{what}: 503 after {gone:.1?} (bar {:?}), 200 {:.1?} after the end (bar {INTERVAL:?}); /health {} (bar 50 ms)",
        INTERVAL + TIMEOUT,
        back.saturating_sub(lasts),
        figures(seen.health.clone())
    );
    assert_eq!(seen.statuses(), [200, 503, 200], "{what}");
    assert!(gone < INTERVAL + TIMEOUT + SLACK, "{what}: {gone:?}");
    assert!(back < lasts + INTERVAL + TIMEOUT + SLACK, "{what}: {back:?}");
    assert!(quantile(&seen.health, 0.99) < SLACK && quantile(&seen.readyz, 0.99) < SLACK, "{what}");
    let warnings = master.log().matches("the RPC path does not answer: not ready").count();
    assert_eq!(warnings, 1, "{what}: said once");
    assert!(metric(master, "mooncake_master_rpc_probe_failures_total").expect("probed") >= 1.0);
}

/// A2, A5, case by case: the first shard, one in the middle, the last one.
#[test]
fn a_held_shard_is_named_and_readyz_follows() {
    std::thread::scope(|scope| {
        for shard in [0u64, 7, 1023] {
            scope.spawn(move || {
                let master = start(&[]);
                let what = format!("shard {shard} held 12 s");
                let fault = format!("hold_shard?index={shard}&for_ms=12000");
                detects(&master, &what, &fault, Duration::from_secs(12), || {
                    for protocol in ["native", "gRPC"] {
                        let asked = Instant::now();
                        let report = match protocol {
                            "native" => native(&master).health().expect("an answer"),
                            _ => grpc_health(master.rpc_address()),
                        };
                        let took = asked.elapsed();
                        println!("{what}: {protocol} HealthCheck says {report:?} after {took:.2?} (bar 2 s + 0.5 s)");
                        assert_eq!(report, (false, shard, shard), "{protocol}");
                        assert!(took > Duration::from_millis(1900) && took < Duration::from_millis(2500) + SLACK);
                    }
                    assert_eq!(metric(&master, "mooncake_master_rpc_responsive"), Some(0.0));
                });
                assert_eq!(native(&master).health().expect("an answer"), (true, 1024, 0));
                assert_eq!(grpc_health(master.rpc_address()), (true, 1024, 0));
            });
        }
    });
}

/// A3, over TCP on a kept connection.
#[test]
fn health_check_of_free_shards_is_quick() {
    let master = start(&[]);
    let mut client = native(&master);
    let times: Vec<Duration> = (0..500)
        .map(|_| {
            let asked = Instant::now();
            assert_eq!(client.health().expect("an answer"), (true, 1024, 0));
            asked.elapsed()
        })
        .collect();
    println!("HealthCheck of 1024 free shards over TCP: {} (bar p99 5 ms)", figures(times.clone()));
    assert!(quantile(&times, 0.5) < Duration::from_millis(100));
}

#[test]
fn holds_of_a_second_flip_nothing() {
    let master = start(&[]);
    let watch = Watch::start(&master);
    for shard in [0, 500, 1023] {
        inject(&master, &format!("hold_shard?index={shard}&for_ms=1000"));
        fault::wait_over(&master, 10);
        std::thread::sleep(Duration::from_millis(700));
    }
    let seen = watch.finish();
    assert_eq!(seen.statuses(), [200]);
    assert_eq!(metric(&master, "mooncake_master_rpc_probe_failures_total"), Some(0.0));
    println!("/readyz {}, /health {}", figures(seen.readyz), figures(seen.health));
}

/// Asked for `keys` on one connection, some are not answered while a shard is held: those lie in it.
fn keys_in_held_shard(master: &Master, keys: u32) -> BTreeSet<u32> {
    let mut client = native(master);
    client.stream().set_read_timeout(Some(Duration::from_millis(1500))).expect("a time-out");
    let args = |key: u32| vec![Value::str(format!("key-{key}")), Value::str("default")];
    let mut missing: BTreeSet<u32> =
        (0..keys).map(|key| client.send(Method::ExistKey, args(key)).expect("sent")).collect();
    while let Ok((header, _)) = client.receive() {
        missing.remove(&header.seq);
    }
    missing
}

/// 62 connections of mixed calls and two that ask for what lies in the held shard: a hold costs nobody else anything.
#[test]
fn under_mixed_load_the_shard_is_named_and_only_its_calls_wait() {
    const KEYS: u32 = 6000;
    let master = start(&["--rpc_thread_num=2"]);
    let client = Uuid { first: 1, second: 2 };
    let mounted = native(&master).mount(client, client, "127.0.0.1:9", 1 << 32, 1 << 30).expect("an answer");
    mounted.expect("mounted");
    inject(&master, "hold_shard?index=7&for_ms=60000");
    let held = keys_in_held_shard(&master, KEYS);
    fault::clear(&master);
    assert!(!held.is_empty() && held.len() < 60, "{held:?}: about {} of {KEYS} were expected", KEYS / 1024);

    let stop = Arc::new(AtomicBool::new(false));
    let held: Arc<Vec<u32>> = Arc::new(held.into_iter().collect());
    let load: Vec<_> = (0..62)
        .map(|n: u32| {
            let (mut connection, stop, held) = (native(&master), stop.clone(), held.clone());
            std::thread::spawn(move || {
                let (mut times, mut key) = (Vec::new(), n);
                while !stop.load(Ordering::Relaxed) {
                    key = (key + 62) % KEYS;
                    if held.binary_search(&key).is_ok() {
                        continue;
                    }
                    let name = format!("key-{key}");
                    let began = Instant::now();
                    match key % 4 {
                        0 => drop(connection.put_start(client, &name, 4096).expect("an answer")),
                        1 => drop(connection.get(&name).expect("an answer")),
                        2 => drop(connection.put(client, &name, 4096).expect("an answer")),
                        _ => drop(connection.exist(&name).expect("an answer")),
                    }
                    times.push(began.elapsed());
                    std::thread::sleep(Duration::from_millis(20));
                }
                times
            })
        })
        .collect();
    inject(&master, "hold_shard?index=7&for_ms=12000");
    let waiting: Vec<_> = (0..2)
        .map(|n: usize| {
            let (mut connection, name) = (native(&master), format!("key-{}", held[n % held.len()]));
            std::thread::spawn(move || {
                let began = Instant::now();
                connection.exist(&name).expect("answered after the hold").expect("no error");
                began.elapsed()
            })
        })
        .collect();
    let asked = Instant::now();
    assert_eq!(native(&master).health().expect("an answer"), (false, 7, 7));
    let named = asked.elapsed();
    std::thread::sleep(Duration::from_secs(4));
    stop.store(true, Ordering::Relaxed);
    let times: Vec<Duration> =
        load.into_iter().flat_map(|thread| thread.join().expect("every call was answered")).collect();
    println!(
        "under load: HealthCheck names it after {named:.2?} (bar 2.5 s); the other shards: {} (bar p99 10 ms)",
        figures(times.clone())
    );
    assert!(named < Duration::from_millis(2500) + SLACK, "{named:?}");
    assert!(times.len() > 1000 && quantile(&times, 0.99) < Duration::from_millis(500));
    fault::clear(&master);
    for thread in waiting {
        let waited = thread.join().expect("answered");
        assert!(waited > Duration::from_secs(4), "{waited:?}: it lies in the held shard");
    }
    master.wait_ready(200, 10);
}

#[test]
fn sleeping_handlers_are_noticed_although_no_shard_is_locked() {
    let master = start(&["--rpc_thread_num=2"]);
    let mut callers = Vec::new();
    detects(
        &master,
        "handlers asleep 8 s",
        "sleep_handlers?ms=8000&for_ms=8000",
        Duration::from_secs(8),
        || {
            // Connections are dealt evenly, so each of the two threads gets some of these.
            for n in 0..6 {
                let mut connection = native(&master);
                let args = vec![Value::str(format!("key-{n}")), Value::str("default")];
                connection.send(Method::ExistKey, args).expect("sent");
                callers.push(connection);
            }
        },
    );
    for mut connection in callers {
        connection.receive().expect("answered at last");
    }
}

#[test]
fn one_stuck_thread_of_four_is_noticed() {
    let master = start(&["--rpc_thread_num=4"]);
    let fault = "stick_thread?index=2&for_ms=12000";
    detects(&master, "one data thread of four stuck 12 s", fault, Duration::from_secs(12), || {
        std::thread::sleep(Duration::from_millis(1500));
        // What the other threads own goes on, and they get the new connections.
        for _ in 0..8 {
            assert_eq!(native(&master).exist("nobody-has-this").expect("an answer"), Ok(false));
        }
    });
}

#[test]
fn an_accept_loop_that_stands_still_is_noticed() {
    let master = start(&[]);
    let mut connected = native(&master);
    detects(&master, "accept stopped 8 s", "stop_accept?for_ms=8000", Duration::from_secs(8), || {
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(
            connected.exist("nobody-has-this").expect("an answer"),
            Ok(false),
            "it was accepted before"
        );
    });
}

/// C1: heartbeats, the lease thread and the admin pages depend on no data thread. B2: and no client is to blame.
#[test]
fn with_every_data_thread_stuck_the_control_plane_goes_on() {
    let [heartbeat] = mooncake_tests::master::free_ports();
    let port = format!("--heartbeat_rpc_port={heartbeat}");
    let master =
        start(&["--rpc_thread_num=2", &port, "--client_active_ttl_sec=3", "--client_suspicion_ttl_sec=3"]);
    let (on_port, on_main) = (Uuid { first: 1, second: 1 }, Uuid { first: 2, second: 2 });
    let mut main = native(&master);
    for (n, client) in [(1, on_port), (2, on_main)] {
        main.remount(client, client, "127.0.0.1:9", n << 32, 1 << 20).expect("an answer").expect("mounted");
    }
    let mut beat = NativeClient::connect((Ipv4Addr::LOCALHOST, heartbeat).into()).expect("accepts");
    inject(&master, "stick_thread?index=0&for_ms=8000");
    detects(
        &master,
        "all data threads stuck 8 s",
        "stick_thread?index=1&for_ms=8000",
        Duration::from_secs(8),
        || {
            let (mut pings, mut admin, began) = (Vec::new(), Vec::new(), Instant::now());
            std::thread::sleep(Duration::from_millis(300));
            // A heartbeat on the main port waits there; it is answered at the end.
            let ping = main.send(Method::Ping, vec![mooncake_tests::native::uuid(on_main)]).expect("sent");
            while began.elapsed() < Duration::from_secs(7) {
                let asked = Instant::now();
                let (_, ok) = beat.ping(on_port).expect("an answer").expect("served here");
                pings.push(asked.elapsed());
                assert!(ok, "its client is known");
                let asked = Instant::now();
                assert_eq!(metric(&master, "mooncake_master_serving_permit"), Some(1.0));
                admin.push(asked.elapsed());
                std::thread::sleep(Duration::from_millis(20));
            }
            println!(
                "meanwhile: Ping {} (bar p99 50 ms); /metrics {} (bar 50 ms)",
                figures(pings.clone()),
                figures(admin)
            );
            assert!(quantile(&pings, 0.99) < SLACK);
            assert_eq!(main.receive().expect("answered at last").0.seq, ping);
        },
    );
    for name in ["suspected", "offline"] {
        let name = format!("master_client_liveness_{name}_transitions_total");
        assert_eq!(metric(&master, &name), Some(0.0), "the master's silence is nobody's");
    }
    assert!(metric(&master, "mooncake_master_liveness_stalls_total") > Some(0.0));
}

#[test]
fn slow_readers_of_the_admin_port_hold_up_nobody() {
    let master = start(&[]);
    let readers: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(master.admin_address()).expect("accepts");
            // As many answers as fit, none of them read.
            let requests = "GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n".repeat(20);
            stream.write_all(requests.as_bytes()).expect("sent");
            stream
        })
        .collect();
    let watch = Watch::start(&master);
    std::thread::sleep(Duration::from_secs(3));
    let seen = watch.finish();
    drop(readers);
    println!("100 slow readers: /readyz {} (bar 50 ms)", figures(seen.readyz.clone()));
    assert_eq!(seen.statuses(), [200]);
    assert!(seen.readyz.len() > 5 && quantile(&seen.readyz, 0.99) < SLACK);
}

/// A4: the probe goes to where the server is really bound: it notices that nothing is accepted there.
#[test]
fn the_probe_covers_the_accept_path_of_every_kind_of_address() {
    let addresses: [IpAddr; 4] = [
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv6Addr::UNSPECIFIED.into(),
        Ipv6Addr::LOCALHOST.into(),
        Ipv4Addr::new(127, 0, 0, 2).into(),
    ];
    for address in addresses {
        if address.is_ipv6() && TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
            eprintln!("SKIPPED for {address}: no IPv6 on this machine");
            continue;
        }
        let master = MasterBuilder::default()
            .address(address)
            .arg(ENABLE)
            .arg("--rpc_probe_interval_seconds=1")
            .arg("--rpc_probe_timeout_seconds=1")
            .start();
        master.wait_ready(200, 10);
        assert_eq!(metric(&master, "mooncake_master_rpc_probe_failures_total"), Some(0.0), "{address}");
        inject(&master, "stop_accept?for_ms=60000");
        master.wait_ready(503, 10);
        fault::clear(&master);
        master.wait_ready(200, 10);
    }
}

#[test]
fn a_master_that_was_not_started_for_it_refuses_every_fault() {
    let master = MasterBuilder::default().start();
    let ask = |method: &str, path: &str| mooncake_tests::master::http(master.admin_address(), method, path);
    let (status, body) = ask("POST", "/fault/hold_shard?index=7&for_ms=12000");
    assert!(status == 403 && body.contains("--enable_fault_injection"), "{status} {body}");
    assert_eq!(ask("GET", "/fault").0, 403);
    assert_eq!(metric(&master, "mooncake_master_fault_injection_enabled"), Some(0.0));
    let master = start(&[]);
    assert_eq!(metric(&master, "mooncake_master_fault_injection_enabled"), Some(1.0));
    assert!(master.log().contains("FAULT INJECTION IS ENABLED"));
}
