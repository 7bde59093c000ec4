//! The process: from a configuration to a serving master, and to its end.

use crate::{
    admin::{AdminState, ControlThread, MetadataEntries, MetadataServer},
    clock::{BootClock, Clock},
    config::Loaded,
    ha::{self, Control, HaOptions, Parts, Promotion, connections::Connections, signals},
    logging,
    permit::ServingPermit,
    serving::{Serving, Shared},
};
use anyhow::Context;
use std::{convert::Infallible, sync::Arc, time::Duration};

/// How often the first probe after a promotion is looked for.
const PROBE_LOOK: Duration = Duration::from_millis(50);

/// Runs a master. Returns only if it cannot start: its end comes from the lease thread, which alone handles SIGTERM.
pub fn run(loaded: Loaded) -> anyhow::Result<Infallible> {
    // Before any other thread exists, so that every one of them has the signals blocked.
    signals::block().context("blocking signals")?;
    let Loaded { config, effective, warnings } = loaded;
    logging::init(&config.log);
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    tracing::info!(config = %effective.to_json(), "mooncake-master {} starts", env!("CARGO_PKG_VERSION"));

    let clock: Arc<dyn Clock> = Arc::new(BootClock);
    let permit = Arc::new(ServingPermit::withheld(clock.clone()));
    let connections = Connections::new();
    let admin = AdminState::new(&effective, &config.probe, config.rpc.threads, permit.clone(), clock.clone());
    if config.enable_fault_injection {
        admin.faults.enable();
    }
    // The rest of the process: dropped, the server would stop.
    let metadata = config.metadata.as_ref().map(|metadata| {
        let entries = MetadataEntries::new(&metadata.cluster, clock.clone());
        MetadataServer::start(metadata, entries.clone()).map(|server| (entries, server))
    });
    let (entries, _metadata_server) = metadata.transpose()?.unzip();
    let metadata = entries.filter(|_| config.metadata.as_ref().is_some_and(|metadata| metadata.clean_up));
    let control = ControlThread::start(&config.admin, &config.probe, admin.clone())?;
    let parts = Parts {
        permit: permit.clone(),
        clock: clock.clone(),
        connections: connections.clone(),
        role: admin.role.clone(),
    };
    let mut lease = ha::start(HaOptions::from_config(&config)?, parts)?;
    let shared = Shared { config: Arc::new(config), admin, permit, connections, clock, metadata };

    let promotion = lease.promotions.blocking_recv().context("the lease thread ended")?;
    let serving = match promote(&shared, &control, &promotion, &lease.control) {
        Ok(serving) => serving,
        Err(error) if shared.config.ha.is_some() => {
            tracing::error!(%error, epoch = promotion.epoch, "cannot serve although the lease was won; giving it back");
            lease.control.failed();
            park()
        }
        Err(error) => return Err(error.into()),
    };
    tracing::info!(address = %serving.rpc_address(), epoch = promotion.epoch, "serving");
    if lease.shutdown.blocking_recv().is_some() {
        // The ports first; its background finishes what is being offboarded.
        drop(serving);
        lease.control.closed();
    }
    park()
}

/// Opens what a serving master has. Nothing is left of any earlier leader's index: every promotion is an empty one, so
/// memory that clients re-mount is held back for as long as somebody may still read or write there (design §7).
fn promote(
    shared: &Shared,
    thread: &ControlThread,
    promotion: &Promotion,
    control: &Control,
) -> std::io::Result<Serving> {
    let own = shared.config.core.remount_hold;
    let hold = promotion.previous_read_lease_ttl.map_or(own, |ttl| own.max(ttl));
    let serving = Serving::open(shared, thread, hold)?;
    control.promoted();
    let (readiness, control) = (shared.admin.readiness.clone(), control.clone());
    thread.handle().spawn(async move {
        while !readiness.is_ready() {
            tokio::time::sleep(PROBE_LOOK).await;
        }
        control.first_probe_ok();
    });
    Ok(serving)
}

/// The main thread has nothing more to do; what it owns stays.
fn park() -> ! {
    loop {
        std::thread::park();
    }
}
