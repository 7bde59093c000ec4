//! Every function of the native protocol, and what a peer may do with its bytes. Expectations are those that the C++
//! master of 0.3.13 was seen to meet.

use crate::support::{ENDPOINT, MIB, answered, base_of, id, is_closed, native};
use bytes::BytesMut;
use mooncake_master::{
    error::ErrorCode,
    rpc::native::{
        client::call_value,
        frame::{REQUEST_HEADER, RequestHeader, ResponseHeader, read_error},
        generation::{Generation, Method, Rpc},
        types::Type,
        value::Value,
    },
};
use mooncake_tests::{
    Master, MasterBuilder, NativeClient,
    native::{config, outcome, segment_value, uuid},
};
use std::{collections::BTreeSet, io::Write, net::TcpStream, time::Duration};

const DEFAULT: &str = "default";

fn rpc(method: Method) -> &'static Rpc {
    Generation::newest().method(method).expect("in the newest generation")
}

fn frame(method: Method, seq: u32, args: &Value, literal: bool) -> Vec<u8> {
    let mut out = BytesMut::new();
    call_value(&mut out, seq, rpc(method), args, literal);
    out.to_vec()
}

fn exist_args(key: &str) -> Value {
    Value::Struct(vec![Value::str(key), Value::str(DEFAULT)])
}

/// A frame with any body.
fn with_body(method: Method, seq: u32, body: &[u8], attachment: &[u8]) -> Vec<u8> {
    let (function, length) = (method.function_id(), body.len() as u32);
    let header = RequestHeader { seq, function, body: length, attachment: attachment.len() as u32 };
    [&header.to_bytes()[..], body, attachment].concat()
}

fn body_of(frame: &[u8]) -> &[u8] {
    &frame[REQUEST_HEADER..]
}

/// Sends bytes and reads one answer.
fn ask(client: &mut NativeClient, bytes: &[u8]) -> (ResponseHeader, Vec<u8>) {
    client.stream().write_all(bytes).expect("written");
    client.receive().expect("an answer")
}

fn decode(method: Method, body: &[u8]) -> Value {
    let rpc = rpc(method);
    Value::decode(rpc.result(), rpc.result_signature(), body).expect("the declared type").value
}

fn ok(value: Value) -> Value {
    Value::Expected(Ok(Box::new(value)))
}

fn refused(code: ErrorCode) -> Value {
    Value::Expected(Err(code.number()))
}

/// A value of a type: nothing, zero, empty.
fn zero(ty: Type) -> Value {
    match ty {
        Type::Void => Value::Void,
        Type::Bool => Value::Bool(false),
        Type::U8 => Value::U8(0),
        Type::I32 => Value::I32(0),
        Type::U32 => Value::U32(0),
        Type::I64 => Value::I64(0),
        Type::U64 => Value::U64(0),
        Type::Str => Value::str(""),
        Type::Seq(_) => Value::Seq(vec![]),
        Type::Map(..) => Value::Map(vec![]),
        Type::Opt(_) => Value::Opt(None),
        Type::Variant(alternatives) => Value::Variant(0, Box::new(zero(alternatives[0]))),
        Type::Expected(value) => ok(zero(*value)),
        Type::Struct(described) => Value::Struct(described.members.iter().map(|(_, ty)| zero(*ty)).collect()),
    }
}

