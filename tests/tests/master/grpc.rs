//! Every RPC of `mooncake.master.v1`, its usual and its error paths; epoch, reflection and health.

use crate::support::{ENDPOINT, MIB, base_of, grpc, grpc_id, native};
use mooncake_master::error::ErrorCode;
use mooncake_proto::v1::{self, master_service_client::MasterServiceClient};
use mooncake_tests::{Master, MasterBuilder, fault, wait_for};
use std::time::Duration;
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

pub(crate) type Client = MasterServiceClient<Channel>;

pub(crate) const OK: i32 = 0;

#[allow(clippy::unnecessary_wraps, reason = "what a message field takes")]
pub(crate) fn segment(n: u64, size: u64) -> Option<v1::Segment> {
    Some(v1::Segment {
        id: grpc_id(n),
        name: ENDPOINT.into(),
        base: base_of(n),
        size,
        te_endpoint: ENDPOINT.into(),
        protocol: "tcp".into(),
        host_id: String::new(),
    })
}

/// A master with one client, number 1, that has mounted 16 MiB.
pub(crate) async fn with_memory() -> (Master, Client) {
    let master = Master::start();
    let mut client = grpc(&master).await;
    let mount = v1::MountSegmentRequest { segment: segment(1, 16 * MIB), client_id: grpc_id(1) };
    assert_eq!(client.mount_segment(mount).await.expect("mount").into_inner().code, OK);
    (master, client)
}

pub(crate) fn start(key: &str, size: u64) -> v1::PutStartRequest {
    v1::PutStartRequest { client_id: grpc_id(1), key: key.into(), slice_length: size, ..Default::default() }
}

pub(crate) fn end(client: u64, key: &str, checksum: Option<u64>) -> v1::PutEndRequest {
    let meta = v1::ObjectMeta { key: key.into(), object_checksum: checksum };
    v1::PutEndRequest { client_id: grpc_id(client), object_meta: Some(meta), ..Default::default() }
}

fn revoke(client: u64, key: &str) -> v1::PutRevokeRequest {
    v1::PutRevokeRequest { client_id: grpc_id(client), key: key.into(), ..Default::default() }
}

pub(crate) async fn put(client: &mut Client, key: &str) {
    assert_eq!(client.put_start(start(key, 100)).await.expect("start").into_inner().code, OK, "{key}");
    assert_eq!(client.put_end(end(1, key, None)).await.expect("end").into_inner().code, OK, "{key}");
}

pub(crate) async fn exists(client: &mut Client, key: &str) -> bool {
    let request = v1::ExistKeyRequest { key: key.into(), ..Default::default() };
    let answer = client.exist_key(request).await.expect("exist").into_inner();
    assert_eq!(answer.code, OK);
    answer.exists
}

async fn get(client: &mut Client, key: &str) -> v1::GetReplicaListResponse {
    let request = v1::GetReplicaListRequest { key: key.into(), ..Default::default() };
    client.get_replica_list(request).await.expect("get").into_inner()
}

