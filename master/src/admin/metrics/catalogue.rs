//! Every metric by name: what `# HELP` and `docs/metrics.md` say. A sample whose name is not here cannot be exposed.

use super::rpc::{batch, op};
use crate::rpc::native::generation::Method;
use std::{collections::BTreeMap, fmt::Write as _, sync::LazyLock};

/// What a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum MetricKind {
    Gauge,
    Counter,
    Histogram,
}

/// One metric.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetricSpec {
    /// Gauge, counter or histogram.
    pub kind: MetricKind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it means, with its unit.
    pub help: String,
}

use MetricKind::{Counter, Gauge, Histogram};

const FIXED: &[(&str, MetricKind, &[&str], &str)] = &[
    // The process
    ("mooncake_master_build_info", Gauge, &["version"], "Always 1; the version is a label."),
    (
        "mooncake_master_role",
        Gauge,
        &["role", "ha_state"],
        "Always 1; the role (leader, standby) and the runtime state are labels.",
    ),
    (
        "mooncake_master_epoch",
        Gauge,
        &[],
        "Epoch in which this process last held the serving permit; 0 without HA.",
    ),
    ("mooncake_master_serving_permit", Gauge, &[], "1 while this process may answer from its state."),
    (
        "mooncake_master_serving_permit_remaining_seconds",
        Gauge,
        &[],
        "Time until the serving permit ends unless it is renewed; absent without HA.",
    ),
    (
        "mooncake_master_data_thread_tick_age_seconds",
        Gauge,
        &["thread"],
        "Time since each data thread last ticked; absent on a standby.",
    ),
    (
        "mooncake_master_fault_injection_enabled",
        Gauge,
        &[],
        "1 if the process was started with --enable_fault_injection, which no production master should be.",
    ),
    ("ha_state_transitions_total", Counter, &[], "Changes of the runtime state since the start."),
    // The self-probe (A7)
    (
        "mooncake_master_rpc_responsive",
        Gauge,
        &[],
        "1 if the last self-probe was ok within its timeout, else 0; absent on a standby and with the probe off.",
    ),
    (
        "mooncake_master_rpc_probe_latency_ms",
        Gauge,
        &[],
        "Time of the last self-probe, milliseconds; absent as above.",
    ),
    (
        "mooncake_master_rpc_probe_failures_total",
        Counter,
        &[],
        "Self-probes that were not ok, erred or timed out; absent as above.",
    ),
    // Calls
    (
        "mooncake_master_rpc_latency_seconds",
        Histogram,
        &["rpc", "protocol"],
        "Time from a request's last byte to its answer, by call and protocol; absent while there was none.",
    ),
    (
        "mooncake_master_rpc_failures_total",
        Counter,
        &["rpc", "protocol"],
        "Calls that were answered with an error, a batch only if every item failed; absent while there was none.",
    ),
    (
        "mooncake_master_rpc_received_bytes_total",
        Counter,
        &["protocol"],
        "Bytes that came in over the RPC ports, headers included.",
    ),
    (
        "mooncake_master_rpc_sent_bytes_total",
        Counter,
        &["protocol"],
        "Bytes that went out over the RPC ports, headers included.",
    ),
    (
        "mooncake_master_rpc_in_flight",
        Gauge,
        &["protocol"],
        "Calls that are being served, those that wait for a held shard included.",
    ),
    (
        "mooncake_master_heartbeat_routing_mismatches_total",
        Counter,
        &["protocol"],
        "Pings that the main server refused because heartbeats are served on the heartbeat port only.",
    ),
    (
        "mooncake_master_native_connections",
        Gauge,
        &["generation"],
        "Open native connections by client generation; unknown until a connection has told or shown it.",
    ),
    (
        "mooncake_master_native_clients",
        Gauge,
        &["generation"],
        "Clients that have an open native connection on which they named themselves, by generation.",
    ),
    (
        "mooncake_master_wire_guesses_total",
        Counter,
        &[],
        "Answers whose form had to be guessed because nothing told the client's generation.",
    ),
    (
        "mooncake_master_wire_wrong_guesses_total",
        Counter,
        &[],
        "Guessed answers directly after which the client closed the connection: it could not read them, or had read all \
         it wanted.",
    ),
    (
        "mooncake_master_wire_unknown_clients_total",
        Counter,
        &[],
        "Clients (by id, else by address) of which nothing told the generation when they had to be answered; each is \
         logged once.",
    ),
    (
        "mooncake_master_wire_shared_addresses_total",
        Counter,
        &[],
        "Addresses on which clients of several generations were found that cannot always be told apart; each is logged.",
    ),
    ("total_get_nums_", Counter, &[], "Keys that GetReplicaList and its batch were asked for."),
    ("valid_get_nums_", Counter, &[], "Those among them with a readable replica."),
    ("mem_cache_hit_nums_", Counter, &[], "Those among them whose first replica lies in memory."),
    ("mem_cache_hit_bytes_total", Counter, &[], "Bytes of these values."),
    ("file_cache_hit_nums_", Counter, &[], "Those among them that can be read from disk only."),
    ("file_cache_hit_bytes_total", Counter, &[], "Bytes of these values."),
    ("master_value_size_bytes", Histogram, &[], "Sizes of the values that puts have started."),
    // The store
    ("master_key_count", Gauge, &[], "Objects, unfinished puts included."),
    ("mooncake_master_unfinished_put_count", Gauge, &[], "Puts that have started and not ended."),
    ("mem_cache_nums_", Gauge, &[], "Objects in memory."),
    ("file_cache_nums_", Gauge, &[], "Objects with a complete DISK replica."),
    ("master_allocated_file_size_bytes", Gauge, &[], "Bytes of DISK replicas, unfinished ones included."),
    (
        "master_total_file_capacity_bytes",
        Gauge,
        &[],
        "`global_file_segment_size`; 0 if that is not given, or without `root_fs_dir`.",
    ),
    ("master_allocated_bytes", Gauge, &[], "Bytes of the memory pool in use."),
    ("master_total_capacity_bytes", Gauge, &[], "Bytes of the memory pool."),
    ("segment_allocated_bytes", Gauge, &["segment"], "Bytes in use, by segment name."),
    ("segment_total_capacity_bytes", Gauge, &["segment"], "Bytes, by segment name."),
    (
        "master_put_start_discarded_staging_size",
        Gauge,
        &[],
        "Bytes kept aside because the writer of a discarded put may still write into them.",
    ),
    ("master_put_start_discard_cnt", Counter, &[], "Abandoned puts that were discarded."),
    ("master_put_start_release_cnt", Counter, &[], "Ranges kept aside that were released."),
    ("master_put_start_alloc_failures_total", Counter, &[], "Puts for which there was no space."),
    (
        "master_put_start_partial_allocations_total",
        Counter,
        &[],
        "Puts that got fewer replicas than they asked for.",
    ),
    (
        "mooncake_master_shard_hold_seconds",
        Histogram,
        &["mode"],
        "Time for which a shard was held at once, shared (read) or exclusively (write).",
    ),
    (
        "mooncake_master_shard_long_holds_total",
        Counter,
        &["operation"],
        "Holds of a shard above 1 ms, by operation; absent while there was none.",
    ),
    (
        "mooncake_master_metadata_bytes",
        Gauge,
        &[],
        "Bytes of memory that the objects of the index take, about.",
    ),
    ("mooncake_master_max_keys", Gauge, &[], "The option max_keys; 0: no limit."),
    ("mooncake_master_max_metadata_bytes", Gauge, &[], "The option max_metadata_bytes; 0: no limit."),
    (
        "mooncake_master_ceiling_refusals_total",
        Counter,
        &[],
        "Puts that were refused because max_keys or max_metadata_bytes was reached.",
    ),
    ("master_soft_pin_key_count", Gauge, &[], "Objects with a soft pin."),
    // Eviction
    (
        "mooncake_master_evictable_key_count",
        Gauge,
        &[],
        "Finished objects without a hard pin: what may be evicted once nobody has a read lease on it.",
    ),
    ("master_attempted_evictions_total", Counter, &[], "Rounds of eviction."),
    ("master_successful_evictions_total", Counter, &[], "Rounds that evicted something."),
    ("master_evicted_key_count", Counter, &[], "Objects that were evicted."),
    ("master_evicted_size_bytes", Counter, &[], "Bytes of their values, all replicas."),
    ("master_attempted_evictions_mem", Counter, &[], "The same for replicas in memory."),
    ("master_successful_evictions_mem", Counter, &[], "The same for replicas in memory."),
    ("master_evicted_key_count_mem", Counter, &[], "The same for replicas in memory."),
    ("master_evicted_size_bytes_mem", Counter, &[], "The same for replicas in memory."),
    (
        "mooncake_master_evictions_without_effect_total",
        Counter,
        &["reason"],
        "Rounds that evicted nothing, by what was in the way: in_use (read leases, groups, suspected clients), \
         soft_pinned, hard_pinned, unfinished (or set aside), too_large (a value that no segment can ever hold).",
    ),
    // Clients
    ("master_active_clients", Gauge, &[], "Clients that have remounted and are not offline."),
    ("master_client_liveness_active_clients", Gauge, &[], "Clients in state Active."),
    ("master_client_liveness_suspected_clients", Gauge, &[], "Clients in state Suspected."),
    (
        "master_client_liveness_offline_clients",
        Gauge,
        &[],
        "Clients in state Offline, that is being offboarded.",
    ),
    ("master_client_liveness_suspected_transitions_total", Counter, &[], "Changes from Active to Suspected."),
    ("master_client_liveness_recoveries_total", Counter, &[], "Changes from Suspected to Active."),
    ("master_client_liveness_offline_transitions_total", Counter, &[], "Changes from Suspected to Offline."),
    (
        "mooncake_master_liveness_stalls_total",
        Counter,
        &[],
        "Times in which the master noticed that it had not listened to its clients itself.",
    ),
    (
        "mooncake_master_mass_silence",
        Gauge,
        &[],
        "1 while clients are kept suspected for one more window because many fell silent at once.",
    ),
    (
        "mooncake_master_mass_silence_held_clients_total",
        Counter,
        &[],
        "Clients that were kept suspected for one more window because many fell silent at once.",
    ),
    ("master_client_offboarding_queue_depth", Gauge, &[], "Offboarding jobs that are not complete."),
    (
        "master_client_offboarding_duration_ms",
        Histogram,
        &[],
        "Time from Offline to a complete offboarding, milliseconds.",
    ),
    (
        "master_client_offboarding_retries_total",
        Counter,
        &[],
        "Offboarding jobs that were taken up again after a step that failed.",
    ),
    ("master_client_offboarding_failures_total", Counter, &[], "Offboarding steps that failed."),
    (
        "mooncake_master_offboarding_refused_total",
        Counter,
        &[],
        "Offboarding jobs that were put off because offboarding_queue_limit was reached.",
    ),
    (
        "mooncake_master_offboarding_visited_keys_total",
        Counter,
        &[],
        "Keys that offboarding looked at, which are those that the segments hold.",
    ),
    (
        "mooncake_master_offboarding_work_seconds_total",
        Counter,
        &[],
        "Time spent in steps of offboarding, waiting for shards included.",
    ),
    ("mooncake_master_offboarded_replicas_total", Counter, &[], "Replicas that offboarding removed."),
];

