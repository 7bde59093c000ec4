//! Who completes a client's offboarding (B9): one interface, one state semantics, two ways.

use super::{OffboardingJob, Step};
use crate::{core::Core, types::OffboardingMode};
use std::fmt;

/// Takes jobs whose client is Offline and isolated already. Whatever the way, the record stays as the Mount/`ReMount`
/// barrier until every step has succeeded, and a step that got nowhere is tried again later.
pub(crate) trait OffboardingExecutor: Send + Sync + fmt::Debug {
    /// Sees to the completion of a job, for which there is room in the queue.
    fn submit(&self, core: &Core, job: OffboardingJob);
}

/// That of a mode.
pub(crate) fn executor(mode: OffboardingMode) -> Box<dyn OffboardingExecutor> {
    match mode {
        OffboardingMode::Sync => Box::new(Synchronous),
        OffboardingMode::Async => Box::new(Asynchronous),
    }
}

/// In the background, in turns with the other jobs.
#[derive(Debug)]
struct Asynchronous;

impl OffboardingExecutor for Asynchronous {
    fn submit(&self, core: &Core, job: OffboardingJob) {
        core.offboarding.put_back(job);
    }
}

/// On the thread that retired the client, before it judges the next one. Only what gets stuck, or what is left when the
/// permit ends, goes to the background.
#[derive(Debug)]
struct Synchronous;

impl OffboardingExecutor for Synchronous {
    fn submit(&self, core: &Core, mut job: OffboardingJob) {
        let began = core.clock.now();
        let mut step = Step::More;
        while step == Step::More && core.permit.held() {
            step = core.complete_client_offboarding(&mut job);
        }
        core.settle_job(job, step, began);
    }
}
