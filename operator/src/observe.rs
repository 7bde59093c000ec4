//! Reading, live, what there is: a decision must not rest on an old copy.

use crate::{
    build::{Desired, Kind},
    clients,
    contest::what_differs,
    decide::{
        FailoverRules, Health, Hold, Holder, Lease, LeaseState, Node, ObjectState, Observed, Phase, Pod,
        PodRef, Presence, Says, disagreement,
    },
    diff::difference,
    memory::{Key, Memory},
    nodes::Nodes,
    probe::{Answer, Probe},
    status,
};
use futures::future::join_all;
use k8s_openapi::{
    api::{core::v1 as core, discovery::v1::EndpointSlice},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};
use mooncake_crds::{Failover, GoDuration, MooncakeMaster, MooncakeMasterStatus, names, validation};
use mooncake_lease::record::LeaseObject;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// Why nothing could be observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The API server did not answer, or refused.
    #[error("reading {what}: {source}")]
    Read {
        /// What was read.
        what: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// A Lease without what every object has.
    #[error("reading Lease {name}: {source}")]
    Lease {
        /// Its name.
        name: String,
        /// What is wrong.
        #[source]
        source: mooncake_lease::record::RecordError,
    },
}

fn reading(what: impl Into<String>) -> impl FnOnce(kube::Error) -> ObserveError {
    let what = what.into();
    move |source| ObserveError::Read { what, source: Box::new(source) }
}

/// Grace period of a pod that names none: the API's default.
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// Longest wait for one answer of the API server.
const DEADLINE: Duration = Duration::from_secs(10);

/// The answer, or an error after 10 s: a connection that says nothing must not hold up a resource for ever.
pub(crate) async fn in_time<T>(
    answer: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    tokio::time::timeout(DEADLINE, answer).await.unwrap_or_else(|_| {
        Err(kube::Error::Service(format!("no answer within {} s", DEADLINE.as_secs()).into()))
    })
}

/// The resource of a Lease, for an untyped API: its annotations are read as they are.
pub fn lease_resource() -> ApiResource {
    ApiResource::erase::<k8s_openapi::api::coordination::v1::Lease>(&())
}

/// Everything around one resource.
pub async fn observe(
    client: &Client,
    master: &MooncakeMaster,
    desired: &Desired,
    memory: &Memory,
    probe: &Probe,
    nodes: &Nodes,
) -> Result<Observed, ObserveError> {
    let namespace = master.namespace().unwrap_or_default();
    let name = master.name_any();
    let key: Key = (namespace.clone(), name.clone());

    let mut objects = Vec::with_capacity(desired.objects.len());
    let mut stateful_set = None;
    for wanted in &desired.objects {
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &namespace, &wanted.kind.api_resource());
        let found = in_time(api.get_opt(&wanted.name)).await.map_err(reading(format!(
            "{} {}",
            wanted.kind.api_resource().kind,
            wanted.name
        )))?;
        let presence = match &found {
            None => Presence::Missing,
            Some(found) => presence(master, &wanted.content, found),
        };
        let what = what_differs(&presence, found.as_ref());
        let contest = memory.corrections(&key, |all| all.look(wanted, what, Instant::now()));
        if wanted.kind == Kind::StatefulSet && !matches!(presence, Presence::Foreign(_)) {
            stateful_set = found;
        }
        objects.push(ObjectState { kind: wanted.kind, name: wanted.name.clone(), presence, contest });
    }

    for (kind, name) in &desired.unwanted {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind.api_resource());
        let what = format!("{} {name}", kind.api_resource().kind);
        let found = in_time(api.get_opt(name)).await.map_err(reading(what))?;
        // One of somebody else's is none of ours.
        if let Some(found) = found.filter(|found| foreign_owner(master, &found.metadata).is_none()) {
            let presence = Presence::Unwanted(found.uid().unwrap_or_default());
            objects.push(ObjectState { kind: *kind, name: name.clone(), presence, contest: None });
        }
    }

    let labelled = labelled_pods(client, master).await?;
    let any_pod = !labelled.is_empty();
    let mut pods = match &stateful_set {
        Some(stateful_set) => pods(master, labelled, stateful_set, memory, probe, &key).await,
        None => Vec::new(),
    };
    look_at_nodes(client, nodes, &mut pods, memory, &key).await?;
    // After the pods. Whoever claims the Lease later than this touches every other pod, so that a write which carries
    // the resourceVersion read above fails.
    let lease = lease(client, master, memory, &key).await?;
    let status = master.status.clone().unwrap_or_default();
    let epoch_now = match &lease {
        LeaseState::Present(lease) => lease.epoch,
        LeaseState::Missing | LeaseState::Foreign(_) => 0,
    };
    let now = Timestamp::now();
    let moving = status::moving(&status);
    let routed = match &moving {
        Some(moving) if moving.plan.phase == Phase::Verifying => routed(client, master).await?,
        _ => None,
    };
    let mut seen = Observed {
        deleting: master.metadata.deletion_timestamp.is_some(),
        paused: master.spec.paused,
        replicas: master.spec.replicas,
        invalid: validation::validate(master).into_iter().map(|error| error.message).collect(),
        workload_settled: stateful_set.as_ref().is_some_and(is_settled),
        objects,
        template_hash: desired.template_hash.clone(),
        known_epoch: status.epoch.unwrap_or(0).max(epoch_now),
        lease,
        pods,
        any_pod,
        clients: None,
        disagreed_for: Duration::ZERO,
        last_error: memory.last_error(&key),
        failover: rules(master),
        moving,
        last_move: status::past_move(&status, now),
        last_failover: status::past_failover(&status, now),
        unserved_for: Duration::ZERO,
        routed,
        failed_template: status.failed_template_hash.clone(),
    };
    let port = u16::try_from(master.spec.ports.metrics).unwrap_or_default();
    seen.clients = clients::observe(&seen, memory, probe, &key, port).await;
    remember(&mut seen, &status, memory, &key);
    Ok(seen)
}

