//! Looks at objects that change nothing: no read lease, no order of eviction.

use super::{Object, walk};
use crate::{
    core::Core,
    error::ErrorCode,
    types::{Attempt, ReplicaList, Walk, WalkCursor},
};

impl Core {
    /// What [`Core::get_replica_list`] would answer, without the read lease that it grants.
    ///
    /// # Errors
    /// As there.
    pub fn peek_replica_list(&self, key: &[u8]) -> Attempt<ReplicaList> {
        let hash = self.store.hash(key);
        let shard = self.store.read(hash)?;
        let object =
            shard.find(hash, key).filter(|object| !object.is_doomed()).ok_or(ErrorCode::ObjectNotFound)?;
        let replicas = object.describe_readable();
        if replicas.is_empty() {
            let code =
                if object.is_gone() { ErrorCode::ObjectNotFound } else { ErrorCode::ReplicaIsNotReady };
            return Err(code.into());
        }
        Ok(ReplicaList { replicas, lease_ttl_ms: 0, object_checksum: object.checksum() })
    }

    /// One step of a list of all keys that are written to their end, each followed by a line end. Stops early when the text
    /// has grown beyond `limit` bytes. `text` belongs to the walk until it is done.
    ///
    /// # Errors
    /// `Busy`: nothing was done in this step; call again with the same cursor.
    pub fn list_keys(&self, cursor: &mut WalkCursor, limit: usize, text: &mut Vec<u8>) -> Attempt<Walk> {
        if text.len() > limit {
            return Ok(Walk::Done);
        }
        self.walk_step(cursor, text, |text, object: &Object| {
            if object.has_complete() && !object.is_gone() {
                text.extend_from_slice(object.key());
                text.push(b'\n');
            }
        })
    }

    /// One step of a read-only walk that adds to `found`.
    fn walk_step<T>(
        &self,
        cursor: &mut WalkCursor,
        found: &mut Vec<T>,
        mut visit: impl FnMut(&mut Vec<T>, &Object),
    ) -> Attempt<Walk> {
        let Some(shard) = self.next_shard(cursor) else { return Ok(Walk::Done) };
        let contents = self.store.read_shard(shard)?;
        if walk::settle(cursor, contents.layout()) {
            // The shard is walked anew: what was found in it would be found twice.
            found.truncate(cursor.settled);
        }
        let position = walk::scan(&contents, cursor.position as usize, |_, object| visit(found, object));
        if walk::advance(cursor, position, contents.positions()) {
            cursor.settled = found.len();
        }
        Ok(Walk::More)
    }
}
