//! One shard: a table behind a read-write lock that no data call ever waits for.

use super::{Object, Replica};
use crate::lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use foldhash::quality::FixedState;
use hashbrown::HashTable;
use std::{
    fmt,
    hash::{BuildHasher, Hasher},
    ops::Deref,
    sync::atomic::{AtomicU32, Ordering},
};

/// Tables below this size are not shrunk.
const SMALL_TABLE: usize = 64;

/// A shard. Under its lock: no await, no I/O, no log line, no unbounded work.
#[repr(align(64))]
pub(crate) struct Shard {
    lock: RwLock<Contents>,
    /// Copies of two counts for readers without the lock, written when a writer lets go.
    keys: AtomicU32,
    unfinished: AtomicU32,
}

/// What a shard holds.
#[derive(Debug)]
pub(crate) struct Contents {
    table: HashTable<Box<Object>>,
    /// Changes whenever entries may have moved inside the table: positions of a walk are worth nothing then.
    layout: u64,
    /// Hashes of the keys whose write has not ended.
    unfinished: Vec<u64>,
    /// Replicas made here so far, and the shard's number: ids are unique without a counter that all threads share.
    next_replica_id: u64,
    random: u64,
}

/// A shard locked for reading.
pub(crate) struct ShardRead<'a>(RwLockReadGuard<'a, Contents>);

/// A shard locked for writing.
pub(crate) struct ShardWrite<'a> {
    contents: RwLockWriteGuard<'a, Contents>,
    shard: &'a Shard,
    hash: &'a FixedState,
}

/// Holds a shard's lock for writing until it is dropped: for fault injection and tests (see
/// [`Core::hold_shard`](crate::core::Core::hold_shard)).
pub struct ShardHold<'a>(#[allow(dead_code, reason = "held for its Drop")] ShardWrite<'a>);

impl<'a> ShardHold<'a> {
    pub(crate) fn new(shard: ShardWrite<'a>) -> ShardHold<'a> {
        ShardHold(shard)
    }
}

impl fmt::Debug for ShardHold<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShardHold")
    }
}

impl Shard {
    pub(crate) fn new(index: u16, seed: u64) -> Shard {
        let contents = Contents {
            table: HashTable::new(),
            layout: 0,
            unfinished: Vec::new(),
            next_replica_id: u64::from(index) + 1,
            random: seed ^ u64::from(index),
        };
        Shard { lock: RwLock::new(contents), keys: AtomicU32::new(0), unfinished: AtomicU32::new(0) }
    }

    pub(crate) fn try_read(&self) -> Option<ShardRead<'_>> {
        self.lock.try_read().map(ShardRead)
    }

    pub(crate) fn try_write<'a>(&'a self, hash: &'a FixedState) -> Option<ShardWrite<'a>> {
        self.lock.try_write().map(|contents| ShardWrite { contents, shard: self, hash })
    }

    pub(crate) fn read(&self) -> ShardRead<'_> {
        ShardRead(self.lock.read())
    }

    pub(crate) fn write<'a>(&'a self, hash: &'a FixedState) -> ShardWrite<'a> {
        ShardWrite { contents: self.lock.write(), shard: self, hash }
    }

    /// Keys and unfinished keys, as of the last change; no lock.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.keys.load(Ordering::Relaxed), self.unfinished.load(Ordering::Relaxed))
    }
}

impl Contents {
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<&Object> {
        self.table.find(hash, |object| object.key() == key).map(|object| &**object)
    }

    /// Where the object is for which `is` holds, among those with that hash.
    pub(crate) fn position(&self, hash: u64, is: impl Fn(&Object) -> bool) -> Option<usize> {
        self.table.find_bucket_index(hash, |object| is(object))
    }

    /// The object at that position, if there is one.
    pub(crate) fn at(&self, position: usize) -> Option<&Object> {
        self.table.get_bucket(position).map(|object| &**object)
    }

    /// End of the positions.
    pub(crate) fn positions(&self) -> usize {
        self.table.num_buckets()
    }

    pub(crate) fn layout(&self) -> u64 {
        self.layout
    }

    pub(crate) fn unfinished(&self) -> &[u64] {
        &self.unfinished
    }

    /// Every object with that hash; all but one are impossible but for collisions of 64 bits.
    pub(crate) fn with_hash(&self, hash: u64) -> impl Iterator<Item = &Object> {
        self.table.iter_hash(hash).map(|object| &**object)
    }

