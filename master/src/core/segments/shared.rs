//! Collections of which a changed copy shares all that has not changed with its original.
//!
//! A copy costs one pointer for each [`CHUNK`] entries, and a change one chunk beside that, so a picture of ten thousand
//! segments can be replaced for each one that comes or goes. A look-up finds its chunk by arithmetic and costs the same
//! however many entries there are, but for [`SharedSorted`], which searches.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::{
    borrow::Borrow,
    hash::{BuildHasher as _, Hash},
    ops::Index,
    sync::Arc,
};

/// Entries that share one pointer: what a change copies besides these pointers.
const CHUNK: usize = 64;

/// A list.
#[derive(Clone, Debug)]
pub(super) struct SharedVec<T> {
    /// All full but for the last, and none empty.
    chunks: Vec<Arc<Vec<T>>>,
    len: usize,
}

impl<T> Default for SharedVec<T> {
    fn default() -> Self {
        SharedVec { chunks: Vec::new(), len: 0 }
    }
}

impl<T> SharedVec<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| &**chunk)
    }

    pub(super) fn position(&self, is: impl FnMut(&T) -> bool) -> Option<usize> {
        self.iter().position(is)
    }
}

impl<T> Index<usize> for SharedVec<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.chunks[at / CHUNK][at % CHUNK]
    }
}

impl<T: Clone> SharedVec<T> {
    pub(super) fn push(&mut self, entry: T) {
        match self.chunks.last_mut().filter(|chunk| chunk.len() < CHUNK) {
            Some(chunk) => Arc::make_mut(chunk).push(entry),
            None => self.chunks.push(Arc::new(vec![entry])),
        }
        self.len += 1;
    }

    pub(super) fn at_mut(&mut self, at: usize) -> &mut T {
        &mut Arc::make_mut(&mut self.chunks[at / CHUNK])[at % CHUNK]
    }

    /// Takes the entry at `at` out; the last one takes its place.
    pub(super) fn swap_remove(&mut self, at: usize) -> Option<T> {
        let chunk = self.chunks.last_mut()?;
        let last = Arc::make_mut(chunk).pop()?;
        if chunk.is_empty() {
            self.chunks.pop();
        }
        self.len -= 1;
        Some(if at == self.len { last } else { std::mem::replace(self.at_mut(at), last) })
    }
}

/// A map.
#[derive(Clone, Debug)]
pub(super) struct SharedMap<K, V> {
    /// A power of two, chosen by other bits of the hash than those that the tables use most.
    parts: Vec<Arc<HashTable<(K, V)>>>,
    len: usize,
    hasher: DefaultHashBuilder,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        SharedMap { parts: vec![Arc::default()], len: 0, hasher: DefaultHashBuilder::default() }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> SharedMap<K, V> {
    fn part(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.parts.len() - 1)
    }

    pub(super) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let found = self.parts[self.part(hash)].find(hash, |entry| key.eq(entry.0.borrow()));
        found.map(|entry| &entry.1)
    }

    pub(super) fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let part = self.part(hash);
        let found = Arc::make_mut(&mut self.parts[part]).find_mut(hash, |entry| key.eq(entry.0.borrow()));
        found.map(|entry| &mut entry.1)
    }

    /// Adds an entry whose key is not there.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.len == self.parts.len() * CHUNK {
            self.grow();
        }
        self.put((key, value));
        self.len += 1;
    }

    pub(super) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        let part = self.part(hash);
        let entry = Arc::make_mut(&mut self.parts[part]).find_entry(hash, |entry| key.eq(entry.0.borrow()));
        let ((_, value), _) = entry.ok()?.remove();
        self.len -= 1;
        Some(value)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    fn put(&mut self, entry: (K, V)) {
        let hash = self.hasher.hash_one(&entry.0);
        let part = self.part(hash);
        let hasher = &self.hasher;
        Arc::make_mut(&mut self.parts[part]).insert_unique(hash, entry, |entry| hasher.hash_one(&entry.0));
    }

    /// Twice as many parts. Happens as often as the map doubles.
    fn grow(&mut self) {
        let parts = vec![Arc::default(); self.parts.len() * 2];
        for part in std::mem::replace(&mut self.parts, parts) {
            for entry in &*part {
                self.put(entry.clone());
            }
        }
    }
}

/// A map in the order of its keys.
#[derive(Clone, Debug)]
pub(super) struct SharedSorted<K, V>(
    /// None empty, and none above two [`CHUNK`]s.
    Vec<Arc<Vec<(K, V)>>>,
);

impl<K, V> Default for SharedSorted<K, V> {
    fn default() -> Self {
        SharedSorted(Vec::new())
    }
}

