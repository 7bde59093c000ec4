//! Segments: the memory that clients lend to the pool.

mod placement;
mod ranges;
mod registry;
mod shared;

pub(crate) use placement::{MAX_REPLICAS, Placed, Placement, Wanted};
pub(crate) use ranges::{MAX_CAPACITY, NO_RANGE, RangeIndex};
pub(crate) use registry::{Known, Registry};

use crate::{
    clock::Instant,
    core::liveness::ClientLivenessRecord,
    lock::Mutex,
    types::{SegmentSpec, SegmentStatus},
};
use ranges::Ranges;
use smallvec::SmallVec;
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Most ranges that one hold of a segment's lock handles.
pub(crate) const RANGES_PER_HOLD: usize = 64;

/// One incarnation of a mounted segment. Replicas keep a handle to it, so whether they can be served follows from
/// it at once, whatever becomes of the registry (B8): a segment never comes back once it is unmounting, and its
/// owner's record never once it is Offline.
#[derive(Debug)]
pub(crate) struct Segment {
    spec: Arc<SegmentSpec>,
    owner: Arc<ClientLivenessRecord>,
    /// No allocation before this (design §7).
    usable_from: Instant,
    unmounting: AtomicBool,
    /// It still serves reads and takes nothing new; an unmount follows.
    graceful: AtomicBool,
    /// Nothing free is larger than this: a hint, so that a full segment costs one load and no lock.
    fit_limit: AtomicU64,
    /// Bytes asked for by what is taken, set aside included.
    allocated: AtomicU64,
    /// Bytes of these that are set aside.
    aside: AtomicU64,
    /// Ranges that replicas hold.
    keys: AtomicU64,
    /// Bytes that eviction can never free.
    hard_pinned: AtomicU64,
    /// When the first range that is set aside falls due, nanoseconds; `u64::MAX` with none.
    aside_due: AtomicU64,
    /// Held for O(1), or for [`RANGES_PER_HOLD`] ranges by the background. The innermost lock of all.
    space: Mutex<Space>,
}

#[derive(Debug)]
struct Space {
    ranges: Ranges,
    aside: BinaryHeap<Reverse<(Instant, RangeIndex)>>,
    /// Set together with `unmounting`, under the lock: what is not allocated by then never will be, so the
    /// offboarding walk sees every range there is.
    closed: bool,
}

impl Segment {
    pub(crate) fn new(
        spec: Arc<SegmentSpec>,
        owner: Arc<ClientLivenessRecord>,
        usable_from: Instant,
    ) -> Segment {
        let ranges = Ranges::new(spec.size);
        Segment {
            fit_limit: AtomicU64::new(ranges.fit_limit()),
            spec,
            owner,
            usable_from,
            unmounting: AtomicBool::new(false),
            graceful: AtomicBool::new(false),
            allocated: AtomicU64::new(0),
            aside: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            hard_pinned: AtomicU64::new(0),
            aside_due: AtomicU64::new(u64::MAX),
            space: Mutex::new(Space { ranges, aside: BinaryHeap::new(), closed: false }),
        }
    }

    pub(crate) fn spec(&self) -> &Arc<SegmentSpec> {
        &self.spec
    }

    pub(crate) fn owner(&self) -> &Arc<ClientLivenessRecord> {
        &self.owner
    }

    pub(crate) fn is_unmounting(&self) -> bool {
        self.unmounting.load(Ordering::Acquire)
    }

    pub(crate) fn status(&self) -> SegmentStatus {
        if self.is_unmounting() {
            SegmentStatus::Unmounting
        } else if self.is_graceful() {
            SegmentStatus::GracefullyUnmounting
        } else {
            SegmentStatus::Ok
        }
    }

    pub(crate) fn is_graceful(&self) -> bool {
        self.graceful.load(Ordering::Acquire)
    }

    /// From now on nothing is allocated; what is there stays readable until the unmount.
    pub(crate) fn begin_graceful(&self) {
        self.graceful.store(true, Ordering::Release);
    }

    /// When allocations may start.
    pub(crate) fn usable_from(&self) -> Instant {
        self.usable_from
    }

