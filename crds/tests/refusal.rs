//! Bad resources, refused by the rules in Rust. The operator's tests send the same table to a real API server.

use mooncake_crds::{MooncakeMaster, validation::validate};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    path: String,
    patch: Value,
}

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn refused_paths(patch: &Value) -> Vec<String> {
    let mut object = json!({
        "apiVersion": "store.mooncake.io/v1alpha1",
        "kind": "MooncakeMaster",
        "metadata": { "name": "m" },
        "spec": { "image": "i:1" }
    });
    merge(&mut object, patch);
    let master: MooncakeMaster = serde_json::from_value(object).expect("a resource");
    validate(&master).into_iter().map(|error| error.path).collect()
}

#[test]
fn each_bad_resource_is_refused_with_its_path() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("bad-resources.json")).expect("the table");
    for case in cases {
        let paths = refused_paths(&case.patch);
        assert!(paths.contains(&case.path), "{}: expected {}, got {paths:?}", case.patch, case.path);
    }
}

#[test]
fn good_resources_pass() {
    for patch in [
        json!({}),
        json!({ "metadata": { "name": "n".repeat(52) } }),
        json!({ "spec": { "replicas": 1, "client": { "activeTtl": "10s" } } }),
        json!({ "spec": { "store": { "defaultKvLeaseTtl": "2s", "putStartDiscardTimeout": "2s" } } }),
        json!({ "spec": { "config": { "eviction_ratio": "0.1", "http_metadata_server_port": "0" } } }),
        json!({ "spec": { "heartbeat": { "port": 50052, "threads": 2, "keepOnMain": false },
            "config": { "http_metadata_server_port": "8080" } } }),
        json!({ "spec": { "failover": { "leaseDuration": "2s", "renewDeadline": "1s", "retryPeriod": "500ms" } } }),
        json!({ "spec": { "failover": { "leaseDuration": "3.5s", "renewDeadline": "3s", "retryPeriod": "1.5s" } } }),
        json!({ "spec": { "failover": { "leaseDuration": "10m", "renewDeadline": "9.5m", "retryPeriod": "60s" } } }),
        json!({ "spec": { "failover": { "blockedAfter": "2s", "cooldown": "10s", "notReadyAfter": "5s",
            "healthCheck": { "period": "500ms", "timeout": "500ms", "failureThreshold": 2 } } } }),
        json!({ "spec": { "podLabels": { "team": "kv" }, "podAnnotations": { "example.com/x": "y" } } }),
    ] {
        assert_eq!(refused_paths(&patch), Vec::<String>::new(), "{patch}");
    }
}
