//! The API server goes away: the active stops answering when its permit ends, and goes on when it is back.

use anyhow::ensure;
use mooncake_e2e::{
    clock::Moment,
    cluster::Cluster,
    faults::{self, Outage},
    instance::eventually,
    prober::Seen,
    say,
    scenario::{self, Scenario},
    store_client::StoreClient,
};
use std::time::Duration;

/// The sample's renew deadline: the permit cannot end later than this after the last answer of the API server.
const RENEW_DEADLINE: Duration = Duration::from_secs(3);
/// From the master's last look at its permit to the prober's reading of the clock: a loaded machine's scheduling.
const ON_THE_WAY: Duration = Duration::from_millis(150);
const KEYS: u64 = 10;

pub(crate) async fn hangs(cluster: &Cluster) -> anyhow::Result<()> {
    away(cluster, "api-server-hangs", Outage::Frozen, Duration::from_secs(10)).await
}

pub(crate) async fn down(cluster: &Cluster) -> anyhow::Result<()> {
    away(cluster, "api-server-down", Outage::Stopped, Duration::from_secs(60)).await
}

async fn away(cluster: &Cluster, name: &str, outage: Outage, length: Duration) -> anyhow::Result<()> {
    let body = async |scenario: &Scenario<'_>| {
        let instance = &scenario.instance;
        let mut client =
            StoreClient::start(cluster, &instance.service().await?.to_string(), 64 << 20, &scenario.logs)
                .await?;
        for number in 0..KEYS {
            let code = client.put(&format!("key-{number}"), 4096).await?;
            ensure!(code == 0, "put: {code}");
        }
        let before = (instance.holder().await?, instance.restarts().await?);

        let fault = faults::api_outage(cluster, outage)?;
        let began = Moment::now();
        tokio::time::sleep(length).await;
        let ended = Moment::now();
        fault.end()?;
        eventually("the API server is back", Duration::from_secs(60), async || {
            cluster.kubectl(&["get", "--raw", "/readyz"]).ok()
        })
        .await?;
        eventually("the client reads again", Duration::from_secs(60), async || {
            (client.exist("key-0").await.ok()? == 1).then_some(())
        })
        .await?;
        say!("    the client reads again {:.1} s after the end", Moment::now().since(ended).as_secs_f64());
        instance.available()?;

        let after = (instance.holder().await?, instance.restarts().await?);
        ensure!(after == before, "before {before:?}, after {after:?}");
        for number in 0..KEYS {
            ensure!(client.get(&format!("key-{number}"), 4096).await?, "key-{number} is gone");
        }
        Ok((began, ended))
    };
    scenario::run(cluster, name, body, |(began, ended), seen| silent(began, ended, seen)).await
}

/// Nothing was answered between the end of the permit and the return of the API server.
fn silent(began: Moment, ended: Moment, seen: &Seen) -> anyhow::Result<()> {
    let permit_end = began.after(RENEW_DEADLINE + ON_THE_WAY);
    let late = seen.answers.iter().find(|answer| answer.received > permit_end && answer.received < ended);
    ensure!(late.is_none(), "answered {late:?}, the API server went away at {began:?}");
    let late = seen.pings.iter().find(|p| p.answered && p.ended > permit_end && p.ended < ended);
    ensure!(late.is_none(), "Ping answered: {late:?}, the API server went away at {began:?}");
    let last = seen.answers.iter().map(|answer| answer.received).filter(|at| *at < ended).max();
    ensure!(
        last.is_some_and(|last| last > began),
        "nothing was answered even at the beginning of the outage"
    );
    if let Some(last) = last {
        say!(
            "    the last answer came {:.2} s after the API server went away",
            last.since(began).as_secs_f64()
        );
    }
    Ok(())
}
