//! The store itself: objects in 1024 shards, segments with their allocators, and the liveness of clients.
//!
//! Everything here is synchronous and never blocks on a shard: see [`crate::types::OpError::Busy`]. Only
//! [`Core::background_tick`] waits for one.
//!
//! Locks, outer to inner: a shard, then a segment's space. The registry's mutex (mounts, unmounts, the commit of
//! Offline) goes with a segment's space only. Ping, the liveness of a writer and the look at the mounted segments take
//! no lock at all.

mod background;
mod counters;
mod eligibility;
mod eviction;
mod graceful;
mod inspect;
mod listing;
mod liveness;
mod mounts;
mod offboarding;
mod segments;
mod spin;
mod store;
#[cfg(test)]
mod tests;

pub use counters::{ClientCounts, CoreStats, SegmentStats};
pub use eviction::Obstacle;
pub use graceful::HostsByClient;
pub use inspect::SegmentInfo;
pub use listing::{ClientInfo, ClientList, OffboardingInfo};
pub use liveness::Listener;
pub use offboarding::{ExternalMetadata, OFFBOARDING_BUCKETS_MS, OffboardingStats};
pub use store::{HOLD_BUCKETS_US, HoldStats, ShardHold, TOGETHER};

use self::spin::try_for_moments;
use crate::{clock::Clock, fault::Faults, lock::Mutex, permit::ServingPermit, types::CoreOptions};
use arc_swap::ArcSwap;
use std::{fmt, sync::Arc};

/// Shards of the store.
pub const SHARDS: u16 = 1024;

/// The core: one per process and promotion.
pub struct Core {
    options: CoreOptions,
    clock: Arc<dyn Clock>,
    permit: Arc<ServingPermit>,
    store: store::Store,
    clients: liveness::Clients,
    registry: Mutex<segments::Registry>,
    /// What data calls see of the registry; replaced under its mutex.
    placement: ArcSwap<segments::Placement>,
    monitor: liveness::Monitor,
    offboarding: offboarding::Offboarding,
    executor: Box<dyn offboarding::OffboardingExecutor>,
    background: background::Background,
    pressure: eviction::Pressure,
    counters: counters::Counters,
    faults: Arc<Faults>,
    /// Where DISK replicas lie; None without `root_fs_dir`.
    disk: Option<Arc<store::DiskStorage>>,
    graceful: graceful::Graceful,
    external: Option<Arc<dyn ExternalMetadata>>,
}

impl Core {
    /// An empty core. Its ticks do nothing while the permit is not held.
    pub fn new(options: CoreOptions, clock: Arc<dyn Clock>, permit: Arc<ServingPermit>) -> Core {
        Core::with_seed(options, clock, permit, rand::random())
    }

    /// With a chosen seed for the hash and for placement, so that a test repeats exactly.
    pub(crate) fn with_seed(
        options: CoreOptions,
        clock: Arc<dyn Clock>,
        permit: Arc<ServingPermit>,
        seed: u64,
    ) -> Core {
        Core {
            offboarding: offboarding::Offboarding::new(options.offboarding_queue_limit),
            executor: offboarding::executor(options.offboarding_mode),
            disk: options.disk_directory.as_deref().map(|path| Arc::new(store::DiskStorage::new(path))),
            graceful: graceful::Graceful::default(),
            external: None,
            store: store::Store::new(seed, options.max_keys, options.max_metadata_bytes),
            options,
            faults: Faults::new(clock.clone()),
            clock,
            permit,
            clients: liveness::Clients::new(),
            registry: Mutex::default(),
            placement: ArcSwap::default(),
            monitor: liveness::Monitor::default(),
            background: background::Background::default(),
            pressure: eviction::Pressure::default(),
            counters: counters::Counters::default(),
        }
    }

    /// With the faults of the process, which steps of offboarding ask.
    #[must_use]
    pub fn with_faults(mut self, faults: Arc<Faults>) -> Core {
        self.faults = faults;
        self
    }

    /// With what is kept elsewhere about segments, and goes with their client (B9).
    #[must_use]
    pub fn with_external_metadata(mut self, external: Arc<dyn ExternalMetadata>) -> Core {
        self.external = Some(external);
        self
    }

    /// Whether the shard's lock could be read right now, without waiting for more than what a batch holds it (A2). `false` beyond the last shard.
    pub fn try_read_shard(&self, shard: u16) -> bool {
        shard < SHARDS && try_for_moments(|| self.store.shard(shard).try_read()).is_some()
    }

    /// The shard in which a key lies. For fault injection and tests: it differs from process to process.
    pub fn shard_of(&self, key: &[u8]) -> u16 {
        store::Store::shard_of(self.store.hash(key))
    }

    /// Locks a shard for writing until the returned value is dropped: every data call for it is `Busy` meanwhile, and
    /// `HealthCheck` finds it blocked. For fault injection and the tests of A11 only; waits for the lock.
    ///
    /// # Panics
    /// If `shard` is not below [`SHARDS`].
    pub fn hold_shard(&self, shard: u16) -> ShardHold<'_> {
        ShardHold::new(self.store.write_blocking(shard))
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("options", &self.options)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
