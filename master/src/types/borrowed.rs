//! Answers as they stand in the store: what is written down at once need not be copied first.

use super::{DiskDescriptor, ReplicaDescriptor, ReplicaList, ReplicaStatus, Replicas, SegmentSpec};
use smallvec::SmallVec;
use std::sync::Arc;

/// A [`ReplicaDescriptor`] in the store.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaRef<'a> {
    /// Unique in the process.
    pub id: u64,
    /// Processing in the answer to a Start, Complete in the answer to a read.
    pub status: ReplicaStatus,
    /// First byte, in the owner's address space.
    pub address: u64,
    /// Bytes of the value.
    pub size: u64,
    /// The segment in which it lies.
    pub segment: &'a Arc<SegmentSpec>,
}

/// [`Replicas`] in the store.
#[derive(Clone, Debug, Default)]
pub struct ReplicasRef<'a> {
    /// In the memory of clients.
    pub memory: SmallVec<[ReplicaRef<'a>; 1]>,
    /// In a file.
    pub disk: Option<DiskDescriptor>,
}

/// A [`ReplicaList`] in the store.
#[derive(Clone, Debug)]
pub struct ReplicaListRef<'a> {
    /// Readable replicas, at least one.
    pub replicas: ReplicasRef<'a>,
    /// The read lease that was granted, milliseconds.
    pub lease_ttl_ms: u64,
    /// What the writer said at its End.
    pub object_checksum: Option<u64>,
}

impl ReplicaDescriptor {
    /// Without a copy.
    pub fn borrow(&self) -> ReplicaRef<'_> {
        let ReplicaDescriptor { id, status, address, size, ref segment } = *self;
        ReplicaRef { id, status, address, size, segment }
    }
}

impl ReplicaRef<'_> {
    /// A copy that outlives the hold.
    pub fn detach(self) -> ReplicaDescriptor {
        let ReplicaRef { id, status, address, size, segment } = self;
        ReplicaDescriptor { id, status, address, size, segment: segment.clone() }
    }
}

impl ReplicasRef<'_> {
    /// Whether there is none of any kind.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.disk.is_none()
    }

    /// How many there are of all kinds.
    pub fn count(&self) -> usize {
        self.memory.len() + usize::from(self.disk.is_some())
    }

    /// Bytes of the value.
    pub fn value_size(&self) -> u64 {
        let of_disk = || self.disk.as_ref().map_or(0, |disk| disk.size);
        self.memory.first().map_or_else(of_disk, |replica| replica.size)
    }

    /// A copy that outlives the hold.
    pub fn detach(&self) -> Replicas {
        Replicas {
            memory: self.memory.iter().map(|replica| replica.detach()).collect(),
            disk: self.disk.clone(),
        }
    }
}

impl ReplicaListRef<'_> {
    /// A copy that outlives the hold.
    pub fn detach(&self) -> ReplicaList {
        ReplicaList {
            replicas: self.replicas.detach(),
            lease_ttl_ms: self.lease_ttl_ms,
            object_checksum: self.object_checksum,
        }
    }
}
