//! One `MooncakeMaster` in a namespace of its own.

use crate::{
    admin,
    cluster::{Cluster, OPERATOR},
};
use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Pod, Service},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// Name of the `MooncakeMaster` in every scenario's namespace.
pub const NAME: &str = "pool";
/// The RPC port of the sample.
pub const RPC_PORT: u16 = 50051;
/// The admin port of the sample.
pub const METRICS_PORT: u16 = 9003;

/// The port of the operator's metrics.
const OPERATOR_PORT: u16 = 8080;

/// An instance, applied.
#[derive(Debug)]
pub struct Instance<'a> {
    cluster: &'a Cluster,
    /// Its namespace.
    pub namespace: String,
    /// `spec.replicas`.
    replicas: usize,
}

/// The holder of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// `leaseTransitions`.
    pub epoch: u64,
    /// The pod that wrote it.
    pub pod: String,
    /// The process that wrote it.
    pub incarnation: String,
}

/// The sample that the project ships, as [`NAME`] with the cluster's image.
pub fn sample(cluster: &Cluster) -> anyhow::Result<Value> {
    let directory = cluster.file("manifests/samples");
    for entry in std::fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let text = std::fs::read_to_string(entry?.path())?;
        let mut object: Value = serde_yaml_ng::from_str(&text)?;
        if object["kind"] == "MooncakeMaster" {
            object["metadata"] = json!({ "name": NAME });
            object["spec"]["image"] = json!(cluster.master_image);
            return Ok(object);
        }
    }
    bail!("no MooncakeMaster in {}", directory.display())
}

impl<'a> Instance<'a> {
    /// Creates the namespace, applies the sample with `spec` merged into its own, and waits until it is Available with
    /// its standbys running.
    pub async fn create(cluster: &'a Cluster, namespace: &str, spec: &Value) -> anyhow::Result<Instance<'a>> {
        create_namespace(cluster, namespace).await?;
        let mut object = sample(cluster)?;
        object["metadata"]["namespace"] = json!(namespace);
        merge(&mut object["spec"], spec);
        cluster.apply(&object)?;
        let replicas = object["spec"]["replicas"].as_u64().unwrap_or(2) as usize;
        let instance = Instance { cluster, namespace: namespace.to_owned(), replicas };
        instance.available()?;
        instance.standby_running().await?;
        Ok(instance)
    }

    /// Waits for the condition Available.
    pub fn available(&self) -> anyhow::Result<()> {
        let resource = format!("mooncakemaster/{NAME}");
        let arguments =
            ["wait", "--for=condition=Available", &resource, "-n", &self.namespace, "--timeout=120s"];
        self.cluster.kubectl(&arguments).map(drop)
    }

    /// Waits until every pod's container runs.
    pub async fn standby_running(&self) -> anyhow::Result<()> {
        eventually("all masters run", Duration::from_secs(60), async || {
            let pods = self.pods().await.ok()?;
            let running = |pod: &&Pod| {
                let status = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref());
                status.is_some_and(|s| s.iter().all(|c| c.started == Some(true)))
            };
            (pods.len() == self.replicas && pods.iter().filter(running).count() == self.replicas)
                .then_some(())
        })
        .await
    }

    /// Waits until the operator reports a standby, for example the active of before.
    pub async fn standby_reported(&self) -> anyhow::Result<()> {
        eventually("a master stands by", Duration::from_secs(60), async || {
            (self.status().await.ok()?["standbyReplicas"] == 1).then_some(())
        })
        .await
    }

    /// Its pods, in the order of their names.
    pub async fn pods(&self) -> anyhow::Result<Vec<Pod>> {
        let selector = ListParams::default().labels(&format!("app.kubernetes.io/instance={NAME}"));
        let mut pods = self.api::<Pod>().list(&selector).await?.items;
        pods.sort_by_key(kube::ResourceExt::name_any);
        Ok(pods)
    }

