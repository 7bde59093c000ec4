//! The program: its command line, its start, its admin endpoints, its end.

use crate::support::{ENDPOINT, MIB, answered, base_of, id, metric, native};
use mooncake_tests::{
    Master, MasterBuilder,
    master::{binary, free_ports},
    wait_for,
};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream},
    process::{Command, Output},
    time::Duration,
};
use tokio::time::Instant;

fn run(args: &[&str]) -> Output {
    Command::new(binary("mooncake-master")).args(args).output().expect("the master runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_and_version() {
    for flag in ["--help", "-help", "-h", "--helpfull"] {
        let output = run(&[flag]);
        assert_eq!(output.status.code(), Some(0), "{flag}");
        let help = text(&output.stdout);
        for option in ["rpc_port", "client_active_ttl_sec", "heartbeat_rpc_port", "enable_rpc_health_probe"] {
            assert!(help.contains(option), "{flag} does not name {option}");
        }
    }
    let output = run(&["--version"]);
    assert_eq!(
        (output.status.code(), &*text(&output.stdout)),
        (Some(0), concat!("mooncake-master ", env!("CARGO_PKG_VERSION"), "\n"))
    );
}

#[test]
fn check_config_says_what_holds_or_what_is_wrong() {
    let good = run(&["--check_config", "--rpc_port", "1234", "-noenable_rpc_health_probe"]);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    let effective: Value = serde_json::from_slice(&good.stdout).expect("one JSON object");
    assert_eq!(
        (&effective["rpc_port"], &effective["enable_rpc_health_probe"]),
        (&Value::from(1234), &Value::from(false))
    );
    // What it printed is a configuration file with the same meaning.
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("master.json");
    std::fs::write(&file, &good.stdout).expect("written");
    let again = run(&["--check_config", "--config_path", file.to_str().expect("text")]);
    let mut again: Value = serde_json::from_slice(&again.stdout).expect("one JSON object");
    again["config_path"] = effective["config_path"].clone();
    assert_eq!(again, effective);

    for (args, named) in [
        (&["--rpc_portt=1"][..], "did you mean `rpc_port`"),
        (&["--rpc_port=notaport"], "`rpc_port`"),
        (&["--rpc_probe_timeout_seconds=0"], "`rpc_probe_timeout_seconds`"),
        (&["--client_active_ttl_sec=-1"], "`client_active_ttl_sec`"),
        (&["--rpc_port=9003"], "metrics_port"),
        (&["--heartbeat_rpc_port=50051"], "heartbeat_rpc_port"),
        (&["--enable_ha", "false"], "--noenable_ha"),
        (&["--config_path=/does/not/exist"], "/does/not/exist"),
    ] {
        let output = run(&[&["--check_config"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = text(&output.stderr);
        assert!(said.contains(named), "{args:?}: {named:?} is not in {said:?}");
        // The same without the check: nothing starts with a configuration that is wrong.
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_taken_port_ends_the_start_and_is_named_with_its_option() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let taken = (taken.local_addr().expect("bound").port(), taken);
    let [a, b, c] = free_ports();
    for option in ["rpc_port", "metrics_port", "heartbeat_rpc_port"] {
        let port =
            |name: &str, free: u16| format!("--{name}={}", if name == option { taken.0 } else { free });
        let began = Instant::now();
        let output = Command::new(binary("mooncake-master"))
            .args([port("rpc_port", a), port("metrics_port", b), port("heartbeat_rpc_port", c)])
            .args(["--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1"])
            .output()
            .expect("the master runs");
        let took = began.elapsed();
        assert_eq!(output.status.code(), Some(1), "{option}");
        assert!(took < Duration::from_secs(2), "{option}: ended after {took:?}");
        let said = text(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains(option) && last.contains(&taken.0.to_string()), "{option}: {last:?}");
    }
}

/// C6: what a deployment of the C++ master has on its command line.
#[test]
fn command_lines_of_the_cpp_master_work() {
    let [rpc, metrics] = free_ports();
    let (rpc_text, metrics_text) = (rpc.to_string(), metrics.to_string());
    for args in [
        &[
            "-rpc_port",
            &rpc_text,
            "-metrics_port",
            &metrics_text,
            "-rpc_address",
            "127.0.0.1",
            "-logtostderr",
        ][..],
        &[
            "--port",
            &rpc_text,
            "--max_threads=4",
            &format!("--metrics_port={metrics}"),
            "--client_ttl=10",
            "--default_kv_lease_ttl=5000",
            "--eviction_high_watermark_ratio=0.90",
            "--v=1",
            "--minloglevel=0",
        ],
        &[
            &format!("--rpc-port={rpc}"),
            &format!("-metrics_port={metrics}"),
            "--rpc_thread_num=2",
            "--enable_metric_reporting=false",
            "--noenable_ha",
            "--allow_evict_soft_pinned_objects",
            "--rpc_interface=lo",
        ],
    ] {
        let mut child = Command::new(binary("mooncake-master"))
            .args(args)
            .args(["--metrics_host=127.0.0.1"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the master starts");
        let serves = wait_for(&format!("{args:?} serves, or ends"), 10, || {
            let ended = child.try_wait().expect("our child").map(|_| false);
            ended.or_else(|| TcpStream::connect((Ipv4Addr::LOCALHOST, rpc)).ok().map(|_| true))
        });
        child.kill().expect("ours");
        child.wait().expect("ours");
        assert!(serves, "{args:?} ended");
    }
}

#[test]
fn sigterm_ends_it_while_connections_are_open() {
    let mut fastest = Duration::MAX;
    for signal in [Signal::TERM, Signal::TERM, Signal::INT] {
        let mut master = Master::start();
        let mut clients: Vec<_> = (0..50).map(|_| native(&master)).collect();
        for client in &mut clients {
            assert_eq!(client.exist("k").expect("an answer"), Ok(false));
        }
        // Some in the middle of a frame, some that never said a word.
        let mut half: Vec<_> =
            (0..10).map(|_| TcpStream::connect(master.rpc_address()).expect("accepts")).collect();
        for stream in half.iter_mut().take(5) {
            stream.write_all(&[0x15, 0, 0]).expect("written");
        }
        let began = Instant::now();
        master.signal(signal);
        assert_eq!(master.wait_exit(5), Some(0), "{signal:?}: {}", master.log());
        let took = began.elapsed();
        println!("{signal:?} with 60 open connections: ended after {took:?}");
        fastest = fastest.min(took);
        for client in &mut clients {
            assert!(client.exist("k").is_err(), "its connection is gone");
        }
    }
    // Of three, so that a busy machine does not fail it.
    assert!(fastest < Duration::from_millis(300), "the fastest end took {fastest:?}");
}

#[test]
fn the_effective_configuration_is_logged_once_and_served() {
    let master = MasterBuilder::default().arg("--default_kv_lease_ttl=4321").start();
    let log = master.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("default_kv_lease_ttl")).collect();
    assert!(lines.len() == 1 && lines[0].contains("4321"), "{log}");
    let (status, body) = master.get("/config");
    let config: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, &config["effective"]["default_kv_lease_ttl"]), (200, &Value::from(4321)));
    assert_eq!(config["sources"]["default_kv_lease_ttl"], "command line");
}

#[test]
fn admin_endpoints_of_a_standalone_master() {
    let master = Master::start();
    master.wait_ready(200, 10);
    let (status, body) = master.get("/health");
    let health: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, &health["status"], &health["role"]), (200, &"ok".into(), &"leader".into()));
    assert_eq!((&health["ha_state"], &health["service_ready"]), (&"serving".into(), &true.into()));
    assert_eq!(master.get("/readyz"), (200, "ready\n".into()));
    assert_eq!(master.get("/role"), (200, "leader".into()));
    assert_eq!(master.get("/ha_status"), (200, "serving".into()));
    // As from the C++ master: without HA nobody was elected.
    let (status, body) = master.get("/leader");
    let leader: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, &leader["present"], &leader["leader_address"]), (200, &false.into(), &Value::Null));
    assert_eq!(master.get("/nothing").0, 404);
    let post = mooncake_tests::master::http(master.admin_address(), "POST", "/health");
    assert_eq!(post.0, 405);
}

