//! Jobs that wait, and what became of the others.

use super::{OffboardingJob, Progress};
use crate::{clock::Instant, core::counters::add, lock::Mutex, types::ClientId};
use hashbrown::HashMap;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Upper bounds of the histogram of job durations, milliseconds (facts §11.2); one more bucket lies above.
pub const OFFBOARDING_BUCKETS_MS: [u64; 11] = [1, 5, 10, 25, 50, 100, 250, 500, 1000, 5000, 30_000];

/// The offboarding queue.
#[derive(Debug)]
pub(crate) struct Offboarding {
    /// Jobs at the most. Whoever would make one more waits: a client stays Suspected, an unmount is refused.
    limit: u64,
    jobs: Mutex<VecDeque<OffboardingJob>>,
    /// Of the clients' jobs; a client has one at the most.
    progress: Mutex<HashMap<ClientId, Arc<Progress>>>,
    /// Jobs that are not complete, running and announced ones included.
    depth: AtomicU64,
    failures: AtomicU64,
    retries: AtomicU64,
    refused: AtomicU64,
    visited: AtomicU64,
    work_nanos: AtomicU64,
    total_ms: AtomicU64,
    buckets: [AtomicU64; OFFBOARDING_BUCKETS_MS.len() + 1],
}

/// What the offboarding queue shows to the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffboardingStats {
    /// Jobs that are not complete.
    pub queue_depth: u64,
    /// Steps that got nowhere.
    pub failures: u64,
    /// Jobs that were taken up again after such a step.
    pub retries: u64,
    /// Jobs that were put off because the queue was full.
    pub refused: u64,
    /// Keys that were looked at.
    pub visited_keys: u64,
    /// Time spent in steps, waiting for shards included, nanoseconds.
    pub work_nanos: u64,
    /// Sum of the durations of completed jobs, milliseconds.
    pub duration_ms_sum: u64,
    /// Completed jobs by duration: one count for each bound of [`OFFBOARDING_BUCKETS_MS`], and one above.
    pub duration_buckets: [u64; OFFBOARDING_BUCKETS_MS.len() + 1],
}

impl Offboarding {
    pub(crate) fn new(limit: u64) -> Offboarding {
        Offboarding {
            limit,
            jobs: Mutex::default(),
            progress: Mutex::default(),
            depth: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            visited: AtomicU64::new(0),
            work_nanos: AtomicU64::new(0),
            total_ms: AtomicU64::new(0),
            buckets: Default::default(),
        }
    }

    /// Announces one more job, if there is room for it. Nothing is closed or retired before this said yes.
    pub(crate) fn reserve(&self) -> bool {
        let room = |depth: u64| (depth < self.limit).then_some(depth + 1);
        let reserved = self.depth.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok();
        if !reserved {
            add(&self.refused, 1);
        }
        reserved
    }

    /// The announced job was not made.
    pub(crate) fn cancel(&self) {
        self.depth.fetch_sub(1, Ordering::Relaxed);
    }

    /// Shows a client's job from now on until it is done.
    pub(crate) fn show(&self, client: ClientId, progress: Arc<Progress>) {
        self.progress.lock().insert(client, progress);
    }

    pub(crate) fn progress(&self, client: ClientId) -> Option<Arc<Progress>> {
        self.progress.lock().get(&client).cloned()
    }

    /// Waits its turn (again).
    pub(crate) fn put_back(&self, job: OffboardingJob) {
        self.jobs.lock().push_back(job);
    }

    pub(crate) fn take_due(&self, now: Instant) -> Option<OffboardingJob> {
        let mut jobs = self.jobs.lock();
        let at = jobs.iter().position(|job| job.not_before <= now)?;
        jobs.remove(at)
    }

    pub(crate) fn has_due(&self, now: Instant) -> bool {
        self.jobs.lock().iter().any(|job| job.not_before <= now)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.depth.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn note_failure(&self) {
        add(&self.failures, 1);
    }

    pub(crate) fn note_retry(&self) {
        add(&self.retries, 1);
    }

    pub(crate) fn note_visited(&self, keys: usize) {
        add(&self.visited, keys as u64);
    }

    pub(crate) fn note_work(&self, took: Duration) {
        add(&self.work_nanos, took.as_nanos() as u64);
    }

    /// A job is complete; `client` if it was one's.
    pub(crate) fn done(&self, client: Option<ClientId>, took: Duration) {
        if let Some(client) = client {
            self.progress.lock().remove(&client);
        }
        let ms = took.as_millis() as u64;
        self.depth.fetch_sub(1, Ordering::Relaxed);
        add(&self.total_ms, ms);
        add(&self.buckets[OFFBOARDING_BUCKETS_MS.partition_point(|&bound| bound < ms)], 1);
    }

    pub(crate) fn stats(&self) -> OffboardingStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        OffboardingStats {
            queue_depth: read(&self.depth),
            failures: read(&self.failures),
            retries: read(&self.retries),
            refused: read(&self.refused),
            visited_keys: read(&self.visited),
            work_nanos: read(&self.work_nanos),
            duration_ms_sum: read(&self.total_ms),
            duration_buckets: std::array::from_fn(|at| read(&self.buckets[at])),
        }
    }
}