/// Metrics of features of the C++ master that are not in this version, with their feature: always 0, so that dashboards show
/// what is true.
pub(super) const ABSENT: &[(&str, MetricKind, &str)] = &[
    ("master_nof_allocated_bytes", Gauge, "NoF"),
    ("master_total_nof_capacity_bytes", Gauge, "NoF"),
    ("master_promotion_in_flight", Gauge, "promotion"),
    ("master_promotion_admitted_total", Counter, "promotion"),
    ("master_promotion_cancelled_total", Counter, "promotion"),
    ("master_promotion_completed_total", Counter, "promotion"),
    ("master_promotion_completed_bytes_total", Counter, "promotion"),
    ("master_promotion_expired_total", Counter, "promotion"),
    ("master_promotion_failed_total", Counter, "promotion"),
    ("master_promotion_rejected_cap_total", Counter, "promotion"),
    ("master_promotion_rejected_frequency_total", Counter, "promotion"),
    ("master_promotion_rejected_watermark_total", Counter, "promotion"),
    ("master_promotion_candidate_recorded_total", Counter, "promotion"),
    ("master_promotion_candidate_admitted_total", Counter, "promotion"),
    ("master_promotion_candidate_admission_rejected_total", Counter, "promotion"),
    ("master_promotion_candidate_dropped_limit_total", Counter, "promotion"),
    ("master_promotion_candidate_expired_evaluated_total", Counter, "promotion"),
    ("master_promotion_candidate_expired_unevaluated_total", Counter, "promotion"),
    ("ha_oplog_last_sequence_id", Gauge, "the operation log"),
    ("ha_oplog_applied_sequence_id", Gauge, "the operation log"),
    ("ha_oplog_standby_lag", Gauge, "the operation log"),
    ("ha_oplog_pending_entries", Gauge, "the operation log"),
    ("ha_pending_mutation_queue_size", Gauge, "the operation log"),
    ("ha_standby_state", Gauge, "the operation log"),
];

