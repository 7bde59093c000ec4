//! What the API server refuses by itself: the definition's own rules.

use anyhow::{Context as _, ensure};
use mooncake_e2e::{
    cluster::Cluster,
    instance::{create_namespace, sample},
    say,
};
use serde_json::{Value, json};

const NAMESPACE: &str = "refused";

/// What is done to a good resource, and which field the refusal has to name (one of these spellings).
struct Case {
    what: &'static str,
    paths: &'static [&'static str],
    break_it: fn(&mut Value),
}

const CASES: &[Case] = &[
    Case { what: "replicas 0", paths: &["spec.replicas"], break_it: |o| o["spec"]["replicas"] = json!(0) },
    Case {
        what: "equal ports",
        paths: &["spec.ports"],
        break_it: |o| o["spec"]["ports"] = json!({"rpc": 9003, "metrics": 9003}),
    },
    Case {
        what: "renewDeadline not below leaseDuration",
        paths: &["spec.failover"],
        break_it: |o| {
            let failover = json!({"leaseDuration": "5s", "renewDeadline": "5s", "retryPeriod": "1s"});
            o["spec"]["failover"] = failover;
        },
    },
    Case { what: "empty image", paths: &["spec.image"], break_it: |o| o["spec"]["image"] = json!("") },
    Case {
        what: "name too long for what is derived from it",
        paths: &["metadata.name"],
        break_it: |o| o["metadata"]["name"] = json!("n".repeat(100)),
    },
];

pub(crate) async fn run(cluster: &Cluster) -> anyhow::Result<()> {
    create_namespace(cluster, NAMESPACE).await?;
    for Case { what, paths, break_it } in CASES {
        let mut object = sample(cluster)?;
        object["metadata"]["namespace"] = json!(NAMESPACE);
        break_it(&mut object);
        let refusal = cluster.apply(&object).err().with_context(|| format!("{what}: accepted"))?;
        let text = format!("{refusal:#}");
        ensure!(paths.iter().any(|path| text.contains(path)), "{what}: {paths:?} not named in: {text}");
        say!("    {what}: {}", text.lines().last().unwrap_or_default().trim());
    }
    let none = cluster.kubectl(&["get", "mooncakemasters", "-n", NAMESPACE, "-o", "name"])?;
    ensure!(none.is_empty(), "created all the same: {none}");
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"]).map(drop)
}
