//! What the tests against a real API server share.

pub(crate) mod health;
pub(crate) mod oracle;
pub(crate) mod server;
pub(crate) mod world;

use kube::{Api, Client};
use mooncake_crds::MooncakeMaster;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// A resource with that spec on top of the smallest one.
pub(crate) fn master(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "store.mooncake.io/v1alpha1",
        "kind": "MooncakeMaster",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "image": "mooncake-master:1" },
    });
    merge(&mut object["spec"], spec);
    object
}

/// Puts `patch` over `target`, maps entry by entry.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// The resources of a namespace.
pub(crate) fn masters(client: &Client, namespace: &str) -> Api<MooncakeMaster> {
    Api::namespaced(client.clone(), namespace)
}

/// Polls until `found` gives something; fails, saying what was waited for and what was seen last, after `limit`.
pub(crate) async fn eventually<T>(
    what: &str,
    limit: Duration,
    mut found: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let start = Instant::now();
    loop {
        let last = match found().await {
            Ok(value) => return value,
            Err(last) => last,
        };
        assert!(start.elapsed() < limit, "waited {limit:?} for: {what}; last seen: {last}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
