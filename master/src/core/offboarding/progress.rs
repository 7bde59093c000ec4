//! What is seen of a client's offboarding from outside, while its job is in other hands.

use crate::{core::segments::Segment, fault::FaultStep};
use std::sync::{
    Arc, Weak,
    atomic::{AtomicU32, AtomicUsize, Ordering},
};

/// Where a job stands; written by whoever works on it, read by anybody.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Index of the present step in [`FaultStep::OFFBOARDING`].
    step: AtomicUsize,
    failures: AtomicU32,
    /// Everything that the job was given: it lives no longer for being watched.
    segments: Box<[Weak<Segment>]>,
}

impl Progress {
    pub(crate) fn new(segments: &[Arc<Segment>]) -> Progress {
        Progress {
            step: AtomicUsize::new(0),
            failures: AtomicU32::new(0),
            segments: segments.iter().map(Arc::downgrade).collect(),
        }
    }

    pub(crate) fn enter(&self, step: FaultStep) {
        let at = FaultStep::OFFBOARDING.iter().position(|of| *of == step);
        debug_assert!(at.is_some(), "{step:?} is no step of offboarding");
        self.step.store(at.unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn step(&self) -> FaultStep {
        FaultStep::OFFBOARDING[self.step.load(Ordering::Relaxed)]
    }

    pub(crate) fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Segments that are still to be cleaned.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Arc<Segment>> {
        self.segments.iter().filter_map(Weak::upgrade)
    }
}
