//! Pages of the admin port that look into the store, on a real process: Suspected clients, a held shard, a taken port.

use crate::{
    apiserver::ApiServer,
    support::{BASE, ENDPOINT, MIB, answered, id, native},
};
use mooncake_master::rpc::native::{generation::Method, value::Value};
use mooncake_tests::{
    Master, MasterBuilder, NativeClient,
    fault::{self, ENABLE},
    master::{binary, free_ports},
    native::{config, uuid},
    wait_for,
};
use serde_json::Value as Json;
use std::{net::TcpListener, process::Command, time::Duration};
use tokio::time::Instant;

fn json(master: &Master, path: &str) -> (u16, Json) {
    let (status, body) = master.get(path);
    (status, serde_json::from_str(&body).unwrap_or_else(|e| panic!("{path}: {e}: {body}")))
}

#[test]
fn descriptors_of_a_suspected_client_are_hidden_and_its_state_is_shown() {
    let master = MasterBuilder::default()
        .arg("--client_active_ttl_sec=2")
        .arg("--client_suspicion_ttl_sec=600")
        .start();
    let mut client = native(&master);
    assert!(answered(client.mount(id(1), id(1), ENDPOINT, BASE, 16 * MIB)).is_ok());
    assert!(answered(client.put(id(1), "a b", 100)).is_ok());
    let detail = |master: &Master| {
        let (status, detail) = json(master, "/get_segments_detail");
        assert_eq!(status, 200);
        detail["segments"][0].clone()
    };
    assert_eq!(
        (&detail(&master)["client_state"], &detail(&master)["status"]),
        (&"ACTIVE".into(), &"OK".into())
    );
    let (status, found) = json(&master, "/query_key?key=a%20b");
    assert_eq!((status, &found["data"][0]["size_"]), (200, &100.into()), "a key that a URL must escape");
    wait_for("the client is suspected", 30, || {
        (detail(&master)["client_state"] == "SUSPECTED").then_some(())
    });
    let (status, hidden) = json(&master, "/query_key?key=a%20b");
    assert_eq!((status, &hidden["error_message"]), (404, &"REPLICA_IS_NOT_READY".into()));
    let (_, hidden) = json(&master, "/batch_query_keys?keys=a%20b");
    assert_eq!(hidden["data"]["a%20b"]["error"], "REPLICA_IS_NOT_READY");
    assert_eq!(detail(&master)["status"], "OK", "the segment itself is as it was");
    assert_eq!(json(&master, &format!("/api/v1/segments/status?segment={ENDPOINT}")).1["status_name"], "OK");
    assert_eq!(master.get("/get_all_keys").1, "a b\n");
    assert_eq!(client.ping(id(1)).expect("an answer").map(|(_, ok)| ok), Ok(false));
    assert_eq!(json(&master, "/query_key?key=a%20b").0, 200, "it was heard again");
}

/// So many that no shard is without one.
const KEYS: usize = 16_000;

fn fill(client: &mut NativeClient) {
    let keys: Vec<Value> = (0..KEYS).map(|n| Value::str(format!("key-{n}"))).collect();
    let metas = keys.iter().map(|key| Value::Struct(vec![key.clone(), Value::Opt(None)])).collect();
    let sizes = Value::Seq(vec![Value::U64(100); KEYS]);
    let start = vec![uuid(id(1)), Value::Seq(keys), sizes, config(), Value::str("default")];
    client.request(Method::BatchPutStart, start).expect("an answer");
    let end = vec![uuid(id(1)), Value::Seq(metas), Value::I32(4), Value::str("default")];
    client.request(Method::BatchPutEnd, end).expect("an answer");
}

/// How often the Lease was written.
fn renewals(api: &ApiServer) -> usize {
    let of_lease = |(path, _): &(String, Json)| path.contains("/leases/");
    api.history().iter().filter(|change| of_lease(change)).count()
}

/// 50 requests at once that need a held shard: each gets its answer, a 503, in time; and what needs no shard does not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_wait_for_a_held_shard_hold_nothing_else_up() {
    let api = ApiServer::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let kubeconfig = directory.path().join("kubeconfig");
    let server = &api.url;
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).expect("written");
    let master = MasterBuilder::default()
        .arg(ENABLE)
        .arg("--enable_ha")
        .arg("--ha_backend_type=k8s")
        .arg("--ha_backend_connstring=ns/m")
        .arg("--client_active_ttl_sec=600")
        .arg("--lease_duration_ms=3000")
        .arg("--lease_renew_deadline_ms=2000")
        .env("KUBECONFIG", kubeconfig.display().to_string())
        .spawn();
    master.wait_ready(200, 60);
    tokio::task::block_in_place(|| hold_a_shard(&master, &api));
}

