//! The native codec against captured traffic, and its typed half against its described half.

use crate::captures::{captured, hex};
use bytes::BytesMut;
use mooncake_master::{
    error::ErrorCode,
    rpc::native::{
        answer::{
            self, AllRefused, Bytes, Empty, Health, HeartbeatReady, Pairs, Payload, Pong, Refused,
            StorageConfig,
        },
        client::{self, CallError, Placement, Reading},
        field::List,
        frame::{Limits, REQUEST_HEADER, RESPONSE_HEADER, RequestHeader, ResponseHeader},
        generation::{Generation, Method, Rpc},
        request::{self, Request},
        types::{Member, Signature, Type},
        value::Value,
    },
    types::{
        ClientStatus, DiskDescriptor, ReplicaDescriptor, ReplicaList, ReplicaStatus, Replicas,
        ReplicateConfig, SegmentSpec, SoftPinAction, Uuid,
    },
};
use smallvec::smallvec;
use std::{collections::HashSet, sync::Arc};

fn rpc(method: Method) -> &'static Rpc {
    Generation::newest().method(method).expect("in the newest generation")
}

/// The described type of a body of arguments.
fn args_type(members: &'static [Member]) -> Type {
    match members {
        [(_, only)] => *only,
        _ => Type::Struct(Box::leak(Box::new(mooncake_master::rpc::native::types::Struct {
            name: "tuple",
            members,
            plain: false,
        }))),
    }
}

fn decode_args(rpc: &Rpc, body: &[u8]) -> mooncake_master::rpc::native::value::Decoded {
    let signature = rpc.args_signature().expect("arguments");
    Value::decode(args_type(rpc.args()), signature, body).expect("a body of this function")
}

#[test]
fn every_captured_frame_decodes_and_encodes_to_the_same_bytes() {
    let (mut requests, mut answers, mut methods) = (0, 0, HashSet::new());
    for frame in captured() {
        methods.insert(frame.rpc.method());
        if frame.is_request {
            requests += 1;
            let header = RequestHeader::parse(&frame.header, &Limits::default()).unwrap().unwrap();
            assert_eq!(header.to_bytes(), *frame.header, "{}", frame.at);
            assert_eq!(
                (header.seq, header.function, header.body as usize),
                (frame.seq, frame.rpc.function_id(), frame.body.len())
            );
            let typed =
                request::decode(frame.rpc, &frame.body).unwrap_or_else(|e| panic!("{}: {e}", frame.at));
            assert_eq!(typed.method(), frame.rpc.method());
            let Some(signature) = frame.rpc.args_signature() else {
                assert!(frame.body.is_empty());
                continue;
            };
            let decoded = decode_args(frame.rpc, &frame.body);
            assert_eq!(decoded.trailing, 0, "{}", frame.at);
            assert_eq!(decoded.value.encode(signature, decoded.literal), frame.body, "{}", frame.at);
        } else {
            answers += 1;
            let header = ResponseHeader::parse(&frame.header, &Limits::default()).unwrap().unwrap();
            assert_eq!(header.to_bytes(), *frame.header, "{}", frame.at);
            assert_eq!((header.seq, header.error), (frame.seq, frame.error), "{}", frame.at);
            assert_eq!(frame.error, 0, "no capture has an error of the RPC layer");
            let signature = frame.rpc.result_signature();
            let decoded = Value::decode(frame.rpc.result(), signature, &frame.body).expect(&frame.at);
            assert_eq!(decoded.trailing, 0, "{}", frame.at);
            assert_eq!(decoded.value.encode(signature, decoded.literal), frame.body, "{}", frame.at);
        }
    }
    println!("{requests} requests, {answers} answers, {} functions", methods.len());
    assert!(requests >= 160 && answers >= 160 && methods.len() == 36);
}

