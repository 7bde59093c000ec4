//! The line of `/metrics/summary` and of the log: upstream's, name by name, and what this master adds at its end.

use crate::clock::Instant;
use prometheus::proto::MetricFamily;
use std::{collections::HashMap, fmt::Write as _, time::Duration};

/// Single calls, as upstream names them in the line and as their metrics are called.
const CALLS: [(&str, &str); 15] = [
    ("PutStart", "put_start"),
    ("PutEnd", "put_end"),
    ("PutRevoke", "put_revoke"),
    ("Get", "get_replica_list"),
    ("Exist", "exist_key"),
    ("Del", "remove"),
    ("DelAll", "remove_all"),
    ("Ping", "ping"),
    ("CopyStart", "copy_start"),
    ("CopyEnd", "copy_end"),
    ("CopyRevoke", "copy_revoke"),
    ("MoveStart", "move_start"),
    ("MoveEnd", "move_end"),
    ("MoveRevoke", "move_revoke"),
    ("EvictDiskReplica", "evict_disk_replica"),
];
const BATCHES: [(&str, &str); 7] = [
    ("PutStart", "put_start"),
    ("PutEnd", "put_end"),
    ("PutRevoke", "put_revoke"),
    ("Get", "get_replica_list"),
    ("ExistKey", "exist_key"),
    ("QueryIp", "query_ip"),
    ("Clear", "replica_clear"),
];
const TASKS: [(&str, &str); 5] = [
    ("CreateMoveTask", "create_move_task"),
    ("CreateCopyTask", "create_copy_task"),
    ("QueryTask", "query_task"),
    ("FetchTasks", "fetch_tasks"),
    ("MarkTaskToComplete", "update_task"),
];

/// Metrics without labels, by name.
#[derive(Debug, Default)]
pub(super) struct Figures(HashMap<String, f64>);

impl Figures {
    pub(super) fn of(families: &[MetricFamily]) -> Figures {
        let plain = |family: &MetricFamily| {
            let metric = family.get_metric().first().filter(|metric| metric.get_label().is_empty())?;
            let value = match family.get_field_type() {
                prometheus::proto::MetricType::COUNTER => metric.get_counter().get_value(),
                prometheus::proto::MetricType::GAUGE => metric.get_gauge().get_value(),
                _ => return None,
            };
            Some((family.name().to_owned(), value))
        };
        Figures(families.iter().filter_map(plain).collect())
    }

    fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    fn count(&self, name: &str) -> u64 {
        self.get(name) as u64
    }

    fn size(&self, name: &str) -> String {
        bytes(self.count(name))
    }
}

/// What is known of the process beyond the metrics.
#[derive(Debug)]
pub(super) struct Process<'a> {
    pub(super) role: &'a str,
    pub(super) state: &'a str,
    pub(super) service_ready: bool,
    pub(super) ready: bool,
    pub(super) epoch: u64,
}

/// The figures of the line before, for rates.
#[derive(Debug, Default)]
pub(super) struct Before(Option<(Instant, Figures)>);

