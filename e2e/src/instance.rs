//! One `MooncakeMaster` in a namespace of its own.

use crate::cluster::Cluster;
use anyhow::{Context as _, bail};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Pod, Service},
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

/// An instance, applied.
#[derive(Debug)]
pub struct Instance<'a> {
    cluster: &'a Cluster,
    /// Its namespace.
    pub namespace: String,
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
    /// Creates the namespace, applies the sample, and waits until it is Available with its standby running.
    pub async fn create(cluster: &'a Cluster, namespace: &str) -> anyhow::Result<Instance<'a>> {
        create_namespace(cluster, namespace).await?;
        let mut object = sample(cluster)?;
        object["metadata"]["namespace"] = json!(namespace);
        cluster.apply(&object)?;
        let instance = Instance { cluster, namespace: namespace.to_owned() };
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
            (pods.len() == 2 && pods.iter().filter(running).count() == 2).then_some(())
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

    /// The resource's status.
    pub async fn status(&self) -> anyhow::Result<Value> {
        let kind =
            ApiResource::from_gvk(&GroupVersionKind::gvk("store.mooncake.io", "v1alpha1", "MooncakeMaster"));
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.cluster.client.clone(), &self.namespace, &kind);
        Ok(api.get(NAME).await?.data["status"].take())
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
