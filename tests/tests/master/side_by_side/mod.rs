//! The same session with the C++ master of the wheel and with this one: every answer is equal, or `docs/differences.md`
//! lists it with its reason. An unlisted difference fails the test, and so does a listed one that no longer occurs.
//!
//! Each master runs in a network namespace that has nothing but loopback. `MOONCAKE_SIDE_BY_SIDE_LOG` names a file for all
//! answers.

mod objects;
mod pages;
mod segments;
mod session;

use mooncake_master::rpc::native::generation::Method;
use mooncake_tests::{
    NativeClient,
    master::binary,
    namespace::{self, Namespace, Process},
    upstream::{python, upstream_master},
};
use session::{Session, id};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

const DIFFERENCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/differences.md");
/// Clients that ping; client 7 falls silent.
const PINGING: [u64; 13] = [1, 2, 3, 4, 5, 6, 20, 22, 23, 24, 25, 26, 21];

/// One master process, `n` of its namespace.
struct Server {
    _process: Process,
    rpc: SocketAddr,
    admin: SocketAddr,
}

fn start(namespace: &Namespace, program: &Path, log: &Path, n: u16, args: &[&str]) -> Server {
    let (rpc, admin) = (50_051 + n, 9003 + n);
    let log = File::create(log).expect("a log");
    let process = namespace
        .command(program)
        .arg("--rpc_address=127.0.0.1")
        .arg("--metrics_host=127.0.0.1")
        .args([format!("--rpc_port={rpc}"), format!("--metrics_port={admin}")])
        // Short times, so that what takes its time can be waited for.
        .args(["--default_kv_lease_ttl=1500", "--client_ttl=3"])
        .args(["--put_start_discard_timeout_sec=2", "--put_start_release_timeout_sec=4"])
        .args(args)
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn()
        .expect("the master starts");
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Server { _process: Process(process), rpc: at(rpc), admin: at(admin) }
}

/// Every answer of that master, in order, and the calls that were made.
/// `alone`: options that the other master does not have.
fn drive(program: &Path, alone: &[&str]) -> (Vec<(String, String)>, BTreeSet<Method>) {
    let directory = tempfile::tempdir().expect("a directory");
    let namespace = Namespace::new(&[]);
    let log = |name: &str| directory.path().join(name);
    let plain = start(&namespace, program, &log("plain"), 0, alone);
    let files = ["--root_fs_dir=/tmp/mooncake-files", "--eviction_ratio=0"];
    let with_files = start(&namespace, program, &log("files"), 1, &files);
    let talk = || {
        let mut s = Session::new(plain.rpc, plain.admin);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let pinger = || namespace.run(|| ping(plain.rpc, &stop));
            scope.spawn(pinger);
            let _stop = StopWhenDropped(&stop);
            segments::first(&mut s);
            objects::run(&mut s);
            pages::run(&mut s);
            segments::run(&mut s);
        });
        let mut files = Session::new(with_files.rpc, with_files.admin);
        segments::files(&mut files);
        pages::files(&mut files);
        s.answers.append(&mut files.answers);
        s.methods.append(&mut files.methods);
        (s.answers, s.methods)
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| namespace.run(talk)));
    result.unwrap_or_else(|panic| {
        for name in ["plain", "files"] {
            let text = fs::read(log(name)).unwrap_or_default();
            let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(3000)..]).into_owned();
            eprintln!("--- {} ({name}) ---\n{tail}", program.display());
        }
        std::panic::resume_unwind(panic)
    })
}

struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn ping(master: SocketAddr, stop: &AtomicBool) {
    let mut client = NativeClient::connect(master).expect("the master accepts");
    while !stop.load(Ordering::Relaxed) {
        for n in PINGING {
            // The session shows a master that went away.
            let _ = client.ping(id(n));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What the table of answers in the document lists.
fn listed() -> BTreeSet<String> {
    let text = fs::read_to_string(DIFFERENCES).expect("docs/differences.md");
    let section = text.split("\n## ").find(|section| section.starts_with("Answers")).expect("## Answers");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let mut all = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert!(cells.len() == 6 && cells.iter().all(|cell| !cell.is_empty()), "six cells: {row}");
        for name in cells[0].split("`, `") {
            let name = name.trim_matches('`').to_owned();
            assert!(all.insert(name.clone()), "{name} is listed twice");
        }
    }
    all
}

#[test]
fn every_answer_equals_that_of_the_cpp_master_or_is_listed() {
    if !namespace::is_possible() {
        return;
    }
    let upstream = upstream_master(&python());
    let ((theirs, methods), (ours, _)) = std::thread::scope(|scope| {
        // The C++ master evicts after a request that can never be met, whenever it gets to it.
        let theirs = scope.spawn(|| drive(&upstream, &["--eviction_ratio=0"]));
        let ours = drive(&binary("mooncake-master"), &["--client_offline_grace_sec=1"]);
        (theirs.join().expect("the C++ master's session"), ours)
    });
    let names =
        |answers: &[(String, String)]| answers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let theirs_by_name: BTreeMap<_, _> = theirs.iter().cloned().collect();
    let ours_by_name: BTreeMap<_, _> = ours.iter().cloned().collect();
    let mut log = String::new();
    let mut different = BTreeSet::new();
    for name in names(&theirs).iter().chain(names(&ours).iter().filter(|n| !theirs_by_name.contains_key(*n)))
    {
        let nothing = "(not there)".to_owned();
        let (their, our) = (theirs_by_name.get(name), ours_by_name.get(name));
        // What this master shows beyond the other is no loss.
        let beyond =
            their.is_none() && ["metric ", "/metrics/summary "].iter().any(|page| name.starts_with(page));
        if their == our || beyond {
            let _ = writeln!(log, "= {name}: {}", their.unwrap_or(&nothing));
        } else {
            let (their, our) = (their.unwrap_or(&nothing), our.unwrap_or(&nothing));
            let _ = writeln!(log, "! {name}\n    C++:  {their}\n    ours: {our}");
            different.insert(name.clone());
        }
    }
    if let Some(path) = std::env::var_os("MOONCAKE_SIDE_BY_SIDE_LOG") {
        fs::write(path, &log).expect("the log");
    }
    let calls = theirs.iter().filter(|(name, _)| name.contains(": ")).count();
    assert!(calls >= 150, "only {calls} calls");
    // Every RPC of facts §1.2 and §1.3: all of the release but those that move data between clients.
    let moving = ["Copy", "Move", "Promotion", "Notify", "CreateCopyTask", "CreateMoveTask"];
    let ours_alone = [Method::HealthCheck, Method::HeartbeatServiceReady, Method::GetHeartbeatRpcPort];
    let missing: Vec<_> = Method::ALL
        .iter()
        .filter(|m| !ours_alone.contains(m) && !moving.iter().any(|part| m.name().contains(part)))
        .filter(|m| !methods.contains(m))
        .collect();
    assert!(missing.is_empty(), "never called: {missing:?}");
    let listed = listed();
    let unlisted: Vec<_> = different.difference(&listed).collect();
    let stale: Vec<_> = listed.difference(&different).collect();
    let shown: Vec<&str> = log.split_inclusive("\n= ").filter(|part| part.contains('!')).collect();
    assert!(
        unlisted.is_empty() && stale.is_empty(),
        "not listed: {unlisted:#?}\nlisted, but equal or never asked: {stale:#?}\n{}",
        shown.concat()
    );
    println!("{calls} calls and pages, {} of them different and listed", different.len());
}