/// What only the operator's own clock can tell.
fn remember(seen: &mut Observed, status: &MooncakeMasterStatus, memory: &Memory, key: &Key) {
    let now = Instant::now();
    seen.disagreed_for = memory.disagreed_for(key, disagreement(seen), now);
    // While nothing is done for it, no time of it goes by.
    let phase = status::phase(status).filter(|_| !seen.paused);
    let phase_for = memory.phase_for(key, phase, now);
    if let Some(moving) = &mut seen.moving {
        moving.phase_for = phase_for;
    }
    if let Some((uid, incarnation)) =
        seen.active_holder().map(|holder| (holder.pod_uid.clone(), holder.incarnation.clone()))
    {
        for pod in seen.pods.iter_mut().filter(|pod| pod.id.uid == uid) {
            pod.health = memory.health(key, &uid, &incarnation, now);
        }
    }
    let served = seen.active().is_some_and(|active| active.ready);
    seen.unserved_for = memory.unserved_for(key, !served, now);
}

/// Of a spec whose times cannot be parsed the defaults count: such a spec must not keep the role where nobody serves.
fn rules(master: &MooncakeMaster) -> FailoverRules {
    let (spec, default) = (&master.spec.failover, Failover::default());
    let time = |text: &GoDuration, default: &GoDuration| text.parse().or_else(|_| default.parse());
    FailoverRules {
        blocked_after: time(&spec.blocked_after, &default.blocked_after).unwrap_or_default(),
        cooldown: time(&spec.cooldown, &default.cooldown).unwrap_or_default(),
        not_ready_after: time(&spec.not_ready_after, &default.not_ready_after).unwrap_or_default(),
    }
}

async fn look_at_nodes(
    client: &Client,
    nodes: &Nodes,
    pods: &mut [Pod],
    memory: &Memory,
    key: &Key,
) -> Result<(), ObserveError> {
    let mut names: Vec<String> =
        pods.iter().filter_map(|pod| Some(pod.node.as_ref()?.name.clone())).collect();
    names.sort();
    names.dedup();
    memory.set_nodes(key, names.clone());
    let readable = nodes.readable(client).await.map_err(reading("the nodes"))?;
    let mut found = Vec::new();
    for name in names.iter().filter(|_| readable) {
        found.extend(nodes.get(client, name).await.map_err(reading(format!("Node {name}")))?);
    }
    for pod in pods {
        let name = pod.node.take().map(|node| node.name);
        pod.node = found.iter().find(|node| Some(&node.name) == name.as_ref()).cloned();
    }
    Ok(())
}