fn keys(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn an_object_lives_and_dies() {
    let (_master, mut client) = with_memory().await;
    assert_eq!(get(&mut client, "a").await.code, ErrorCode::ObjectNotFound.number());
    let started = client.put_start(start("a", 1000)).await.expect("start").into_inner();
    assert_eq!(started.code, OK);
    let [replica] = started.replicas.as_slice() else { panic!("one replica: {started:?}") };
    assert_eq!(replica.status(), v1::ReplicaStatus::Processing);
    let Some(v1::replica::Descriptor::Memory(memory)) = &replica.descriptor else { panic!("{replica:?}") };
    assert_eq!((memory.size, &*memory.transport_endpoint, &*memory.protocol), (1000, ENDPOINT, "tcp"));
    assert!((base_of(1)..base_of(1) + 16 * MIB).contains(&memory.buffer_address), "{memory:?}");

    assert_eq!(get(&mut client, "a").await.code, ErrorCode::ReplicaIsNotReady.number());
    assert!(!exists(&mut client, "a").await);
    let code = |code: ErrorCode| code.number();
    let again = client.put_start(start("a", 1000)).await.expect("start").into_inner();
    assert_eq!((again.code, again.replicas.len()), (code(ErrorCode::ObjectAlreadyExists), 0));
    let foreign = client.put_end(end(2, "a", None)).await.expect("end").into_inner();
    assert_eq!(foreign.code, code(ErrorCode::IllegalClient));
    let unknown = client.put_end(end(1, "b", None)).await.expect("end").into_inner();
    assert_eq!(unknown.code, code(ErrorCode::ObjectNotFound));
    assert_eq!(client.put_end(end(1, "a", Some(77))).await.expect("end").into_inner().code, OK);

    let list = get(&mut client, "a").await.value.expect("a value");
    assert_eq!((list.lease_ttl_ms, list.object_checksum, list.replicas.len()), (10_000, Some(77), 1));
    assert_eq!(list.replicas[0].status(), v1::ReplicaStatus::Complete);
    assert_eq!(list.replicas[0].descriptor, replica.descriptor);
    assert!(exists(&mut client, "a").await);

    let late = client.put_revoke(revoke(1, "a")).await.expect("revoke").into_inner();
    assert_eq!(late.code, code(ErrorCode::InvalidWrite));
    let remove = |key: &str, force| v1::RemoveRequest { key: key.into(), force, ..Default::default() };
    let leased = client.remove(remove("a", false)).await.expect("remove").into_inner();
    assert_eq!(leased.code, code(ErrorCode::ObjectHasLease));
    assert_eq!(client.remove(remove("a", true)).await.expect("remove").into_inner().code, OK);
    let gone = client.remove(remove("a", true)).await.expect("remove").into_inner();
    assert_eq!(gone.code, code(ErrorCode::ObjectNotFound));

    assert_eq!(client.put_start(start("c", 10)).await.expect("start").into_inner().code, OK);
    assert_eq!(client.put_revoke(revoke(1, "c")).await.expect("revoke").into_inner().code, OK);
    assert_eq!(get(&mut client, "c").await.code, code(ErrorCode::ObjectNotFound));
    let large = client.put_start(start("large", 17 * MIB)).await.expect("start").into_inner();
    assert_eq!(large.code, code(ErrorCode::NoAvailableHandle));
    let empty = client.put_start(start("empty", 0)).await.expect("start").into_inner();
    assert_eq!(empty.code, code(ErrorCode::InvalidParams));
}

#[tokio::test]
async fn an_upsert_replaces_what_is_there() {
    let (_master, mut client) = with_memory().await;
    put(&mut client, "a").await;
    assert_eq!(client.upsert_start(start("a", 100)).await.expect("start").into_inner().code, OK);
    assert_eq!(get(&mut client, "a").await.code, ErrorCode::ReplicaIsNotReady.number());
    assert_eq!(client.upsert_end(end(1, "a", Some(5))).await.expect("end").into_inner().code, OK);
    assert_eq!(get(&mut client, "a").await.value.expect("a value").object_checksum, Some(5));
    assert_eq!(client.upsert_start(start("new", 300)).await.expect("start").into_inner().code, OK);
    assert_eq!(client.upsert_revoke(revoke(1, "new")).await.expect("revoke").into_inner().code, OK);
    assert!(!exists(&mut client, "new").await);
}

#[tokio::test]
async fn batches_answer_item_by_item() {
    let (_master, mut client) = with_memory().await;
    put(&mut client, "there").await;
    let starts = |names: &[&str], lengths: &[u64]| v1::BatchPutStartRequest {
        client_id: grpc_id(1),
        keys: keys(names),
        slice_lengths: lengths.to_vec(),
        ..Default::default()
    };
    let metas = |names: &[&str]| v1::BatchPutEndRequest {
        client_id: grpc_id(1),
        object_metas: names
            .iter()
            .map(|key| v1::ObjectMeta { key: (*key).into(), object_checksum: None })
            .collect(),
        ..Default::default()
    };
    let revokes = |names: &[&str]| v1::BatchPutRevokeRequest {
        client_id: grpc_id(1),
        keys: keys(names),
        ..Default::default()
    };
    let codes = |results: Vec<v1::Result>| results.iter().map(|r| r.code).collect::<Vec<_>>();
    let (exists_already, not_found) =
        (ErrorCode::ObjectAlreadyExists.number(), ErrorCode::ObjectNotFound.number());

    let request = starts(&["x", "there", "y"], &[10, 10, 10]);
    let started = client.batch_put_start(request).await.expect("start").into_inner().results;
    assert_eq!(started.iter().map(|r| r.code).collect::<Vec<_>>(), [OK, exists_already, OK]);
    let ended = client.batch_put_end(metas(&["x", "missing"])).await.expect("end").into_inner();
    assert_eq!(codes(ended.results), [OK, not_found]);
    let revoked = client.batch_put_revoke(revokes(&["y", "missing"])).await.expect("revoke").into_inner();
    assert_eq!(codes(revoked.results), [OK, not_found]);

    let request = starts(&["x", "z"], &[20, 20]);
    let started = client.batch_upsert_start(request).await.expect("start").into_inner().results;
    assert!(started.iter().all(|r| r.code == OK && r.replicas.len() == 1), "{started:?}");
    let ended = client.batch_upsert_end(metas(&["x"])).await.expect("end").into_inner();
    assert_eq!(codes(ended.results), [OK]);
    let revoked = client.batch_upsert_revoke(revokes(&["z"])).await.expect("revoke").into_inner();
    assert_eq!(codes(revoked.results), [OK]);

    // The lengths do not match the keys: every item says so.
    let request = starts(&["p", "q"], &[1]);
    let wrong = client.batch_put_start(request).await.expect("start").into_inner().results;
    assert!(
        wrong.len() == 2 && wrong.iter().all(|r| r.code == ErrorCode::InvalidParams.number()),
        "{wrong:?}"
    );

    let request = v1::BatchExistKeyRequest { keys: keys(&["x", "y", "z"]), ..Default::default() };
    let found = client.batch_exist_key(request).await.expect("exist").into_inner().results;
    assert_eq!(found.iter().map(|r| r.exists).collect::<Vec<_>>(), [true, false, false]);
    let request = v1::BatchGetReplicaListRequest { keys: keys(&["x", "y"]), ..Default::default() };
    let found = client.batch_get_replica_list(request).await.expect("get").into_inner().results;
    assert_eq!(found.iter().map(|r| r.code).collect::<Vec<_>>(), [OK, not_found]);
    let request = v1::BatchRemoveRequest { keys: keys(&["x", "y"]), force: false, ..Default::default() };
    let removed = client.batch_remove(request).await.expect("remove").into_inner();
    assert_eq!(codes(removed.results), [ErrorCode::ObjectHasLease.number(), not_found]);
    let request = v1::BatchExistKeyRequest::default();
    assert!(client.batch_exist_key(request).await.expect("exist").into_inner().results.is_empty());
}

#[tokio::test]
async fn patterns_and_all() {
    let (_master, mut client) = with_memory().await;
    for key in ["a1", "a2", "b1"] {
        put(&mut client, key).await;
    }
    let search = |regex: &str| v1::GetReplicaListByRegexRequest { regex: regex.into(), ..Default::default() };
    let found = client.get_replica_list_by_regex(search("^a")).await.expect("get").into_inner();
    let mut names: Vec<&str> = found.entries.iter().map(|entry| &*entry.key).collect();
    names.sort_unstable();
    assert_eq!((found.code, names), (OK, vec!["a1", "a2"]));
    let bad = client.get_replica_list_by_regex(search("(")).await.expect("get").into_inner();
    assert_eq!(bad.code, ErrorCode::InvalidParams.number());
    let remove =
        |regex: &str| v1::RemoveByRegexRequest { regex: regex.into(), force: true, ..Default::default() };
    let removed = client.remove_by_regex(remove("1$")).await.expect("remove").into_inner();
    assert_eq!((removed.code, removed.removed), (OK, 2));
    let bad = client.remove_by_regex(remove("[")).await.expect("remove").into_inner();
    assert_eq!(bad.code, ErrorCode::InvalidParams.number());
    let all = v1::RemoveAllRequest { force: true, ..Default::default() };
    assert_eq!(client.remove_all(all).await.expect("remove").into_inner().removed, 1);
}

#[tokio::test]
async fn segments_and_clients() {
    let (_master, mut client) = with_memory().await;
    let invalid = ErrorCode::InvalidParams.number();
    let mount = |segment, client| v1::MountSegmentRequest { segment, client_id: grpc_id(client) };
    for (request, code) in [
        (mount(segment(1, 16 * MIB), 1), OK),
        (mount(segment(1, 17 * MIB), 1), invalid),
        (mount(segment(1, 16 * MIB), 2), invalid),
        (mount(segment(2, 0), 1), invalid),
    ] {
        assert_eq!(
            client.mount_segment(request.clone()).await.expect("mount").into_inner().code,
            code,
            "{request:?}"
        );
    }
    let ping = |client| v1::PingRequest { client_id: grpc_id(client) };
    let status = client.ping(ping(1)).await.expect("ping").into_inner();
    assert_eq!((status.code, status.view_version_id), (OK, 0));
    assert_eq!(status.client_status(), v1::ClientStatus::NeedRemount, "mounted, but not remounted");
    let remount = |segments, client| v1::ReMountSegmentRequest { segments, client_id: grpc_id(client) };
    let request = remount(segment(1, 16 * MIB).into_iter().collect(), 1);
    assert_eq!(client.re_mount_segment(request).await.expect("remount").into_inner().code, OK);
    let status = client.ping(ping(1)).await.expect("ping").into_inner();
    assert_eq!(status.client_status(), v1::ClientStatus::ClientOk);
    let status = client.ping(ping(9)).await.expect("ping").into_inner();
    assert_eq!(status.client_status(), v1::ClientStatus::NeedRemount, "never seen");
    let request = remount(segment(1, MIB).into_iter().collect(), 1);
    assert_eq!(client.re_mount_segment(request).await.expect("remount").into_inner().code, invalid);

    put(&mut client, "a").await;
    let unmount = |segment, client| v1::UnmountSegmentRequest {
        segment_id: grpc_id(segment),
        client_id: grpc_id(client),
    };
    let foreign = client.unmount_segment(unmount(1, 2)).await.expect("unmount").into_inner();
    assert_eq!(foreign.code, invalid);
    assert_eq!(client.unmount_segment(unmount(1, 1)).await.expect("unmount").into_inner().code, OK);
    assert!(!exists(&mut client, "a").await, "unreadable when the unmount has returned");
    assert_eq!(
        client.unmount_segment(unmount(7, 1)).await.expect("unmount").into_inner().code,
        OK,
        "unknown"
    );
}

#[tokio::test]
async fn what_the_process_says_about_itself() {
    let master = Master::start();
    let mut client = grpc(&master).await;
    let config =
        client.get_storage_config(v1::GetStorageConfigRequest {}).await.expect("answer").into_inner();
    assert_eq!((&*config.fsdir, config.enable_disk_eviction, config.quota_bytes), ("", true, 0));
    let ready = client.service_ready(v1::ServiceReadyRequest {}).await.expect("answer").into_inner();
    assert_eq!(ready.version, "2.0.0");
    let health = client.health_check(v1::HealthCheckRequest {}).await.expect("answer").into_inner();
    assert_eq!((health.ok, health.shards_checked, health.shards_blocked), (true, 1024, 0));
    let port =
        client.get_heartbeat_rpc_port(v1::GetHeartbeatRpcPortRequest {}).await.expect("answer").into_inner();
    assert_eq!(port.heartbeat_rpc_port, 0);
    let ready = client.heartbeat_service_ready(v1::HeartbeatServiceReadyRequest {}).await;
    assert_eq!(ready.expect("answer").into_inner().heartbeat_rpc_port, 0);
}

fn named<T: std::fmt::Debug>(result: Result<T, Status>, field: &str) {
    let status = result.expect_err(field);
    assert_eq!(status.code(), Code::InvalidArgument, "{field}: {status}");
    assert!(status.message().starts_with(&format!("{field}: ")), "{field} is not named: {status}");
}

#[tokio::test]
async fn a_bad_field_is_named() {
    let (_master, mut client) = with_memory().await;
    let config = |config| Some(v1::ReplicateConfig { ..config });
    named(client.put_start(v1::PutStartRequest { client_id: None, ..start("a", 1) }).await, "client_id");
    let pin = config(v1::ReplicateConfig { soft_pin_action: 9, ..Default::default() });
    named(
        client.put_start(v1::PutStartRequest { config: pin, ..start("a", 1) }).await,
        "config.soft_pin_action",
    );
    let kind = config(v1::ReplicateConfig { data_type: 256, ..Default::default() });
    named(client.put_start(v1::PutStartRequest { config: kind, ..start("a", 1) }).await, "config.data_type");
    let groups = config(v1::ReplicateConfig { group_ids: keys(&["g", "h"]), ..Default::default() });
    named(
        client.upsert_start(v1::PutStartRequest { config: groups, ..start("a", 1) }).await,
        "config.group_ids",
    );
    named(client.put_end(v1::PutEndRequest { object_meta: None, ..end(1, "a", None) }).await, "object_meta");
    named(
        client.put_end(v1::PutEndRequest { replica_type: Some(7), ..end(1, "a", None) }).await,
        "replica_type",
    );
    named(
        client.put_revoke(v1::PutRevokeRequest { replica_type: Some(7), ..revoke(1, "a") }).await,
        "replica_type",
    );
    named(client.batch_put_start(v1::BatchPutStartRequest::default()).await, "client_id");
    named(client.batch_put_end(v1::BatchPutEndRequest::default()).await, "client_id");
    named(client.batch_put_revoke(v1::BatchPutRevokeRequest::default()).await, "client_id");
    named(client.ping(v1::PingRequest { client_id: None }).await, "client_id");
    named(
        client.mount_segment(v1::MountSegmentRequest { segment: None, client_id: grpc_id(1) }).await,
        "segment",
    );
    let nameless = segment(3, 1).map(|segment| v1::Segment { id: None, ..segment });
    let request = v1::MountSegmentRequest { segment: nameless.clone(), client_id: grpc_id(1) };
    named(client.mount_segment(request).await, "segment.id");
    let segments = [segment(2, 1), nameless].into_iter().flatten().collect();
    let request = v1::ReMountSegmentRequest { segments, client_id: grpc_id(1) };
    named(client.re_mount_segment(request).await, "segments[1].id");
    let request = v1::UnmountSegmentRequest { segment_id: None, client_id: grpc_id(1) };
    named(client.unmount_segment(request).await, "segment_id");
}

#[tokio::test]
async fn every_answer_carries_the_epoch_and_a_wrong_belief_is_refused() {
    let master = Master::start();
    let mut client = grpc(&master).await;
    let believing = |epoch: &'static str| {
        let mut request = Request::new(v1::RemoveAllRequest::default());
        request.metadata_mut().insert("mooncake-epoch", epoch.parse().expect("a value"));
        request
    };
    let answer = client.remove_all(v1::RemoveAllRequest::default()).await.expect("answer");
    assert_eq!(answer.metadata().get("mooncake-epoch").expect("the epoch"), "0");
    assert!(client.remove_all(believing("0")).await.is_ok());
    let stale = client.remove_all(believing("3")).await.expect_err("another epoch");
    assert_eq!(stale.code(), Code::FailedPrecondition);
    assert!(stale.message().starts_with("NOT_LEADER"), "{stale}");
    assert_eq!(stale.metadata().get("mooncake-epoch").expect("the epoch"), "0", "on a refusal, too");
    for garbage in ["", "-1", "0x0", "1e3", "99999999999999999999"] {
        let refused = client.remove_all(believing(garbage)).await.expect_err(garbage);
        assert_eq!(refused.code(), Code::InvalidArgument, "{garbage:?}");
        assert!(refused.message().starts_with("mooncake-epoch"), "{refused}");
    }
    let refused = client.ping(v1::PingRequest { client_id: None }).await.expect_err("no id");
    assert!(refused.metadata().contains_key("mooncake-epoch"), "on an invalid argument, too");
}

