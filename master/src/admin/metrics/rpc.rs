//! Counters of calls: one shard for each thread that serves, so that counting costs no shared cache line.

use crate::rpc::native::generation::Method;
use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the latency buckets, microseconds; one more bucket lies above.
pub(super) const LATENCY_US: [u64; 17] = [
    10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000,
];
/// Upper bounds of the buckets of value sizes, bytes (facts §9.1).
pub(super) const VALUE_SIZE: [u64; 7] = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// `<op>` of upstream's pair `master_<op>_requests_total` and `_failures_total` in which a call is counted: Upsert calls
/// count as puts and BatchRemove as Remove (facts §1.7).
pub(super) const fn op(method: Method) -> Option<&'static str> {
    Some(match method {
        Method::ExistKey => "exist_key",
        Method::GetReplicaList => "get_replica_list",
        Method::GetReplicaListByRegex => "get_replica_list_by_regex",
        Method::PutStart | Method::UpsertStart => "put_start",
        Method::PutEnd | Method::UpsertEnd => "put_end",
        Method::PutRevoke | Method::UpsertRevoke => "put_revoke",
        Method::Remove | Method::BatchRemove => "remove",
        Method::RemoveByRegex => "remove_by_regex",
        Method::RemoveAll => "remove_all",
        Method::MountSegment => "mount_segment",
        Method::ReMountSegment => "remount_segment",
        Method::UnmountSegment => "unmount_segment",
        Method::MountNoFSegment => "mount_nof_segment",
        Method::ReMountNoFSegment => "remount_nof_segment",
        Method::UnmountNoFSegment => "unmount_nof_segment",
        Method::Ping => "ping",
        Method::CopyStart => "copy_start",
        Method::CopyEnd => "copy_end",
        Method::CopyRevoke => "copy_revoke",
        Method::MoveStart => "move_start",
        Method::MoveEnd => "move_end",
        Method::MoveRevoke => "move_revoke",
        Method::EvictDiskReplica => "evict_disk_replica",
        Method::CreateCopyTask => "create_copy_task",
        Method::CreateMoveTask => "create_move_task",
        Method::QueryTask => "query_task",
        Method::FetchTasks => "fetch_tasks",
        Method::MarkTaskToComplete => "update_task",
        _ => return None,
    })
}

/// `<op>` of upstream's family `master_batch_<op>_*` in which a batch is counted.
pub(super) const fn batch(method: Method) -> Option<&'static str> {
    Some(match method {
        Method::BatchExistKey => "exist_key",
        Method::BatchQueryIp => "query_ip",
        Method::BatchReplicaClear => "replica_clear",
        Method::BatchGetReplicaList => "get_replica_list",
        Method::BatchPutStart | Method::BatchUpsertStart => "put_start",
        Method::BatchPutEnd | Method::BatchUpsertEnd => "put_end",
        Method::BatchPutRevoke | Method::BatchUpsertRevoke => "put_revoke",
        _ => return None,
    })
}

const METHODS: usize = Method::ALL.len();

/// How a call came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Protocol {
    Native,
    Grpc,
}

impl Protocol {
    /// Both.
    pub const ALL: [Protocol; 2] = [Protocol::Native, Protocol::Grpc];

    /// Its value of the label `protocol`.
    pub const fn label(self) -> &'static str {
        match self {
            Protocol::Native => "native",
            Protocol::Grpc => "grpc",
        }
    }
}

/// One call on one protocol. The number of calls is the sum of the buckets.
#[derive(Debug, Default)]
struct Series {
    failures: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; LATENCY_US.len() + 1],
    partial: AtomicU64,
    items: AtomicU64,
    failed_items: AtomicU64,
}

