use super::*;
use crate::{
    clock::{BootClock, Instant as ClockInstant},
    config::{Command, Surroundings, load},
    core::CoreStats,
    error::ErrorCode,
    rpc::native::{
        answer::{self, Health},
        frame::{Limits, REQUEST_HEADER, RequestHeader, RpcErrorCode, write_error},
        generation::{Generation, Method},
    },
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread::JoinHandle,
};

const PROBE: ProbeConfig =
    ProbeConfig { enabled: true, interval: Duration::from_millis(50), timeout: Duration::from_millis(400) };

fn effective() -> Effective {
    let surroundings = Surroundings {
        env: &|_| None,
        read_file: &|_| Err(String::new()),
        interface_address: &|_| Err(String::new()),
        cores: 2,
    };
    match load(&["--rpc_port=6000".to_owned()], &surroundings) {
        Ok(Command::Run(loaded)) => loaded.effective,
        other => panic!("{other:?}"),
    }
}

struct Fixture {
    state: Arc<AdminState>,
    thread: ControlThread,
    clock: Arc<BootClock>,
}

fn start_with(probe: &ProbeConfig, limits: http::Limits) -> Fixture {
    let clock = Arc::new(BootClock);
    let permit = Arc::new(ServingPermit::standalone(clock.clone()));
    let state = AdminState::new(&effective(), probe, 2, permit, clock.clone());
    let admin = AdminConfig { host: [127, 0, 0, 1].into(), port: 0, report_metrics: false };
    let thread = ControlThread::start_with_limits(&admin, probe, state.clone(), limits).expect("started");
    Fixture { state, thread, clock }
}

fn start(probe: &ProbeConfig) -> Fixture {
    start_with(probe, http::Limits::default())
}

/// One request on a connection of its own: status and the rest, head included.
fn request(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
    (status, answer)
}

impl Fixture {
    fn get(&self, path: &str) -> (u16, String) {
        let (status, answer) = request(self.thread.local_address(), "GET", path);
        (status, answer.split_once("\r\n\r\n").expect("a body").1.to_owned())
    }