#[tokio::test]
async fn reflection_lists_the_services() {
    let master = Master::start();
    let channel = Channel::from_shared(format!("http://{}", master.rpc_address())).expect("a URI");
    let mut client = ServerReflectionClient::new(channel.connect().await.expect("accepts"));
    let ask = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(ask) };
    let mut answers =
        client.server_reflection_info(tokio_stream::iter([request])).await.expect("answers").into_inner();
    let answer = answers.next().await.expect("an answer").expect("a good one").message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { panic!("{answer:?}") };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["mooncake.master.v1.MasterService", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
}

/// A5: SERVING exactly when `/readyz` is 200. The probe is made to fail by a shard that is held.
#[tokio::test]
async fn the_health_service_follows_readyz() {
    let master = MasterBuilder::default()
        .arg(fault::ENABLE)
        .arg("--rpc_probe_interval_seconds=1")
        .arg("--rpc_probe_timeout_seconds=1")
        .start();
    master.wait_ready(200, 10);
    let channel = Channel::from_shared(format!("http://{}", master.rpc_address())).expect("a URI");
    let mut health = HealthClient::new(channel.connect().await.expect("accepts"));
    let of = |service: &str| HealthCheckRequest { service: service.into() };
    for service in ["", "mooncake.master.v1.MasterService"] {
        assert_eq!(health.check(of(service)).await.expect("answer").into_inner().status, 1, "SERVING");
    }
    let unknown = health.check(of("nobody")).await.expect_err("unknown");
    assert_eq!(unknown.code(), Code::NotFound);
    let mut changes = health.watch(of("")).await.expect("a stream").into_inner();
    assert_eq!(changes.next().await.expect("one").expect("good").status, 1);

    fault::inject(&master, "hold_shard?index=5&for_ms=60000");
    master.wait_ready(503, 15);
    assert_eq!(health.check(of("")).await.expect("answer").into_inner().status, 2, "NOT_SERVING");
    assert_eq!(changes.next().await.expect("one").expect("good").status, 2);
    fault::clear(&master);
    let serving = tokio::time::timeout(Duration::from_secs(10), changes.next()).await.expect("it recovers");
    assert_eq!(serving.expect("one").expect("good").status, 1);
    assert_eq!(master.get("/readyz").0, 200);
}