/// The counters of one thread. Aligned, so that no two threads share a cache line.
#[derive(Debug)]
#[repr(align(128))]
pub struct RpcShard {
    series: Box<[[Series; Protocol::ALL.len()]; METHODS]>,
    misrouted_pings: [AtomicU64; Protocol::ALL.len()],
    gets: AtomicU64,
    valid_gets: AtomicU64,
    hit_bytes: AtomicU64,
    received: [AtomicU64; Protocol::ALL.len()],
    sent: [AtomicU64; Protocol::ALL.len()],
    in_flight: [AtomicI64; Protocol::ALL.len()],
    disk_hits: AtomicU64,
    disk_hit_bytes: AtomicU64,
    value_buckets: [AtomicU64; VALUE_SIZE.len() + 1],
    value_bytes: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl RpcShard {
    fn new() -> RpcShard {
        let series: Vec<_> = (0..METHODS).map(|_| Default::default()).collect();
        let Ok(series) = series.into_boxed_slice().try_into() else { unreachable!("METHODS elements") };
        RpcShard {
            series,
            misrouted_pings: Default::default(),
            gets: AtomicU64::new(0),
            valid_gets: AtomicU64::new(0),
            hit_bytes: AtomicU64::new(0),
            received: Default::default(),
            sent: Default::default(),
            in_flight: Default::default(),
            disk_hits: AtomicU64::new(0),
            disk_hit_bytes: AtomicU64::new(0),
            value_buckets: Default::default(),
            value_bytes: AtomicU64::new(0),
        }
    }

    /// A Ping that was refused because it came to the main server (C2).
    pub fn record_misrouted_ping(&self, protocol: Protocol) {
        add(&self.misrouted_pings[protocol as usize], 1);
    }

    /// One answered call.
    pub fn record(&self, method: Method, protocol: Protocol, failed: bool, took: Duration) {
        let series = &self.series[method as usize][protocol as usize];
        if failed {
            add(&series.failures, 1);
        }
        let nanos = took.as_nanos() as u64;
        add(&series.nanos, nanos);
        add(&series.buckets[LATENCY_US.partition_point(|bound| bound * 1000 < nanos)], 1);
    }

    /// One answered batch. It failed if every one of its items did.
    pub fn record_batch(
        &self,
        method: Method,
        protocol: Protocol,
        items: u64,
        failed_items: u64,
        took: Duration,
    ) {
        self.record(method, protocol, items > 0 && failed_items >= items, took);
        let series = &self.series[method as usize][protocol as usize];
        add(&series.items, items);
        if failed_items > 0 {
            add(&series.failed_items, failed_items);
            if failed_items < items {
                add(&series.partial, 1);
            }
        }
    }

    /// Keys that were asked for, those among them with a readable replica, and the bytes of these.
    pub fn record_gets(&self, asked: u64, found: u64, bytes: u64) {
        add(&self.gets, asked);
        add(&self.valid_gets, found);
        add(&self.hit_bytes, bytes);
    }

    /// Bytes that came in.
    pub fn record_received(&self, protocol: Protocol, bytes: u64) {
        add(&self.received[protocol as usize], bytes);
    }

    /// Bytes that went out.
    pub fn record_sent(&self, protocol: Protocol, bytes: u64) {
        add(&self.sent[protocol as usize], bytes);
    }

    /// A call began (1) or ended (-1).
    pub fn record_in_flight(&self, protocol: Protocol, change: i64) {
        self.in_flight[protocol as usize].fetch_add(change, Ordering::Relaxed);
    }

    /// Those among the keys found that lie only on disk, and their bytes.
    pub fn record_disk_hits(&self, found: u64, bytes: u64) {
        add(&self.disk_hits, found);
        add(&self.disk_hit_bytes, bytes);
    }

    /// The size of a value that a put has started, bytes.
    pub fn record_value_size(&self, bytes: u64) {
        add(&self.value_bytes, bytes);
        add(&self.value_buckets[VALUE_SIZE.partition_point(|bound| *bound < bytes)], 1);
    }
}

/// All shards.
#[derive(Debug)]
pub struct RpcMetrics {
    shards: Box<[RpcShard]>,
}

/// The sums of one call on one protocol.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct CallSums {
    pub(super) calls: u64,
    pub(super) failures: u64,
    pub(super) seconds: f64,
    pub(super) buckets: Vec<u64>,
    pub(super) partial: u64,
    pub(super) items: u64,
    pub(super) failed_items: u64,
}

/// The sums of what concerns objects.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ObjectSums {
    pub(super) gets: u64,
    pub(super) valid_gets: u64,
    pub(super) hit_bytes: u64,
    pub(super) disk_hits: u64,
    pub(super) disk_hit_bytes: u64,
    pub(super) value_buckets: Vec<u64>,
    pub(super) value_bytes: u64,
}

impl RpcMetrics {
    /// One shard for each of `threads` (at least one).
    pub fn new(threads: usize) -> RpcMetrics {
        RpcMetrics { shards: (0..threads.max(1)).map(|_| RpcShard::new()).collect() }
    }