/// Uids of the pods to which the Service sends new connections; `None` where that may not be read.
async fn routed(client: &Client, master: &MooncakeMaster) -> Result<Option<Vec<String>>, ObserveError> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &master.namespace().unwrap_or_default());
    let of_the_service = format!("kubernetes.io/service-name={}", master.name_any());
    let slices = match in_time(api.list(&ListParams::default().labels(&of_the_service))).await {
        Ok(slices) => slices,
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
        Err(error) => return Err(reading("the EndpointSlices")(error)),
    };
    let endpoints = slices.items.into_iter().flat_map(|slice| slice.endpoints);
    let ready = endpoints.filter(|endpoint| {
        // Absent means unknown, which counts as ready.
        endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
    });
    Ok(Some(ready.filter_map(|endpoint| endpoint.target_ref?.uid).collect()))
}

/// The StatefulSet controller has seen the present spec. Before that a deleted pod might come back from the old one.
fn is_settled(stateful_set: &DynamicObject) -> bool {
    stateful_set.data.pointer("/status/observedGeneration").and_then(Value::as_i64)
        == stateful_set.metadata.generation
}

fn presence(master: &MooncakeMaster, wanted: &Value, found: &DynamicObject) -> Presence {
    if let Some(owner) = foreign_owner(master, &found.metadata) {
        return Presence::Foreign(owner);
    }
    // An object of the API server is plain data: serialization has no case that fails.
    let found = serde_json::to_value(found).unwrap_or_default();
    difference(wanted, &found).map_or(Presence::Current, Presence::Drifted)
}

/// Whose an object is, if it is not this resource's.
fn foreign_owner(master: &MooncakeMaster, found: &ObjectMeta) -> Option<String> {
    let owners = found.owner_references.as_deref().unwrap_or_default();
    if owners.iter().any(|owner| Some(&owner.uid) == master.metadata.uid.as_ref()) {
        return None;
    }
    let controller = owners.iter().find(|owner| owner.controller == Some(true)).or(owners.first());
    Some(match controller {
        // Left over from a resource of the same name; the garbage collector is about to take it.
        Some(OwnerReference { kind, name, .. }) if kind == names::KIND && *name == master.name_any() => {
            "left by an earlier resource of this name".to_owned()
        }
        Some(OwnerReference { kind, name, .. }) => format!("owned by {kind} {name}"),
        None => "without an owner".to_owned(),
    })
}

async fn lease(
    client: &Client,
    master: &MooncakeMaster,
    memory: &Memory,
    key: &Key,
) -> Result<LeaseState, ObserveError> {
    let (namespace, name) = key;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &lease_resource());
    let Some(found) = in_time(api.get_opt(name)).await.map_err(reading(format!("Lease {name}")))? else {
        return Ok(LeaseState::Missing);
    };
    let foreign = foreign_owner(master, &found.metadata);
    // Plain data, see above.
    let object = LeaseObject::parse(serde_json::to_value(&found).unwrap_or_default())
        .map_err(|source| ObserveError::Lease { name: name.clone(), source })?;
    let record = &object.record;
    // A master that found its Lease deleted has created it again, without an owner; its mark is on it.
    let has_owner = found.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    let by_a_master = !has_owner && names::ordinal(name, &record.pod_name).is_some();
    if let Some(owner) = foreign.clone().filter(|_| !by_a_master) {
        return Ok(LeaseState::Foreign(owner));
    }
    let (hold, _) = memory.saw_lease(key, &object, Instant::now());
    // A Lease that no master has held yet may bear the mark of a release; it names no pod.
    let holder = (record.is_held() && !record.pod_uid.is_empty()).then(|| Holder {
        pod: record.pod_name.clone(),
        pod_uid: record.pod_uid.clone(),
        address: record.holder.clone(),
        incarnation: record.incarnation.clone(),
    });
    Ok(LeaseState::Present(Lease {
        uid: found.uid().unwrap_or_default(),
        resource_version: found.resource_version().unwrap_or_default(),
        owned: foreign.is_none(),
        hold: if holder.is_some() { hold } else { Hold::Released },
        holder,
        epoch: i64::try_from(record.epoch).unwrap_or(i64::MAX),
        duration_seconds: record.duration.and_then(|duration| i32::try_from(duration.as_secs()).ok()),
        designated: Some(record.designated.clone()).filter(|id| !id.is_empty()),
    }))
}

