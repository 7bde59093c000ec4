//! Taking resources out of the pool: unmounted segments, and everything of a client that is Offline (B9).
//!
//! Isolation happens at once, when a job is prepared; the job then only cleans up, in small steps on the background
//! thread, and what it costs follows from what the segments hold.

mod queue;

pub(crate) use queue::Offboarding;
pub use queue::{OFFBOARDING_BUCKETS_MS, OffboardingStats};

use crate::{
    clock::Instant,
    core::{
        Core,
        counters::add,
        liveness::{ClientLivenessRecord, LivenessState, Verdict},
        segments::Segment,
    },
    fault::FaultStep,
};
use std::{sync::Arc, time::Duration};

/// One piece of clean-up. Segments in it are closed already.
#[derive(Debug)]
pub(crate) struct OffboardingJob {
    /// The incarnation that is retired; `None` for an unmount. While the job exists it is a Mount/`ReMount` barrier.
    record: Option<Arc<ClientLivenessRecord>>,
    /// What is still to be cleaned; the last one is being worked on.
    segments: Vec<Arc<Segment>>,
    enqueued: Instant,
    /// Not before this, after a step that got nowhere.
    not_before: Instant,
    retries: u32,
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
    pub(crate) fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }
}

impl Core {
    /// The unmount of one segment, which is closed by this.
    pub(crate) fn prepare_unmount(segment: Arc<Segment>, now: Instant) -> OffboardingJob {
        segment.close();
        OffboardingJob { record: None, segments: vec![segment], enqueued: now, not_before: now, retries: 0 }
    }

    /// Commits Offline and isolates that incarnation at once, unless it was heard since `seen`. From here on its
    /// segments are neither readable nor allocatable, and its id may not mount until the job is complete.
    pub(crate) fn prepare_client_offboarding(
        &self,
        record: &Arc<ClientLivenessRecord>,
        seen: Verdict,
        now: Instant,
    ) -> Option<OffboardingJob> {
        // Under the registry's mutex no mount is under way, so none can add a segment to a dead incarnation.
        let registry = self.registry.lock();
        if !record.commit(seen, LivenessState::Offline, now) {
            return None;
        }
        // Those that are being unmounted, too: the barrier must outlast them. Cleaning twice does no harm.
        let segments = registry.owned_by(record);
        for segment in &segments {
            segment.close();
        }
        self.publish_placement(&registry);
        Some(OffboardingJob {
            record: Some(record.clone()),
            segments,
            enqueued: now,
            not_before: now,
            retries: 0,
        })
    }

    /// One step: at most 64 keys. The record goes only after everything else has (B9).
    pub(crate) fn complete_client_offboarding(&self, job: &mut OffboardingJob) -> Step {
        if let Some(segment) = job.segments.last() {
            if self.faults.fails(FaultStep::CleanSegment) {
                return Step::Stuck;
            }
            return match self.clean_segment(segment) {
                Step::Done if self.faults.fails(FaultStep::RemoveSegment) => Step::Stuck,
                Step::Done => {
                    self.registry.lock().remove(segment);
                    // Dropped outside every lock: this may free the whole allocator.
                    job.segments.pop();
                    Step::More
                }
                step => step,
            };
        }
        if let Some(record) = &job.record {
            if self.faults.fails(FaultStep::RemoveRecord) {
                return Step::Stuck;
            }
            let registry = self.registry.lock();
            debug_assert!(registry.owned_by(record).is_empty());
            self.clients.remove(record);
        }
        Step::Done
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
        add(&self.counters.offboarded_replicas, cleaned as u64);
        // Writers that met the same keys may have been faster; only if everything is still there is this stuck.
        if cleaned == 0 && segment.held() == held { Step::Stuck } else { Step::More }
    }

    /// Runs due jobs for at most `budget` steps: whether some have more to do at once.
    pub(crate) fn offboarding_tick(&self, now: Instant, mut budget: u32) -> bool {
        while budget > 0 && self.permit.held() {
            let Some(mut job) = self.offboarding.take_due(now) else { return false };
            let step = loop {
                let step = self.complete_client_offboarding(&mut job);
                budget -= 1;
                if step != Step::More || budget == 0 || !self.permit.held() {
                    break step;
                }
            };
            match step {
                Step::Done => self.offboarding.done(now.saturating_since(job.enqueued)),
                Step::More => self.offboarding.put_back(job),
                Step::Stuck => {
                    let wait = Duration::from_millis(200) * 2u32.pow(job.retries.min(5));
                    job.retries += 1;
                    job.not_before = now.saturating_add(wait);
                    self.offboarding.retry(job);
                }
            }
        }
        self.offboarding.has_due(now)
    }
}
