//! etcd and kube-apiserver on loopback: the real admission, defaulting, RBAC and server-side apply.

use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::AuthInfo,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Who talks to the API server.
#[derive(Clone, Copy)]
pub(crate) enum Who {
    /// May do everything.
    Admin,
    /// The operator's account of `manifests/base`, with just the rights given there.
    Operator,
    /// The operator's account of `manifests/namespaced`.
    NamespacedOperator,
    /// The account of a master, without rights.
    Master,
}

impl Who {
    fn token(self) -> &'static str {
        match self {
            Who::Admin => "admin",
            Who::Operator => "operator",
            Who::NamespacedOperator => "namespaced-operator",
            Who::Master => "master",
        }
    }
}

/// A running API server; dropping it ends it.
pub(crate) struct Server {
    api: Child,
    etcd: Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in [&mut self.api, &mut self.etcd] {
            // It may have ended by itself; the directory goes away in any case.
            _ = child.kill();
            _ = child.wait();
        }
    }
}

/// Where the programs are: `MOONCAKE_E2E_BIN`, or where the cluster's script has built them.
fn programs() -> PathBuf {
    if let Some(directory) = std::env::var_os("MOONCAKE_E2E_BIN") {
        return directory.into();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/cluster/programs.sh");
    let found = Command::new(&script).arg("--where").output().expect("programs.sh runs");
    assert!(
        found.status.success(),
        "this test needs etcd and kube-apiserver: build them once with e2e/cluster/programs.sh, or name a directory \
         that has them in MOONCAKE_E2E_BIN"
    );
    PathBuf::from(String::from_utf8(found.stdout).expect("a path").trim())
}

/// Ports that nobody uses now.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    // All at once, so that they differ.
    let listeners = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}

