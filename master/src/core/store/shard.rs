//! One shard: a table behind a read-write lock that no data call ever waits for.

use super::{
    Object, Replica, Store,
    aging::{Aging, Front, Queue, Slot, not_before},
    bytes_of,
    ceiling::Footprint,
    holds::{Hold, HoldMode},
    superseded::{Medium, Superseded},
    table::{self, Table, spread, table_hash, tag_of},
    together::prefetch_all,
};
use crate::{
    clock::Instant,
    error::ErrorCode,
    lock::{RwLock, RwLockReadGuard, RwLockWriteGuard},
    types::ClientId,
};
use std::{
    fmt,
    ops::Deref,
    panic::Location,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

/// Tables below this size are not shrunk.
const SMALL_TABLE: usize = 64;

/// A shard. Under its lock: no await, no I/O, no log line, no unbounded work.
#[repr(align(64))]
pub(crate) struct Shard {
    lock: RwLock<Contents>,
    /// Copies for readers without the lock, written when a writer lets go.
    keys: AtomicU32,
    unfinished: AtomicU32,
    bytes: AtomicU64,
    /// Objects in each queue, and when its front is worth a look, nanoseconds.
    queued: [AtomicU32; 3],
    earliest: [AtomicU64; 3],
}

const QUEUES: [Queue; 3] = [Queue::Plain, Queue::Pinned, Queue::Expiry];

/// What a shard holds.
#[derive(Debug)]
pub(crate) struct Contents {
    table: Table,
    /// Changes whenever entries may have moved inside the table: positions of a walk are worth nothing then.
    layout: u64,
    /// Hashes of the keys whose write has not ended.
    unfinished: Vec<u64>,
    /// In which order the finished ones may be evicted.
    aging: Aging,
    /// Writes whose End may still come although another has taken their place.
    superseded: Superseded,
    /// Replicas made here so far, and the shard's number: ids are unique without a counter that all threads share.
    /// Bytes that the objects take, about.
    bytes: u64,
    /// What the shard has of the store's limits.
    granted: Footprint,
    next_replica_id: u64,
    random: u64,
}

/// A shard locked for reading.
pub(crate) struct ShardRead<'a> {
    contents: RwLockReadGuard<'a, Contents>,
    hold: Option<Hold>,
}

/// A shard locked for writing.
pub(crate) struct ShardWrite<'a> {
    contents: RwLockWriteGuard<'a, Contents>,
    shard: &'a Shard,
    store: &'a Store,
    hold: Option<Hold>,
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
            table: Table::new(),
            layout: 0,
            unfinished: Vec::new(),
            aging: Aging::default(),
            superseded: Superseded::default(),
            bytes: 0,
            granted: Footprint::default(),
            next_replica_id: u64::from(index) + 1,
            random: seed ^ u64::from(index),
        };
        Shard {
            lock: RwLock::new(contents),
            keys: AtomicU32::new(0),
            unfinished: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            queued: Default::default(),
            earliest: [const { AtomicU64::new(u64::MAX) }; 3],
        }
    }

    pub(crate) fn try_read(&self) -> Option<ShardRead<'_>> {
        self.lock.try_read().map(|contents| ShardRead { contents, hold: None })
    }

    pub(crate) fn try_write<'a>(&'a self, store: &'a Store) -> Option<ShardWrite<'a>> {
        self.lock.try_write().map(|contents| ShardWrite { contents, shard: self, store, hold: None })
    }

    #[track_caller]
    pub(crate) fn read(&self) -> ShardRead<'_> {
        ShardRead { contents: self.lock.read(), hold: None }.timed(Location::caller())
    }

    pub(crate) fn write<'a>(&'a self, store: &'a Store) -> ShardWrite<'a> {
        ShardWrite { contents: self.lock.write(), shard: self, store, hold: None }
    }

    /// Keys and unfinished keys, as of the last change; no lock.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.keys.load(Ordering::Relaxed), self.unfinished.load(Ordering::Relaxed))
    }

    /// Bytes that the objects take, about, as of the last change; no lock.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Objects in a queue, as of the last change; no lock.
    pub(crate) fn queued(&self, queue: Queue) -> u32 {
        self.queued[queue as usize].load(Ordering::Relaxed)
    }

    /// The earliest time at which the front of a queue is worth a look, as of the last change; no lock.
    pub(crate) fn earliest(&self, queue: Queue) -> Instant {
        Instant::from_nanos(self.earliest[queue as usize].load(Ordering::Relaxed))
    }
}

impl Contents {
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<&Object> {
        self.table.find(spread(tag_of(hash)), |object| object.key() == key).map(|object| &**object)
    }

    /// Fetches what [`Contents::find`] will look at.
    pub(crate) fn prefetch(&self, hash: u64) {
        let candidate = self.table.find_bucket_index(spread(tag_of(hash)), |_| true);
        if let Some(object) = candidate.and_then(|position| self.at(position)) {
            prefetch_all(object);
        }
    }

