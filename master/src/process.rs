//! The process: from a configuration to a serving master, and to its end.

use crate::{
    admin::{AdminState, ControlThread, HaState, Leader},
    clock::{BootClock, Clock},
    config::Loaded,
    ha::connections::Connections,
    logging,
    permit::ServingPermit,
    serving::{Serving, Shared},
};
use anyhow::Context;
use std::sync::Arc;

/// Runs a master until it is told to stop.
pub fn run(loaded: Loaded) -> anyhow::Result<()> {
    let Loaded { config, effective, warnings } = loaded;
    logging::init(&config.log);
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    tracing::info!(config = %effective.to_json(), "mooncake-master {} starts", env!("CARGO_PKG_VERSION"));
    let clock: Arc<dyn Clock> = Arc::new(BootClock);
    let permit = Arc::new(ServingPermit::standalone(clock.clone()));
    let threads = config.rpc.threads;
    let admin = AdminState::new(&effective, &config.probe, threads, permit.clone(), clock.clone());
    if config.enable_fault_injection {
        admin.faults.enable();
    }
    let control = ControlThread::start(&config.admin, &config.probe, admin.clone())?;
    let shared = Shared { config: Arc::new(config), admin, permit, connections: Connections::new(), clock };
    let remount_hold = shared.config.core.remount_hold;
    let serving = Serving::open(&shared, &control, remount_hold)?;
    shared.admin.role.set_leader(Some(Leader { address: shared.config.rpc.advertised.clone(), epoch: 0 }));
    shared.admin.role.set_state(HaState::Serving);
    tracing::info!(address = %serving.rpc_address(), "serving");
    wait_for_signal().context("waiting for signals")?;
    shared.admin.readiness.stop_serving();
    drop(serving);
    Ok(())
}

fn wait_for_signal() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        Ok(())
    })
}
