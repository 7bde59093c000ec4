//! What a scenario does to the cluster.

use crate::{
    clock::Moment,
    cluster::{CONTROL_NODE, Cluster, OPERATOR, run},
    instance::eventually,
};
use anyhow::Context as _;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{fmt, net::IpAddr, process::Command, time::Duration};

/// How the API server goes away.
#[derive(Clone, Copy, Debug)]
pub enum Outage {
    /// Its process is frozen: requests hang.
    Frozen,
    /// Its process is gone: connections are refused.
    Stopped,
}

/// Something that is broken until this is ended or dropped.
pub struct Fault<'a> {
    what: &'static str,
    repair: Option<Box<dyn FnOnce() -> anyhow::Result<()> + 'a>>,
}

impl fmt::Debug for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("what", &self.what).finish_non_exhaustive()
    }
}

impl<'a> Fault<'a> {
    /// `what` is broken, and `repair` repairs it.
    pub fn new(what: &'static str, repair: impl FnOnce() -> anyhow::Result<()> + 'a) -> Fault<'a> {
        Fault { what, repair: Some(Box::new(repair)) }
    }

    /// Repairs it; what was away may need some seconds to be back.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.repair.take().map_or(Ok(()), |repair| repair())
    }
}

impl Drop for Fault<'_> {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.repair.take().map(|repair| repair()) {
            eprintln!("{} could not be repaired: {error:#}", self.what);
        }
    }
}

/// SIGKILL from the node to the main process of a pod's container; returns the moment just before.
pub fn kill_container(cluster: &Cluster, namespace: &str, pod: &str) -> anyhow::Result<Moment> {
    let pid = container_pid(cluster, namespace, pod)?;
    let fault = Moment::now();
    kill_process(pid, Signal::KILL)?;
    Ok(fault)
}

fn container_pid(cluster: &Cluster, namespace: &str, pod: &str) -> anyhow::Result<Pid> {
    let container = run(Command::new(cluster.file("e2e/cluster/container-pid.sh")).args([namespace, pod]))?;
    let (_, pid) = container.split_once(' ').with_context(|| container.clone())?;
    Pid::from_raw(pid.parse()?).context("pid 0")
}

/// Takes the API server away.
pub fn api_outage(cluster: &Cluster, kind: Outage) -> anyhow::Result<Fault<'_>> {
    let pid = cluster.pid(CONTROL_NODE, "kube-apiserver")?;
    let signal = match kind {
        Outage::Frozen => Signal::STOP,
        Outage::Stopped => Signal::KILL,
    };
    kill_process(pid, signal)?;
    Ok(Fault::new("the API server", move || match kind {
        Outage::Frozen => Ok(kill_process(pid, Signal::CONT)?),
        Outage::Stopped => run(up(cluster).arg("kube-apiserver")).map(drop),
    }))
}

/// Ends a node's kubelet; its containers go on.
pub fn kubelet_outage<'a>(cluster: &'a Cluster, node: &str) -> anyhow::Result<Fault<'a>> {
    kill_process(cluster.pid(node, "kubelet")?, Signal::KILL)?;
    let node = node.to_owned();
    Ok(Fault::new("the kubelet", move || run(up(cluster).args(["kubelet", &node])).map(drop)))
}

fn up(cluster: &Cluster) -> Command {
    Command::new(cluster.file("e2e/cluster/up.sh"))
}

/// Cuts the link between the two nodes.
pub fn link_outage(cluster: &Cluster) -> anyhow::Result<Fault<'_>> {
    let network = || Command::new(cluster.file("e2e/cluster/network.sh"));
    run(network().arg("cut"))?;
    Ok(Fault::new("the link between the nodes", move || run(network().arg("mend")).map(drop)))
}

/// Lets nothing from the operator's pods reach `addresses`; everything else stays in reach.
pub async fn cut_operator_off<'a>(cluster: &'a Cluster, addresses: &[IpAddr]) -> anyhow::Result<Fault<'a>> {
    let deployment = cluster.operator().await?;
    let namespace = deployment.namespace().context("namespace")?;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    let addresses = addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
    let mut inside = Vec::new();
    for pod in pods.list(&ListParams::default().labels(OPERATOR)).await? {
        let pid = container_pid(cluster, &namespace, &pod.name_any())?.as_raw_nonzero();
        inside.push(format!("--net=/proc/{pid}/ns/net"));
    }
    let nft = |namespace: &str, commands: &str| {
        run(Command::new("nsenter").args([namespace, "--", "nft", commands])).map(drop)
    };
    for namespace in &inside {
        let chain = "add chain inet mooncake-cut out { type filter hook output priority 0; }";
        let rule = format!("add rule inet mooncake-cut out ip daddr {{ {addresses} }} drop");
        nft(namespace, &format!("add table inet mooncake-cut; {chain}; {rule}"))?;
    }
    Ok(Fault::new("the operator's network", move || {
        inside.iter().try_for_each(|namespace| nft(namespace, "delete table inet mooncake-cut"))
    }))
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