#[test]
fn single_frames_get_what_the_cpp_master_gives() {
    let master = Master::start();
    let client = &mut native(&master);
    let exist = frame(Method::ExistKey, 7, &exist_args("k1"), false);
    let no = ok(Value::Bool(false));
    let version = ok(Value::str("2.0.0"));
    let with_bytes =
        |seq, extra: &[u8]| with_body(Method::ExistKey, seq, &[body_of(&exist), extra].concat(), b"");
    let mut odd_type = frame(Method::ExistKey, 16, &exist_args("k1"), false);
    odd_type[3] = 5;
    for (name, seq, bytes, method, expected) in [
        ("ServiceReady", 7, with_body(Method::ServiceReady, 7, b"", b""), Method::ServiceReady, &version),
        ("short form", 7, exist.clone(), Method::ExistKey, &no),
        ("with literal", 8, frame(Method::ExistKey, 8, &exist_args("k1"), true), Method::ExistKey, &no),
        ("trailing bytes", 13, with_bytes(13, b"trailing"), Method::ExistKey, &no),
        (
            "a body nobody needs",
            14,
            with_body(Method::ServiceReady, 14, b"xyz", b""),
            Method::ServiceReady,
            &version,
        ),
        (
            "an attachment",
            15,
            with_body(Method::ExistKey, 15, body_of(&exist), &[0xaa; 10_000]),
            Method::ExistKey,
            &no,
        ),
        ("another message type", 16, odd_type, Method::ExistKey, &no),
        (
            "the last sequence number",
            u32::MAX,
            with_body(Method::ServiceReady, u32::MAX, b"", b""),
            Method::ServiceReady,
            &version,
        ),
    ] {
        let (header, body) = ask(client, &bytes);
        assert_eq!((header.error, header.seq, header.attachment), (0, seq, 0), "{name}");
        assert_eq!(&decode(method, &body), expected, "{name}");
    }
}

#[test]
fn what_the_rpc_layer_refuses_leaves_the_connection_usable() {
    let master = Master::start();
    let client = &mut native(&master);
    let exist = frame(Method::ExistKey, 0, &exist_args("k1"), false);
    let unknown = RequestHeader { seq: 9, function: 0xdead_beef, body: 0, attachment: 0 }.to_bytes().to_vec();
    for (name, seq, bytes, error, message) in [
        ("unknown function", 9, unknown, 11, "the rpc function not registered"),
        ("no body", 11, with_body(Method::ExistKey, 11, b"", b""), 4, "invalid rpc arg"),
        (
            "half a body",
            12,
            with_body(Method::ExistKey, 12, &body_of(&exist)[..7], b""),
            4,
            "invalid rpc arg",
        ),
        ("another type hash", 13, with_body(Method::ExistKey, 13, &[0xfe; 30], b""), 4, "invalid rpc arg"),
    ] {
        let (header, body) = ask(client, &bytes);
        assert_eq!((header.error, header.seq), (error, seq), "{name}");
        let said = read_error(&body).expect("a message");
        assert!(said.starts_with(message.as_bytes()), "{name}: {}", String::from_utf8_lossy(said));
    }
    assert_eq!(client.exist("k1").expect("usable"), Ok(false));
}

#[test]
fn a_call_of_every_generation_is_answered_in_its_own_types() {
    let master = Master::start();
    for generation in Generation::all() {
        let client = &mut native(&master);
        for method in [Method::ExistKey, Method::RemoveByRegex, Method::BatchPutStart, Method::GetReplicaList]
        {
            let rpc = generation.method(method).expect("in every generation");
            let args = match rpc.args() {
                [(_, only)] => zero(*only),
                several => Value::Struct(several.iter().map(|(_, ty)| zero(*ty)).collect()),
            };
            let body = args.encode(rpc.args_signature().expect("has arguments"), true);
            let (header, body) = ask(client, &with_body(method, 1, &body, b""));
            let name = format!("{method:?} of {}", generation.name());
            assert_eq!(header.error, 0, "{name}");
            let answer = Value::decode(rpc.result(), rpc.result_signature(), &body);
            assert!(answer.is_ok_and(|answer| answer.trailing == 0), "{name}");
        }
    }
}

