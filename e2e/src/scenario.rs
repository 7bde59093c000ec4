//! The frame around a scenario: an instance, the oracles running beside it, and what is left when it fails.

use crate::{
    clock::Moment,
    cluster::Cluster,
    epochs,
    instance::{Instance, RPC_PORT},
    prober::{Prober, Seen},
    watch::{Watch, timeline},
};
use anyhow::{anyhow, ensure};
use serde_json::{Value, json};
use std::path::PathBuf;

/// What a scenario works with.
#[derive(Debug)]
pub struct Scenario<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The instance, Available when the scenario begins.
    pub instance: Instance<'a>,
    /// The journal of what changed.
    pub watch: Watch,
    /// Where logs of this scenario go.
    pub logs: PathBuf,
}

/// Runs `body` on an instance of the sample with both oracles on, then `judge` on what the prober saw. The instance is
/// removed afterwards; after a failure objects and logs are saved first.
pub async fn run<'a, T>(
    cluster: &'a Cluster,
    name: &str,
    body: impl AsyncFnOnce(&Scenario<'a>) -> anyhow::Result<T>,
    judge: impl FnOnce(T, &Seen) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    run_with(cluster, name, &json!({}), body, judge).await
}

/// The same on an instance with `spec` merged into the sample's.
pub async fn run_with<'a, T>(
    cluster: &'a Cluster,
    name: &str,
    spec: &Value,
    body: impl AsyncFnOnce(&Scenario<'a>) -> anyhow::Result<T>,
    judge: impl FnOnce(T, &Seen) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let logs = cluster.log_directory(name)?;
    let began = Moment::now();
    let outcome = observed(cluster, name, spec, logs.clone(), body, judge).await;
    if let Err((error, changes)) = outcome {
        cluster.dump(&logs);
        std::fs::write(logs.join("timeline.txt"), timeline(began, &changes))?;
        // The next scenario gets its memory and its processors.
        let _ = cluster.kubectl(&["delete", "namespace", name, "--wait=false"]);
        return Err(error.context(format!("objects and logs: {}", logs.display())));
    }
    Ok(())
}

type Failed = (anyhow::Error, Vec<(Moment, crate::watch::Change)>);

async fn observed<'a, T>(
    cluster: &'a Cluster,
    name: &str,
    spec: &Value,
    logs: PathBuf,
    body: impl AsyncFnOnce(&Scenario<'a>) -> anyhow::Result<T>,
    judge: impl FnOnce(T, &Seen) -> anyhow::Result<()>,
) -> Result<(), Failed> {
    let early = |error: anyhow::Error| (error, Vec::new());
    let instance = Instance::create(cluster, name, spec).await.map_err(early)?;
    let service = instance.service().await.map_err(early)?;
    let watch = Watch::start(&cluster.client, name, crate::instance::NAME);
    let prober = Prober::start(watch.pods(), RPC_PORT, service).map_err(early)?;
    let began = Moment::default();
    let scenario = Scenario { cluster, instance, watch, logs };

    let result = body(&scenario).await;
    let seen = prober.finish().await;
    let Scenario { instance, watch, .. } = scenario;
    let changes = watch.since(began);
    let verdict = async {
        let kept = result?;
        let seen = seen?;
        ensure!(!seen.answers.is_empty(), "no mutation of the prober was answered: it has proved nothing");
        epochs::check(&seen.answers).map_err(|violation| anyhow!("two actives: {violation:?}"))?;
        watch.finish().await?;
        crate::say!(
            "    oracles: {} mutations answered, {} not, {} pings; epochs in order, one leader label at a time",
            seen.answers.len(),
            seen.unanswered,
            seen.pings.len()
        );
        judge(kept, &seen)?;
        instance.delete().await
    };
    verdict.await.map_err(|error| (error, changes))
}
