//! Remove and `BatchReplicaClear` (facts §3.5, §1.2).

use super::{Object, Replica};
use crate::{
    clock::Instant,
    core::Core,
    error::ErrorCode,
    types::{Attempt, ClientId, ReplicaType},
};

/// Whether an object may be removed now. A force overrides the lease, never a write under way.
pub(super) fn removable(object: &Object, force: bool, now: Instant) -> Result<(), ErrorCode> {
    if !force && object.is_leased(now) {
        return Err(ErrorCode::ObjectHasLease);
    }
    if object.is_unfinished() {
        return Err(ErrorCode::ReplicaIsNotReady);
    }
    Ok(())
}

impl Core {
    /// Removes an object; its memory is free at once.
    ///
    /// # Errors
    /// `Busy`; `ObjectNotFound`; `ObjectHasLease`, unless forced; `ReplicaIsNotReady`: it is being written.
    pub fn remove(&self, key: &[u8], force: bool) -> Attempt<()> {
        let hash = self.store.hash(key);
        let mut shard = self.store.write(hash)?;
        let position = shard.live_position(hash, key).ok_or(ErrorCode::ObjectNotFound)?;
        let object = shard.at(position).ok_or(ErrorCode::ObjectNotFound)?;
        removable(object, force, self.clock.now())?;
        shard.erase(hash, position);
        Ok(())
    }

    /// A client dropped the file of a DISK replica; without such a replica it is a success. The object goes with its last
    /// replica. There are no `LocalDisk` replicas in this version, so for that kind nothing happens.
    ///
    /// # Errors
    /// `Busy`; `ObjectNotFound`; `InvalidParams`: another kind of replica.
    pub fn evict_disk_replica(&self, key: &[u8], kind: ReplicaType) -> Attempt<()> {
        let hash = self.store.hash(key);
        let mut shard = self.store.write(hash)?;
        let position = shard.live_position(hash, key).ok_or(ErrorCode::ObjectNotFound)?;
        match kind {
            ReplicaType::Disk => {
                shard.change(hash, position, |object| drop(object.set_disk(None)));
                Ok(())
            }
            ReplicaType::LocalDisk => Ok(()),
            _ => Err(ErrorCode::InvalidParams.into()),
        }
    }

    /// One key of a `BatchReplicaClear`: the client's own finished object without a lease loses its replicas on that
    /// segment, or all of them if the name is empty. Whether anything was cleared; what does not qualify is left
    /// alone without an error.
    ///
    /// # Errors
    /// `Busy` only.
    pub fn batch_replica_clear(&self, client: ClientId, key: &[u8], segment_name: &[u8]) -> Attempt<bool> {
        let hash = self.store.hash(key);
        let mut shard = self.store.write(hash)?;
        let Some(position) = shard.live_position(hash, key) else { return Ok(false) };
        let now = self.clock.now();
        let cleared = shard.change(hash, position, |object| {
            if object.writer() != client || object.is_leased(now) {
                return false;
            }
            if segment_name.is_empty() && object.is_unfinished() {
                return false;
            }
            let meant = |replica: &Replica| {
                replica.is_complete() && (segment_name.is_empty() || replica.is_named(segment_name))
            };
            let on_disk = segment_name.is_empty() && object.set_disk(None).is_some();
            !object.extract(meant).is_empty() || on_disk
        });
        Ok(cleared == Some(true))
    }
}