    fn json(&self, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.get(path).1).expect("JSON")
    }

    /// A tick source in which every thread ticks now.
    fn fresh_ticks(&self, threads: usize) -> Arc<dyn Fn() -> Vec<u64> + Send + Sync> {
        let clock = self.clock.clone();
        Arc::new(move || vec![clock.now().as_millis(); threads])
    }

    fn wait_for(&self, what: &str, condition: impl Fn(&Fixture) -> bool) {
        let begin = self.clock.now();
        while !condition(self) {
            let waited: Duration = self.clock.now().saturating_since(begin);
            assert!(waited < Duration::from_secs(20), "{what} did not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What a fake RPC server answers to `HealthCheck`.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Answer {
    Ok,
    Blocked(u64),
    Refused,
    NotRegistered,
    Garbage,
    Silence,
    Close,
}

/// A tiny real TCP server that speaks just enough of the native protocol.
struct FakeServer {
    address: SocketAddr,
    answers: Arc<Mutex<Vec<Answer>>>,
    seen: Arc<Mutex<Vec<Option<usize>>>>,
    busy: Arc<AtomicUsize>,
    most_busy: Arc<AtomicUsize>,
    _accept: JoinHandle<()>,
}

impl FakeServer {
    /// `answers[n]` goes to the connection that is meant for thread n.
    fn start(bind: &str, peers: Arc<ProbePeers>, answers: Vec<Answer>) -> Option<FakeServer> {
        let listener = TcpListener::bind(bind).ok()?;
        let address = listener.local_addr().expect("bound");
        let answers = Arc::new(Mutex::new(answers));
        let seen: Arc<Mutex<Vec<Option<usize>>>> = Arc::default();
        let (busy, most_busy) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let shared = (answers.clone(), seen.clone(), busy.clone(), most_busy.clone());
        let accept = std::thread::spawn(move || {
            let (answers, seen, busy, most_busy) = shared;
            while let Ok((stream, peer)) = listener.accept() {
                let thread = peers.thread_for(peer);
                seen.lock().push(thread);
                let answer = thread.and_then(|t| answers.lock().get(t).copied()).unwrap_or(Answer::Close);
                let (busy, most_busy) = (busy.clone(), most_busy.clone());
                std::thread::spawn(move || {
                    most_busy.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let _ = serve(stream, answer);
                    busy.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Some(FakeServer { address, answers, seen, busy, most_busy, _accept: accept })
    }

    fn set(&self, answers: &[Answer]) {
        *self.answers.lock() = answers.to_vec();
    }
}

fn serve(mut stream: TcpStream, answer: Answer) -> io::Result<()> {
    let mut header = [0; REQUEST_HEADER];
    stream.read_exact(&mut header)?;
    let header = RequestHeader::parse(&header, &Limits::default()).expect("a frame").expect("whole");
    let rpc = Generation::newest().rpc(header.function).expect("a function");
    assert_eq!((rpc.method(), header.body), (Method::HealthCheck, 0));
    let mut out = bytes::BytesMut::new();
    let health = |ok, shards: u64, blocked| {
        Ok::<_, ErrorCode>(Health { ok, shards_checked: shards, shards_blocked: blocked })
    };
    match answer {
        Answer::Ok => answer::write(&mut out, header.seq, rpc, &health(true, 1024, 0)),
        Answer::Blocked(shard) => answer::write(&mut out, header.seq, rpc, &health(false, shard, shard)),
        Answer::Refused => {
            answer::write(&mut out, header.seq, rpc, &Err::<Health, _>(ErrorCode::InternalError));
        }
        Answer::NotRegistered => write_error(&mut out, header.seq, RpcErrorCode::NotRegistered, "no"),
        Answer::Garbage => out.extend([9; 40]),
        Answer::Silence => {}
        Answer::Close => return Ok(()),
    }
    stream.write_all(&out)?;
    let _ = stream.read(&mut [0; 1]);
    Ok(())
}

#[test]
fn the_endpoints_of_a_standby() {
    let fixture = start(&PROBE);
    assert_eq!(
        fixture.json("/health"),
        serde_json::json!({
            "status": "ok",
            "role": "standby",
            "ha_state": "starting",
            "service_ready": false,
            "leader_address": null,
            "view_version": null,
        })
    );
    assert_eq!(fixture.get("/readyz").0, 503);
    assert_eq!(fixture.get("/role"), (200, "standby".to_owned()));
    assert_eq!(fixture.get("/ha_status"), (200, "starting".to_owned()));
    assert_eq!(
        fixture.json("/leader"),
        serde_json::json!({"present": false, "leader_address": null, "view_version": null})
    );
    fixture.state.role.set_state(HaState::Standby);
    fixture.state.role.set_leader(Some(Leader { address: "10.0.0.1:50051".to_owned(), epoch: 7 }));
    assert_eq!(
        fixture.json("/leader"),
        serde_json::json!({"present": true, "leader_address": "10.0.0.1:50051", "view_version": 7})
    );
    assert_eq!(fixture.json("/health")["view_version"], 7);
    let config = fixture.json("/config");
    assert_eq!(
        (&config["effective"]["rpc_port"], &config["sources"]["rpc_port"]),
        (&6000.into(), &"command line".into())
    );
    let (status, metrics) = fixture.get("/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("mooncake_master_role{role=\"standby\",ha_state=\"standby\"} 1"), "{metrics}");
    assert!(!metrics.contains("mooncake_master_rpc_responsive"), "absent on a standby");
    assert!(
        fixture
            .get("/metrics/summary")
            .1
            .starts_with("role=standby, state=standby, service_ready=false, master={Mem Storage: 0 B")
    );
}

#[test]
fn unknown_paths_and_methods_are_refused_in_json() {
    let fixture = start(&PROBE);
    let address = fixture.thread.local_address();
    let long = format!("/{}?key=%00%ff", "x".repeat(4000));
    for path in ["/nothing", "/readyz/", &long] {
        let (status, body) = fixture.get(path);
        let json: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((status, &json["success"]), (404, &false.into()));
        assert!(body.len() < 1000);
    }
    for method in ["POST", "DELETE", "BREW"] {
        let (status, answer) = request(address, method, "/health");
        assert_eq!(status, 405);
        assert!(
            answer.contains("\"success\":false") && answer.to_lowercase().contains("allow: get"),
            "{answer}"
        );
    }
    let mut stream = TcpStream::connect(address).expect("connected");
    // The answer comes before all is read, and the rest may be refused with a reset.
    let _ = write!(stream, "GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(65_536));
    let mut answer = [0; 12];
    if stream.read_exact(&mut answer).is_ok() {
        assert!(answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
    }
    assert_eq!(request(address, "HEAD", "/readyz").0, 503);
}

#[test]
fn readyz_follows_the_probe() {
    let fixture = start(&PROBE);
    let peers = fixture.state.probe_peers.clone();
    let server = FakeServer::start("0.0.0.0:0", peers, vec![Answer::Ok, Answer::Ok]).expect("bound");
    let readiness = fixture.state.readiness.clone();
    readiness.serve(ProbeTarget { address: server.address, ticks: fixture.fresh_ticks(2) });
    fixture.wait_for("readiness", |f| f.get("/readyz").0 == 200);
    assert_eq!(readiness.probe_failures(), 0, "the first probe was good");
    assert!(
        server.seen.lock().iter().take(2).all(Option::is_some),
        "the acceptor knows the probe's connections"
    );
    let mut first: Vec<_> = server.seen.lock().iter().take(2).copied().collect();
    first.sort();
    assert_eq!(first, [Some(0), Some(1)], "one for each data thread");

    for bad in [
        Answer::Blocked(0),
        Answer::Blocked(7),
        Answer::Refused,
        Answer::NotRegistered,
        Answer::Garbage,
        Answer::Close,
        Answer::Silence,
    ] {
        let failures = readiness.probe_failures();
        server.set(&[Answer::Ok, bad]);
        fixture.wait_for(&format!("503 after {bad:?}"), |f| f.get("/readyz").0 == 503);
        assert!(readiness.probe_failures() > failures);
        assert_eq!(fixture.get("/health").0, 200, "liveness is another matter");
        server.set(&[Answer::Ok, Answer::Ok]);
        fixture.wait_for(&format!("200 after {bad:?}"), |f| f.get("/readyz").0 == 200);
    }
    let (_, metrics) = fixture.get("/metrics");
    assert!(metrics.contains("mooncake_master_rpc_responsive 1"), "{metrics}");

    readiness.stop_serving();
    assert_eq!(fixture.get("/readyz").0, 503, "at once");
    let seen = server.seen.lock().len();
    std::thread::sleep(PROBE.interval * 3);
    assert!(server.seen.lock().len() <= seen + 2, "no probe on a standby, but for one under way");
}

#[test]
fn a_thread_that_does_not_tick_fails_the_probe() {
    let fixture = start(&PROBE);
    let peers = fixture.state.probe_peers.clone();
    let server = FakeServer::start("127.0.0.1:0", peers, vec![Answer::Ok, Answer::Ok]).expect("bound");
    let stuck = Arc::new(AtomicU64::new(u64::MAX));
    let (clock, offset) = (fixture.clock.clone(), stuck.clone());
    let ticks = Arc::new(move || {
        let now = ClockInstant::as_millis(clock.now());
        vec![now, now.min(offset.load(Ordering::SeqCst))]
    });
    fixture.state.readiness.serve(ProbeTarget { address: server.address, ticks });
    fixture.wait_for("readiness", |f| f.get("/readyz").0 == 200);
    stuck.store(fixture.clock.now().as_millis(), Ordering::SeqCst);
    fixture.wait_for("503", |f| f.get("/readyz").0 == 503);
    stuck.store(u64::MAX, Ordering::SeqCst);
    fixture.wait_for("200", |f| f.get("/readyz").0 == 200);
}

#[test]
fn rounds_do_not_overlap_and_start_anew_with_the_service() {
    let fixture = start(&ProbeConfig { interval: Duration::from_millis(1), ..PROBE });
    let peers = fixture.state.probe_peers.clone();
    let server = FakeServer::start("127.0.0.1:0", peers, vec![Answer::Silence; 3]).expect("bound");
    let readiness = &fixture.state.readiness;
    readiness.serve(ProbeTarget { address: server.address, ticks: fixture.fresh_ticks(3) });
    fixture.wait_for("two failures", |f| f.state.readiness.probe_failures() >= 2);
    assert!(readiness.probe_latency_ms() >= 400, "a time-out takes the whole timeout");
    // The connections of a round that is over may linger in the server for a moment, those of two may not.
    assert!(server.most_busy.load(Ordering::SeqCst) <= 6, "{}", server.most_busy.load(Ordering::SeqCst));
    readiness.stop_serving();
    fixture.wait_for("the running round to be dropped", |_| server.busy.load(Ordering::SeqCst) == 0);
    assert!(fixture.state.probe_peers.thread_for(server.address).is_none());
    server.set(&[Answer::Ok; 3]);
    readiness.serve(ProbeTarget { address: server.address, ticks: fixture.fresh_ticks(3) });
    fixture.wait_for("readiness", |f| f.state.readiness.is_ready());
}

#[test]
fn nothing_listens_or_the_probe_is_off() {
    let fixture = start(&PROBE);
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("bound");
    fixture.state.readiness.serve(ProbeTarget { address: closed, ticks: fixture.fresh_ticks(1) });
    fixture.wait_for("a failure", |f| f.state.readiness.probe_failures() > 0);
    assert!(fixture.get("/metrics").1.contains("mooncake_master_rpc_responsive 0"));

    let off = start(&ProbeConfig { enabled: false, ..PROBE });
    assert_eq!(off.get("/readyz").0, 503, "a standby stays out of the Service");
    off.state.readiness.serve(ProbeTarget { address: closed, ticks: off.fresh_ticks(1) });
    assert_eq!(off.get("/readyz").0, 200);
    assert!(!off.get("/metrics").1.contains("mooncake_master_rpc_responsive"));
    assert!(!off.get("/metrics").1.contains("mooncake_master_rpc_probe_"));
}

#[test]
fn the_wildcard_of_ipv6_is_probed_on_its_loopback() {
    let fixture = start(&PROBE);
    let peers = fixture.state.probe_peers.clone();
    // A machine without IPv6 has nothing to test here.
    let Some(server) = FakeServer::start("[::]:0", peers, vec![Answer::Ok]) else { return };
    fixture.state.readiness.serve(ProbeTarget { address: server.address, ticks: fixture.fresh_ticks(1) });
    fixture.wait_for("readiness", |f| f.get("/readyz").0 == 200);
}

#[test]
fn slow_readers_hurt_nobody() {
    let write = Duration::from_millis(300);
    let limits = http::Limits { write, per_address: 110, ..http::Limits::default() };
    let fixture = start_with(&ProbeConfig { enabled: false, ..PROBE }, limits);
    for rpc in Method::ALL {
        fixture.state.metrics.rpc().shard(0).record(*rpc, Protocol::Native, false, Duration::ZERO);
    }
    let address = fixture.thread.local_address();
    fixture.state.readiness.serve(ProbeTarget { address, ticks: fixture.fresh_ticks(1) });
    let mut slow = Vec::new();
    for i in 0..100 {
        let stream = TcpStream::connect(address).expect("connected");
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 2048).expect("set");
        // Half of them never finish a header, half ask for far more than the socket takes and never read.
        let text = if i % 2 == 0 {
            "GET /metrics HTTP/1.1\r\n".to_owned()
        } else {
            "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100)
        };
        (&stream).write_all(text.as_bytes()).expect("sent");
        slow.push(stream);
    }
    let mut took: Vec<Duration> = (0..20)
        .map(|_| {
            let begin = fixture.clock.now();
            assert_eq!(fixture.get("/readyz").0, 200);
            fixture.clock.now().saturating_since(begin)
        })
        .collect();
    took.sort();
    // The median, because other tests of this machine take its cores, too.
    assert!(took[10] < Duration::from_millis(50), "{took:?}");
    // Those that never read lose their connection after the write timeout, so there is room again.
    fixture.wait_for("room for forty more", |_| {
        let more: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).expect("connected")).collect();
        more.iter().all(|stream| {
            let (mut stream, mut answer) = (stream, [0; 12]);
            let _ = stream.write_all(b"GET /role HTTP/1.1\r\nHost: x\r\n\r\n");
            stream.read_exact(&mut answer).is_ok()
        })
    });
    drop(slow);
}

#[test]
fn one_address_cannot_take_every_connection() {
    let limits = http::Limits { per_address: 3, ..http::Limits::default() };
    let fixture = start_with(&PROBE, limits);
    let address = fixture.thread.local_address();
    let held: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).expect("connected")).collect();
    let mut fourth = TcpStream::connect(address).expect("connected");
    fourth.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    assert!(matches!(fourth.read(&mut [0; 1]), Ok(0) | Err(_)), "closed at once");
    drop(held);
    fixture.wait_for("a free place", |_| {
        let mut stream = TcpStream::connect(address).expect("connected");
        let _ = stream.write_all(b"GET /role HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).is_ok() && answer.contains("standby")
    });
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound");
    let fixture = start(&PROBE);
    let admin = AdminConfig { host: address.ip(), port: address.port(), report_metrics: false };
    let error = ControlThread::start(&admin, &PROBE, fixture.state.clone()).expect_err("in use");
    assert!(error.to_string().contains(&format!("{address} (metrics_host, metrics_port)")), "{error}");
}

#[test]
fn every_exposed_name_is_documented_and_no_sample_is_there_twice() {
    let fixture = start(&PROBE);
    let metrics = &fixture.state.metrics;
    for rpc in Method::ALL {
        for protocol in Protocol::ALL {
            metrics.rpc().shard(1).record_batch(*rpc, protocol, 3, 1, Duration::from_micros(70));
        }
    }
    metrics.rpc().shard(0).record_gets(5, 4, 4096);
    metrics.rpc().shard(0).record_value_size(5000);
    let segment =
        |name: &[u8]| crate::core::SegmentStats { name: name.into(), allocated_bytes: 1, capacity_bytes: 2 };
    // Names that are not UTF-8, look alike once shown, or hold what the text format must escape.
    let segments = vec![segment(b"a"), segment(b"\xff"), segment(b"\xfe"), segment(b"q\"\\\nz")];
    metrics.set_store(Some(Arc::new(move || CoreStats {
        keys: 9,
        segments: segments.clone(),
        ..CoreStats::default()
    })));
    let target = ProbeTarget { address: fixture.thread.local_address(), ticks: fixture.fresh_ticks(2) };
    fixture.state.readiness.serve(target);
    let (_, text) = fixture.get("/metrics");
    assert!(
        text.contains("master_key_count 9\n") && text.contains("master_put_start_requests_total 4\n"),
        "{text}"
    );
    assert!(text.contains("master_batch_put_start_items_total 12\n"));
    assert!(text.contains("segment_allocated_bytes{segment=\"q\\\"\\\\\\nz\"} 1\n"));
    assert!(text.contains(
        "mooncake_master_rpc_latency_seconds_bucket{rpc=\"Ping\",protocol=\"grpc\",le=\"0.0001\"} 1\n"
    ));

    let docs = docs_are_current("../docs/metrics.md", &metrics_markdown());
    let mut samples = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next()) {
            assert!(docs.contains(&format!("| `{name}` |")), "{name} is not documented");
        } else if !line.starts_with('#') {
            let sample = line.rsplit_once(' ').expect("a value").0;
            assert!(samples.insert(sample), "{sample} is there twice");
        }
    }
    for line in docs.lines().filter_map(|line| line.strip_prefix("| `")) {
        let name = line.split('`').next().expect("a name");
        // A standalone permit has no end, and as a rule nobody holds a shard for long.
        let absent =
            ["mooncake_master_serving_permit_remaining_seconds", "mooncake_master_shard_long_holds_total"];
        if !absent.contains(&name) {
            assert!(text.contains(&format!("# TYPE {name} ")), "{name} is documented and not exposed");
        }
    }
}

#[test]
fn faults_are_forbidden_until_enabled_and_every_mistake_is_named() {
    let fixture = start(&PROBE);
    let ask = |method: &str, path: &str| request(fixture.thread.local_address(), method, path);
    for (method, path) in [("GET", "/fault"), ("DELETE", "/fault"), ("POST", "/fault/stop_accept?for_ms=9")] {
        assert_eq!(ask(method, path).0, 403, "{method} {path}");
    }
    assert!(fixture.get("/metrics").1.contains("mooncake_master_fault_injection_enabled 0\n"));
    fixture.state.faults.enable();
    assert!(fixture.state.metrics.render().contains("mooncake_master_fault_injection_enabled 1\n"));
    assert_eq!(ask("POST", "/fault/pause_monitor?for_ms=600000").0, 200);
    assert_eq!(fixture.json("/fault")["active"][0]["fault"], "pause_monitor");
    let (status, text) = ask("POST", "/fault/fail_step?step=sweep&times=2");
    assert!(
        status == 400
            && text.contains(
                "fail_step: step=\\\"sweep\\\" is not one of promote bind first_probe clean_segment"
            ),
        "{text}"
    );
    let (status, text) = ask("POST", "/fault/nothing");
    assert!(status == 400 && text.contains("no such fault: nothing"), "{text}");
    assert_eq!(ask("POST", "/fault/hold_shard?index=7&for_ms=9").0, 409);
    assert_eq!(ask("GET", "/fault/hold_shard").0, 405);
    assert_eq!(ask("DELETE", "/fault").0, 200);
    assert_eq!(fixture.json("/fault")["active"], serde_json::json!([]));
}

/// Compares a generated file, or writes it when asked to.
fn docs_are_current(path: &str, expected: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, expected).expect("written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{} is old: run the tests with UPDATE_DOCS=1", path.display());
    found
}
