//! Every command once, against the master that was built with these tests.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn master() -> PathBuf {
    let bench = Path::new(env!("CARGO_BIN_EXE_mooncake-bench"));
    let master = bench.with_file_name("mooncake-master");
    assert!(master.exists(), "{} is missing: build the workspace first (cargo build)", master.display());
    master
}

/// A target that is started by the bench.
fn target(name: &str, flags: &str) -> String {
    format!(
        "{name}=spawn:{} --rpc_address=127.0.0.1 --rpc_port={{rpc_port}} --metrics_host=127.0.0.1 \
         --metrics_port={{metrics_port}} --termination_log= {flags}",
        master().display()
    )
}

/// Output and JSON lines; each measurement must have gone without a refusal.
fn bench(args: &[&str]) -> (String, Vec<serde_json::Value>) {
    let (text, lines) = bench_allowing_refusals(args);
    for line in &lines {
        assert_eq!(line["refused"], serde_json::json!({}), "{line}");
    }
    (text, lines)
}

/// The same, whatever was refused.
fn bench_allowing_refusals(args: &[&str]) -> (String, Vec<serde_json::Value>) {
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("results.jsonl");
    let output = Command::new(env!("CARGO_BIN_EXE_mooncake-bench"))
        .args(args)
        .arg("--json")
        .arg(&json)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let lines = std::fs::read_to_string(json).expect("it was written");
    // The first one is about the machine.
    let lines = lines.lines().skip(1).map(|line| serde_json::from_str(line).expect("JSON")).collect();
    (text, lines)
}

#[test]
fn load_of_two_masters_in_turn_over_both_protocols() {
    let (first, second) = (target("first", ""), target("second", "--rpc_thread_num=1"));
    for protocol in ["native", "grpc"] {
        let (text, lines) = bench(&[
            "load",
            "--target",
            &first,
            "--target",
            &second,
            "--protocol",
            protocol,
            "--rounds",
            "2",
            "--clients",
            "2",
            "--seconds",
            "0.1",
            "--warmup",
            "0.05",
            "--prefill",
            "300",
            "--batch",
            "16",
            "-c",
            "2",
        ]);
        assert_eq!(lines.len(), 7 * 2 * 2);
        assert_eq!((&lines[0]["target"], &lines[7]["target"]), (&"first".into(), &"second".into()));
        for line in &lines {
            assert!(line["items_per_s"].as_f64().unwrap() > 0.0, "{line}");
            assert!(line["server_cpu_us_per_item"].as_f64().unwrap() > 0.0, "{line}");
        }
        assert!(text.contains("ratio"), "{text}");
    }
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let (_, lines) = bench(&[
        "load",
        "--target",
        &target("ours", ""),
        "--op",
        "exist",
        "--rate",
        "200",
        "--seconds",
        "1",
        "--warmup",
        "0",
        "--clients",
        "1",
        "--prefill",
        "100",
    ]);
    let rate = lines[0]["items_per_s"].as_f64().unwrap();
    assert!((100.0..=210.0).contains(&rate), "{rate}");
}

#[test]
fn an_incident_is_felt_seen_and_swept() {
    let flags = "--client_active_ttl_sec=3 --client_suspicion_ttl_sec=1 --client_offline_grace_sec=0";
    for (protocol, variants) in [("native", "alone,remount,new-client"), ("grpc", "alone")] {
        let (text, lines) = bench(&[
            "incident",
            "--target",
            &target("ours", flags),
            "--protocol",
            protocol,
            "--variant",
            variants,
            "--victim-keys",
            "3000",
            "--quiet",
            "1",
            "--limit",
            "60",
        ]);
        assert_eq!(lines.len(), variants.split(',').count(), "{text}");
        for line in &lines {
            assert_eq!(line["keys_visited"].as_f64(), Some(3000.0), "{line}");
            assert_eq!(line["others_expired"].as_f64(), Some(0.0), "{line}");
            assert_eq!(line["health_not_ok"].as_f64(), Some(0.0), "{line}");
            let put = line["put_p99_ms"].as_f64().unwrap();
            assert!(put > 0.0 && line["offboarding_work_ms"].as_f64().unwrap() > 0.0, "{line}");
            assert_eq!(line["mount_took_s"].is_null(), line["variant"] == "alone", "{line}");
        }
    }
}

