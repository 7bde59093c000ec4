//! What the API server alone does not do: a StatefulSet controller, kubelets, and masters that elect their active.
//!
//! The masters are as simple as can be: one HTTP page and a Lease that they hold by the record's own rules. A pod whose
//! image is `bad` never starts.

use axum::{Router, routing::get};
use k8s_openapi::api::core::v1::Pod;
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
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};
use tokio::{task::JoinHandle, time::Instant};

/// One namespace's nodes and controllers; dropping it stops them.
pub(crate) struct World {
    task: JoinHandle<()>,
    faults: Arc<Mutex<Faults>>,
}

/// What a test does to the masters.
#[derive(Default)]
struct Faults {
    /// Uids of pods whose process is dead.
    dead: BTreeSet<String>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A master's process.
struct Process {
    page: JoinHandle<()>,
    state: Arc<AtomicU8>,
    ip: Ipv4Addr,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.page.abort();
    }
}

const STANDBY: u8 = 0;
const SERVING: u8 = 1;

struct Node {
    client: Client,
    namespace: String,
    name: String,
    port: u16,
    faults: Arc<Mutex<Faults>>,
    processes: BTreeMap<String, Process>,
    next_ip: u8,
    /// The Lease as last seen, and since when it has been so.
    lease: Option<(LeaseRecord, Instant)>,
    renewals: u64,
}

impl World {
    /// Starts the nodes for one resource. Each master's page is on an address of its own, all on the same port.
    /// `subnet` keeps the addresses of two worlds apart.
    pub(crate) fn start(client: &Client, namespace: &str, name: &str, port: u16, subnet: u8) -> World {
        let faults: Arc<Mutex<Faults>> = Arc::default();
        let mut node = Node {
            client: client.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            port,
            faults: Arc::clone(&faults),
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
        World { task, faults }
    }

    /// Ends the process of that pod, without a word to anybody.
    pub(crate) fn kill(&self, uid: &str) {
        self.faults.lock().dead.insert(uid.to_owned());
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
        self.election(&pods).await
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
        let dead = self.faults.lock().dead.clone();
        let alive =
            |uid: &String| pods.iter().any(|pod| pod.uid().as_ref() == Some(uid)) && !dead.contains(uid);
        self.processes.retain(|uid, _| alive(uid));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        for pod in pods {
            let uid = pod.uid().unwrap_or_default();
            let image =
                pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone()).unwrap_or_default();
            let bad = image.contains("bad");
            if !bad && !dead.contains(&uid) && !self.processes.contains_key(&uid) {
                let process = self.start_process().await;
                self.processes.insert(uid.clone(), process);
            }
            let process = self.processes.get(&uid);
            let ready = process.is_some_and(|process| process.state.load(Ordering::Relaxed) == SERVING);
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
        let shown = Arc::clone(&state);
        let page = Router::new().route(
            "/ha_status",
            get(move || async move {
                if shown.load(Ordering::Relaxed) == SERVING { "serving" } else { "standby" }
            }),
        );
        let listener = tokio::net::TcpListener::bind((ip, self.port)).await.expect("a loopback address");
        let page = tokio::spawn(async move { axum::serve(listener, page).await.expect("a page") });
        Process { page, state, ip }
    }

    /// The holder renews; a pod that is going releases; a standby claims what is released or has run out.
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
        let holder_exists = pods.iter().any(|pod| pod.uid().as_ref() == Some(&record.pod_uid));
        self.renewals += 1;
        let next = if holder_runs && record.release.is_none() {
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
                let standby = waiting
                    .filter_map(|pod| Some((self.processes.get(&pod.uid()?)?.ip, pod)))
                    .min_by_key(|(ip, _)| *ip);
                let (true, Some((ip, standby))) = (free, standby) else { return Ok(()) };
                LeaseRecord {
                    holder: format!("{ip}:50051"),
                    epoch: record.epoch + 1,
                    duration: Some(Duration::from_secs(1)),
                    renew_time: renew_time(self.renewals),
                    pod_name: standby.name_any(),
                    pod_uid: standby.uid().unwrap_or_default(),
                    incarnation: format!("process-{}", self.renewals),
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

fn renew_time(count: u64) -> String {
    format!("2026-01-01T{:02}:{:02}:{:02}.000000Z", count / 3600 % 24, count / 60 % 60, count % 60)
}

/// Whether a status is not yet what the kubelet would write.
fn differs(pod: &Pod, status: &Value) -> bool {
    let found = serde_json::to_value(pod).expect("JSON");
    mooncake_operator::diff::difference(status, &found).is_some()
}
