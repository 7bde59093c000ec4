//! Replicas in memory: ranges of segments that belong to an object.

use crate::{
    clock::Instant,
    core::{
        eligibility::ServingEligibility,
        segments::{NO_RANGE, Placed, RangeIndex, Segment},
    },
    types::{LivenessState, ReplicaDescriptor, ReplicaRef, ReplicaStatus},
};
use smallvec::SmallVec;
use std::{mem, sync::Arc};

/// A value's copy in one segment. It owns its range there: dropped, the range is free again.
#[derive(Debug)]
pub(crate) struct Replica {
    segment: Arc<Segment>,
    address: u64,
    id: u64,
    range: RangeIndex,
    status: ReplicaStatus,
    /// Of its object.
    hard_pinned: bool,
}

impl Replica {
    /// A replica that is still to be written, in a range just allocated.
    pub(crate) fn new(placed: Placed, id: u64, hard_pinned: bool) -> Replica {
        let Placed { segment, range, address } = placed;
        Replica { segment, address, id, range, status: ReplicaStatus::Processing, hard_pinned }
    }

    pub(crate) fn eligibility(&self) -> ServingEligibility {
        ServingEligibility::of(&self.segment)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.status == ReplicaStatus::Complete
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.is_complete() && self.eligibility().can_serve()
    }

    pub(crate) fn set_status(&mut self, status: ReplicaStatus) {
        self.status = status;
    }

    pub(crate) fn is_named(&self, segment_name: &[u8]) -> bool {
        *self.segment.spec().name == *segment_name
    }

    /// Whether it lies in that range of that very incarnation of a segment.
    pub(crate) fn is_at(&self, segment: &Segment, range: RangeIndex) -> bool {
        self.range == range && std::ptr::eq(&raw const *self.segment, segment)
    }

    /// Ends the replica, but keeps its range out of use until `due`: its writer may still be writing.
    pub(crate) fn set_aside(mut self, due: Instant) {
        self.segment.set_aside(mem::replace(&mut self.range, NO_RANGE), self.hard_pinned, due);
    }

    pub(super) fn as_ref(&self, size: u64) -> ReplicaRef<'_> {
        ReplicaRef {
            id: self.id,
            status: self.status,
            address: self.address,
            size,
            segment: self.segment.spec(),
        }
    }

    pub(super) fn describe(&self, size: u64) -> ReplicaDescriptor {
        self.as_ref(size).detach()
    }

    /// Of the client in whose memory it lies, for diagnostics (B13).
    pub(super) fn owner_state(&self) -> LivenessState {
        self.segment.owner().state()
    }

    #[cfg(test)]
    pub(crate) fn place(&self) -> (crate::types::SegmentId, u64, u64) {
        (self.segment.spec().id, self.address, self.id)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if self.range != NO_RANGE {
            self.segment.release(self.range, self.hard_pinned);
        }
    }
}

/// The replicas of an object; nearly always one.
#[derive(Debug)]
pub(super) enum ReplicaSet {
    One(Replica),
    /// Any other number; none only until the object is erased or gets others.
    Many(Vec<Replica>),
}

impl From<SmallVec<[Replica; 1]>> for ReplicaSet {
    fn from(mut replicas: SmallVec<[Replica; 1]>) -> ReplicaSet {
        match replicas.len() {
            1 => replicas.pop().map_or(ReplicaSet::Many(Vec::new()), ReplicaSet::One),
            _ => ReplicaSet::Many(replicas.into_vec()),
        }
    }
}

impl ReplicaSet {
    pub(super) fn as_slice(&self) -> &[Replica] {
        match self {
            ReplicaSet::One(replica) => std::slice::from_ref(replica),
            ReplicaSet::Many(replicas) => replicas,
        }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [Replica] {
        match self {
            ReplicaSet::One(replica) => std::slice::from_mut(replica),
            ReplicaSet::Many(replicas) => replicas,
        }
    }

    /// Takes out every replica for which `take` holds.
    pub(super) fn extract(&mut self, take: impl Fn(&Replica) -> bool) -> SmallVec<[Replica; 1]> {
        if !self.as_slice().iter().any(&take) {
            return SmallVec::new();
        }
        let all = match mem::replace(self, ReplicaSet::Many(Vec::new())) {
            ReplicaSet::One(replica) => SmallVec::from_buf([replica]),
            ReplicaSet::Many(replicas) => SmallVec::from_vec(replicas),
        };
        let (taken, kept): (SmallVec<[Replica; 1]>, SmallVec<[Replica; 1]>) =
            all.into_iter().partition(&take);
        *self = kept.into();
        taken
    }
}