#[test]
fn a_flood_with_a_heartbeat_port_and_memory_per_key() {
    let flags = "--heartbeat_rpc_port={heartbeat_port} --rpc_thread_num=1";
    let (_, lines) =
        bench(&["flood", "--target", &target("ours", flags), "--seconds", "1", "-c", "8", "--clients", "2"]);
    assert!(lines[0]["put_keys_per_s"].as_f64().unwrap() > 0.0 && lines[0]["pings"].as_f64().unwrap() > 5.0);
    assert_eq!(lines[0]["expired"].as_f64(), Some(0.0));
    let (_, lines) = bench(&["memory", "--target", &target("ours", ""), "--keys", "20000", "--clients", "2"]);
    assert_eq!(lines[0]["removed"].as_f64(), Some(20_000.0));
    assert!(lines[0]["bytes_per_key"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_floor_is_measured_beside_a_master() {
    let floor =
        format!("floor=spawn:{} floor --port {{rpc_port}} --threads 2", env!("CARGO_BIN_EXE_mooncake-bench"));
    let (text, lines) = bench(&[
        "load",
        "--target",
        &target("ours", ""),
        "--target",
        &floor,
        "--op",
        "ping",
        "-c",
        "4",
        "--clients",
        "3",
        "--seconds",
        "0.2",
        "--warmup",
        "0.05",
    ]);
    assert_eq!(lines.len(), 2);
    assert!(lines[1]["items_per_s"].as_f64().unwrap() > 0.0, "{}", lines[1]);
    assert!(text.contains("ratio to floor"), "{text}");
}

#[test]
fn start_eviction_and_connections() {
    let ours = target("ours", "");
    let (_, lines) = bench(&["start", "--target", &ours, "--settle", "0", "--rounds", "2"]);
    assert_eq!(lines.len(), 2);
    let of = |name: &str| lines[1][name].as_f64().unwrap_or_else(|| panic!("{name}: {}", lines[1]));
    assert!(of("serving_ms") >= of("accepting_ms") && of("accepting_ms") > 0.0 && of("idle_rss_mb") > 1.0);

    // 2048 keys are a full pool: more than that many are put.
    let (_, lines) = bench_allowing_refusals(&[
        "eviction",
        "--target",
        &ours,
        "--clients",
        "2",
        "--value-bytes",
        "1048576",
        "--seconds",
        "1",
        "--allow-refused",
    ]);
    let of = |name: &str| lines[0][name].as_f64().unwrap_or_else(|| panic!("{name}: {}", lines[0]));
    assert!(of("full_puts_per_s") > 0.0 && of("full_ratio") > 0.0, "{}", lines[0]);

    let (_, lines) = bench(&[
        "connections",
        "--target",
        &ours,
        "--clients",
        "2",
        "-c",
        "60",
        "--busy",
        "10",
        "--rate",
        "500",
        "--seconds",
        "0.5",
        "--rounds",
        "2",
    ]);
    for line in &lines {
        let of = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name}: {line}"));
        assert!(of("kib_per_connection") >= 0.0 && of("p99_ratio") > 0.0, "{line}");
        assert!(of("beside_items_per_s") > 0.0 && of("alone_items_per_s") > 0.0, "{line}");
    }
}

#[test]
fn instructions_are_counted() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("skipped: valgrind is not installed");
        return;
    }
    let ours = target("ours", "--client_ttl=3600");
    let (_, lines) = bench(&["instructions", "--target", &ours, "--clients", "1,50", "--calls", "500"]);
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert!(line["instructions_per_call"].as_f64().unwrap() > 100.0, "{line}");
    }
}

#[test]
fn a_report_holds_the_results_against_the_bars() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (json, markdown, plots) = (path("results.jsonl"), path("table.md"), path("plots"));
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_mooncake-bench")).args(args).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let ours = target("ours", "");
    for clients in ["1", "4"] {
        let load = ["load", "--target", &ours, "--op", "ping", "--seconds", "0.1", "--warmup", "0"];
        let sweep = ["--sweep", "clients", "--clients", clients, "--note", "a note", "--json", &json];
        run(&[&load[..], &sweep[..]].concat());
    }
    run(&["start", "--target", &ours, "--settle", "0", "--json", &json]);
    let text = run(&["report", &json, "--markdown", &markdown, "--plots", &plots]);
    assert!(text.contains("a note") && text.contains("start to serving"), "{text}");
    assert!(
        std::fs::read_to_string(markdown).expect("it was written").contains("| start to serving | ≤ 10 ms |")
    );
    assert!(directory.path().join("plots/clients.svg").exists());
}