/// A master that is full of clients can serve them, so the probe finds its way past the caps.
#[test]
fn a_master_full_of_clients_stays_ready() {
    let master =
        MasterBuilder::default().arg("--rpc_probe_interval_seconds=1").arg("--max_connections=2").start();
    master.wait_ready(200, 10);
    let mut clients = Vec::new();
    wait_for("the caps are reached", 10, || {
        clients.retain_mut(|client: &mut mooncake_tests::NativeClient| client.exist("k").is_ok());
        if clients.len() < 2 {
            clients.push(native(&master));
        }
        (clients.len() == 2 && native(&master).exist("k").is_err()).then_some(())
    });
    // Three rounds of the probe and more.
    for _ in 0..70 {
        assert_eq!(master.get("/readyz").0, 200);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(fault::metric(&master, "mooncake_master_rpc_probe_failures_total"), Some(0.0));
}

/// C1, C2: the heartbeat port serves Ping and ServiceReady and nothing else.
#[tokio::test]
async fn the_heartbeat_port_serves_heartbeats_only() {
    let [port] = mooncake_tests::master::free_ports();
    let master = MasterBuilder::default()
        .arg(format!("--heartbeat_rpc_port={port}"))
        .arg("--noheartbeat_keep_on_main")
        .start();
    let mut main = grpc(&master).await;
    let advertised = main.get_heartbeat_rpc_port(v1::GetHeartbeatRpcPortRequest {}).await.expect("answer");
    assert_eq!(advertised.into_inner().heartbeat_rpc_port, u32::from(port));
    let mut client = MasterServiceClient::connect(format!("http://127.0.0.1:{port}")).await.expect("accepts");
    let ping = v1::PingRequest { client_id: grpc_id(1) };
    assert_eq!(
        client.ping(ping).await.expect("ping").into_inner().client_status(),
        v1::ClientStatus::NeedRemount
    );
    assert_eq!(
        client.service_ready(v1::ServiceReadyRequest {}).await.expect("answer").into_inner().version,
        "2.0.0"
    );
    let refused = client.exist_key(v1::ExistKeyRequest::default()).await.expect_err("not here");
    assert_eq!(refused.code(), Code::Unimplemented);
    let elsewhere = main.ping(ping).await;
    let told = match &elsewhere {
        Ok(answer) => answer.get_ref().code == ErrorCode::HeartbeatRoutingMismatch.number(),
        Err(status) => status.message().contains(&port.to_string()),
    };
    assert!(told, "the main port says where heartbeats go: {elsewhere:?}");
}
