//! One object: its key, its replicas and what is known about it, in as few bytes as that takes.

use super::{
    DiskReplica, Medium,
    aging::{Queue, Slot},
    group::{Group, MemberState},
    lease::Lease,
    replica::{Replica, ReplicaSet},
};
use crate::{
    clock::Instant,
    types::{ClientId, ObjectInfo, ReplicaStatus, Replicas, ReplicasRef},
};
use smallvec::SmallVec;
use std::{mem, sync::Arc, time::Duration};

const INLINE_KEY: usize = 22;

/// A key; short ones need no block of their own.
#[derive(Debug)]
enum Key {
    Inline { len: u8, bytes: [u8; INLINE_KEY] },
    Heap(Box<[u8]>),
}

impl Key {
    fn new(key: &[u8]) -> Key {
        if key.len() > INLINE_KEY {
            return Key::Heap(key.into());
        }
        let mut bytes = [0; INLINE_KEY];
        bytes[..key.len()].copy_from_slice(key);
        Key::Inline { len: key.len() as u8, bytes }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Key::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Key::Heap(bytes) => bytes,
        }
    }
}

/// What a commit of the pending soft pin will do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PendingPin {
    /// Pin for that long.
    Pin(Duration),
    /// Take the pin away.
    Unpin,
}

/// What few objects have; behind one pointer so that the others do not pay for it.
#[derive(Debug)]
struct Extra {
    group: Option<Arc<Group>>,
    soft_pinned_until: Option<Instant>,
    /// Where the pin stands among those that will end.
    pin_slot: Slot,
    pending_pin: Option<PendingPin>,
    disk: Option<DiskReplica>,
}

impl Default for Extra {
    fn default() -> Extra {
        Extra { group: None, soft_pinned_until: None, pin_slot: Slot::NONE, pending_pin: None, disk: None }
    }
}

/// An object of the store. 120 bytes with a key of up to 22: one block of 128 with any common allocator.
#[derive(Debug)]
pub(crate) struct Object {
    /// The read lease, unless the group has it. Atomic, so that a reader extends it under the shared lock; a remover
    /// reads it under the exclusive one.
    lease: Lease,
    put_started: Instant,
    writer: ClientId,
    size: u64,
    checksum: u64,
    replicas: ReplicaSet,
    extra: Option<Box<Extra>>,
    key: Key,
    /// Where it stands among those that may be evicted.
    slot: Slot,
    has_checksum: bool,
    hard_pinned: bool,
    /// It was complete once: an unfinished write to it is an Upsert, and its pins and group stay.
    established: bool,
    data_type: u8,
}

const _: () = assert!(mem::size_of::<Object>() == 120);

/// What a replica takes in its segment's table, and beside the first one in its object.
const RANGE_BYTES: u64 = 33;
const FURTHER_REPLICA_BYTES: u64 = 48;

/// Bytes of memory that an object with a key of that length takes, about: its block, its share of the tables and queues
/// of its shard (28), what does not fit into the block, and its ranges.
pub(crate) const fn bytes_of(key: usize, replicas: u64) -> u64 {
    let key = if key > INLINE_KEY { (key as u64 + 8).next_multiple_of(16) } else { 0 };
    let further = if replicas > 1 { replicas * FURTHER_REPLICA_BYTES } else { 0 };
    128 + 28 + key + further + replicas * RANGE_BYTES
}

/// What a Start says about the object itself.
#[derive(Debug)]
pub(crate) struct NewObject<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) writer: ClientId,
    pub(crate) size: u64,
    pub(crate) now: Instant,
    pub(crate) hard_pinned: bool,
    pub(crate) data_type: u8,
    pub(crate) pending_pin: Option<PendingPin>,
}

impl Object {
    pub(crate) fn new(new: &NewObject<'_>, replicas: SmallVec<[Replica; 1]>) -> Object {
        let mut object = Object {
            lease: Lease::default(),
            put_started: new.now,
            writer: new.writer,
            size: new.size,
            checksum: 0,
            replicas: replicas.into(),
            extra: None,
            key: Key::new(new.key),
            slot: Slot::NONE,
            has_checksum: false,
            hard_pinned: new.hard_pinned,
            established: false,
            data_type: new.data_type,
        };
        object.set_pending_pin(new.pending_pin);
        object
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.key.bytes()
    }

