//! Every code of B7, over both protocols.

use crate::support::{Beating, MIB, Way, endpoint, id, mount, native, start, wait_liveness};
use mooncake_master::{
    error::ErrorCode,
    rpc::native::{generation::Method, value::Value},
    types::Uuid,
};
use mooncake_proto::v1::{self, master_service_client::MasterServiceClient};
use mooncake_tests::{
    Master, NativeClient,
    fault::inject,
    native::{segment_value, uuid},
};
use tonic::transport::Channel;

const OK: ErrorCode = ErrorCode::Ok;
/// It mounts nothing and so never pings.
const NOBODY: u64 = 77;
const OWNER: u64 = 1;
const OTHER: u64 = 2;

/// One call of the table.
#[derive(Clone, Copy, Debug)]
enum Call {
    Get(&'static str),
    Exist(&'static str),
    PutStart(u64, &'static str),
    UpsertStart(u64, &'static str),
    PutEnd(u64, &'static str),
    PutRevoke(u64, &'static str),
    Mount(u64),
    ReMount(u64),
    Ping(u64),
}

/// What is said to it. Exist and Ping have answers of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Says {
    Code(ErrorCode),
    Exists(bool),
    Known(bool),
}

trait Caller {
    fn say(&mut self, call: Call) -> Says;
}

impl Caller for NativeClient {
    fn say(&mut self, call: Call) -> Says {
        let code = |outcome: std::io::Result<Result<Value, ErrorCode>>| {
            Says::Code(outcome.expect("an answer").err().unwrap_or(OK))
        };
        let of = |client: u64| uuid(id(client));
        match call {
            Call::Get(key) => code(self.get(key)),
            Call::Exist(key) => Says::Exists(self.exist(key).expect("an answer").expect("no code")),
            Call::PutStart(client, key) => code(self.put_start(id(client), key, 100)),
            Call::UpsertStart(client, key) => {
                let config = mooncake_tests::native::config();
                let args = vec![of(client), Value::str(key), Value::U64(100), config, Value::str("default")];
                code(self.call(Method::UpsertStart, args))
            }
            Call::PutEnd(client, key) => code(self.put_end(id(client), key)),
            Call::PutRevoke(client, key) => {
                let args = vec![of(client), Value::str(key), Value::I32(4), Value::str("default")];
                code(self.call(Method::PutRevoke, args))
            }
            Call::Mount(n) => {
                let segment = segment_value(id(n), &endpoint(n), (n + 1) << 32, 16 * MIB);
                code(self.call(Method::MountSegment, vec![segment, of(n)]))
            }
            Call::ReMount(n) => code(self.remount(id(n), id(n), &endpoint(n), (n + 1) << 32, 16 * MIB)),
            Call::Ping(n) => Says::Known(self.ping(id(n)).expect("an answer").expect("no code").1),
        }
    }
}

struct GrpcClient {
    runtime: tokio::runtime::Runtime,
    client: MasterServiceClient<Channel>,
}

impl GrpcClient {
    fn connect(master: &Master) -> GrpcClient {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let address = format!("http://{}", master.rpc_address());
        let client = runtime.block_on(MasterServiceClient::connect(address)).expect("accepts");
        GrpcClient { runtime, client }
    }
}

#[allow(clippy::unnecessary_wraps, reason = "what a message field takes")]
fn message(id: Uuid) -> Option<v1::Uuid> {
    Some(v1::Uuid { first: id.first, second: id.second })
}

fn segment(n: u64) -> v1::Segment {
    v1::Segment {
        id: message(id(n)),
        name: endpoint(n),
        base: (n + 1) << 32,
        size: 16 * MIB,
        te_endpoint: endpoint(n),
        protocol: "tcp".into(),
        host_id: String::new(),
    }
}

impl Caller for GrpcClient {
    fn say(&mut self, call: Call) -> Says {
        let client = &mut self.client;
        let of = |n: u64| message(id(n));
        let code = |number: i32| Says::Code(ErrorCode::from_number(number).expect("in the table"));
        self.runtime.block_on(async move {
            match call {
                Call::Get(key) => {
                    let request = v1::GetReplicaListRequest { key: key.into(), ..Default::default() };
                    code(client.get_replica_list(request).await.expect("an answer").into_inner().code)
                }
                Call::Exist(key) => {
                    let request = v1::ExistKeyRequest { key: key.into(), ..Default::default() };
                    let answer = client.exist_key(request).await.expect("an answer").into_inner();
                    assert_eq!(answer.code, OK.number());
                    Says::Exists(answer.exists)
                }
                Call::PutStart(n, key) => {
                    let request = v1::PutStartRequest {
                        client_id: of(n),
                        key: key.into(),
                        slice_length: 100,
                        ..Default::default()
                    };
                    code(client.put_start(request).await.expect("an answer").into_inner().code)
                }
                Call::UpsertStart(n, key) => {
                    let request = v1::PutStartRequest {
                        client_id: of(n),
                        key: key.into(),
                        slice_length: 100,
                        ..Default::default()
                    };
                    code(client.upsert_start(request).await.expect("an answer").into_inner().code)
                }
                Call::PutEnd(n, key) => {
                    let meta = v1::ObjectMeta { key: key.into(), object_checksum: None };
                    let request =
                        v1::PutEndRequest { client_id: of(n), object_meta: Some(meta), ..Default::default() };
                    code(client.put_end(request).await.expect("an answer").into_inner().code)
                }
                Call::PutRevoke(n, key) => {
                    let request =
                        v1::PutRevokeRequest { client_id: of(n), key: key.into(), ..Default::default() };
                    code(client.put_revoke(request).await.expect("an answer").into_inner().code)
                }
                Call::Mount(n) => {
                    let request = v1::MountSegmentRequest { segment: Some(segment(n)), client_id: of(n) };
                    code(client.mount_segment(request).await.expect("an answer").into_inner().code)
                }
                Call::ReMount(n) => {
                    let request = v1::ReMountSegmentRequest { segments: vec![segment(n)], client_id: of(n) };
                    code(client.re_mount_segment(request).await.expect("an answer").into_inner().code)
                }
                Call::Ping(n) => {
                    let answer = client.ping(v1::PingRequest { client_id: of(n) }).await.expect("an answer");
                    let answer = answer.into_inner();
                    let known = answer.client_status() == v1::ClientStatus::ClientOk;
                    assert!(!known || answer.incarnation != 0, "{answer:?}");
                    Says::Known(known)
                }
            }
        })
    }
}

fn check(caller: &mut dyn Caller, table: &[(Call, Says)], when: &str) {
    for &(call, says) in table {
        assert_eq!(caller.say(call), says, "{when}: {call:?}");
    }
}

fn caller(master: &Master, protocol: &str) -> Box<dyn Caller> {
    match protocol {
        "native" => Box::new(native(master)),
        _ => Box::new(GrpcClient::connect(master)),
    }
}

/// A master with the owner of `k` and of three unfinished puts of its own and of somebody else, which falls silent, and
/// another client that lives.
fn prepare(master: &Master) -> Beating {
    let mut client = native(master);
    mount(&mut client, OWNER);
    client.put(id(OTHER), "k", 100).expect("an answer").expect("room");
    for (writer, key) in [(OWNER, "to-end"), (OWNER, "to-revoke"), (OWNER, "too-late"), (NOBODY, "others")] {
        client.put_start(id(writer), key, 100).expect("an answer").expect("room");
    }
    mount(&mut client, OTHER);
    Beating::start(master, OTHER, Way::Patient)
}

#[test]
fn while_the_owner_is_suspected() {
    use Says::{Code, Exists, Known};
    for protocol in ["native", "grpc"] {
        let master = start(3, 600, &[]);
        let _beating = prepare(&master);
        wait_liveness(&master, "suspected_clients", 1, 10);
        let table = [
            // No new dependency on it.
            (Call::Get("k"), Code(ErrorCode::ReplicaIsNotReady)),
            (Call::Exist("k"), Exists(false)),
            (Call::PutStart(OTHER, "k"), Code(ErrorCode::ObjectAlreadyExists)),
            (Call::PutStart(NOBODY, "elsewhere"), Code(OK)),
            (Call::PutEnd(NOBODY, "elsewhere"), Code(OK)),
            (Call::Get("elsewhere"), Code(OK)),
            // Work that had started converges.
            (Call::PutEnd(OWNER, "to-end"), Code(OK)),
            (Call::PutRevoke(OWNER, "to-revoke"), Code(OK)),
            (Call::PutEnd(NOBODY, "others"), Code(OK)),
            (Call::Get("others"), Code(ErrorCode::ReplicaIsNotReady)),
            // Its own requests are served.
            (Call::Exist("elsewhere"), Exists(true)),
            (Call::PutStart(OWNER, "by-the-suspected"), Code(OK)),
            (Call::PutEnd(OWNER, "by-the-suspected"), Code(OK)),
            (Call::Get("by-the-suspected"), Code(OK)),
            (Call::UpsertStart(OWNER, "upserted"), Code(OK)),
            // A Ping recovers it, and with it all that it has.
            (Call::Ping(OWNER), Known(true)),
            (Call::Get("k"), Code(OK)),
            (Call::Get("to-end"), Code(OK)),
            (Call::Get("others"), Code(OK)),
            (Call::Get("to-revoke"), Code(ErrorCode::ObjectNotFound)),
        ];
        check(&mut *caller(&master, protocol), &table, protocol);
    }
}

#[test]
fn while_the_owner_is_offline_and_behind_the_barrier() {
    use Says::{Code, Exists, Known};
    for protocol in ["native", "grpc"] {
        let master = start(3, 1, &[]);
        let _beating = prepare(&master);
        // Its last step never succeeds, so it stays where it is.
        inject(&master, "fail_step?step=remove_record&times=1000000");
        wait_liveness(&master, "offline_clients", 1, 15);
        let table = [
            (Call::Get("k"), Code(ErrorCode::ObjectNotFound)),
            (Call::Exist("k"), Exists(false)),
            (Call::PutStart(OTHER, "k"), Code(OK)),
            (Call::PutEnd(OTHER, "k"), Code(OK)),
            (Call::Get("k"), Code(OK)),
            (Call::PutEnd(OWNER, "too-late"), Code(ErrorCode::IllegalClient)),
            (Call::PutRevoke(OWNER, "too-late"), Code(ErrorCode::IllegalClient)),
            (Call::PutStart(OWNER, "new"), Code(ErrorCode::IllegalClient)),
            (Call::UpsertStart(OWNER, "new"), Code(ErrorCode::IllegalClient)),
            (Call::Mount(OWNER), Code(ErrorCode::UnavailableInCurrentStatus)),
            (Call::ReMount(OWNER), Code(ErrorCode::UnavailableInCurrentStatus)),
            (Call::Ping(OWNER), Known(false)),
            // Who has no record may use the store all the same.
            (Call::Ping(NOBODY), Known(false)),
            (Call::PutStart(NOBODY, "of-nobody"), Code(OK)),
            (Call::PutEnd(NOBODY, "of-nobody"), Code(OK)),
            (Call::Get("of-nobody"), Code(OK)),
            (Call::Exist("of-nobody"), Exists(true)),
        ];
        check(&mut *caller(&master, protocol), &table, protocol);
    }
}
