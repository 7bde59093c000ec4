//! The node of the active is emptied, or loses its kubelet: the role moves as planned, and nobody is ended by force.

use crate::blocked::faulty;
use anyhow::{Context as _, ensure};
use mooncake_e2e::{
    clock::Moment,
    cluster::Cluster,
    faults::{Fault, kubelet_outage, start_operator},
    instance::{Holder, Instance},
    say,
    scenario::{self, Scenario},
    store_client::StoreClient,
    watch::{Change, timeline},
};
use serde_json::json;
use std::time::Duration;

pub(crate) async fn drained(cluster: &Cluster) -> anyhow::Result<()> {
    const DRAINED: Duration = Duration::from_secs(60);
    let body = async |scenario: &Scenario<'_>| {
        let instance = &scenario.instance;
        let mut client = client(cluster, scenario).await?;
        let (before, other) = apart(instance).await?;
        let node = instance.node(&before.pod).await?;

        let began = Moment::now();
        let cordoned = Fault::new("the cordoned node", || cluster.kubectl(&["uncordon", &node]).map(drop));
        let patience = format!("--timeout={}s", DRAINED.as_secs());
        cluster.kubectl(&["drain", &node, "--delete-emptydir-data", &patience])?;
        let drained = Moment::now();
        let changes = scenario.watch.since(began);
        say!("{}", timeline(began, &changes));
        let labelled = |change: &Change| *change == Change::Labelled { pod: Some(other.clone()) };
        let ending =
            |change: &Change| matches!(change, Change::Pod { pod, ending: true, .. } if *pod == before.pod);
        // One watch tells both, in their order.
        let at = |is: &dyn Fn(&Change) -> bool| changes.iter().position(|(_, change)| is(change));
        let moved = at(&labelled).with_context(|| format!("{other} did not get the role"))?;
        let evicted = at(&ending).with_context(|| format!("{} was not evicted", before.pod))?;
        ensure!(moved < evicted, "{} was evicted before {other} was the leader", before.pod);
        ensure!(drained.since(began) < DRAINED, "drained only after {:?}", drained.since(began));
        client.works("after").await?;
        say!(
            "    role moved after {:.1} s, evicted after {:.1} s, drained after {:.1} s, the client puts and gets after {:.1} s",
            changes[moved].0.since(began).as_secs_f64(),
            changes[evicted].0.since(began).as_secs_f64(),
            drained.since(began).as_secs_f64(),
            Moment::now().since(began).as_secs_f64()
        );
        cordoned.end()?;
        instance.standby_running().await?;
        let after = instance.holder().await?;
        ensure!(after.pod == other && after.epoch == before.epoch + 1, "before {before:?}, after {after:?}");
        Ok(())
    };
    let result = scenario::run(cluster, "drained", body, |(), _| Ok(())).await;
    // Its pods were evicted, too.
    result.and(start_operator(cluster).await)
}

pub(crate) async fn kubelet_stopped(cluster: &Cluster) -> anyhow::Result<()> {
    const NOT_READY_AFTER: Duration = Duration::from_secs(10);
    /// Until the cluster calls a node without a kubelet not Ready, by the settings of e2e/cluster, and what it takes to
    /// tell of it.
    const NODE_NOT_READY: Duration = Duration::from_secs(25);
    /// From the designation to an endpoint.
    const HANDED_OVER: Duration = Duration::from_secs(10);
    let mut spec = faulty();
    spec["failover"] = json!({"notReadyAfter": format!("{}s", NOT_READY_AFTER.as_secs())});
    let body = async |scenario: &Scenario<'_>| {
        let instance = &scenario.instance;
        let mut client = client(cluster, scenario).await?;
        let (before, other) = apart(instance).await?;
        let address = instance.address(&other).await?.to_string();
        let restarts = instance.restarts().await?;

        let began = Moment::now();
        let outage = kubelet_outage(cluster, &instance.node(&before.pod).await?)?;
        let not_ready =
            |change: &Change| matches!(change, Change::Ready { pod, ready: false } if *pod == before.pod);
        let (unready, _) =
            scenario.watch.first("the pod is not Ready", began, NODE_NOT_READY, not_ready).await?;
        let serves = |change: &Change| change.routes_to(&address);
        let limit = NOT_READY_AFTER + HANDED_OVER;
        let (served, _) = scenario.watch.first("the role is handed over", unready, limit, serves).await?;
        client.works("after").await?;
        say!(
            "    not Ready after {:.1} s, {other} serves {:.1} s after that (at most {limit:.1?}), the client puts and gets after {:.1} s",
            unready.since(began).as_secs_f64(),
            served.since(unready).as_secs_f64(),
            Moment::now().since(began).as_secs_f64()
        );
        let ended = scenario.watch.since(began);
        let ended = ended.iter().find(|(_, change)| matches!(change, Change::Pod { ending: true, .. }));
        ensure!(ended.is_none(), "fenced by force: {ended:?}");
        outage.end()?;
        instance.standby_reported().await?;
        let after = instance.restarts().await?;
        ensure!(after == restarts, "uids and restarts before {restarts:?}, after {after:?}");
        let holder = instance.holder().await?;
        ensure!(
            holder.pod == other && holder.epoch == before.epoch + 1,
            "before {before:?}, after {holder:?}"
        );
        Ok(())
    };
    let result = scenario::run_with(cluster, "kubelet-stopped", &spec, body, |(), _| Ok(())).await;
    // The cluster has evicted its pods from that node, which could not end them.
    result.and(start_operator(cluster).await)
}

/// The active and its standby, on different nodes.
async fn apart(instance: &Instance<'_>) -> anyhow::Result<(Holder, String)> {
    let active = instance.holder().await?;
    let other = instance.other_than(&active.pod).await?;
    let nodes = (instance.node(&active.pod).await?, instance.node(&other).await?);
    ensure!(nodes.0 != nodes.1, "both masters run at {}", nodes.0);
    Ok((active, other))
}

async fn client(cluster: &Cluster, scenario: &Scenario<'_>) -> anyhow::Result<StoreClient> {
    let service = scenario.instance.service().await?;
    StoreClient::start(cluster, &service.to_string(), 64 << 20, &scenario.logs).await
}
