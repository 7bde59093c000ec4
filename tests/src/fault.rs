//! Faults, injected from outside, and what is seen of the master meanwhile.

use crate::{Master, master::http, wait_for};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use tokio::time::Instant;

/// The option without which every fault is refused.
pub const ENABLE: &str = "--enable_fault_injection";

/// Injects a fault, e.g. `hold_shard?index=7&for_ms=12000`, and says when it was asked for.
pub fn inject(master: &Master, fault: &str) -> Instant {
    let at = Instant::now();
    let (status, body) = http(master.admin_address(), "POST", &format!("/fault/{fault}"));
    assert!(status == 200 && body.contains("\"in_effect\":true"), "{fault}: {status} {body}");
    at
}

/// Ends every fault.
pub fn clear(master: &Master) {
    assert_eq!(http(master.admin_address(), "DELETE", "/fault").0, 200);
}

/// A sample of `/metrics`, by its name and labels as they are written there.
pub fn metric(master: &Master, name: &str) -> Option<f64> {
    let (status, text) = master.get("/metrics");
    assert_eq!(status, 200);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(line.trim().parse().expect("a number"))
}

/// Figures of times, for the log of a run.
pub fn figures(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    format!("{} calls, median {:.1?}, p99 {:.1?}, max {:.1?}", times.len(), at(0.5), at(0.99), at(1.0))
}

/// The time below which that share of them lies.
pub fn quantile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

/// Asks `/readyz` and `/health` all the time.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

/// What a [`Watch`] saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// When `/readyz` changed its status, and to which; the first entry is the status at the start.
    pub changes: Vec<(Instant, u16)>,
    /// How long each answer of `/readyz` took.
    pub readyz: Vec<Duration>,
    /// How long each answer of `/health` took.
    pub health: Vec<Duration>,
}

impl Watch {
    /// Starts; the watch ends with [`Watch::finish`].
    pub fn start(master: &Master) -> Watch {
        let address = master.admin_address();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !stopped.load(Ordering::Relaxed) {
                seen.look(address);
                std::thread::sleep(Duration::from_millis(15));
            }
            seen
        });
        Watch { stop, thread: Some(thread) }
    }

    /// Ends it.
    pub fn finish(mut self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("not finished before").join().expect("/health is 200 and /readyz answers")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Seen {
    fn look(&mut self, address: SocketAddr) {
        let began = Instant::now();
        let status = http(address, "GET", "/readyz").0;
        self.readyz.push(began.elapsed());
        assert!(status == 200 || status == 503, "/readyz: {status}");
        if self.changes.last().is_none_or(|(_, last)| *last != status) {
            self.changes.push((began, status));
        }
        let began = Instant::now();
        assert_eq!(http(address, "GET", "/health").0, 200);
        self.health.push(began.elapsed());
    }

    /// The statuses of `/readyz`, in order.
    pub fn statuses(&self) -> Vec<u16> {
        self.changes.iter().map(|(_, status)| *status).collect()
    }

    /// How long after `from` the first change to that status was.
    pub fn first(&self, status: u16, from: Instant) -> Option<Duration> {
        let mut later = self.changes.iter().filter(|(at, found)| *at >= from && *found == status);
        later.next().map(|(at, _)| at.duration_since(from))
    }
}

/// Waits until the list of active faults is empty.
pub fn wait_over(master: &Master, seconds: u64) {
    wait_for("the faults are over", seconds, || {
        let (_, body) = http(master.admin_address(), "GET", "/fault");
        body.contains("\"active\":[]").then_some(())
    });
}
