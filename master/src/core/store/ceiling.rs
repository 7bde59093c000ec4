//! How much the index may take: `max_keys` and `max_metadata_bytes`.

use crate::error::ErrorCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks of a limit that are taken from its pool by all shards together: what shards have taken and do not use is at
/// most two of these for each.
const BLOCKS: u64 = 1024 * 256;

/// A limit that all shards share without fighting for one counter: each takes blocks of what is left and gives back
/// what it does not need. So the limit is never exceeded, and it is refused within two percent of it.
#[derive(Debug)]
struct Pool {
    left: AtomicU64,
    block: u64,
}

impl Pool {
    fn new(limit: u64, largest_block: u64) -> Pool {
        Pool { left: AtomicU64::new(limit), block: (limit / BLOCKS).clamp(1, largest_block) }
    }

    /// At least `need`, if so much is left.
    fn take(&self, need: u64) -> Option<u64> {
        let wanted = need.max(self.block);
        let rest = |left: u64| (left >= need).then(|| left - wanted.min(left));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).ok()?;
        Some(wanted.min(before))
    }

    /// Gives a block back if that much of `granted` is to spare.
    fn give_back(&self, granted: &mut u64, used: u64) {
        let spare = granted.saturating_sub(used);
        if spare >= 2 * self.block - 1 {
            let back = spare - (self.block - 1);
            *granted -= back;
            self.left.fetch_add(back, Ordering::Relaxed);
        }
    }
}

/// Keys, and bytes of what is known about them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Footprint {
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

/// The limits; without one nothing is counted.
#[derive(Debug, Default)]
pub(crate) struct Ceiling {
    keys: Option<Pool>,
    bytes: Option<Pool>,
}

impl Ceiling {
    /// 0: no limit.
    pub(crate) fn new(max_keys: u64, max_bytes: u64) -> Ceiling {
        let pool = |limit, block| (limit > 0).then(|| Pool::new(limit, block));
        Ceiling { keys: pool(max_keys, 64), bytes: pool(max_bytes, 64 << 8) }
    }

    /// Whether a shard that uses `used` may take `more`; `granted` is what it has of the limits.
    ///
    /// # Errors
    /// `KeysUltraLimit`.
    pub(crate) fn admit(
        &self,
        granted: &mut Footprint,
        used: Footprint,
        more: Footprint,
    ) -> Result<(), ErrorCode> {
        for (pool, granted, needed) in [
            (&self.keys, &mut granted.keys, used.keys + more.keys),
            (&self.bytes, &mut granted.bytes, used.bytes + more.bytes),
        ] {
            if let Some(pool) = pool
                && needed > *granted
            {
                *granted += pool.take(needed - *granted).ok_or(ErrorCode::KeysUltraLimit)?;
            }
        }
        Ok(())
    }

    /// A shard uses no more than `used` now.
    pub(crate) fn settle(&self, granted: &mut Footprint, used: Footprint) {
        if let Some(pool) = &self.keys {
            pool.give_back(&mut granted.keys, used.keys);
        }
        if let Some(pool) = &self.bytes {
            pool.give_back(&mut granted.bytes, used.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_never_exceeded_and_nearly_reached() {
        for limit in [1, 10, 1000, 10_000_000] {
            let pool = Pool::new(limit, 64);
            let mut shards = [0u64; 1024];
            let mut used = [0u64; 1024];
            let mut total = 0;
            for turn in 0.. {
                let at = turn % 1024;
                if used[at] < shards[at] {
                    used[at] += 1;
                } else if let Some(more) = pool.take(1) {
                    shards[at] += more;
                    used[at] += 1;
                } else {
                    break;
                }
                total += 1;
            }
            assert!(total <= limit && total >= limit - limit / 50, "{total} of {limit}");
            for at in 0..1024 {
                for left in (0..used[at]).rev() {
                    pool.give_back(&mut shards[at], left);
                }
            }
            let stranded: u64 = shards.iter().sum();
            assert_eq!(stranded + pool.left.load(Ordering::Relaxed), limit);
            assert!(stranded <= limit / 50, "{stranded} of {limit}");
        }
    }
}
