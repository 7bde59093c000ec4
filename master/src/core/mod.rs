//! The store itself: objects in 1024 shards, segments with their allocators, and the liveness of clients.
//!
//! Everything here is synchronous and never blocks on a shard: see [`crate::types::OpError::Busy`].

use crate::{
    clock::Clock,
    error::ErrorCode,
    permit::ServingPermit,
    types::{
        Attempt, ClientId, ClientStatus, CoreOptions, PutStart, ReplicaList, ReplicaType, Replicas,
        SegmentId, SegmentSpec, Walk, WalkCursor,
    },
};
use regex::bytes::Regex;
use std::sync::Arc;

/// Shards of the store.
pub const SHARDS: u16 = 1024;

/// The core: one per process.
#[derive(Debug)]
pub struct Core;

#[allow(unused_variables, missing_docs)]
impl Core {
    pub fn new(options: CoreOptions, clock: Arc<dyn Clock>, permit: Arc<ServingPermit>) -> Core {
        Core
    }
    pub fn exist_key(&self, key: &[u8]) -> Attempt<bool> {
        unimplemented!()
    }
    pub fn get_replica_list(&self, key: &[u8]) -> Attempt<ReplicaList> {
        unimplemented!()
    }
    pub fn put_start(&self, request: &PutStart<'_>) -> Attempt<Replicas> {
        unimplemented!()
    }
    pub fn upsert_start(&self, request: &PutStart<'_>) -> Attempt<Replicas> {
        unimplemented!()
    }
    pub fn put_end(
        &self,
        client: ClientId,
        key: &[u8],
        checksum: Option<u64>,
        kind: ReplicaType,
    ) -> Attempt<()> {
        unimplemented!()
    }
    pub fn put_revoke(&self, client: ClientId, key: &[u8], kind: ReplicaType) -> Attempt<()> {
        unimplemented!()
    }
    pub fn remove(&self, key: &[u8], force: bool) -> Attempt<()> {
        unimplemented!()
    }
    /// One step: at most 64 keys of one shard.
    pub fn remove_matching(
        &self,
        regex: Option<&Regex>,
        force: bool,
        cursor: &mut WalkCursor,
    ) -> Attempt<Walk> {
        unimplemented!()
    }
    /// One step: at most 64 keys of one shard.
    pub fn replica_lists_matching(
        &self,
        regex: &Regex,
        cursor: &mut WalkCursor,
        found: &mut Vec<(Box<[u8]>, Replicas)>,
    ) -> Attempt<Walk> {
        unimplemented!()
    }
    pub fn batch_replica_clear(&self, client: ClientId, key: &[u8], segment_name: &[u8]) -> Attempt<bool> {
        unimplemented!()
    }
    pub fn mount_segment(&self, client: ClientId, segment: SegmentSpec) -> Result<(), ErrorCode> {
        unimplemented!()
    }
    pub fn remount_segments(&self, client: ClientId, segments: Vec<SegmentSpec>) -> Result<(), ErrorCode> {
        unimplemented!()
    }
    pub fn unmount_segment(&self, segment: SegmentId, client: ClientId) -> Result<(), ErrorCode> {
        unimplemented!()
    }
    pub fn ping(&self, client: ClientId) -> ClientStatus {
        unimplemented!()
    }
    /// Whether the shard's lock could be read right now, without waiting (A2).
    pub fn try_read_shard(&self, shard: u16) -> bool {
        unimplemented!()
    }
}
