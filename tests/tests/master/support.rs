//! What several subjects share.

use mooncake_master::types::Uuid;
use mooncake_proto::v1::{self, master_service_client::MasterServiceClient};
use mooncake_tests::{Master, NativeClient, native::Outcome};
use std::{
    io::{self, Read},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use tokio::time::Instant;
use tonic::transport::Channel;

/// The endpoint of every segment of these tests; nobody listens there.
pub(crate) const ENDPOINT: &str = "127.0.0.1:12345";
/// First address of a segment.
pub(crate) const BASE: u64 = 0x1_0000_0000;
pub(crate) const MIB: u64 = 1 << 20;

/// The n-th client or segment.
pub(crate) const fn id(n: u64) -> Uuid {
    Uuid { first: n, second: n + 1 }
}

/// The same in gRPC.
#[allow(clippy::unnecessary_wraps, reason = "what a message field takes")]
pub(crate) fn grpc_id(n: u64) -> Option<v1::Uuid> {
    Some(v1::Uuid { first: n, second: n + 1 })
}

/// Where the segment of that number lies.
pub(crate) fn base_of(n: u64) -> u64 {
    BASE + n * (1 << 32)
}

pub(crate) fn native(master: &Master) -> NativeClient {
    NativeClient::connect(master.rpc_address()).expect("the master accepts")
}

pub(crate) async fn grpc(master: &Master) -> MasterServiceClient<Channel> {
    let address = format!("http://{}", master.rpc_address());
    MasterServiceClient::connect(address).await.expect("the master accepts")
}

/// The answer of a call that came back at all.
pub(crate) fn answered(outcome: io::Result<Outcome>) -> Outcome {
    outcome.expect("an answer")
}

/// A sample of `/metrics`, by its name and labels as they are written there.
pub(crate) fn metric(master: &Master, name: &str) -> Option<f64> {
    let (status, text) = master.get("/metrics");
    assert_eq!(status, 200);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(line.trim().parse().expect("a number"))
}

/// Whether the other side has ended the connection, within `patience`; what it said before is read and dropped.
pub(crate) fn is_closed(mut stream: &TcpStream, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
    let mut buffer = [0; 4096];
    while Instant::now() < deadline {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => return true,
        }
    }
    false
}

/// A client that calls `Exist` again and again on one connection and panics when one call is not answered.
pub(crate) struct Undisturbed {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Duration>>>,
}

impl Undisturbed {
    pub(crate) fn start(master: &Master) -> Undisturbed {
        let mut client = native(master);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut times = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                let answer = client.exist("nobody-has-this").expect("this connection is not disturbed");
                assert_eq!(answer, Ok(false));
                times.push(began.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
            times
        });
        Undisturbed { stop, thread: Some(thread) }
    }

    /// How long the calls took, in order of length; fails if one was not answered.
    pub(crate) fn finish(mut self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        let mut times =
            self.thread.take().expect("not finished before").join().expect("every call was answered");
        assert!(!times.is_empty(), "no call was made");
        times.sort_unstable();
        times
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Figures of sorted times, for the log of a run.
pub(crate) fn figures(times: &[Duration]) -> String {
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    format!("{} calls, median {:?}, p99 {:?}, max {:?}", times.len(), at(0.5), at(0.99), at(1.0))
}
