//! Walks over all keys, in steps of at most 64 keys of one shard (A10).

use super::{KEYS_PER_HOLD, Object, remove::removable, shard::Contents};
use crate::{
    core::{Core, SHARDS},
    types::{Attempt, Replicas, Walk, WalkCursor},
};
use regex::bytes::Regex;
use smallvec::SmallVec;

/// A step looks at no more positions than this, so that a nearly empty table bounds a hold, too.
const POSITIONS_PER_HOLD: usize = 16 * KEYS_PER_HOLD;

impl Core {
    /// One step of `RemoveByRegex`, or of `RemoveAll` without a regex; `cursor.acted` counts what was removed. Objects
    /// that may not be removed are left out. Candidates are found under the shared lock; a shard without any is never
    /// locked for writing. Keys that are there during the whole walk are visited for sure.
    ///
    /// # Errors
    /// `Busy`: nothing was done in this step; call again with the same cursor.
    pub fn remove_matching(
        &self,
        regex: Option<&Regex>,
        force: bool,
        cursor: &mut WalkCursor,
    ) -> Attempt<Walk> {
        let Some(shard) = self.next_shard(cursor) else { return Ok(Walk::Done) };
        let now = self.clock.now();
        let meant = |object: &Object| {
            removable(object, force, now).is_ok()
                && !object.is_gone()
                && regex.is_none_or(|regex| regex.is_match(object.key()))
        };
        let mut candidates: SmallVec<[usize; KEYS_PER_HOLD]> = SmallVec::new();
        let contents = self.store.read_shard(shard)?;
        settle(cursor, contents.layout());
        let position = scan(&contents, cursor.position as usize, |position, object| {
            if meant(object) {
                candidates.push(position);
            }
        });
        let end = contents.positions();
        let layout = contents.layout();
        drop(contents);
        if !candidates.is_empty() {
            let mut contents = self.store.write_shard(shard)?;
            for position in candidates {
                if contents.layout() != layout {
                    // Entries have moved, possibly because of what was just removed. What is there now is found again.
                    settle(cursor, contents.layout());
                    return Ok(Walk::More);
                }
                if contents.at(position).is_some_and(meant) {
                    let hash = contents.at(position).map_or(0, |object| self.store.hash(object.key()));
                    contents.erase(hash, position);
                    cursor.acted += 1;
                }
            }
        }
        advance(cursor, position, end);
        Ok(Walk::More)
    }

    /// One step of `GetReplicaListByRegex`: adds each readable object whose key matches, and extends its read lease.
    /// `found` belongs to the walk until it is done: take nothing out of it in between.
    ///
    /// # Errors
    /// `Busy`: nothing was done in this step; call again with the same cursor.
    pub fn replica_lists_matching(
        &self,
        regex: &Regex,
        cursor: &mut WalkCursor,
        found: &mut Vec<(Box<[u8]>, Replicas)>,
    ) -> Attempt<Walk> {
        let Some(shard) = self.next_shard(cursor) else { return Ok(Walk::Done) };
        let lease = self.clock.now().saturating_add(self.options.read_lease_ttl);
        let contents = self.store.read_shard(shard)?;
        if settle(cursor, contents.layout()) {
            // The shard is walked anew: what was found in it would be found twice.
            found.truncate(cursor.settled);
        }
        let position = scan(&contents, cursor.position as usize, |_, object| {
            if regex.is_match(object.key()) {
                let replicas = object.describe_readable();
                if !replicas.is_empty() && object.lease().extend(lease) {
                    found.push((object.key().into(), replicas));
                }
            }
        });
        if advance(cursor, position, contents.positions()) {
            cursor.settled = found.len();
        }
        cursor.acted = found.len() as u64;
        Ok(Walk::More)
    }

    /// The next shard that has keys.
    pub(super) fn next_shard(&self, cursor: &mut WalkCursor) -> Option<u16> {
        while cursor.shard < SHARDS {
            if self.store.shard(cursor.shard).counts().0 > 0 {
                return Some(cursor.shard);
            }
            cursor.shard += 1;
            cursor.position = 0;
        }
        None
    }
}

/// Starts the shard anew if its entries have moved since the last step: whether that was in the middle of it.
pub(super) fn settle(cursor: &mut WalkCursor, layout: u64) -> bool {
    let moved = cursor.position > 0 && cursor.layout != layout;
    if moved {
        cursor.position = 0;
    }
    cursor.layout = layout;
    moved
}

/// Visits up to [`KEYS_PER_HOLD`] objects from `position` on: where to go on.
pub(super) fn scan(contents: &Contents, position: usize, mut visit: impl FnMut(usize, &Object)) -> usize {
    let end = contents.positions().min(position.saturating_add(POSITIONS_PER_HOLD));
    let mut left = KEYS_PER_HOLD;
    for position in position..end {
        if let Some(object) = contents.at(position) {
            if left == 0 {
                return position;
            }
            left -= 1;
            visit(position, object);
        }
    }
    end
}

/// Moves on, to the next shard if this one is through: whether it is.
pub(super) fn advance(cursor: &mut WalkCursor, position: usize, end: usize) -> bool {
    cursor.position = position as u64;
    let through = position >= end;
    if through {
        cursor.shard += 1;
        cursor.position = 0;
    }
    through
}
