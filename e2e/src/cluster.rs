//! The cluster of a test run: brought up by the scripts of `e2e/cluster`, with the operator on it, and taken down again.

use crate::faults::start_operator;
use anyhow::{Context as _, bail, ensure};
use kube::{
    Api,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{
    fmt,
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

/// Selects the operator's Deployment and its pods.
pub(crate) const OPERATOR: &str = "app.kubernetes.io/name=mooncake-operator";

/// How clients resolve names, in the cluster's directory.
const CLIENT_RESOLVER: &str = "client-resolv.conf";

/// The node at which the control plane and the clients run; the other one is `node2`.
pub const CONTROL_NODE: &str = "node1";

/// Takes the cluster away when dropped, unless that was done before.
#[derive(Debug)]
struct Teardown {
    script: PathBuf,
    done: AtomicBool,
}

impl Teardown {
    fn now(&self) {
        if self.done.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Err(error) = run(Command::new(&self.script).arg("--wipe")) {
            eprintln!("the cluster could not be taken down: {error:#}");
        }
    }
}

impl Drop for Teardown {
    fn drop(&mut self) {
        self.now();
    }
}

/// A cluster of two nodes with the operator on it.
pub struct Cluster {
    /// Administrator's client.
    pub client: kube::Client,
    /// The master's image, by a name that the cluster has.
    pub master_image: String,
    /// Pods of the operator, as the manifests say.
    pub(crate) operators: i32,
    repository: PathBuf,
    data: PathBuf,
    kubectl: PathBuf,
    python: PathBuf,
    teardown: Teardown,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("data", &self.data).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Takes away what an earlier run may have left, starts a cluster, loads the images of the release binaries, and
    /// deploys the operator. The programs of the cluster, the client's Python environment and the binaries must have
    /// been built; `make e2e` does.
    pub async fn start() -> anyhow::Result<Cluster> {
        let repository = repository()?;
        let reasons = Command::new(repository.join("e2e/cluster/preflight.sh")).output()?;
        ensure!(
            reasons.status.success(),
            "the local cluster cannot run here: {}",
            String::from_utf8_lossy(&reasons.stdout).trim().replace('\n', ", ")
        );
        let scripts = repository.join("e2e/cluster");
        let programs = PathBuf::from(run(Command::new(scripts.join("programs.sh")).arg("--where"))?);
        let python = PathBuf::from(run(Command::new(repository.join("scripts/prepare.sh")).arg("client"))?);
        run(Command::new(scripts.join("down.sh")).arg("--wipe"))?;
        let teardown = Teardown { script: scripts.join("down.sh"), done: AtomicBool::new(false) };
        run(Command::new(scripts.join("up.sh")).arg("--two-nodes"))?;

        let names = run(&mut Command::new(repository.join("scripts/images.sh")))?;
        let image = |variable: &str| {
            let value = names.lines().find_map(|line| line.strip_prefix(variable)?.strip_prefix('='));
            value.map(str::to_owned).with_context(|| format!("images.sh printed no {variable}: {names}"))
        };
        let data =
            PathBuf::from(std::env::var("CLUSTER_DIR").unwrap_or("/var/tmp/mooncake-cluster".to_owned()));
        let kubeconfig = Kubeconfig::read_from(data.join("pki/admin.kubeconfig"))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let mut cluster = Cluster {
            client: kube::Client::try_from(config)?,
            master_image: image("MASTER_IMAGE")?,
            operators: 0,
            kubectl: programs.join("kubectl"),
            repository,
            data,
            python,
            teardown,
        };

        let search = "default.svc.cluster.local svc.cluster.local cluster.local";
        let resolver = format!("nameserver 10.250.0.2\nsearch {search}\noptions ndots:5\n");
        std::fs::write(cluster.data.join(CLIENT_RESOLVER), resolver)?;

        let overlay = cluster.data.join("overlay");
        run(Command::new(cluster.repository.join("scripts/overlay.sh"))
            .arg(&overlay)
            .env("OPERATOR_IMAGE", image("OPERATOR_IMAGE")?))?;
        cluster.kubectl(&["apply", "-k", &overlay.to_string_lossy()])?;
        cluster.kubectl(&[
            "wait",
            "--for=condition=Established",
            "crd/mooncakemasters.store.mooncake.io",
            "--timeout=30s",
        ])?;
        cluster.operators = cluster.operator().await?.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        start_operator(&cluster).await?;
        Ok(cluster)
    }

    /// Takes it away now, with everything that runs on it. A second call does nothing.
    pub fn take_down(&self) {
        self.teardown.now();
    }

    /// Runs kubectl as administrator and returns what it printed.
    ///
    /// # Errors
    /// With its standard error when it fails.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        run(self.kubectl_command().args(arguments))
    }

    /// Follows a pod's log into `directory` for as long as the result lives, also beyond the pod's end.
    pub fn follow(
        &self,
        namespace: &str,
        pod: &str,
        directory: &Path,
    ) -> anyhow::Result<tokio::process::Child> {
        let log = File::create(directory.join(format!("{pod}.followed.log")))?;
        let mut command = self.kubectl_command();
        command.args(["logs", "-f", "-n", namespace, pod]).stdin(Stdio::null()).stdout(log);
        Ok(tokio::process::Command::from(command).kill_on_drop(true).spawn()?)
    }

    /// `kubectl apply` of a manifest.
    ///
    /// # Errors
    /// With what kubectl printed, in which a refused field is named.
    pub fn apply(&self, manifest: &serde_json::Value) -> anyhow::Result<String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let file = self.data.join(format!("apply-{}.json", NUMBER.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&file, serde_json::to_vec(manifest)?)?;
        self.kubectl(&["apply", "-f", &file.to_string_lossy()])
    }

    /// The directory of kubectl and the cluster's other programs.
    pub fn programs(&self) -> &Path {
        self.kubectl.parent().unwrap_or(&self.kubectl)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.data.join("pki/admin.kubeconfig")
    }

    /// A file of the repository.
    pub fn file(&self, path: &str) -> PathBuf {
        self.repository.join(path)
    }

    /// The pid of one of the programs that run at `node`.
    pub(crate) fn pid(&self, node: &str, program: &str) -> anyhow::Result<rustix::process::Pid> {
        let of_node = if node == CONTROL_NODE { self.data.clone() } else { self.data.join(node) };
        let file = of_node.join("run").join(format!("{program}.pid"));
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        rustix::process::Pid::from_raw(text.trim().parse()?).context("pid 0")
    }

    /// A command that runs the client's Python inside the cluster's namespace, with the name resolution of a pod in the
    /// namespace `default`.
    pub(crate) fn python(&self) -> Command {
        let resolver = self.data.join(CLIENT_RESOLVER);
        let mut command = Command::new("nsenter");
        command.args(["--net=/run/netns/k8s", "--", "unshare", "--mount", "bash", "-c"]);
        command.arg("mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"").arg(resolver).arg(&self.python);
        command
    }

    /// Where a scenario's logs go; made anew.
    pub fn log_directory(&self, scenario: &str) -> anyhow::Result<PathBuf> {
        let directory = self.repository.join("target/e2e-logs").join(scenario);
        if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        std::fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// Writes what one wants to read after a failure into `directory`.
    pub fn dump(&self, directory: &Path) {
        let save = |name: &str, arguments: &[&str]| {
            let Ok(file) = File::create(directory.join(name)) else { return };
            let errors = file.try_clone().map_or_else(|_| Stdio::null(), Stdio::from);
            let _ = self.kubectl_command().args(arguments).stdout(file).stderr(errors).status();
        };
        save("objects.txt", &["get", "mcm,sts,pods,svc,endpointslices,leases", "-A", "-o", "wide"]);
        save("resources.yaml", &["get", "mcm,pods,leases", "-A", "-o", "yaml"]);
        save("events.txt", &["get", "events", "-A", "--sort-by=.lastTimestamp"]);
        let names = "-o=jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{\"\\n\"}{end}";
        let pods = self.kubectl(&["get", "pods", "-A", names]).unwrap_or_default();
        for (namespace, name) in pods.lines().filter_map(|line| line.split_once(' ')) {
            for previous in ["false", "true"] {
                let file =
                    if previous == "true" { format!("{name}.previous.log") } else { format!("{name}.log") };
                save(&file, &["logs", "-n", namespace, name, &format!("--previous={previous}")]);
            }
        }
    }

    fn kubectl_command(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command
    }

    /// The operator's Deployment, wherever the manifests put it.
    pub(crate) async fn operator(&self) -> anyhow::Result<k8s_openapi::api::apps::v1::Deployment> {
        let all: Api<k8s_openapi::api::apps::v1::Deployment> = Api::all(self.client.clone());
        let parameters = kube::api::ListParams::default().labels(OPERATOR);
        let mut found = all.list(&parameters).await?.items;
        ensure!(found.len() == 1, "one Deployment of the operator expected, {} found", found.len());
        found.pop().context("the one Deployment")
    }
}

/// Runs a command to its end and returns its standard output, trimmed.
///
/// # Errors
/// With everything that it printed, when it fails.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| program.clone())?;
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{program}: {}\n{printed}\n{}", output.status, errors.trim());
    }
    Ok(printed)
}

fn repository() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("the crate lies in the repository")?.to_owned())
}
