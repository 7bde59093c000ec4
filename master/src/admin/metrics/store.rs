//! The figures of the core.

use super::families::Families;
use crate::core::{CoreStats, HOLD_BUCKETS_US, HoldStats, OFFBOARDING_BUCKETS_MS, Obstacle};
use std::{borrow::Cow, collections::BTreeMap};

/// How long shards were held.
pub(super) fn holds(stats: &HoldStats, families: &mut Families) {
    for (mode, buckets, nanos) in
        [("read", &stats.read, stats.read_nanos), ("write", &stats.write, stats.write_nanos)]
    {
        families.histogram(
            "mooncake_master_shard_hold_seconds",
            &[("mode", mode)],
            HOLD_BUCKETS_US.iter().map(|us| *us as f64 / 1e6),
            buckets,
            nanos as f64 / 1e9,
        );
    }
    for (operation, count) in &stats.long {
        let name = "mooncake_master_shard_long_holds_total";
        families.number(name, &[("operation", operation)], *count as f64);
    }
}

pub(super) fn collect(stats: &CoreStats, families: &mut Families) {
    for (name, value) in [
        ("master_key_count", stats.keys),
        ("mooncake_master_unfinished_put_count", stats.unfinished_keys),
        ("mem_cache_nums_", stats.keys - stats.unfinished_keys.min(stats.keys)),
        ("file_cache_nums_", stats.disk_files),
        ("master_allocated_file_size_bytes", stats.disk_bytes),
        ("master_total_file_capacity_bytes", stats.disk_capacity_bytes),
        ("master_allocated_bytes", stats.allocated_bytes),
        ("master_total_capacity_bytes", stats.capacity_bytes),
        ("master_put_start_discarded_staging_size", stats.aside_bytes),
        ("master_put_start_discard_cnt", stats.puts_discarded),
        ("master_put_start_release_cnt", stats.ranges_released),
        ("master_put_start_alloc_failures_total", stats.alloc_failures),
        ("master_put_start_partial_allocations_total", stats.partial_allocations),
        ("mooncake_master_metadata_bytes", stats.metadata_bytes),
        ("mooncake_master_max_keys", stats.max_keys),
        ("mooncake_master_max_metadata_bytes", stats.max_metadata_bytes),
        ("mooncake_master_ceiling_refusals_total", stats.ceiling_refusals),
        ("master_soft_pin_key_count", stats.soft_pinned_keys),
        ("mooncake_master_evictable_key_count", stats.evictable_keys),
        ("master_attempted_evictions_total", stats.evictions_attempted),
        ("master_successful_evictions_total", stats.evictions_successful),
        ("master_evicted_key_count", stats.evicted_keys),
        ("master_evicted_size_bytes", stats.evicted_bytes),
        // Every replica that is evicted in this version lies in memory.
        ("master_attempted_evictions_mem", stats.evictions_attempted),
        ("master_successful_evictions_mem", stats.evictions_successful),
        ("master_evicted_key_count_mem", stats.evicted_keys),
        ("master_evicted_size_bytes_mem", stats.evicted_bytes),
        ("master_active_clients", stats.ready_clients),
        ("master_client_liveness_active_clients", stats.active_clients),
        ("master_client_liveness_suspected_clients", stats.suspected_clients),
        ("master_client_liveness_offline_clients", stats.offline_clients),
        ("master_client_liveness_suspected_transitions_total", stats.suspected_transitions),
        ("master_client_liveness_recoveries_total", stats.recoveries),
        ("master_client_liveness_offline_transitions_total", stats.offline_transitions),
        ("mooncake_master_liveness_stalls_total", stats.stalls),
        ("mooncake_master_mass_silence", u64::from(stats.held_clients > 0)),
        ("mooncake_master_mass_silence_held_clients_total", stats.mass_silence_held),
        ("master_client_offboarding_queue_depth", stats.offboarding.queue_depth),
        ("master_client_offboarding_failures_total", stats.offboarding.failures),
        ("master_client_offboarding_retries_total", stats.offboarding.retries),
        ("mooncake_master_offboarding_refused_total", stats.offboarding.refused),
        ("mooncake_master_offboarding_visited_keys_total", stats.offboarding.visited_keys),
        ("mooncake_master_offboarded_replicas_total", stats.offboarded_replicas),
    ] {
        families.plain(name, value);
    }
    let work = stats.offboarding.work_nanos as f64 / 1e9;
    families.number("mooncake_master_offboarding_work_seconds_total", &[], work);
    for (obstacle, rounds) in Obstacle::ALL.iter().zip(stats.evictions_without_effect) {
        let labels = [("reason", obstacle.name())];
        families.number("mooncake_master_evictions_without_effect_total", &labels, rounds as f64);
    }
    let bounds = OFFBOARDING_BUCKETS_MS.iter().map(|ms| *ms as f64);
    let jobs = &stats.offboarding;
    families.histogram(
        "master_client_offboarding_duration_ms",
        &[],
        bounds,
        &jobs.duration_buckets,
        jobs.duration_ms_sum as f64,
    );
    // A scrape with the same labels twice is void as a whole, and names are any bytes that a client likes.
    let mut segments = BTreeMap::<Cow<'_, str>, (u64, u64)>::new();
    for segment in &stats.segments {
        let (allocated, capacity) = segments.entry(String::from_utf8_lossy(&segment.name)).or_default();
        *allocated += segment.allocated_bytes;
        *capacity += segment.capacity_bytes;
    }
    for (name, (allocated, capacity)) in segments {
        families.number("segment_allocated_bytes", &[("segment", &name)], allocated as f64);
        families.number("segment_total_capacity_bytes", &[("segment", &name)], capacity as f64);
    }
}
