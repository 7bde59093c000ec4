//! The core's background work as one step function: the core starts no threads.

use super::{Core, SHARDS, counters::add, eviction::Eviction, store::Queue};
use crate::{clock::Instant, lock::Mutex};
use std::time::Duration;

/// Steps (holds of at most 64 keys or ranges) in one tick.
const STEPS_PER_TICK: u32 = 32;
/// When to come back with nothing left to do: how long a put that found no room waits for the eviction that it asks for.
const IDLE: Duration = Duration::from_millis(10);
/// How often abandoned puts and ranges set aside are looked for.
const ROUND: Duration = Duration::from_secs(1);

/// Where the background work stands. Its lock is held by a running tick only.
#[derive(Debug, Default)]
pub(crate) struct Background(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    discard_cursor: u16,
    /// Every shard was looked at in this round; ranges set aside may still be left.
    discarded: bool,
    /// Shards whose soft pins were looked at in this round.
    unpin_cursor: u16,
    next_round: Instant,
    eviction: Eviction,
}

impl Core {
    /// One bounded piece of background work: offboarding, eviction, abandoned puts, ranges that were set aside, soft
    /// pins that have run out. Call it again after the returned time, from a thread that may wait for a shard's lock.
    /// Does nothing without the permit, and nothing while another thread is in it.
    pub fn background_tick(&self) -> Duration {
        let Some(mut progress) = self.background.0.try_lock() else { return IDLE };
        if !self.permit.held() {
            return IDLE;
        }
        let now = self.clock.now();
        self.graceful_tick(now);
        let mut more = self.offboarding_tick(now, STEPS_PER_TICK);
        more |= self.eviction_tick(&mut progress.eviction, now, STEPS_PER_TICK);
        if now >= progress.next_round && self.permit.held() {
            // Each has steps of its own, so that neither keeps the other from ever being done.
            if !progress.discarded {
                let mut budget = STEPS_PER_TICK;
                progress.discarded = self.discard_abandoned(&mut progress.discard_cursor, &mut budget);
            }
            let mut budget = STEPS_PER_TICK;
            let released = self.release_due(now, &mut budget);
            let mut budget = STEPS_PER_TICK;
            let unpinned = self.unpin_due(&mut progress.unpin_cursor, now, &mut budget);
            if progress.discarded && released && unpinned {
                (progress.discarded, progress.unpin_cursor) = (false, 0);
                progress.next_round = now.saturating_add(ROUND);
            } else {
                more = true;
            }
        }
        if more { Duration::ZERO } else { IDLE }
    }

    /// Ends soft pins that have run out, in shard after shard from `cursor` on: whether every shard is through. A shard
    /// with nothing to end costs one load.
    fn unpin_due(&self, cursor: &mut u16, now: Instant, budget: &mut u32) -> bool {
        while *cursor < SHARDS {
            if self.store.shard(*cursor).earliest(Queue::Expiry) > now {
                *cursor += 1;
                continue;
            }
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            if !self.unpin_in_shard(*cursor) {
                *cursor += 1;
            }
        }
        true
    }

    /// Releases ranges whose time aside is over: whether none is left.
    fn release_due(&self, now: Instant, budget: &mut u32) -> bool {
        for segment in self.placement.load().segments() {
            loop {
                if *budget == 0 {
                    return false;
                }
                let released = segment.release_aside(now);
                add(&self.counters.ranges_released, released as u64);
                if released == 0 {
                    break;
                }
                *budget -= 1;
            }
        }
        true
    }
}
