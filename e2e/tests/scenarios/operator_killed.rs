//! The operator dies in the middle of a move, before each of the writes that a move needs in turn.

use crate::blocked::faulty;
use anyhow::{Context as _, anyhow, ensure};
use mooncake_e2e::{
    admin,
    clock::Moment,
    cluster::Cluster,
    faults::{Fault, start_operator, stop_operator},
    instance::{Holder, eventually},
    operator::Operator,
    report, say,
    scenario::{self, Scenario},
    watch::Change,
};
use serde_json::json;
use std::{thread, time::Duration};
use tokio::runtime::Handle;

/// From the start of the next operator on.
const CONVERGED: Duration = Duration::from_secs(30);
/// A move that needs more writes than this does something else than moving.
const MOST_WRITES: usize = 24;
/// To status that it begins, to the old active or its pod, to status that it is over.
const LEAST_WRITES: usize = 3;
/// How many run at a time.
const INSTANCES: usize = 3;
const COOLDOWN: Duration = Duration::from_secs(10);

pub(crate) async fn run(cluster: &Cluster) -> anyhow::Result<()> {
    stop_operator(cluster).await?;
    // A cordoned node is everybody's, a blocked active is not: those are tried with several instances at a time.
    let result = match side_by_side(cluster) {
        Ok(()) => one(cluster, "operator-killed".to_owned(), Kind::NodeDrain, 1, 1).await,
        failed => failed,
    };
    result.and(start_operator(cluster).await)
}

/// Each instance on a thread of its own, since commands block it.
fn side_by_side(cluster: &Cluster) -> anyhow::Result<()> {
    let runtime = Handle::current();
    let try_from = |first: usize| {
        let name = format!("operator-killed-{first}");
        let result = runtime.block_on(one(cluster, name, Kind::Blocked, first, INSTANCES));
        (report::take(), result)
    };
    let ended: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=INSTANCES)
            .map(|first| {
                scope.spawn({
                    let try_from = &try_from;
                    move || try_from(first)
                })
            })
            .collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut results = Vec::new();
    for thread in ended {
        let (said, result) = thread.map_err(|_| anyhow!("a thread panicked"))?;
        say!("{}", said.trim_end());
        results.push(result);
    }
    results.into_iter().collect()
}

/// Tries every `step`th write from number `first` on, with an instance of its own.
async fn one(cluster: &Cluster, name: String, kind: Kind, first: usize, step: usize) -> anyhow::Result<()> {
    let mut spec = faulty();
    // As fast as the definition allows: what is looked for lies after the decision.
    spec["failover"] = json!({
        "blockedAfter": "2s",
        "cooldown": format!("{}s", COOLDOWN.as_secs()),
        "healthCheck": {"period": "500ms", "timeout": "1s", "failureThreshold": 2},
    });
    spec["rpcHealthProbe"] = json!({"intervalSeconds": 1, "timeoutSeconds": 1});
    // Nobody else makes what the resource asks for.
    let log = cluster.log_directory(&format!("{name}-operator"))?.join("first.log");
    let operator = Operator::start(cluster, &name, &[], &log).await?;
    let body = async |scenario: &Scenario<'_>| {
        operator.end().await?;
        sweep(scenario, kind, first, step).await
    };
    scenario::run_with(cluster, &name, &spec, body, |(), _| Ok(())).await
}

/// What makes the operator move the role.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Blocked,
    NodeDrain,
}

/// One move after the other, each ended before another of its writes, until one comes to its end undisturbed.
async fn sweep(scenario: &Scenario<'_>, kind: Kind, first: usize, step: usize) -> anyhow::Result<()> {
    for write in (first..=MOST_WRITES).step_by(step) {
        if !ended_at(scenario, kind, write).await.with_context(|| format!("{kind:?}, write {write}"))? {
            ensure!(write > LEAST_WRITES, "{kind:?}: a move with less than {write} writes");
            say!("    {kind:?}: a move has less than {write} writes");
            return Ok(());
        }
    }
    anyhow::bail!("{kind:?}: {MOST_WRITES} writes and more")
}

/// Moves the role with an operator that ends before its write number `write`. False: it came to its end before that.
async fn ended_at(scenario: &Scenario<'_>, kind: Kind, write: usize) -> anyhow::Result<bool> {
    let (cluster, instance) = (scenario.cluster, &scenario.instance);
    let log = scenario.logs.join("operator.log");
    let plain = Operator::start(cluster, &instance.namespace, &[], &log).await?;
    let settled = Moment::now();
    eventually("both masters are as they should be", Duration::from_secs(60), async || {
        let status = instance.status().await.ok()?;
        let at_rest =
            status["move"].is_null() && status["standbyReplicas"] == 1 && status["readyReplicas"] == 1;
        let cool = kind != Kind::Blocked || Moment::now().since(settled) > COOLDOWN;
        (at_rest && cool).then_some(())
    })
    .await?;
    plain.end().await?;

    let before = instance.holder().await?;
    let arguments = ["--exit-before-write", &write.to_string()];
    let mut mortal = Operator::start(cluster, &instance.namespace, &arguments, &log).await?;
    let began = Moment::now();
    let node = instance.node(&before.pod).await?;
    let mut cordoned = None;
    match kind {
        Kind::Blocked => {
            admin::fault(instance.admin(&before.pod).await?, "hold_shard?index=7&for_ms=120000").await?;
        }
        Kind::NodeDrain => {
            let uncordon = || cluster.kubectl(&["uncordon", &node]).map(drop);
            cordoned = Some(Fault::new("the cordoned node", uncordon));
            cluster.kubectl(&["cordon", &node])?;
        }
    }
    let died =
        eventually("the operator dies or is done", Duration::from_secs(60), async || match mortal.ended() {
            Ok(true) => Some(true),
            _ => done(scenario, &before).await.then_some(false),
        })
        .await?;
    if !died {
        cordoned.map_or(Ok(()), Fault::end)?;
        mortal.end().await?;
        return Ok(false);
    }
    let at = Moment::now();
    let next = Operator::start(cluster, &instance.namespace, &[], &log).await?;
    eventually("the move is done", CONVERGED, async || done(scenario, &before).await.then_some(())).await?;
    say!(
        "    {kind:?}: ended {:.1} s after the fault, before write {write}: done {:.1} s after the next one's start",
        at.since(began).as_secs_f64(),
        Moment::now().since(at).as_secs_f64()
    );
    cordoned.map_or(Ok(()), Fault::end)?;
    next.end().await?;
    Ok(true)
}

/// Another master than `before` holds the Lease, carries the label, is in the Service, and no move is under way.
async fn done(scenario: &Scenario<'_>, before: &Holder) -> bool {
    let check = async {
        let instance = &scenario.instance;
        let holder = instance.holder().await?;
        let address = instance.address(&holder.pod).await?.to_string();
        let status = instance.status().await?;
        let changes = scenario.watch.since(Moment::default());
        let last = |is: fn(&Change) -> bool| {
            changes.iter().rev().map(|(_, change)| change).find(|change| is(change))
        };
        let labelled = last(|change| matches!(change, Change::Labelled { .. }));
        let endpoints = last(|change| matches!(change, Change::Endpoints { .. }));
        anyhow::Ok(
            holder.epoch > before.epoch
                && labelled == Some(&Change::Labelled { pod: Some(holder.pod.clone()) })
                && endpoints.is_some_and(|change| change.routes_to(&address))
                && status["move"].is_null()
                && status["active"]["pod"] == holder.pod.as_str(),
        )
    };
    check.await.unwrap_or(false)
}
