//! Watching, and one pass over a resource whenever something about it has changed.

mod watches;

pub use watches::run;

use crate::{
    apply::{Outcome, apply},
    build::{Desired, build},
    clients,
    decide::{Action, Observed, decide},
    events::{events, recovered},
    health::{Target, Watchdog},
    memory::{Key, Memory},
    metrics::Metrics,
    nodes::Nodes,
    observe::{in_time, observe},
    probe::Probe,
    status,
};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::events::{Recorder, Reporter},
};
use mooncake_crds::{GoDuration, HealthCheck, MooncakeMaster, MooncakeMasterStatus, names};
use parking_lot::Mutex;
use rand::Rng;
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::Instant};

/// Longest wait between two tries while the API server refuses.
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);
/// Longest wait for an Event to be taken.
const EVENT_DEADLINE: Duration = Duration::from_secs(2);

/// What a pass needs.
#[derive(Clone)]
pub struct Context {
    /// The API server.
    pub client: Client,
    /// Waiting times.
    pub memory: Arc<Memory>,
    /// Asks the masters.
    pub probe: Probe,
    /// Calls each active.
    pub watchdog: Arc<Watchdog>,
    /// Whether nodes may be read.
    pub nodes: Arc<Nodes>,
    /// Wakes a pass over a resource.
    wake: mpsc::UnboundedSender<Key>,
    /// Who is woken: [`run`], once.
    woken: Arc<Mutex<Option<mpsc::UnboundedReceiver<Key>>>>,
    /// Counts.
    pub metrics: Metrics,
    /// Writes Events.
    pub recorder: Recorder,
    /// Whether this process may write: it leads.
    pub may_write: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Context {
    /// A context for a process that may write whenever `may_write` says so.
    pub fn new(
        client: Client,
        identity: String,
        metrics: Metrics,
        may_write: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Context {
        let reporter = Reporter { controller: names::FIELD_MANAGER.to_owned(), instance: Some(identity) };
        let recorder = Recorder::new(client.clone(), reporter);
        let memory: Arc<Memory> = Arc::default();
        let (wake, woken) = mpsc::unbounded_channel();
        Context {
            client,
            watchdog: Arc::new(Watchdog::new(Arc::clone(&memory), metrics.clone(), wake.clone())),
            memory,
            probe: Probe::default(),
            nodes: Arc::default(),
            wake,
            woken: Arc::new(Mutex::new(Some(woken))),
            metrics,
            recorder,
            may_write,
        }
    }
}

/// What a pass came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Writes to the API server, the status included.
    pub writes: usize,
    /// When to look again if nothing happens; `None`: not at all.
    pub again: Option<Duration>,
}

/// One pass over a resource. All that goes wrong is on status, in the log and in the time to the next pass.
pub async fn pass(context: &Context, namespace: &str, name: &str) -> Pass {
    let key: Key = (namespace.to_owned(), name.to_owned());
    let timer = context.metrics.pass_seconds.start_timer();
    let (result, pass) = match try_pass(context, &key).await {
        Ok((pass, None)) => {
            context.memory.set_error(&key, None);
            ("ok", pass)
        }
        Ok((pass, Some(Trouble::Stale))) => {
            ("stale", Pass { again: Some(Duration::from_millis(200)), ..pass })
        }
        Ok((pass, Some(Trouble::Refused(error)))) => {
            tracing::warn!(namespace, name, error, "the API server refused a change");
            ("error", Pass { again: Some(backoff(context.memory.set_error(&key, Some(error)))), ..pass })
        }
        Err(error) => {
            let error = error.to_string();
            tracing::warn!(namespace, name, error, "the pass failed");
            ("error", Pass { writes: 0, again: Some(backoff(context.memory.set_error(&key, Some(error)))) })
        }
    };
    timer.observe_duration();
    context.metrics.passes.with_label_values(&[result]).inc();
    pass
}

/// What ended a pass early.
enum Trouble {
    /// Something changed under it.
    Stale,
    /// The API server said no.
    Refused(String),
}

/// Doubling from one second, with jitter.
fn backoff(failures: u32) -> Duration {
    let longest = LONGEST_BACKOFF.min(Duration::from_secs(1 << failures.min(6)));
    longest.mul_f64(rand::rng().random_range(0.5..1.0))
}

async fn try_pass(context: &Context, key: &Key) -> Result<(Pass, Option<Trouble>), kube::Error> {
    let (namespace, name) = key;
    let api: Api<MooncakeMaster> = Api::namespaced(context.client.clone(), namespace);
    let Some(master) = in_time(api.get_opt(name)).await? else {
        context.watchdog.follow(key, None);
        context.memory.forget(key);
        return Ok((Pass { writes: 0, again: None }, None));
    };
    if master.metadata.deletion_timestamp.is_some() {
        context.watchdog.follow(key, None);
        return Ok((Pass { writes: 0, again: None }, None));
    }
    let desired = build(&master, context.nodes.readable(&context.client).await?);
    let (client, memory) = (&context.client, &context.memory);
    let observed = observe(client, &master, &desired, memory, &context.probe, &context.nodes).await;
    let mut seen = match observed {
        Ok(seen) => seen,
        Err(error) => {
            let error = error.to_string();
            let report = status::unobservable(&master, &error, Timestamp::now());
            context.metrics.report_labelled(namespace, name, None);
            let written = write_status(context, &master, &report).await.unwrap_or(false);
            let pass = Pass { writes: usize::from(written), again: None };
            return Ok((pass, Some(Trouble::Refused(error))));
        }
    };
    context.watchdog.follow(key, target(&master, &seen));
    let labelled = seen.pods.iter().filter(|pod| pod.labelled).count();
    context.metrics.report_labelled(namespace, name, Some(labelled));
    let contested = seen.objects.iter().filter(|object| object.contest.is_some()).count();
    context.metrics.report_contested(namespace, name, contested);
    let decision = decide(&seen);
    let (mut done, mut trouble) = (Vec::new(), None);
    for action in &decision.actions {
        if !(context.may_write)() {
            trouble = Some(Trouble::Stale);
            break;
        }
        tracing::info!(namespace, name, ?action, "acting");
        context.metrics.writes.with_label_values(&[kind_of_write(action)]).inc();
        match apply(&context.client, &master, &desired, &seen, action).await {
            Ok(Outcome::Done) => {
                remember(memory, key, &desired, action);
                done.push(action.clone());
            }
            Ok(Outcome::Stale) => {
                trouble = Some(Trouble::Stale);
                break;
            }
            Err(error) => {
                trouble = Some(Trouble::Refused(format!("{}: {error}", kind_of_write(action))));
                break;
            }
        }
    }
    seen.last_error = match &trouble {
        Some(Trouble::Refused(error)) => Some(error.clone()),
        // What was refused last time and went well now is over.
        None => None,
        Some(Trouble::Stale) => seen.last_error,
    };
    let report = status::report(&master, &seen, &decide(&seen), Timestamp::now());
    let written = match write_status(context, &master, &report).await {
        Ok(written) => written,
        Err(kube::Error::Api(answer)) if answer.code == 404 || answer.code == 409 => {
            return Ok((Pass { writes: done.len(), again: None }, Some(Trouble::Stale)));
        }
        Err(error) => return Err(error),
    };
    let before = master.status.clone().unwrap_or_default();
    if let Some(last) = report.last_move.as_ref().filter(|_| written && report.last_move != before.last_move)
    {
        context.metrics.count_move(namespace, name, last);
    }
    let recovery = if (context.may_write)() { context.memory.take_seen(key) } else { None };
    if written || !done.is_empty() || recovery.is_some() {
        let reference = master.object_ref(&());
        let news = events(&before, &report, &done).into_iter().chain(recovery.as_ref().map(recovered));
        for event in news {
            // An Event is a courtesy: a pass does not fail for it, nor waits for long while the role moves.
            let published =
                tokio::time::timeout(EVENT_DEADLINE, context.recorder.publish(&event, &reference)).await;
            let error = match published {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", EVENT_DEADLINE.as_secs()),
            };
            tracing::warn!(namespace, name, error, reason = event.reason, "an Event was not published");
        }
    }
    // How its clients are is no change that anybody tells.
    let ask = seen.active().map_or(decision.again, |_| clients::ASK_EVERY);
    let again = decision.again.min(ask).mul_f64(rand::rng().random_range(0.9..1.1));
    Ok((Pass { writes: done.len() + usize::from(written), again: Some(again) }, trouble))
}

/// Takes note of what was done to an object, so that a fight over it is noticed.
fn remember(memory: &Memory, key: &Key, desired: &Desired, action: &Action) {
    memory.corrections(key, |all| match action {
        Action::Apply(kind) => {
            for object in desired.objects.iter().filter(|object| object.kind == *kind) {
                all.applied(object, Instant::now());
            }
        }
        Action::Remove { kind, .. } => all.removed(*kind),
        _ => {}
    });
}

/// Whom to call: the process that holds the Lease, at the address that it advertises.
fn target(master: &MooncakeMaster, seen: &Observed) -> Option<Target> {
    let (holder, active) = (seen.active_holder()?, seen.active()?);
    if !active.running || active.terminating {
        return None;
    }
    let (probe, default) = (&master.spec.failover.health_check, HealthCheck::default());
    let time = |text: &GoDuration, default: &GoDuration| text.parse().or_else(|_| default.parse()).ok();
    Some(Target {
        pod: active.id.name.clone(),
        pod_uid: holder.pod_uid.clone(),
        incarnation: holder.incarnation.clone(),
        address: holder.address.clone(),
        period: time(&probe.period, &default.period)?,
        timeout: time(&probe.timeout, &default.timeout)?,
        threshold: u32::try_from(probe.failure_threshold).unwrap_or(1).max(1),
    })
}

fn kind_of_write(action: &Action) -> &'static str {
    match action {
        Action::Apply(_) => "apply",
        Action::CreateLease { .. } => "create lease",
        Action::AdoptLease => "adopt lease",
        Action::ClearLabel(_) => "clear label",
        Action::SetLabel(_) => "set label",
        Action::DeletePod { .. } => "delete pod",
        Action::Fence { .. } => "fence",
        Action::Designate { .. } => "designate",
        Action::Remove { .. } => "remove",
    }
}

async fn write_status(
    context: &Context,
    master: &MooncakeMaster,
    report: &MooncakeMasterStatus,
) -> Result<bool, kube::Error> {
    let (namespace, name) = (master.namespace().unwrap_or_default(), master.name_any());
    context.metrics.report(&namespace, &name, report);
    if !(context.may_write)() {
        return Ok(false);
    }
    let before = master.status.clone().unwrap_or_default();
    let key = (namespace, name);
    let report =
        context.memory.clients(&key, |remembered| remembered.settle(&before, report.clone(), Instant::now()));
    let written = status::write(&context.client, master, &report).await?;
    let (namespace, name) = key;
    if written {
        context.metrics.writes.with_label_values(&["status"]).inc();
        for condition in &report.conditions {
            let before = master
                .status
                .as_ref()
                .and_then(|status| status.conditions.iter().find(|before| before.type_ == condition.type_));
            if before
                .is_none_or(|before| before.status != condition.status || before.reason != condition.reason)
            {
                let (condition, status) = (condition, &condition.status);
                tracing::info!(
                    namespace,
                    name,
                    condition = condition.type_,
                    status,
                    reason = condition.reason,
                    message = condition.message,
                    "condition"
                );
            }
        }
    }
    Ok(written)
}
