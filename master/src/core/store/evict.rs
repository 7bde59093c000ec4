//! Eviction in one shard: what one hold of its lock does. When, where and how much is decided in `core::eviction`.

use super::{
    KEYS_PER_HOLD, Object, Store,
    aging::{Queue, not_before},
    group::Group,
};
use crate::{clock::Instant, core::Core};
use std::{sync::Arc, time::Duration};

/// When to look again at what may not be evicted for another reason than its lease: another member of its group is
/// being written or pinned, or its client is Suspected.
const DEFER: Duration = Duration::from_secs(2);

/// Members of groups that were evicted and are still to be erased.
pub(crate) type Doomed = Vec<(Arc<Group>, u64)>;

/// What one hold achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Evicted {
    /// Objects that were evicted; members of doomed groups count when they are erased.
    pub(crate) keys: u64,
    /// Bytes of their values, all replicas.
    pub(crate) bytes: u64,
}

enum Verdict {
    Evict,
    EvictGroup,
    /// It is not its turn before then.
    Wait(Instant),
}

/// `in_turn`: what stands at the front was not used since, or so little later that it goes together with the others.
fn judge(object: &Object, in_turn: bool, now: Instant) -> Verdict {
    let until = object.lease().until();
    if object.is_doomed() {
        Verdict::Wait(now.saturating_add(DEFER))
    } else if until > now {
        Verdict::Wait(not_before(until))
    } else if !in_turn {
        Verdict::Wait(until)
    } else if !object.is_evictable() {
        Verdict::Wait(now.saturating_add(DEFER))
    } else if object.group().is_some() {
        Verdict::EvictGroup
    } else {
        Verdict::Evict
    }
}

fn bytes(object: &Object) -> u64 {
    object.size() * object.replicas().len() as u64
}

impl Core {
    /// Evicts up to `quota` objects from the front of a queue of that shard, looking at no more than
    /// [`KEYS_PER_HOLD`] and at no run that begins after `limit`. `None` without the permit.
    pub(crate) fn evict_in_shard(
        &self,
        shard: u16,
        queue: Queue,
        limit: Instant,
        quota: u64,
        doomed: &mut Doomed,
    ) -> Option<Evicted> {
        let mut shard = self.store.write_blocking(shard);
        // The lock may have taken long, and without the permit nothing moves.
        if !self.permit.held() {
            return None;
        }
        let now = self.clock.now();
        shard.note_time(now);
        let mut evicted = Evicted::default();
        for _ in 0..KEYS_PER_HOLD {
            if evicted.keys >= quota {
                break;
            }
            let Some((front, position)) = shard.front(queue, limit.min(now)) else { break };
            let Some(object) = shard.at(position) else { break };
            let until = object.lease().until();
            let in_turn = until < front.end && until <= limit || shard.is_in_place(&front, until);
            match judge(object, in_turn, now) {
                Verdict::Wait(until) => shard.requeue(queue, front, until),
                Verdict::Evict => {
                    evicted.keys += 1;
                    evicted.bytes += bytes(object);
                    let hash = self.store.hash(object.key());
                    if object.disk().is_some() {
                        // Its file goes on serving it.
                        shard.change(hash, position, |object| drop(object.extract(|_| true)));
                    } else {
                        shard.erase(hash, position);
                    }
                }
                Verdict::EvictGroup => {
                    let group = object.group().cloned();
                    if let Some(group) = group
                        && let Some(hashes) = self.store.groups().doom(&group, now, queue == Queue::Pinned)
                    {
                        doomed.extend(hashes.into_iter().map(|hash| (group.clone(), hash)));
                    }
                    shard.requeue(queue, front, now.saturating_add(DEFER));
                }
            }
        }
        Some(evicted)
    }

    /// Erases members of evicted groups, up to `budget` of them. `None` without the permit.
    pub(crate) fn erase_doomed(&self, doomed: &mut Doomed, budget: usize) -> Option<Evicted> {
        let mut evicted = Evicted::default();
        for _ in 0..budget {
            let Some((group, hash)) = doomed.last() else { break };
            let mut shard = self.store.write_blocking(Store::shard_of(*hash));
            if !self.permit.held() {
                return None;
            }
            let is_member = |object: &Object| object.group().is_some_and(|of| Arc::ptr_eq(of, group));
            // A writer may have come first and erased it.
            if let Some(position) = shard.position(*hash, is_member)
                && let Some(object) = shard.at(position)
            {
                evicted.keys += 1;
                evicted.bytes += bytes(object);
                shard.erase(*hash, position);
            }
            drop(shard);
            doomed.pop();
        }
        Some(evicted)
    }

    /// Ends the soft pins in that shard that have run out, looking at no more than [`KEYS_PER_HOLD`]: whether any is
    /// left that should be looked at.
    pub(crate) fn unpin_in_shard(&self, index: u16) -> bool {
        let mut shard = self.store.write_blocking(index);
        if !self.permit.held() {
            return false;
        }
        let now = self.clock.now();
        shard.note_time(now);
        for _ in 0..KEYS_PER_HOLD {
            let Some((front, position)) = shard.front(Queue::Expiry, now) else { return false };
            let Some(object) = shard.at(position) else { return false };
            match object.soft_pinned_until() {
                Some(until) if until > now => shard.requeue(Queue::Expiry, front, not_before(until)),
                _ => {
                    let hash = self.store.hash(object.key());
                    shard.change(hash, position, Object::unpin);
                }
            }
        }
        true
    }
}
