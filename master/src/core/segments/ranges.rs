//! The allocator of one segment: which bytes of it are taken, by whom, and where a new value fits.
//!
//! Ranges lie in a slab and know their neighbours, so a release merges at once; free ranges are threaded
//! through bins (16 steps per power of two), found by bitmaps. Every operation is O(1) but for a bounded
//! look through one bin. A taken range carries the hash of the key that lies in it: the table of ranges is
//! at the same time the segment's list of its keys, at no further cost.

use std::mem;

/// Index of a range in its allocator.
pub(crate) type RangeIndex = u32;

/// No range.
pub(crate) const NO_RANGE: RangeIndex = u32::MAX;

/// Largest segment: sizes share a word with the state of a range.
pub(crate) const MAX_CAPACITY: u64 = 1 << 61;

/// Ranges start at multiples of this, so that values keep a machine word's alignment. Only the distance to the
/// next start is rounded; accounts count the bytes that were asked for.
const ALIGN: u64 = 8;

const CHUNK: usize = 128;
const STEPS: u32 = 16;
const STEP_BITS: u32 = 4;
/// Power-of-two classes: sizes up to [`MAX_CAPACITY`], the first class holding all sizes below [`STEPS`].
const CLASSES: usize = 63 - STEP_BITS as usize;
/// Ranges of the fitting bin looked at before a larger bin is split.
const NEAR_LOOK: usize = 8;
/// Ranges of the fitting bin looked at when no larger bin has any: the bound on one hold of the lock.
const FAR_LOOK: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RangeState {
    Free,
    /// Taken by a replica.
    Held,
    /// No replica's any more, but an earlier writer may still write into it.
    Aside,
    /// A slot of the slab without a range.
    Spare,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    start: u64,
    /// Bytes asked for, below 2^62, and the state in the two bits above.
    size_and_state: u64,
    prev: RangeIndex,
    next: RangeIndex,
    /// Held: hash of the key. Free: the neighbours in the bin. Spare: the next spare slot.
    link: u64,
}

impl Range {
    const SPARE: Range =
        Range { start: 0, size_and_state: 3 << 62, prev: NO_RANGE, next: NO_RANGE, link: NO_RANGE as u64 };

    fn size(&self) -> u64 {
        self.size_and_state & ((1 << 62) - 1)
    }

    fn state(&self) -> RangeState {
        match self.size_and_state >> 62 {
            0 => RangeState::Free,
            1 => RangeState::Held,
            2 => RangeState::Aside,
            _ => RangeState::Spare,
        }
    }

    fn set(&mut self, size: u64, state: RangeState) {
        debug_assert!(size >> 62 == 0);
        self.size_and_state = size | (state as u64) << 62;
    }

    fn bin_links(&self) -> (RangeIndex, RangeIndex) {
        (self.link as u32, (self.link >> 32) as u32)
    }

    fn set_bin_links(&mut self, prev: RangeIndex, next: RangeIndex) {
        self.link = u64::from(prev) | u64::from(next) << 32;
    }
}

/// The slab, given back by [`Ranges::take_garbage`] so that it is dropped outside the lock.
pub(crate) type Garbage = Vec<Box<[Range; CHUNK]>>;

/// The ranges of one segment.
#[derive(Debug)]
pub(crate) struct Ranges {
    capacity: u64,
    chunks: Vec<Box<[Range; CHUNK]>>,
    spare: RangeIndex,
    first: RangeIndex,
    taken: usize,
    garbage: Garbage,
    classes: u64,
    steps: [u16; CLASSES],
    bins: Box<[[RangeIndex; STEPS as usize]; CLASSES]>,
}

fn bin_of(size: u64) -> (usize, u32) {
    if size < u64::from(STEPS) {
        return (0, size as u32);
    }
    let power = size.ilog2();
    ((power - STEP_BITS + 1) as usize, (size >> (power - STEP_BITS)) as u32 & (STEPS - 1))
}

/// The largest size that falls into that bin.
fn largest_in_bin(class: usize, step: u32) -> u64 {
    if class == 0 {
        return u64::from(step);
    }
    let shift = class as u32 - 1;
    ((u64::from(STEPS + step) + 1) << shift) - 1
}

impl Ranges {
    /// All of `capacity` bytes free; `0 < capacity <= MAX_CAPACITY`.
    pub(crate) fn new(capacity: u64) -> Ranges {
        debug_assert!(capacity > 0 && capacity <= MAX_CAPACITY);
        let mut ranges = Ranges {
            capacity,
            chunks: Vec::new(),
            spare: NO_RANGE,
            first: NO_RANGE,
            taken: 0,
            garbage: Vec::new(),
            classes: 0,
            steps: [0; CLASSES],
            bins: Box::new([[NO_RANGE; STEPS as usize]; CLASSES]),
        };
        ranges.start_over();
        ranges
    }

