//! What `/metrics` and `/metrics/summary` say, rendered on the control thread from atomics: no shard lock is taken.

mod catalogue;
mod families;
mod rpc;
mod store;
mod summary;
mod wire;

pub use catalogue::{MetricKind, MetricSpec, markdown};
pub use rpc::{Protocol, RpcMetrics, RpcShard};
pub use wire::{PerGeneration, WireMetrics};

use super::{RoleInfo, state::Readiness};
use crate::{
    clock::{Clock, Instant},
    core::{CoreStats, HoldStats},
    fault::Faults,
    lock::Mutex,
    permit::ServingPermit,
    rpc::native::generation::Method,
};
use families::Families;
use prometheus::{Registry, TextEncoder, proto::MetricFamily};
use std::{fmt, sync::Arc};

/// The figures of the store; must take no shard lock.
pub type StoreFigures = Arc<dyn Fn() -> CoreStats + Send + Sync>;

/// Everything that is exposed.
pub struct Metrics {
    rpc: RpcMetrics,
    wire: WireMetrics,
    store: Mutex<Option<StoreFigures>>,
    registry: Registry,
    summed: Mutex<summary::Before>,
    readiness: Arc<Readiness>,
    role: Arc<RoleInfo>,
    permit: Arc<ServingPermit>,
    clock: Arc<dyn Clock>,
    faults: Arc<Faults>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// With a shard of call counters for each of `threads`.
    pub fn new(
        threads: usize,
        readiness: Arc<Readiness>,
        role: Arc<RoleInfo>,
        permit: Arc<ServingPermit>,
        clock: Arc<dyn Clock>,
        faults: Arc<Faults>,
    ) -> Metrics {
        let store = Mutex::new(None);
        Metrics {
            rpc: RpcMetrics::new(threads),
            wire: WireMetrics::new(),
            store,
            registry: Registry::new(),
            summed: Mutex::default(),
            readiness,
            role,
            permit,
            clock,
            faults,
        }
    }

    /// Counters of calls.
    pub fn rpc(&self) -> &RpcMetrics {
        &self.rpc
    }

    /// What is known of native clients' generations.
    pub fn wire(&self) -> &WireMetrics {
        &self.wire
    }

    /// For metrics of other parts; what they register is exposed as it is and named in the catalogue.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Where the figures of the store come from; None on a standby, which has none.
    pub fn set_store(&self, figures: Option<StoreFigures>) {
        *self.store.lock() = figures;
    }

    fn store_stats(&self) -> Option<CoreStats> {
        let figures = self.store.lock().clone()?;
        Some(figures())
    }

    /// The Prometheus text format 0.0.4.
    pub(super) fn render(&self) -> String {
        // Encoding fails only for a family without a sample, and none is opened without one.
        TextEncoder::new().encode_to_string(&self.gather()).unwrap_or_default()
    }

