//! The option table. Order is the order of the help.

use crate::rpc::native::generation::{NAMES, NEWEST};

use super::option::{
    Group::{
        self, Admin, Eviction, Features, General, Glog, Ha, Heartbeat, Liveness, Logging, Objects, Offload,
        Oplog, Probe, Rpc, Snapshot, Storage, Tasks,
    },
    Kind, Spec, Unit,
};

const BOOL: Kind = Kind::Bool;
const TEXT: Kind = Kind::Text;
const SIGNED: Kind = Kind::Signed;
const ADDRESS: Kind = Kind::Address;
const PORT: Kind = Kind::Count { min: 1, max: 65_535 };
const PORT_OR_ZERO: Kind = Kind::Count { min: 0, max: 65_535 };
const COUNT: Kind = Kind::Count { min: 0, max: u64::MAX };
const COUNT_U32: Kind = Kind::Count { min: 0, max: u32::MAX as u64 };
const POSITIVE: Kind = Kind::Count { min: 1, max: u32::MAX as u64 };
const THREADS: Kind = Kind::Count { min: 1, max: 1024 };
const RATIO: Kind = Kind::Number { min: 0.0, max: 1.0 };
const MILLIS: Kind = Kind::Duration { unit: Unit::Millis, min: 0 };
const MILLIS_POSITIVE: Kind = Kind::Duration { unit: Unit::Millis, min: 1 };
const SECONDS: Kind = Kind::Duration { unit: Unit::Seconds, min: 0 };
const SECONDS_POSITIVE: Kind = Kind::Duration { unit: Unit::Seconds, min: 1 };
const SIZE: Kind = Kind::Bytes { min: 0, max: u64::MAX };