/// The pods with the resource's labels, whoever made them.
async fn labelled_pods(client: &Client, master: &MooncakeMaster) -> Result<Vec<core::Pod>, ObserveError> {
    let api: Api<core::Pod> = Api::namespaced(client.clone(), &master.namespace().unwrap_or_default());
    let selector: Vec<String> =
        crate::build::selector(master).into_iter().map(|(label, value)| format!("{label}={value}")).collect();
    let params = ListParams::default().labels(&selector.join(","));
    let found = in_time(api.list(&params)).await.map_err(reading("the pods"))?;
    Ok(found.items)
}

/// Those of them that the StatefulSet has made, each asked what it is.
async fn pods(
    master: &MooncakeMaster,
    found: Vec<core::Pod>,
    stateful_set: &DynamicObject,
    memory: &Memory,
    probe: &Probe,
    key: &Key,
) -> Vec<Pod> {
    let (_, name) = key;
    let port = u16::try_from(master.spec.ports.metrics).unwrap_or_default();
    let of_the_set = found.into_iter().filter_map(|pod| {
        let ordinal = names::ordinal(name, &pod.name_any())?;
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        owners
            .iter()
            .any(|owner| Some(&owner.uid) == stateful_set.metadata.uid.as_ref())
            .then_some((ordinal, pod))
    });
    let mut pods = join_all(of_the_set.map(async |(ordinal, pod)| {
        let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse().ok());
        let answer = match ip {
            Some(ip) if is_running(&pod) => probe.ask(ip, port).await,
            _ => Answer::NOTHING,
        };
        view(&pod, ordinal, answer)
    }))
    .await;
    let now = Instant::now();
    for pod in &mut pods {
        let well = pod.running && matches!(pod.says, Says::Standby | Says::Leader);
        pod.idle_for = memory.idle_for(key, &pod.id.name, &pod.id.uid, !well, now);
        pod.not_ready_for = memory.not_ready_for(key, &pod.id.name, &pod.id.uid, !pod.ready, now);
        pod.terminating_for = memory.terminating_for(key, &pod.id.name, &pod.id.uid, pod.terminating, now);
    }
    pods.sort_by_key(|pod| pod.ordinal);
    pods
}

fn container(pod: &core::Pod) -> Option<&core::ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_deref()?;
    statuses.iter().find(|status| status.name == crate::build::CONTAINER)
}

/// What was asked for when it was deleted, else what its spec says.
fn grace(pod: &core::Pod) -> Duration {
    let of_the_spec = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let seconds = pod.metadata.deletion_grace_period_seconds.or(of_the_spec).unwrap_or(DEFAULT_GRACE_SECONDS);
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn is_running(pod: &core::Pod) -> bool {
    container(pod).and_then(|status| status.state.as_ref()).is_some_and(|state| state.running.is_some())
}

/// Reasons for which a container waits that do not end by waiting.
const FAILURES: &[&str] = &[
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

fn view(pod: &core::Pod, ordinal: i32, answer: Answer) -> Pod {
    let condition = |kind: &str| {
        let conditions =
            pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions
            .iter()
            .find(|condition| condition.type_ == kind)
            .map(|condition| condition.status == "True")
    };
    let waits_for = container(pod)
        .and_then(|status| status.state.as_ref()?.waiting.as_ref()?.reason.clone())
        .filter(|reason| FAILURES.contains(&reason.as_str()));
    let unschedulable = (condition("PodScheduled") == Some(false)).then(|| "Unschedulable".to_owned());
    Pod {
        id: PodRef {
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            resource_version: pod.resource_version().unwrap_or_default(),
        },
        ordinal,
        labelled: pod.labels().get(names::LABEL_ROLE).is_some_and(|role| role == names::ROLE_LEADER),
        template_hash: pod.labels().get(names::LABEL_TEMPLATE_HASH).cloned(),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        terminating_for: Duration::ZERO,
        grace: grace(pod),
        ready: condition("Ready") == Some(true),
        running: is_running(pod),
        failure: waits_for.or(unschedulable),
        says: answer.says,
        incarnation: answer.incarnation,
        idle_for: Duration::ZERO,
        not_ready_for: Duration::ZERO,
        health: Health::Unknown,
        // Only its name is known yet.
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).map(|name| Node {
            name,
            ready: false,
            leaving: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_ends() {
        let start = Instant::now();
        let error = in_time(std::future::pending::<Result<(), _>>()).await.expect_err("no answer");
        assert!(error.to_string().contains("no answer within 10 s"), "{error}");
        assert_eq!(start.elapsed(), DEADLINE);
        assert_eq!(in_time(std::future::ready(Ok(1))).await.expect("an answer"), 1);
    }
}
