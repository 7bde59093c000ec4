//! Taking resources out of the pool: unmounted segments, and everything of a client that is Offline (B9).
//!
//! Isolation happens at once, when a job is prepared; the job then only cleans up, in small steps, and what it costs
//! follows from what the segments hold. Who takes the steps is the executor's choice; an unmount is always cleaned up
//! in the background.

mod executor;
mod progress;
mod queue;

pub(crate) use executor::{OffboardingExecutor, executor};
pub(crate) use progress::Progress;
pub(crate) use queue::Offboarding;
pub use queue::{OFFBOARDING_BUCKETS_MS, OffboardingStats};

use crate::{
    clock::Instant,
    core::{
        Core,
        counters::add,
        liveness::{ClientLivenessRecord, Verdict},
        segments::Segment,
    },
    fault::FaultStep,
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// What other parts of the process keep about segments by their names.
pub trait ExternalMetadata: Send + Sync {
    /// Drops what was written about the segment until then: its client is gone for good. What is newer belongs to a later
    /// incarnation, or to another process at that address. Must not wait for anything.
    fn forget(&self, segment_name: &[u8], written_until: Instant);
}

/// The pause after a first failure; it doubles with each further one, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(6400);
/// Each pause is longer or shorter by up to this share, so that jobs which failed together do not come back together.
const JITTER: f64 = 0.25;

/// One piece of clean-up. Segments in it are closed already.
#[derive(Debug)]
pub(crate) struct OffboardingJob {
    /// The incarnation that is retired; `None` for an unmount. While the job exists it is a Mount/`ReMount` barrier.
    record: Option<Arc<ClientLivenessRecord>>,
    /// What is still to be cleaned; the last one is being worked on.
    segments: Vec<Arc<Segment>>,
    progress: Arc<Progress>,
    /// Names under which others keep something about the segments of a retired client.
    names: BTreeSet<Arc<[u8]>>,
    /// A time at which that client was silent already: what was written later is not its own.
    silent_since: Instant,
    enqueued: Instant,
    /// Not before this, after a step that got nowhere.
    not_before: Instant,
    failures: u32,
    /// Whether the last step got nowhere.
    failed: bool,
}

/// How a step of a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Call again.
    More,
    /// Nothing could be done, although something is left: call again later.
    Stuck,
    /// The job is complete.
    Done,
}

impl OffboardingJob {
    fn new(
        record: Option<Arc<ClientLivenessRecord>>,
        segments: Vec<Arc<Segment>>,
        now: Instant,
    ) -> OffboardingJob {
        let progress = Arc::new(Progress::new(&segments));
        OffboardingJob {
            record,
            segments,
            progress,
            names: BTreeSet::new(),
            silent_since: now,
            enqueued: now,
            not_before: now,
            failures: 0,
            failed: false,
        }
    }

    pub(crate) fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    fn back_off(&mut self, now: Instant) {
        let pause = LONGEST_PAUSE.min(PAUSE * 2u32.saturating_pow(self.failures));
        let jitter = 1.0 - JITTER + 2.0 * JITTER * rand::random::<f64>();
        self.failures += 1;
        self.failed = true;
        self.not_before = now.saturating_add(pause.mul_f64(jitter));
        self.progress.note_failure();
    }
}

impl Core {
    /// The unmount of one segment, which is closed by this. There is room for it in the queue.
    pub(crate) fn prepare_unmount(segment: Arc<Segment>, now: Instant) -> OffboardingJob {
        segment.close();
        OffboardingJob::new(None, vec![segment], now)
    }

    /// Commits Offline and isolates that incarnation at once, unless it was heard since `seen`. From here on its
    /// segments are neither readable nor allocatable, and its id may not mount until the job is complete. There is
    /// room for it in the queue.
    pub(crate) fn prepare_client_offboarding(
        &self,
        record: &Arc<ClientLivenessRecord>,
        seen: Verdict,
        now: Instant,
    ) -> Option<OffboardingJob> {
        // Under the registry's mutex no mount is under way, so none can add a segment to a dead incarnation.
        let mut registry = self.registry.lock();
        if !record.retire(seen, now) {
            return None;
        }
        // Those that are being unmounted, too: the barrier must outlast them. Cleaning twice does no harm.
        let segments = registry.owned_by(record);
        for segment in &segments {
            segment.close();
        }
        if !segments.is_empty() {
            self.change_placement(&mut registry, |placement| {
                for segment in &segments {
                    placement.remove(segment);
                }
            });
        }
        let mut job = OffboardingJob::new(Some(record.clone()), segments, now);
        job.names = job.segments.iter().map(|segment| segment.spec().name.clone()).collect();
        // It was silent for the active TTL before it became Suspected, which was at that time.
        job.silent_since = seen.since().saturating_sub(self.options.client_active_ttl);
        self.offboarding.show(record.id(), job.progress.clone());
        Some(job)
    }

