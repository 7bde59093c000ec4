//! The watches: which change wakes a pass over which resource.

use super::{Context, LONGEST_BACKOFF, pass};
use crate::{memory::Key, observe::lease_resource, server::Ready};
use futures::{Stream, StreamExt, future};
use k8s_openapi::api::{apps::v1 as apps, core::v1 as core, policy::v1 as policy, rbac::v1 as rbac};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::{DynamicObject, NamespaceResourceScope, PartialObjectMeta},
    runtime::{
        PredicateConfig, WatchStreamExt,
        controller::{self, Controller},
        predicates,
        reflector::{self, ObjectRef},
        watcher,
    },
};
use mooncake_crds::{MooncakeMaster, names};
use mooncake_lease::record::LeaseObject;
use serde::de::DeserializeOwned;
use std::{convert::Infallible, fmt::Debug, sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

/// Changes that come together are one pass.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Passes at the same time.
const CONCURRENCY: u16 = 16;

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
                let key = (master.namespace().unwrap_or_default(), master.name_any());
                watchdog.follow(&key, None);
                memory.forget(&key);
                let (namespace, name) = key;
                metrics.forget(&namespace, &name);
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
