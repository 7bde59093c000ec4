//! Watching, and one pass over a resource whenever something about it has changed.

use crate::{
    apply::{Outcome, apply},
    build::build,
    clients,
    decide::{Action, Observed, decide},
    events::{events, recovered},
    health::{Target, Watchdog},
    memory::{Key, Memory},
    metrics::Metrics,
    nodes::Nodes,
    observe::{in_time, lease_resource, observe},
    probe::Probe,
    server::Ready,
    status,
};
use futures::{Stream, StreamExt, future};
use k8s_openapi::{
    api::{apps::v1 as apps, core::v1 as core, policy::v1 as policy, rbac::v1 as rbac},
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::{DynamicObject, NamespaceResourceScope, PartialObjectMeta},
    runtime::{
        PredicateConfig, WatchStreamExt,
        controller::{self, Controller},
        events::{Recorder, Reporter},
        predicates,
        reflector::{self, ObjectRef},
        watcher,
    },
};
use mooncake_crds::{GoDuration, HealthCheck, MooncakeMaster, MooncakeMasterStatus, names};
use mooncake_lease::record::LeaseObject;
use parking_lot::Mutex;
use rand::Rng;
use serde::de::DeserializeOwned;
use std::{convert::Infallible, fmt::Debug, sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

/// Longest wait between two tries while the API server refuses.
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);
/// Changes that come together are one pass.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Longest wait for an Event to be taken.
const EVENT_DEADLINE: Duration = Duration::from_secs(2);
/// Passes at the same time.
const CONCURRENCY: u16 = 16;

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
            watchdog: Arc::new(Watchdog::new(Arc::clone(&memory), wake.clone())),
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
            Ok(Outcome::Done) => done.push(action.clone()),
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