    #[cfg(test)]
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.table.iter().map(|object| &**object)
    }
}

impl Deref for ShardRead<'_> {
    type Target = Contents;

    fn deref(&self) -> &Contents {
        &self.0
    }
}

impl Deref for ShardWrite<'_> {
    type Target = Contents;

    fn deref(&self) -> &Contents {
        &self.contents
    }
}

impl ShardWrite<'_> {
    fn hash_of(state: &FixedState, object: &Object) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write(object.key());
        hasher.finish()
    }

    /// Adds the object, whose key is not there, unfinished.
    pub(crate) fn insert(&mut self, hash: u64, object: Box<Object>) -> &Object {
        let contents = &mut *self.contents;
        if contents.table.len() == contents.table.capacity() {
            // No room left without moving entries.
            contents.layout += 1;
        }
        if object.is_unfinished() {
            contents.unfinished.push(hash);
        }
        let state = self.hash;
        contents.table.insert_unique(hash, object, |object| Self::hash_of(state, object)).into_mut()
    }

    /// Changes the object at a position that [`Contents::position`] gave under this same hold, and keeps the list of
    /// unfinished keys in step. An object that is left without replicas is erased.
    pub(crate) fn change<T>(
        &mut self,
        hash: u64,
        position: usize,
        change: impl FnOnce(&mut Object) -> T,
    ) -> Option<T> {
        let object = self.contents.table.get_bucket_mut(position)?;
        let was_unfinished = object.is_unfinished();
        let result = change(object);
        let is_unfinished = object.is_unfinished();
        let is_empty = object.replicas().is_empty();
        match (was_unfinished, is_unfinished) {
            (true, false) => self.finished(hash),
            (false, true) => self.contents.unfinished.push(hash),
            _ => {}
        }
        if is_empty {
            drop(self.take(position));
        }
        Some(result)
    }

    /// Where the key's object is, after its replicas on segments that are gone have been dropped; `None` if nothing
    /// else was left of it, or there was nothing.
    pub(crate) fn live_position(&mut self, hash: u64, key: &[u8]) -> Option<usize> {
        let gone = |replica: &Replica| !replica.eligibility().should_retain_resources();
        let position = self.position(hash, |object| object.key() == key)?;
        if !self.at(position)?.any(gone) {
            return Some(position);
        }
        let left = self.change(hash, position, |object| {
            drop(object.extract(gone));
            !object.replicas().is_empty()
        });
        (left == Some(true)).then_some(position)
    }

    /// Takes the object at a position out of the shard.
    pub(crate) fn erase(&mut self, hash: u64, position: usize) {
        if let Some(object) = self.take(position)
            && object.is_unfinished()
        {
            self.finished(hash);
        }
    }

    fn take(&mut self, position: usize) -> Option<Box<Object>> {
        let contents = &mut *self.contents;
        let (object, _) = contents.table.get_bucket_entry(position).ok()?.remove();
        let table = &mut contents.table;
        if table.capacity() > SMALL_TABLE && table.len() * 8 < table.capacity() {
            // What many keys took is given back when they are gone; at most one entry in eight moves.
            let state = self.hash;
            table.shrink_to(table.len() * 2, |object| Self::hash_of(state, object));
            contents.layout += 1;
        }
        Some(object)
    }

    fn finished(&mut self, hash: u64) {
        let unfinished = &mut self.contents.unfinished;
        if let Some(at) = unfinished.iter().rposition(|&of| of == hash) {
            unfinished.swap_remove(at);
        }
        if unfinished.capacity() > SMALL_TABLE && unfinished.len() * 8 < unfinished.capacity() {
            unfinished.shrink_to(unfinished.len() * 2);
        }
    }

    /// A fresh replica id, unique in the process and at least 1.
    pub(crate) fn next_replica_id(&mut self) -> u64 {
        let id = self.contents.next_replica_id;
        self.contents.next_replica_id += u64::from(crate::core::SHARDS);
        id
    }

    /// A number that looks random (splitmix64), from a state that no other thread touches.
    pub(crate) fn random(&mut self) -> u64 {
        self.contents.random = self.contents.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.contents.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

impl Drop for ShardWrite<'_> {
    fn drop(&mut self) {
        self.shard.keys.store(self.contents.table.len() as u32, Ordering::Relaxed);
        self.shard.unfinished.store(self.contents.unfinished.len() as u32, Ordering::Relaxed);
    }
}
