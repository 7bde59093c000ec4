//! Unmodified clients of four wire generations at one master on one port: they share a pool with each other and with gRPC
//! clients, and one that nothing tells about fails at most once.
//!
//! The clients open ports on every address, so everything runs in a network namespace that has nothing but loopback.
//! Clients that are to have an address of their own talk to the master at that address: it is theirs, too, then.

use mooncake_master::rpc::native::generation::NAMES;
use mooncake_proto::v1::{self, master_service_client::MasterServiceClient};
use mooncake_tests::{
    master::binary,
    namespace::{Namespace, Process, is_possible},
    released::python,
    wait_for,
};
use serde_json::Value;
use std::{
    env,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::{ChildStdin, ChildStdout, Stdio},
};
use tempfile::TempDir;
use tonic::transport::Channel;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/generations_client.py");
const RPC: u16 = 50051;
const ADMIN: u16 = 9003;
/// No client takes longer; a stuck one ends by this.
const TIMEOUT_SECONDS: &str = "300";

/// The n-th address that a client can have for itself.
fn address(n: u8) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, n).into()
}

/// A master and its clients' network.
struct World {
    // Ended in this order.
    master: Process,
    namespace: Namespace,
    directory: TempDir,
    options: Vec<String>,
}

impl World {
    fn start(options: &[String]) -> World {
        let addresses: Vec<IpAddr> = (1..=6).map(address).collect();
        let namespace = Namespace::new(&addresses);
        let directory = tempfile::tempdir().expect("a directory");
        let master = World::spawn(&namespace, &directory, options);
        let world = World { master, namespace, directory, options: options.to_vec() };
        world.wait_ready();
        world
    }

    fn spawn(namespace: &Namespace, directory: &TempDir, options: &[String]) -> Process {
        let log = directory.path().join("master");
        let log = File::options().create(true).append(true).open(log).expect("a log");
        let master = namespace
            .command(binary("mooncake-master"))
            .args(["--rpc_address=0.0.0.0", "--metrics_host=127.0.0.1"])
            .args([format!("--rpc_port={RPC}"), format!("--metrics_port={ADMIN}")])
            .args(options)
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("the master starts");
        Process(master)
    }

    fn wait_ready(&self) {
        wait_for("the master is ready", 20, || {
            self.namespace.get(ADMIN, "/metrics").contains("mooncake_master_rpc_responsive 1").then_some(())
        });
    }

    /// The master is killed, and another one takes its place, which knows nothing.
    fn fail_over(&mut self) {
        self.master.0.kill().expect("it runs");
        self.master.0.wait().expect("our child");
        self.master = World::spawn(&self.namespace, &self.directory, &self.options);
        self.wait_ready();
    }

    fn sample(&self, name: &str) -> u64 {
        let metrics = self.namespace.get(ADMIN, "/metrics");
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = line.unwrap_or_else(|| panic!("no {name}")).parse::<f64>().expect("a number");
        value as u64
    }

    fn wrong_guesses(&self) -> u64 {
        self.sample("mooncake_master_wire_wrong_guesses_total")
    }

    /// Waits until so many more keys were asked for.
    fn wait_for_gets(&self, count: u64) {
        let name = "total_get_nums_";
        let goal = self.sample(name) + count;
        wait_for("the readers go on", 120, || (self.sample(name) >= goal).then_some(()));
    }

    fn client(
        &self,
        mode: &str,
        generation: &str,
        name: &str,
        at: u8,
        count: u32,
        others: &[String],
    ) -> Client {
        self.client_on(RPC, mode, generation, name, at, count, others)
    }

    #[allow(clippy::too_many_arguments, reason = "the script's arguments")]
    fn client_on(
        &self,
        port: u16,
        mode: &str,
        generation: &str,
        name: &str,
        at: u8,
        count: u32,
        others: &[String],
    ) -> Client {
        let log = self.directory.path().join(format!("{mode}-{name}"));
        let own = address(at).to_string();
        let mut child = self
            .namespace
            .command("timeout")
            .arg(TIMEOUT_SECONDS)
            .arg(python(generation))
            .args([SCRIPT, mode, name, &own, &port.to_string(), &count.to_string()])
            .args(others)
            .env("MC_TCP_BIND_ADDRESS", &own)
            // Between the clients: the transfer engine of 0.3.13 keeps connections for which older ones do not wait.
            .env("MC_TCP_ENABLE_CONNECTION_POOL", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).expect("a log"))
            .spawn()
            .expect("the client starts");
        let input = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Client { _process: Process(child), input, lines, log, name: name.to_owned() }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.directory.path().join("master")).unwrap_or_default();
            eprintln!(
                "--- the master's log ---\n{}",
                log.lines().rev().take(40).collect::<Vec<_>>().join("\n")
            );
        }
    }
}

/// A client process; see the script.
struct Client {
    _process: Process,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
    log: PathBuf,
    name: String,
}