/// Ends with the test's process, however that ends.
fn spawn(program: &Path, directory: &Path, arguments: &[String]) -> Child {
    let name = program.file_name().expect("a name").to_string_lossy();
    let log = fs::File::create(directory.join(format!("{name}.log"))).expect("a log");
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

impl Server {
    /// Starts both programs, and applies the definition and the operator's rights.
    pub(crate) async fn start() -> Server {
        let programs = programs();
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        let [client, peer, port] = free_ports::<3>();
        let local = |port: u16| format!("http://127.0.0.1:{port}");
        let etcd = spawn(
            &programs.join("etcd"),
            path,
            &[
                "--data-dir=etcd".to_owned(),
                format!("--listen-client-urls={}", local(client)),
                format!("--advertise-client-urls={}", local(client)),
                format!("--listen-peer-urls={}", local(peer)),
                format!("--initial-advertise-peer-urls={}", local(peer)),
                format!("--initial-cluster=default={}", local(peer)),
                "--unsafe-no-fsync".to_owned(),
            ],
        );
        let key =
            Command::new("openssl").args(["genrsa", "-out", "sa.key", "2048"]).current_dir(path).output();
        assert!(key.expect("openssl runs").status.success());
        let accounts = [
            (Who::Operator, "mooncake-system", "mooncake-operator"),
            (Who::NamespacedOperator, "mooncake", "mooncake-operator"),
            (Who::Master, "flow", "m-master"),
        ];
        let mut tokens = vec!["admin,admin,1,system:masters".to_owned()];
        tokens.extend(accounts.map(|(who, namespace, account)| {
            let (token, groups) =
                (who.token(), format!("system:serviceaccounts,system:serviceaccounts:{namespace}"));
            format!("{token},system:serviceaccount:{namespace}:{account},{token},\"{groups}\"")
        }));
        fs::write(path.join("tokens"), tokens.join("\n")).expect("tokens");
        let api = spawn(
            &programs.join("kube-apiserver"),
            path,
            &[
                format!("--etcd-servers={}", local(client)),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={port}"),
                "--cert-dir=certificates".to_owned(),
                "--token-auth-file=tokens".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
                "--service-account-issuer=https://test".to_owned(),
                "--service-account-key-file=sa.key".to_owned(),
                "--service-account-signing-key-file=sa.key".to_owned(),
                "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
                // No controller makes the accounts' tokens here.
                "--disable-admission-plugins=ServiceAccount".to_owned(),
            ],
        );
        let server = Server { api, etcd, port, directory };
        server.wait_until_ready().await;
        server.apply_manifests().await;
        server
    }

    /// A client.
    pub(crate) fn client(&self, who: Who) -> Client {
        let url = format!("https://127.0.0.1:{}", self.port).parse().expect("a URL");
        let mut config = kube::Config::new(url);
        config.auth_info =
            serde_json::from_value::<AuthInfo>(json!({ "token": who.token() })).expect("a token");
        // Its certificate is its own, made at its start; the connection never leaves this machine.
        config.accept_invalid_certs = true;
        Client::try_from(config).expect("a client")
    }

    /// A kubeconfig for a process.
    pub(crate) fn kubeconfig(&self, who: Who) -> PathBuf {
        let path = self.directory.path().join("kubeconfig");
        let server = format!("https://127.0.0.1:{}", self.port);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": server, "insecure-skip-tls-verify": true } }],
            "users": [{ "name": "u", "user": { "token": who.token() } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        });
        fs::write(&path, config.to_string()).expect("a kubeconfig");
        path
    }

    async fn wait_until_ready(&self) {
        let client = self.client(Who::Admin);
        for _ in 0..600 {
            let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
            if client.request_text(request).await.is_ok_and(|answer| answer == "ok") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let log = fs::read_to_string(self.directory.path().join("kube-apiserver.log")).unwrap_or_default();
        panic!("the API server did not become ready:\n{log}");
    }

    async fn apply_manifests(&self) {
        let client = self.client(Who::Admin);
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
        let crd = "crds/store.mooncake.io_mooncakemasters.yaml";
        for file in ["base/namespace.yaml", crd, "base/access.yaml", "base/flow.yaml", "base/deployment.yaml"]
        {
            let text = fs::read_to_string(manifests.join(file)).expect(file);
            for document in serde_yaml_ng::Deserializer::from_str(&text) {
                apply(&client, &Value::deserialize(document).expect(file)).await;
            }
        }
        // Established, and served.
        let api: Api<mooncake_crds::MooncakeMaster> = Api::all(client);
        super::eventually("the definition is served", Duration::from_secs(20), async || {
            api.list(&ListParams::default()).await.map_err(|error| error.to_string())
        })
        .await;
    }

    /// The objects of a directory of `manifests`, as `kubectl apply -k` reads it.
    pub(crate) fn kustomize(&self, directory: &str) -> Vec<Value> {
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").join(directory);
        let kubectl = Command::new(programs().join("kubectl"))
            .arg("kustomize")
            .arg(&manifests)
            // No configuration of whoever runs the tests.
            .env("KUBECONFIG", self.directory.path().join("none"))
            .output()
            .expect("kubectl runs");
        assert!(kubectl.status.success(), "{}", String::from_utf8_lossy(&kubectl.stderr));
        let text = String::from_utf8(kubectl.stdout).expect("text");
        serde_yaml_ng::Deserializer::from_str(&text)
            .map(|document| Value::deserialize(document).expect("an object"))
            .collect()
    }

    /// A new namespace in which only restricted pods are let in.
    pub(crate) async fn namespace(&self, name: &str) {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name,
            "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
        apply(&self.client(Who::Admin), &namespace).await;
    }
}

/// The API of an object of any kind.
pub(crate) fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |key: &str| object[key].as_str().expect(key).to_owned();
    let (group, version) = match text("apiVersion").split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), text("apiVersion")),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind { group, version, kind: text("kind") });
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Applies an object of any kind, as `kubectl apply --server-side` does.
pub(crate) async fn apply(client: &Client, object: &Value) {
    let name = object["metadata"]["name"].as_str().expect("a name");
    let params = PatchParams::apply("user").force();
    api_of(client, object)
        .patch(name, &params, &Patch::Apply(object))
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// Creates an object of any kind.
pub(crate) async fn create(client: &Client, object: &Value) -> Result<DynamicObject, kube::Error> {
    let typed: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
    api_of(client, object).create(&PostParams::default(), &typed).await
}
