//! `ExistKey` and `GetReplicaList` (facts §3.3). Both grant the read lease under the shared lock.

use super::Object;
use crate::{
    clock::Instant,
    core::Core,
    error::ErrorCode,
    types::{Attempt, ObjectInfo, ReplicaList, ReplicaListRef},
};

impl Core {
    /// Whether the key can be read; if so its read lease is extended, by no more than
    /// [`CoreOptions::exist_lease_bound`](crate::types::CoreOptions::exist_lease_bound) in all since the last use.
    ///
    /// # Errors
    /// `Busy` only.
    pub fn exist_key(&self, key: &[u8]) -> Attempt<bool> {
        let hash = self.store.hash(key);
        let shard = self.store.read(hash)?;
        Ok(self.probe(shard.find(hash, key), &mut LeaseEnd::default()))
    }

    /// [`Core::exist_key`] of the first of `keys`, in their order. Returns how many it has told: at most [`TOGETHER`];
    /// none only if the first is busy.
    ///
    /// [`TOGETHER`]: crate::core::TOGETHER
    pub fn exist_keys(&self, keys: &[&[u8]], mut each: impl FnMut(bool)) -> usize {
        let mut until = LeaseEnd::default();
        self.store.read_together(keys, |object| each(self.probe(object, &mut until)))
    }

    fn probe(&self, object: Option<&Object>, until: &mut LeaseEnd) -> bool {
        let Some(object) = object.filter(|object| object.is_readable()) else { return false };
        let until = until.get(self);
        match self.options.exist_lease_bound {
            None => object.lease().extend(until),
            Some(bound) => object.lease().probe(until, bound),
        }
    }

    /// All about one object, for diagnostics: grants no lease, hides nothing (B13). `None` without such a key.
    ///
    /// # Errors
    /// `Busy` only.
    pub fn object_info(&self, key: &[u8]) -> Attempt<Option<ObjectInfo>> {
        let hash = self.store.hash(key);
        let shard = self.store.read(hash)?;
        let object = shard.find(hash, key).filter(|object| !object.is_doomed());
        Ok(object.map(|object| object.info(self.clock.now())))
    }

    /// Where the value can be read, with the read lease that this grants.
    ///
    /// # Errors
    /// `Busy`; `ObjectNotFound`: no such key, or all of it lay in memory that has left the pool for good;
    /// `ReplicaIsNotReady`: it is being written, or all that have it are Suspected (B7).
    pub fn get_replica_list(&self, key: &[u8]) -> Attempt<ReplicaList> {
        let mut found = Err(ErrorCode::InternalError);
        self.see_replica_list(key, |list| found = list.map(|list| list.detach()))?;
        Ok(found?)
    }

    /// [`Core::get_replica_list`] without a copy: `see` sees the list while its shard is held, so it does nothing but write
    /// it down.
    ///
    /// # Errors
    /// `Busy` only.
    pub fn see_replica_list(
        &self,
        key: &[u8],
        see: impl FnOnce(Result<ReplicaListRef<'_>, ErrorCode>),
    ) -> Attempt<()> {
        let hash = self.store.hash(key);
        let shard = self.store.read(hash)?;
        see(self.list(shard.find(hash, key), &mut LeaseEnd::default()));
        Ok(())
    }

    /// [`Core::get_replica_list`] of the first of `keys`, in their order, without a copy: `each` sees a list while its
    /// shard is held, so it does nothing but write it down. Returns how many it has told: at most [`TOGETHER`]; none only
    /// if the first is busy.
    ///
    /// [`TOGETHER`]: crate::core::TOGETHER
    pub fn get_replica_lists(
        &self,
        keys: &[&[u8]],
        mut each: impl FnMut(Result<ReplicaListRef<'_>, ErrorCode>),
    ) -> usize {
        let mut until = LeaseEnd::default();
        self.store.read_together(keys, |object| each(self.list(object, &mut until)))
    }

    fn list<'a>(
        &self,
        object: Option<&'a Object>,
        until: &mut LeaseEnd,
    ) -> Result<ReplicaListRef<'a>, ErrorCode> {
        let object = object.ok_or(ErrorCode::ObjectNotFound)?;
        let replicas = object.readable();
        if replicas.is_empty() {
            let is_gone = object.is_gone();
            return Err(if is_gone { ErrorCode::ObjectNotFound } else { ErrorCode::ReplicaIsNotReady });
        }
        if !object.lease().extend(until.get(self)) {
            // Its group was evicted just now.
            return Err(ErrorCode::ObjectNotFound);
        }
        let lease_ttl_ms = self.options.read_lease_ttl.as_millis() as u64;
        Ok(ReplicaListRef { replicas, lease_ttl_ms, object_checksum: object.checksum() })
    }
}

/// When leases end that are granted under one hold: the clock is read once, when the first is.
#[derive(Default)]
struct LeaseEnd(Option<Instant>);

impl LeaseEnd {
    fn get(&mut self, core: &Core) -> Instant {
        *self.0.get_or_insert_with(|| core.clock.now().saturating_add(core.options.read_lease_ttl))
    }
}
