//! The active is alive and renews its Lease, but does not serve: a shard is held, or its data threads are stuck. The
//! operator gives the role to the standby.

use crate::blocked::faulty;
use anyhow::{Context as _, ensure};
use mooncake_e2e::{
    admin,
    clock::Moment,
    cluster::Cluster,
    instance::eventually,
    say,
    scenario::{self, Scenario},
    store_client::StoreClient,
    watch::{Change, timeline},
};
use serde_json::json;
use std::time::Duration;

/// Longer than anybody waits for its end.
const FOR_MS: u64 = 120_000;

pub(crate) async fn shard_held(cluster: &Cluster) -> anyhow::Result<()> {
    moved(cluster, "blocked-shard", &[format!("hold_shard?index=7&for_ms={FOR_MS}")]).await
}

pub(crate) async fn threads_stuck(cluster: &Cluster) -> anyhow::Result<()> {
    let faults = (0..DATA_THREADS).map(|index| format!("stick_thread?index={index}&for_ms={FOR_MS}"));
    moved(cluster, "blocked-threads", &faults.collect::<Vec<_>>()).await
}

const DATA_THREADS: usize = 2;

async fn moved(cluster: &Cluster, name: &str, blocks: &[String]) -> anyhow::Result<()> {
    let mut spec = faulty();
    spec["config"]["rpc_thread_num"] = json!(DATA_THREADS.to_string());
    spec["failover"] = json!({"blockedAfter": "5s"});
    let body = async |scenario: &Scenario<'_>| {
        let instance = &scenario.instance;
        let service = instance.service().await?;
        let mut client = StoreClient::start(cluster, &service.to_string(), 64 << 20, &scenario.logs).await?;
        ensure!(client.put("before", 4096).await? == 0, "put");
        let before = instance.holder().await?;
        let other = instance.other_than(&before.pod).await?;
        let address = instance.address(&other).await?.to_string();
        let within = instance.moved_within().await? + Duration::from_secs(3);
        let _log = cluster.follow(&instance.namespace, &before.pod, &scenario.logs)?;

        let began = Moment::now();
        let admin = instance.admin(&before.pod).await?;
        for block in blocks {
            admin::fault(admin, block).await?;
        }
        let serves = |change: &Change| change.routes_to(&address);
        let (served, _) = scenario.watch.first("the standby serves", began, within * 2, serves).await?;
        let changes = scenario.watch.since(began);
        say!("{}", timeline(began, &changes));
        client.works("after").await?;
        say!(
            "    {other} serves {:.1} s after the fault (at most {within:.1?}), the client puts and gets after {:.1} s",
            served.since(began).as_secs_f64(),
            Moment::now().since(began).as_secs_f64()
        );
        ensure!(served.since(began) <= within, "moved only after {:?}", served.since(began));
        let restarted =
            changes.iter().find(|(_, change)| matches!(change, Change::Restarts { count: 1.., .. }));
        ensure!(restarted.is_none(), "the kubelet restarted a master before the role moved: {restarted:?}");
        ensure!(instance.holder().await?.pod == other, "{:?} holds the Lease", instance.holder().await?);

        instance.standby_reported().await?;
        let last = eventually("the move is over", Duration::from_secs(30), async || {
            let status = instance.status().await.ok()?;
            (status["move"].is_null() && !status["lastMove"].is_null()).then(|| status["lastMove"].clone())
        })
        .await?;
        ensure!(last["kind"] == "Blocked" && last["outcome"] == "Moved", "status.lastMove: {last}");
        let events = instance.events().await?;
        ensure!(
            events.iter().any(|event| event.contains("index")),
            "no Event says that the index was not carried over: {events:?}"
        );
        Ok(())
    };
    scenario::run_with(cluster, name, &spec, body, |(), _| Ok(())).await.context(name.to_owned())
}
