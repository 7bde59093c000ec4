//! In which order the objects of a shard may be evicted.
//!
//! A queue is a row of *runs*, each for a stretch of time; a run is a circular list of small nodes. An object is put
//! into the run of the time at which its read lease ends. Readers extend leases under a shared lock and touch no queue,
//! so a node may stand in an earlier run than its object belongs to, never in a much later one: who takes it from the
//! front looks at the lease and moves it on. That makes every step O(1) and the order near-LRU: exact as long as a row
//! has fewer than [`MAX_RUNS`] runs, then to a fraction of the age.

use crate::clock::Instant;
use std::time::Duration;

/// Runs begin at multiples of this.
pub(crate) const GRAIN: Duration = Duration::from_millis(500);
/// Runs of a row at the most; beyond, the two are joined that are closest for their age.
const MAX_RUNS: usize = 64;
/// A time this part of its own age away from the start of a run opens no run of its own.
const RESOLUTION: u32 = 8;
const CHUNK: usize = 128;
/// No node.
const NONE: u32 = u32::MAX;

/// What a queue is sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    /// Objects that may be evicted, by the end of their leases.
    Plain = 0,
    /// The same for those with a soft pin.
    Pinned = 1,
    /// Soft pins, by their end.
    Expiry = 2,
}

/// An object's node; the object keeps it. 12 bytes for each object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(u32);

impl Slot {
    /// In no queue.
    pub(crate) const NONE: Slot = Slot(NONE);
    const PINNED: u32 = 1 << 31;

    fn new(node: u32, queue: Queue) -> Slot {
        Slot(if queue == Queue::Pinned { node | Slot::PINNED } else { node })
    }

    fn node(self) -> u32 {
        self.0 & !Slot::PINNED
    }

    /// The queue of objects in which it is.
    pub(crate) fn queue(self) -> Option<Queue> {
        match self {
            Slot::NONE => None,
            Slot(slot) if slot & Slot::PINNED != 0 => Some(Queue::Pinned),
            Slot(_) => Some(Queue::Plain),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Finds the object in the table. A spare node has none.
    tag: u32,
    prev: u32,
    /// A spare node: the next spare one.
    next: u32,
}

#[derive(Debug)]
struct Run {
    start: Instant,
    /// The node that closes the circle; it is nobody's.
    sentinel: u32,
}

#[derive(Debug)]
struct Row {
    /// By their start, all different.
    runs: Vec<Run>,
    len: u32,
    /// Start of the first run that has something, kept so that nobody has to look for it.
    first: Instant,
}

impl Default for Row {
    fn default() -> Row {
        Row { runs: Vec::new(), len: 0, first: Instant::MAX }
    }
}

/// The node at the front of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Front {
    pub(crate) slot: Slot,
    pub(crate) tag: u32,
    /// Where its run begins.
    start: Instant,
    /// From here on times belong to the next run.
    pub(crate) end: Instant,
}

/// The queues of one shard.
#[derive(Debug)]
pub(crate) struct Aging {
    /// Blocks of their own, so that growth moves and doubles nothing.
    chunks: Vec<Box<[Node]>>,
    /// Nodes below this have been used. To take a new one reads nothing of it.
    used: u32,
    /// The first of those that are not any more.
    spare: u32,
    rows: [Row; 3],
    /// The latest time that anybody has told; ages are taken from it.
    now: Instant,
}

impl Default for Aging {
    fn default() -> Aging {
        Aging { chunks: Vec::new(), used: 0, spare: NONE, rows: Default::default(), now: Instant::ZERO }
    }
}

fn floor(at: Instant) -> Instant {
    let grain = GRAIN.as_nanos() as u64;
    Instant::from_nanos(at.as_nanos() / grain * grain)
}

/// The first start of a run that is not before `at`: a node put there does not come to the front too early.
pub(crate) fn not_before(at: Instant) -> Instant {
    let grain = GRAIN.as_nanos() as u64;
    Instant::from_nanos(at.as_nanos().div_ceil(grain).saturating_mul(grain))
}

impl Aging {
    fn at(&self, node: u32) -> &Node {
        &self.chunks[node as usize / CHUNK][node as usize % CHUNK]
    }

    fn at_mut(&mut self, node: u32) -> &mut Node {
        &mut self.chunks[node as usize / CHUNK][node as usize % CHUNK]
    }

