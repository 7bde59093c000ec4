//! The child process, and the parent's view of it.

use crate::apiserver::ApiServer;
use mooncake_lease::Timings;
use mooncake_master::{
    clock::{BootClock, Clock},
    config::PodIdentity,
    ha::{
        self, Backend, Deadlines, HaOptions, LeaseOptions, Parts, RoleInfo, connections::Connections, signals,
    },
    lock::Mutex,
    permit::ServingPermit,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

const ROLE: &str = "HA_TEST_CHILD";

/// The times of a hand-over as the children have them.
pub(crate) const DRAIN: Duration = Duration::from_millis(250);
pub(crate) const SUCCESSOR_READY: Duration = Duration::from_millis(600);
pub(crate) const SEE_OFF: Duration = Duration::from_millis(2500);

/// How a child is set up.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each with a name of its own")]
pub(crate) struct Setup {
    url: String,
    ordinal: u8,
    uid: String,
    port: u16,
    pub(crate) solo: bool,
    pub(crate) never_promotes: bool,
    pub(crate) promotion_fails: bool,
    /// Each connection has a call that never ends, as on a stuck data thread.
    pub(crate) calls_never_end: bool,
    pub(crate) termination_log: Option<PathBuf>,
}

impl Setup {
    pub(crate) fn new(server: &ApiServer, ordinal: u8) -> Setup {
        let uid = server.get(&crate::pod_path(ordinal)).unwrap()["metadata"]["uid"].clone();
        // A port of its own for each pod of each server, the same after a restart, and free on this machine.
        let base: u16 = server.url.rsplit_once(':').unwrap().1.parse().unwrap();
        let port = 10_000 + (base % 10_000) * 2 + u16::from(ordinal);
        Setup {
            url: server.url.clone(),
            ordinal,
            uid: uid.as_str().unwrap().to_owned(),
            port,
            solo: false,
            never_promotes: false,
            promotion_fails: false,
            calls_never_end: false,
            termination_log: None,
        }
    }

    pub(crate) fn advertised(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// A running child; it is killed when this is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    lines: Arc<Mutex<Vec<String>>>,
    address: String,
}

impl Child {
    pub(crate) fn start(setup: &Setup) -> Child {
        let Setup { url, ordinal, uid, port, solo, never_promotes, promotion_fails, .. } = setup;
        let (calls_never_end, termination_log) = (setup.calls_never_end, &setup.termination_log);
        let log = termination_log.as_ref().map_or(String::new(), |path| path.display().to_string());
        let text = format!(
            "{url} {ordinal} {uid} {port} {solo} {never_promotes} {promotion_fails} {calls_never_end} {log}"
        );
        let mut process = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, text)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (output, sink) = (process.stdout.take().unwrap(), lines.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                sink.lock().push(line);
            }
        });
        Child { process, lines, address: setup.advertised() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address.parse().unwrap()
    }

    pub(crate) fn said(&self, line: &str) -> bool {
        self.lines.lock().iter().any(|said| said == line)
    }

    fn words(&self, first: &str) -> Vec<Vec<String>> {
        let lines = self.lines.lock();
        let split = lines.iter().map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        split.filter(|words| words[0] == first).collect()
    }

    pub(crate) fn starts(&self) -> usize {
        self.words("start").len()
    }

    pub(crate) fn incarnation(&self, start: usize) -> String {
        self.words("start")[start][1].clone()
    }

    pub(crate) fn pids(&self) -> std::collections::BTreeSet<String> {
        self.words("start").into_iter().map(|words| words[2].clone()).collect()
    }

    pub(crate) fn last_state(&self) -> String {
        self.words("state").pop().map(|words| words[1].clone()).unwrap_or_default()
    }

    /// Sends SIGTERM; returns after the process has ended, well, with how long that took.
    pub(crate) async fn terminate(&mut self) -> Duration {
        let sent = BootClock.now();
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return BootClock.now().saturating_since(sent);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn is_child() -> bool {
    std::env::var_os(ROLE).is_some()
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

fn options(words: &[&str]) -> HaOptions {
    let ms = Duration::from_millis;
    let ordinal = words[1];
    let address: SocketAddr = format!("127.0.0.1:{}", words[3]).parse().unwrap();
    let lease = LeaseOptions {
        namespace: "ns".into(),
        name: "m".into(),
        timings: Timings::new(ms(1000), ms(600), ms(200)).unwrap(),
        advertised: address.to_string(),
        pod: Some(PodIdentity {
            name: format!("m-{ordinal}"),
            namespace: "ns".into(),
            uid: words[2].into(),
            statefulset: "m".into(),
            max_ordinal: 9,
        }),
        read_lease_ttl: ms(500),
        rpc_bind: address,
        kube: Some(kube::Config::new(words[0].parse().unwrap())),
        empty_promotion_after: Some(ms(1000)),
    };
    HaOptions {
        backend: if words[4] == "true" { Backend::Solo } else { Backend::Lease(Box::new(lease)) },
        termination_log: Some(PathBuf::from(words[8])).filter(|path| path.as_os_str() != ""),
        deadlines: Deadlines {
            progress: ms(2000),
            first_probe: ms(4000),
            drain: DRAIN,
            successor_ready: SUCCESSOR_READY,
            see_off: SEE_OFF,
            ..Deadlines::default()
        },
    }
}

/// A process that does with the lease thread what the master does: serves once it is promoted.
pub(crate) fn main() {
    signals::block().unwrap();
    let text = std::env::var(ROLE).unwrap();
    let words: Vec<&str> = text.splitn(9, ' ').collect();
    let clock: Arc<dyn Clock> = Arc::new(BootClock);
    let parts = Parts {
        permit: Arc::new(ServingPermit::withheld(clock.clone())),
        clock,
        connections: Connections::new(),
        role: Arc::new(RoleInfo::default()),
    };
    let options = options(&words);
    let ha::Ha { incarnation, mut promotions, mut shutdown, control } =
        ha::start(options, parts.clone()).unwrap();
    say(&format!("start {incarnation} {}", std::process::id()));
    let closing = control.clone();
    std::thread::spawn(move || {
        // There is nothing to close.
        if shutdown.blocking_recv().is_some() {
            say("closed");
            closing.closed();
        }
    });
    let (role, permit) = (parts.role.clone(), parts.permit.clone());
    std::thread::spawn(move || {
        let (mut last, mut last_hold) = ("", "none");
        loop {
            let state = role.state().name();
            if state != last {
                say(&format!("state {state}"));
                last = state;
            }
            let hold = match (permit.is_holding(), permit.may_answer()) {
                (false, _) => "none",
                (true, true) => "draining",
                (true, false) => "suspended",
            };
            if hold != last_hold {
                say(&format!("hold {hold}"));
                last_hold = hold;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    while let Some(promotion) = promotions.blocking_recv() {
        if words[5] == "true" {
            continue;
        }
        if words[6] == "true" {
            control.failed();
            continue;
        }
        let listener = TcpListener::bind(format!("127.0.0.1:{}", words[3])).unwrap();
        let (connections, calls_never_end) = (parts.connections.clone(), words[7] == "true");
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                // Kept and never looked at again, as a stuck thread would.
                let stream = connections.register(stream);
                let call = calls_never_end.then(|| stream.activity().detached_call());
                open.push((stream, call));
                say("accepted");
            }
        });
        assert!(parts.permit.held());
        assert_eq!(parts.permit.epoch(), promotion.epoch);
        control.promoted();
        control.first_probe_ok();
        say(&format!("promoted {}", promotion.epoch));
    }
}