impl<K: Ord + Clone, V: Clone + Default> SharedSorted<K, V> {
    /// In which chunk the key is or would be, and where in it; with no chunk at all, in the first.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> (usize, Result<usize, usize>)
    where
        K: Borrow<Q>,
    {
        let is_before =
            |chunk: &Arc<Vec<(K, V)>>| chunk.last().is_some_and(|(last, _)| key.cmp(last.borrow()).is_gt());
        let at = self.0.partition_point(is_before).min(self.0.len().saturating_sub(1));
        let found =
            self.0.get(at).map(|chunk| chunk.binary_search_by(|(of, _)| key.cmp(of.borrow()).reverse()));
        (at, found.unwrap_or(Err(0)))
    }

    /// The entry of that key; a default one is added if there is none.
    pub(super) fn entry(&mut self, key: &K) -> &mut V {
        let (mut at, found) = self.find(key);
        if self.0.is_empty() {
            self.0.push(Arc::default());
        }
        let mut within = found.unwrap_or_else(|within| within);
        if found.is_err() {
            let chunk = Arc::make_mut(&mut self.0[at]);
            chunk.insert(within, (key.clone(), V::default()));
            if chunk.len() > 2 * CHUNK {
                let upper = chunk.split_off(CHUNK);
                self.0.insert(at + 1, Arc::new(upper));
                if within >= CHUNK {
                    (at, within) = (at + 1, within - CHUNK);
                }
            }
        }
        &mut Arc::make_mut(&mut self.0[at])[within].1
    }

    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let (at, Ok(within)) = self.find(key) else { return };
        let chunk = Arc::make_mut(&mut self.0[at]);
        chunk.remove(within);
        if chunk.is_empty() {
            self.0.remove(at);
        }
    }

    /// Every entry, beginning with that key or the next above it, and then those below.
    pub(super) fn round_from<Q: Ord + ?Sized>(&self, key: &Q) -> impl Iterator<Item = &(K, V)>
    where
        K: Borrow<Q>,
    {
        let (at, found) = self.find(key);
        let within = found.unwrap_or_else(|within| within);
        let (below, from) = self.0.split_at(at);
        let (first, rest) = from.split_first().map_or((&[][..], from), |(first, rest)| (&first[..], rest));
        let first = first.split_at(within);
        let above = first.1.iter().chain(rest.iter().flat_map(|chunk| &**chunk));
        above.chain(below.iter().flat_map(|chunk| &**chunk)).chain(first.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Add(u16),
        Remove(u16),
        /// A copy is kept, and must look the same ever after.
        Keep,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..600u16).prop_map(Step::Add),
            4 => (0..600u16).prop_map(Step::Remove),
            1 => Just(Step::Keep),
        ]
    }

    type All = (SharedVec<u16>, SharedMap<u16, u32>, SharedSorted<u16, u32>);

    fn compare((list, map, sorted): &All, expected: &BTreeMap<u16, u32>) {
        let mut listed: Vec<u16> = list.iter().copied().collect();
        assert_eq!(listed, (0..list.len()).map(|at| list[at]).collect::<Vec<_>>());
        listed.sort_unstable();
        assert!(listed.iter().eq(expected.keys()));
        assert!(expected.iter().all(|(key, value)| map.get(key) == Some(value)));
        assert_eq!((map.iter().count(), map.len), (expected.len(), expected.len()));
        for from in [0, 1, 299, 300, 599, 600] {
            let round: Vec<_> = sorted.round_from(&from).copied().collect();
            let expected = expected.range(from..).chain(expected.range(..from));
            assert_eq!(round, expected.map(|(key, value)| (*key, *value)).collect::<Vec<_>>(), "{from}");
        }
        assert!(sorted.0.iter().all(|chunk| (1..=2 * CHUNK).contains(&chunk.len())));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn copies_keep_what_they_had(steps in proptest::collection::vec(step(), 1..1500)) {
            let (mut all, mut expected) = (All::default(), BTreeMap::new());
            let mut kept = Vec::new();
            for (at, step) in steps.into_iter().enumerate() {
                let value = at as u32;
                match step {
                    Step::Keep => kept.push((all.clone(), expected.clone())),
                    Step::Add(key) => {
                        if expected.insert(key, value).is_none() {
                            all.0.push(key);
                            all.1.insert(key, value);
                        } else {
                            *all.1.get_mut(&key).expect("it is there") = value;
                        }
                        *all.2.entry(&key) = value;
                    }
                    Step::Remove(key) => {
                        if let Some(at) = all.0.position(|of| *of == key) {
                            prop_assert_eq!(all.0.swap_remove(at), Some(key));
                        }
                        prop_assert_eq!(all.1.remove(&key), expected.remove(&key));
                        all.2.remove(&key);
                    }
                }
            }
            kept.push((all, expected));
            for (all, expected) in &kept {
                compare(all, expected);
            }
        }
    }

    #[test]
    fn a_change_copies_one_chunk() {
        let mut list = SharedVec::default();
        for n in 0..10 * CHUNK {
            list.push(n);
        }
        let before = list.clone();
        *list.at_mut(3 * CHUNK + 1) = 7;
        let own = list.chunks.iter().zip(&before.chunks).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!((own, before[3 * CHUNK + 1], list[3 * CHUNK + 1]), (1, 3 * CHUNK + 1, 7));
    }
}