    fn new_node(&mut self, tag: u32) -> u32 {
        let node = if self.spare == NONE {
            if self.used as usize == self.chunks.len() * CHUNK {
                let unused = Node { tag: 0, prev: 0, next: 0 };
                self.chunks.push(vec![unused; CHUNK].into_boxed_slice());
            }
            self.used += 1;
            self.used - 1
        } else {
            let node = self.spare;
            self.spare = self.at(node).next;
            node
        };
        *self.at_mut(node) = Node { tag, prev: node, next: node };
        node
    }

    fn drop_node(&mut self, node: u32) {
        self.at_mut(node).next = self.spare;
        self.spare = node;
    }

    /// Whether its run has nothing any more.
    fn unlink(&mut self, node: u32) -> bool {
        let Node { prev, next, .. } = *self.at(node);
        self.at_mut(prev).next = next;
        self.at_mut(next).prev = prev;
        // Only the sentinel is left of the circle.
        prev == next
    }

    fn find_first(&mut self, queue: Queue) {
        let runs = &self.rows[queue as usize].runs;
        let first = runs.iter().find(|run| !self.is_empty_run(run));
        self.rows[queue as usize].first = first.map_or(Instant::MAX, |run| run.start);
    }

    /// Links a node in at the end of a run.
    fn link(&mut self, node: u32, sentinel: u32) {
        let last = self.at(sentinel).prev;
        self.at_mut(last).next = node;
        self.at_mut(node).prev = last;
        self.at_mut(node).next = sentinel;
        self.at_mut(sentinel).prev = node;
    }

    fn is_empty_run(&self, run: &Run) -> bool {
        self.at(run.sentinel).next == run.sentinel
    }

