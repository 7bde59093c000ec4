//! Background work on the shards. It may wait for a shard's lock, and holds it for at most 64 keys (A10).

use super::{KEYS_PER_HOLD, Store, TOGETHER};
use crate::core::{
    Core, SHARDS,
    segments::{RangeIndex, Segment},
};
use smallvec::SmallVec;

impl Core {
    /// Removes the replicas in those ranges of a closed segment, each given with the hash of its key; objects without
    /// any other go, too. How many were there.
    ///
    /// A range is allocated, and its replica entered, under one hold of the key's shard. So once that lock is ours the
    /// replica is there, or it is gone and so is the range.
    pub(crate) fn remove_held(&self, segment: &Segment, held: &[(RangeIndex, u64)]) -> usize {
        let mut removed = 0;
        for (at, &(range, hash)) in held.iter().enumerate() {
            if at % TOGETHER == 0 {
                self.store.fetch(held[at..].iter().take(TOGETHER).map(|&(_, hash)| hash));
            }
            let mut shard = self.store.write_blocking(Store::shard_of(hash));
            // The lock may have taken long, and without the permit nothing moves.
            if !self.permit.held() {
                break;
            }
            if let Some(position) =
                shard.position(hash, |object| object.any(|replica| replica.is_at(segment, range)))
            {
                shard.change(hash, position, |object| {
                    drop(object.extract(|replica| replica.is_at(segment, range)));
                });
                removed += 1;
            }
        }
        removed
    }

    /// Discards puts that were abandoned, in shard after shard from `cursor` on, until `budget` locks were taken:
    /// whether the round is over. Shards without unfinished puts cost one load.
    pub(crate) fn discard_abandoned(&self, cursor: &mut u16, budget: &mut u32) -> bool {
        while *cursor < SHARDS {
            if self.store.shard(*cursor).counts().1 == 0 {
                *cursor += 1;
                continue;
            }
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            if self.discard_in_shard(*cursor) < KEYS_PER_HOLD {
                *cursor += 1;
            }
        }
        *cursor = 0;
        true
    }

    fn discard_in_shard(&self, index: u16) -> usize {
        let now = self.clock.now();
        let shard = self.store.shard(index).read();
        let abandoned: SmallVec<[u64; KEYS_PER_HOLD]> = shard
            .unfinished()
            .iter()
            .copied()
            .filter(|&hash| shard.with_hash(hash).any(|object| self.is_abandoned(object, now)))
            .take(KEYS_PER_HOLD)
            .collect();
        drop(shard);
        if abandoned.is_empty() {
            return 0;
        }
        let mut shard = self.store.write_blocking(index);
        if !self.permit.held() {
            return 0;
        }
        for &hash in &abandoned {
            if let Some(position) = shard.position(hash, |object| self.is_abandoned(object, now)) {
                self.discard_unfinished(&mut shard, hash, position, now);
            }
        }
        abandoned.len()
    }
}