    /// One step: at most 64 keys. The record goes only after everything else has (B9).
    pub(crate) fn complete_client_offboarding(&self, job: &mut OffboardingJob) -> Step {
        if std::mem::take(&mut job.failed) {
            self.offboarding.note_retry();
        }
        if let Some(segment) = job.segments.last() {
            job.progress.enter(FaultStep::CleanSegment);
            if self.faults.fails(FaultStep::CleanSegment) {
                return Step::Stuck;
            }
            let cleaned = self.clean_segment(segment);
            if cleaned != Step::Done {
                return cleaned;
            }
            job.progress.enter(FaultStep::RemoveSegment);
            if self.faults.fails(FaultStep::RemoveSegment) {
                return Step::Stuck;
            }
            self.registry.lock().remove(segment);
            // Dropped outside every lock: this may free the whole allocator.
            job.segments.pop();
            return Step::More;
        }
        if let Some(record) = &job.record {
            job.progress.enter(FaultStep::RemoveRecord);
            if self.faults.fails(FaultStep::RemoveRecord) {
                return Step::Stuck;
            }
            self.forget_externally(job);
            let registry = self.registry.lock();
            debug_assert!(registry.owned_by(record).is_empty());
            self.clients.remove(record);
        }
        Step::Done
    }

    /// Drops what is kept elsewhere about the segments of the job's client, but for names under which somebody else, a later
    /// incarnation as a rule, has mounted memory again.
    fn forget_externally(&self, job: &OffboardingJob) {
        let Some(external) = &self.external else { return };
        for name in job.names.iter().filter(|name| !self.has_segment_named(name)) {
            external.forget(name, job.silent_since);
        }
    }

    /// Takes at most 64 keys (or ranges set aside) out of a closed segment.
    fn clean_segment(&self, segment: &Segment) -> Step {
        if segment.release_aside(Instant::MAX) > 0 {
            return Step::More;
        }
        let held = segment.held();
        if held.is_empty() {
            return Step::Done;
        }
        let cleaned = self.remove_held(segment, &held);
        self.offboarding.note_visited(held.len());
        add(&self.counters.offboarded_replicas, cleaned as u64);
        // Writers that met the same keys may have been faster; only if everything is still there is this stuck, and
        // without the permit nothing was tried.
        let stuck = cleaned == 0 && self.permit.held() && segment.held() == held;
        if stuck { Step::Stuck } else { Step::More }
    }

    /// What becomes of a job after its last step for now; the steps began at `began`.
    pub(crate) fn settle_job(&self, mut job: OffboardingJob, step: Step, began: Instant) {
        let now = self.clock.now();
        self.offboarding.note_work(now.saturating_since(began));
        match step {
            Step::Done => {
                let client = job.record.as_ref().map(|record| record.id());
                self.offboarding.done(client, now.saturating_since(job.enqueued));
            }
            Step::More => self.offboarding.put_back(job),
            Step::Stuck => {
                self.offboarding.note_failure();
                job.back_off(now);
                self.offboarding.put_back(job);
            }
        }
    }

    /// Runs due jobs for at most `budget` steps: whether some have more to do at once.
    pub(crate) fn offboarding_tick(&self, now: Instant, mut budget: u32) -> bool {
        while budget > 0 && self.permit.held() {
            let Some(mut job) = self.offboarding.take_due(now) else { return false };
            let began = self.clock.now();
            let step = loop {
                let step = self.complete_client_offboarding(&mut job);
                budget -= 1;
                if step != Step::More || budget == 0 || !self.permit.held() {
                    break step;
                }
            };
            self.settle_job(job, step, began);
        }
        self.offboarding.has_due(now)
    }

    /// Whether nothing is left to be cleaned up.
    pub fn is_offboarded(&self) -> bool {
        self.offboarding.is_empty()
    }
}
