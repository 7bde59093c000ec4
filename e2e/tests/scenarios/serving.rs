//! Nothing is broken: what a user sees after an apply, and after a change.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use mooncake_e2e::{
    admin,
    clock::Moment,
    cluster::Cluster,
    instance::{METRICS_PORT, NAME, RPC_PORT, eventually},
    say,
    scenario::{self, Scenario},
    store_client::StoreClient,
    watch::{Change, ROLE_LABEL},
};
use std::{net::SocketAddr, time::Duration};
use tokio::net::TcpStream;

const OBJECTS: u64 = 20;

pub(crate) async fn a_pair_serves(cluster: &Cluster) -> anyhow::Result<()> {
    let body = async |scenario: &Scenario<'_>| {
        let instance = &scenario.instance;
        let holder = instance.holder().await?;
        let status = instance.status().await?;
        ensure!(status["active"]["pod"] == holder.pod.as_str(), "status {status}, Lease {holder:?}");
        ensure!(status["epoch"] == holder.epoch, "status {status}, Lease {holder:?}");

        for pod in instance.pods().await? {
            let address = instance.address(&pod.name_any()).await?;
            let rpc = TcpStream::connect((address, RPC_PORT)).await;
            let ready = admin::get(SocketAddr::new(address, METRICS_PORT), "/readyz").await?.status;
            let alive = admin::get(SocketAddr::new(address, METRICS_PORT), "/health").await?.status;
            let labelled = pod.labels().contains_key(ROLE_LABEL);
            let expected = if pod.name_any() == holder.pod { (true, true, 200) } else { (false, false, 503) };
            ensure!(
                (labelled, rpc.is_ok(), ready) == expected,
                "{}: {labelled} {rpc:?} {ready}",
                pod.name_any()
            );
            ensure!(alive == 200, "{}: /health {alive}", pod.name_any());
        }

        let (active, standby) = (&holder.pod, instance.other_than(&holder.pod).await?);
        let nodes = (instance.node(active).await?, instance.node(&standby).await?);
        ensure!(nodes.0 != nodes.1, "both masters run at {}", nodes.0);

        let service = instance.service().await?;
        let mut owner = StoreClient::start(cluster, &service.to_string(), 64 << 20, &scenario.logs).await?;
        let mut reader = StoreClient::start(cluster, &service.to_string(), 0, &scenario.logs).await?;
        for number in 0..OBJECTS {
            let (key, size) = (format!("object-{number}"), 1 << number);
            let writer = if number % 2 == 0 { &mut owner } else { &mut reader };
            let code = writer.put(&key, size).await?;
            ensure!(code == 0, "put {key}: {code}");
        }
        for number in 0..OBJECTS {
            let (key, size) = (format!("object-{number}"), 1 << number);
            ensure!(reader.get(&key, size).await?, "the client without memory does not find {key}");
            ensure!(owner.get(&key, size).await?, "the client with memory does not find {key}");
        }
        Ok(())
    };
    scenario::run(cluster, "a-pair-serves", body, |(), _| Ok(())).await
}

pub(crate) async fn roll(cluster: &Cluster) -> anyhow::Result<()> {
    let body = async |scenario: &Scenario<'_>| {
        let instance = &scenario.instance;
        let before = instance.pods().await?;
        let active = instance.holder().await?.pod;
        let began = Moment::now();
        let patch = r#"{"spec":{"podAnnotations":{"example.com/changed":"yes"}}}"#;
        let resource = format!("mooncakemaster/{NAME}");
        cluster.kubectl(&["patch", &resource, "-n", &instance.namespace, "--type=merge", "-p", patch])?;

        let mut replaced: Vec<String> = Vec::new();
        let is_new = |pod: &Pod| pod.annotations().contains_key("example.com/changed");
        eventually("both masters are new", Duration::from_secs(120), async || {
            for pod in instance.pods().await.ok()?.iter().filter(|pod| is_new(pod)) {
                if !replaced.contains(&pod.name_any()) {
                    replaced.push(pod.name_any());
                }
            }
            (replaced.len() == before.len()).then_some(())
        })
        .await?;
        ensure!(replaced.last() == Some(&active), "the active, {active}, was not the last of {replaced:?}");
        instance.available()?;
        eventually("Progressing is over", Duration::from_secs(60), async || {
            let status = instance.status().await.ok()?;
            let conditions = status["conditions"].as_array()?;
            let progressing = conditions.iter().find(|c| c["type"] == "Progressing")?;
            (progressing["status"] == "False").then_some(())
        })
        .await?;
        let endpoints = scenario.watch.since(began);
        let last = endpoints.iter().rev().find_map(|(_, change)| match change {
            Change::Endpoints { ready } => Some(ready.clone()),
            _ => None,
        });
        let holder = instance.holder().await?;
        let address = instance.address(&holder.pod).await?.to_string();
        ensure!(last.context("no endpoints")? == [address], "the Service does not route to {}", holder.pod);
        say!("    rolled {replaced:?} in {:.1} s", Moment::now().since(began).as_secs_f64());
        Ok(())
    };
    scenario::run(cluster, "roll", body, |(), _| Ok(())).await
}
