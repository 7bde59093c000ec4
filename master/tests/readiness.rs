//! Readiness that tells the truth (A1-A11), against a real running server: core, data threads, acceptor, control thread.

use bytes::BytesMut;
use mooncake_master::{
    admin::{AdminState, ControlThread, ProbeTarget},
    clock::{BootClock, Clock, Instant},
    config::{AdminConfig, Command, ProbeConfig, Surroundings, load},
    core::Core,
    ha::connections::Connections,
    permit::ServingPermit,
    rpc::{
        AcceptLimits, Budget, Plane, Server, ServerOptions, Service, ServiceInfo,
        native::{
            answer::Health,
            client::{self, Reading},
            frame::{Limits, RESPONSE_HEADER, ResponseHeader},
            generation::{Generation, Method},
        },
    },
    types::CoreOptions,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

const PROBE: ProbeConfig =
    ProbeConfig { enabled: true, interval: Duration::from_millis(100), timeout: Duration::from_millis(900) };

/// The real clock, at which threads of a chosen name can be made to hang: so a data thread or the acceptor is stuck
/// exactly as it would be in a handler that never comes back.
#[derive(Debug, Default)]
struct SnaringClock {
    data: AtomicBool,
    accept: AtomicBool,
}

impl Clock for SnaringClock {
    fn now(&self) -> Instant {
        let thread = std::thread::current();
        let snare = match thread.name() {
            Some("data-0") => Some(&self.data),
            Some("data-accept") => Some(&self.accept),
            _ => None,
        };
        while snare.is_some_and(|snare| snare.load(Ordering::SeqCst)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        BootClock.now()
    }
}

struct Master {
    core: Arc<Core>,
    clock: Arc<SnaringClock>,
    permit: Arc<ServingPermit>,
    state: Arc<AdminState>,
    server: Server,
    control: ControlThread,
}

impl Drop for Master {
    fn drop(&mut self) {
        self.clock.data.store(false, Ordering::SeqCst);
        self.clock.accept.store(false, Ordering::SeqCst);
    }
}

/// A master that serves, as `main` puts it together.
fn start() -> Master {
    let clock = Arc::new(SnaringClock::default());
    let permit = Arc::new(ServingPermit::withheld(clock.clone()));
    permit.extend(3, Instant::from_nanos(u64::MAX - 1));
    let core = Arc::new(Core::new(CoreOptions::default(), clock.clone(), permit.clone()));
    let surroundings = Surroundings {
        env: &|_| None,
        read_file: &|_| Err(String::new()),
        interface_address: &|_| Err(String::new()),
        cores: 2,
    };
    let Ok(Command::Run(loaded)) = load(&[], &surroundings) else { panic!("the defaults are valid") };
    let state = AdminState::new(&loaded.effective, &PROBE, 2, permit.clone(), clock.clone());
    let readiness = state.readiness.clone();
    let service = Service::new(
        core.clone(),
        permit.clone(),
        clock.clone(),
        ServiceInfo {
            readiness: Arc::new(move || readiness.is_ready()),
            heartbeat_port: AtomicU32::new(0),
            heartbeat_keep_on_main: true,
            fsdir: String::new(),
            enable_disk_eviction: true,
            quota_bytes: 0,
            health_budget: PROBE.health_check_budget(),
            leader: Arc::new(|| None),
            faults: state.faults.clone(),
            default_generation: Generation::newest(),
        },
        state.metrics.clone(),
    );
    let options = ServerOptions {
        address: ([0, 0, 0, 0], 0).into(),
        generation_ports: Vec::new(),
        threads: 2,
        plane: Plane::Main,
        max_frame: 64 << 20,
        first_byte_timeout: Duration::from_secs(10),
        stall_timeout: Duration::from_secs(30),
        accept: AcceptLimits {
            total: 1000,
            per_address: 1000,
            probe_target: state.probe_peers.dealer(),
            tcp_no_delay: true,
        },
    };
    let server =
        Server::start(options, service, Budget::new(512 << 20), &Connections::new()).expect("started");
    let admin = AdminConfig { host: [127, 0, 0, 1].into(), port: 0, report_metrics: false };
    let control = ControlThread::start(&admin, &PROBE, state.clone()).expect("started");
    Master { core, clock, permit, state, server, control }
}

impl Master {
    fn serve(&self) {
        self.state.readiness.serve(ProbeTarget::of(&self.server));
    }

    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.control.local_address()).expect("connected");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        (answer[9..12].parse().expect("a status"), answer)
    }

    /// Waits for a status of `/readyz`, and says how long it took. `/health` and the time of each answer are looked at
    /// on the way: they must not depend on what is wrong with the data plane.
    fn readyz_becomes(&self, status: u16) -> Duration {
        let begin = BootClock.now();
        loop {
            let asked = BootClock.now();
            let found = self.get("/readyz").0;
            let took = BootClock.now().saturating_since(asked);
            assert!(took < Duration::from_secs(1), "/readyz took {took:?}");
            assert_eq!(self.get("/health").0, 200);
            let waited = BootClock.now().saturating_since(begin);
            if found == status {
                return waited;
            }
            assert!(waited < Duration::from_secs(10), "no {status} within {waited:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn health_check(&self) -> Health {
        let rpc = Generation::newest().rpc(Method::HealthCheck.function_id()).expect("a call");
        let reading = Reading::<Result<Health, i32>>::of(rpc).expect("its answer");
        let port = self.server.local_address().port();
        let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).expect("connected");
        let mut request = BytesMut::new();
        client::call(&mut request, 9, rpc, &());
        stream.write_all(&request).expect("sent");
        let mut header = [0; RESPONSE_HEADER];
        stream.read_exact(&mut header).expect("answered");
        let header = ResponseHeader::parse(&header, &Limits::default()).expect("valid").expect("whole");
        let mut body = vec![0; header.body as usize];
        stream.read_exact(&mut body).expect("answered");
        reading.read(header.error, &body).expect("of its type").expect("a report")
    }
}

#[test]
fn health_check_returns_ok_when_no_lock_held() {
    let master = start();
    assert_eq!(master.health_check(), Health { ok: true, shards_checked: 1024, shards_blocked: 0 });
}

#[test]
fn health_check_detects_shard_write_lock_held() {
    let master = start();
    for shard in [0, 7, 1023] {
        let hold = master.core.hold_shard(shard);
        let begin = BootClock.now();
        let found = master.health_check();
        let took = BootClock.now().saturating_since(begin);
        let (checked, blocked) = (u64::from(shard), u64::from(shard));
        assert_eq!(found, Health { ok: false, shards_checked: checked, shards_blocked: blocked });
        assert!(took >= PROBE.health_check_budget() && took < PROBE.timeout, "{took:?}");
        drop(hold);
        assert_eq!(master.health_check(), Health { ok: true, shards_checked: 1024, shards_blocked: 0 });
    }
}

#[test]
fn readyz_reflects_probe_result() {
    let master = start();
    assert_eq!(master.get("/readyz").0, 503, "nothing serves yet");
    master.serve();
    master.readyz_becomes(200);
    let hold = master.core.hold_shard(7);
    let noticed = master.readyz_becomes(503);
    assert!(noticed < PROBE.interval + PROBE.timeout + Duration::from_millis(500), "{noticed:?}");
    assert!(master.get("/metrics").1.contains("mooncake_master_rpc_responsive 0"));
    drop(hold);
    master.readyz_becomes(200);
    assert!(master.state.readiness.probe_failures() >= 1);
    master.state.readiness.stop_serving();
    assert_eq!(master.get("/readyz").0, 503);
}

#[test]
fn a_short_hold_does_not_flip_readyz() {
    let master = start();
    master.serve();
    master.readyz_becomes(200);
    for _ in 0..5 {
        let hold = master.core.hold_shard(500);
        std::thread::sleep(PROBE.health_check_budget() / 4);
        drop(hold);
        std::thread::sleep(PROBE.interval / 2);
        assert_eq!(master.get("/readyz").0, 200);
    }
    assert_eq!(master.state.readiness.probe_failures(), 0);
}

#[test]
fn one_stuck_data_thread_of_two_fails_the_probe() {
    let master = start();
    master.serve();
    master.readyz_becomes(200);
    master.clock.data.store(true, Ordering::SeqCst);
    master.readyz_becomes(503);
    master.clock.data.store(false, Ordering::SeqCst);
    master.readyz_becomes(200);
}

#[test]
fn a_stuck_acceptor_fails_the_probe() {
    let master = start();
    master.serve();
    master.readyz_becomes(200);
    master.clock.accept.store(true, Ordering::SeqCst);
    master.readyz_becomes(503);
    master.clock.accept.store(false, Ordering::SeqCst);
    master.readyz_becomes(200);
}

#[test]
fn without_the_permit_readyz_is_503_at_once_and_comes_back_with_it() {
    let master = start();
    master.serve();
    master.readyz_becomes(200);
    master.permit.revoke();
    assert_eq!(master.get("/readyz").0, 503);
    assert!(!master.get("/metrics").1.contains("mooncake_master_rpc_responsive"));
    master.permit.extend(3, Instant::from_nanos(u64::MAX - 1));
    master.readyz_becomes(200);
}
