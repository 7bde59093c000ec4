//! Somebody cannot reach somebody else, and nothing is wrong with the masters; or the active itself is cut off.

use crate::blocked::faulty;
use anyhow::ensure;
use kube::ResourceExt as _;
use mooncake_e2e::{
    admin,
    clock::Moment,
    cluster::{CONTROL_NODE, Cluster},
    epochs::Answer,
    faults,
    instance::eventually,
    prober::Seen,
    say,
    scenario::{self, Scenario},
    store_client::StoreClient,
    watch::Change,
};
use serde_json::json;
use std::time::Duration;

/// One failed call is not three; and what only the operator cannot reach is not blocked.
pub(crate) async fn operator(cluster: &Cluster) -> anyhow::Result<()> {
    const CUT: Duration = Duration::from_secs(65);
    /// Longer than it takes until a call has failed. The next one begins 2 s later and looks for the shard for 2 s, so that
    /// one that is freed as soon as the failure is seen fails that one call and no other.
    const HELD: Duration = Duration::from_secs(30);
    /// A period and a call's deadline: the master may have been called before it served.
    const A_CALL: Duration = Duration::from_secs(2 + 3);
    /// Recoveries are told of once in a minute, the newest one then.
    const TOLD: Duration = Duration::from_secs(60 + 10);
    let mut spec = faulty();
    spec["failover"] = json!({"blockedAfter": "5s"});
    let body = async |scenario: &Scenario<'_>| {
        let instance = &scenario.instance;
        let recovered = async || {
            let events = instance.events().await.ok()?;
            events.into_iter().find(|e| e.starts_with("HealthCheckRecovered") && e.contains("shard 7"))
        };
        let before = (instance.holder().await?, instance.restarts().await?);
        let failed_before = eventually("calls of the operator go well", TOLD, async || {
            let failed = instance.failed_calls().await.ok()?;
            tokio::time::sleep(A_CALL).await;
            (instance.failed_calls().await.ok()? == failed).then_some(failed)
        })
        .await?;
        let began = Moment::now();
        let master = instance.admin(&before.0.pod).await?;
        admin::fault(master, &format!("hold_shard?index=7&for_ms={}", HELD.as_millis())).await?;
        eventually("a call of the operator fails", HELD, async || {
            (instance.failed_calls().await.ok()? > failed_before).then_some(())
        })
        .await?;
        admin::end_faults(master).await?;
        let event = eventually("an Event says what was seen", TOLD, async || recovered().await).await?;
        say!("    {event}");
        let failed = instance.failed_calls().await? - failed_before;
        ensure!(failed == 1 && event.contains("failed 1 in a row"), "{failed} calls have failed: {event}");
        instance.available()?;

        let mut addresses = Vec::new();
        for pod in instance.pods().await? {
            addresses.push(instance.address(&pod.name_any()).await?);
        }
        let cut = faults::cut_operator_off(cluster, &addresses).await?;
        let cut_at = Moment::now();
        let told = eventually("the operator says that it is cut off", CUT, async || {
            let (status, reason) = instance.condition("Degraded").await.ok()??;
            (status == "True" && reason == "OperatorCutOff").then(Moment::now)
        })
        .await?;
        say!("    cut off, and says so after {:.1} s", told.since(cut_at).as_secs_f64());
        tokio::time::sleep(cut_at.after(CUT).since(Moment::now())).await;
        let after = (instance.holder().await?, instance.restarts().await?);
        cut.end()?;
        eventually("nothing needs attention any more", Duration::from_secs(30), async || {
            let (status, _) = instance.condition("Degraded").await.ok()??;
            (status == "False").then_some(())
        })
        .await?;
        ensure!(after == before, "before {before:?}, after {after:?}");
        let moved = |change: &Change| match change {
            Change::Lease { epoch, released, .. } => *released || *epoch != before.0.epoch,
            Change::Labelled { pod } => pod.as_ref() != Some(&before.0.pod),
            Change::Pod { ending, .. } => *ending,
            _ => false,
        };
        let changes = scenario.watch.since(began);
        let moves: Vec<_> = changes.iter().filter(|(_, change)| moved(change)).collect();
        ensure!(moves.is_empty(), "moved: {moves:?}");
        say!("    cut off for {CUT:.0?}, nothing moved");
        Ok((cut_at, cut_at.after(CUT)))
    };
    let answered = |(began, ended): (Moment, Moment), seen: &Seen| {
        let during = |answer: &&Answer| answer.sent > began && answer.received < ended;
        let count = seen.answers.iter().filter(during).count();
        ensure!(count > 500, "only {count} mutations were answered: the active was not healthy");
        Ok(())
    };
    scenario::run_with(cluster, "operator-cut-off", &spec, body, answered).await
}

/// The active's node hears nobody, and is heard by nobody.
pub(crate) async fn active(cluster: &Cluster) -> anyhow::Result<()> {
    const TAKEN_OVER: Duration = Duration::from_secs(10);
    let body = async |scenario: &Scenario<'_>| {
        let instance = &scenario.instance;
        // The clients and the control plane are at the first node: the active must be at the other.
        while instance.node(&instance.holder().await?.pod).await? == CONTROL_NODE {
            let holder = instance.holder().await?;
            cluster.kubectl(&["delete", "pod", &holder.pod, "-n", &instance.namespace])?;
            instance.next_holder(&holder).await?;
        }
        instance.available()?;
        instance.standby_running().await?;
        let before = instance.holder().await?;
        let mut client =
            StoreClient::start(cluster, &instance.service().await?.to_string(), 64 << 20, &scenario.logs)
                .await?;

        let cut = faults::link_outage(cluster)?;
        let began = Moment::now();
        let claimed = |change: &Change| change.claims_after(before.epoch);
        let (at, _) = scenario.watch.first("the standby claims", began, TAKEN_OVER, claimed).await?;
        let other = instance.other_than(&before.pod).await?;
        let address = instance.address(&other).await?.to_string();
        let serves = |change: &Change| change.routes_to(&address);
        let (served, _) = scenario.watch.first("the standby serves", began, TAKEN_OVER * 2, serves).await?;
        client.works("after").await?;
        say!(
            "    claimed after {:.1} s, in the Service after {:.1} s, the client puts and gets after {:.1} s",
            at.since(began).as_secs_f64(),
            served.since(began).as_secs_f64(),
            Moment::now().since(began).as_secs_f64()
        );
        cut.end()?;
        instance.standby_running().await?;
        instance.standby_reported().await?;
        let after = instance.holder().await?;
        ensure!(after.pod == other, "{after:?} holds the Lease, {other} took over");
        Ok(())
    };
    scenario::run(cluster, "active-cut-off", body, |(), _| Ok(())).await
}
