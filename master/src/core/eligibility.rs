//! The one seam that decides whether a client's resources may be used, and whether the client itself may write. A test
//! (`tests/architecture.rs`) fails when another module looks at the liveness of clients.

use super::{Core, liveness::LivenessState, segments::Segment};
use crate::{
    error::ErrorCode,
    types::{Attempt, ClientId},
};

/// What a segment's memory, and every replica in it, is good for right now (B6): the segment's own life cycle and
/// its owner's liveness taken together. Two atomic loads, so a change of either holds at once everywhere without
/// touching a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServingEligibility {
    /// It serves: reads, allocations, whatever else starts new dependencies.
    Serving,
    /// Its owner is Suspected: kept, but nothing new may depend on it (B7).
    Suspended,
    /// Unmounting, or its owner is Offline: it never comes back, and what is in it counts as absent.
    Gone,
}

impl ServingEligibility {
    pub(crate) fn of(segment: &Segment) -> ServingEligibility {
        if segment.is_unmounting() {
            return ServingEligibility::Gone;
        }
        match segment.owner().state() {
            LivenessState::Active => ServingEligibility::Serving,
            LivenessState::Suspected => ServingEligibility::Suspended,
            LivenessState::Offline => ServingEligibility::Gone,
        }
    }

    pub(crate) fn can_serve(self) -> bool {
        self == ServingEligibility::Serving
    }

    /// Whether what depends on it is kept (B6).
    pub(crate) fn should_retain_resources(self) -> bool {
        self != ServingEligibility::Gone
    }
}

impl Core {
    /// B7: a client without a record may write, a Suspected one, too; only one that is Offline is refused.
    pub(crate) fn refuse_offline(&self, client: ClientId) -> Attempt<()> {
        match self.clients.with(client, |record| record.state()) {
            Some(LivenessState::Offline) => Err(ErrorCode::IllegalClient.into()),
            _ => Ok(()),
        }
    }
}
