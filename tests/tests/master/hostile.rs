//! Peers that send nonsense, too much, or nothing: the master lives, is bounded, and serves everybody else.

use crate::support::{Undisturbed, figures, grpc, is_closed, native};
use bytes::BytesMut;
use mooncake_master::rpc::native::{
    client::call_value,
    frame::RequestHeader,
    generation::{Generation, Method},
    value::Value,
};
use mooncake_proto::v1;
use mooncake_tests::{Master, MasterBuilder};
use rand::{Rng, RngCore, SeedableRng, rngs::StdRng};
use socket2::{Domain, Socket, Type};
use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};
use tokio::time::Instant;
use tonic::Code;

const MIB: u64 = 1 << 20;

fn connect(master: &Master) -> TcpStream {
    TcpStream::connect(master.rpc_address()).expect("the master accepts")
}

/// A connection that buffers little on this side, and does not block.
fn thrifty(address: SocketAddr, from: Ipv4Addr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_send_buffer_size(16 << 10).expect("a buffer");
    socket.set_recv_buffer_size(16 << 10).expect("a buffer");
    socket.bind(&SocketAddr::from((from, 0)).into()).expect("a source address");
    socket.connect(&address.into()).expect("the master accepts");
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true).expect("set");
    stream
}

fn frame(method: Method, seq: u32, keys: Vec<Value>) -> Vec<u8> {
    let args = Value::Struct(vec![Value::Seq(keys), Value::str("default")]);
    let mut out = BytesMut::new();
    let rpc = Generation::newest().method(method).expect("there");
    call_value(&mut out, seq, rpc, &args, true);
    out.to_vec()
}

fn exist_frame(seq: u32, keys: usize) -> Vec<u8> {
    frame(Method::BatchExistKey, seq, (0..keys).map(|n| Value::str(format!("key-{n}"))).collect())
}

