//! Whether an object is as it is wanted.
//!
//! Fields that others set are theirs: only what is wanted is compared. A field that is no longer wanted is noticed by
//! the hash in the annotation [`crate::build::APPLIED`].

use serde_json::Value;

/// Lists that several writers share: an entry of somebody else's is no difference. All other lists are one value.
const SHARED_LISTS: &[&str] =
    &["containers", "env", "imagePullSecrets", "ownerReferences", "ports", "volumeMounts", "volumes"];
/// Maps whose values are quantities, which the API server rewrites (`0.5` to `500m`).
const QUANTITIES: &[&str] = &["limits", "requests"];

/// The first field that is not as wanted, as a path; `None` if all are.
pub fn difference(wanted: &Value, found: &Value) -> Option<String> {
    let mut path = Vec::new();
    differs(wanted, found, &mut path, false).then(|| path.join("."))
}

fn differs(wanted: &Value, found: &Value, path: &mut Vec<String>, quantities: bool) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), found) => {
            for (key, value) in wanted {
                path.push(key.clone());
                let inside = quantities || QUANTITIES.contains(&key.as_str());
                let differs = match found.get(key) {
                    Some(found) => differs(value, found, path, inside),
                    None => !is_empty(value),
                };
                if differs {
                    return true;
                }
                path.pop();
            }
            false
        }
        (Value::Array(wanted), Value::Array(found)) => {
            let shared = path.last().is_some_and(|list| SHARED_LISTS.contains(&list.as_str()));
            let same = |wanted: &Value, found: &Value| !differs(wanted, found, &mut Vec::new(), quantities);
            if shared {
                !wanted.iter().all(|wanted| found.iter().any(|found| same(wanted, found)))
            } else {
                wanted.len() != found.len()
                    || !wanted.iter().zip(found).all(|(wanted, found)| same(wanted, found))
            }
        }
        (wanted, found) if quantities => quantity(wanted) != quantity(found),
        (wanted, found) => wanted != found,
    }
}

/// What the API server leaves out.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
    }
}

/// A quantity in billionths, so that `0.5`, `500m` and `5e-1` are the same; its text if it is none.
fn quantity(value: &Value) -> Result<i128, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    parse_quantity(&text).ok_or(text)
}

fn parse_quantity(text: &str) -> Option<i128> {
    const NANO: i128 = 1_000_000_000;
    let digits_end =
        text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-' && c != '+').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    // Numerator and denominator of the suffix.
    let (times, over): (i128, i128) = match suffix {
        "" => (1, 1),
        "n" => (1, NANO),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        exponent => {
            let exponent: i32 =
                exponent.strip_prefix(['e', 'E'])?.parse().ok().filter(|e| (-9..=15).contains(e))?;
            let power = 10_i128.pow(exponent.unsigned_abs());
            if exponent < 0 { (1, power) } else { (power, 1) }
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 || whole.len() > 18 {
        return None;
    }
    let scale = 10_i128.pow(fraction.len() as u32);
    let value: i128 = format!("{whole}{fraction}").parse().ok()?;
    Some(value.checked_mul(times)?.checked_mul(NANO)? / (scale * over))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_others_are_no_difference() {
        let wanted =
            json!({ "spec": { "replicas": 2, "containers": [{ "name": "master", "image": "i:1" }] } });
        let found = json!({ "spec": { "replicas": 2, "x": 1, "containers": [
            { "name": "sidecar" }, { "name": "master", "image": "i:1", "terminationMessagePath": "/d" }] } });
        assert_eq!(difference(&wanted, &found), None);
    }

    #[test]
    fn a_wanted_field_that_differs_is_named() {
        let wanted = json!({ "spec": { "replicas": 2, "args": ["--a", "--b"] } });
        for (found, path) in [
            (json!({ "spec": { "replicas": 3, "args": ["--a", "--b"] } }), "spec.replicas"),
            (json!({ "spec": { "replicas": 2, "args": ["--a"] } }), "spec.args"),
            (json!({ "spec": { "replicas": 2, "args": ["--b", "--a"] } }), "spec.args"),
            (json!({ "spec": { "replicas": 2, "args": ["--a", "--b", "--c"] } }), "spec.args"),
            (json!({}), "spec"),
        ] {
            assert_eq!(difference(&wanted, &found).as_deref(), Some(path), "{found}");
        }
    }

    #[test]
    fn rules_are_one_value() {
        let wanted = json!({ "rules": [{ "verbs": ["get"] }] });
        assert!(
            difference(&wanted, &json!({ "rules": [{ "verbs": ["get"] }, { "verbs": ["*"] }] })).is_some()
        );
        assert!(difference(&wanted, &json!({ "rules": [{ "verbs": ["get", "list"] }] })).is_some());
    }

    #[test]
    fn left_out_is_as_good_as_empty() {
        let wanted = json!({ "a": "", "b": {}, "c": [], "d": false, "e": 0, "f": null });
        assert_eq!(difference(&wanted, &json!({})), None);
        assert!(difference(&json!({ "a": true }), &json!({})).is_some());
    }

    #[test]
    fn quantities_are_compared_by_value() {
        for (wanted, found) in
            [("0.5", "500m"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("2e3", "2k"), ("500000u", "500m")]
        {
            let of = |text: &str| json!({ "resources": { "requests": { "cpu": text } } });
            assert_eq!(difference(&of(wanted), &of(found)), None, "{wanted} {found}");
        }
        let of = |value: Value| json!({ "limits": { "memory": value } });
        assert_eq!(difference(&of(json!(1)), &of(json!("1"))), None);
        assert!(difference(&of(json!("1Gi")), &of(json!("1G"))).is_some());
        assert!(difference(&of(json!("odd")), &of(json!("other"))).is_some());
    }
}
