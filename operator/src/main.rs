//! The operator's process: command line, logging, election, and an orderly end.

use anyhow::Context as _;
use clap::Parser;
use kube::{Client, client::ClientBuilder};
use mooncake_lease::{
    BootClock, ElectorConfig, Identity, Timings,
    driver::DriverConfig,
    election::{Election, random_incarnation},
};
use mooncake_operator::{
    config::{Config, LogFormat},
    controller::{self, Context},
    crash::{CrashLayer, CrashPoint},
    metrics::Metrics,
    server::{self, Ready},
};
use parking_lot::Mutex;
use std::{process::ExitCode, sync::Arc, time::Duration};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Time for the passes under way when the process is told to end.
const SHUTDOWN: Duration = Duration::from_secs(8);

fn main() -> ExitCode {
    let config = Config::parse();
    match start(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the operator ends");
            eprintln!("mooncake-operator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn start(config: &Config) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log).context("--log")?;
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), namespace = config.namespace, "starting");

    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    tokio::spawn({
        let stop = stop.clone();
        async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            tracing::info!("told to end");
            stop.cancel();
        }
    });

    let metrics = Metrics::new()?;
    let ready = Ready::default();
    let listener = tokio::net::TcpListener::bind(config.http_address)
        .await
        .with_context(|| format!("--http-address: cannot listen on {}", config.http_address))?;
    let http =
        tokio::spawn(server::serve(listener, metrics.clone(), ready.clone(), stop.clone().cancelled_owned()));

    let access =
        kube::Config::infer().await.context("no access to an API server: not in a pod, and no kubeconfig")?;
    let client = client(config, &access).context("no client for the API server")?;
    let Some(election) = elect(config, access, &ready, &metrics, &stop).await? else {
        return Ok(());
    };
    let without_election = election.is_none();
    let election = Arc::new(Mutex::new(election));
    let may_write: Arc<dyn Fn() -> bool + Send + Sync> = {
        let election = Arc::clone(&election);
        Arc::new(move || without_election || election.lock().as_ref().is_some_and(Election::is_leader))
    };
    metrics.leading.set(1);
    let context = Context::new(client, config.identity.clone(), metrics, may_write);
    // Told to end before its first lists have come, the controller would wait for them for ever.
    let passes = controller::run(context, config.namespace.as_deref(), ready, stop.clone());
    let patience = async {
        stop.cancelled().await;
        tokio::time::sleep(SHUTDOWN).await;
    };
    tokio::select! {
        () = passes => {}
        () = patience => tracing::warn!("ending with passes under way"),
    }

    stop.cancel();
    _ = tokio::time::timeout(SHUTDOWN, http).await;
    let election = election.lock().take();
    if let Some(election) = election {
        // So that the next operator need not wait for the lease to run out.
        let released = tokio::task::spawn_blocking(move || election.resign(Duration::from_secs(2))).await?;
        tracing::info!(released, "the lease is given up");
    }
    Ok(())
}

/// The client of the passes; in some tests with a place at which the process ends.
fn client(config: &Config, access: &kube::Config) -> Result<Client, kube::Error> {
    let point = CrashPoint { before: config.exit_before_write, after: config.exit_after_write };
    let builder = ClientBuilder::try_from(access.clone())?;
    if !point.is_set() {
        return Ok(builder.build());
    }
    tracing::error!(
        ?point,
        "THIS PROCESS ENDS BY ITSELF AT A WRITE: it runs with a flag that is for tests only"
    );
    Ok(builder.with_layer(&CrashLayer::new(point)).build())
}

/// Waits until this process leads. `None`: it was told to end before that; `Some(None)`: there is no election.
async fn elect(
    config: &Config,
    access: kube::Config,
    ready: &Ready,
    metrics: &Metrics,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Option<Election>>> {
    if config.no_leader_election {
        return Ok(Some(None));
    }
    let timings = Timings::new(config.lease_duration, config.lease_renew_deadline, config.lease_retry_period)
        .context("--lease-duration, --lease-renew-deadline, --lease-retry-period")?;
    let elector = ElectorConfig {
        identity: Identity {
            address: config.identity.clone(),
            pod_name: config.identity.clone(),
            pod_uid: String::new(),
            incarnation: random_incarnation(),
        },
        namespace: config.lease_namespace.clone(),
        lease_name: config.lease_name.clone(),
        timings,
        read_lease_ttl: None,
        // An operator has no index that others would have to be let first for.
        empty_promotion_after: Some(config.lease_duration),
        epoch_floor: 0,
        duration_floor: Duration::ZERO,
        may_claim: true,
    };
    metrics.leading.set(0);
    let election = Election::start(
        DriverConfig { elector, kube: access },
        Arc::new(BootClock),
        // What is under way must not go on beside another operator: the process ends at once and starts anew.
        |reason| {
            tracing::error!(reason, "the election is lost");
            std::process::exit(1);
        },
    )
    .context("starting the election")?;
    // An operator that waits is as good as it can be.
    ready.set(true);
    let mut standing = election.standing();
    tokio::select! {
        () = stop.cancelled() => return Ok(None),
        led = standing.wait_for(|standing| standing.leading) => { led.context("the election has ended")?; }
    }
    tracing::info!("leading");
    ready.set(false);
    Ok(Some(Some(election)))
}
