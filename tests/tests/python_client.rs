//! docs/python-client.md: its commands and its example, as they stand, against real masters.

use mooncake_e2e::readme::blocks;
use mooncake_tests::{Master, master::MasterBuilder};
use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Where the document supposes the master; a test's master is on another port.
const ADDRESS: &str = "127.0.0.1:50051";

/// Runs commands as somebody in the repository would; what they said on standard output.
fn run(directory: &Path, commands: &str) -> String {
    let output = Command::new("bash").args(["-euc", commands]).current_dir(directory).output().expect("bash");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{commands}failed:\n{printed}{errors}");
    printed
}

#[test]
fn the_example_of_the_document_runs_as_it_stands() {
    let document = fs::read_to_string(format!("{ROOT}/docs/python-client.md")).expect("the document");
    let (commands, examples) = (blocks(&document, "sh"), blocks(&document, "python"));
    let ([commands], [example]) = (&commands[..], &examples[..]) else {
        panic!("one block of commands and one example expected: {commands:?} {examples:?}");
    };
    let (prepare, start) = commands.trim_end().rsplit_once('\n').expect("several commands");
    assert_eq!(start.matches(ADDRESS).count(), 1, "the last command starts the example: {start}");

    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    symlink(format!("{ROOT}/proto"), directory.join("proto")).expect("a link");
    fs::write(directory.join("example.py"), example).expect("the example");
    run(directory, prepare);

    let [port] = mooncake_tests::master::free_ports();
    let heartbeat = |keep_on_main: bool| {
        MasterBuilder::default()
            .arg(format!("--heartbeat_rpc_port={port}"))
            .arg(format!("--heartbeat_keep_on_main={keep_on_main}"))
    };
    for builder in [MasterBuilder::default(), heartbeat(true), heartbeat(false)] {
        let master: Master = builder.start();
        let printed = run(directory, &start.replace(ADDRESS, &master.rpc_address().to_string()));
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(
            lines,
            [
                "healthy: True shards: 1024",
                "first ping: NEED_REMOUNT",
                "second ping: CLIENT_OK",
                "goes to: example:1",
                "exists: True",
                "last ping: CLIENT_OK",
            ]
        );
        // Every Ping went to where it is served.
        let (status, metrics) = master.get("/metrics");
        assert_eq!(status, 200);
        let mismatches: Vec<&str> = metrics
            .lines()
            .filter(|line| line.starts_with("mooncake_master_heartbeat_routing_mismatches_total{"))
            .collect();
        assert!(
            !mismatches.is_empty() && mismatches.iter().all(|line| line.ends_with(" 0")),
            "{mismatches:?}"
        );
    }
}