/// What upstream's master did with requests that are wrong or unusual (probes of the real one).
#[test]
fn strictness_is_that_of_upstream() {
    let exist = rpc(Method::ExistKey);
    let body = hex("d81ef97c026b310764656661756c74");
    assert!(request::decode(exist, &body).is_ok(), "the short form");
    let literal = hex("d91ef97c04fd800c800cff00026b310764656661756c74");
    assert!(request::decode(exist, &literal).is_ok(), "the form with a literal");
    assert!(request::decode(exist, &[&*body, b"trailing"].concat()).is_ok(), "trailing bytes");
    let refused = |rpc: &'static Rpc, body: &[u8]| {
        let error = request::decode(rpc, body).unwrap_err();
        assert_eq!(error.code() as u8, 4);
        assert!(error.to_string().starts_with("invalid rpc arg: "), "{error}");
        error.to_string()
    };
    assert!(refused(exist, b"").contains("body: 4 bytes are missing"));
    assert!(refused(exist, &body[..body.len() - 1]).contains("tenant_id: 1 bytes are missing"));
    let one_string = Value::str("k1").encode(&Signature::of(Type::Str), true);
    assert!(refused(exist, &one_string).contains("expected type hash 0x7cf91ed8, found 0x9dcffa76"));
    let mut other_literal = literal.clone();
    other_literal[6] = 0x81;
    assert!(refused(exist, &other_literal).contains("type literal"));
    assert!(
        request::decode(rpc(Method::ServiceReady), b"anything").is_ok(),
        "a body for a call without arguments"
    );
    assert!(Generation::newest().rpc(0xdead_beef).is_none());
    let mut out = BytesMut::new();
    request::DecodeError::UnknownFunction.answer(&mut out, 9);
    assert_eq!(out[2], 11);
}

#[test]
fn a_single_argument_may_come_in_a_tuple_of_one() {
    let ping = rpc(Method::Ping);
    let id = Value::Struct(vec![Value::U64(1), Value::U64(2)]);
    for signature in [ping.args_signature().unwrap(), &Signature::of_tuple(ping.args())] {
        for literal in [false, true] {
            let body = id.encode(signature, literal);
            let Ok(Request::Ping(decoded)) = request::decode(ping, &body) else { panic!("refused") };
            assert_eq!(decoded.client, Uuid { first: 1, second: 2 });
        }
    }
}

#[test]
fn numbers_that_name_nothing_are_refused_by_name() {
    let with_type = |kind| {
        let id = Value::Struct(vec![Value::U64(1), Value::U64(2)]);
        let args = Value::Struct(vec![id, Value::str("k"), Value::I32(kind), Value::str("default")]);
        args.encode(rpc(Method::PutRevoke).args_signature().unwrap(), false)
    };
    for kind in [0, 1, 2, 3, 4, 100] {
        assert!(request::decode(rpc(Method::PutRevoke), &with_type(kind)).is_ok());
    }
    let error = request::decode(rpc(Method::PutRevoke), &with_type(77)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid rpc arg: PutRevoke: replica_type: expected a replica type (0 to 4, or 100), found 77"
    );
    let force = Value::Struct(vec![Value::str("k"), Value::Bool(true), Value::str("default")]);
    let mut body = force.encode(rpc(Method::Remove).args_signature().unwrap(), false);
    body[6] = 2;
    let error = request::decode(rpc(Method::Remove), &body).unwrap_err();
    assert_eq!(error.to_string(), "invalid rpc arg: Remove: force: expected 0 or 1, found 2");
}

/// Fills a type with values that are all different, and notes how each would print.
struct Filler {
    next: u64,
    printed: Vec<String>,
}

impl Filler {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn fill(&mut self, name: &str, ty: Type) -> Value {
        match (name, ty) {
            ("replica_type", Type::I32) => return Value::I32(2),
            ("soft_pin_action", Type::U8) => return Value::U8(2),
            _ => {}
        }
        match ty {
            Type::Void => Value::Void,
            Type::Bool => Value::Bool(true),
            Type::U8 => Value::U8(7),
            Type::Str => {
                let text = format!("s{}", self.number());
                if name != "preferred_nof_segments" {
                    self.printed.push(format!("{:?}", text.as_bytes()));
                }
                Value::str(text)
            }
            Type::Struct(described) if described.plain => {
                let (first, second) = (self.number(), self.number());
                self.printed.push(format!("{first}-{second}"));
                Value::Struct(vec![Value::U64(first), Value::U64(second)])
            }
            Type::Struct(described) => {
                Value::Struct(described.members.iter().map(|(name, ty)| self.fill(name, *ty)).collect())
            }
            Type::Seq(element) => Value::Seq((0..2).map(|_| self.fill(name, *element)).collect()),
            Type::Opt(value) => Value::Opt(Some(Box::new(self.fill(name, *value)))),
            Type::I32 | Type::U32 | Type::I64 | Type::U64 => {
                let number = self.number();
                self.printed.push(number.to_string());
                match ty {
                    Type::I32 => Value::I32(number as i32),
                    Type::U32 => Value::U32(number as u32),
                    Type::I64 => Value::I64(number as i64),
                    _ => Value::U64(number),
                }
            }
            Type::Map(..) | Type::Variant(_) | Type::Expected(_) => unreachable!("not in arguments"),
        }
    }
}

