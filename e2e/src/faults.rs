//! What a scenario does to the cluster.

use crate::{
    clock::Moment,
    cluster::{Cluster, OPERATOR, run},
    instance::eventually,
};
use anyhow::Context as _;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{process::Command, time::Duration};

/// How the API server goes away.
#[derive(Clone, Copy, Debug)]
pub enum Outage {
    /// Its process is frozen: requests hang.
    Frozen,
    /// Its process is gone: connections are refused.
    Stopped,
}

/// SIGKILL from the node to the main process of a pod's container; returns the moment just before.
pub fn kill_container(cluster: &Cluster, namespace: &str, pod: &str) -> anyhow::Result<Moment> {
    let container = run(Command::new(cluster.file("e2e/cluster/container-pid.sh")).args([namespace, pod]))?;
    let (_, pid) = container.split_once(' ').with_context(|| container.clone())?;
    let pid = Pid::from_raw(pid.parse()?).context("pid 0")?;
    let fault = Moment::now();
    kill_process(pid, Signal::KILL)?;
    Ok(fault)
}

/// The API server is away until this is ended or dropped.
#[derive(Debug)]
pub struct ApiOutage<'a> {
    cluster: &'a Cluster,
    kind: Outage,
    over: bool,
}

impl<'a> ApiOutage<'a> {
    /// Takes the API server away.
    pub fn begin(cluster: &'a Cluster, kind: Outage) -> anyhow::Result<ApiOutage<'a>> {
        let pid = cluster.pid("kube-apiserver")?;
        let signal = match kind {
            Outage::Frozen => Signal::STOP,
            Outage::Stopped => Signal::KILL,
        };
        kill_process(pid, signal)?;
        Ok(ApiOutage { cluster, kind, over: false })
    }

    /// Brings it back; it may need some seconds until it answers.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.bring_back()
    }

    fn bring_back(&mut self) -> anyhow::Result<()> {
        if std::mem::replace(&mut self.over, true) {
            return Ok(());
        }
        match self.kind {
            Outage::Frozen => Ok(kill_process(self.cluster.pid("kube-apiserver")?, Signal::CONT)?),
            Outage::Stopped => {
                run(Command::new(self.cluster.file("e2e/cluster/up.sh")).arg("kube-apiserver")).map(drop)
            }
        }
    }
}

impl Drop for ApiOutage<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.bring_back() {
            eprintln!("the API server could not be brought back: {error:#}");
        }
    }
}

/// Takes all of the operator's pods away, and waits until they are gone.
pub async fn stop_operator(cluster: &Cluster) -> anyhow::Result<()> {
    scale_operator(cluster, 0).await
}

/// Brings back as many of the operator's pods as the manifests say, and waits until they are Ready.
pub async fn start_operator(cluster: &Cluster) -> anyhow::Result<()> {
    scale_operator(cluster, cluster.operators).await
}

async fn scale_operator(cluster: &Cluster, replicas: i32) -> anyhow::Result<()> {
    let deployment = cluster.operator().await?;
    let namespace = deployment.namespace().context("namespace")?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), &namespace);
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    let patch = serde_json::json!({"spec": {"replicas": replicas}});
    deployments.patch_scale(&deployment.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let selector = ListParams::default().labels(OPERATOR);
    eventually("the operator is scaled", Duration::from_secs(60), async || {
        let present = pods.list(&selector).await.ok()?.items.len();
        let status = deployments.get(&deployment.name_any()).await.ok()?.status.unwrap_or_default();
        (present == replicas as usize && status.ready_replicas.unwrap_or(0) == replicas).then_some(())
    })
    .await
}
