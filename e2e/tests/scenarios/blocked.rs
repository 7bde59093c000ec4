//! The active is alive and renews its Lease, but does not serve, and there is nobody who could.

use anyhow::ensure;
use mooncake_e2e::{
    admin,
    clock::Moment,
    cluster::Cluster,
    instance::eventually,
    say,
    scenario::{self, Scenario},
    watch::Change,
};
use serde_json::{Value, json};
use std::time::Duration;

/// From the failed probe of the kubelet to the watch event, on a loaded machine.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// `spec.config` of instances that can be told to misbehave.
pub(crate) fn faulty() -> Value {
    json!({"config": {"enable_fault_injection": "true"}})
}

pub(crate) async fn without_standby(cluster: &Cluster) -> anyhow::Result<()> {
    const HELD: Duration = Duration::from_secs(30);
    let mut spec = faulty();
    spec["replicas"] = json!(1);
    spec["failover"] = json!({"blockedAfter": "5s"});
    let body = async |scenario: &Scenario<'_>| {
        let instance = &scenario.instance;
        let before = (instance.holder().await?, instance.restarts().await?);
        let pod = before.0.pod.clone();
        let within = instance.not_ready_within().await? + ON_THE_WAY;

        let began = Moment::now();
        let hold = format!("hold_shard?index=7&for_ms={}", HELD.as_millis());
        admin::fault(instance.admin(&pod).await?, &hold).await?;
        let not_ready = |change: &Change| matches!(change, Change::Ready { ready: false, .. });
        let (unready, _) = scenario.watch.first("the pod is not Ready", began, within, not_ready).await?;
        let empty = |change: &Change| matches!(change, Change::Endpoints { ready } if ready.is_empty());
        let (gone, _) = scenario.watch.first("no endpoint", began, within + ON_THE_WAY, empty).await?;
        say!(
            "    not Ready after {:.1} s, the endpoint gone after {:.1} s (at most {within:.1?})",
            unready.since(began).as_secs_f64(),
            gone.since(began).as_secs_f64()
        );

        eventually("the operator says that nobody can take over", HELD, async || {
            let (status, reason) = instance.condition("FailoverBlocked").await.ok()??;
            (status == "True" && reason == "NoCandidate").then_some(())
        })
        .await?;
        say!("    FailoverBlocked after {:.1} s", Moment::now().since(began).as_secs_f64());

        let released = began.after(HELD);
        tokio::time::sleep(released.since(Moment::now())).await;
        let serves = |change: &Change| matches!(change, Change::Endpoints { ready } if ready.len() == 1);
        let (back, _) = scenario.watch.first("the endpoint is back", gone, within, serves).await?;
        say!("    back {:.1} s after the release", back.since(released).as_secs_f64());
        ensure!(back > released, "the endpoint came back at {back:?}, the shard was held until {released:?}");
        instance.available()?;
        eventually("nothing is blocked any more", Duration::from_secs(30), async || {
            let (status, _) = instance.condition("FailoverBlocked").await.ok()??;
            (status == "False").then_some(())
        })
        .await?;
        let after = (instance.holder().await?, instance.restarts().await?);
        ensure!(after == before, "before {before:?}, after {after:?}");
        Ok(())
    };
    scenario::run_with(cluster, "blocked-alone", &spec, body, |(), _| Ok(())).await
}