impl Client {
    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line);
        let end = || {
            let log = fs::read(&self.log).unwrap_or_default();
            String::from_utf8_lossy(&log[log.len().saturating_sub(3000)..]).into_owned()
        };
        assert!(read.is_ok_and(|n| n > 0), "{} ended:\n{}", self.name, end());
        line.trim_end().to_owned()
    }

    /// Waits until it has come to that point.
    fn reach(&mut self, point: &str) {
        assert_eq!(self.line(), point, "{}", self.name);
    }

    fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap_or_else(|e| panic!("{}: {e}", self.name));
    }

    fn pass(&mut self, point: &str) {
        self.reach(point);
        self.go_on();
    }

    /// Its calls and those that did not give what they had to.
    fn end(mut self) -> (u64, Vec<Value>) {
        let mut result: Value = serde_json::from_str(&self.line()).expect("JSON");
        let failures = match result["failures"].take() {
            Value::Array(failures) => failures,
            other => panic!("no list: {other}"),
        };
        (result["calls"].as_u64().expect("a number"), failures)
    }
}

/// Does it with each of them, in step.
fn each(clients: &mut [Client], step: impl Fn(&mut Client)) {
    for client in clients {
        step(client);
    }
}

async fn grpc() -> MasterServiceClient<Channel> {
    MasterServiceClient::connect(format!("http://127.0.0.1:{RPC}")).await.expect("accepts")
}

fn in_runtime<T>(body: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(body)
}

/// A gRPC client puts a key into the memory of the others.
async fn put_by_grpc() {
    let (id, key) = (Some(v1::Uuid { first: 1, second: 2 }), "grpc/key".to_owned());
    let mut client = grpc().await;
    let start =
        v1::PutStartRequest { client_id: id, key: key.clone(), slice_length: 4321, ..Default::default() };
    assert_eq!(client.put_start(start).await.expect("put_start").into_inner().code, 0);
    let object_meta = Some(v1::ObjectMeta { key, object_checksum: None });
    let end = v1::PutEndRequest { client_id: id, object_meta, ..Default::default() };
    assert_eq!(client.put_end(end).await.expect("put_end").into_inner().code, 0);
}

/// How many replicas a key has.
async fn replicas_by_grpc(key: String) -> usize {
    let request = v1::GetReplicaListRequest { key, ..Default::default() };
    let answer = grpc().await.get_replica_list(request).await.expect("get_replica_list").into_inner();
    answer.value.map_or(0, |list| list.replicas.len())
}

async fn remove_by_grpc() {
    let request = v1::RemoveRequest { key: "grpc/key".into(), force: true, ..Default::default() };
    assert_eq!(grpc().await.remove(request).await.expect("remove").into_inner().code, 0);
}

/// `MOONCAKE_GENERATION_RUNS` times (2), without a failed call.
#[test]
fn clients_of_all_generations_share_a_pool() {
    if !is_possible() {
        return;
    }
    let runs: u32 = env::var("MOONCAKE_GENERATION_RUNS")
        .map_or(2, |runs| runs.parse().expect("MOONCAKE_GENERATION_RUNS is a number"));
    let world = World::start(&[]);
    for run in 1..=runs {
        let names: Vec<String> = NAMES.iter().map(|name| format!("{name}-{run}")).collect();
        let mut clients: Vec<Client> = (1..)
            .zip(NAMES.iter().zip(&names))
            .map(|(at, (generation, name))| {
                let others: Vec<String> = names.iter().filter(|other| *other != name).cloned().collect();
                world.client("pool", generation, name, at, 4, &others)
            })
            .collect();
        each(&mut clients, |client| client.reach("connected"));
        world.namespace.run(|| in_runtime(put_by_grpc()));
        each(&mut clients, Client::go_on);
        each(&mut clients, |client| client.reach("written"));
        for (generation, name) in NAMES.iter().zip(&names) {
            let replicas = world.namespace.run(|| in_runtime(replicas_by_grpc(format!("{name}/put/0"))));
            assert_eq!(replicas, 1, "{name}");
            let known = format!("mooncake_master_native_clients{{generation=\"{generation}\"}}");
            assert_eq!(world.sample(&known), 1);
        }
        each(&mut clients, Client::go_on);
        each(&mut clients, |client| client.reach("read"));
        world.namespace.run(|| in_runtime(remove_by_grpc()));
        each(&mut clients, Client::go_on);
        each(&mut clients, |client| client.reach("removed"));
        each(&mut clients, Client::go_on);
        let mut calls = 0;
        for client in clients {
            let name = client.name.clone();
            let (made, failures) = client.end();
            assert!(failures.is_empty(), "run {run}, {name}: {failures:#?}");
            calls += made;
        }
        println!("run {run}: {calls} calls, none failed");
    }
    assert_eq!(world.wrong_guesses(), 0);
}

/// A client of 0.3.11 that has written and stays.
fn writer(world: &World) -> Client {
    let mut writer = world.client("pool", "0.3.11", "writer", 1, 4, &[]);
    writer.pass("connected");
    writer.reach("written");
    writer
}