#[test]
fn a_peer_of_another_protocol_is_closed_without_a_word() {
    let master = Master::start();
    let ready = with_body(Method::ServiceReady, 0, b"", b"");
    let with = |at: usize, byte: u8| {
        let mut bytes = ready.clone();
        bytes[at] = byte;
        bytes
    };
    let huge = RequestHeader { seq: 0, function: 1, body: 3 << 30, attachment: 0 }.to_bytes().to_vec();
    for (name, bytes) in [
        ("bad magic", with(0, 0x16)),
        ("version 1", with(1, 1)),
        ("serialize_type 1", with(2, 1)),
        ("HTTP", b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n".to_vec()),
        ("TLS", vec![0x16, 3, 1, 2, 0, 1]),
        ("3 GiB", huge),
    ] {
        let mut stream = TcpStream::connect(master.rpc_address()).expect("accepts");
        stream.write_all(&bytes).expect("written");
        assert!(is_closed(&stream, Duration::from_secs(5)), "{name}: still open");
    }
    assert_eq!(native(&master).exist("k").expect("alive"), Ok(false));
}

#[test]
fn requests_in_one_write_and_byte_by_byte() {
    let master = Master::start();
    let client = &mut native(&master);
    let all: Vec<u8> =
        (100..150).flat_map(|seq| frame(Method::ExistKey, seq, &exist_args("k"), seq % 2 == 0)).collect();
    client.stream().write_all(&all).expect("written");
    let answered: BTreeSet<u32> = (0..50).map(|_| client.receive().expect("an answer").0.seq).collect();
    assert_eq!(answered, (100..150).collect());
    for byte in with_body(Method::ServiceReady, 20, b"", b"") {
        client.stream().write_all(&[byte]).expect("written");
        std::thread::yield_now();
    }
    let (header, body) = client.receive().expect("an answer");
    assert_eq!((header.seq, decode(Method::ServiceReady, &body)), (20, ok(Value::str("2.0.0"))));
}

#[test]
fn sizes_take_the_width_that_they_need() {
    let master = Master::start();
    let client = &mut native(&master);
    for (count, width, longest) in [(1, 1, 1), (300, 2, 1), (70_000, 4, 1), (2, 2, 300), (2, 2, 65_000)] {
        let keys = (0..count).map(|n| Value::str("x".repeat(longest) + &n.to_string())).collect();
        let args = Value::Struct(vec![Value::Seq(keys), Value::str(DEFAULT)]);
        let (header, body) = ask(client, &frame(Method::BatchExistKey, count, &args, true));
        assert_eq!((header.error, header.seq), (0, count));
        let rpc = rpc(Method::BatchExistKey);
        let decoded = Value::decode(rpc.result(), rpc.result_signature(), &body).expect("a list");
        let Value::Seq(items) = decoded.value else { panic!("a list") };
        assert!(items.len() == count as usize && items.iter().all(|item| *item == ok(Value::Bool(false))));
        if longest == 1 {
            assert_eq!(decoded.width, width, "{count} items");
        }
    }
}

/// No function is without an answer of its declared type, whether it does something in this version or not.
#[test]
fn every_function_answers_in_its_declared_type() {
    let master = Master::start();
    let client = &mut native(&master);
    for &method in Method::ALL {
        let args = rpc(method).args().iter().map(|(_, ty)| zero(*ty)).collect();
        let answer = client.request(method, args);
        let value = answer.unwrap_or_else(|error| panic!("{method:?}: {error}"));
        if let Value::Expected(Err(code)) = value {
            assert!(ErrorCode::from_number(code).is_some(), "{method:?}: {code} is in no table");
        }
    }
    assert!(!master.log().contains("panicked"), "{}", master.log());
}

/// A master with one client, number 1, that has 16 MiB; its connection.
fn with_memory() -> (Master, NativeClient) {
    let master = Master::start();
    let mut client = native(&master);
    assert_eq!(answered(client.mount(id(1), id(1), ENDPOINT, base_of(1), 16 * MIB)), Ok(Value::Void));
    (master, client)
}

/// The first replica's address, size and status.
fn place(replicas: &Value) -> (u64, u64, i32) {
    let Value::Seq(replicas) = replicas else { panic!("{replicas:?}") };
    let Value::Struct(replica) = &replicas[0] else { panic!("{replicas:?}") };
    let [_, Value::Variant(0, memory), Value::I32(status)] = replica.as_slice() else {
        panic!("{replica:?}")
    };
    let Value::Struct(memory) = &**memory else { panic!("{memory:?}") };
    let Value::Struct(buffer) = &memory[0] else { panic!("{memory:?}") };
    let [Value::U64(size), Value::U64(address), ..] = buffer.as_slice() else { panic!("{buffer:?}") };
    (*address, *size, *status)
}

#[test]
fn an_object_lives_and_dies() {
    let (_master, mut client) = with_memory();
    let client = &mut client;
    assert_eq!(answered(client.get("a")), Err(ErrorCode::ObjectNotFound));
    let started = place(&answered(client.put_start(id(1), "a", 1000)).expect("room"));
    assert!((base_of(1)..base_of(1) + 16 * MIB).contains(&started.0));
    assert_eq!((started.1, started.2), (1000, 2));
    assert_eq!(answered(client.get("a")), Err(ErrorCode::ReplicaIsNotReady));
    assert_eq!(answered(client.put_start(id(1), "a", 1000)), Err(ErrorCode::ObjectAlreadyExists));
    assert_eq!(answered(client.put_end(id(2), "a")), Err(ErrorCode::IllegalClient));
    assert_eq!(answered(client.put_end(id(1), "b")), Err(ErrorCode::ObjectNotFound));
    assert_eq!(answered(client.put_end(id(1), "a")), Ok(Value::Void));
    let Ok(Value::Struct(list)) = answered(client.get("a")) else { panic!("a list") };
    assert_eq!(place(&list[0]), (started.0, 1000, 3));
    assert_eq!(list[1..], [Value::U64(10_000), Value::Opt(None)]);
    assert_eq!(client.exist("a").expect("an answer"), Ok(true));
    let key = |name: &str, force| vec![Value::str(name), Value::Bool(force), Value::str(DEFAULT)];
    assert_eq!(answered(client.call(Method::Remove, key("a", false))), Err(ErrorCode::ObjectHasLease));
    let revoke = |name: &str| vec![uuid(id(1)), Value::str(name), Value::I32(4), Value::str(DEFAULT)];
    assert_eq!(answered(client.call(Method::PutRevoke, revoke("a"))), Err(ErrorCode::InvalidWrite));
    assert_eq!(answered(client.call(Method::Remove, key("a", true))), Ok(Value::Void));
    assert_eq!(answered(client.call(Method::Remove, key("a", true))), Err(ErrorCode::ObjectNotFound));
    assert_eq!(answered(client.put_start(id(1), "big", 17 * MIB)), Err(ErrorCode::NoAvailableHandle));
    assert_eq!(answered(client.put_start(id(1), "", 1)), Err(ErrorCode::InvalidParams));
    assert!(answered(client.put_start(id(1), "c", 5)).is_ok());
    assert_eq!(answered(client.call(Method::PutRevoke, revoke("c"))), Ok(Value::Void));

    let start =
        |name: &str| vec![uuid(id(1)), Value::str(name), Value::U64(9), config(), Value::str(DEFAULT)];
    let end = |name: &str| {
        let meta = Value::Struct(vec![Value::str(name), Value::Opt(Some(Box::new(Value::U64(44))))]);
        vec![uuid(id(1)), meta, Value::I32(4), Value::str(DEFAULT)]
    };
    assert!(answered(client.call(Method::UpsertStart, start("u"))).is_ok());
    assert_eq!(answered(client.call(Method::UpsertEnd, end("u"))), Ok(Value::Void));
    let Ok(Value::Struct(list)) = answered(client.get("u")) else { panic!("a list") };
    assert_eq!(list[2], Value::Opt(Some(Box::new(Value::U64(44)))));
    assert!(answered(client.call(Method::UpsertStart, start("v"))).is_ok());
    assert_eq!(answered(client.call(Method::UpsertRevoke, revoke("v"))), Ok(Value::Void));
}

#[test]
fn batches_patterns_and_all() {
    let (_master, mut client) = with_memory();
    let client = &mut client;
    let names = |names: &[&str]| Value::Seq(names.iter().map(Value::str).collect());
    let tenant = || Value::str(DEFAULT);
    let starts = |all: &[&str], lengths: usize| {
        let lengths = Value::Seq(vec![Value::U64(10); lengths]);
        vec![uuid(id(1)), names(all), lengths, config(), tenant()]
    };
    let metas = |all: &[&str]| {
        let meta = |name: &&str| Value::Struct(vec![Value::str(name), Value::Opt(None)]);
        Value::Seq(all.iter().map(meta).collect())
    };
    let list = |value: std::io::Result<Value>| match value.expect("an answer") {
        Value::Seq(items) => items,
        other => panic!("a list: {other:?}"),
    };
    let (done, missing) = (ok(Value::Void), refused(ErrorCode::ObjectNotFound));

    let started = list(client.request(Method::BatchPutStart, starts(&["x", "y", "x"], 3)));
    assert!(matches!(&started[..2], [Value::Expected(Ok(_)), Value::Expected(Ok(_))]), "{started:?}");
    assert_eq!(started[2], refused(ErrorCode::ObjectAlreadyExists));
    let wrong = list(client.request(Method::BatchPutStart, starts(&["p", "q"], 1)));
    assert_eq!(wrong, vec![refused(ErrorCode::InvalidParams); 2]);
    let args = vec![uuid(id(1)), metas(&["x", "none"]), Value::I32(4), tenant()];
    assert_eq!(list(client.request(Method::BatchPutEnd, args)), [done.clone(), missing.clone()]);
    let args = vec![uuid(id(1)), names(&["y", "none"]), Value::I32(4), tenant()];
    assert_eq!(list(client.request(Method::BatchPutRevoke, args)), [done.clone(), missing.clone()]);
    let started = list(client.request(Method::BatchUpsertStart, starts(&["x", "z"], 2)));
    assert!(started.iter().all(|item| matches!(item, Value::Expected(Ok(_)))), "{started:?}");
    let args = vec![uuid(id(1)), metas(&["x"]), tenant()];
    assert_eq!(list(client.request(Method::BatchUpsertEnd, args)), std::slice::from_ref(&done));
    let args = vec![uuid(id(1)), names(&["z"]), tenant()];
    assert_eq!(list(client.request(Method::BatchUpsertRevoke, args)), std::slice::from_ref(&done));
    let args = vec![names(&["x", "z"]), tenant()];
    let found = list(client.request(Method::BatchExistKey, args));
    assert_eq!(found, [ok(Value::Bool(true)), ok(Value::Bool(false))]);
    let args = vec![names(&["x", "z"]), tenant()];
    let found = list(client.request(Method::BatchGetReplicaList, args));
    assert!(matches!(found[0], Value::Expected(Ok(_))) && found[1] == missing, "{found:?}");
    let args = vec![names(&["x", "z"]), Value::Bool(false), tenant()];
    let removed = list(client.request(Method::BatchRemove, args));
    assert_eq!(removed, [refused(ErrorCode::ObjectHasLease), missing]);

    for key in ["a1", "a2", "b1"] {
        assert_eq!(answered(client.put(id(1), key, 10)), Ok(Value::Void));
    }
    // Only the writer's own, finished and without a lease.
    let args = vec![names(&["a1", "x", "none"]), uuid(id(1)), Value::str("")];
    assert_eq!(answered(client.call(Method::BatchReplicaClear, args)), Ok(names(&["a1"])));
    let pattern = |pattern: &str| vec![Value::str(pattern), tenant()];
    let Ok(Value::Map(found)) = answered(client.call(Method::GetReplicaListByRegex, pattern("^[ab]"))) else {
        panic!("a map")
    };
    let found: BTreeSet<_> = found.into_iter().map(|(key, _)| format!("{key:?}")).collect();
    assert_eq!(found, ["a2", "b1"].map(|key| format!("{:?}", Value::str(key))).into());
    assert_eq!(
        answered(client.call(Method::GetReplicaListByRegex, pattern("("))),
        Err(ErrorCode::InvalidParams)
    );
    let pattern = |pattern: &str| vec![Value::str(pattern), Value::Bool(true), tenant()];
    assert_eq!(answered(client.call(Method::RemoveByRegex, pattern("^a"))), Ok(Value::I64(1)));
    assert_eq!(answered(client.call(Method::RemoveByRegex, pattern("("))), Err(ErrorCode::InvalidParams));
    let all = client.request(Method::RemoveAll, vec![Value::Bool(true), tenant()]);
    assert_eq!(all.expect("an answer"), Value::I64(2), "b1 and x");
}

#[test]
fn segments_clients_and_the_process() {
    let (_master, mut client) = with_memory();
    let client = &mut client;
    assert_eq!(answered(client.mount(id(1), id(1), ENDPOINT, base_of(1), 16 * MIB)), Ok(Value::Void));
    assert_eq!(
        answered(client.mount(id(1), id(1), ENDPOINT, base_of(1), MIB)),
        Err(ErrorCode::InvalidParams)
    );
    assert_eq!(answered(client.mount(id(1), id(2), ENDPOINT, 0, MIB)), Err(ErrorCode::InvalidParams));
    assert_eq!(client.ping(id(1)).expect("an answer"), Ok((0, false)), "mounted, but not remounted");
    assert_eq!(answered(client.remount(id(1), id(1), ENDPOINT, base_of(1), 16 * MIB)), Ok(Value::Void));
    assert_eq!(client.ping(id(1)).expect("an answer"), Ok((0, true)));
    assert_eq!(client.ping(id(9)).expect("an answer"), Ok((0, false)), "never seen");
    assert_eq!(
        answered(client.remount(id(1), id(1), "other", base_of(1), MIB)),
        Err(ErrorCode::InvalidParams)
    );
    let unmount = |segment, owner| vec![uuid(id(segment)), uuid(id(owner))];
    assert_eq!(answered(client.call(Method::UnmountSegment, unmount(1, 2))), Err(ErrorCode::InvalidParams));
    assert_eq!(answered(client.call(Method::UnmountSegment, unmount(1, 1))), Ok(Value::Void));
    assert_eq!(answered(client.call(Method::UnmountSegment, unmount(5, 1))), Ok(Value::Void), "unknown");
    let segments = Value::Seq(vec![
        segment_value(id(3), ENDPOINT, base_of(3), MIB),
        segment_value(id(3), "x", base_of(3), MIB),
    ]);
    let twice = client.call(Method::ReMountSegment, vec![segments, uuid(id(1))]);
    assert_eq!(answered(twice), Err(ErrorCode::InvalidParams), "two under one id");

    assert_eq!(answered(client.call(Method::ServiceReady, vec![])), Ok(Value::str("2.0.0")));
    assert_eq!(answered(client.call(Method::GetFsdir, vec![])), Ok(Value::str("")));
    let storage = Value::Struct(vec![Value::str(""), Value::Bool(true), Value::U64(0)]);
    assert_eq!(answered(client.call(Method::GetStorageConfig, vec![])), Ok(storage));
    assert_eq!(client.health().expect("an answer"), (true, 1024, 0));
    assert_eq!(answered(client.call(Method::GetHeartbeatRpcPort, vec![])), Ok(Value::U32(0)));
    let none = Value::Struct(vec![Value::U32(0)]);
    assert_eq!(answered(client.call(Method::HeartbeatServiceReady, vec![])), Ok(none));
    let tasks = vec![uuid(id(1)), Value::U64(16)];
    assert_eq!(answered(client.call(Method::FetchTasks, tasks)), Ok(Value::Seq(vec![])));
}

/// C1, C2 on the native wire.
#[test]
fn the_heartbeat_port_serves_heartbeats_only() {
    let [port] = mooncake_tests::master::free_ports();
    let master = MasterBuilder::default().arg(format!("--heartbeat_rpc_port={port}")).start();
    let mut main = native(&master);
    assert_eq!(answered(main.call(Method::GetHeartbeatRpcPort, vec![])), Ok(Value::U32(u32::from(port))));
    let mut heartbeat = NativeClient::connect(([127, 0, 0, 1], port).into()).expect("accepts");
    assert_eq!(heartbeat.ping(id(1)).expect("an answer"), Ok((0, false)));
    assert_eq!(main.ping(id(1)).expect("an answer"), Ok((0, false)), "kept on main by default");
    let (header, body) = ask(&mut heartbeat, &with_body(Method::HealthCheck, 3, b"", b""));
    assert_eq!((header.error, header.seq), (11, 3));
    assert!(read_error(&body).is_ok());
    let ready = heartbeat.request(Method::ServiceReady, vec![]).expect("an answer");
    assert_eq!(outcome(ready).expect("an expected"), Ok(Value::str("2.0.0")));
}
