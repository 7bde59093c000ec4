//! Somebody cannot reach somebody else.

use anyhow::ensure;
use mooncake_e2e::{
    clock::Moment,
    cluster::{CONTROL_NODE, Cluster},
    faults,
    scenario::{self, Scenario},
    store_client::StoreClient,
    watch::Change,
};
use std::time::Duration;

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
        println!(
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