    /// Bytes of memory that it takes, about.
    pub(crate) fn footprint(&self) -> u64 {
        bytes_of(self.key().len(), self.replicas().len() as u64)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn writer(&self) -> ClientId {
        self.writer
    }

    pub(crate) fn put_started(&self) -> Instant {
        self.put_started
    }

    pub(crate) fn is_hard_pinned(&self) -> bool {
        self.hard_pinned
    }

    pub(crate) fn is_established(&self) -> bool {
        self.established
    }

    pub(crate) fn checksum(&self) -> Option<u64> {
        self.has_checksum.then_some(self.checksum)
    }

    pub(crate) fn group(&self) -> Option<&Arc<Group>> {
        self.extra.as_ref()?.group.as_ref()
    }

    pub(crate) fn group_name(&self) -> &[u8] {
        self.group().map_or(&[], |group| group.name())
    }

    pub(crate) fn set_group(&mut self, group: Arc<Group>) {
        self.extra().group = Some(group);
    }

    /// What of it matters to its group.
    pub(crate) fn member_state(&self) -> MemberState {
        MemberState {
            unfinished: self.is_unfinished(),
            hard_pinned: self.hard_pinned,
            soft_pinned: self.soft_pinned_until().is_some(),
        }
    }

    /// The read lease; of a member it is that of the whole group.
    pub(crate) fn lease(&self) -> &Lease {
        self.group().map_or(&self.lease, |group| &group.lease)
    }

    pub(crate) fn is_leased(&self, now: Instant) -> bool {
        self.lease().is_active(now)
    }

    pub(crate) fn soft_pinned_until(&self) -> Option<Instant> {
        self.extra.as_ref()?.soft_pinned_until
    }

    /// Where it stands: among what may be evicted, and among the pins that will end.
    pub(crate) fn slots(&self) -> (Slot, Slot) {
        (self.slot, self.extra.as_ref().map_or(Slot::NONE, |extra| extra.pin_slot))
    }

    pub(crate) fn set_slot(&mut self, slot: Slot) {
        self.slot = slot;
    }

    /// Only for an object with a pin, or that had one until now.
    pub(crate) fn set_pin_slot(&mut self, slot: Slot) {
        if let Some(extra) = &mut self.extra {
            extra.pin_slot = slot;
        }
    }

    /// The queue in which it belongs: none while it is being written, and never one with a hard pin.
    pub(crate) fn queue(&self) -> Option<Queue> {
        if self.hard_pinned || self.is_unfinished() || self.replicas().is_empty() {
            return None;
        }
        Some(if self.soft_pinned_until().is_some() { Queue::Pinned } else { Queue::Plain })
    }

    /// Whether evicting it now frees memory that can be used, and takes nothing from a client that may come back.
    pub(crate) fn is_evictable(&self) -> bool {
        self.all(Replica::is_readable)
    }

    /// The soft pin is over.
    pub(crate) fn unpin(&mut self) {
        if let Some(extra) = &mut self.extra {
            extra.soft_pinned_until = None;
        }
    }

    /// Gives back what nothing needs any more.
    pub(crate) fn tidy(&mut self) {
        if self.extra.as_ref().is_some_and(|extra| {
            extra.group.is_none()
                && extra.soft_pinned_until.is_none()
                && extra.pending_pin.is_none()
                && extra.pin_slot == Slot::NONE
                && extra.disk.is_none()
        }) {
            self.extra = None;
        }
    }

    pub(crate) fn replicas(&self) -> &[Replica] {
        self.replicas.as_slice()
    }

    pub(crate) fn replicas_mut(&mut self) -> &mut [Replica] {
        self.replicas.as_mut_slice()
    }

    /// Takes out every replica for which `take` holds.
    pub(crate) fn extract(&mut self, take: impl Fn(&Replica) -> bool) -> SmallVec<[Replica; 1]> {
        self.replicas.extract(take)
    }

    pub(crate) fn any(&self, is: impl Fn(&Replica) -> bool) -> bool {
        self.replicas().iter().any(is)
    }

    pub(crate) fn all(&self, are: impl Fn(&Replica) -> bool) -> bool {
        self.replicas().iter().all(are)
    }

    /// The replica on disk.
    pub(crate) fn disk(&self) -> Option<&DiskReplica> {
        self.extra.as_ref()?.disk.as_ref()
    }

    pub(crate) fn disk_mut(&mut self) -> Option<&mut DiskReplica> {
        self.extra.as_mut()?.disk.as_mut()
    }

    /// Replaces the replica on disk; gives back the one that was there.
    pub(crate) fn set_disk(&mut self, disk: Option<DiskReplica>) -> Option<DiskReplica> {
        if disk.is_none() && self.extra.is_none() {
            return None;
        }
        let before = mem::replace(&mut self.extra().disk, disk);
        self.tidy();
        before
    }

    /// A write to the replica on disk that has not ended is given up.
    pub(crate) fn drop_unfinished_disk(&mut self) {
        if self.is_being_written(Medium::Disk) {
            drop(self.set_disk(None));
        }
    }

    /// Whether it has no replica of any kind, and so is to be erased.
    pub(crate) fn is_empty(&self) -> bool {
        self.replicas().is_empty() && self.disk().is_none()
    }

    /// Whether a replica of any kind was written to its end.
    pub(crate) fn has_complete(&self) -> bool {
        self.any(Replica::is_complete) || self.disk().is_some_and(DiskReplica::is_complete)
    }

    /// Whether it can be read somewhere.
    pub(crate) fn is_readable(&self) -> bool {
        self.any(Replica::is_readable) || self.disk().is_some_and(DiskReplica::is_complete)
    }

    /// Whether a write to its replicas in memory, or to the one on disk, has started and not ended.
    pub(crate) fn is_being_written(&self, medium: Medium) -> bool {
        match medium {
            Medium::Memory => self.any(|replica| !replica.is_complete()),
            Medium::Disk => self.disk().is_some_and(|disk| !disk.is_complete()),
        }
    }

    /// Where that is so.
    pub(crate) fn being_written(&self) -> impl Iterator<Item = Medium> + use<> {
        let media = [Medium::Memory, Medium::Disk].map(|of| self.is_being_written(of).then_some(of));
        media.into_iter().flatten()
    }

    /// Whether a write to a replica of any kind has started and not ended.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_being_written(Medium::Memory) || self.is_being_written(Medium::Disk)
    }