    /// Where the object is for which `is` holds, among those with that hash.
    pub(crate) fn position(&self, hash: u64, is: impl Fn(&Object) -> bool) -> Option<usize> {
        self.table.find_bucket_index(spread(tag_of(hash)), |object| is(object))
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

    /// Every object that may have that hash: nearly always one.
    pub(crate) fn with_hash(&self, hash: u64) -> impl Iterator<Item = &Object> {
        self.table.iter_hash(spread(tag_of(hash))).map(|object| &**object)
    }

    fn footprint(&self) -> Footprint {
        Footprint { keys: self.table.len() as u64, bytes: self.bytes }
    }

    #[cfg(test)]
    pub(crate) fn aging(&self) -> &Aging {
        &self.aging
    }

    #[cfg(test)]
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.table.iter().map(|object| &**object)
    }
}

impl ShardRead<'_> {
    /// Counts how long it is held, for the operation at that place.
    pub(crate) fn timed(mut self, place: &'static Location<'static>) -> Self {
        self.hold = Some(Hold::begin(HoldMode::Read, place));
        self
    }
}

impl Deref for ShardRead<'_> {
    type Target = Contents;

    fn deref(&self) -> &Contents {
        &self.contents
    }
}

impl Deref for ShardWrite<'_> {
    type Target = Contents;

    fn deref(&self) -> &Contents {
        &self.contents
    }
}