    /// Restarts of each pod's container, by the pod's name and uid.
    pub async fn restarts(&self) -> anyhow::Result<BTreeMap<(String, String), i32>> {
        let count = |pod: &Pod| {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            statuses.into_iter().flatten().map(|status| status.restart_count).sum()
        };
        let pods = self.pods().await?;
        Ok(pods.iter().map(|pod| ((pod.name_any(), pod.uid().unwrap_or_default()), count(pod))).collect())
    }

    /// Who holds the Lease.
    pub async fn holder(&self) -> anyhow::Result<Holder> {
        let lease = self.api::<Lease>().get(NAME).await?;
        let annotation = |name: &str| {
            lease.annotations().get(name).cloned().with_context(|| format!("Lease without {name}"))
        };
        Ok(Holder {
            epoch: lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0).try_into()?,
            pod: annotation("mooncake.io/pod-name")?,
            incarnation: annotation("mooncake.io/incarnation")?,
        })
    }

    /// Who holds the Lease after `before`.
    pub async fn next_holder(&self, before: &Holder) -> anyhow::Result<Holder> {
        eventually("another master holds the Lease", Duration::from_secs(30), async || {
            self.holder().await.ok().filter(|holder| holder.epoch > before.epoch)
        })
        .await
    }

    /// Where clients connect.
    pub async fn service(&self) -> anyhow::Result<SocketAddr> {
        let service = self.api::<Service>().get(NAME).await?;
        let ip = service.spec.and_then(|spec| spec.cluster_ip).context("the Service has no address")?;
        Ok(SocketAddr::new(ip.parse()?, RPC_PORT))
    }

    /// The address of a pod.
    pub async fn address(&self, pod: &str) -> anyhow::Result<IpAddr> {
        let pod = self.api::<Pod>().get(pod).await?;
        Ok(pod.status.and_then(|status| status.pod_ip).context("the pod has no address")?.parse()?)
    }

    /// Its admin port.
    pub async fn admin(&self, pod: &str) -> anyhow::Result<SocketAddr> {
        Ok(SocketAddr::new(self.address(pod).await?, METRICS_PORT))
    }

    /// The node on which a pod runs.
    pub async fn node(&self, pod: &str) -> anyhow::Result<String> {
        let pod = self.api::<Pod>().get(pod).await?;
        pod.spec.and_then(|spec| spec.node_name).context("the pod has no node")
    }

    /// The one pod beside `active` in an instance of two.
    pub async fn other_than(&self, active: &str) -> anyhow::Result<String> {
        let pods = self.pods().await?;
        let mut others = pods.iter().map(kube::ResourceExt::name_any).filter(|name| name != active);
        let other = others.next().with_context(|| format!("no pod beside {active}"))?;
        ensure!(others.next().is_none(), "more than one pod beside {active}");
        Ok(other)
    }

    /// What the operator told about the resource, as `REASON: note`.
    pub async fn events(&self) -> anyhow::Result<Vec<String>> {
        let events = self.api::<Event>().list(&ListParams::default()).await?.items;
        let of_this = |event: &&Event| {
            let regarding = event.regarding.as_ref();
            regarding.is_some_and(|object| object.kind.as_deref() == Some("MooncakeMaster"))
        };
        let text = |event: &Event| {
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            format!("{}: {}", part(&event.reason), part(&event.note))
        };
        Ok(events.iter().filter(of_this).map(text).collect())
    }

    /// How many calls of the active by the operators that are there now have failed.
    pub async fn failed_calls(&self) -> anyhow::Result<u64> {
        let namespace = self.cluster.operator().await?.namespace().context("namespace")?;
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &namespace);
        let series = format!(
            "mooncake_operator_health_check_failures_total{{name=\"{NAME}\",namespace=\"{}\"}} ",
            self.namespace
        );
        let mut failed = 0;
        for pod in pods.list(&ListParams::default().labels(OPERATOR)).await? {
            let address =
                pod.status.and_then(|status| status.pod_ip).context("the operator has no address")?;
            let page = admin::get(SocketAddr::new(address.parse()?, OPERATOR_PORT), "/metrics").await?;
            // Only the one that leads calls anybody.
            if let Some(count) = page.body.lines().find_map(|line| line.strip_prefix(&series)) {
                failed += count.trim().parse::<u64>()?;
            }
        }
        Ok(failed)
    }

    /// Status and reason of a condition; `None` while there is no condition of that type.
    pub async fn condition(&self, type_: &str) -> anyhow::Result<Option<(String, String)>> {
        let status = self.status().await?;
        let conditions = status["conditions"].as_array().context("no conditions")?;
        let condition = conditions.iter().find(|condition| condition["type"] == type_);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(condition.map(|condition| (text(&condition["status"]), text(&condition["reason"]))))
    }

    /// How long after a fault that the self-probe sees the pod may still be Ready (docs/readiness.md), by the settings
    /// that the resource has.
    pub async fn not_ready_within(&self) -> anyhow::Result<Duration> {
        let spec = self.resource().await?["spec"].take();
        let probe = seconds(&spec, "/rpcHealthProbe/intervalSeconds")?
            + seconds(&spec, "/rpcHealthProbe/timeoutSeconds")?;
        let kubelet = seconds(&spec, "/probes/readiness/periodSeconds")?
            * seconds(&spec, "/probes/readiness/failureThreshold")?
            + seconds(&spec, "/probes/readiness/timeoutSeconds")?;
        Ok(Duration::from_secs(probe + kubelet))
    }

    /// How long after a block of the active another one is Ready at the latest (docs/readiness.md), by the settings that
    /// the resource has.
    pub async fn moved_within(&self) -> anyhow::Result<Duration> {
        const PASS: u64 = 2;
        const RELEASE: u64 = 1;
        let spec = self.resource().await?["spec"].take();
        let (pause, call) = (
            seconds(&spec, "/failover/healthCheck/period")?,
            seconds(&spec, "/failover/healthCheck/timeout")?,
        );
        let calls = seconds(&spec, "/failover/healthCheck/failureThreshold")?;
        let operator = Duration::from_secs(pause + calls * call + (calls - 1) * pause);
        let decided = self.not_ready_within().await?.max(operator).as_secs()
            + seconds(&spec, "/failover/blockedAfter")?;
        let claimed = decided + PASS + RELEASE + seconds(&spec, "/failover/retryPeriod")?;
        let ready = claimed
            + seconds(&spec, "/rpcHealthProbe/timeoutSeconds")?
            + seconds(&spec, "/probes/readiness/periodSeconds")?
            + seconds(&spec, "/probes/readiness/timeoutSeconds")?;
        Ok(Duration::from_secs(ready))
    }

    /// The resource's status.
    pub async fn status(&self) -> anyhow::Result<Value> {
        Ok(self.resource().await?["status"].take())
    }

    async fn resource(&self) -> anyhow::Result<Value> {
        let kind =
            ApiResource::from_gvk(&GroupVersionKind::gvk("store.mooncake.io", "v1alpha1", "MooncakeMaster"));
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.cluster.client.clone(), &self.namespace, &kind);
        Ok(api.get(NAME).await?.data)
    }

    /// Objects of this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    /// Removes the namespace without waiting for it.
    pub async fn delete(self) -> anyhow::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// A number, or a duration of whole seconds such as `5s`, in a resource.
fn seconds(spec: &Value, pointer: &str) -> anyhow::Result<u64> {
    let value = spec.pointer(pointer).with_context(|| format!("spec{pointer}"))?;
    let number = value.as_u64().or_else(|| value.as_str()?.strip_suffix('s')?.parse().ok());
    number.with_context(|| format!("spec{pointer}: whole seconds expected, found {value}"))
}

/// Fields of objects replace those of the same name, as in a JSON merge patch without removals.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Makes a namespace in which the cluster insists on restricted pods.
pub async fn create_namespace(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let namespace = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    Ok(())
}

/// Asks every 100 ms until there is an answer.
///
/// # Errors
/// When there is none within `limit`; `what` says what was waited for.
pub async fn eventually<T>(
    what: &str,
    limit: Duration,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let end = tokio::time::Instant::now() + limit;
    loop {
        if let Some(answer) = ask().await {
            return Ok(answer);
        }
        if tokio::time::Instant::now() >= end {
            bail!("not within {limit:?}: {what}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
