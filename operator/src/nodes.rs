//! The nodes of the pods: whether one is about to go.
//!
//! Where the operator may not read nodes it works without: then a drain moves the role when it evicts the active.

use crate::decide::Node;
use k8s_openapi::api::core::v1 as core;
use kube::{Api, Client, api::ListParams};
use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Taints by which others say that a node is about to be deleted, stopped or emptied. Those that Kubernetes sets by
/// itself (not-ready, unreachable, pressure) are not among them: they tell how the node is, not what is to become of
/// it. A cordon is `spec.unschedulable`.
pub const LEAVING_TAINTS: &[&str] = &[
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/rebalance-recommendation",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
];
/// Effects with which such a taint counts.
const EFFECTS: &[&str] = &["NoSchedule", "NoExecute"];
/// How often it is tried whether nodes may be read by now.
const TRY_AGAIN: Duration = Duration::from_secs(600);

/// Whether nodes may be read.
#[derive(Debug, Default)]
pub struct Nodes(Mutex<Knowledge>);

#[derive(Debug, Default)]
struct Knowledge {
    /// What was learnt last, and when.
    readable: Option<(bool, Instant)>,
    /// A node that could not be got although the nodes could be listed: listing alone proves nothing any more.
    refused: Option<String>,
}

impl Nodes {
    /// Whether nodes may be read; an API server that does not answer leaves it as it was.
    pub async fn readable(&self, client: &Client) -> Result<bool, kube::Error> {
        let refused = {
            let known = self.0.lock();
            if let Some((readable, at)) = known.readable
                && (readable || at.elapsed() < TRY_AGAIN)
            {
                return Ok(readable);
            }
            known.refused.clone()
        };
        let api: Api<core::Node> = Api::all(client.clone());
        let listed = crate::observe::in_time(api.list_metadata(&ListParams::default().limit(1))).await;
        let readable = match (listed, refused) {
            // A node that is gone can be got, too: there is an answer to it.
            (Ok(_), Some(name)) => is_allowed(crate::observe::in_time(api.get_opt(&name)).await)?,
            (listed, _) => is_allowed(listed)?,
        };
        self.learnt(readable);
        Ok(readable)
    }

    fn learnt(&self, readable: bool) {
        let mut known = self.0.lock();
        if readable {
            known.refused = None;
        }
        let before = known.readable.replace((readable, Instant::now()));
        drop(known);
        if !readable && before.is_none_or(|(before, _)| before) {
            tracing::warn!(
                "nodes may not be read: the role does not move ahead of a drain, and no PodDisruptionBudget is made"
            );
        }
    }

    /// A node, live; `None` if it is gone, or may not be read.
    pub async fn get(&self, client: &Client, name: &str) -> Result<Option<Node>, kube::Error> {
        let api: Api<core::Node> = Api::all(client.clone());
        match crate::observe::in_time(api.get_opt(name)).await {
            Ok(found) => Ok(found.as_ref().map(view)),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                self.0.lock().refused = Some(name.to_owned());
                self.learnt(false);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether that was allowed, if that can be told from it.
fn is_allowed<T>(answer: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match answer {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
        Err(error) => Err(error),
    }
}

fn view(node: &core::Node) -> Node {
    let name = node.metadata.name.clone().unwrap_or_default();
    let spec = node.spec.as_ref();
    let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let taint = taints.iter().find(|taint| {
        LEAVING_TAINTS.contains(&taint.key.as_str()) && EFFECTS.contains(&taint.effect.as_str())
    });
    let cordoned = spec.and_then(|spec| spec.unschedulable) == Some(true);
    let leaving = match taint {
        Some(taint) => Some(format!("node {name} has the taint {}", taint.key)),
        None => cordoned.then(|| format!("node {name} is cordoned")),
    };
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    Node { name, ready, leaving }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    fn seen(spec: &Value, ready: &str) -> Node {
        let node = json!({ "metadata": { "name": "n" }, "spec": spec,
            "status": { "conditions": [{ "type": "Ready", "status": ready }] } });
        view(&serde_json::from_value(node).expect("a node"))
    }

    #[test]
    fn a_node_leaves_when_somebody_says_so_and_not_when_it_is_ill() {
        let taint = |key: &str, effect: &str| json!({ "taints": [{ "key": key, "effect": effect }] });
        for (spec, leaves) in [
            (json!({}), false),
            (json!({ "unschedulable": true }), true),
            (taint("karpenter.sh/disrupted", "NoSchedule"), true),
            (taint("ToBeDeletedByClusterAutoscaler", "NoExecute"), true),
            (taint("karpenter.sh/disrupted", "PreferNoSchedule"), false),
            (taint("node.kubernetes.io/not-ready", "NoExecute"), false),
            (taint("node.kubernetes.io/unreachable", "NoExecute"), false),
            (taint("example.com/gpu", "NoSchedule"), false),
        ] {
            assert_eq!(seen(&spec, "True").leaving.is_some(), leaves, "{spec}");
        }
        assert!(seen(&json!({}), "True").ready);
        assert!(!seen(&json!({}), "Unknown").ready);
    }

    /// An API server that lists nodes, and gives one only if that is allowed.
    async fn serve(may_get: Arc<AtomicBool>) -> (Client, tokio::task::JoinHandle<()>) {
        use axum::{Json, Router, http::StatusCode, routing::get};
        let get_one = move || async move {
            if may_get.load(Ordering::Relaxed) {
                (StatusCode::OK, Json(json!({ "metadata": { "name": "n" } })))
            } else {
                let status =
                    json!({ "status": "Failure", "code": 403, "reason": "Forbidden", "message": "" });
                (StatusCode::FORBIDDEN, Json(status))
            }
        };
        let list = json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
            "metadata": {}, "items": [] });
        let app = Router::new()
            .route("/api/v1/nodes", get(move || async move { Json(list) }))
            .route("/api/v1/nodes/{name}", get(get_one));
        let listener =
            tokio::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        let client = Client::try_from(kube::Config::new(url.parse().expect("a URL"))).expect("a client");
        (client, server)
    }

    #[tokio::test]
    async fn nodes_that_can_be_listed_but_not_got_are_not_readable() {
        let may_get = Arc::new(AtomicBool::new(false));
        let (client, server) = serve(Arc::clone(&may_get)).await;
        let nodes = Nodes::default();
        assert!(nodes.readable(&client).await.expect("an answer"), "as far as the list tells");
        assert_eq!(nodes.get(&client, "n").await.expect("an answer"), None);
        let long_ago = |nodes: &Nodes| {
            let known = &mut *nodes.0.lock();
            let (_, at) = known.readable.as_mut().expect("it was learnt");
            *at = at.checked_sub(TRY_AGAIN).expect("the machine runs for longer");
        };
        long_ago(&nodes);
        assert!(!nodes.readable(&client).await.expect("an answer"), "the list does not count any more");
        may_get.store(true, Ordering::Relaxed);
        assert!(!nodes.readable(&client).await.expect("an answer"), "not asked at once");
        long_ago(&nodes);
        assert!(nodes.readable(&client).await.expect("an answer"));
        server.abort();
    }

    #[test]
    fn the_documented_taints_are_these() {
        let document = include_str!("../../docs/failover.md");
        for taint in LEAVING_TAINTS {
            assert!(document.contains(&format!("`{taint}`")), "docs/failover.md does not name {taint}");
        }
    }
}
