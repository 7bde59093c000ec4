//! The unmodified client from PyPI gets from this master what it gets from the C++ master of its own wheel.
//!
//! The client opens ports on every address, so everything runs in a network namespace that has nothing but loopback.

use mooncake_tests::{
    master::binary,
    namespace::{self, Namespace, Process},
    upstream::{python, upstream_master},
};
use serde_json::Value;
use std::{
    fs::{self, File},
    path::Path,
};

/// Calls whose result is another one on purpose, with the reason.
const DIFFERENCES: &[(&str, &str)] = &[];

/// What the client's calls gave with that master, in order.
fn drive(python: &Path, master: &Path) -> Vec<(String, Value)> {
    let directory = tempfile::tempdir().expect("a directory");
    let log = |name: &str| File::create(directory.path().join(name)).expect("a log");
    let namespace = Namespace::new(&[]);
    let server = namespace
        .command(master)
        .args([
            "--rpc_address=127.0.0.1",
            "--rpc_port=50051",
            "--metrics_port=9003",
            "--metrics_host=127.0.0.1",
        ])
        .stdout(log("master"))
        .stderr(log("master.err"))
        .spawn()
        .expect("the master starts");
    let mut server = Process(server);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/drive.py");
    let output = namespace
        .command(python)
        .args([script, "50051"])
        .env("MC_TCP_BIND_ADDRESS", "127.0.0.1")
        .stderr(log("client.err"))
        .output()
        .expect("the client starts");
    let tail = |name: &str| {
        let text = fs::read(directory.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(3000)..]).into_owned()
    };
    assert!(output.status.success(), "{}: {}\n{}", master.display(), output.status, tail("client.err"));
    let ended = server.0.try_wait().expect("our child");
    assert!(ended.is_none(), "{} ended: {ended:?}\n{}", master.display(), tail("master.err"));
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        (line["call"].as_str().expect("a call").to_owned(), line["result"].take())
    };
    String::from_utf8(output.stdout).expect("JSON").lines().map(line).collect()
}

#[test]
fn the_unmodified_client_gets_what_the_cpp_master_gives() {
    if !namespace::is_possible() {
        return;
    }
    let python = python();
    let upstream = upstream_master(&python);
    // Both at once, each in a namespace of its own.
    let (theirs, ours) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| drive(&python, &upstream));
        let ours = drive(&python, &binary("mooncake-master"));
        (theirs.join().expect("the C++ master's run"), ours)
    });
    assert!(theirs.len() > 60, "only {} calls were made", theirs.len());
    assert_eq!(
        theirs.iter().map(|r| &r.0).collect::<Vec<_>>(),
        ours.iter().map(|r| &r.0).collect::<Vec<_>>()
    );
    let mut surprises = Vec::new();
    for ((call, theirs), (_, ours)) in theirs.iter().zip(&ours) {
        let documented = DIFFERENCES.iter().any(|(name, _)| name == call);
        if (theirs != ours) != documented {
            surprises.push(format!("{call}: {theirs} from the C++ master, {ours} from this one"));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
    let of = |call: &str| &ours.iter().find(|(name, _)| name == call).expect("called").1;
    assert_eq!(of("get by the other"), "2000 bytes of {114}");
    println!("{} calls, all equal but {} documented", ours.len(), DIFFERENCES.len());
}
