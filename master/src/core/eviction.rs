//! When memory is short: rounds of eviction (facts §3.7), in steps that hold a shard for at most 64 keys.
//!
//! A round begins when the used share of memory is above the high watermark, or when a Start has found no room. It goes
//! to the shards whose queues have the oldest fronts, so its cost follows from what it evicts and from the leases that
//! were extended since, not from the number of keys; and it knows without a look at any key when nothing may be evicted.

use super::{
    Core,
    counters::add,
    segments::Placement,
    store::{Doomed, Evicted, Queue},
};
use crate::{clock::Instant, core::eligibility::ServingEligibility};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// How old a shard's front may be, as a part of the age of the oldest, to have its turn together with it.
const TOGETHER: u32 = 8;
/// The least of that.
const TOGETHER_AT_LEAST: Duration = Duration::from_millis(500);
/// After a round without effect the watermark alone begins no other for so long. A Start that finds no room does.
const PAUSE: Duration = Duration::from_secs(1);
/// The same obstacle is logged once in this time.
const EXPLAIN_EVERY: Duration = Duration::from_secs(60);
/// Segments whose usage may be summed up every [`LOOK`].
const SEGMENTS_PER_LOOK: u32 = 256;
/// How often the used share is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Why a round evicted nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// What could go has an unexpired read lease, belongs to a group of which another member may not go, or lies with
    /// a Suspected client.
    InUse,
    /// What is left is soft-pinned, and `allow_evict_soft_pinned_objects` is off.
    SoftPinned,
    /// What is left is hard-pinned.
    HardPinned,
    /// What is left is still being written, or set aside for writers that may still be at it.
    Unfinished,
    /// The value that found no room is larger than any segment could hold with everything evicted.
    TooLarge,
}

impl Obstacle {
    /// All of them.
    pub const ALL: [Obstacle; 5] = [
        Obstacle::InUse,
        Obstacle::SoftPinned,
        Obstacle::HardPinned,
        Obstacle::Unfinished,
        Obstacle::TooLarge,
    ];

    /// As a label.
    pub const fn name(self) -> &'static str {
        match self {
            Obstacle::InUse => "in_use",
            Obstacle::SoftPinned => "soft_pinned",
            Obstacle::HardPinned => "hard_pinned",
            Obstacle::Unfinished => "unfinished",
            Obstacle::TooLarge => "too_large",
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What data calls tell: the sizes of the smallest and of the largest value for which there was no room since the last
/// look; 0 if it was the index that had none.
#[derive(Debug)]
pub(crate) struct Pressure {
    least: AtomicU64,
    most: AtomicU64,
}

impl Default for Pressure {
    fn default() -> Pressure {
        Pressure { least: AtomicU64::new(u64::MAX), most: AtomicU64::new(0) }
    }
}

/// Values that found no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Asked {
    least: u64,
    most: u64,
}

impl Pressure {
    /// There was no room for a value of `size` bytes.
    pub(crate) fn note(&self, size: u64) {
        self.most.fetch_max(size, Ordering::Relaxed);
        self.least.fetch_min(size, Ordering::Release);
    }

    /// The index was full.
    pub(crate) fn note_ceiling(&self) {
        self.least.store(0, Ordering::Release);
    }

    fn take(&self) -> Option<Asked> {
        // Whoever told the least has told the most before.
        let least = self.least.swap(u64::MAX, Ordering::Acquire);
        (least < u64::MAX).then(|| Asked { least, most: self.most.swap(0, Ordering::Relaxed) })
    }
}

/// Where eviction stands.
#[derive(Debug, Default)]
pub(crate) struct Eviction {
    round: Option<Round>,
    /// Erased before anything else: it is gone already.
    doomed: Doomed,
    next_look: Instant,
    /// The watermark begins no round before this.
    not_before: Instant,
    explained: Option<(Obstacle, Instant)>,
}

/// A round under way.
#[derive(Debug)]
struct Round {
    queue: Queue,
    /// Objects that it is to evict.
    goal: u64,
    /// With fewer than this, soft-pinned ones go, too.
    least: u64,
    done: Evicted,
    /// Shards to visit next, the last first; each with its share.
    visits: Vec<u16>,
    quota: u64,
    limit: Instant,
}

/// What is used of what there is, and the largest value that could ever find room.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Usage {
    share: f64,
    largest: u64,
}

fn usage(placement: &Placement) -> Usage {
    let (mut allocated, mut capacity, mut largest) = (0, 0, 0);
    for segment in placement.segments().filter(|segment| ServingEligibility::of(segment).can_serve()) {
        allocated += segment.usage().0;
        capacity += segment.spec().size;
        largest = largest.max(segment.spec().size - segment.hard_pinned());
    }
    let share = if capacity == 0 { 0.0 } else { allocated as f64 / capacity as f64 };
    Usage { share, largest }
}

/// Whether there is room by now for all that asked: memory was freed since, or a client was heard again that was
/// Suspected when they asked.
fn has_room(placement: &Placement, asked: Asked, now: Instant) -> bool {
    let mut serving = placement.segments().filter(|segment| ServingEligibility::of(segment).can_serve());
    // Of the index nothing is known here.
    asked.least > 0
        && asked.least <= asked.most
        && serving.any(|segment| segment.usable_from() <= now && segment.surely_fits(asked.most))
}

