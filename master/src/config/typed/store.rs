//! How the store is to behave.

use super::{Resolved, disk_directory};
use crate::types::{AllocationStrategy, CoreOptions, EvictionOptions, MemoryAllocator, OffboardingMode};

pub(super) fn core_options(r: &Resolved) -> CoreOptions {
    let (active, suspicion) = (r.time("client_active_ttl_sec"), r.time("client_suspicion_ttl_sec"));
    let (lease, discard) = (r.time("default_kv_lease_ttl"), r.time("put_start_discard_timeout_sec"));
    CoreOptions {
        read_lease_ttl: lease,
        soft_pin_ttl: r.time("default_kv_soft_pin_ttl"),
        max_soft_pin_ttl: r.time("max_kv_soft_pin_ttl"),
        put_start_discard_timeout: discard,
        put_start_release_timeout: r.time("put_start_release_timeout_sec"),
        client_active_ttl: active,
        client_suspicion_ttl: suspicion,
        mass_silence_ratio: r.number("client_mass_silence_ratio"),
        mass_silence_min: r.count("client_mass_silence_min"),
        // Of this master's own settings; a promotion takes the larger of this and what the Lease says of the old one.
        remount_hold: lease.max(discard),
        offboarding_mode: match r.text("offboarding_mode") {
            "sync" => OffboardingMode::Sync,
            _ => OffboardingMode::Async,
        },
        offboarding_queue_limit: r.count("offboarding_queue_limit"),
        offline_grace: r.time("client_offline_grace_sec"),
        disk_directory: disk_directory(r),
        // The default says that nobody knows, which upstream shows as 0.
        disk_capacity: Some(r.count("global_file_segment_size"))
            .filter(|n| *n < i64::MAX as u64)
            .unwrap_or(0),
        exist_lease_bound: Some(r.time("exist_lease_bound_ms")).filter(|bound| !bound.is_zero()),
        max_keys: r.count("max_keys"),
        max_metadata_bytes: r.count("max_metadata_bytes"),
        eviction: EvictionOptions {
            ratio: r.number("eviction_ratio"),
            high_watermark: r.number("eviction_high_watermark_ratio"),
            allow_soft_pinned: r.flag("allow_evict_soft_pinned_objects"),
        },
        allocation_strategy: match r.text("allocation_strategy") {
            "free_ratio_first" => AllocationStrategy::FreeRatioFirst,
            "ssd_free_ratio_first" => AllocationStrategy::SsdFreeRatioFirst,
            "local_first" => AllocationStrategy::LocalFirst,
            _ => AllocationStrategy::Random,
        },
        memory_allocator: match r.text("memory_allocator") {
            "cachelib" => MemoryAllocator::Cachelib,
            _ => MemoryAllocator::Offset,
        },
    }
}
