//! The CustomResourceDefinition: what the types give, plus what they cannot say.

use crate::{MooncakeMaster, rules};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

/// Lists of the status that are maps: path and key. Without it a server-side apply owns such a list as a whole.
const LIST_MAPS: &[(&str, &str)] = &[("status.conditions", "type"), ("status.members", "name")];

/// Longest value in `spec.config`, in characters.
pub(crate) const MAX_CONFIG_VALUE: usize = 1024;
/// What a label value may be.
pub(crate) const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// The definition that a cluster needs.
///
/// # Panics
/// If the types and the tables of this crate do not fit together, which the tests of this crate rule out.
#[allow(clippy::expect_used)] // programming errors of this crate alone; its tests call this function
pub fn crd() -> CustomResourceDefinition {
    let mut crd = serde_json::to_value(MooncakeMaster::crd()).expect("a definition is JSON");
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];

    remove_key(schema, "nullable");
    // The rules on metadata.name need the field in the schema.
    schema["properties"]["metadata"] =
        json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    for (path, key) in LIST_MAPS {
        let list = at(schema, path).expect("a list of the table exists");
        list["x-kubernetes-list-type"] = json!("map");
        list["x-kubernetes-list-map-keys"] = json!([key]);
    }
    for (path, value) in [
        ("spec.config", json!({ "type": "string", "maxLength": MAX_CONFIG_VALUE })),
        ("spec.podLabels", json!({ "type": "string", "maxLength": 63, "pattern": LABEL_VALUE })),
        ("spec.nodeSelector", json!({ "type": "string", "maxLength": 63, "pattern": LABEL_VALUE })),
        ("spec.podAnnotations", json!({ "type": "string", "maxLength": 4096 })),
    ] {
        at(schema, path).expect("a map of the table exists")["additionalProperties"] = value;
    }
    for rule in rules::all() {
        let place = at(schema, rule.at).expect("the field of a rule exists");
        match place.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
            Some(rules) => rules.push(rule.to_schema()),
            None => place["x-kubernetes-validations"] = json!([rule.to_schema()]),
        }
    }
    serde_json::from_value(crd).expect("still a definition")
}

/// The schema of a field, by its path; the schema itself for the empty path.
pub(crate) fn at<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.')
        .filter(|segment| !segment.is_empty())
        .try_fold(schema, |schema, segment| schema.get_mut("properties")?.get_mut(segment))
}

/// Absent is the one way to say *unset*: a null is pruned or refused, and CEL's `has()` means what it says.
fn remove_key(schema: &mut Value, key: &str) {
    match schema {
        Value::Object(map) => {
            map.remove(key);
            map.values_mut().for_each(|value| remove_key(value, key));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| remove_key(value, key)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        let crd = serde_json::to_value(crd()).expect("JSON");
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    /// The generator alone makes `conditions` an atomic list.
    #[test]
    fn conditions_and_members_are_maps() {
        let mut schema = schema();
        for (path, key) in [("status.conditions", "type"), ("status.members", "name")] {
            let list = at(&mut schema, path).expect(path);
            assert_eq!(list["x-kubernetes-list-type"], "map", "{path}");
            assert_eq!(list["x-kubernetes-list-map-keys"], json!([key]), "{path}");
            assert!(list["items"]["required"].as_array().is_some_and(|r| r.contains(&json!(key))), "{path}");
        }
    }

    #[test]
    fn what_is_said_of_clients_has_no_default() {
        let mut schema = schema();
        for path in [
            "spec.client",
            "spec.client.activeTtl",
            "spec.client.suspicionTtl",
            "spec.client.massSilencePercent",
        ] {
            assert!(at(&mut schema, path).expect(path).get("default").is_none(), "B11: {path}");
        }
        assert_eq!(at(&mut schema, "spec.replicas").expect("replicas")["default"], 2);
        assert_eq!(at(&mut schema, "spec.ports.rpc").expect("rpc")["default"], 50051);
    }

    #[test]
    fn is_structural_enough_for_an_api_server() {
        fn walk(path: &str, schema: &Value, bad: &mut Vec<String>) {
            for key in ["$ref", "$defs", "oneOf", "definitions", "nullable"] {
                if schema.get(key).is_some() {
                    bad.push(format!("{path}: {key}"));
                }
            }
            for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let path = format!("{path}.{name}");
                if child.get("type").is_none() && child.get("x-kubernetes-int-or-string").is_none() {
                    bad.push(format!("{path}: no type"));
                }
                walk(&path, child, bad);
            }
            for key in ["items", "additionalProperties"] {
                if let Some(child) = schema.get(key) {
                    walk(&format!("{path}[]"), child, bad);
                }
            }
        }
        let mut bad = Vec::new();
        walk("", &schema(), &mut bad);
        assert!(bad.is_empty(), "{bad:#?}");
    }

    #[test]
    fn every_field_is_documented() {
        fn walk(path: &str, schema: &Value, bad: &mut Vec<String>) {
            for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let path = format!("{path}.{name}");
                if child.get("description").and_then(Value::as_str).is_none_or(str::is_empty) {
                    bad.push(path.clone());
                }
                walk(&path, child, bad);
            }
        }
        let mut schema = schema();
        let mut bad = Vec::new();
        for part in ["spec", "status"] {
            walk(part, at(&mut schema, part).expect(part), &mut bad);
        }
        assert!(bad.is_empty(), "{bad:#?}");
    }

    #[test]
    fn every_message_names_its_field() {
        for rule in rules::all() {
            assert!(rule.message.starts_with(&rule.path()), "{} {}", rule.path(), rule.message);
            assert!(!rule.message.contains('\n') && rule.message.len() <= 2048);
        }
    }
}
