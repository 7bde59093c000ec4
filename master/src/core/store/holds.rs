//! How long shards are held (design §4), counted by every thread for itself.

use crate::{
    clock::{BootClock, Clock as _, Instant},
    lock::Mutex,
};
use std::{
    cell::OnceCell,
    collections::BTreeMap,
    panic::Location,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Upper bounds of the buckets, microseconds; one more lies above.
pub const HOLD_BUCKETS_US: [u64; 10] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000];
/// A hold above this is counted by the place in the code that took it.
const LONG: Duration = Duration::from_millis(1);

/// Shared or exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HoldMode {
    Read,
    Write,
}

/// Holds of all threads since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldStats {
    /// Shared holds: one count for each bound of [`HOLD_BUCKETS_US`], and one above.
    pub read: [u64; HOLD_BUCKETS_US.len() + 1],
    /// Exclusive ones.
    pub write: [u64; HOLD_BUCKETS_US.len() + 1],
    /// Sum of shared holds, nanoseconds.
    pub read_nanos: u64,
    /// Sum of exclusive ones.
    pub write_nanos: u64,
    /// Holds above 1 ms, by the source file of the operation.
    pub long: BTreeMap<String, u64>,
}

/// One thread's counts. Only that thread writes, so nothing contends; a scrape reads.
#[derive(Debug, Default)]
struct Counts {
    buckets: [[AtomicU64; HOLD_BUCKETS_US.len() + 1]; 2],
    nanos: [AtomicU64; 2],
    /// Taken for long holds only.
    long: Mutex<BTreeMap<&'static str, u64>>,
}

#[derive(Debug, Default)]
struct Registry {
    threads: Vec<Arc<Counts>>,
    /// Of threads that have ended.
    ended: HoldStats,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { threads: Vec::new(), ended: HoldStats::NONE });

thread_local! {
    static COUNTS: OnceCell<Arc<Counts>> = const { OnceCell::new() };
}

/// Adds without a locked instruction: the calling thread is the only writer.
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Counts {
    fn record(&self, mode: HoldMode, held: Duration, shards: u64, place: &'static Location<'static>) {
        let nanos = held.as_nanos() as u64;
        add(&self.buckets[mode as usize][HOLD_BUCKETS_US.partition_point(|us| us * 1000 < nanos)], shards);
        add(&self.nanos[mode as usize], nanos * shards);
        if held > LONG {
            *self.long.lock().entry(place.file()).or_default() += 1;
        }
    }

    fn add_to(&self, stats: &mut HoldStats) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        for (mode, buckets) in [&mut stats.read, &mut stats.write].into_iter().enumerate() {
            for (sum, bucket) in buckets.iter_mut().zip(&self.buckets[mode]) {
                *sum += read(bucket);
            }
        }
        stats.read_nanos += read(&self.nanos[0]);
        stats.write_nanos += read(&self.nanos[1]);
        for (file, count) in &*self.long.lock() {
            let name = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".rs");
            *stats.long.entry(name.to_owned()).or_default() += count;
        }
    }
}

impl HoldStats {
    const NONE: HoldStats = HoldStats {
        read: [0; HOLD_BUCKETS_US.len() + 1],
        write: [0; HOLD_BUCKETS_US.len() + 1],
        read_nanos: 0,
        write_nanos: 0,
        long: BTreeMap::new(),
    };

    /// Of this process.
    pub fn of_process() -> HoldStats {
        let mut registry = REGISTRY.lock();
        let Registry { threads, ended } = &mut *registry;
        // Nobody but the registry has the counts of a thread that has ended.
        threads.retain(|counts| {
            let lives = Arc::strong_count(counts) > 1;
            if !lives {
                counts.add_to(ended);
            }
            lives
        });
        let mut stats = ended.clone();
        for counts in threads.iter() {
            counts.add_to(&mut stats);
        }
        stats
    }
}

/// A hold that has begun. Declared below the lock's guard it is dropped after it, so that the counting holds nobody up.
#[derive(Debug)]
pub(crate) struct Hold {
    began: Instant,
    mode: HoldMode,
    shards: u64,
    place: &'static Location<'static>,
}

impl Hold {
    /// Called with the lock just taken, at that place in the code. This measures and decides nothing, so it reads the clock
    /// by itself.
    pub(crate) fn begin(mode: HoldMode, place: &'static Location<'static>) -> Hold {
        Hold { began: BootClock.now(), mode, shards: 1, place }
    }

    /// So many shards are held together.
    pub(crate) fn count(&mut self, shards: usize) {
        self.shards = shards as u64;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let held = BootClock.now().saturating_since(self.began);
        // Not in a thread that is being torn down.
        let _ = COUNTS.try_with(|counts| {
            let counts = counts.get_or_init(|| {
                let counts = Arc::<Counts>::default();
                REGISTRY.lock().threads.push(counts.clone());
                counts
            });
            counts.record(self.mode, held, self.shards, self.place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_counted_by_length_and_long_ones_by_place_also_when_the_thread_has_ended() {
        let before = HoldStats::of_process();
        let thread = std::thread::spawn(|| {
            let place = Location::caller();
            drop(Hold { began: Instant::ZERO, mode: HoldMode::Write, shards: 1, place });
            drop(Hold::begin(HoldMode::Read, place));
        });
        thread.join().unwrap();
        for _ in 0..2 {
            // Twice: what was added up stays.
            let after = HoldStats::of_process();
            // Other tests of this program hold shards, too.
            assert!(after.write[HOLD_BUCKETS_US.len()] > before.write[HOLD_BUCKETS_US.len()]);
            assert!(after.read.iter().sum::<u64>() > before.read.iter().sum::<u64>());
            assert!(after.long.get("holds") > before.long.get("holds"), "{:?}", after.long);
        }
    }
}
