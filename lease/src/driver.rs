//! Runs an [`Elector`](crate::Elector) against a real API server.
//!
//! Meant for a current-thread runtime on a thread of its own. One request is under way at a time, each with a deadline of
//! one retry period; after one that timed out or failed below HTTP its connections are not used again. The watch has its
//! own connection, and takes up where it was after an interruption, so that a deletion is not missed.

mod link;
mod watch;

use crate::{
    elector::{Action, Answer, Command, Elector, ElectorConfig, Event, Input, RequestKind},
    time::{Clock, Instant},
};
use futures::future::BoxFuture;
use link::Link;
use std::time::Duration;
use tokio::sync::mpsc;

/// What a driver needs.
#[derive(Debug, Clone)]
pub struct DriverConfig {
    /// The candidate.
    pub elector: ElectorConfig,
    /// How to reach the API server; see [`cluster_config`].
    pub kube: kube::Config,
}

/// Why a driver could not start.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The credentials or the address of the API server are not usable.
    #[error("no client for the API server: {0}")]
    Client(#[from] kube::Error),
    /// Neither a pod's service account nor a kubeconfig was found.
    #[error("no access to an API server: not in a pod, and no kubeconfig: {0}")]
    NoConfig(#[from] kube::config::InferConfigError),
}

/// Access to the API server: the pod's service account, else `KUBECONFIG`, else `~/.kube/config`.
pub async fn cluster_config() -> Result<kube::Config, DriverError> {
    // By address, not by name: the lease must not depend on a resolver.
    if let Ok(config) = kube::Config::incluster_env() {
        return Ok(config);
    }
    Ok(kube::Config::infer().await?)
}

/// Nothing is due: look again after this long anyway.
const IDLE: Duration = Duration::from_secs(1);

/// Takes part until the lease is lost ([`Event::Lost`]), a resignation is carried out ([`Event::Released`]) or the sender
/// of the commands is gone. Events are handed over as they happen, on this thread; the handler must not wait.
///
/// # Errors
/// Only before it starts: when no client can be made of `config.kube`.
pub async fn run(
    config: DriverConfig,
    clock: &dyn Clock,
    mut commands: mpsc::UnboundedReceiver<Command>,
    mut on_event: impl FnMut(Event),
) -> Result<(), DriverError> {
    let deadline = config.elector.timings.retry_period();
    let mut link = Link::new(&config)?;
    let mut elector = Elector::new(config.elector.clone());
    let (watch_sender, mut watch_events) = mpsc::unbounded_channel();
    let mut watch: Option<watch::Watch> = None;
    let mut under_way: Option<(u64, BoxFuture<'static, link::Outcome>)> = None;
    let mut input = Input::Tick;
    loop {
        // Permits count from here, and here is before the request is sent.
        for action in elector.handle(clock.moment(), input) {
            match action {
                Action::Emit(event) => on_event(event),
                Action::Send(request) => {
                    let what = match request.kind {
                        RequestKind::Read => link.read(),
                        RequestKind::Replace(body) => link.replace(&body),
                        RequestKind::Create(body) => link.create(&body),
                    };
                    under_way = Some((request.id, what));
                }
            }
        }
        if elector.is_over() {
            return Ok(());
        }
        let wait = elector.wake_at().map_or(IDLE, |at| until(clock, at));
        input = tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(command) => Input::Command(command),
                None => return Ok(()),
            },
            (id, outcome) = answer(&mut under_way) => {
                under_way = None;
                if outcome.fresh_connection {
                    link.reconnect();
                }
                if let Some(version) = outcome.list_version
                    && watch.is_none()
                {
                    watch = Some(watch::Watch::start(&config, version, deadline, watch_sender.clone()));
                }
                Input::Answer { id, answer: outcome.answer }
            }
            Some(event) = watch_events.recv() => {
                if matches!(event, crate::WatchInput::Broken) {
                    watch = None;
                }
                Input::Watch(event)
            }
            () = tokio::time::sleep(wait) => Input::Tick,
        };
    }
}

fn until(clock: &dyn Clock, at: Instant) -> Duration {
    // The timer has a resolution of a millisecond and must not fire before the time has come.
    at.saturating_since(clock.now()).min(IDLE) + Duration::from_millis(1)
}

async fn answer(under_way: &mut Option<(u64, BoxFuture<'static, link::Outcome>)>) -> (u64, link::Outcome) {
    match under_way {
        Some((id, request)) => (*id, request.await),
        None => std::future::pending().await,
    }
}

impl link::Outcome {
    fn of(answer: Answer) -> link::Outcome {
        link::Outcome { answer, list_version: None, fresh_connection: false }
    }
}
