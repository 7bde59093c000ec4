//! What the API server alone does not do: a StatefulSet controller, kubelets, and masters that elect their active.
//!
//! The masters are as simple as can be: one HTTP page, a HealthCheck, and a Lease that they hold by the record's own
//! rules, handing it over when they are asked to. A pod whose image is `bad` never starts. Each ordinal has a node of its
//! own.

use super::health;
use axum::{Router, routing::get};
use k8s_openapi::api::{core::v1::Pod, discovery::v1::EndpointSlice};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use mooncake_crds::names;
use mooncake_lease::record::{LeaseObject, LeaseRecord, Release};
use mooncake_operator::{build::Kind, observe::lease_resource};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{task::JoinHandle, time::Instant};

/// One namespace's nodes and controllers; dropping it stops them.
pub(crate) struct World {
    task: JoinHandle<()>,
    faults: Arc<Mutex<Faults>>,
    blocked_answers: Arc<AtomicUsize>,
}

/// What a test does to the masters.
#[derive(Default)]
struct Faults {
    /// Uids of pods whose process is dead.
    dead: BTreeSet<String>,
    /// Uids of pods whose process serves nothing and says so.
    blocked: BTreeSet<String>,
    /// Uids of pods of which the kubelet says that they are not Ready.
    unready: BTreeSet<String>,
    /// What masters say of their clients; `None`: they do not say it.
    clients: Option<Value>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A master's process.
struct Process {
    page: JoinHandle<()>,
    health: JoinHandle<()>,
    state: Arc<AtomicU8>,
    blocked: Arc<AtomicBool>,
    ip: Ipv4Addr,
    incarnation: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.page.abort();
        self.health.abort();
    }
}

/// Ports of every master of a world.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) rpc: u16,
    pub(crate) metrics: u16,
}

const STANDBY: u8 = 0;
const SERVING: u8 = 1;

struct Node {
    client: Client,
    namespace: String,
    name: String,
    ports: Ports,
    faults: Arc<Mutex<Faults>>,
    blocked_answers: Arc<AtomicUsize>,
    /// The endpoints as last written.
    routed: Option<Value>,
    processes: BTreeMap<String, Process>,
    next_ip: u8,
    /// The Lease as last seen, and since when it has been so.
    lease: Option<(LeaseRecord, Instant)>,
    renewals: u64,
}