    /// Tells the time.
    pub(crate) fn note(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Objects in a queue.
    pub(crate) fn len(&self, queue: Queue) -> u32 {
        self.rows[queue as usize].len
    }

    /// The earliest time at which the front of a queue may be worth a look; [`Instant::MAX`] if it is empty.
    pub(crate) fn earliest(&self, queue: Queue) -> Instant {
        self.rows[queue as usize].first
    }

    /// Puts an object into a queue.
    pub(crate) fn insert(&mut self, queue: Queue, tag: u32, at: Instant) -> Slot {
        let node = self.new_node(tag);
        let (sentinel, start) = self.run_for(queue, at);
        self.link(node, sentinel);
        let row = &mut self.rows[queue as usize];
        row.len += 1;
        row.first = row.first.min(start);
        Slot::new(node, queue)
    }

    /// Takes an object out of the queue in which it is.
    pub(crate) fn remove(&mut self, queue: Queue, slot: Slot) {
        debug_assert!(slot != Slot::NONE);
        let was_last = self.unlink(slot.node());
        self.drop_node(slot.node());
        self.rows[queue as usize].len -= 1;
        if was_last {
            self.find_first(queue);
        }
        if self.rows.iter().all(|row| row.len == 0) {
            // Nobody refers to any node: give everything back rather than keep its peak for ever.
            *self = Aging { now: self.now, ..Aging::default() };
        }
    }

    /// Moves an object to another time in the same queue.
    pub(crate) fn put_at(&mut self, queue: Queue, slot: Slot, at: Instant) {
        self.unlink(slot.node());
        let (sentinel, _) = self.run_for(queue, at);
        self.link(slot.node(), sentinel);
        self.find_first(queue);
    }

    /// The node that is next in a queue, if its run begins at `limit` or before.
    pub(crate) fn front(&mut self, queue: Queue, limit: Instant) -> Option<Front> {
        self.drop_empty(queue, 1);
        let runs = &self.rows[queue as usize].runs;
        let run = runs.first().filter(|run| run.start <= limit)?;
        let node = self.at(run.sentinel).next;
        let end = runs.get(1).map_or(Instant::MAX, |run| run.start);
        Some(Front { slot: Slot::new(node, queue), tag: self.at(node).tag, start: run.start, end })
    }

    /// How far from the start of a run a time may be without opening one of its own.
    fn close(&self, at: Instant) -> Duration {
        GRAIN.max(self.now.saturating_since(at) / RESOLUTION)
    }

    /// Whether a time belongs to the very run at the front, so that to move there would change nothing.
    pub(crate) fn is_in_place(&self, front: &Front, at: Instant) -> bool {
        at < front.end && at.saturating_since(front.start) < self.close(at)
    }

    /// Drops empty runs from the front until `keep` of the row have something, or none is left.
    fn drop_empty(&mut self, queue: Queue, keep: usize) {
        let mut at = 0;
        while at < keep && at < self.rows[queue as usize].runs.len() {
            if self.is_empty_run(&self.rows[queue as usize].runs[at]) {
                let run = self.rows[queue as usize].runs.remove(at);
                self.drop_node(run.sentinel);
            } else {
                at += 1;
            }
        }
    }

    /// The run to which a time belongs, and its start; opened if there is none that is close enough.
    fn run_for(&mut self, queue: Queue, at: Instant) -> (u32, Instant) {
        let row = &self.rows[queue as usize];
        let after = row.runs.partition_point(|run| run.start <= at);
        if let Some(run) = after.checked_sub(1).and_then(|before| row.runs.get(before))
            && at.saturating_since(run.start) < self.close(at)
        {
            return (run.sentinel, run.start);
        }
        if row.runs.len() >= MAX_RUNS {
            self.join(queue);
        }
        let start = floor(at);
        let sentinel = self.new_node(NONE);
        let runs = &mut self.rows[queue as usize].runs;
        let place = runs.partition_point(|run| run.start < start);
        debug_assert!(runs.get(place).is_none_or(|run| run.start > start));
        runs.insert(place, Run { start, sentinel });
        (sentinel, start)
    }

    /// Makes room for a run: by dropping empty ones, else by joining the two neighbours that are closest for their age.
    /// What may be evicted by now is not joined with what may not.
    fn join(&mut self, queue: Queue) {
        self.drop_empty(queue, usize::MAX);
        let runs = &self.rows[queue as usize].runs;
        if runs.len() < MAX_RUNS {
            return;
        }
        let score = |at: usize| {
            let end = runs.get(at + 2).unwrap_or(&runs[at + 1]).start;
            let (start, now) = (runs[at].start.as_nanos(), self.now.as_nanos());
            (end.as_nanos() - start) as f64 / (start.abs_diff(now) + GRAIN.as_nanos() as u64) as f64
        };
        let apart = |at: &usize| (runs[*at].start <= self.now) == (runs[at + 1].start <= self.now);
        let best = (0..runs.len() - 1).filter(apart).min_by(|a, b| score(*a).total_cmp(&score(*b)));
        // Of three neighbours two are on the same side.
        let Some(first) = best else { return };
        let joined = self.rows[queue as usize].runs.remove(first + 1);
        let into = self.rows[queue as usize].runs[first].sentinel;
        let Node { prev: last, next: head, .. } = *self.at(joined.sentinel);
        let end = self.at(into).prev;
        self.at_mut(end).next = head;
        self.at_mut(head).prev = end;
        self.at_mut(last).next = into;
        self.at_mut(into).prev = last;
        self.drop_node(joined.sentinel);
    }

    /// Checks every invariant; how many objects each queue has, and each one's slot with its tag.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Vec<(Queue, Slot, u32)> {
        let mut seen = Vec::new();
        let mut nodes = std::collections::BTreeSet::new();
        for (row, queue) in self.rows.iter().zip([Queue::Plain, Queue::Pinned, Queue::Expiry]) {
            assert!(row.runs.is_sorted_by(|a, b| a.start < b.start), "runs are in order");
            assert!(row.runs.len() <= MAX_RUNS);
            let before = seen.len();
            for run in &row.runs {
                assert_eq!(floor(run.start), run.start);
                assert!(nodes.insert(run.sentinel));
                let (mut prev, mut node) = (run.sentinel, self.at(run.sentinel).next);
                while node != run.sentinel {
                    assert_eq!(self.at(node).prev, prev);
                    assert!(nodes.insert(node), "each node is in one run, once");
                    seen.push((queue, Slot::new(node, queue), self.at(node).tag));
                    (prev, node) = (node, self.at(node).next);
                }
                assert_eq!(self.at(run.sentinel).prev, prev);
            }
            assert_eq!(seen.len() - before, row.len as usize);
            let first = row.runs.iter().find(|run| !self.is_empty_run(run));
            assert_eq!(row.first, first.map_or(Instant::MAX, |run| run.start), "the first is known");
        }
        let mut spare = self.spare;
        while spare != NONE {
            assert!(nodes.insert(spare), "a spare node is in no run");
            spare = self.at(spare).next;
        }
        assert_eq!(nodes.len(), self.used as usize, "no node is lost");
        seen
    }

    #[cfg(test)]
    pub(crate) fn runs(&self, queue: Queue) -> usize {
        self.rows[queue as usize].runs.len()
    }
}

#[cfg(test)]
mod tests;
