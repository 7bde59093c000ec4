//! Several keys of a batch at once. What a look at one key costs is mostly waiting for memory that is in no near cache:
//! the shard, its table, the object. So the locks of a few keys' shards are taken first, then what lies behind them is
//! fetched for all, and only then each is looked at: the processor waits for all of it at the same time.

use super::{
    Object, Shard, ShardRead, ShardWrite, Store,
    holds::{Hold, HoldMode},
};
use crate::core::spin::try_for_moments;
use smallvec::SmallVec;
use std::{ops::ControlFlow, panic::Location};

/// Keys that are looked at together at most.
pub const TOGETHER: usize = 16;

/// Keys that are written together at most: the last one's shard is held for writing while all before it are served, and
/// whoever wants it meanwhile waits.
pub(crate) const WRITTEN_TOGETHER: usize = 8;

/// Asks for the cache line at that address, without waiting for it. Any address will do.
fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint: it reads nothing that the program could see and does not fault, whatever the
    // address. Every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The same for all lines of a value.
pub(super) fn prefetch_all<T>(value: &T) {
    const LINE: usize = 64;
    let first = (&raw const *value).cast::<u8>();
    for offset in (0..size_of::<T>()).step_by(LINE) {
        prefetch(first.wrapping_add(offset));
    }
    prefetch(first.wrapping_add(size_of::<T>().saturating_sub(1)));
}

impl Store {
    /// Shows `each` the objects of the first of `keys`, in their order, `None` for one that is not there, and returns how
    /// many it has shown: at most [`TOGETHER`]; none only if the shard of the first is busy. A shard is let go when its key
    /// was shown; how long the whole took is counted for the file of the caller.
    #[track_caller]
    pub(crate) fn read_together(&self, keys: &[&[u8]], mut each: impl FnMut(Option<&Object>)) -> usize {
        let hashes = self.hashes::<TOGETHER>(keys);
        let mut shards: SmallVec<[ShardRead<'_>; TOGETHER]> = SmallVec::new();
        let Some(_hold) =
            self.lock_all(&hashes, &mut shards, HoldMode::Read, Location::caller(), Shard::try_read)
        else {
            return 0;
        };
        for (shard, hash) in shards.iter().zip(&hashes) {
            shard.prefetch(*hash);
        }
        let shown = shards.len();
        for ((shard, hash), key) in shards.into_iter().zip(&hashes).zip(keys) {
            each(shard.find(*hash, key));
        }
        shown
    }

    /// Gives `each` the shards of the first of `keys` for writing, with the hash of the key and its place among them, until
    /// it breaks; returns how many were served: at most [`WRITTEN_TOGETHER`]; none only if the shard of the first is busy.
    /// Two keys of one shard are never served together. A shard is let go when its key was served.
    #[track_caller]
    pub(crate) fn write_together(
        &self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, u64, &mut ShardWrite<'_>) -> ControlFlow<()>,
    ) -> usize {
        let hashes = self.hashes::<WRITTEN_TOGETHER>(keys);
        let mut shards: SmallVec<[ShardWrite<'_>; WRITTEN_TOGETHER]> = SmallVec::new();
        let place = Location::caller();
        let Some(_hold) =
            self.lock_all(&hashes, &mut shards, HoldMode::Write, place, |shard| shard.try_write(self))
        else {
            return 0;
        };
        for (shard, hash) in shards.iter().zip(&hashes) {
            shard.prefetch(*hash);
        }
        let locked = shards.len();
        for (at, (mut shard, hash)) in shards.into_iter().zip(&hashes).enumerate() {
            if each(at, *hash, &mut shard).is_break() {
                return at + 1;
            }
        }
        locked
    }

    /// Fetches what lies behind up to [`TOGETHER`] hashes, for background work that will take their shards one by one.
    pub(crate) fn fetch(&self, hashes: impl Iterator<Item = u64> + Clone) {
        for hash in hashes.clone() {
            prefetch_all(self.shard(Store::shard_of(hash)));
        }
        let shards: SmallVec<[(u64, ShardRead<'_>); TOGETHER]> = hashes
            .filter_map(|hash| self.shard(Store::shard_of(hash)).try_read().map(|shard| (hash, shard)))
            .collect();
        for (hash, shard) in &shards {
            shard.prefetch(*hash);
        }
    }

    /// The hashes of the first `N` of `keys`; what their shards begin with is fetched.
    fn hashes<const N: usize>(&self, keys: &[&[u8]]) -> SmallVec<[u64; N]>
    where
        [u64; N]: smallvec::Array<Item = u64>,
    {
        let hashes: SmallVec<[u64; N]> = keys.iter().take(N).map(|key| self.hash(key)).collect();
        for hash in &hashes {
            prefetch_all(self.shard(Store::shard_of(*hash)));
        }
        hashes
    }

    /// Locks the shards of these hashes, one after the other, and begins to count their hold; nothing if the first is
    /// busy, for which alone it waits a moment. Another one that is busy ends the group: the caller comes back for it.
    /// Nobody waits with a lock in hand, so nobody for ever.
    fn lock_all<'a, A: smallvec::Array>(
        &'a self,
        hashes: &[u64],
        shards: &mut SmallVec<A>,
        mode: HoldMode,
        place: &'static Location<'static>,
        lock: impl Fn(&'a Shard) -> Option<A::Item>,
    ) -> Option<Hold> {
        let (first, others) = hashes.split_first()?;
        let shard = |hash: &u64| self.shard(Store::shard_of(*hash));
        let first = try_for_moments(|| lock(shard(first)))?;
        let mut hold = Hold::begin(mode, place);
        shards.push(first);
        shards.extend(others.iter().map_while(|hash| lock(shard(hash))));
        hold.count(shards.len());
        Some(hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proof that the hint is harmless, on addresses that are nobody's.
    #[test]
    fn a_prefetch_of_any_address_is_harmless() {
        for address in [std::ptr::null(), std::ptr::without_provenance::<u8>(usize::MAX - 3)] {
            prefetch(address);
        }
        prefetch_all(&[0u8; 200]);
        prefetch_all(&());
    }
}
