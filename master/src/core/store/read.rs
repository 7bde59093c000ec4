//! `ExistKey` and `GetReplicaList` (facts §3.3). Both grant the read lease under the shared lock.

use crate::{
    core::Core,
    error::ErrorCode,
    types::{Attempt, ObjectInfo, ReplicaList},
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
        let Some(object) = shard.find(hash, key) else { return Ok(false) };
        if !object.is_readable() {
            return Ok(false);
        }
        let until = self.clock.now().saturating_add(self.options.read_lease_ttl);
        Ok(match self.options.exist_lease_bound {
            None => object.lease().extend(until),
            Some(bound) => object.lease().probe(until, bound),
        })
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
        let hash = self.store.hash(key);
        let shard = self.store.read(hash)?;
        let object = shard.find(hash, key).ok_or(ErrorCode::ObjectNotFound)?;
        let replicas = object.describe_readable();
        if replicas.is_empty() {
            let code =
                if object.is_gone() { ErrorCode::ObjectNotFound } else { ErrorCode::ReplicaIsNotReady };
            return Err(code.into());
        }
        let ttl = self.options.read_lease_ttl;
        if !object.lease().extend(self.clock.now().saturating_add(ttl)) {
            // Its group was evicted just now.
            return Err(ErrorCode::ObjectNotFound.into());
        }
        Ok(ReplicaList { replicas, lease_ttl_ms: ttl.as_millis() as u64, object_checksum: object.checksum() })
    }
}
