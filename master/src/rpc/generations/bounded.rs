//! A map that never holds more than its capacity: what was not used for the longest time goes first.

use hashbrown::HashMap;
use std::hash::Hash;

/// When the map is full, this part of it goes at once, so that making room costs little per entry.
const PURGED_PART: usize = 4;

/// The map. Entries that `is_held` says are in use stay; the caller keeps their number below the capacity.
#[derive(Debug)]
pub(super) struct Bounded<K, V> {
    entries: HashMap<K, (V, u64)>,
    capacity: usize,
    /// Counts uses.
    now: u64,
    is_held: fn(&V) -> bool,
}

impl<K: Hash + Eq + Copy, V: Default> Bounded<K, V> {
    pub(super) fn new(capacity: usize, is_held: fn(&V) -> bool) -> Bounded<K, V> {
        Bounded { entries: HashMap::new(), capacity, now: 0, is_held }
    }

    /// An entry that is there.
    pub(super) fn get(&mut self, key: K) -> Option<&mut V> {
        self.now += 1;
        let (value, used) = self.entries.get_mut(&key)?;
        *used = self.now;
        Some(value)
    }

    /// An entry, made if it is not there.
    pub(super) fn entry(&mut self, key: K) -> &mut V {
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&key) {
            self.purge();
        }
        self.now += 1;
        let (value, used) = self.entries.entry(key).or_default();
        *used = self.now;
        value
    }

    fn purge(&mut self) {
        let is_held = self.is_held;
        let mut uses: Vec<u64> =
            self.entries.values().filter(|(value, _)| !is_held(value)).map(|(_, used)| *used).collect();
        let part = (self.capacity / PURGED_PART).clamp(1, uses.len().max(1));
        if uses.is_empty() {
            return;
        }
        let (_, last, _) = uses.select_nth_unstable(part - 1);
        let last = *last;
        self.entries.retain(|_, (value, used)| is_held(value) || *used > last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_or_held_stays() {
        let mut map = Bounded::<u32, bool>::new(8, |held| *held);
        for key in 0..8 {
            *map.entry(key) = key == 0;
        }
        assert!(map.get(1).is_some());
        map.entry(8);
        assert!(map.entries.len() <= 8);
        for (key, stays) in [(0, true), (1, true), (2, false), (3, false), (4, true), (8, true)] {
            assert_eq!(map.entries.contains_key(&key), stays, "{key}");
        }
        for key in 100..10_000 {
            map.entry(key);
            assert!(map.entries.len() <= 8);
        }
        assert!(map.entries.contains_key(&0));
    }
}