    fn start_over(&mut self) {
        self.classes = 0;
        self.steps = [0; CLASSES];
        for class in self.bins.iter_mut() {
            class.fill(NO_RANGE);
        }
        self.spare = NO_RANGE;
        self.first = self.new_range();
        let capacity = self.capacity;
        let first = self.first;
        *self.at_mut(first) = Range { start: 0, prev: NO_RANGE, next: NO_RANGE, ..Range::SPARE };
        self.at_mut(first).set(capacity, RangeState::Free);
        self.put_in_bin(first);
    }

    fn at(&self, index: RangeIndex) -> &Range {
        &self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn at_mut(&mut self, index: RangeIndex) -> &mut Range {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn new_range(&mut self) -> RangeIndex {
        if self.spare == NO_RANGE {
            let base = (self.chunks.len() * CHUNK) as u32;
            let mut chunk = Box::new([Range::SPARE; CHUNK]);
            for (at, range) in chunk.iter_mut().enumerate().take(CHUNK - 1) {
                range.link = u64::from(base) + at as u64 + 1;
            }
            self.chunks.push(chunk);
            self.spare = base;
        }
        let index = self.spare;
        self.spare = self.at(index).link as u32;
        index
    }

    fn drop_range(&mut self, index: RangeIndex) {
        let spare = self.spare;
        *self.at_mut(index) = Range { link: u64::from(spare), ..Range::SPARE };
        self.spare = index;
    }

    /// Bytes up to the next range: what asked for it, and the rounding.
    fn extent(&self, index: RangeIndex) -> u64 {
        let range = self.at(index);
        let end = if range.next == NO_RANGE { self.capacity } else { self.at(range.next).start };
        end - range.start
    }

    fn put_in_bin(&mut self, index: RangeIndex) {
        let (class, step) = bin_of(self.at(index).size());
        let head = mem::replace(&mut self.bins[class][step as usize], index);
        self.at_mut(index).set_bin_links(NO_RANGE, head);
        if head != NO_RANGE {
            let next = self.at(head).bin_links().1;
            self.at_mut(head).set_bin_links(index, next);
        }
        self.steps[class] |= 1 << step;
        self.classes |= 1 << class;
    }

    fn take_from_bin(&mut self, index: RangeIndex) {
        let (class, step) = bin_of(self.at(index).size());
        let (prev, next) = self.at(index).bin_links();
        if next != NO_RANGE {
            let after = self.at(next).bin_links().1;
            self.at_mut(next).set_bin_links(prev, after);
        }
        if prev != NO_RANGE {
            let before = self.at(prev).bin_links().0;
            self.at_mut(prev).set_bin_links(before, next);
            return;
        }
        self.bins[class][step as usize] = next;
        if next == NO_RANGE {
            self.steps[class] &= !(1 << step);
            if self.steps[class] == 0 {
                self.classes &= !(1 << class);
            }
        }
    }

    /// The tightest of the first `look` ranges of that bin which is large enough.
    fn best_in_bin(&self, class: usize, step: u32, size: u64, look: usize) -> Option<RangeIndex> {
        let mut best = None;
        let mut best_size = u64::MAX;
        let mut index = self.bins[class][step as usize];
        for _ in 0..look {
            if index == NO_RANGE {
                break;
            }
            let range = self.at(index);
            if range.size() >= size && range.size() < best_size {
                best = Some(index);
                best_size = range.size();
                if best_size == size {
                    break;
                }
            }
            index = range.bin_links().1;
        }
        best
    }

    fn find(&self, size: u64) -> Option<RangeIndex> {
        let (class, step) = bin_of(size);
        if let Some(near) = self.best_in_bin(class, step, size, NEAR_LOOK) {
            return Some(near);
        }
        // Everything in a higher bin is large enough.
        let steps = u32::from(self.steps[class]) & (u32::MAX << step << 1);
        if steps != 0 {
            return Some(self.bins[class][steps.trailing_zeros() as usize]);
        }
        let classes = self.classes & (u64::MAX << class << 1);
        if classes != 0 {
            let class = classes.trailing_zeros() as usize;
            return Some(self.bins[class][self.steps[class].trailing_zeros() as usize]);
        }
        self.best_in_bin(class, step, size, FAR_LOOK)
    }

    /// Takes `size > 0` bytes for the key with that hash: the range and its start, or `None` when nothing is
    /// large enough.
    pub(crate) fn allocate(&mut self, size: u64, hash: u64) -> Option<(RangeIndex, u64)> {
        debug_assert!(size > 0);
        if size > self.capacity {
            return None;
        }
        let index = self.find(size)?;
        self.take_from_bin(index);
        let extent = self.at(index).size();
        let used = size.next_multiple_of(ALIGN);
        if extent > used {
            let rest = self.new_range();
            let Range { start, next, .. } = *self.at(index);
            *self.at_mut(rest) = Range { start: start + used, prev: index, next, ..Range::SPARE };
            self.at_mut(rest).set(extent - used, RangeState::Free);
            if next != NO_RANGE {
                self.at_mut(next).prev = rest;
            }
            self.at_mut(index).next = rest;
            self.put_in_bin(rest);
        }
        self.taken += 1;
        let range = self.at_mut(index);
        range.set(size, RangeState::Held);
        range.link = hash;
        Some((index, range.start))
    }

    /// Gives a taken range back and merges it with free neighbours; its size.
    pub(crate) fn release(&mut self, index: RangeIndex) -> u64 {
        let Range { prev, next, .. } = *self.at(index);
        let size = self.at(index).size();
        debug_assert!(matches!(self.at(index).state(), RangeState::Held | RangeState::Aside));
        self.taken -= 1;
        if self.taken == 0 {
            // Nothing refers to any range: give the whole slab back, once, rather than keep its peak for ever.
            if self.chunks.len() > 1 {
                self.garbage = mem::take(&mut self.chunks);
            } else {
                self.chunks.clear();
            }
            self.start_over();
            return size;
        }
        let extent = self.extent(index);
        let mut merged = index;
        self.at_mut(index).set(extent, RangeState::Free);
        if next != NO_RANGE && self.at(next).state() == RangeState::Free {
            self.take_from_bin(next);
            self.absorb_next(index);
        }
        if prev != NO_RANGE && self.at(prev).state() == RangeState::Free {
            self.take_from_bin(prev);
            self.absorb_next(prev);
            merged = prev;
        }
        self.put_in_bin(merged);
        size
    }

    fn absorb_next(&mut self, index: RangeIndex) {
        let next = self.at(index).next;
        let Range { next: after, .. } = *self.at(next);
        let size = self.at(index).size() + self.at(next).size();
        self.at_mut(index).set(size, RangeState::Free);
        self.at_mut(index).next = after;
        if after != NO_RANGE {
            self.at_mut(after).prev = index;
        }
        self.drop_range(next);
    }

    /// Keeps a held range taken although no replica has it any more; its size.
    pub(crate) fn set_aside(&mut self, index: RangeIndex) -> u64 {
        debug_assert_eq!(self.at(index).state(), RangeState::Held);
        let size = self.at(index).size();
        self.at_mut(index).set(size, RangeState::Aside);
        size
    }

    /// Up to `limit` held ranges from the front, each with the hash of its key. The caller releases what it
    /// gets before it asks again, so the front is one free range then and each call costs what it returns.
    pub(crate) fn held_at_front(&self, limit: usize, mut found: impl FnMut(RangeIndex, u64)) {
        let mut index = self.first;
        let mut left = limit;
        while index != NO_RANGE && left > 0 {
            let range = self.at(index);
            if range.state() == RangeState::Held {
                found(index, range.link);
                left -= 1;
            }
            index = range.next;
        }
    }

    /// A size that nothing free exceeds: what is larger need not be tried.
    pub(crate) fn fit_limit(&self) -> u64 {
        if self.classes == 0 {
            return 0;
        }
        let class = 63 - self.classes.leading_zeros() as usize;
        let step = self.steps[class].ilog2();
        largest_in_bin(class, step)
    }

    /// Memory to be dropped once the lock is released.
    pub(crate) fn take_garbage(&mut self) -> Garbage {
        mem::take(&mut self.garbage)
    }

    /// Recomputes everything from the raw ranges and compares: held ranges as (start, size, state).
    #[cfg(test)]
    pub(crate) fn check(&self) -> Vec<(u64, u64, RangeState)> {
        let mut seen = Vec::new();
        let mut free = std::collections::BTreeSet::new();
        let (mut index, mut before, mut end) = (self.first, NO_RANGE, 0);
        while index != NO_RANGE {
            let range = self.at(index);
            assert_eq!(range.prev, before, "neighbours agree");
            assert_eq!(range.start, end, "ranges are contiguous");
            end = range.start + self.extent(index);
            match range.state() {
                RangeState::Free => {
                    assert_eq!(range.size(), self.extent(index));
                    assert!(range.size() <= self.fit_limit());
                    assert!(
                        before == NO_RANGE || self.at(before).state() != RangeState::Free,
                        "free neighbours are merged"
                    );
                    free.insert(index);
                }
                RangeState::Spare => panic!("a spare range among the live ones"),
                state => {
                    assert!(self.extent(index) >= range.size() && self.extent(index) < range.size() + ALIGN);
                    seen.push((range.start, range.size(), state));
                }
            }
            before = index;
            index = range.next;
        }
        assert_eq!(end, self.capacity);
        assert_eq!(seen.len(), self.taken);
        for (class, steps) in self.bins.iter().enumerate() {
            for (step, &head) in steps.iter().enumerate() {
                assert_eq!(self.steps[class] >> step & 1 == 1, head != NO_RANGE);
                let (mut index, mut before) = (head, NO_RANGE);
                while index != NO_RANGE {
                    assert!(free.remove(&index), "only free ranges are in bins, once");
                    assert_eq!(bin_of(self.at(index).size()), (class, step as u32));
                    assert_eq!(self.at(index).bin_links().0, before);
                    before = index;
                    index = self.at(index).bin_links().1;
                }
            }
            assert_eq!(self.classes >> class & 1 == 1, self.steps[class] != 0);
        }
        assert!(free.is_empty(), "every free range is in a bin");
        seen
    }

    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.chunks.len() * CHUNK
    }
}

#[cfg(test)]
mod tests;