impl ShardWrite<'_> {
    /// Counts how long it is held, for the operation at that place.
    pub(crate) fn timed(mut self, place: &'static Location<'static>) -> Self {
        self.hold = Some(Hold::begin(HoldMode::Write, place));
        self
    }

    /// Whether there is room for one more object with a key of that length and so many replicas.
    ///
    /// # Errors
    /// `KeysUltraLimit`: `max_keys` or `max_metadata_bytes` is reached.
    pub(crate) fn admit(&mut self, key: usize, replicas: u64) -> Result<(), ErrorCode> {
        let more = Footprint { keys: 1, bytes: bytes_of(key, replicas) };
        let used = self.contents.footprint();
        self.store.ceiling().admit(&mut self.contents.granted, used, more)
    }

    /// Adds the object, whose key is not there, unfinished, to the group of that name if it is not empty.
    pub(crate) fn insert(&mut self, hash: u64, mut object: Box<Object>, group: &[u8]) -> &Object {
        if !group.is_empty() {
            object.set_group(self.store.groups().enter(group, hash, object.member_state()));
        }
        let contents = &mut *self.contents;
        let store = self.store;
        if contents.table.len() == contents.table.capacity() {
            contents.layout += 1;
            table::grow(&mut contents.table, store);
        }
        if object.is_unfinished() {
            contents.unfinished.push(hash);
        }
        contents.bytes += object.footprint();
        contents
            .table
            .insert_unique(spread(tag_of(hash)), object, |object| table_hash(store, object))
            .into_mut()
    }

    /// Changes the object at a position that [`Contents::position`] gave under this same hold, and keeps the list of
    /// unfinished keys, the queues and its group in step. An object that is left without replicas is erased.
    pub(crate) fn change<T>(
        &mut self,
        hash: u64,
        position: usize,
        change: impl FnOnce(&mut Object) -> T,
    ) -> Option<T> {
        let contents = &mut *self.contents;
        let object = contents.table.get_bucket_mut(position)?;
        let before = object.member_state();
        let bytes = object.footprint();
        let result = change(object);
        contents.bytes = contents.bytes - bytes + object.footprint();
        let after = object.member_state();
        enqueue(&mut contents.aging, object, tag_of(hash));
        if let Some(group) = object.group() {
            self.store.groups().update(group, before, after);
        }
        object.tidy();
        let is_empty = object.is_empty();
        match (before.unfinished, after.unfinished) {
            (true, false) => self.finished(hash),
            (false, true) => self.contents.unfinished.push(hash),
            _ => {}
        }
        if is_empty {
            drop(self.take(hash, position));
        }
        Some(result)
    }

    /// Tells the queues the time.
    pub(crate) fn note_time(&mut self, now: Instant) {
        self.contents.aging.note(now);
    }

    /// What stands at the front of a queue by `limit`, and where in the table it is.
    pub(crate) fn front(&mut self, queue: Queue, limit: Instant) -> Option<(Front, usize)> {
        let contents = &mut *self.contents;
        let front = contents.aging.front(queue, limit)?;
        let is = |object: &Object| match queue {
            Queue::Expiry => object.slots().1 == front.slot,
            Queue::Plain | Queue::Pinned => object.slots().0 == front.slot,
        };
        let position = contents.table.find_bucket_index(spread(front.tag), |object| is(object));
        debug_assert!(position.is_some(), "what is queued is in the table");
        Some((front, position?))
    }

    /// Whether what stands at the front would stay there if it were moved to that time.
    pub(crate) fn is_in_place(&self, front: &Front, at: Instant) -> bool {
        self.contents.aging.is_in_place(front, at)
    }

    /// Moves what stands at the front to another time.
    pub(crate) fn requeue(&mut self, queue: Queue, front: Front, at: Instant) {
        self.contents.aging.put_at(queue, front.slot, at);
    }

    /// Where the key's object is, after its replicas on segments that are gone have been dropped; `None` if nothing
    /// else was left of it, or there was nothing.
    pub(crate) fn live_position(&mut self, hash: u64, key: &[u8]) -> Option<usize> {
        let gone = |replica: &Replica| !replica.eligibility().should_retain_resources();
        let position = self.position(hash, |object| object.key() == key)?;
        let object = self.at(position)?;
        if object.is_doomed() {
            self.erase(hash, position);
            return None;
        }
        if !object.any(gone) {
            return Some(position);
        }
        let left = self.change(hash, position, |object| {
            drop(object.extract(gone));
            !object.is_empty()
        });
        (left == Some(true)).then_some(position)
    }

    /// Where the object is that this client is writing, or was the last to write, for its End or Revoke of `meant`.
    pub(crate) fn written_by(
        &mut self,
        client: ClientId,
        hash: u64,
        key: &[u8],
        meant: Option<Medium>,
    ) -> Result<usize, ErrorCode> {
        let position = self.live_position(hash, key);
        let code = match position.and_then(|position| self.at(position)) {
            Some(object) if object.writer() == client => None,
            Some(_) => Some(ErrorCode::IllegalClient),
            None => Some(ErrorCode::ObjectNotFound),
        };
        match (position, code) {
            (Some(position), None) => Ok(position),
            (_, code) => {
                if let Some(medium) = meant {
                    self.contents.superseded.heard(hash, client, medium);
                }
                Err(code.unwrap_or(ErrorCode::ObjectNotFound))
            }
        }
    }

    /// Writes that have been superseded.
    pub(crate) fn superseded(&mut self) -> &mut Superseded {
        &mut self.contents.superseded
    }

    /// Takes the object at a position out of the shard.
    pub(crate) fn erase(&mut self, hash: u64, position: usize) {
        if let Some(object) = self.take(hash, position)
            && object.is_unfinished()
        {
            self.finished(hash);
        }
    }

    fn take(&mut self, hash: u64, position: usize) -> Option<Box<Object>> {
        let contents = &mut *self.contents;
        let (mut object, _) = contents.table.get_bucket_entry(position).ok()?.remove();
        dequeue(&mut contents.aging, &mut object);
        contents.bytes -= object.footprint();
        if let Some(group) = object.group() {
            self.store.groups().leave(group, hash, object.member_state());
        }
        let table = &mut contents.table;
        if table.capacity() > SMALL_TABLE && table.len() * 8 < table.capacity() {
            // What many keys took is given back when they are gone; at most one entry in eight moves.
            let store = self.store;
            table.shrink_to(table.len() * 2, |object| table_hash(store, object));
            contents.layout += 1;
        }
        let used = contents.footprint();
        self.store.ceiling().settle(&mut contents.granted, used);
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
        self.shard.bytes.store(self.contents.bytes, Ordering::Relaxed);
        for queue in QUEUES {
            let (len, earliest) = (self.contents.aging.len(queue), self.contents.aging.earliest(queue));
            self.shard.queued[queue as usize].store(len, Ordering::Relaxed);
            self.shard.earliest[queue as usize].store(earliest.as_nanos(), Ordering::Relaxed);
        }
    }
}

/// Brings an object into the queues where it belongs.
fn enqueue(aging: &mut Aging, object: &mut Object, tag: u32) {
    let (slot, pin) = object.slots();
    let queue = object.queue();
    if slot.queue() != queue {
        leave(aging, slot);
        let slot = queue.map_or(Slot::NONE, |queue| aging.insert(queue, tag, object.lease().until()));
        object.set_slot(slot);
    }
    match object.soft_pinned_until() {
        Some(until) if pin == Slot::NONE => {
            object.set_pin_slot(aging.insert(Queue::Expiry, tag, not_before(until)));
        }
        None if pin != Slot::NONE => {
            aging.remove(Queue::Expiry, pin);
            object.set_pin_slot(Slot::NONE);
        }
        _ => {}
    }
}

/// Takes an object out of all queues.
fn dequeue(aging: &mut Aging, object: &mut Object) {
    let (slot, pin) = object.slots();
    leave(aging, slot);
    object.set_slot(Slot::NONE);
    if pin != Slot::NONE {
        aging.remove(Queue::Expiry, pin);
        object.set_pin_slot(Slot::NONE);
    }
}

fn leave(aging: &mut Aging, slot: Slot) {
    if let Some(queue) = slot.queue() {
        aging.remove(queue, slot);
    }
}