impl Core {
    /// One piece of eviction, at most `budget` holds of a shard: whether there is more to do at once.
    pub(crate) fn eviction_tick(&self, eviction: &mut Eviction, now: Instant, mut budget: u32) -> bool {
        if !eviction.doomed.is_empty() {
            match self.erase_doomed(&mut eviction.doomed, budget as usize) {
                Some(evicted) => self.count_evicted(eviction.round.as_mut(), evicted),
                None => return false,
            }
            return true;
        }
        if eviction.round.is_none() {
            eviction.round = self.begin_round(eviction, now);
        }
        let Some(mut round) = eviction.round.take() else { return false };
        while budget > 0 && eviction.doomed.is_empty() {
            let Some(shard) = self.next_visit(&mut round, now) else {
                self.end_round(eviction, &round, now);
                return round.done.keys > 0;
            };
            budget -= 1;
            let Some(evicted) =
                self.evict_in_shard(shard, round.queue, round.limit, round.quota, &mut eviction.doomed)
            else {
                break;
            };
            self.count_evicted(Some(&mut round), evicted);
        }
        eviction.round = Some(round);
        true
    }

    fn count_evicted(&self, round: Option<&mut Round>, evicted: Evicted) {
        add(&self.counters.evicted_keys, evicted.keys);
        add(&self.counters.evicted_bytes, evicted.bytes);
        if let Some(round) = round {
            round.done.keys += evicted.keys;
            round.done.bytes += evicted.bytes;
        }
    }

    fn begin_round(&self, eviction: &mut Eviction, now: Instant) -> Option<Round> {
        let options = self.options.eviction;
        let asked = self.pressure.take();
        if asked.is_none() && now < eviction.next_look {
            return None;
        }
        let placement = self.placement.load();
        let looks = 1 + placement.segments().count() as u32 / SEGMENTS_PER_LOOK;
        eviction.next_look = now.saturating_add(LOOK * looks);
        let Usage { share, largest } = usage(&placement);
        let fits = asked.is_some_and(|asked| asked.least <= largest);
        let in_want =
            fits && options.ratio > 0.0 && !asked.is_some_and(|asked| has_room(&placement, asked, now));
        drop(placement);
        if asked.is_some() && !fits && largest > 0 {
            // Whatever went, it would go in vain.
            self.explain(eviction, Obstacle::TooLarge, now);
        }
        let above = share > options.high_watermark && now >= eviction.not_before;
        if !above && !in_want {
            return None;
        }
        let over = share - options.high_watermark;
        let target = options.ratio.max(over + options.ratio).min(1.0);
        let evictable = self.store.queued(Queue::Plain) + self.store.queued(Queue::Pinned);
        let of = |share: f64| (evictable as f64 * share.max(0.0)).ceil() as u64;
        add(&self.counters.evictions_attempted, 1);
        Some(Round {
            queue: Queue::Plain,
            goal: of(target),
            least: of((target / 2.0).max(over)),
            done: Evicted::default(),
            visits: Vec::new(),
            quota: 0,
            limit: Instant::ZERO,
        })
    }

    /// The shard to go to next, after having planned the next sweep if need be. None: the round is over.
    fn next_visit(&self, round: &mut Round, now: Instant) -> Option<u16> {
        loop {
            let goal = if round.queue == Queue::Plain { round.goal } else { round.least };
            let left = goal.saturating_sub(round.done.keys);
            if left > 0 {
                if let Some(shard) = round.visits.pop() {
                    round.quota = round.quota.min(left);
                    return Some(shard);
                }
                let fronts = self.store.fronts(round.queue, now);
                if let Some(&(oldest, _)) = fronts.first() {
                    let age = now.saturating_since(oldest);
                    round.limit = oldest.saturating_add(TOGETHER_AT_LEAST.max(age / TOGETHER));
                    let count = fronts.partition_point(|front| front.0 <= round.limit);
                    // The oldest first, and each the same share; with fewer to evict than shards, one each.
                    let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
                    round.quota = left.div_ceil(count as u64);
                    round.visits = fronts[..count].iter().rev().map(|front| front.1).collect();
                    continue;
                }
            }
            let more = round.done.keys < round.least && self.options.eviction.allow_soft_pinned;
            if round.queue == Queue::Pinned || !more {
                return None;
            }
            round.queue = Queue::Pinned;
            round.visits.clear();
        }
    }

    fn end_round(&self, eviction: &mut Eviction, round: &Round, now: Instant) {
        if round.done.keys > 0 {
            add(&self.counters.evictions_successful, 1);
            tracing::debug!(keys = round.done.keys, bytes = round.done.bytes, "evicted");
            return;
        }
        eviction.not_before = now.saturating_add(PAUSE);
        let (keys, unfinished) = self.store.counts();
        let (plain, pinned) = (self.store.queued(Queue::Plain), self.store.queued(Queue::Pinned));
        let obstacle = if plain > 0 || pinned > 0 && self.options.eviction.allow_soft_pinned {
            Obstacle::InUse
        } else if pinned > 0 {
            Obstacle::SoftPinned
        } else if keys > unfinished {
            Obstacle::HardPinned
        } else {
            Obstacle::Unfinished
        };
        self.explain(eviction, obstacle, now);
    }

    /// Counts, and logs now and then, what keeps eviction from freeing anything: the puts meanwhile are answered
    /// `NoAvailableHandle`.
    fn explain(&self, eviction: &mut Eviction, obstacle: Obstacle, now: Instant) {
        add(&self.counters.evictions_without_effect[obstacle as usize], 1);
        let logged =
            |(of, at): (Obstacle, Instant)| of == obstacle && now.saturating_since(at) < EXPLAIN_EVERY;
        if eviction.explained.is_some_and(logged) {
            return;
        }
        eviction.explained = Some((obstacle, now));
        let (keys, unfinished) = self.store.counts();
        tracing::warn!(
            %obstacle,
            keys,
            unfinished,
            evictable = self.store.queued(Queue::Plain),
            soft_pinned = self.store.queued(Queue::Pinned),
            "eviction cannot free anything; puts that find no room are refused"
        );
    }
}
