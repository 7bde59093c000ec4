//! A master that got the Lease and hangs before it serves, with no operator there to do something about it.

use crate::blocked::faulty;
use anyhow::{Context as _, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use mooncake_e2e::{
    admin,
    clock::Moment,
    cluster::Cluster,
    faults::{start_operator, stop_operator},
    instance::{Holder, Instance, NAME, eventually},
    say,
    scenario::{self, Scenario},
    watch::Change,
};
use serde_json::json;
use std::time::Duration;

/// From the claim of the one that hangs to an endpoint that serves.
const REPLACED: Duration = Duration::from_secs(30);
/// Longer than anybody waits for it; the longest that there is.
const HANGS: Duration = Duration::from_secs(60);

pub(crate) async fn run(cluster: &Cluster) -> anyhow::Result<()> {
    let body = async |scenario: &Scenario<'_>| {
        stop_operator(cluster).await?;
        claiming(scenario).await?;
        designated(scenario).await
    };
    let result = scenario::run_with(cluster, "hanging", &faulty(), body, |(), _| Ok(())).await;
    result.and(start_operator(cluster).await)
}

/// The active goes away, and the one that claims hangs.
async fn claiming(scenario: &Scenario<'_>) -> anyhow::Result<()> {
    let instance = &scenario.instance;
    let active = instance.holder().await?;
    let hangs = instance.other_than(&active.pod).await?;
    let before = restarts_of(instance, &hangs).await?;
    hang(instance, &hangs, "promote").await?;
    let began = Moment::now();
    instance.api::<Pod>().delete(&active.pod, &DeleteParams::default()).await?;
    let replaced = replaced(scenario, &active, &hangs, began).await?;
    say!("    claiming, {hangs} hung: replaced {:.1} s after its claim", replaced.as_secs_f64());
    // It gave up by itself.
    let after = restarts_of(instance, &hangs).await?;
    ensure!(before == after, "{hangs}: uid and restarts before {before:?}, after {after:?}");
    Ok(())
}

/// The active is asked to hand over to one that then hangs, at the last step before it is Ready: nothing takes longer.
async fn designated(scenario: &Scenario<'_>) -> anyhow::Result<()> {
    let instance = &scenario.instance;
    let active = instance.holder().await?;
    let hangs = instance.other_than(&active.pod).await?;
    // One that has just given up claims nothing for a while, so another process takes its place.
    let gone = restarts_of(instance, &hangs).await?;
    instance.api::<Pod>().delete(&hangs, &DeleteParams::default()).await?;
    eventually("the pod is a new one", Duration::from_secs(30), async || {
        restarts_of(instance, &hangs).await.ok().filter(|present| *present != gone)
    })
    .await?;
    let incarnation = standing_by(instance, &hangs).await?;
    hang(instance, &hangs, "first_probe").await?;
    let restarts = instance.restarts().await?;
    let began = Moment::now();
    let patch = json!({"metadata": {"annotations": {"mooncake.io/designated": incarnation}}});
    instance.api::<Lease>().patch(NAME, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let replaced = replaced(scenario, &active, &hangs, began).await?;
    say!("    designated, {hangs} hung: replaced {:.1} s after its claim", replaced.as_secs_f64());
    let after = instance.restarts().await?;
    ensure!(after == restarts, "restarts before {restarts:?}, after {after:?}");
    Ok(())
}

/// Uid of a pod, and how often its container was started again.
async fn restarts_of(instance: &Instance<'_>, pod: &str) -> anyhow::Result<(String, i32)> {
    let all = instance.restarts().await?;
    let found = all.into_iter().find(|((name, _), _)| name == pod);
    found.map(|((_, uid), count)| (uid, count)).with_context(|| format!("no pod {pod}"))
}

/// The incarnation of a pod, once it stands by.
async fn standing_by(instance: &Instance<'_>, pod: &str) -> anyhow::Result<String> {
    eventually("the other one stands by", Duration::from_secs(30), async || {
        let address = instance.admin(pod).await.ok()?;
        let answer = admin::get(address, "/ha_status").await.ok()?;
        (answer.body.trim() == "standby").then(|| answer.header("mooncake-incarnation").map(str::to_owned))?
    })
    .await
}

async fn hang(instance: &Instance<'_>, pod: &str, step: &str) -> anyhow::Result<()> {
    let millis = HANGS.as_millis();
    let fault = format!("slow_step?step={step}&ms={millis}&for_ms={millis}");
    admin::fault(instance.admin(pod).await?, &fault).await
}

/// Waits until `hangs` has claimed, and somebody else serves; the time in between.
async fn replaced(
    scenario: &Scenario<'_>,
    active: &Holder,
    hangs: &str,
    began: Moment,
) -> anyhow::Result<Duration> {
    let instance = &scenario.instance;
    let higher = |change: &Change| change.claims_after(active.epoch);
    let (claimed, _) = scenario.watch.first("the next claim", began, Duration::from_secs(15), higher).await?;
    let holder = instance.holder().await?;
    ensure!(holder.pod == hangs, "{holder:?} claimed, not {hangs}");
    let next = |change: &Change| change.claims_after(holder.epoch);
    let (given_up, _) = scenario.watch.first("it gives up", claimed, REPLACED, next).await?;
    let next = instance.holder().await?;
    ensure!(next.pod != hangs, "{hangs} holds the Lease again: {next:?}");
    let address = instance.address(&next.pod).await?.to_string();
    let serves = |change: &Change| change.routes_to(&address);
    let (served, _) = scenario.watch.first("the next one serves", given_up, REPLACED, serves).await?;
    let replaced = served.since(claimed);
    ensure!(replaced <= REPLACED, "replaced only after {replaced:?}");
    Ok(replaced)
}
