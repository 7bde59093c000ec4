//! The program itself: two of them, an election, and an orderly end.

use crate::support::{
    eventually, master,
    server::{Server, Who, create, free_ports},
};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use k8s_openapi::api::{apps::v1::StatefulSet, coordination::v1::Lease};
use kube::Api;
use serde_json::json;
use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

const NS: &str = "process";
const LIMIT: Duration = Duration::from_secs(20);

struct Operator {
    child: Child,
    port: u16,
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Operator {
    fn start(kubeconfig: &Path, name: &str, port: u16) -> Operator {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_mooncake-operator")])
            .args(["--namespace", NS, "--lease-namespace", NS, "--identity", name])
            .args(["--lease-duration", "3s", "--lease-renew-deadline", "2s", "--lease-retry-period", "500ms"])
            .args(["--log-format", "json", "--http-address", &format!("127.0.0.1:{port}")])
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the operator starts");
        Operator { child, port }
    }

    async fn get(&self, path: &str) -> Result<(u16, String), String> {
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let uri = format!("http://127.0.0.1:{}{path}", self.port).parse().expect("a URI");
        let answer = client.get(uri).await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    async fn leads(&self) -> Result<bool, String> {
        Ok(self.get("/metrics").await?.1.lines().any(|line| line == "mooncake_operator_leading 1"))
    }

    async fn ready(&self) -> Result<bool, String> {
        Ok(self.get("/readyz").await?.0 == 200)
    }
}

pub(crate) async fn two_processes_elect_one_and_hand_over(server: &Server) {
    server.namespace(NS).await;
    let admin = server.client(Who::Admin);
    let kubeconfig = server.kubeconfig(Who::Operator);
    let [one, two] = free_ports::<2>();
    let mut first = Operator::start(&kubeconfig, "one", one);
    eventually("the first leads", LIMIT, async || match (first.leads().await?, first.ready().await?) {
        (true, true) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let second = Operator::start(&kubeconfig, "two", two);
    eventually("the second waits, and is ready for it", LIMIT, async || {
        match (second.leads().await?, second.ready().await?) {
            (false, true) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;

    create(&admin, &master(NS, "m", &json!({}))).await.expect("a good resource");
    let sets: Api<StatefulSet> = Api::namespaced(admin.clone(), NS);
    eventually("the StatefulSet", LIMIT, async || sets.get("m").await.map_err(|error| error.to_string()))
        .await;

    let told =
        Command::new("kill").args(["-TERM", &first.child.id().to_string()]).status().expect("kill runs");
    assert!(told.success());
    let status = eventually("the first ends", LIMIT, async || match first.child.try_wait() {
        Ok(Some(status)) => Ok(status),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(status.success(), "{status}");
    eventually("the second leads", LIMIT, async || {
        if second.leads().await? { Ok(()) } else { Err("waits".to_owned()) }
    })
    .await;
    let leases: Api<Lease> = Api::namespaced(admin.clone(), NS);
    let spec = leases.get("mooncake-operator").await.expect("its Lease").spec.expect("a spec");
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("two"), Some(2)));
    // It does the work.
    create(&admin, &master(NS, "n", &json!({}))).await.expect("a good resource");
    eventually("the StatefulSet", LIMIT, async || sets.get("n").await.map_err(|error| error.to_string()))
        .await;
}
