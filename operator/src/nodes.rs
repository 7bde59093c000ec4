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
pub struct Nodes(Mutex<Option<(bool, Instant)>>);

impl Nodes {
    /// Whether nodes may be read; an API server that does not answer leaves it as it was.
    pub async fn readable(&self, client: &Client) -> Result<bool, kube::Error> {
        if let Some((readable, at)) = *self.0.lock()
            && (readable || at.elapsed() < TRY_AGAIN)
        {
            return Ok(readable);
        }
        let api: Api<core::Node> = Api::all(client.clone());
        let readable = match crate::observe::in_time(api.list_metadata(&ListParams::default().limit(1))).await
        {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.code == 403 => false,
            Err(error) => return Err(error),
        };
        self.learnt(readable);
        Ok(readable)
    }

    fn learnt(&self, readable: bool) {
        let before = self.0.lock().replace((readable, Instant::now()));
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
                self.learnt(false);
                Ok(None)
            }
            Err(error) => Err(error),
        }
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

    #[test]
    fn the_documented_taints_are_these() {
        let document = include_str!("../../docs/failover.md");
        for taint in LEAVING_TAINTS {
            assert!(document.contains(&format!("`{taint}`")), "docs/failover.md does not name {taint}");
        }
    }
}
