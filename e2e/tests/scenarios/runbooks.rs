//! Every command of every runbook does what it says, and what the alerts watch is there to be scraped.

use crate::readme::on_the_cluster;
use anyhow::{Context as _, ensure};
use mooncake_e2e::{cluster::Cluster, readme::blocks, say};

/// The sample that the runbooks are about.
const SAMPLE: &str = "mooncakemaster/sample";
const MASTERS: &str = "app.kubernetes.io/instance=sample";
const OPERATORS: &str = "app.kubernetes.io/name=mooncake-operator";

pub(crate) fn run(cluster: &Cluster) -> anyhow::Result<()> {
    let logs = cluster.log_directory("runbooks")?;
    // An earlier scenario may have left it on its way out.
    cluster.kubectl(&["wait", "--for=delete", SAMPLE, "-n", "default", "--timeout=60s"])?;
    cluster.kubectl(&["wait", "--for=delete", "pods", "-l", MASTERS, "-n", "default", "--timeout=60s"])?;
    let samples = cluster.file("manifests/samples").to_string_lossy().into_owned();

    let directory = cluster.file("docs/runbooks");
    let mut runbooks =
        std::fs::read_dir(&directory)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    runbooks.sort();
    let mut executed = 0;
    for runbook in runbooks {
        let text = std::fs::read_to_string(&runbook)?;
        // What the runbook before has set beyond the sample stays: each must work on whatever it finds.
        cluster.kubectl(&["apply", "-k", &samples])?;
        settled(cluster)?;
        let mut printed = String::new();
        for block in blocks(&text, "sh") {
            let what = || format!("{}:\n{block}", runbook.display());
            printed += &on_the_cluster(cluster, &block, &logs).with_context(what)?;
            executed += 1;
        }
        let name = runbook.file_stem().context("a name")?.to_string_lossy().into_owned();
        std::fs::write(logs.join(format!("{name}.log")), printed)?;
        settled(cluster).with_context(|| format!("after {}", runbook.display()))?;
    }
    ensure!(executed >= 18, "only {executed} blocks were found: have the runbooks another form?");
    say!("    {executed} blocks of commands executed as they stand");
    exposed(cluster)?;
    on_the_cluster(cluster, "kubectl kustomize manifests/alerts >/dev/null\n", &logs)?;
    cluster.kubectl(&["delete", "-k", &samples, "--wait=false"]).map(drop)
}

/// Waits until two masters of the present template are there, one of which serves and one stands by.
fn settled(cluster: &Cluster) -> anyhow::Result<()> {
    for state in [
        "condition=Progressing=False",
        "condition=Available",
        "jsonpath={.status.replicas}=2",
        "jsonpath={.status.standbyReplicas}=1",
    ] {
        cluster.kubectl(&["wait", &format!("--for={state}"), SAMPLE, "-n", "default", "--timeout=180s"])?;
    }
    Ok(())
}

/// What the documents say is exposed, is, by the operator that leads and by the active. (Which names the rules use is
/// checked without a cluster.)
fn exposed(cluster: &Cluster) -> anyhow::Result<()> {
    let metrics = |namespace: &str, pod: &str, port: u16| {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics");
        cluster.kubectl(&["get", "--raw", &path])
    };
    let names = "-o=jsonpath={.items[*].metadata.name}";
    let namespace = cluster.kubectl(&[
        "get",
        "deployments",
        "-A",
        "-l",
        OPERATORS,
        "-o=jsonpath={.items[0].metadata.namespace}",
    ])?;
    let mut leading = None;
    for pod in cluster.kubectl(&["get", "pods", "-n", &namespace, "-l", OPERATORS, names])?.split(' ') {
        let text = metrics(&namespace, pod, 8080)?;
        if text.contains("mooncake_operator_leading 1\n") {
            leading = Some(text);
        }
    }
    let operator = leading.context("no operator leads")?;
    for name in documented(cluster, "docs/operator-metrics.md")? {
        ensure!(
            operator.contains(&format!("# TYPE {name} ")),
            "the operator does not expose {name}:\n{operator}"
        );
    }
    let series = "mooncake_operator_master_labelled_pods{name=\"sample\",namespace=\"default\"} 1\n";
    ensure!(operator.contains(series), "{series}{operator}");

    let leader = format!("{MASTERS},mooncake.io/store-role=leader");
    let active = cluster.kubectl(&["get", "pods", "-n", "default", "-l", &leader, names])?;
    let master = metrics("default", &active, 9003)?;
    for name in documented(cluster, "docs/metrics.md")? {
        ensure!(
            !name.starts_with("mooncake_master_") || master.contains(&format!("# TYPE {name} ")),
            "{active} does not expose {name}:\n{master}"
        );
    }
    Ok(())
}

/// The names in a generated table of metrics. Not those that come only with what they count, as their text says (no
/// segment is mounted here, and no data call was made).
fn documented(cluster: &Cluster, document: &str) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(cluster.file(document))?;
    let rows = text.lines().filter(|line| !line.contains("absent while there was none"));
    let lines = rows.filter_map(|line| line.strip_prefix("| `"));
    let names: Vec<String> = lines.filter_map(|line| line.split('`').next()).map(str::to_owned).collect();
    ensure!(names.len() > 5, "{document} has another form");
    Ok(names)
}
