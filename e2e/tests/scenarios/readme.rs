//! Every command of the README does what it says.

use anyhow::{Context as _, bail, ensure};
use mooncake_e2e::{cluster::Cluster, instance::eventually, readme::blocks, say, store_client::StoreClient};
use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Executed by `scripts/test.sh` around the scenarios: they start or end a cluster, or are this very run.
const EXECUTED_BY_TEST_SH: &[&str] = &["make run\n", "make test\n", "make clean-cluster\n", "make e2e\n"];
const STANDALONE: &str = "cargo run -p mooncake-master\n";

pub(crate) async fn run(cluster: &Cluster) -> anyhow::Result<()> {
    let logs = cluster.log_directory("readme")?;
    let text = std::fs::read_to_string(cluster.file("README.md"))?;
    let script = std::fs::read_to_string(cluster.file("scripts/test.sh"))?;
    let makefile = std::fs::read_to_string(cluster.file("Makefile"))?;
    let mut executed = 0;
    for block in blocks(&text, "sh") {
        if EXECUTED_BY_TEST_SH.contains(&block.as_str()) {
            let target = block.trim().trim_start_matches("make ");
            let by_script = script.contains(&format!("  {}", block.trim()));
            let is_this =
                makefile.contains(&format!("\n{target}: ")) && makefile.contains("@scripts/test.sh");
            ensure!(by_script || is_this, "{block}: scripts/test.sh does not execute it");
            continue;
        }
        if block == STANDALONE {
            standalone(cluster).await?;
        } else {
            on_the_cluster(cluster, &block, &logs)?;
        }
        executed += 1;
    }
    ensure!(executed >= 3, "only {executed} blocks were found: has the README another form?");
    engine(cluster, &text, &logs).await?;
    say!("    {executed} blocks of commands executed as they stand");
    let samples = cluster.file("manifests/samples");
    cluster.kubectl(&["delete", "-k", &samples.to_string_lossy(), "--wait=false"]).map(drop)
}

/// Runs a block in the repository, as somebody whose own cluster this is and who names its images; what it printed.
pub(crate) fn on_the_cluster(cluster: &Cluster, block: &str, logs: &Path) -> anyhow::Result<String> {
    let home = logs.join("home");
    std::fs::create_dir_all(home.join(".kube"))?;
    std::fs::copy(cluster.kubeconfig(), home.join(".kube/config"))?;
    let block = block
        .replace("registry.example.com/mooncake-master:1.0", "localhost/mooncake-master:dev")
        .replace("registry.example.com/mooncake-operator:1.0", "localhost/mooncake-operator:dev")
        .replace("$HOME", &home.to_string_lossy());
    let programs = cluster.programs().to_string_lossy().into_owned();
    let path = std::env::var("PATH").context("PATH")?;
    let output = Command::new("bash")
        .args(["-euc", &block])
        .current_dir(cluster.file(""))
        .env("PATH", format!("{programs}:{path}"))
        .env("KUBECONFIG", home.join(".kube/config"))
        .stdin(Stdio::null())
        .output()?;
    let printed =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    std::fs::write(logs.join("commands.log"), &printed)?;
    ensure!(output.status.success(), "{block}failed:\n{printed}");
    Ok(printed)
}

/// The address that engines are told, as a client in a pod would use it.
async fn engine(cluster: &Cluster, text: &str, logs: &Path) -> anyhow::Result<()> {
    let [block] = &blocks(text, "json")[..] else {
        bail!("one json block expected: the engine's configuration")
    };
    let configuration: serde_json::Value = serde_json::from_str(block)?;
    ensure!(configuration["metadata_server"] == "P2PHANDSHAKE", "{configuration}");
    let master = configuration["master_server_address"].as_str().context("master_server_address")?;
    let mut client = StoreClient::start(cluster, master, 64 << 20, logs).await?;
    ensure!(client.put("engine", 4096).await? == 0, "put through {master}");
    ensure!(client.get("engine", 4096).await?, "get through {master}");
    Ok(())
}

/// The master alone, in the cluster's namespace, where its ports are free.
async fn standalone(cluster: &Cluster) -> anyhow::Result<()> {
    struct Stopped(Child);
    impl Drop for Stopped {
        fn drop(&mut self) {
            // cargo has become the master (it executes it), so this is the master's own pid.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let inside = |command: &str| {
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--net=/run/netns/k8s", "--", "bash", "-c", &format!("exec {command}")]);
        nsenter
            .current_dir(cluster.file(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        nsenter
    };
    let mut master = Stopped(inside(STANDALONE.trim()).spawn()?);
    eventually("the master answers on port 9003", Duration::from_secs(300), async || {
        let ready = inside("curl -sf --max-time 2 http://127.0.0.1:9003/readyz").status();
        ready.is_ok_and(|status| status.success()).then_some(())
    })
    .await?;
    if let Some(status) = master.0.try_wait()? {
        bail!("{STANDALONE}ended: {status}");
    }
    Ok(())
}