/// One line. Rates are those since the line before.
pub(super) fn line(process: &Process<'_>, now: Figures, at: Instant, before: &mut Before) -> String {
    let (none, last) = (Figures::default(), before.0.take());
    let (since, then) = last.as_ref().map_or((Instant::ZERO, &none), |(at, figures)| (*at, figures));
    let seconds = at.saturating_since(since).max(Duration::from_millis(1)).as_secs_f64();
    let rate = |name: &str| (now.get(name) - then.get(name)).max(0.0) / seconds;
    // (all - bad) and all.
    let pair = |all: &str, bad: &[&str]| {
        let total = rate(all);
        format!("{:.2}/{total:.2}", (total - bad.iter().map(|name| rate(name)).sum::<f64>()).max(0.0))
    };
    let used = now.get("master_allocated_bytes") * 100.0 / now.get("master_total_capacity_bytes").max(1.0);
    let mut line = format!(
        "role={}, state={}, service_ready={}, master={{Mem Storage: {} / {} ({used:.1}%) | NVMe-oF SSD: {} / {} | \
         SSD Storage: {} / {} | Keys: {} (soft-pinned: {}) | Clients: {}",
        process.role,
        process.state,
        process.service_ready,
        now.size("master_allocated_bytes"),
        now.size("master_total_capacity_bytes"),
        now.size("master_nof_allocated_bytes"),
        now.size("master_total_nof_capacity_bytes"),
        now.size("master_allocated_file_size_bytes"),
        now.size("master_total_file_capacity_bytes"),
        now.count("master_key_count"),
        now.count("master_soft_pin_key_count"),
        now.count("master_active_clients"),
    );
    let single = |(name, op): &(&'static str, &'static str)| {
        let (all, failed) = (format!("master_{op}_requests_total"), format!("master_{op}_failures_total"));
        (*name, pair(&all, &[&failed]))
    };
    let calls: Vec<String> = CALLS.iter().map(single).map(|(name, pair)| format!("{name}={pair}")).collect();
    let batch = |(name, op): &(&'static str, &'static str)| {
        let of = |what: &str| format!("master_batch_{op}_{what}_total");
        let (all, failed, partial) = (of("requests"), of("failures"), of("partial_successes"));
        let total = rate(&all);
        let good = (total - rate(&failed) - rate(&partial)).max(0.0);
        let items = pair(&of("items"), &[&of("failed_items")]);
        format!("{name}:(Req={good:.2}/{:.2}/{total:.2}, Item={items})", rate(&partial))
    };
    let tasks = TASKS.iter().map(single).map(|(name, pair)| format!("{name}:(Req={pair})"));
    let batches: Vec<String> = BATCHES.iter().map(batch).chain(tasks).collect();
    let _ = write!(
        line,
        " | Requests (Success/Total per sec): {} | Batch Requests (per sec, Req=Success/PartialSuccess/Total, \
         Item=Success/Total): {}",
        calls.join(", "),
        batches.join(", ")
    );
    let evicted = |of: &str, total: &str| {
        format!(
            "Success/Attempts={}/{}",
            now.count(&format!("master_successful_evictions{total}")),
            now.count(&format!("master_attempted_evictions{total}"))
        ) + of
            + &format!(
                "keys={}, size={}",
                now.count(&format!("master_evicted_key_count{}", total.trim_end_matches("_total"))),
                now.size(&format!("master_evicted_size_bytes{}", total.trim_end_matches("_total")))
            )
    };
    let starts = format!(
        ", AllocFail={}, PartialAlloc={}, ",
        now.count("master_put_start_alloc_failures_total"),
        now.count("master_put_start_partial_allocations_total")
    );
    let _ = write!(
        line,
        " | Eviction: {} | Mem Eviction: {} | NoF Eviction: {} | Discard: Released/Total={}/{}, StagingSize={}",
        evicted(&starts, "_total"),
        evicted(", ", "_mem"),
        evicted(", ", "_nof"),
        now.count("master_put_start_release_cnt"),
        now.count("master_put_start_discard_cnt"),
        now.size("master_put_start_discarded_staging_size"),
    );
    let promoted = |what: &str| now.count(&format!("master_promotion_{what}"));
    let _ = write!(
        line,
        " | Promotion: in_flight={}, admitted={}, completed={}, failed={}, cancelled={}, expired={}, bytes={}, \
         rejected(freq/wm/cap)={}/{}/{} | Snapshots: Success={}, Fail={}}}",
        promoted("in_flight"),
        promoted("admitted_total"),
        promoted("completed_total"),
        promoted("failed_total"),
        promoted("cancelled_total"),
        promoted("expired_total"),
        now.size("master_promotion_completed_bytes_total"),
        promoted("rejected_frequency_total"),
        promoted("rejected_watermark_total"),
        promoted("rejected_cap_total"),
        now.count("master_snapshot_success"),
        now.count("master_snapshot_fail"),
    );
    let _ = write!(
        line,
        ", ha={{HA Metrics Summary: last_seq={}, applied_seq={}, lag={}, pending={}, mutation_queue={}, \
         batch_commits={}, sync_commits={}, skipped={}, checksum_fail={}, etcd_fail={}, watch_disconn={}, state={}}}",
        now.count("ha_oplog_last_sequence_id"),
        now.count("ha_oplog_applied_sequence_id"),
        now.count("ha_oplog_standby_lag"),
        now.count("ha_oplog_pending_entries"),
        now.count("ha_pending_mutation_queue_size"),
        now.count("ha_oplog_batch_commits_total"),
        now.count("ha_oplog_sync_batch_commits_total"),
        now.count("ha_oplog_skipped_entries_total"),
        now.count("ha_oplog_checksum_failures_total"),
        now.count("ha_oplog_etcd_write_failures_total"),
        now.count("ha_oplog_watch_disconnections_total"),
        now.count("ha_standby_state"),
    );
    let _ = write!(
        line,
        ", epoch={}, ready={}, suspected={}, offline={}",
        process.epoch,
        process.ready,
        now.count("master_client_liveness_suspected_clients"),
        now.count("master_client_liveness_offline_clients"),
    );
    before.0 = Some((at, now));
    line
}

/// A size as upstream writes it.
fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "KB", "MB", "GB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{n} B") } else { format!("{value:.2} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.2} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_since_the_line_before() {
        let process =
            Process { role: "leader", state: "serving", service_ready: true, ready: true, epoch: 3 };
        let figures = |calls: f64, failed: f64| {
            Figures(HashMap::from([
                ("master_put_start_requests_total".to_owned(), calls),
                ("master_put_start_failures_total".to_owned(), failed),
                ("master_allocated_bytes".to_owned(), 4000.0),
                ("master_total_capacity_bytes".to_owned(), 64.0 * 1024.0 * 1024.0),
            ]))
        };
        let mut before = Before::default();
        let second = |n: u64| Instant::from_nanos(n * 1_000_000_000);
        line(&process, figures(100.0, 10.0), second(10), &mut before);
        let text = line(&process, figures(160.0, 40.0), second(20), &mut before);
        assert!(text.starts_with(
            "role=leader, state=serving, service_ready=true, master={Mem Storage: 3.91 KB / 64.00 MB (0.0%) |"
        ));
        assert!(text.contains("per sec): PutStart=3.00/6.00, PutEnd=0.00/0.00"), "{text}");
        assert!(text.ends_with("epoch=3, ready=true, suspected=0, offline=0"));
    }
}