/// What is looked at while the shard is held.
struct Watch<'a> {
    master: &'a Master,
    api: &'a ApiServer,
    readyz: Vec<Duration>,
    renewals: usize,
    renewed: Instant,
    longest_without: Duration,
}

impl<'a> Watch<'a> {
    fn new(master: &'a Master, api: &'a ApiServer) -> Watch<'a> {
        let (readyz, renewals, longest_without) = (Vec::new(), renewals(api), Duration::ZERO);
        Watch { master, api, readyz, renewals, renewed: Instant::now(), longest_without }
    }

    fn look(&mut self) {
        let at = Instant::now();
        assert!([200, 503].contains(&self.master.get("/readyz").0));
        self.readyz.push(at.elapsed());
        let renewals = renewals(self.api);
        self.longest_without = self.longest_without.max(self.renewed.elapsed());
        if renewals > self.renewals {
            (self.renewals, self.renewed) = (renewals, Instant::now());
        }
    }
}

fn hold_a_shard(master: &Master, api: &ApiServer) {
    let mut client = native(master);
    assert!(answered(client.mount(id(1), id(1), ENDPOINT, BASE, 16 * MIB)).is_ok());
    fill(&mut client);
    let mut watch = Watch::new(master, api);
    let before = watch.renewals;
    let began = fault::inject(master, "hold_shard?index=7&for_ms=12000");
    let statuses: Vec<(u16, Duration)> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..50)
            .map(|n| {
                let path = ["/get_all_keys", "/query_key?key=key-1", "/get_segments_detail"][n % 3];
                scope.spawn(move || {
                    let at = Instant::now();
                    let status = master.get(path).0;
                    (status, at.elapsed())
                })
            })
            .collect();
        while asked.iter().any(|thread| !thread.is_finished()) {
            watch.look();
        }
        asked.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert!(began.elapsed() < Duration::from_secs(12), "the shard was held all the time");
    while began.elapsed() < Duration::from_secs(12) {
        watch.look();
        std::thread::sleep(Duration::from_millis(20));
    }
    let Watch { mut readyz, renewals, longest_without, .. } = watch;
    readyz.sort_unstable();
    let at = |share: usize| readyz[(readyz.len() - 1) * share / 100];
    let renewed = renewals - before;
    let longest = statuses.iter().map(|(_, took)| *took).max().expect("50");
    println!(
        "/readyz {} times: half within {:.1?}, 95 % within {:.1?}, all within {:.1?} (bar 50 ms); pages within {longest:.1?} \
         (bound 2 s); {renewed} renewals in 12 s, never {longest_without:.1?} without (bar 1 s each)",
        readyz.len(),
        at(50),
        at(95),
        at(100),
    );
    assert!(statuses.iter().all(|(status, _)| [200, 503].contains(status)), "{statuses:?}");
    assert!(statuses.iter().any(|(status, _)| *status == 503), "a walk over all shards cannot have ended");
    // The bar for most of them: a single one may be late on a busy machine, but not by as much as a page that waits for
    // the shard. A renewal that waited for it would not come at all.
    assert!(at(90) < Duration::from_millis(50), "{:?}", at(90));
    assert!(at(100) < Duration::from_secs(2), "{:?}", at(100));
    assert!(renewed >= 8, "{renewed}");
    assert!(longest_without < Duration::from_secs(4), "{longest_without:?}");
    assert!(longest < Duration::from_secs(4), "{longest:?}");
    fault::clear(master);
    wait_for("all keys are listed again", 20, || {
        (master.get("/get_all_keys").1.lines().count() == KEYS).then_some(())
    });
}

#[test]
fn a_taken_metadata_port_ends_the_start_and_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let [rpc, metrics] = free_ports();
    let at = Instant::now();
    let output = Command::new(binary("mooncake-master"))
        .args(["--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1", "--enable_http_metadata_server"])
        .args([format!("--rpc_port={rpc}"), format!("--metrics_port={metrics}")])
        .args([
            "--http_metadata_server_host=127.0.0.1".to_owned(),
            format!("--http_metadata_server_port={port}"),
        ])
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("http_metadata_server_port"), "{text}");
    println!("ended after {:.1?} (bar 2 s)", at.elapsed());
    assert!(at.elapsed() < Duration::from_secs(10));
}
