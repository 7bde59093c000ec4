//! The objects, in 1024 shards.

mod aging;
mod ceiling;
mod disk;
mod evict;
mod group;
mod holds;
mod inspect;
mod lease;
mod object;
mod put;
mod read;
mod remove;
mod replica;
mod shard;
mod superseded;
mod sweep;
mod table;
mod together;
mod upsert;
mod walk;

pub(crate) use aging::Queue;
pub(crate) use disk::{DiskReplica, DiskStorage};
pub(crate) use evict::{Doomed, Evicted};
pub use holds::{HOLD_BUCKETS_US, HoldStats};
pub(crate) use object::{NewObject, Object, PendingPin, bytes_of};
pub(crate) use replica::Replica;
pub use shard::ShardHold;
pub(crate) use shard::{ShardRead, ShardWrite};
pub(crate) use superseded::Medium;
pub use together::TOGETHER;
pub(crate) use together::WRITTEN_TOGETHER;

use super::SHARDS;
use crate::{
    clock::Instant,
    core::spin::try_for_moments,
    types::{Attempt, OpError},
};
use ceiling::Ceiling;
use foldhash::quality::FixedState;
use group::Groups;
use shard::Shard;
use std::{
    fmt,
    hash::{BuildHasher, Hasher},
    panic::Location,
};

/// Most keys that one hold of a shard's lock handles.
pub(crate) const KEYS_PER_HOLD: usize = 64;

/// The shards, and the hash that chooses among them.
pub(crate) struct Store {
    shards: Box<[Shard]>,
    hash: FixedState,
    groups: Groups,
    ceiling: Ceiling,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Store {
    /// An empty store for so many keys and so many bytes about them, 0 for any number. The seed should be random:
    /// clients choose the keys.
    pub(crate) fn new(seed: u64, max_keys: u64, max_bytes: u64) -> Store {
        Store {
            shards: (0..SHARDS).map(|index| Shard::new(index, seed)).collect(),
            hash: FixedState::with_seed(seed),
            groups: Groups::default(),
            ceiling: Ceiling::new(max_keys, max_bytes),
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

    pub(crate) fn ceiling(&self) -> &Ceiling {
        &self.ceiling
    }

    /// Bytes that the objects take, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.shards.iter().map(Shard::bytes).sum()
    }

    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    pub(crate) fn shard(&self, index: u16) -> &Shard {
        &self.shards[usize::from(index)]
    }

    /// The shard of that hash for reading, without waiting. A long hold is counted for the file of the caller.
    #[track_caller]
    pub(crate) fn read(&self, hash: u64) -> Attempt<ShardRead<'_>> {
        self.read_shard(Store::shard_of(hash))
    }

    /// The shard of that hash for writing, without waiting.
    #[track_caller]
    pub(crate) fn write(&self, hash: u64) -> Attempt<ShardWrite<'_>> {
        self.write_shard(Store::shard_of(hash))
    }

    #[track_caller]
    pub(crate) fn read_shard(&self, shard: u16) -> Attempt<ShardRead<'_>> {
        let place = Location::caller();
        let read = try_for_moments(|| self.shard(shard).try_read());
        read.map(|read| read.timed(place)).ok_or(OpError::Busy { shard })
    }

    #[track_caller]
    pub(crate) fn write_shard(&self, shard: u16) -> Attempt<ShardWrite<'_>> {
        let place = Location::caller();
        let write = try_for_moments(|| self.shard(shard).try_write(self));
        write.map(|write| write.timed(place)).ok_or(OpError::Busy { shard })
    }

    /// The same for background work, which may wait.
    #[track_caller]
    pub(crate) fn write_blocking(&self, shard: u16) -> ShardWrite<'_> {
        self.shard(shard).write(self).timed(Location::caller())
    }

    /// Keys, and how many of these are unfinished.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.shards
            .iter()
            .map(Shard::counts)
            .fold((0, 0), |sum, of| (sum.0 + u64::from(of.0), sum.1 + u64::from(of.1)))
    }

    /// Objects in a queue.
    pub(crate) fn queued(&self, queue: Queue) -> u64 {
        self.shards.iter().map(|shard| u64::from(shard.queued(queue))).sum()
    }

    /// The shards whose front in a queue is worth a look by then, the earliest first.
    pub(crate) fn fronts(&self, queue: Queue, by: Instant) -> Vec<(Instant, u16)> {
        let of = |index: u16| (self.shard(index).earliest(queue), index);
        let mut fronts: Vec<_> = (0..SHARDS).map(of).filter(|front| front.0 <= by).collect();
        fronts.sort_unstable();
        fronts
    }
}