/// Watches until `stop`, in one namespace or in all.
pub async fn run(context: Context, namespace: Option<&str>, ready: Ready, stop: CancellationToken) {
    let client = context.client.clone();
    let ours = format!("{}={}", names::LABEL_MANAGED_BY, names::FIELD_MANAGER);
    let children = watcher::Config::default().labels(&ours);
    let masters_pods =
        watcher::Config::default().labels(&format!("{}={}", names::LABEL_APP, names::APP_NAME));

    let (reader, writer) = reflector::store();
    let (memory, metrics) = (context.memory.clone(), context.metrics.clone());
    let watchdog = Arc::clone(&context.watchdog);
    let masters = watcher(api::<MooncakeMaster>(&client, namespace), watcher::Config::default())
        .default_backoff()
        .inspect(move |event| match event {
            Ok(watcher::Event::InitDone) => ready.set(true),
            Ok(watcher::Event::Delete(master)) => {
                let (namespace, name) = (master.namespace().unwrap_or_default(), master.name_any());
                metrics.forget(&namespace, &name);
                let key = (namespace, name);
                watchdog.follow(&key, None);
                memory.forget(&key);
            }
            Ok(_) | Err(_) => {}
        })
        .reflect(writer)
        .applied_objects()
        // The operator's own status writes are no reason to look again.
        .predicate_filter(predicates::generation, PredicateConfig::default());

    // A context runs once; for a second time nobody would be woken, and the passes come by time alone.
    let woken = context.woken.lock().take().unwrap_or_else(|| mpsc::unbounded_channel().1);
    let leases = tokio::spawn(watch_leases(context.clone(), namespace.map(str::to_owned), children.clone()));
    let nodes = tokio::spawn(watch_nodes(context.clone()));
    let controller = Controller::for_stream(masters, reader)
        .with_config(controller::Config::default().debounce(DEBOUNCE).concurrency(CONCURRENCY))
        .owns_stream(changes::<apps::StatefulSet>(&client, namespace, &children))
        .owns_stream(changes::<core::Service>(&client, namespace, &children))
        .owns_stream(changes::<core::ServiceAccount>(&client, namespace, &children))
        .owns_stream(changes::<policy::PodDisruptionBudget>(&client, namespace, &children))
        .owns_stream(changes::<rbac::Role>(&client, namespace, &children))
        .owns_stream(changes::<rbac::RoleBinding>(&client, namespace, &children))
        .watches_stream(
            watcher(api::<core::Pod>(&client, namespace), masters_pods).default_backoff().touched_objects(),
            |pod| {
                let instance = pod.labels().get(names::LABEL_INSTANCE).cloned();
                instance.map(|name| ObjectRef::new(&name).within(&pod.namespace().unwrap_or_default()))
            },
        )
        .reconcile_on(futures::stream::unfold(woken, async |mut woken: mpsc::UnboundedReceiver<Key>| {
            let (namespace, name) = woken.recv().await?;
            Some((ObjectRef::new(&name).within(&namespace), woken))
        }))
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(
            |master: Arc<MooncakeMaster>, context: Arc<Context>| async move {
                let pass = pass(&context, &master.namespace().unwrap_or_default(), &master.name_any()).await;
                Ok::<_, Infallible>(
                    pass.again.map_or_else(controller::Action::await_change, controller::Action::requeue),
                )
            },
            |_, never: &Infallible, _| match *never {},
            Arc::new(context),
        );
    controller
        .for_each(|result| {
            match result {
                // A trigger for a resource that has been deleted.
                Ok(_) | Err(controller::Error::ObjectNotFound(_)) => {}
                Err(error) => tracing::warn!(error = %error, "a watch failed and is tried again"),
            }
            future::ready(())
        })
        .await;
    leases.abort();
    nodes.abort();
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Changes of owned objects; their metadata is enough, a pass reads the rest.
fn changes<K>(
    client: &Client,
    namespace: Option<&str>,
    config: &watcher::Config,
) -> impl Stream<Item = Result<PartialObjectMeta<K>, watcher::Error>> + Send + 'static
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Sync
        + 'static,
{
    watcher(api::<PartialObjectMeta<K>>(client, namespace), config.clone())
        .default_backoff()
        .touched_objects()
}

/// Follows the Leases. They change with each renewal, every second: only what a pass must know wakes one.
async fn watch_leases(context: Context, namespace: Option<String>, config: watcher::Config) {
    let resource = lease_resource();
    let api: Api<DynamicObject> = match &namespace {
        Some(namespace) => Api::namespaced_with(context.client.clone(), namespace, &resource),
        None => Api::all_with(context.client.clone(), &resource),
    };
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    loop {
        let wakes = tokio::select! {
            event = events.next() => match event {
                None => return,
                Some(Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease))) => {
                    let key = (lease.namespace().unwrap_or_default(), lease.name_any());
                    // An object of the API server is plain data: serialization has no case that fails.
                    match LeaseObject::parse(serde_json::to_value(&lease).unwrap_or_default()) {
                        Ok(object) => {
                            let (_, news) = context.memory.saw_lease(&key, &object, Instant::now());
                            if news { vec![key] } else { Vec::new() }
                        }
                        Err(_) => vec![key],
                    }
                }
                Some(Ok(watcher::Event::Delete(lease))) => {
                    vec![(lease.namespace().unwrap_or_default(), lease.name_any())]
                }
                Some(Ok(watcher::Event::Init | watcher::Event::InitDone)) => Vec::new(),
                Some(Err(error)) => {
                    tracing::warn!(error = %error, "the watch of the Leases failed and is tried again");
                    Vec::new()
                }
            },
            _ = tick.tick() => context.memory.turned(Instant::now()),
        };
        for key in wakes {
            if context.wake.send(key).is_err() {
                return;
            }
        }
    }
}

/// Follows the nodes, where that is allowed: a change of one wakes the resources that have a pod there.
async fn watch_nodes(context: Context) {
    loop {
        if let Ok(true) = context.nodes.readable(&context.client).await {
            break;
        }
        tokio::time::sleep(LONGEST_BACKOFF).await;
    }
    // Their metadata is enough, a pass reads the rest.
    let api: Api<PartialObjectMeta<core::Node>> = Api::all(context.client.clone());
    let mut events =
        std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff().touched_objects());
    while let Some(event) = events.next().await {
        match event {
            Ok(node) => {
                for key in context.memory.on_node(&node.name_any()) {
                    if context.wake.send(key).is_err() {
                        return;
                    }
                }
            }
            Err(error) => tracing::warn!(error = %error, "the watch of the nodes failed and is tried again"),
        }
    }
}
