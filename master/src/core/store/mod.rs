//! The objects, in 1024 shards.

mod object;
mod put;
mod read;
mod remove;
mod shard;
mod sweep;
mod upsert;
mod walk;

pub(crate) use object::{NewObject, Object, PendingPin, Replica};
pub use shard::ShardHold;
pub(crate) use shard::{ShardRead, ShardWrite};

use super::SHARDS;
use crate::{
    core::spin::try_for_moments,
    types::{Attempt, OpError},
};
use foldhash::quality::FixedState;
use shard::Shard;
use std::{
    fmt,
    hash::{BuildHasher, Hasher},
};

/// Most keys that one hold of a shard's lock handles.
pub(crate) const KEYS_PER_HOLD: usize = 64;

/// The shards, and the hash that chooses among them.
pub(crate) struct Store {
    shards: Box<[Shard]>,
    hash: FixedState,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Store {
    /// An empty store. The seed should be random: clients choose the keys.
    pub(crate) fn new(seed: u64) -> Store {
        Store {
            shards: (0..SHARDS).map(|index| Shard::new(index, seed)).collect(),
            hash: FixedState::with_seed(seed),
        }
    }

    /// The one hash of a key, from which its shard and its place there follow.
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hash.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// The shard of a key with that hash. Other bits than those that the tables inside the shards use most.
    pub(crate) fn shard_of(hash: u64) -> u16 {
        (hash >> 40) as u16 & (SHARDS - 1)
    }

    pub(crate) fn shard(&self, index: u16) -> &Shard {
        &self.shards[usize::from(index)]
    }

    /// The shard of that hash for reading, without waiting.
    pub(crate) fn read(&self, hash: u64) -> Attempt<ShardRead<'_>> {
        self.read_shard(Store::shard_of(hash))
    }

    /// The shard of that hash for writing, without waiting.
    pub(crate) fn write(&self, hash: u64) -> Attempt<ShardWrite<'_>> {
        self.write_shard(Store::shard_of(hash))
    }

    pub(crate) fn read_shard(&self, shard: u16) -> Attempt<ShardRead<'_>> {
        try_for_moments(|| self.shard(shard).try_read()).ok_or(OpError::Busy { shard })
    }

    pub(crate) fn write_shard(&self, shard: u16) -> Attempt<ShardWrite<'_>> {
        try_for_moments(|| self.shard(shard).try_write(&self.hash)).ok_or(OpError::Busy { shard })
    }

    /// The same for background work, which may wait.
    pub(crate) fn write_blocking(&self, shard: u16) -> ShardWrite<'_> {
        self.shard(shard).write(&self.hash)
    }

    /// Keys, and how many of these are unfinished.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.shards
            .iter()
            .map(Shard::counts)
            .fold((0, 0), |sum, of| (sum.0 + u64::from(of.0), sum.1 + u64::from(of.1)))
    }
}
