//! The client from PyPI, which knows no heartbeat port (C2, and C4's one exception): with keep-on-main it works, without
//! it the log and a metric say which client has to be migrated.
//!
//! The client opens ports on every address, so it runs in a network namespace that has nothing but loopback.

use mooncake_tests::master::binary;
use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

const MISMATCHES: &str = "mooncake_master_heartbeat_routing_mismatches_total{protocol=\"native\"}";
const SUSPECTED: &str = "master_client_liveness_suspected_transitions_total";

/// The Python with the client: from the environment, else as the project's own script installs it.
fn python() -> PathBuf {
    if let Some(path) = std::env::var_os("MOONCAKE_CLIENT_PYTHON") {
        return path.into();
    }
    let output =
        Command::new(format!("{ROOT}/scripts/prepare.sh")).arg("client").output().expect("prepare.sh runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a path").trim().into()
}

/// What the client got, and the master's log.
fn lives_for_a_while(python: &PathBuf, keep_on_main: bool) -> (Value, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("master");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/heartbeat_client.py");
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"])
        .arg(python)
        .arg(script)
        .arg(binary("mooncake-master"))
        .arg(keep_on_main.to_string())
        .arg(&log)
        .env("MC_TCP_BIND_ADDRESS", "127.0.0.1")
        .stdin(Stdio::null())
        .output()
        .expect("unshare");
    let log = fs::read_to_string(log).unwrap_or_default();
    let errors = String::from_utf8_lossy(&output.stderr);
    let result = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}\n{errors}\n{log}", output.status));
    (result, log)
}

fn sample(result: &Value, name: &str) -> f64 {
    let metrics = result["metrics"].as_str().expect("metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

#[test]
fn a_released_client_works_or_is_told() {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "SKIPPED: only root can make the network namespace in which the client's ports are harmless"
        );
        return;
    }
    let python = python();
    let (kept, alone) = std::thread::scope(|scope| {
        let kept = scope.spawn(|| lives_for_a_while(&python, true));
        let alone = lives_for_a_while(&python, false);
        (kept.join().expect("the run with keep-on-main"), alone)
    });
    let (result, log) = kept;
    assert_eq!((&result["put"], &result["get later"]), (&0.into(), &"value".into()), "{result}");
    assert_eq!((sample(&result, MISMATCHES), sample(&result, SUSPECTED)), (0.0, 0.0));
    assert!(!log.contains("HEARTBEAT_ROUTING_MISMATCH"), "{log}");

    let (result, log) = alone;
    assert_eq!((&result["put"], &result["get at once"]), (&0.into(), &"value".into()), "{result}");
    assert_eq!(result["get later"], "", "what it owns is not served while it is suspected");
    assert!(sample(&result, MISMATCHES) >= 3.0 && sample(&result, SUSPECTED) >= 1.0);
    assert_eq!(log.matches("HEARTBEAT_ROUTING_MISMATCH").count(), 1, "said once for this client: {log}");
    println!("keep-on-main off: {} Pings refused, one log line", sample(&result, MISMATCHES));
}