    /// Bytes allocated, and how many of these are only set aside.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.allocated.load(Ordering::Relaxed), self.aside.load(Ordering::Relaxed))
    }

    /// Keys that have a replica here.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Bytes of replicas with a hard pin.
    pub(crate) fn hard_pinned(&self) -> u64 {
        self.hard_pinned.load(Ordering::Relaxed)
    }

    /// Whether it is worth asking for `size` bytes: no means that nothing free is that large.
    pub(crate) fn may_fit(&self, size: u64) -> bool {
        size <= self.fit_limit.load(Ordering::Relaxed) && !self.is_graceful()
    }

    /// Whether `size` bytes would be found, said only where the hint makes it certain: the largest free range is in a bin
    /// in which none is smaller than the limit by more than a seventeenth.
    pub(crate) fn surely_fits(&self, size: u64) -> bool {
        size.checked_add(size / 16 + 1).is_some_and(|size| self.may_fit(size))
    }

    /// Takes `size` bytes for the key with that hash: range and address. The caller holds the key's shard for
    /// writing until the key says so too; the offboarding walk relies on it.
    pub(crate) fn allocate(&self, size: u64, hash: u64, hard_pinned: bool) -> Option<(RangeIndex, u64)> {
        if !self.may_fit(size) {
            return None;
        }
        let mut space = self.space.lock();
        if space.closed {
            return None;
        }
        let (range, start) = space.ranges.allocate(size, hash)?;
        self.allocated.fetch_add(size, Ordering::Relaxed);
        self.keys.fetch_add(1, Ordering::Relaxed);
        if hard_pinned {
            self.hard_pinned.fetch_add(size, Ordering::Relaxed);
        }
        self.fit_limit.store(space.ranges.fit_limit(), Ordering::Relaxed);
        Some((range, self.spec.base + start))
    }

    /// Gives a range back; it can be allocated again at once.
    pub(crate) fn release(&self, range: RangeIndex, hard_pinned: bool) {
        let mut space = self.space.lock();
        let size = space.ranges.release(range);
        let garbage = space.ranges.take_garbage();
        self.allocated.fetch_sub(size, Ordering::Relaxed);
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.unpin(size, hard_pinned);
        self.fit_limit.store(space.ranges.fit_limit(), Ordering::Relaxed);
        drop(space);
        drop(garbage);
    }

    /// Keeps a range out of use until `due`: its writer may still be writing into it.
    pub(crate) fn set_aside(&self, range: RangeIndex, hard_pinned: bool, due: Instant) {
        let mut space = self.space.lock();
        let size = space.ranges.set_aside(range);
        self.unpin(size, hard_pinned);
        space.aside.push(Reverse((due, range)));
        self.aside.fetch_add(size, Ordering::Relaxed);
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.note_due(&space);
    }

    fn unpin(&self, size: u64, hard_pinned: bool) {
        if hard_pinned {
            self.hard_pinned.fetch_sub(size, Ordering::Relaxed);
        }
    }

    fn note_due(&self, space: &Space) {
        let due = space.aside.peek().map_or(u64::MAX, |Reverse((due, _))| due.as_nanos());
        self.aside_due.store(due, Ordering::Relaxed);
    }

    /// Releases ranges that were set aside until `now`, at most [`RANGES_PER_HOLD`]: how many.
    pub(crate) fn release_aside(&self, now: Instant) -> usize {
        if self.aside_due.load(Ordering::Relaxed) > now.as_nanos() {
            return 0;
        }
        let mut space = self.space.lock();
        let mut released = 0;
        while released < RANGES_PER_HOLD {
            match space.aside.peek() {
                Some(&Reverse((due, range))) if due <= now => {
                    space.aside.pop();
                    let size = space.ranges.release(range);
                    self.aside.fetch_sub(size, Ordering::Relaxed);
                    self.allocated.fetch_sub(size, Ordering::Relaxed);
                    released += 1;
                }
                _ => break,
            }
        }
        self.note_due(&space);
        let garbage = space.ranges.take_garbage();
        self.fit_limit.store(space.ranges.fit_limit(), Ordering::Relaxed);
        drop(space);
        drop(garbage);
        released
    }

    /// Isolates the segment for good: nothing in it is readable and nothing is allocated from now on.
    pub(crate) fn close(&self) {
        self.unmounting.store(true, Ordering::Release);
        self.space.lock().closed = true;
    }

    /// Up to [`RANGES_PER_HOLD`] ranges held by replicas, each with the hash of its key.
    pub(crate) fn held(&self) -> SmallVec<[(RangeIndex, u64); RANGES_PER_HOLD]> {
        let mut held = SmallVec::new();
        self.space.lock().ranges.held_at_front(RANGES_PER_HOLD, |range, hash| held.push((range, hash)));
        held
    }

    /// The raw ranges, with every invariant of the allocator checked.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Vec<(u64, u64, bool)> {
        let space = self.space.lock();
        let seen: Vec<_> = space.ranges.check();
        let aside: u64 = seen.iter().filter(|range| range.2 == ranges::RangeState::Aside).map(|r| r.1).sum();
        assert_eq!(self.usage(), (seen.iter().map(|range| range.1).sum(), aside));
        assert_eq!(self.fit_limit.load(Ordering::Relaxed), space.ranges.fit_limit());
        let held = seen.iter().filter(|range| range.2 == ranges::RangeState::Held).count() as u64;
        assert_eq!(self.keys(), held);
        seen.into_iter()
            .map(|(start, size, state)| (self.spec.base + start, size, state == ranges::RangeState::Aside))
            .collect()
    }
}