static CATALOGUE: LazyLock<BTreeMap<String, MetricSpec>> = LazyLock::new(|| {
    let mut all = BTreeMap::new();
    for (name, kind, labels, help) in FIXED {
        all.insert((*name).to_owned(), MetricSpec { kind: *kind, labels, help: (*help).to_owned() });
    }
    for (name, kind, feature) in ABSENT {
        let help = format!("Always 0: {feature} is not in this version.");
        all.insert((*name).to_owned(), MetricSpec { kind: *kind, labels: &[], help });
    }
    let mut counter = |name: String, help: String| {
        all.insert(name, MetricSpec { kind: Counter, labels: &[], help });
    };
    for op in Method::ALL.iter().filter_map(|method| op(*method)) {
        counter(format!("master_{op}_requests_total"), format!("Calls of {op}."));
        counter(
            format!("master_{op}_failures_total"),
            format!("Calls of {op} that were answered with an error."),
        );
    }
    for op in Method::ALL.iter().filter_map(|method| batch(*method)) {
        for (what, help) in [
            ("requests", "Batches"),
            ("failures", "Batches in which every item failed,"),
            ("partial_successes", "Batches in which some items failed,"),
            ("items", "Items of batches"),
            ("failed_items", "Failed items of batches"),
        ] {
            counter(format!("master_batch_{op}_{what}_total"), format!("{help} of {op}."));
        }
    }
    all
});

/// The metric of that name.
pub(super) fn find(name: &str) -> Option<&'static MetricSpec> {
    CATALOGUE.get(name)
}

/// The text of `docs/metrics.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Metrics of mooncake-master\n\n\
         Generated from the catalogue in the code; do not edit. Served at `/metrics` of the admin port (Prometheus text\n\
         0.0.4), on a standby too. Names without the prefix `mooncake_master_` are those of the C++ master, some of them\n\
         ending in `_`, so that dashboards keep working.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for (name, spec) in &*CATALOGUE {
        let kind = format!("{:?}", spec.kind).to_lowercase();
        let _ = writeln!(out, "| `{name}` | {kind} | {} | {} |", spec.labels.join(", "), spec.help);
    }
    out
}
