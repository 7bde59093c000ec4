//! The operator as a process of the test, with the rights that the manifests give it and without an election: a scenario
//! that ends it at a chosen moment starts it again at once, where a kubelet would wait longer each time.

use crate::cluster::{Cluster, run};
use anyhow::{Context as _, ensure};
use kube::ResourceExt as _;
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tokio::process::Child;

/// A running operator for one namespace. It is killed when dropped.
#[derive(Debug)]
pub struct Operator {
    child: Child,
}

impl Operator {
    /// Starts one with further `arguments`. The cluster's own must have been stopped.
    pub async fn start(
        cluster: &Cluster,
        namespace: &str,
        arguments: &[&str],
        log: &Path,
    ) -> anyhow::Result<Operator> {
        let kubeconfig = kubeconfig(cluster, namespace).await?;
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new("nsenter");
        command
            .args(["--net=/run/netns/k8s", "--"])
            .arg(binary()?)
            .args(["--no-leader-election", "--namespace", namespace, "--http-address", "127.0.0.1:0"])
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        Ok(Operator { child })
    }

    /// Whether it has ended by itself.
    pub fn ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Kills it, and waits until it is gone: what it leaves behind must do for the next one.
    pub async fn end(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// The one that is in the image (scripts/images.sh).
fn binary() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe()?;
    let target = this.ancestors().nth(3).context("the test does not lie in a target directory")?;
    let profile = std::env::var("PROFILE").unwrap_or("release".to_owned());
    let binary = target.join(profile).join("mooncake-operator");
    ensure!(binary.exists(), "{} was not built", binary.display());
    Ok(binary)
}

/// The administrator's kubeconfig with the token of the operator's service account instead; made once for a namespace.
async fn kubeconfig(cluster: &Cluster, namespace: &str) -> anyhow::Result<PathBuf> {
    let file = cluster.kubeconfig().with_file_name(format!("operator-{namespace}.kubeconfig"));
    if file.exists() {
        return Ok(file);
    }
    let deployment = cluster.operator().await?;
    let namespace = deployment.namespace().context("namespace")?;
    let pod = deployment.spec.and_then(|spec| spec.template.spec).context("no pod template")?;
    let account = pod.service_account_name.context("no service account")?;
    let token = cluster.kubectl(&["create", "token", &account, "-n", &namespace, "--duration=1h"])?;
    std::fs::copy(cluster.kubeconfig(), &file)?;
    let set = |arguments: &[&str]| {
        let mut command = Command::new(cluster.programs().join("kubectl"));
        run(command.arg("config").arg("--kubeconfig").arg(&file).args(arguments)).map(drop)
    };
    set(&["set-credentials", "operator", &format!("--token={token}")])?;
    set(&["set-context", "--current", "--user=operator"])?;
    Ok(file)
}