/// Typed decode finds everything that is in the described value, for every function of every generation.
#[test]
fn typed_requests_hold_what_the_table_describes() {
    let mut seen = 0;
    for generation in Generation::all() {
        for rpc in generation.rpcs() {
            let Some(signature) = rpc.args_signature() else { continue };
            let mut filler = Filler { next: 1_000_000, printed: Vec::new() };
            let value = match rpc.args() {
                [(name, ty)] => filler.fill(name, *ty),
                members => Value::Struct(members.iter().map(|(name, ty)| filler.fill(name, *ty)).collect()),
            };
            for literal in [false, true] {
                let body = value.encode(signature, literal);
                assert_eq!(Value::decode(args_type(rpc.args()), signature, &body).unwrap().value, value);
                let typed =
                    request::decode(rpc, &body).unwrap_or_else(|e| panic!("{} {e}", generation.name()));
                if matches!(typed, Request::Unserved(_)) {
                    continue;
                }
                let text = format!("{typed:?}");
                for printed in &filler.printed {
                    assert!(text.contains(printed), "{} {text} has no {printed}", generation.name());
                }
                // Flags and enums are not unique; they must differ from their defaults.
                for (name, _) in rpc.args() {
                    if matches!(*name, "force" | "enable_offloading") {
                        assert!(text.contains(": true"), "{text}");
                    }
                    if *name == "replica_type" {
                        assert!(text.contains("Kind(LocalDisk)"), "{text}");
                    }
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 250, "{seen}");
}

#[test]
fn a_captured_put_in_the_cores_terms() {
    let frame =
        captured().into_iter().find(|f| f.is_request && f.rpc.method() == Method::BatchPutStart).unwrap();
    let Ok(Request::BatchPutStart(batch)) = request::decode(frame.rpc, &frame.body) else {
        panic!("refused")
    };
    assert_eq!(batch.client, Uuid { first: 1_318_838_567_337_987_634, second: 7_929_416_160_413_483_447 });
    assert_eq!(batch.keys.iter().collect::<Vec<_>>(), [b"b0", b"b1", b"b2"]);
    assert_eq!(batch.slice_lengths.iter().collect::<Vec<_>>(), [100, 101, 102]);
    assert_eq!(batch.config.to_core(), ReplicateConfig::default());
    assert!(batch.config.group_ids.is_none());
    assert_eq!(batch.tenant.0, b"default");
    // Keys lie in the frame itself.
    let first = batch.keys.iter().next().unwrap();
    assert!(frame.body.as_ptr_range().contains(&first.as_ptr()));
}

#[test]
fn older_generations_in_the_cores_terms() {
    let id = || Value::Struct(vec![Value::U64(1), Value::U64(2)]);
    let old = Generation::by_name("0.3.9").unwrap();
    let rpc = old.method(Method::PutStart).unwrap();
    let config = Value::Struct(vec![
        Value::U64(2),
        Value::Bool(true),
        Value::Seq(vec![Value::str("a")]),
        Value::str("b"),
        Value::Bool(true),
    ]);
    let args = Value::Struct(vec![id(), Value::str("k"), Value::U64(5), config]);
    let body = args.encode(rpc.args_signature().unwrap(), true);
    let Ok(Request::PutStart(start)) = request::decode(rpc, &body) else { panic!("refused") };
    let config = start.replicate_config();
    let put = start.to_core(&config);
    assert_eq!((put.key, put.slice_length, start.tenant.0), (&b"k"[..], 5, &b"default"[..]));
    assert_eq!(config.soft_pin_action, SoftPinAction::Enable);
    assert_eq!((config.replica_num, config.prefer_alloc_in_same_node), (2, true));
    assert_eq!((&config.preferred_segments[..], config.preferred_segment), (&[&b"a"[..]][..], &b"b"[..]));

    let rpc = old.method(Method::BatchPutEnd).unwrap();
    let args = Value::Struct(vec![id(), Value::Seq(vec![Value::str("k1"), Value::str("k2")])]);
    let body = args.encode(rpc.args_signature().unwrap(), true);
    let Ok(Request::BatchPutEnd(end)) = request::decode(rpc, &body) else { panic!("refused") };
    let objects: Vec<_> = end.objects.iter().map(|object| (object.key, object.checksum)).collect();
    assert_eq!(objects, [(&b"k1"[..], None), (&b"k2"[..], None)]);
}

fn segment() -> Arc<SegmentSpec> {
    Arc::new(SegmentSpec {
        id: Uuid::default(),
        name: Arc::from(&b"127.0.0.1:12621"[..]),
        base: 0,
        size: 0,
        te_endpoint: Arc::from(&b"127.0.0.1:12621"[..]),
        protocol: Arc::from(&b"tcp"[..]),
        host_id: Arc::from(&b""[..]),
    })
}

fn replica(id: u64, size: u64, address: u64) -> ReplicaDescriptor {
    ReplicaDescriptor { id, status: ReplicaStatus::Complete, address, size, segment: segment() }
}

/// Encodes and compares with the described encoding of the same value.
fn check<T: Payload + ?Sized>(rpc: &Rpc, value: &T) -> Value {
    let mut out = BytesMut::from(&b"before"[..]);
    answer::write(&mut out, 77, rpc, value);
    let frame = &out[6..];
    let header = ResponseHeader::parse(frame, &Limits::default()).expect("a frame").expect("whole");
    assert_eq!((header.seq, header.error, header.attachment), (77, 0, 0));
    assert_eq!(header.frame_len(), frame.len() as u64);
    let body = &frame[RESPONSE_HEADER..];
    let decoded = Value::decode(rpc.result(), rpc.result_signature(), body).expect("of the result type");
    assert_eq!(decoded.trailing, 0);
    assert_eq!(decoded.value.encode(rpc.result_signature(), false), body, "{:?}", rpc.method());
    decoded.value
}

/// The path in the third descriptor, whose kind must be the one that the table calls DISK.
fn path_of_third(rpc: &Rpc, answer: &Value) -> Vec<u8> {
    let Type::Expected(Type::Struct(list)) = rpc.result() else { panic!("no expected struct") };
    let Type::Seq(Type::Struct(descriptor)) = list.members[0].1 else { panic!("no descriptors") };
    let Type::Variant(kinds) = descriptor.members[1].1 else { panic!("no variant") };
    let Value::Expected(Ok(list)) = answer else { panic!("an error") };
    let Value::Struct(members) = &**list else { panic!("no struct") };
    let Value::Seq(replicas) = &members[0] else { panic!("no replicas") };
    let Value::Struct(third) = &replicas[2] else { panic!("no descriptor") };
    let Value::Variant(kind, disk) = &third[1] else { panic!("no variant") };
    let Type::Struct(described) = kinds[usize::from(*kind)] else { panic!("no struct") };
    assert_eq!(described.name, "DiskDescriptor");
    let Value::Struct(disk) = &**disk else { panic!("no struct") };
    let Value::Str(path) = &disk[0] else { panic!("no path") };
    path.clone()
}

#[test]
fn typed_answers_equal_described_ones() {
    let list = |checksum| ReplicaList {
        replicas: Replicas {
            memory: smallvec![replica(1, 2, 3), replica(4, 5, 6)],
            disk: Some(DiskDescriptor {
                id: 7,
                status: ReplicaStatus::Complete,
                file_path: Arc::from(&b"/pool/a/b/key"[..]),
                size: 8,
            }),
        },
        lease_ttl_ms: 10_000,
        object_checksum: checksum,
    };
    for generation in Generation::all() {
        let all = |rpc: &Rpc| match rpc.method() {
            Method::ExistKey | Method::PollRemoveAll => check(rpc, &Ok::<_, ErrorCode>(true)),
            Method::BatchExistKey => check(rpc, &[Ok(true), Ok(false), Err(ErrorCode::ObjectNotFound)][..]),
            Method::GetReplicaList => {
                let value = check(rpc, &Ok::<_, ErrorCode>(list(Some(9))));
                assert_eq!(path_of_third(rpc, &value), b"/pool/a/b/key", "{}", generation.name());
                value
            }
            Method::BatchGetReplicaList => {
                check(rpc, &vec![Ok(list(None)), Err(ErrorCode::ReplicaIsNotReady), Ok(list(Some(1)))])
            }
            Method::GetReplicaListByRegex => {
                let found = [(Box::from(&b"key"[..]), list(None).replicas)];
                let found: &[(Box<[u8]>, _)] = &found;
                check(rpc, &Ok::<_, ErrorCode>(Pairs(found)))
            }
            Method::PutStart | Method::UpsertStart => check(rpc, &Ok::<_, ErrorCode>(list(None).replicas)),
            Method::BatchPutStart | Method::BatchUpsertStart => {
                check(rpc, &[Ok(list(None).replicas), Err(ErrorCode::NoAvailableHandle)][..])
            }
            Method::RemoveAll => check(rpc, &-1i64),
            Method::RemoveByRegex => check(rpc, &Ok::<_, ErrorCode>(i64::MAX)),
            Method::ServiceReady | Method::GetFsdir => check(rpc, &Ok::<_, ErrorCode>("2.0.0")),
            Method::GetStorageConfig => check(
                rpc,
                &Ok::<_, ErrorCode>(StorageConfig {
                    fsdir: "/x",
                    enable_disk_eviction: true,
                    quota_bytes: 7,
                }),
            ),
            Method::Ping => {
                check(rpc, &Ok::<_, ErrorCode>(Pong { view_version: 3, status: ClientStatus::NeedRemount }))
            }
            Method::HealthCheck => {
                let health = Health { ok: false, shards_checked: 5, shards_blocked: 5 };
                check(rpc, &Ok::<_, ErrorCode>(health))
            }
            Method::HeartbeatServiceReady => {
                check(rpc, &Ok::<_, ErrorCode>(HeartbeatReady { heartbeat_rpc_port: 50_052 }))
            }
            Method::GetHeartbeatRpcPort => check(rpc, &Ok::<_, ErrorCode>(50_052u32)),
            Method::BatchReplicaClear => check(rpc, &Ok::<_, ErrorCode>(vec![Bytes(b"cleared")])),
            Method::BatchQueryIp => {
                let found = [(Uuid { first: 1, second: 2 }, vec![Bytes(b"10.0.0.1")])];
                check(rpc, &Ok::<_, ErrorCode>(Pairs(&found)))
            }
            Method::CreateCopyTask | Method::CreateMoveTask => {
                check(rpc, &Ok::<_, ErrorCode>(Uuid { first: 1, second: 2 }))
            }
            Method::QuerySegmentStatus | Method::QuerySegmentStatusById => {
                check(rpc, &Ok::<_, ErrorCode>(1i32))
            }
            _ => match rpc.result() {
                Type::Expected(Type::Void) => check(rpc, &Ok::<_, ErrorCode>(())),
                Type::Expected(Type::Seq(_)) => check(rpc, &Ok::<_, ErrorCode>(Empty)),
                Type::Expected(_) => check(rpc, &Refused(ErrorCode::UnavailableInCurrentMode)),
                _ => check(rpc, &AllRefused { code: ErrorCode::InvalidParams, count: 3 }),
            },
        };
        for rpc in generation.rpcs() {
            all(rpc);
            match rpc.result() {
                Type::Expected(_) => check(rpc, &Refused(ErrorCode::IllegalClient)),
                Type::Seq(_) => check(rpc, &AllRefused { code: ErrorCode::IllegalClient, count: 2 }),
                _ => continue,
            };
        }
    }
}

#[test]
fn one_width_for_the_whole_message() {
    let many = |count| check(rpc(Method::BatchExistKey), &vec![Ok::<_, ErrorCode>(true); count]);
    for count in [0, 1, 255, 256, 300, 65_535, 65_536, 70_000] {
        let Value::Seq(elements) = many(count) else { panic!("no vector") };
        assert_eq!(elements.len(), count);
    }
    // The count fits a byte, a string inside does not.
    let long = "x".repeat(300);
    check(rpc(Method::BatchReplicaClear), &Ok::<_, ErrorCode>(vec![Bytes(b"short"), Bytes(long.as_bytes())]));
    check(rpc(Method::ServiceReady), &Ok::<_, ErrorCode>(&*"x".repeat(70_000)));
}

/// A captured answer, written again from the core's terms, is the captured one in its short form.
#[test]
fn a_captured_answer_from_the_cores_terms() {
    let frame =
        captured().into_iter().find(|f| !f.is_request && f.rpc.method() == Method::GetReplicaList).unwrap();
    let reading = Reading::<Result<client::ReplicaList<'_>, i32>>::of(frame.rpc).unwrap();
    let seen = reading.read(frame.error, &frame.body).unwrap().unwrap();
    let first = seen.replicas.iter().next().unwrap();
    let client::Place::Memory(buffer) = &first.place else { panic!("not in memory") };
    assert_eq!((buffer.protocol, buffer.endpoint), (&b"tcp"[..], &b"127.0.0.1:12621"[..]));
    let again = ReplicaList {
        replicas: Replicas { memory: smallvec![replica(first.id, buffer.size, buffer.address)], disk: None },
        lease_ttl_ms: seen.lease_ttl_ms,
        object_checksum: seen.object_checksum,
    };
    let mut out = BytesMut::new();
    answer::write(&mut out, frame.seq, frame.rpc, &Ok::<_, ErrorCode>(again));
    let signature = frame.rpc.result_signature();
    let captured = Value::decode(frame.rpc.result(), signature, &frame.body).unwrap().value;
    assert_eq!(out[RESPONSE_HEADER..], captured.encode(signature, false));
}

/// A client's fast calls are the captured requests in their short form.
#[test]
fn fast_calls_equal_captured_ones() {
    let first = |method| {
        let frame = captured().into_iter().find(|f| f.is_request && f.rpc.method() == method).unwrap();
        let mut out = BytesMut::new();
        match frame.rpc.args_signature() {
            Some(_) => {
                client::call_value(&mut out, 5, frame.rpc, &decode_args(frame.rpc, &frame.body).value, false);
            }
            None => client::call_value(&mut out, 5, frame.rpc, &Value::Void, false),
        }
        out
    };
    let fast = |method, call: &dyn Fn(&mut BytesMut, &Rpc)| {
        let mut out = BytesMut::new();
        call(&mut out, rpc(method));
        assert_eq!(out, first(method), "{method:?}");
        let header = RequestHeader::parse(&out, &Limits::default()).unwrap().unwrap();
        assert_eq!(header.frame_len(), out.len() as u64);
        request::decode(rpc(method), &out[REQUEST_HEADER..]).unwrap();
    };
    let id = Uuid { first: 1_318_838_567_337_987_634, second: 7_929_416_160_413_483_447 };
    let config = ReplicateConfig::default();
    let placement = Placement { config: &config, group_ids: None };
    let keys = [Bytes(b"b0"), Bytes(b"b1"), Bytes(b"b2")];
    fast(Method::ServiceReady, &|out, rpc| client::call(out, 5, rpc, &()));
    fast(Method::Ping, &|out, rpc| client::call(out, 5, rpc, &(id,)));
    fast(Method::ExistKey, &|out, rpc| client::call(out, 5, rpc, &("k1", "default")));
    fast(Method::BatchPutStart, &|out, rpc| {
        client::call(out, 5, rpc, &(id, &keys[..], &[100u64, 101, 102][..], placement, "default"));
    });
}

#[test]
fn a_client_reads_results_errors_and_errors_of_the_rpc_layer() {
    let health = Health { ok: true, shards_checked: 1024, shards_blocked: 0 };
    let rpc = rpc(Method::HealthCheck);
    let reading = Reading::<Result<Health, i32>>::of(rpc).unwrap();
    let read = |out: &[u8]| {
        let header = ResponseHeader::parse(out, &Limits::default()).unwrap().unwrap();
        reading.read(header.error, &out[RESPONSE_HEADER..])
    };
    let mut out = BytesMut::new();
    answer::write(&mut out, 1, rpc, &Ok::<_, ErrorCode>(health));
    assert_eq!(read(&out), Ok(Ok(health)));
    out.clear();
    answer::write(&mut out, 1, rpc, &Refused(ErrorCode::UnavailableInCurrentStatus));
    assert_eq!(read(&out), Ok(Err(-1010)));
    out.clear();
    request::DecodeError::UnknownFunction.answer(&mut out, 1);
    let message = "the rpc function not registered".to_owned();
    assert_eq!(read(&out), Err(CallError::Rpc { code: 11, message }));
    assert!(Reading::<Result<bool, i32>>::of(rpc).is_none());
    assert!(
        Reading::<List<'_, Result<bool, i32>>>::of(
            Generation::newest().method(Method::BatchExistKey).unwrap()
        )
        .is_some()
    );
}
