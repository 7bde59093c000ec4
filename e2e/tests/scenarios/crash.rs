//! The active goes away, and nobody but the masters themselves is there to do something about it.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::DeleteParams};
use mooncake_e2e::{
    clock::Moment,
    cluster::Cluster,
    faults::{kill_container, start_operator, stop_operator},
    gap,
    instance::eventually,
    prober::Seen,
    say,
    scenario::{self, Scenario},
    store_client::{Samples, StoreClient},
    watch::{Change, Watch, timeline},
};
use std::time::Duration;

const ROUNDS: usize = 5;
/// What a client may notice of a crashed active: Get, Exist and Ping.
const MEDIAN: Duration = Duration::from_secs(8);
const MAXIMUM: Duration = Duration::from_secs(10);
/// How long a deleted active may keep its Lease.
const RELEASE: Duration = Duration::from_secs(1);
const SAMPLING: Duration = Duration::from_millis(50);

/// One kill, and what followed.
struct Round {
    fault: Moment,
    samples: Samples,
}

pub(crate) async fn killed(cluster: &Cluster) -> anyhow::Result<()> {
    let body = async |scenario: &Scenario<'_>| {
        let service = scenario.instance.service().await?;
        let mut client = StoreClient::start(cluster, &service.to_string(), 64 << 20, &scenario.logs).await?;
        // It mounts nothing, so it never pings, and no remount tells it of the new active.
        let mut bare = StoreClient::start(cluster, &service.to_string(), 0, &scenario.logs).await?;
        bare.works("bare-before").await?;
        stop_operator(cluster).await?;
        let mut rounds = Vec::new();
        for number in 0..ROUNDS {
            rounds.push(kill_once(cluster, scenario, &mut client, number).await?);
            bare.works(&format!("bare-{number}")).await?;
        }
        start_operator(cluster).await?;
        // Back at work, the operator reports what it missed.
        let holder = scenario.instance.holder().await?;
        eventually("the status shows the Lease", Duration::from_secs(30), async || {
            let status = scenario.instance.status().await.ok()?;
            (status["epoch"] == holder.epoch && status["active"]["pod"] == holder.pod.as_str()).then_some(())
        })
        .await?;
        Ok(rounds)
    };
    let result = scenario::run(cluster, "killed", body, |rounds, seen| judge(&rounds, seen)).await;
    result.and(start_operator(cluster).await)
}

async fn kill_once(
    cluster: &Cluster,
    scenario: &Scenario<'_>,
    client: &mut StoreClient,
    number: usize,
) -> anyhow::Result<Round> {
    let instance = &scenario.instance;
    // A master that died before comes back with the kubelet's back-off.
    instance.standby_running().await?;
    let before = instance.holder().await?;
    let restarts = instance.restarts().await?;
    client.sample(SAMPLING).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;

    let fault = kill_container(cluster, &instance.namespace, &before.pod)?;
    let after = instance.next_holder(&before).await?;
    client.works(&format!("round-{number}")).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let samples = client.samples().await?;

    // The kill hit: the same pod's container was started once more, and who holds the Lease is another process.
    ensure!(after.incarnation != before.incarnation, "the same process holds the Lease: {after:?}");
    instance.standby_running().await?;
    let mut expected = restarts.clone();
    for ((pod, _), count) in &mut expected {
        *count += i32::from(*pod == before.pod);
    }
    let found = instance.restarts().await?;
    ensure!(found == expected, "restarts {found:?}, expected {expected:?}");

    say!("    kill {}: {} -> {} (epoch {})", number + 1, before.pod, after.pod, after.epoch);
    say!("{}", stages(fault, &scenario.watch));
    Ok(Round { fault, samples })
}

/// What happened between the fault and the first ready endpoint.
fn stages(fault: Moment, watch: &Watch) -> String {
    let changes = watch.since(fault);
    let served =
        |(_, change): &(Moment, Change)| matches!(change, Change::Endpoints { ready } if !ready.is_empty());
    let end = changes.iter().position(served).map_or(changes.len(), |index| index + 1);
    timeline(fault, &changes[..end])
}

fn judge(rounds: &[Round], seen: &Seen) -> anyhow::Result<()> {
    let mut worst = Ok(());
    for (call, bounded, gaps) in [
        ("Exist", true, gaps(rounds, |round| gap::after(round.fault, &round.samples.exist))?),
        ("Get", true, gaps(rounds, |round| gap::after(round.fault, &round.samples.get))?),
        ("Ping", true, gaps(rounds, |round| gap::after(round.fault, &seen.pings))?),
        ("Put", false, gaps(rounds, |round| gap::after(round.fault, &round.samples.put))?),
    ] {
        let median = gap::median(&gaps).context("no round")?;
        let maximum = gaps.iter().copied().max().context("no round")?;
        say!("    gap of {call:5} median {median:.1?}, maximum {maximum:.1?}  {gaps:.1?}");
        if bounded && (median > MEDIAN || maximum > MAXIMUM) && worst.is_ok() {
            worst = Err(anyhow::anyhow!(
                "{call}: median {median:?} (at most {MEDIAN:?}), maximum {maximum:?} (at most {MAXIMUM:?})"
            ));
        }
    }
    worst
}

fn gaps(rounds: &[Round], gap: impl Fn(&Round) -> Option<Duration>) -> anyhow::Result<Vec<Duration>> {
    rounds.iter().map(|round| gap(round).context("a gap that never ended")).collect()
}

pub(crate) async fn deleted(cluster: &Cluster) -> anyhow::Result<()> {
    let body = async |scenario: &Scenario<'_>| {
        let instance = &scenario.instance;
        stop_operator(cluster).await?;
        let before = instance.holder().await?;
        // What is measured is the master. The kubelet takes up to two seconds to begin ending a pod that it has only just
        // started, and 0.2 s later in the pod's life.
        tokio::time::sleep(Duration::from_secs(10)).await;
        // Its log goes with it: without this nobody could tell later when it was told to end.
        let _log = cluster.follow(&instance.namespace, &before.pod, &scenario.logs)?;
        let fault = Moment::now();
        instance.api::<Pod>().delete(&before.pod, &DeleteParams::default()).await?;
        let after = instance.next_holder(&before).await?;
        say!("{}", stages(fault, &scenario.watch));
        let given_up = |change: &Change| match change {
            Change::Lease { epoch, released, .. } => *released || *epoch > before.epoch,
            _ => false,
        };
        let changes = scenario.watch.since(fault);
        let (at, _) = changes.iter().find(|(_, change)| given_up(change)).context("no release was seen")?;
        let release = at.since(fault);
        say!("    the Lease was given up {release:.2?} after the deletion; {} holds it", after.pod);
        ensure!(release < RELEASE, "the Lease was given up only after {release:?}");
        let deleted = instance.api::<Pod>().get_opt(&before.pod).await?;
        ensure!(
            deleted
                .is_none_or(|pod| pod.metadata.deletion_timestamp.is_some() || pod.name_any() != after.pod),
            "the deleted pod holds the Lease again"
        );
        Ok(())
    };
    let result = scenario::run(cluster, "deleted", body, |(), _| Ok(())).await;
    result.and(start_operator(cluster).await)
}