    /// Every family, by name.
    fn gather(&self) -> Vec<MetricFamily> {
        let mut families = Families::default();
        self.process(&mut families);
        self.probe(&mut families);
        self.calls(&mut families);
        self.wire.collect(&mut families);
        self.objects(&mut families);
        if let Some(stats) = self.store_stats() {
            store::collect(&stats, &mut families);
            store::holds(&HoldStats::of_process(), &mut families);
        }
        for (name, ..) in catalogue::ABSENT {
            families.plain(name, 0);
        }
        let mut all = families.into_vec();
        all.extend(self.registry.gather());
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    fn process(&self, families: &mut Families) {
        families.number("mooncake_master_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        let state = self.role.state();
        families.number("mooncake_master_role", &[("role", state.role()), ("ha_state", state.name())], 1.0);
        families.plain("mooncake_master_epoch", self.permit.epoch());
        families.plain("mooncake_master_serving_permit", u64::from(self.permit.held()));
        let until = self.permit.until();
        if until < Instant::MAX {
            let left = until.saturating_since(self.clock.now()).as_secs_f64();
            families.number("mooncake_master_serving_permit_remaining_seconds", &[], left);
        }
        families.plain("mooncake_master_fault_injection_enabled", u64::from(self.faults.enabled()));
        families.plain("ha_state_transitions_total", self.role.transitions());
        let now = self.clock.now().as_millis();
        for (thread, tick) in self.readiness.ticks().into_iter().enumerate() {
            let age = now.saturating_sub(tick) as f64 / 1000.0;
            let thread = thread.to_string();
            families.number("mooncake_master_data_thread_tick_age_seconds", &[("thread", &thread)], age);
        }
    }

    fn probe(&self, families: &mut Families) {
        let readiness = &self.readiness;
        if readiness.probe_enabled() && readiness.service_available() {
            families.plain("mooncake_master_rpc_responsive", u64::from(readiness.probe_ok()));
            families.plain("mooncake_master_rpc_probe_latency_ms", readiness.probe_latency_ms());
            families.plain("mooncake_master_rpc_probe_failures_total", readiness.probe_failures());
        }
    }

    /// Pings that the main server refused since the start (C2).
    pub(super) fn heartbeat_routing_mismatches(&self) -> u64 {
        Protocol::ALL.into_iter().map(|protocol| self.rpc.misrouted_pings(protocol)).sum()
    }

    fn calls(&self, families: &mut Families) {
        let mut ops = std::collections::BTreeMap::<&str, [u64; 2]>::new();
        let mut batches = std::collections::BTreeMap::<&str, [u64; 5]>::new();
        for &method in Method::ALL {
            for protocol in Protocol::ALL {
                let sums = self.rpc.call(method, protocol);
                if let Some(op) = rpc::op(method) {
                    let pair = ops.entry(op).or_default();
                    pair[0] += sums.calls;
                    pair[1] += sums.failures;
                }
                if let Some(op) = rpc::batch(method) {
                    let family = batches.entry(op).or_default();
                    let new = [sums.calls, sums.failures, sums.partial, sums.items, sums.failed_items];
                    family.iter_mut().zip(new).for_each(|(sum, n)| *sum += n);
                }
                if sums.calls == 0 {
                    continue;
                }
                let labels = [("rpc", method.name()), ("protocol", protocol.label())];
                let bounds = rpc::LATENCY_US.iter().map(|us| *us as f64 / 1e6);
                let name = "mooncake_master_rpc_latency_seconds";
                families.histogram(name, &labels, bounds, &sums.buckets, sums.seconds);
                families.number("mooncake_master_rpc_failures_total", &labels, sums.failures as f64);
            }
        }
        for protocol in Protocol::ALL {
            let (received, sent, in_flight) = self.rpc.traffic(protocol);
            let labels = [("protocol", protocol.label())];
            families.number("mooncake_master_rpc_received_bytes_total", &labels, received as f64);
            families.number("mooncake_master_rpc_sent_bytes_total", &labels, sent as f64);
            families.number("mooncake_master_rpc_in_flight", &labels, in_flight as f64);
        }
        for protocol in Protocol::ALL {
            let name = "mooncake_master_heartbeat_routing_mismatches_total";
            families.number(
                name,
                &[("protocol", protocol.label())],
                self.rpc.misrouted_pings(protocol) as f64,
            );
        }
        for (op, [requests, failures]) in ops {
            families.plain(&format!("master_{op}_requests_total"), requests);
            families.plain(&format!("master_{op}_failures_total"), failures);
        }
        for (op, sums) in batches {
            let names = ["requests", "failures", "partial_successes", "items", "failed_items"];
            for (what, sum) in names.into_iter().zip(sums) {
                families.plain(&format!("master_batch_{op}_{what}_total"), sum);
            }
        }
    }

    fn objects(&self, families: &mut Families) {
        let objects = self.rpc.objects();
        families.plain("total_get_nums_", objects.gets);
        families.plain("valid_get_nums_", objects.valid_gets);
        // The sums of several threads are not of one moment.
        families.plain("mem_cache_hit_nums_", objects.valid_gets.saturating_sub(objects.disk_hits));
        families.plain("mem_cache_hit_bytes_total", objects.hit_bytes.saturating_sub(objects.disk_hit_bytes));
        families.plain("file_cache_hit_nums_", objects.disk_hits);
        families.plain("file_cache_hit_bytes_total", objects.disk_hit_bytes);
        let bounds = rpc::VALUE_SIZE.iter().map(|bound| *bound as f64);
        let sum = objects.value_bytes as f64;
        families.histogram("master_value_size_bytes", &[], bounds, &objects.value_buckets, sum);
    }

    /// One line for people, with the rates since the line before.
    pub(super) fn summary(&self) -> String {
        let state = self.role.state();
        let process = summary::Process {
            role: state.role(),
            state: state.name(),
            service_ready: self.readiness.service_available(),
            ready: self.readiness.is_ready(),
            epoch: self.permit.epoch(),
        };
        let figures = summary::Figures::of(&self.gather());
        summary::line(&process, figures, self.clock.now(), &mut self.summed.lock())
    }
}