const fn o(group: Group, name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Spec {
    Spec::new(group, name, kind, default, help)
}

const GLOG: &str = "this master logs to stderr in its own format";
const ARENA: &str = "a flag of the client library, which the C++ master lists but does not use";
const KV_EVENTS_OLD: &str = "deprecated and without effect in the C++ master, too";

/// Every option; one line each.
#[rustfmt::skip]
pub static TABLE: &[Spec] = &[
    // General
    o(General, "config_path", TEXT, "", "Configuration file: flat, the keys are the names of these flags; YAML (.yaml, .yml) or JSON (.json)."),
    o(General, "check_config", BOOL, "false", "Check the configuration, print the effective one as a JSON object (itself a valid configuration file) and exit: status 0 if it is good, else 2."),
    o(General, "cluster_id", TEXT, "mooncake_cluster", "Name of the cluster: letters, digits, `_`, `.`, `-`, at most 128."),
    o(General, "enable_metric_reporting", BOOL, "true", "Log the line of /metrics/summary every 10 s."),
    o(General, "termination_log", TEXT, "/dev/termination-log", "File that holds this process's incarnation id, truncated and written at each start; the container's terminationMessagePath. Empty: none.").env("TERMINATION_LOG"),
    o(General, "enable_fault_injection", BOOL, "false", "Allow the fault injection that the tests use. Never in production."),
    // RPC
    o(Rpc, "rpc_port", PORT_OR_ZERO, "50051", "RPC port, native protocol and gRPC on the same one. 0: the value of `port`."),
    o(Rpc, "port", PORT, "50051", "Old name of rpc_port.").deprecated("rpc_port"),
    o(Rpc, "rpc_address", ADDRESS, "0.0.0.0", "Address to bind. With enable_ha it is advertised too (unless rpc_advertise_address is set) and so must not be a wildcard."),
    o(Rpc, "rpc_interface", TEXT, "", "Take rpc_address from this network interface (IPv4 first)."),
    o(Rpc, "rpc_advertise_address", TEXT, "", "host or host:port under which clients reach this very process; never a Service. Empty: rpc_address:rpc_port."),
    o(Rpc, "rpc_thread_num", Kind::Count { min: 0, max: 1024 }, "0", "Data threads. 0: as many as there are cores, at most max_threads (16)."),
    o(Rpc, "max_threads", THREADS, "16", "Upper bound of data threads while rpc_thread_num is 0.").deprecated("rpc_thread_num"),
    o(Rpc, "rpc_conn_timeout_seconds", SECONDS, "0", "Accepted for compatibility: in this version no connection is closed for being idle."),
    o(Rpc, "rpc_enable_tcp_no_delay", BOOL, "true", "Set TCP_NODELAY on accepted connections."),
    o(Rpc, "max_frame_bytes", Kind::Bytes { min: 4096, max: 1 << 31 }, "64Mi", "Largest request that is accepted, header excluded."),
    o(Rpc, "rpc_byte_budget", Kind::Bytes { min: 1 << 20, max: 1 << 44 }, "512Mi", "Bytes of requests being received, decoded or answered in the whole process; over it connections are not read. Large requests leave a quarter of it to small ones, so it is at least 4/3 of max_frame_bytes."),
    o(Rpc, "max_connections", POSITIVE, "16384", "Open RPC connections in total; further ones are closed at once."),
    o(Rpc, "max_connections_per_address", POSITIVE, "4096", "Open RPC connections from one peer address."),
    o(Rpc, "wire_default_generation", Kind::Choice(NAMES), NEWEST, "Client generation assumed for a native connection that nothing tells about."),
    o(Rpc, "wire_generation_ports", TEXT, "", "Further ports, each for native clients of one generation only: `0.3.12=50062` or several with commas. For addresses that clients of several generations share."),
    // Heartbeat
    o(Heartbeat, "heartbeat_rpc_port", PORT_OR_ZERO, "0", "Port of a second server that serves only Ping and ServiceReady on threads of its own. 0: off."),
    o(Heartbeat, "heartbeat_rpc_thread_num", THREADS, "1", "Its threads."),
    o(Heartbeat, "heartbeat_keep_on_main", BOOL, "true", "The main server keeps serving Ping while the heartbeat server runs. false: it answers HEARTBEAT_ROUTING_MISMATCH."),
    // Admin
    o(Admin, "metrics_port", PORT, "9003", "Port of the admin HTTP server: /health, /readyz, /metrics and others."),
    o(Admin, "metrics_host", ADDRESS, "0.0.0.0", "Address that it binds."),
    // Probe
    o(Probe, "enable_rpc_health_probe", BOOL, "true", "Probe the own RPC path while serving. false: no probe, and /readyz follows the role alone (a standby stays out of the Service)."),
    o(Probe, "rpc_probe_interval_seconds", SECONDS_POSITIVE, "5", "Time from one probe to the next."),
    o(Probe, "rpc_probe_timeout_seconds", SECONDS_POSITIVE, "3", "A probe that takes longer has failed. HealthCheck's own budget is the smaller of 2 s and two thirds of it."),
    // Objects
    o(Objects, "default_kv_lease_ttl", MILLIS, "10000", "Read lease that Get and Exist grant."),
    o(Objects, "default_kv_soft_pin_ttl", MILLIS, "1800000", "Time of a soft pin whose writer names none."),
    o(Objects, "max_kv_soft_pin_ttl", MILLIS, "86400000", "Longest soft pin that a writer may ask for."),
    o(Objects, "put_start_discard_timeout_sec", SECONDS, "30", "A put that has not ended after this may be replaced."),
    o(Objects, "put_start_release_timeout_sec", SECONDS, "600", "The memory of a discarded put is used again after this. Greater than put_start_discard_timeout_sec."),
    o(Objects, "exist_lease_bound_ms", Kind::Duration { unit: Unit::Millis, min: 0 }, "0", "How far ExistKey alone may carry a read lease beyond what the last Get or write gave, at most 4 h. 0: without bound, as the C++ master; a key that is probed often enough is then never evicted."),
    o(Objects, "max_keys", COUNT, "0", "Keys that the index takes at the most, within 2 %; further puts are answered KEYS_ULTRA_LIMIT, and eviction is asked for. 0: any number."),
    o(Objects, "max_metadata_bytes", SIZE, "0", "The same in bytes of memory for the index, about: see the metric mooncake_master_metadata_bytes. 0: any number."),
    o(Objects, "memory_allocator", Kind::Choice(&["offset", "cachelib"]), "offset", "Whose rules hold for memory segments. cachelib: base and size of a segment in multiples of 4 MiB, values of at most 4 MiB - 16 bytes."),
    o(Objects, "allocation_strategy", Kind::Choice(&["random", "free_ratio_first", "ssd_free_ratio_first", "local_first", "cxl"]), "random", "How segments are chosen for a new object, after those that its writer prefers: from a random one on, the freest of a sample, the one of a sample whose owner's SSD is the freest, or the writer's host first. This version has no cxl."),
    // Liveness
    o(Liveness, "client_active_ttl_sec", SECONDS_POSITIVE, "10", "Silence after which a client is suspected and what it owns is not served."),
    o(Liveness, "client_suspicion_ttl_sec", SECONDS_POSITIVE, "20", "Further silence after which it is offline and what it owns is dropped. Unset: the active TTL if that one is set, else 20."),
    o(Liveness, "client_mass_silence_ratio", RATIO, "0.5", "When at least this share of the active clients falls silent within one active TTL, they stay suspected for twice the suspicion TTL: the master may be the one that is cut off. 0: off."),
    o(Liveness, "client_mass_silence_min", POSITIVE, "5", "And at least so many of them."),
    o(Liveness, "client_offline_grace_sec", SECONDS, "40", "No client goes offline before the master has served for this long. Unset: the larger of both TTLs and 30 s, plus 10 s."),
    o(Liveness, "offboarding_mode", Kind::Choice(&["async", "sync"]), "async", "Who removes what an offline client had: async, the background; sync, the thread that judges the clients, before it judges the next one."),
    o(Liveness, "offboarding_queue_limit", POSITIVE, "10000", "Clients and segments that are being removed at the most. Beyond it clients stay suspected and unmounts are refused, to be tried again."),
    o(Liveness, "client_live_ttl_sec", SECONDS_POSITIVE, "10", "Old name of client_active_ttl_sec.").deprecated("client_active_ttl_sec"),
    o(Liveness, "client_ttl", SECONDS_POSITIVE, "10", "Old name of client_active_ttl_sec.").deprecated("client_active_ttl_sec"),
    // HA
    o(Ha, "enable_ha", BOOL, "false", "Take part in an election: serve only while holding the Lease."),
    o(Ha, "ha_backend_type", Kind::Choice(&["etcd", "redis", "k8s"]), "etcd", "Where leadership is kept. This version has k8s (a Lease); the others stop the start when enable_ha is on."),
    o(Ha, "ha_backend_connstring", TEXT, "", "The Lease: `namespace/name`, or `name` in namespace `default`."),
    o(Ha, "pod_name", TEXT, "", "Name of this pod; without it no leader label is written.").env("POD_NAME"),
    o(Ha, "pod_namespace", TEXT, "", "Namespace of this pod.").env("POD_NAMESPACE"),
    o(Ha, "pod_uid", TEXT, "", "UID of this pod.").env("POD_UID"),
    o(Ha, "ha_statefulset", TEXT, "", "StatefulSet of this pod, whose other pods lose the leader label when this one leads. Empty: pod_name without its ordinal."),
    o(Ha, "ha_max_ordinal", Kind::Count { min: 0, max: 999 }, "9", "Highest ordinal that a pod of it may have."),
    o(Ha, "lease_duration_ms", MILLIS_POSITIVE, "5000", "A leader that has been silent for this long may be replaced. Greater than lease_renew_deadline_ms."),
    o(Ha, "lease_renew_deadline_ms", MILLIS_POSITIVE, "3000", "A leader that could not renew for this long answers nothing more. At least twice lease_retry_period_ms."),
    o(Ha, "lease_retry_period_ms", MILLIS_POSITIVE, "1000", "Time between renewals and the deadline of each request."),
    o(Ha, "etcd_endpoints", TEXT, "", "etcd of the etcd backend, separated by `;`.").default_only(),
    // Storage
    o(Storage, "root_fs_dir", TEXT, "", "Root directory of DISK replicas, which clients write and read there by themselves; the files lie in its directory `cluster_id`. Empty: there are none."),
    o(Storage, "global_file_segment_size", SIZE, "9223372036854775807", "Capacity of DISK replicas, for the metric. The default: not known."),
    o(Storage, "enable_disk_eviction", BOOL, "true", "Told to clients: evict from their disk storage."),
    o(Storage, "quota_bytes", SIZE, "0", "Told to clients: quota of their disk storage. 0: theirs to choose."),
    // Logging
    o(Logging, "log_level", TEXT, "info", "error, warn, info, debug or trace, or a filter such as `info,mooncake_master::ha=debug`. Unset: from minloglevel and v.").env("MOONCAKE_LOG"),
    o(Logging, "log_format", Kind::Choice(&["text", "json"]), "text", "One line of text or one JSON object for each event, on stderr."),
    // Eviction
    o(Eviction, "eviction_ratio", RATIO, "0.05", "Share of the evictable objects that one round of eviction removes. 0: none for a put that finds no room."),
    o(Eviction, "eviction_high_watermark_ratio", RATIO, "0.90", "Used share of memory above which eviction begins. 1: only when a put finds no room."),
    o(Eviction, "allow_evict_soft_pinned_objects", BOOL, "true", "Evict soft-pinned objects when too little else is left."),
    o(Eviction, "nof_eviction_ratio", RATIO, "0.05", "The same for the NoF pool.").default_only(),
    o(Eviction, "nof_eviction_high_watermark_ratio", RATIO, "0.90", "The same for the NoF pool.").default_only(),
    // Snapshots
    o(Snapshot, "enable_snapshot", BOOL, "false", "Take snapshots.").default_only(),
    o(Snapshot, "enable_snapshot_restore", BOOL, "false", "Start from the latest snapshot.").default_only(),
    o(Snapshot, "snapshot_interval_seconds", SECONDS_POSITIVE, "600", "Time between snapshots.").parameter_of("enable_snapshot"),
    o(Snapshot, "snapshot_child_timeout_seconds", SECONDS_POSITIVE, "300", "Time that one may take.").parameter_of("enable_snapshot"),
    o(Snapshot, "snapshot_retention_count", POSITIVE, "2", "Snapshots that are kept.").parameter_of("enable_snapshot"),
    o(Snapshot, "snapshot_backup_dir", TEXT, "", "Where failed ones are kept.").parameter_of("enable_snapshot"),
    o(Snapshot, "snapshot_object_store_type", TEXT, "", "local or s3.").parameter_of("enable_snapshot"),
    o(Snapshot, "snapshot_catalog_store_type", TEXT, "", "embedded or redis.").parameter_of("enable_snapshot"),
    o(Snapshot, "snapshot_catalog_store_connstring", TEXT, "", "Address of the catalog.").parameter_of("enable_snapshot"),
    o(Snapshot, "snapshot_payload_store_type", TEXT, "", "Old name of snapshot_object_store_type.").parameter_of("enable_snapshot"),
    o(Snapshot, "snapshot_payload_backend_type", TEXT, "", "Old name of snapshot_object_store_type.").parameter_of("enable_snapshot"),
    o(Snapshot, "snapshot_catalog_backend_type", TEXT, "", "Old name of snapshot_catalog_store_type.").parameter_of("enable_snapshot"),
    o(Snapshot, "snapshot_catalog_backend_connstring", TEXT, "", "Old name of snapshot_catalog_store_connstring.").parameter_of("enable_snapshot"),
    // Operation log
    o(Oplog, "enable_oplog", BOOL, "false", "Replicate through an operation log in etcd.").default_only(),
    o(Oplog, "oplog_poll_interval_ms", MILLIS_POSITIVE, "1000", "How often a standby looks.").parameter_of("enable_oplog"),
    o(Oplog, "oplog_batch_max_entries", POSITIVE, "1024", "Entries in a batch.").parameter_of("enable_oplog"),
    o(Oplog, "batch_oplog_retry_timeout_sec", SECONDS, "180", "How long a write is tried again.").parameter_of("enable_oplog"),
    // Tasks
    o(Tasks, "max_total_finished_tasks", COUNT_U32, "10000", "Finished tasks that are remembered.").default_only(),
    o(Tasks, "max_total_pending_tasks", COUNT_U32, "10000", "Tasks that may wait.").default_only(),
    o(Tasks, "max_total_processing_tasks", COUNT_U32, "10000", "Tasks that may run.").default_only(),
    o(Tasks, "pending_task_timeout_sec", SECONDS, "300", "How long a task may wait. 0: for ever.").default_only(),
    o(Tasks, "processing_task_timeout_sec", SECONDS, "300", "How long a task may run. 0: for ever.").default_only(),
    o(Tasks, "max_retry_attempts", COUNT_U32, "10", "How often a task is tried again.").default_only(),
    // Offload and promotion
    o(Offload, "enable_offload", BOOL, "false", "Offload to the clients' local disks.").default_only(),
    o(Offload, "offload_on_evict", BOOL, "false", "Offload what is evicted.").default_only(),
    o(Offload, "offload_force_evict", BOOL, "false", "Evict even what could not be offloaded.").default_only(),
    o(Offload, "offloading_queue_limit", Kind::Count { min: 1, max: 100_000_000 }, "50000", "Length of each client's queue.").parameter_of("enable_offload"),
    o(Offload, "offload_cap_ratio", RATIO, "0.5", "Share of the queue that one kind may use.").parameter_of("enable_offload"),
    o(Offload, "promotion_on_hit", BOOL, "false", "Bring objects that are read from local disk back into memory.").default_only(),
    o(Offload, "promotion_admission_threshold", COUNT_U32, "2", "Reads before that.").parameter_of("promotion_on_hit"),
    o(Offload, "promotion_queue_limit", COUNT, "50000", "Length of its queue.").parameter_of("promotion_on_hit"),
    o(Offload, "promotion_max_per_heartbeat", POSITIVE, "1", "Promotions handed out with one heartbeat.").parameter_of("promotion_on_hit"),
    // Other features
    o(Features, "enable_http_metadata_server", BOOL, "false", "Serve the metadata of transfer engines over HTTP, for clients that are configured with `http://host:port/metadata`."),
    o(Features, "http_metadata_server_port", PORT, "8080", "Its port."),
    o(Features, "http_metadata_server_host", ADDRESS, "0.0.0.0", "Address that it binds."),
    o(Features, "enable_metadata_cleanup_on_timeout", BOOL, "false", "Remove what a client has there when it goes offline, unless a later one at that address has written since. While enable_http_metadata_server is off: from the server of metadata_server_url, unless a later one has mounted memory."),
    o(Features, "metadata_server_url", TEXT, "", "The HTTP metadata server that the clients use, `http://host:port/metadata`, if it is not this process. Empty: `metadata_server` in the JSON file that the environment variable MOONCAKE_CONFIG_PATH names.").env("MOONCAKE_TE_META_DATA_SERVER"),
    o(Features, "metadata_cluster_id", TEXT, "", "What the clients have as MC_METADATA_CLUSTER_ID: a part of their keys there.").env("MC_METADATA_CLUSTER_ID"),
    o(Features, "enable_multi_tenants", BOOL, "false", "Keep tenants apart.").default_only(),
    o(Features, "tenant_quota_connector_type", Kind::Choice(&["file", "etcd"]), "file", "Where quotas are kept.").parameter_of("enable_multi_tenants"),
    o(Features, "tenant_quota_connector_uri", TEXT, "", "The same.").parameter_of("enable_multi_tenants"),
    o(Features, "enable_cxl", BOOL, "false", "Use CXL memory.").default_only(),
    o(Features, "cxl_path", TEXT, "/dev/dax0.0", "Its device.").parameter_of("enable_cxl"),
    o(Features, "cxl_size", SIZE, "8Gi", "Its size.").parameter_of("enable_cxl"),
    o(Features, "nof_heartbeat_interval_sec", SECONDS_POSITIVE, "10", "Time between probes of NoF segments.").default_only(),
    o(Features, "nof_heartbeat_probe_timeout_ms", MILLIS_POSITIVE, "1000", "Time that a probe may take.").default_only(),
    o(Features, "nof_heartbeat_failures_threshold", POSITIVE, "3", "Failed probes before a segment is unmounted.").default_only(),
    o(Features, "dynamic_replication_mode", Kind::Choice(&["off", "observe", "enforce"]), "off", "Replicate hot objects.").default_only(),
    o(Features, "dynamic_replication_heat_window_seconds", SECONDS_POSITIVE, "10", "Window in which reads are counted.").parameter_of("dynamic_replication_mode"),
    o(Features, "dynamic_replication_admission_qps_threshold", Kind::Number { min: 0.0, max: 1e12 }, "0.8", "Reads per second of a hot object.").parameter_of("dynamic_replication_mode"),
    o(Features, "dynamic_replication_max_memory_replicas", POSITIVE, "2", "Replicas at most.").parameter_of("dynamic_replication_mode"),
    o(Features, "enable_kv_events", BOOL, "false", "Publish events of the cache.").default_only(),
    o(Features, "kv_events_bind_endpoint", TEXT, "", "Where.").parameter_of("enable_kv_events"),
    o(Features, "kv_events_backend_id", TEXT, "", "Name of this publisher.").parameter_of("enable_kv_events"),
    o(Features, "kv_events_emit_legacy_compat", BOOL, "true", "Old field names, too.").parameter_of("enable_kv_events"),
    o(Features, "kv_events_emit_object_key", BOOL, "true", "Keys, too.").parameter_of("enable_kv_events"),
    o(Features, "kv_events_queue_capacity", POSITIVE, "65536", "Length of the queue.").parameter_of("enable_kv_events"),
    o(Features, "kv_events_model_name", TEXT, "", "").ignored(KV_EVENTS_OLD),
    o(Features, "kv_events_tenant_id", TEXT, "default", "").ignored(KV_EVENTS_OLD),
    o(Features, "kv_events_additional_salt", TEXT, "", "").ignored(KV_EVENTS_OLD),
    o(Features, "kv_events_lora_name", TEXT, "", "").ignored(KV_EVENTS_OLD),
    o(Features, "kv_events_block_size", COUNT_U32, "0", "").ignored(KV_EVENTS_OLD),
    o(Features, "kv_events_dp_rank", COUNT_U32, "0", "").ignored(KV_EVENTS_OLD),
    // glog and gflags
    o(Glog, "minloglevel", Kind::Count { min: 0, max: 3 }, "0", "Sets log_level if that is unset: 0 info, 1 warn, 2 and 3 error."),
    o(Glog, "v", SIGNED, "0", "Sets log_level if that is unset: 1 debug, 2 and more trace."),
    o(Glog, "log_dir", TEXT, "", "").ignored(GLOG),
    o(Glog, "logtostderr", BOOL, "false", "").ignored(GLOG),
    o(Glog, "logtostdout", BOOL, "false", "").ignored(GLOG),
    o(Glog, "alsologtostderr", BOOL, "false", "").ignored(GLOG),
    o(Glog, "colorlogtostderr", BOOL, "false", "").ignored(GLOG),
    o(Glog, "colorlogtostdout", BOOL, "false", "").ignored(GLOG),
    o(Glog, "stderrthreshold", SIGNED, "2", "").ignored(GLOG),
    o(Glog, "vmodule", TEXT, "", "").ignored(GLOG),
    o(Glog, "log_prefix", BOOL, "true", "").ignored(GLOG),
    o(Glog, "log_year_in_prefix", BOOL, "true", "").ignored(GLOG),
    o(Glog, "log_utc_time", BOOL, "false", "").ignored(GLOG),
    o(Glog, "log_link", TEXT, "", "").ignored(GLOG),
    o(Glog, "log_backtrace_at", TEXT, "", "").ignored(GLOG),
    o(Glog, "logbuflevel", SIGNED, "0", "").ignored(GLOG),
    o(Glog, "logbufsecs", SIGNED, "30", "").ignored(GLOG),
    o(Glog, "logcleansecs", SIGNED, "300", "").ignored(GLOG),
    o(Glog, "logfile_mode", SIGNED, "436", "").ignored(GLOG),
    o(Glog, "max_log_size", SIGNED, "1800", "").ignored(GLOG),
    o(Glog, "stop_logging_if_full_disk", BOOL, "false", "").ignored(GLOG),
    o(Glog, "timestamp_in_logfile_name", BOOL, "true", "").ignored(GLOG),
    o(Glog, "drop_log_memory", BOOL, "true", "").ignored(GLOG),
    o(Glog, "symbolize_stacktrace", BOOL, "true", "").ignored(GLOG),
    o(Glog, "alsologtoemail", TEXT, "", "").ignored(GLOG),
    o(Glog, "logemaillevel", SIGNED, "999", "").ignored(GLOG),
    o(Glog, "logmailer", TEXT, "/bin/mail", "").ignored(GLOG),
    o(Glog, "use_mmap_arena_allocator", BOOL, "false", "").ignored(ARENA),
    o(Glog, "mmap_arena_pool_size", SIZE, "8Gi", "").ignored(ARENA),
    o(Glog, "flagfile", TEXT, "", "Read further flags from a file: use config_path.").default_only(),
    o(Glog, "fromenv", TEXT, "", "Read flags from the environment.").default_only(),
    o(Glog, "tryfromenv", TEXT, "", "Read flags from the environment.").default_only(),
    o(Glog, "undefok", TEXT, "", "Accept unknown flags.").default_only(),
];

/// The option of that exact name.
pub(super) fn find(name: &str) -> Option<&'static Spec> {
    TABLE.iter().find(|spec| spec.name == name)
}

/// The known name that is closest to `name`.
pub(super) fn nearest(name: &str) -> &'static str {
    let name = name.replace('-', "_");
    TABLE.iter().map(|spec| spec.name).min_by_key(|known| distance(&name, known)).unwrap_or("help")
}

/// Levenshtein distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