    /// The shard of a thread. Threads beyond the number given at the start share.
    pub fn shard(&self, thread: usize) -> &RpcShard {
        &self.shards[thread % self.shards.len()]
    }

    fn sum(&self, of: impl Fn(&RpcShard) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum()
    }

    pub(super) fn call(&self, method: Method, protocol: Protocol) -> CallSums {
        let (r, p) = (method as usize, protocol as usize);
        let buckets: Vec<u64> =
            (0..=LATENCY_US.len()).map(|i| self.sum(|s| &s.series[r][p].buckets[i])).collect();
        CallSums {
            calls: buckets.iter().sum(),
            failures: self.sum(|s| &s.series[r][p].failures),
            seconds: self.sum(|s| &s.series[r][p].nanos) as f64 / 1e9,
            buckets,
            partial: self.sum(|s| &s.series[r][p].partial),
            items: self.sum(|s| &s.series[r][p].items),
            failed_items: self.sum(|s| &s.series[r][p].failed_items),
        }
    }

    pub(super) fn misrouted_pings(&self, protocol: Protocol) -> u64 {
        self.sum(|s| &s.misrouted_pings[protocol as usize])
    }

    /// Bytes received and sent, and calls under way.
    pub(super) fn traffic(&self, protocol: Protocol) -> (u64, u64, u64) {
        let p = protocol as usize;
        // A call may end on another thread's counter than it began on only if threads share one; the sum is right.
        let in_flight: i64 = self.shards.iter().map(|s| s.in_flight[p].load(Ordering::Relaxed)).sum();
        (self.sum(|s| &s.received[p]), self.sum(|s| &s.sent[p]), in_flight.max(0) as u64)
    }

    pub(super) fn objects(&self) -> ObjectSums {
        ObjectSums {
            gets: self.sum(|s| &s.gets),
            valid_gets: self.sum(|s| &s.valid_gets),
            hit_bytes: self.sum(|s| &s.hit_bytes),
            disk_hits: self.sum(|s| &s.disk_hits),
            disk_hit_bytes: self.sum(|s| &s.disk_hit_bytes),
            value_buckets: (0..=VALUE_SIZE.len()).map(|i| self.sum(|s| &s.value_buckets[i])).collect(),
            value_bytes: self.sum(|s| &s.value_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed_over_threads_and_put_into_buckets() {
        let metrics = RpcMetrics::new(2);
        let us = Duration::from_micros;
        metrics.shard(0).record(Method::PutStart, Protocol::Native, false, us(10));
        metrics.shard(1).record(Method::PutStart, Protocol::Native, true, us(11));
        metrics.shard(3).record(Method::PutStart, Protocol::Native, false, Duration::from_secs(9));
        metrics.shard(0).record(Method::PutStart, Protocol::Grpc, false, us(1));
        let sums = metrics.call(Method::PutStart, Protocol::Native);
        assert_eq!((sums.calls, sums.failures), (3, 1));
        assert_eq!((sums.buckets[0], sums.buckets[1], sums.buckets[17]), (1, 1, 1));
        assert!((sums.seconds - 9.000_021).abs() < 1e-9);
    }

    #[test]
    fn misrouted_pings_are_counted_by_protocol() {
        let metrics = RpcMetrics::new(2);
        metrics.shard(0).record_misrouted_ping(Protocol::Native);
        metrics.shard(1).record_misrouted_ping(Protocol::Native);
        assert_eq!(metrics.misrouted_pings(Protocol::Native), 2);
        assert_eq!(metrics.misrouted_pings(Protocol::Grpc), 0);
    }

    #[test]
    fn a_batch_fails_only_as_a_whole() {
        let metrics = RpcMetrics::new(1);
        for (items, failed) in [(4, 0), (4, 1), (4, 4), (0, 0)] {
            metrics.shard(0).record_batch(
                Method::BatchPutStart,
                Protocol::Native,
                items,
                failed,
                Duration::ZERO,
            );
        }
        let sums = metrics.call(Method::BatchPutStart, Protocol::Native);
        assert_eq!(
            (sums.calls, sums.failures, sums.partial, sums.items, sums.failed_items),
            (4, 1, 1, 12, 5)
        );
    }
}