impl World {
    /// Starts the nodes for one resource. Each master's page is on an address of its own, all on the same port.
    /// `subnet` keeps the addresses of two worlds apart.
    pub(crate) fn start(client: &Client, namespace: &str, name: &str, ports: Ports, subnet: u8) -> World {
        let faults: Arc<Mutex<Faults>> = Arc::default();
        let blocked_answers: Arc<AtomicUsize> = Arc::default();
        let mut node = Node {
            client: client.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ports,
            faults: Arc::clone(&faults),
            routed: None,
            blocked_answers: Arc::clone(&blocked_answers),
            processes: BTreeMap::new(),
            next_ip: subnet,
            lease: None,
            renewals: 0,
        };
        let task = tokio::spawn(async move {
            loop {
                // What another writer has changed meanwhile is tried again in the next round.
                if let Err(error) = node.round().await {
                    assert!(matches!(&error, kube::Error::Api(_)), "the world has a bug: {error}");
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        World { task, faults, blocked_answers }
    }

    /// Ends the process of that pod, without a word to anybody.
    pub(crate) fn kill(&self, uid: &str) {
        self.faults.lock().dead.insert(uid.to_owned());
    }

    /// From now on the process of that pod serves nothing, or serves again.
    pub(crate) fn block(&self, uid: &str, is_blocked: bool) {
        let mut faults = self.faults.lock();
        if is_blocked {
            faults.blocked.insert(uid.to_owned())
        } else {
            faults.blocked.remove(uid)
        };
    }

    /// From now on the kubelet says of that pod that it is not Ready, or says the truth again.
    pub(crate) fn unready(&self, uid: &str, is_unready: bool) {
        let mut faults = self.faults.lock();
        if is_unready {
            faults.unready.insert(uid.to_owned())
        } else {
            faults.unready.remove(uid)
        };
    }

    /// How many calls were answered by masters that are blocked.
    pub(crate) fn blocked_answers(&self) -> usize {
        self.blocked_answers.load(Ordering::Relaxed)
    }

    /// What the masters say of their clients from now on.
    pub(crate) fn say_of_clients(&self, clients: Option<Value>) {
        self.faults.lock().clients = clients;
    }

    /// The process of that pod starts anew.
    pub(crate) fn restart(&self, uid: &str) {
        self.faults.lock().dead.remove(uid);
    }
}

impl Node {
    async fn round(&mut self) -> Result<(), kube::Error> {
        self.stateful_set().await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let pods = pods.list(&ListParams::default()).await?.items;
        self.kubelet(&pods).await?;
        self.endpoints(&pods).await?;
        self.election(&pods).await
    }

    /// What the Service selects, and is Ready.
    async fn endpoints(&mut self, pods: &[Pod]) -> Result<(), kube::Error> {
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        let endpoints: Vec<Value> = pods
            .iter()
            .filter(|pod| pod.labels().contains_key(names::LABEL_ROLE) && is_ready(pod))
            .filter_map(|pod| {
                // The API server lets no loopback address in; nobody goes there.
                let [.., last] = self.processes.get(&pod.uid()?)?.ip.octets();
                let ip = Ipv4Addr::new(10, 1, 77, last);
                Some(json!({ "addresses": [ip.to_string()], "conditions": { "ready": true },
                    "targetRef": { "kind": "Pod", "name": pod.name_any(), "uid": pod.uid() } }))
            })
            .collect();
        let slice = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": self.name, "labels": { "kubernetes.io/service-name": self.name } },
            "endpoints": endpoints });
        if self.routed.as_ref() != Some(&slice) {
            let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
            api.patch(&self.name, &PatchParams::apply("world").force(), &Patch::Apply(&slice)).await?;
            self.routed = Some(slice);
        }
        Ok(())
    }

    /// The node of that ordinal; it is there, and well.
    async fn node(&self, ordinal: i64) -> Result<String, kube::Error> {
        let name = node_name(&self.namespace, ordinal as i32);
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
        super::server::apply(&self.client, &node).await;
        let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(name)
    }

    /// Creates missing pods from the present template, deletes those beyond the replicas.
    async fn stateful_set(&self) -> Result<(), kube::Error> {
        let resource = Kind::StatefulSet.api_resource();
        let sets: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let Some(set) = sets.get_opt(&self.name).await? else { return Ok(()) };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let replicas = set.data["spec"]["replicas"].as_i64().unwrap_or(0);
        for ordinal in 0..replicas {
            let name = names::pod(&self.name, ordinal as i32);
            if pods.get_opt(&name).await?.is_some() {
                continue;
            }
            let mut pod = set.data["spec"]["template"].clone();
            pod["metadata"]["name"] = json!(name);
            pod["spec"]["nodeName"] = json!(self.node(ordinal).await?);
            pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet",
                "name": self.name, "uid": set.uid(), "controller": true }]);
            pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await?;
        }
        for pod in pods.list(&ListParams::default()).await?.items {
            let ordinal = names::ordinal(&self.name, &pod.name_any());
            if ordinal.is_some_and(|ordinal| i64::from(ordinal) >= replicas) {
                pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
            }
        }
        if set.data["status"]["observedGeneration"].as_i64() != set.metadata.generation {
            let status =
                json!({ "status": { "observedGeneration": set.metadata.generation, "replicas": replicas } });
            sets.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        }
        Ok(())
    }

    /// Starts and ends processes, and reports on them.
    async fn kubelet(&mut self, pods: &[Pod]) -> Result<(), kube::Error> {
        let (dead, blocked, unready) = {
            let faults = self.faults.lock();
            (faults.dead.clone(), faults.blocked.clone(), faults.unready.clone())
        };
        let alive =
            |uid: &String| pods.iter().any(|pod| pod.uid().as_ref() == Some(uid)) && !dead.contains(uid);
        self.processes.retain(|uid, _| alive(uid));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        for pod in pods {
            let uid = pod.uid().unwrap_or_default();
            if pod.metadata.deletion_timestamp.is_some() {
                // Its process has ended, and the object goes.
                self.processes.remove(&uid);
                api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
                continue;
            }
            let image =
                pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone()).unwrap_or_default();
            let bad = image.contains("bad");
            if !bad && !dead.contains(&uid) && !self.processes.contains_key(&uid) {
                let process = self.start_process().await;
                self.processes.insert(uid.clone(), process);
            }
            let process = self.processes.get(&uid);
            let is_blocked = blocked.contains(&uid);
            let serves = process.is_some_and(|process| {
                process.blocked.store(is_blocked, Ordering::Relaxed);
                process.state.load(Ordering::Relaxed) == SERVING
            });
            let ready = serves && !is_blocked && !unready.contains(&uid);
            let state = match process {
                Some(_) => json!({ "running": {} }),
                None if bad => json!({ "waiting": { "reason": "ImagePullBackOff" } }),
                None => json!({ "terminated": { "exitCode": 137 } }),
            };
            let status = json!({ "status": {
                "phase": if process.is_some() { "Running" } else { "Pending" },
                "podIP": process.map(|process| process.ip.to_string()),
                "podIPs": process.map(|process| json!([{ "ip": process.ip.to_string() }])),
                "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }],
                "containerStatuses": [{ "name": "master", "image": image, "imageID": "", "ready": ready,
                    "restartCount": 0, "state": state }],
            }});
            if differs(pod, &status) {
                api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&status))
                    .await?;
            }
        }
        Ok(())
    }

    async fn start_process(&mut self) -> Process {
        self.next_ip += 1;
        let ip = Ipv4Addr::new(127, 0, 77, self.next_ip);
        let state = Arc::new(AtomicU8::new(STANDBY));
        let (shown, incarnation) = (Arc::clone(&state), format!("process-{}", self.next_ip));
        let id = incarnation.clone();
        let faults = Arc::clone(&self.faults);
        let page = Router::new()
            .route(
                "/ha_status",
                get(move || async move {
                    let word = if shown.load(Ordering::Relaxed) == SERVING { "serving" } else { "standby" };
                    ([("mooncake-incarnation", id)], word)
                }),
            )
            .route(
                "/clients/summary",
                get(move || async move {
                    let clients = faults.lock().clients.clone();
                    clients.map(|clients| clients.to_string()).ok_or(axum::http::StatusCode::NOT_FOUND)
                }),
            );
        let listener =
            tokio::net::TcpListener::bind((ip, self.ports.metrics)).await.expect("a loopback address");
        let page = tokio::spawn(async move { axum::serve(listener, page).await.expect("a page") });
        let listener = tokio::net::TcpListener::bind((ip, self.ports.rpc)).await.expect("a loopback address");
        let blocked = Arc::new(AtomicBool::new(false));
        let health =
            tokio::spawn(health::serve(listener, Arc::clone(&blocked), Arc::clone(&self.blocked_answers)));
        Process { page, health, state, blocked, ip, incarnation }
    }

    /// The holder renews, or releases for whom it is asked to; a pod that is going releases; a standby claims what is
    /// released or has run out.
    async fn election(&mut self, pods: &[Pod]) -> Result<(), kube::Error> {
        let leases: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &lease_resource());
        let Some(found) = leases.get_opt(&self.name).await? else { return Ok(()) };
        let object = LeaseObject::parse(serde_json::to_value(&found).expect("JSON")).expect("a Lease");
        let record = object.record.clone();
        let since = match &self.lease {
            Some((before, since)) if *before == record => *since,
            _ => Instant::now(),
        };
        self.lease = Some((record.clone(), since));
        let holder_runs = self.processes.contains_key(&record.pod_uid);
        let stays = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none();
        let holder_exists = pods.iter().filter(stays).any(|pod| pod.uid().as_ref() == Some(&record.pod_uid));
        self.renewals += 1;
        let successor = Some(&record.designated).filter(|id| !id.is_empty() && **id != record.incarnation);
        let next = if let (true, None, Some(successor)) = (holder_runs, &record.release, successor) {
            LeaseRecord {
                release: Some(Release::For(successor.clone())),
                designated: String::new(),
                ..record.clone()
            }
        } else if holder_runs && record.release.is_none() {
            if since.elapsed() < Duration::from_millis(200) {
                return Ok(());
            }
            LeaseRecord { renew_time: renew_time(self.renewals), ..record.clone() }
        } else {
            let free = !record.is_held()
                || record.release.is_some()
                || since.elapsed() >= record.duration.unwrap_or(Duration::from_secs(1));
            if record.is_held() && !holder_exists && record.release.is_none() {
                // Deleted in good order: its last act was to release.
                LeaseRecord { release: Some(Release::Anyone), ..record.clone() }
            } else {
                // The one that has waited longest sees it first.
                let waiting = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
                let run_out = since.elapsed() >= record.duration.unwrap_or(Duration::from_secs(1));
                let may = |process: &Process| match &record.release {
                    Some(Release::For(id)) => *id == process.incarnation || run_out,
                    Some(Release::Anyone) | None => true,
                };
                let standby = waiting
                    .filter_map(|pod| Some((self.processes.get(&pod.uid()?)?, pod)))
                    .filter(|(process, _)| may(process))
                    .min_by_key(|(process, _)| process.ip);
                let (true, Some((process, standby))) = (free, standby) else { return Ok(()) };
                LeaseRecord {
                    holder: format!("{}:{}", process.ip, self.ports.rpc),
                    epoch: record.epoch + 1,
                    duration: Some(Duration::from_secs(1)),
                    renew_time: renew_time(self.renewals),
                    pod_name: standby.name_any(),
                    pod_uid: standby.uid().unwrap_or_default(),
                    incarnation: process.incarnation.clone(),
                    designated: String::new(),
                    release: None,
                    ..record.clone()
                }
            }
        };
        let body: DynamicObject = serde_json::from_value(object.replaced_by(&next)).expect("a Lease");
        leases.replace(&self.name, &PostParams::default(), &body).await?;
        if next.epoch != record.epoch {
            self.take_over(pods, &next).await?;
        }
        Ok(())
    }

    /// The label goes from every other pod, each of which changes; then it comes to the own one.
    async fn take_over(&self, pods: &[Pod], record: &LeaseRecord) -> Result<(), kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let (mine, others): (Vec<&Pod>, Vec<&Pod>) =
            pods.iter().partition(|pod| pod.uid().as_ref() == Some(&record.pod_uid));
        for pod in others {
            let patch = json!({ "metadata": { "labels": { names::LABEL_ROLE: null },
                "annotations": { "mooncake.io/epoch": record.epoch.to_string() } } });
            match api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(answer)) if answer.code == 404 => {}
                other => drop(other?),
            }
        }
        for pod in mine {
            let patch = json!({ "metadata": { "labels": { names::LABEL_ROLE: names::ROLE_LEADER } } });
            api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        for (uid, process) in &self.processes {
            let state = if *uid == record.pod_uid { SERVING } else { STANDBY };
            process.state.store(state, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The node of the pod with that ordinal.
pub(crate) fn node_name(namespace: &str, ordinal: i32) -> String {
    format!("{namespace}-{ordinal}")
}

fn renew_time(count: u64) -> String {
    format!("2026-01-01T{:02}:{:02}:{:02}.000000Z", count / 3600 % 24, count / 60 % 60, count % 60)
}

/// Whether a status is not yet what the kubelet would write.
fn differs(pod: &Pod, status: &Value) -> bool {
    let found = serde_json::to_value(pod).expect("JSON");
    mooncake_operator::diff::difference(status, &found).is_some()
}
