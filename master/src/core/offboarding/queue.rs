//! Jobs that wait, and what became of the others.

use super::OffboardingJob;
use crate::{clock::Instant, core::counters::add, lock::Mutex};
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the histogram of job durations, milliseconds (facts §11.2); one more bucket lies above.
pub const OFFBOARDING_BUCKETS_MS: [u64; 11] = [1, 5, 10, 25, 50, 100, 250, 500, 1000, 5000, 30_000];

/// The offboarding queue.
#[derive(Debug, Default)]
pub(crate) struct Offboarding {
    jobs: Mutex<VecDeque<OffboardingJob>>,
    /// Jobs that are not complete, the running one included.
    depth: AtomicU64,
    retries: AtomicU64,
    total_ms: AtomicU64,
    buckets: [AtomicU64; OFFBOARDING_BUCKETS_MS.len() + 1],
}

/// What the offboarding queue shows to the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffboardingStats {
    /// Jobs that are not complete.
    pub queue_depth: u64,
    /// Jobs that had to be tried again.
    pub retries: u64,
    /// Sum of the durations of completed jobs, milliseconds.
    pub duration_ms_sum: u64,
    /// Completed jobs by duration: one count for each bound of [`OFFBOARDING_BUCKETS_MS`], and one above.
    pub duration_buckets: [u64; OFFBOARDING_BUCKETS_MS.len() + 1],
}

impl Offboarding {
    pub(crate) fn enqueue(&self, job: OffboardingJob) {
        add(&self.depth, 1);
        self.put_back(job);
    }

    pub(crate) fn put_back(&self, job: OffboardingJob) {
        self.jobs.lock().push_back(job);
    }

    pub(crate) fn retry(&self, job: OffboardingJob) {
        add(&self.retries, 1);
        self.put_back(job);
    }

    pub(crate) fn take_due(&self, now: Instant) -> Option<OffboardingJob> {
        let mut jobs = self.jobs.lock();
        let at = jobs.iter().position(|job| job.not_before <= now)?;
        jobs.remove(at)
    }

    pub(crate) fn has_due(&self, now: Instant) -> bool {
        self.jobs.lock().iter().any(|job| job.not_before <= now)
    }

    pub(crate) fn done(&self, took: Duration) {
        let ms = took.as_millis() as u64;
        self.depth.fetch_sub(1, Ordering::Relaxed);
        add(&self.total_ms, ms);
        add(&self.buckets[OFFBOARDING_BUCKETS_MS.partition_point(|&bound| bound < ms)], 1);
    }

    pub(crate) fn stats(&self) -> OffboardingStats {
        OffboardingStats {
            queue_depth: self.depth.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            duration_ms_sum: self.total_ms.load(Ordering::Relaxed),
            duration_buckets: std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed)),
        }
    }
}
