//! What is counted of each call, without contention: every data thread has counters of its own.

use super::native::generation::Method;
use crate::{
    admin::{Metrics, Protocol},
    error::ErrorCode,
    lock::Mutex,
    types::{ClientId, ReplicaListRef},
};
use hashbrown::HashSet;
use std::{borrow::Borrow, cell::Cell, sync::Arc, time::Duration};

/// Clients that the log names at most.
const MISROUTED_NAMED: usize = 4096;

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread counts as the data thread of that index from now on.
pub(super) fn enter(index: usize) {
    THREAD.set(index);
}

/// What one call amounted to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// A single call: it was refused.
    pub(super) failed: bool,
    /// A batch: its items, and those among them that were refused.
    pub(super) items: Option<(u64, u64)>,
    /// Keys that were asked for by a Get.
    pub(super) gets: u64,
    /// Those with a readable replica.
    pub(super) found: u64,
    /// Bytes of these.
    pub(super) found_bytes: u64,
    /// Those among the found that lie only on disk.
    pub(super) on_disk: u64,
    /// Bytes of these.
    pub(super) on_disk_bytes: u64,
    /// The size of a value whose put began.
    pub(super) value_bytes: Option<u64>,
}

impl Tally {
    pub(super) fn batch<T>(&mut self, results: &[Result<T, ErrorCode>]) {
        let failed = results.iter().filter(|result| result.is_err()).count();
        self.items = Some((results.len() as u64, failed as u64));
    }

    /// One key's list, asked for alone or in a batch.
    pub(super) fn get(&mut self, list: &Result<ReplicaListRef<'_>, ErrorCode>) {
        self.gets += 1;
        match (list, &mut self.items) {
            (Ok(list), _) => {
                let size = list.replicas.value_size();
                self.found += 1;
                self.found_bytes += size;
                if list.replicas.memory.is_empty() {
                    self.on_disk += 1;
                    self.on_disk_bytes += size;
                }
            }
            (Err(_), Some((_, failed))) => *failed += 1,
            (Err(_), None) => self.failed = true,
        }
    }
}

/// A call under way, which has the counters or borrows them.
pub(super) struct InFlight<M: Borrow<Metrics>> {
    metrics: M,
    thread: usize,
    protocol: Protocol,
}

impl<M: Borrow<Metrics>> InFlight<M> {
    fn new(metrics: M, protocol: Protocol) -> InFlight<M> {
        let thread = THREAD.get();
        metrics.borrow().rpc().shard(thread).record_in_flight(protocol, 1);
        InFlight { metrics, thread, protocol }
    }
}

impl<M: Borrow<Metrics>> Drop for InFlight<M> {
    fn drop(&mut self) {
        self.metrics.borrow().rpc().shard(self.thread).record_in_flight(self.protocol, -1);
    }
}

/// Where calls are counted.
pub(super) struct Telemetry {
    metrics: Arc<Metrics>,
    /// Clients that were told in the log that their heartbeats come to the wrong port, each once.
    misrouted: Mutex<HashSet<ClientId>>,
}

impl Telemetry {
    pub(super) fn new(metrics: Arc<Metrics>) -> Telemetry {
        Telemetry { metrics, misrouted: Mutex::default() }
    }

    /// Bytes that came in.
    pub(super) fn received(&self, protocol: Protocol, bytes: usize) {
        self.metrics.rpc().shard(THREAD.get()).record_received(protocol, bytes as u64);
    }

    /// Bytes that went out.
    pub(super) fn sent(&self, protocol: Protocol, bytes: usize) {
        self.metrics.rpc().shard(THREAD.get()).record_sent(protocol, bytes as u64);
    }

    /// Counts a call as under way until the returned value is dropped.
    pub(super) fn begin(&self, protocol: Protocol) -> InFlight<&Metrics> {
        InFlight::new(&self.metrics, protocol)
    }

    /// The same for a call that does not borrow the service.
    pub(super) fn begin_detached(&self, protocol: Protocol) -> InFlight<Arc<Metrics>> {
        InFlight::new(self.metrics.clone(), protocol)
    }

    /// A Ping that was refused because it came to the main server (C2).
    pub(super) fn misrouted_ping(&self, protocol: Protocol, client: ClientId, port: u32) {
        self.metrics.rpc().shard(THREAD.get()).record_misrouted_ping(protocol);
        let is_new = {
            let mut misrouted = self.misrouted.lock();
            misrouted.len() < MISROUTED_NAMED && misrouted.insert(client)
        };
        if is_new {
            tracing::warn!(
                %client,
                protocol = protocol.label(),
                "HEARTBEAT_ROUTING_MISMATCH: this client sends its heartbeats to the main port, which does not take them \
                 (heartbeat_keep_on_main is false): it will expire unless it uses port {port}"
            );
        }
    }

    pub(super) fn count(&self, method: Method, protocol: Protocol, tally: &Tally, took: Duration) {
        let shard = self.metrics.rpc().shard(THREAD.get());
        match tally.items {
            Some((items, failed)) => shard.record_batch(method, protocol, items, failed, took),
            None => shard.record(method, protocol, tally.failed, took),
        }
        if tally.gets > 0 {
            shard.record_gets(tally.gets, tally.found, tally.found_bytes);
            if tally.on_disk > 0 {
                shard.record_disk_hits(tally.on_disk, tally.on_disk_bytes);
            }
        }
        if let Some(bytes) = tally.value_bytes {
            shard.record_value_size(bytes);
        }
    }
}
