//! The control thread: admin HTTP, the self-probe, and whatever else must go on when the data plane does not.
//!
//! It is one OS thread with a current-thread runtime. Nothing on it takes a shard lock or runs a clean-up, so
//! `/health`, `/readyz` and the probe answer while every data thread is stuck.

mod clients;
mod faults;
mod http;
mod metadata;
mod metrics;
mod probe;
mod query;
mod routes;
mod state;
mod store;

#[cfg(test)]
mod tests;

pub use metadata::{MetadataEntries, MetadataServer, RemoteMetadata};
pub use metrics::{
    MetricKind, MetricSpec, Metrics, PerGeneration, Protocol, RpcMetrics, RpcShard, StoreFigures,
    WireMetrics, markdown as metrics_markdown,
};
pub use probe::{ProbeFailure, ProbePeers, ProbeTarget};
pub use state::Readiness;
pub use store::StoreAccess;

pub use crate::ha::role::{HaState, Leader, RoleInfo};

use crate::{
    clock::Clock,
    config::{AdminConfig, Effective, ProbeConfig},
    core::Core,
    fault::Faults,
    lock::Mutex,
    permit::ServingPermit,
    rpc::Generations,
};
use bytes::Bytes;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::{runtime::Handle, time::Instant};
use tokio_util::sync::CancellationToken;

/// A rendered `/metrics` is served again for this long, so that many readers cost no more than one.
const RENDERED_FOR: Duration = Duration::from_millis(250);
/// How often the summary is logged.
const SUMMARY_PERIOD: Duration = Duration::from_secs(10);

/// What the control thread shows, and what other threads tell it.
#[derive(Debug)]
pub struct AdminState {
    /// `/readyz`.
    pub readiness: Arc<Readiness>,
    /// `/role`, `/leader`, `/ha_status`.
    pub role: Arc<RoleInfo>,
    /// `/metrics`.
    pub metrics: Arc<Metrics>,
    /// `/fault`.
    pub faults: Arc<Faults>,
    /// `/query_key`, `/get_all_keys` and the like.
    pub store: StoreAccess,
    /// Which connections are the probe's; for the acceptor.
    pub probe_peers: Arc<ProbePeers>,
    client_pages: clients::ClientPages,
    config: serde_json::Value,
    clock: Arc<dyn Clock>,
    rendered: Mutex<Option<(Instant, Bytes)>>,
}

impl AdminState {
    /// Not serving, role unknown. `threads`: how many threads count calls.
    pub fn new(
        effective: &Effective,
        probe: &ProbeConfig,
        threads: usize,
        permit: Arc<ServingPermit>,
        clock: Arc<dyn Clock>,
    ) -> Arc<AdminState> {
        let readiness = Arc::new(Readiness::new(probe.enabled, permit.clone()));
        let role = Arc::new(RoleInfo::default());
        let faults = Faults::new(clock.clone());
        let metrics =
            Metrics::new(threads, readiness.clone(), role.clone(), permit, clock.clone(), faults.clone());
        let metrics = Arc::new(metrics);
        Arc::new(AdminState {
            readiness,
            role,
            metrics,
            faults,
            store: StoreAccess::default(),
            probe_peers: Arc::default(),
            client_pages: clients::ClientPages::default(),
            config: serde_json::json!({
                "effective": effective.to_json(),
                "sources": effective.sources(),
            }),
            clock,
            rendered: Mutex::new(None),
        })
    }

    /// Whose clients `/clients` shows from now on.
    pub fn show_clients(&self, core: Arc<Core>, generations: Arc<Generations>) {
        self.client_pages.open(core, generations);
    }

    /// Nothing serves any more, so there are no clients to be shown.
    pub fn hide_clients(&self) {
        self.client_pages.close();
    }

    fn rendered(&self) -> Bytes {
        let mut rendered = self.rendered.lock();
        match &*rendered {
            Some((at, text)) if at.elapsed() < RENDERED_FOR => text.clone(),
            _ => {
                let text = Bytes::from(self.metrics.render());
                *rendered = Some((Instant::now(), text.clone()));
                text
            }
        }
    }
}

/// The running control thread; it ends when this is dropped.
#[derive(Debug)]
pub struct ControlThread {
    address: SocketAddr,
    handle: Handle,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ControlThread {
    /// Binds the admin port and starts. An error names the address that could not be bound.
    pub fn start(
        admin: &AdminConfig,
        probe: &ProbeConfig,
        state: Arc<AdminState>,
    ) -> io::Result<ControlThread> {
        Self::start_with_limits(admin, probe, state, http::Limits::default())
    }

    fn start_with_limits(
        admin: &AdminConfig,
        probe: &ProbeConfig,
        state: Arc<AdminState>,
        limits: http::Limits,
    ) -> io::Result<ControlThread> {
        let wanted = SocketAddr::new(admin.host, admin.port);
        let listener = TcpListener::bind(wanted).map_err(|e| {
            io::Error::new(e.kind(), format!("admin HTTP: {wanted} (metrics_host, metrics_port): {e}"))
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let (probe, report) = (probe.clone(), admin.report_metrics);
        let (started, start_result) = mpsc::channel();
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener);
                let failure = listener.map(|listener| {
                    tokio::spawn(http::serve(listener, routes::router(state.clone()), limits));
                });
                let failed = failure.is_err();
                // The receiver waits for exactly this message.
                let _ = started.send(failure);
                if failed {
                    return;
                }
                if probe.enabled {
                    tokio::spawn(probe::run(state.clone(), probe));
                }
                if report {
                    tokio::spawn(report_summary(state.metrics.clone()));
                }
                stopped.cancelled().await;
            });
        })?;
        start_result.recv().map_err(|_| io::Error::other("the control thread ended at its start"))??;
        Ok(ControlThread { address, handle, stop, thread: Some(thread) })
    }

    /// Where the admin HTTP server is bound.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Runs further tasks on the control thread. They must not block and must take no shard lock.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn report_summary(metrics: Arc<Metrics>) {
    let mut period = tokio::time::interval_at(Instant::now() + SUMMARY_PERIOD, SUMMARY_PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        period.tick().await;
        tracing::info!("{}", metrics.summary());
    }
}