fn healthy(master: &Master) {
    assert_eq!(native(master).health().expect("it serves"), (true, 1024, 0));
    let log = master.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn nonsense_ends_only_its_own_connection() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let master = Master::start();
    let others = Undisturbed::start(&master);
    let good = exist_frame(1, 20);
    for round in 0..400 {
        let mut bytes = match round % 5 {
            // Truncated.
            0 => good[..random.random_range(0..good.len())].to_vec(),
            // Flipped.
            1 => {
                let mut bytes = good.clone();
                for _ in 0..random.random_range(1..6) {
                    let at = random.random_range(0..bytes.len());
                    bytes[at] = random.random();
                }
                bytes
            }
            // A good header, any function, a random body.
            2 => {
                let method = Method::ALL[random.random_range(0..Method::ALL.len())];
                let mut body = vec![0; random.random_range(0..2000)];
                random.fill_bytes(&mut body);
                let header = RequestHeader {
                    seq: 1,
                    function: method.function_id(),
                    body: body.len() as u32,
                    attachment: 0,
                };
                [&header.to_bytes()[..], &body].concat()
            }
            // The right type, random contents.
            3 => {
                let mut bytes = good.clone();
                let from = bytes.len() / 2;
                random.fill_bytes(&mut bytes[from..]);
                bytes
            }
            // Anything.
            _ => {
                let mut bytes = vec![0; random.random_range(1..3000)];
                random.fill_bytes(&mut bytes);
                bytes
            }
        };
        if round % 7 == 0 {
            bytes.splice(0..0, *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        }
        let mut stream = connect(&master);
        // Both fail when the master has closed it already.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        assert!(is_closed(&stream, Duration::from_secs(10)), "round {round}: half a connection is kept");
    }
    println!("others meanwhile: {}", figures(&others.finish()));
    healthy(&master);
}

#[test]
fn a_declared_size_costs_nothing() {
    let master = Master::start();
    healthy(&master);
    let before = master.resident_bytes();
    let header = |body, attachment| {
        RequestHeader { seq: 0, function: Method::BatchExistKey.function_id(), body, attachment }.to_bytes()
    };
    let mut kept = Vec::new();
    for n in 0..200 {
        let mut stream = connect(&master);
        let header = if n % 2 == 0 { header(64 << 20, 0) } else { header(10, 64 << 20) };
        stream.write_all(&header).expect("written");
        kept.push(stream);
    }
    for (body, attachment) in [((64 << 20) + 1, 0), (u32::MAX, 0), (0, u32::MAX)] {
        let mut stream = connect(&master);
        stream.write_all(&header(body, attachment)).expect("written");
        assert!(is_closed(&stream, Duration::from_secs(5)), "{body} + {attachment} bytes: still open");
    }
    healthy(&master);
    let grown = master.resident_bytes().saturating_sub(before);
    println!("200 connections that declare 64 MiB each: RSS +{} KiB", grown >> 10);
    assert!(grown < 8 * MIB, "RSS grew by {grown} bytes");
}

/// 63 of a declared 64 MiB each, as far as the master reads them, then silence: RSS ≤ start + byte budget.
#[test]
fn five_hundred_stalled_senders_stay_within_the_byte_budget() {
    const SENDERS: usize = 500;
    const BUDGET: u64 = 128 * MIB;
    let master = MasterBuilder::default().arg("--rpc_byte_budget=128Mi").start();
    healthy(&master);
    let before = master.resident_bytes();
    let calm = Undisturbed::start(&master);
    std::thread::sleep(Duration::from_secs(1));
    let calm = calm.finish();

    let others = Undisturbed::start(&master);
    let header = RequestHeader {
        seq: 0,
        function: Method::BatchExistKey.function_id(),
        body: 64 << 20,
        attachment: 0,
    };
    let chunk = vec![0x55; 64 << 10];
    let mut senders: Vec<(TcpStream, u64)> = (0..SENDERS)
        .map(|_| {
            let mut stream = thrifty(master.rpc_address(), Ipv4Addr::LOCALHOST);
            stream.write_all(&header.to_bytes()).expect("room for a header");
            (stream, 0)
        })
        .collect();
    // Until the master takes no more from anybody.
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut last_progress = Instant::now();
    while last_progress.elapsed() < Duration::from_millis(500) && Instant::now() < deadline {
        for (stream, sent) in &mut senders {
            if *sent >= 63 * MIB {
                continue;
            }
            match stream.write(&chunk) {
                Ok(n) => {
                    *sent += n as u64;
                    last_progress = Instant::now();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => panic!("the master ended a sender: {e}"),
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let most = master.resident_bytes();
    let sent: u64 = senders.iter().map(|(_, sent)| sent).sum();
    let stormy = others.finish();
    println!(
        "{SENDERS} senders: {} MiB sent; RSS {} MiB before, {} MiB at the end; others without them: {}; with them: {}",
        sent >> 20,
        before >> 20,
        most >> 20,
        figures(&calm),
        figures(&stormy)
    );
    assert!(sent > 63 * MIB, "the master read so little that this shows nothing");
    assert!(most <= before + BUDGET, "RSS {most} > {before} + {BUDGET}");
    healthy(&master);
}

/// Frames of up to a MiB each, declared and then never sent, must not keep small calls waiting.
#[test]
fn stalled_frames_of_medium_size_leave_room_for_small_calls() {
    let master = MasterBuilder::default().arg("--rpc_byte_budget=64Mi").arg("--max_frame_bytes=16Mi").start();
    healthy(&master);
    let others = Undisturbed::start(&master);
    let header = RequestHeader {
        seq: 0,
        function: Method::BatchExistKey.function_id(),
        body: 1_000_000,
        attachment: 0,
    };
    let senders: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = connect(&master);
            stream.write_all(&header.to_bytes()).expect("written");
            stream.write_all(&vec![0; 20_000]).expect("written");
            stream
        })
        .collect();
    healthy(&master);
    println!("others beside 300 stalled frames of 1 MB: {}", figures(&others.finish()));
    drop(senders);
}

#[test]
fn connections_are_capped_by_address_and_in_total() {
    let master = MasterBuilder::default()
        .arg("--noenable_rpc_health_probe")
        .arg("--max_connections=8")
        .arg("--max_connections_per_address=5")
        .start();
    let ready =
        RequestHeader { seq: 0, function: Method::ServiceReady.function_id(), body: 0, attachment: 0 };
    let open = |host: u8| {
        let mut stream = thrifty(master.rpc_address(), Ipv4Addr::new(127, 0, 0, host));
        stream.set_nonblocking(false).expect("set");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        // A refused one may be gone before this is written.
        let _ = stream.write_all(&ready.to_bytes());
        let mut answer = [0; 16];
        io::Read::read_exact(&mut stream, &mut answer).is_ok().then_some(stream)
    };
    // The one by which the start was seen may still be counted.
    mooncake_tests::wait_for("all are free", 5, || {
        let all: Vec<_> = (0..5).map_while(|_| open(1)).collect();
        (all.len() == 5).then_some(())
    });
    let mut held = Vec::new();
    mooncake_tests::wait_for("five of one address", 5, || {
        held.extend(open(1));
        (held.len() == 5).then_some(())
    });
    assert!(open(1).is_none(), "a sixth of that address");
    for _ in 0..3 {
        held.push(open(2).expect("another address"));
    }
    assert!(open(3).is_none(), "a ninth in all");
    held.pop();
    held.push(mooncake_tests::wait_for("a closed one makes room", 5, || open(3)));
}

/// First byte due after 10 s; in the middle of a frame, or with unread answers, 30 s without progress.
#[test]
fn standing_still_ends_a_connection_and_unread_answers_stop_its_reading() {
    let master = Master::start();
    healthy(&master);
    let before = master.resident_bytes();
    let others = Undisturbed::start(&master);
    let silent = connect(&master);
    let began = Instant::now();
    let mut one_byte = connect(&master);
    one_byte.write_all(&[0x15]).expect("written");
    let mut half = connect(&master);
    half.write_all(&exist_frame(1, 1000)[..5000]).expect("written");
    let idle = &mut native(&master);
    assert_eq!(idle.exist("k").expect("an answer"), Ok(false));

    // Asks for much and reads nothing. An answer is five times as long as its question.
    let mut deaf = thrifty(master.rpc_address(), Ipv4Addr::LOCALHOST);
    let request = frame(Method::BatchGetReplicaList, 1, vec![Value::str(""); 50_000]);
    let (mut at, mut sent, mut last_progress) = (0, 0u64, Instant::now());
    let mut push = |last_progress: &mut Instant| match deaf.write(&request[at..]) {
        Ok(n) => {
            at = (at + n) % request.len();
            sent += n as u64;
            *last_progress = Instant::now();
            Ok(sent)
        }
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            std::thread::sleep(Duration::from_millis(5));
            Ok(sent)
        }
        Err(_) => Err(()),
    };
    let mut taken = 0;
    while last_progress.elapsed() < Duration::from_secs(1) {
        taken = push(&mut last_progress).expect("not closed so soon");
        assert!(taken < 512 * MIB, "its questions are read although it reads no answer");
    }
    let grown = master.resident_bytes().saturating_sub(before);
    println!(
        "a peer that reads nothing: {} MiB of its questions were taken, RSS +{} MiB",
        taken >> 20,
        grown >> 20
    );
    assert!(grown < 32 * MIB, "RSS grew by {grown} bytes");

    assert!(is_closed(&silent, Duration::from_secs(15)), "a silent connection stays");
    let silent_for = began.elapsed();
    assert!(!is_closed(&one_byte, Duration::from_millis(100)), "one byte was there in time");
    for (name, stream) in [("after one byte", &one_byte), ("in half a frame", &half)] {
        assert!(is_closed(stream, Duration::from_secs(40)), "{name}: still open");
    }
    let still_for = began.elapsed();
    let deadline = last_progress + Duration::from_secs(40);
    while push(&mut last_progress).is_ok() {
        assert!(Instant::now() < deadline, "a peer that reads nothing stays");
    }
    println!("closed: silent after {silent_for:?}, in half a frame after {still_for:?}");
    assert_eq!(idle.exist("k").expect("an idle one is kept"), Ok(false));
    println!("others meanwhile: {}", figures(&others.finish()));
    healthy(&master);
}

#[tokio::test]
async fn a_grpc_message_over_the_cap_is_refused() {
    let master = MasterBuilder::default().arg("--max_frame_bytes=1Mi").start();
    let mut client = grpc(&master).await;
    let of = |bytes: usize| v1::BatchExistKeyRequest { keys: vec!["k".repeat(bytes)], ..Default::default() };
    assert!(client.batch_exist_key(of(1_000_000)).await.is_ok());
    let refused = client.batch_exist_key(of(2 << 20)).await.expect_err("over the cap");
    assert!(matches!(refused.code(), Code::OutOfRange | Code::ResourceExhausted), "{refused}");
    assert!(client.batch_exist_key(of(1)).await.is_ok(), "the connection goes on");
    // The same cap holds for a native frame.
    let header = RequestHeader { seq: 0, function: 1, body: (1 << 20) + 1, attachment: 0 };
    let mut stream = connect(&master);
    stream.write_all(&header.to_bytes()).expect("written");
    assert!(is_closed(&stream, Duration::from_secs(5)));
}

#[tokio::test]
async fn many_grpc_calls_at_once_on_one_connection() {
    let master = Master::start();
    let client = grpc(&master).await;
    let calls = (0..2000).map(|n| {
        let mut client = client.clone();
        async move {
            let request = v1::ExistKeyRequest { key: format!("k{n}"), ..Default::default() };
            client.exist_key(request).await.map(|answer| answer.into_inner().exists)
        }
    });
    for answer in futures::future::join_all(calls).await {
        assert!(!answer.expect("every one is answered"));
    }
    healthy(&master);
}

/// One HTTP/2 frame.
fn h2(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn h2_start() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &h2(4, 0, 0, &[])].concat()
}

/// HEADERS of a call of ExistKey, without compression.
fn h2_call(stream: u32) -> Vec<u8> {
    let mut block = vec![0x83, 0x86]; // :method POST, :scheme http
    let mut literal = |index: u8, value: &[u8]| {
        block.extend_from_slice(&[index, value.len() as u8]);
        block.extend_from_slice(value);
    };
    literal(0x04, b"/mooncake.master.v1.MasterService/BatchExistKey");
    literal(0x01, b"localhost");
    let mut named = |name: &[u8], value: &[u8]| {
        block.extend_from_slice(&[0x00, name.len() as u8]);
        block.extend_from_slice(name);
        block.push(value.len() as u8);
        block.extend_from_slice(value);
    };
    named(b"content-type", b"application/grpc");
    named(b"te", b"trailers");
    h2(1, 0x4, stream, &block)
}

/// Opens a stream and takes it back, again and again: "rapid reset".
#[test]
fn a_flood_of_resets_is_bounded() {
    let master = Master::start();
    healthy(&master);
    let before = master.resident_bytes();
    let others = Undisturbed::start(&master);
    let mut streams = 0u32;
    for _ in 0..4 {
        let mut stream = connect(&master);
        stream.set_write_timeout(Some(Duration::from_secs(10))).expect("set");
        let mut open = stream.write_all(&h2_start()).is_ok();
        for n in 0..20_000 {
            let number = 2 * n + 1;
            open = open
                && stream
                    .write_all(&[h2_call(number), h2(3, 0, number, &8u32.to_be_bytes())].concat())
                    .is_ok();
            if !open {
                break;
            }
            streams += 1;
        }
    }
    healthy(&master);
    let grown = master.resident_bytes().saturating_sub(before);
    println!(
        "{streams} streams opened and reset: RSS +{} KiB; others: {}",
        grown >> 10,
        figures(&others.finish())
    );
    assert!(grown < 32 * MIB, "RSS grew by {grown} bytes");
}

/// Messages that declare 64 MiB on every stream that a connection may open.
#[test]
fn declared_grpc_sizes_cost_nothing() {
    let master = Master::start();
    healthy(&master);
    let before = master.resident_bytes();
    let others = Undisturbed::start(&master);
    let mut kept = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(&master);
        let mut bytes = h2_start();
        for n in 0..256 {
            let number = 2 * n + 1;
            let prefix = [&[0u8][..], &(64u32 << 20).to_be_bytes(), &[0; 100]].concat();
            bytes.extend(h2_call(number));
            bytes.extend(h2(0, 0, number, &prefix));
        }
        stream.write_all(&bytes).expect("written");
        kept.push(stream);
    }
    std::thread::sleep(Duration::from_millis(500));
    healthy(&master);
    let grown = master.resident_bytes().saturating_sub(before);
    println!(
        "1024 streams that declare 64 MiB each: RSS +{} KiB; others: {}",
        grown >> 10,
        figures(&others.finish())
    );
    assert!(grown < 32 * MIB, "RSS grew by {grown} bytes");
}

/// More requests than the budget holds, none of which ends: they wait for each other, and for nobody else.
#[test]
fn stalled_grpc_requests_leave_room_for_small_calls() {
    let master = MasterBuilder::default().arg("--rpc_byte_budget=4Mi").arg("--max_frame_bytes=1Mi").start();
    healthy(&master);
    let others = Undisturbed::start(&master);
    let mut kept = Vec::new();
    for _ in 0..8 {
        let mut stream = thrifty(master.rpc_address(), Ipv4Addr::LOCALHOST);
        stream.set_nonblocking(false).expect("set");
        stream.set_write_timeout(Some(Duration::from_secs(2))).expect("set");
        // A large connection window is not granted, so each gets as far as the master lets it.
        let mut open = stream.write_all(&h2_start()).is_ok();
        for n in 0..100 {
            let prefix = [&[0u8][..], &1_000_000u32.to_be_bytes(), &[0; 8000]].concat();
            let bytes = [h2_call(2 * n + 1), h2(0, 0, 2 * n + 1, &prefix)].concat();
            open = open && stream.write_all(&bytes).is_ok();
        }
        kept.push(stream);
    }
    healthy(&master);
    println!("others beside 800 stalled gRPC requests: {}", figures(&others.finish()));
}