#[test]
fn metrics_move_with_calls() {
    let master = MasterBuilder::default().arg("--noenable_rpc_health_probe").start();
    let mut client = native(&master);
    assert!(answered(client.mount(id(1), id(1), ENDPOINT, base_of(1), 16 * MIB)).is_ok());
    for n in 0..5 {
        assert!(answered(client.put(id(1), &format!("k{n}"), 1000)).is_ok());
    }
    assert!(answered(client.get("k0")).is_ok());
    assert!(answered(client.get("none")).is_err());
    assert_eq!(client.exist("k1").expect("an answer"), Ok(true));
    let expected = [
        ("master_put_start_requests_total", 5.0),
        ("master_put_end_requests_total", 5.0),
        ("master_get_replica_list_requests_total", 2.0),
        ("master_get_replica_list_failures_total", 1.0),
        ("master_exist_key_requests_total", 1.0),
        ("master_mount_segment_requests_total", 1.0),
        ("master_key_count", 5.0),
        ("master_total_capacity_bytes", 16.0 * MIB as f64),
        ("valid_get_nums_", 1.0),
        ("total_get_nums_", 2.0),
        ("master_client_liveness_active_clients", 1.0),
        ("mooncake_master_serving_permit", 1.0),
        ("mooncake_master_epoch", 0.0),
        ("mooncake_master_rpc_failures_total{rpc=\"GetReplicaList\",protocol=\"native\"}", 1.0),
    ];
    // What is served may be a quarter of a second old.
    std::thread::sleep(Duration::from_millis(300));
    let found = expected.map(|(name, _)| (name, metric(&master, name).unwrap_or(f64::NAN)));
    assert_eq!(found, expected);
    let allocated = metric(&master, "master_allocated_bytes").expect("there");
    assert!(allocated >= 5000.0, "{allocated}");
    assert_eq!(metric(&master, "mooncake_master_rpc_responsive"), None, "absent without a probe (A7)");
    assert_eq!(master.get("/readyz").0, 200, "follows the role without a probe (A8)");
    assert!(master.get("/metrics/summary").1.contains("Keys: 5"));
}

/// A4: a wildcard becomes loopback of its family, a specific address is used as it is.
#[test]
fn the_probe_reaches_the_master_wherever_it_is_bound() {
    for address in [
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Ipv4Addr::new(127, 0, 0, 2).into(),
        Ipv6Addr::UNSPECIFIED.into(),
        Ipv6Addr::LOCALHOST.into(),
    ] {
        if address.is_ipv6() && TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
            eprintln!("SKIPPED for {address}: no IPv6 on this machine");
            continue;
        }
        let master = MasterBuilder::default().address(address).start();
        master.wait_ready(200, 10);
        assert_eq!(metric(&master, "mooncake_master_rpc_responsive"), Some(1.0), "{address}");
        assert_eq!(metric(&master, "mooncake_master_rpc_probe_failures_total"), Some(0.0), "{address}");
        assert_eq!(native(&master).health().expect("an answer"), (true, 1024, 0));
    }
}
