//! Groups: objects that are read, and evicted, together (facts §2.7).

use super::lease::Lease;
use crate::{clock::Instant, lock::Mutex};
use hashbrown::{HashMap, HashSet, hash_map::EntryRef};
use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

const STRIPES: usize = 64;

/// What the members of a group share. A lease on one is a lease on all; once the lease is doomed all of them are gone
/// at that same moment, whichever shards they lie in, and what is left of them is only to be cleaned up.
#[derive(Debug)]
pub(crate) struct Group {
    name: Box<[u8]>,
    pub(crate) lease: Lease,
}

impl Group {
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }
}

/// What of a member may keep the whole group from being evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MemberState {
    pub(crate) unfinished: bool,
    pub(crate) hard_pinned: bool,
    pub(crate) soft_pinned: bool,
}

#[derive(Debug)]
struct Members {
    group: Arc<Group>,
    /// Hashes of their keys.
    hashes: HashSet<u64>,
    /// Members that are unfinished or pinned hard.
    held: usize,
    soft_pinned: usize,
}

impl Members {
    fn count(&mut self, state: MemberState) {
        self.held += usize::from(state.unfinished || state.hard_pinned);
        self.soft_pinned += usize::from(state.soft_pinned);
    }

    fn discount(&mut self, state: MemberState) {
        self.held -= usize::from(state.unfinished || state.hard_pinned);
        self.soft_pinned -= usize::from(state.soft_pinned);
    }
}

type Stripe = Mutex<HashMap<Box<[u8]>, Members>>;

/// Name, hashes of the members, how many hold it back, how many have a soft pin.
#[cfg(test)]
type Summary = (Box<[u8]>, Vec<u64>, usize, usize);

/// The groups of the store. A stripe is locked inside a shard's lock, for O(1).
#[derive(Debug)]
pub(crate) struct Groups {
    stripes: Box<[Stripe]>,
    hash: RandomState,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups { stripes: (0..STRIPES).map(|_| Stripe::default()).collect(), hash: RandomState::new() }
    }
}

impl Groups {
    fn stripe(&self, name: &[u8]) -> &Stripe {
        &self.stripes[self.hash.hash_one(name) as usize % STRIPES]
    }

    /// Enters a member into the group of that name, which begins with it if it is the first.
    pub(crate) fn enter(&self, name: &[u8], hash: u64, state: MemberState) -> Arc<Group> {
        let mut stripe = self.stripe(name).lock();
        let members = match stripe.entry_ref(name) {
            EntryRef::Occupied(entry) => entry.into_mut(),
            EntryRef::Vacant(entry) => {
                let group = Arc::new(Group { name: name.into(), lease: Lease::default() });
                let members = Members { group, hashes: HashSet::new(), held: 0, soft_pinned: 0 };
                entry.insert_with_key(name.into(), members)
            }
        };
        members.hashes.insert(hash);
        members.count(state);
        members.group.clone()
    }

    /// Takes a member out. One of a doomed group is out already.
    pub(crate) fn leave(&self, group: &Arc<Group>, hash: u64, state: MemberState) {
        let mut stripe = self.stripe(&group.name).lock();
        let Some(members) = stripe.get_mut(&group.name).filter(|of| Arc::ptr_eq(&of.group, group)) else {
            return;
        };
        members.hashes.remove(&hash);
        members.discount(state);
        if members.hashes.is_empty() {
            stripe.remove(&group.name);
        }
    }

    /// A member has changed.
    pub(crate) fn update(&self, group: &Arc<Group>, before: MemberState, after: MemberState) {
        if before == after {
            return;
        }
        let mut stripe = self.stripe(&group.name).lock();
        if let Some(members) = stripe.get_mut(&group.name).filter(|of| Arc::ptr_eq(&of.group, group)) {
            members.discount(before);
            members.count(after);
        }
    }

    /// Dooms the group if all of it may be evicted: the hashes of its members, which the caller is to erase. None: one
    /// is leased, unfinished or pinned, or the group is doomed already.
    pub(crate) fn doom(&self, group: &Arc<Group>, now: Instant, soft_pinned: bool) -> Option<HashSet<u64>> {
        let mut stripe = self.stripe(&group.name).lock();
        let members = stripe.get(&group.name).filter(|of| Arc::ptr_eq(&of.group, group))?;
        if members.held > 0 || !soft_pinned && members.soft_pinned > 0 || !group.lease.doom(now) {
            return None;
        }
        stripe.remove(&group.name).map(|members| members.hashes)
    }

    /// Every group: its name, its members, how many hold it back, how many have a soft pin.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Vec<Summary> {
        let mut all = Vec::new();
        for stripe in &self.stripes {
            for (name, members) in &*stripe.lock() {
                assert!(!members.group.lease.is_doomed() && !members.hashes.is_empty());
                let mut hashes: Vec<u64> = members.hashes.iter().copied().collect();
                hashes.sort_unstable();
                all.push((name.clone(), hashes, members.held, members.soft_pinned));
            }
        }
        all.sort();
        all
    }
}