/// Readers of these generations at these addresses that have made `gets` calls in all; the failures of each.
fn readers(world: &World, readers: &[(&str, u8, u16)], gets: u64) -> Vec<usize> {
    let source = ["writer".to_owned()];
    let mut clients: Vec<Client> = readers
        .iter()
        .map(|(generation, at, port)| world.client_on(*port, "read", generation, generation, *at, 4, &source))
        .collect();
    each(&mut clients, |client| client.pass("connected"));
    each(&mut clients, |client| client.reach("reading"));
    // Each client opens as many connections as it has threads, and each of them may be guessed wrongly; then it is over.
    let has_stopped = (0..8).any(|_| {
        let before = world.wrong_guesses();
        world.wait_for_gets(gets);
        world.wrong_guesses() == before
    });
    assert!(has_stopped, "the failures do not stop");
    each(&mut clients, Client::go_on);
    clients
        .into_iter()
        .map(|client| {
            let name = client.name.clone();
            let (calls, failures) = client.end();
            println!("reader of {name}: {calls} calls, {} failed {failures:?}", failures.len());
            failures.len()
        })
        .collect()
}

fn readers_on_addresses_of_their_own(default: &str) {
    let world = World::start(&[format!("--wire_default_generation={default}")]);
    let _writer = writer(&world);
    let of_both = [("0.3.12", 3, RPC), ("0.3.13", 4, RPC)];
    let failures = readers(&world, &of_both, 1000);
    assert!(failures.iter().all(|failed| *failed <= 1), "{failures:?} failures, default {default}");
    // What was learned holds for those that come later.
    assert_eq!(readers(&world, &of_both, 200), [0, 0], "default {default}");

    // Clients that read once and close, beside one that stays.
    let source = ["writer".to_owned()];
    let mut stays = world.client("read", "0.3.12", "stays", 3, 4, &source);
    stays.pass("connected");
    stays.reach("reading");
    let mut brief: Vec<Client> =
        (0..4).map(|i| world.client("brief", "0.3.12", &format!("brief-{i}"), 3, 25, &source)).collect();
    each(&mut brief, |client| client.pass("ready"));
    for client in brief {
        let (calls, failures) = client.end();
        assert!(failures.is_empty() && calls == 75, "{calls} calls, default {default}: {failures:?}");
    }
    stays.go_on();
    let (calls, failures) = stays.end();
    assert!(failures.is_empty() && calls > 10, "{calls} calls, default {default}: {failures:?}");
}

#[test]
fn a_reader_fails_at_most_once_when_it_is_of_the_default_generation_or_not() {
    if !is_possible() {
        return;
    }
    for default in ["0.3.12", "0.3.13"] {
        readers_on_addresses_of_their_own(default);
    }
}

#[test]
fn readers_of_two_generations_on_one_address_stop_failing() {
    if !is_possible() {
        return;
    }
    let own_port = 50062;
    let world = World::start(&[format!("--wire_generation_ports=0.3.12={own_port}")]);
    let _writer = writer(&world);
    let failures = readers(&world, &[("0.3.12", 5, RPC), ("0.3.13", 5, RPC)], 1500);
    assert!(failures.iter().all(|failed| *failed < 20), "{failures:?}");
    assert_eq!(world.sample("mooncake_master_wire_shared_addresses_total"), 1);
    // With a port of its own there is nothing to guess.
    let before = world.wrong_guesses();
    assert_eq!(readers(&world, &[("0.3.12", 6, own_port), ("0.3.13", 6, RPC)], 500), [0, 0]);
    assert_eq!(world.wrong_guesses(), before);
}

/// Clients that mount nothing, and so never ping, beside one that has the memory for all.
#[test]
fn clients_without_memory_put_and_get_also_after_a_failover() {
    if !is_possible() {
        return;
    }
    // Memory that is re-mounted at a new master takes no allocation for so long.
    let mut world = World::start(
        &["--put_start_discard_timeout_sec=1", "--default_kv_lease_ttl=1000"].map(str::to_owned),
    );
    let kinds = [("0.3.13", "memory", 1, 64), ("0.3.13", "bare", 2, 0), ("0.3.12", "older", 3, 0)];
    let mut clients: Vec<Client> = kinds
        .iter()
        .map(|(generation, name, at, mib)| {
            let others: Vec<String> =
                kinds.iter().map(|kind| kind.1.to_owned()).filter(|other| other != name).collect();
            world.client("survive", generation, name, *at, *mib, &others)
        })
        .collect();
    each(&mut clients, |client| client.pass("connected"));
    for at in ["before", "after"] {
        each(&mut clients, |client| client.pass(&format!("works {at}")));
        each(&mut clients, |client| client.reach(&format!("written {at}")));
        let summary = world.namespace.get(ADMIN, "/clients/summary");
        assert!(summary.contains("\"active\":1,"), "one pings, the others never do: {summary}");
        each(&mut clients, Client::go_on);
        each(&mut clients, |client| client.reach(&format!("read {at}")));
        if at == "before" {
            world.fail_over();
        }
        each(&mut clients, Client::go_on);
    }
    for client in clients {
        let name = client.name.clone();
        let (calls, failures) = client.end();
        println!("{name}: {calls} calls");
        assert!(failures.is_empty() && calls > 200, "{name}, {calls} calls: {failures:#?}");
    }
}