    /// Whether nothing of it will ever be served again, although background work has not erased it yet.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_doomed()
            || self.disk().is_none() && self.all(|replica| !replica.eligibility().should_retain_resources())
    }

    /// Whether its group has been evicted. It goes with its file: what is read together is of no use in parts.
    pub(crate) fn is_doomed(&self) -> bool {
        self.group().is_some_and(|group| group.lease.is_doomed())
    }

    /// A further write begins: into `replicas`, or in place if there are none.
    pub(crate) fn start_write(&mut self, new: &NewObject<'_>, replicas: SmallVec<[Replica; 1]>) {
        self.put_started = new.now;
        self.writer = new.writer;
        self.size = new.size;
        if replicas.is_empty() {
            for replica in self.replicas_mut() {
                replica.set_status(ReplicaStatus::Processing);
            }
            if let Some(disk) = self.disk_mut() {
                disk.set_status(ReplicaStatus::Processing);
            }
        } else {
            self.lease.reset();
            self.replicas = replicas.into();
        }
        self.set_pending_pin(new.pending_pin);
    }

    /// The first readable End of a write: checksum, soft pin.
    pub(crate) fn finish_write(&mut self, checksum: Option<u64>, now: Instant) {
        self.has_checksum = checksum.is_some();
        self.checksum = checksum.unwrap_or_default();
        self.established = true;
        if let Some(extra) = &mut self.extra {
            match extra.pending_pin.take() {
                Some(PendingPin::Pin(ttl)) => extra.soft_pinned_until = Some(now.saturating_add(ttl)),
                Some(PendingPin::Unpin) => extra.soft_pinned_until = None,
                None => {}
            }
        }
        // Evictable at once, but as something just used.
        self.lease().touch(now);
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    fn set_pending_pin(&mut self, pin: Option<PendingPin>) {
        if pin.is_some() || self.extra.is_some() {
            self.extra().pending_pin = pin;
        }
    }

    /// Every replica, as its writer sees it.
    pub(crate) fn describe(&self) -> Replicas {
        Replicas {
            memory: self.replicas().iter().map(|replica| replica.describe(self.size)).collect(),
            disk: self.disk().map(DiskReplica::describe),
        }
    }

    /// Every replica that can be read, as a reader sees it.
    pub(crate) fn describe_readable(&self) -> Replicas {
        self.readable().detach()
    }

    /// The same without a copy. Whether a replica can be read may change at any time, so each is asked once.
    pub(crate) fn readable(&self) -> ReplicasRef<'_> {
        let readable = self.replicas().iter().filter(|replica| replica.is_readable());
        ReplicasRef {
            memory: readable.map(|replica| replica.as_ref(self.size)).collect(),
            disk: self.disk().filter(|disk| disk.is_complete()).map(DiskReplica::describe),
        }
    }

    /// All about it, for diagnostics.
    pub(crate) fn info(&self, now: Instant) -> ObjectInfo {
        let left = |until: Instant| Some(until.saturating_since(now)).filter(|left| !left.is_zero());
        ObjectInfo {
            writer: self.writer,
            size: self.size,
            checksum: self.checksum(),
            group: self.group_name().into(),
            data_type: self.data_type,
            hard_pinned: self.hard_pinned,
            soft_pin_left: self.soft_pinned_until().and_then(left),
            lease_left: left(self.lease().until()),
            age: now.saturating_since(self.put_started),
            replicas: self
                .replicas()
                .iter()
                .map(|replica| (replica.describe(self.size), replica.owner_state()))
                .collect(),
            disk: self.disk().map(DiskReplica::describe),
        }
    }
}
