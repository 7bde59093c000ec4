//! Pages of the admin port: their status, the shape of their JSON, and every metric by name, type and labels.

use super::session::{Session, without_hash};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The text as it is.
fn plain(text: &str) -> String {
    text.to_owned()
}

/// Lines in any order.
fn lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join(" | ")
}

/// JSON with its members in order, whatever the order they came in; what differs by nature is left out.
pub(super) fn json(text: &str) -> String {
    let mut value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(_) => return text.to_owned(),
    };
    normalize(&mut value);
    value.to_string()
}

fn normalize(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match (name.as_str(), &mut *member) {
                    ("buffer_address_", Value::Number(address)) => {
                        *member = (address.as_u64().unwrap_or_default() >> 32).into();
                    }
                    ("file_path", Value::String(path)) => *member = without_hash(path.as_bytes()).into(),
                    // When memory that was set aside is free again depends on the moment.
                    ("allocator_usage_percent" | "allocator_used_bytes", Value::Number(_)) => {
                        *member = "a number".into();
                    }
                    _ => normalize(member),
                }
            }
        }
        Value::Array(all) => {
            all.iter_mut().for_each(normalize);
            all.sort_by_key(Value::to_string);
        }
        _ => {}
    }
}

/// After the objects of the session, with segments 1 and 2 mounted.
pub(crate) fn run(s: &mut Session) {
    s.page("GET", "/health", json);
    s.page("GET", "/role", plain);
    s.page("GET", "/ha_status", plain);
    s.page("GET", "/leader", json);
    s.page("GET", "/kv_events/status", json);
    s.page("GET", "/get_all_keys", lines);
    s.page("GET", "/get_all_segments", lines);
    s.page("GET", "/get_segments_detail", json);
    for key in ["?key=of-a-type", "?key=missing", "?key=", "", "?key=c4"] {
        s.page("GET", &format!("/query_key{key}"), json);
    }
    for keys in ["?keys=of-a-type", "?keys=of-a-type,missing,hard-pinned", "?keys=", "", "?keys=,missing,"] {
        s.page("GET", &format!("/batch_query_keys{keys}"), json);
    }
    for segment in ["?segment=seg-2", "?segment=nowhere", ""] {
        s.page("GET", &format!("/query_segment{segment}"), plain);
        s.page("GET", &format!("/api/v1/segments/status{segment}"), json);
    }
    s.page("GET", "/api/v1/drain_jobs/query?job_id=1-1", json);
    s.page("POST", "/api/v1/drain_jobs/cancel?job_id=1-1", json);
    s.page("GET", "/api/v1/drain_jobs/query", json);
    s.page("GET", "/api/v1/drain_jobs/query?job_id=x", json);
    s.page("GET", "/api/v1/tenant_quotas", json);
    s.page("POST", "/api/v1/remove_all?force=true", json);
    s.page("POST", "/api/v1/remove_all", json);
    query_key_leaves_no_lease(s);
    summary(s);
    metrics(s);
}

/// Against the master with files.
pub(crate) fn files(s: &mut Session) {
    s.finding("metrics of files", {
        let (_, text) = s.fetch("/metrics");
        let of = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or(name).to_owned();
        [of("file_cache_nums_ "), of("master_total_file_capacity_bytes ")].join(", ")
    });
}

/// A look at a key is no use of it.
fn query_key_leaves_no_lease(s: &mut Session) {
    use super::objects::{key_args, put, remove_args};
    use mooncake_master::rpc::native::generation::Method;
    put(s, 1, "looked-at", &super::session::Config::on("seg-1"));
    s.page("GET", "/query_key?key=looked-at", json);
    s.call(Method::Remove, "looked at by /query_key", remove_args("looked-at", false));
    put(s, 1, "looked-at-in-a-batch", &super::session::Config::on("seg-1"));
    s.page("GET", "/batch_query_keys?keys=looked-at-in-a-batch", json);
    s.call(Method::Remove, "looked at by /batch_query_keys", remove_args("looked-at-in-a-batch", false));
    s.call(Method::ExistKey, "what was looked at", key_args("looked-at-in-a-batch"));
}

/// The names in the line for people; upstream's must all be in it.
fn summary(s: &mut Session) {
    let (status, text) = s.fetch("/metrics/summary");
    let mut names: BTreeSet<String> = BTreeSet::new();
    for part in text.split(['|', '{', '}', ',', ';', '(']) {
        if let Some((name, _)) = part.trim().split_once([':', '=']) {
            names.insert(name.trim().to_owned());
        }
    }
    s.finding("/metrics/summary", status.to_string());
    for name in names {
        s.finding(&format!("/metrics/summary {name}"), "there".to_owned());
    }
}

/// Each family: type and label names.
fn metrics(s: &mut Session) {
    let (_, text) = s.fetch("/metrics");
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            types.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') && !line.is_empty() {
            let (name, of_it) = line.split_once(['{', ' ']).expect("a name");
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let family = family.filter(|family| types.contains_key(*family)).unwrap_or(name);
            let names = labels.entry(family.to_owned()).or_default();
            if line.contains('{') {
                for pair in of_it.split("\",") {
                    names.extend(pair.split_once('=').map(|(name, _)| name.to_owned()));
                }
            }
        }
    }
    for (name, kind) in types {
        let labels: Vec<_> = labels.remove(&name).unwrap_or_default().into_iter().collect();
        s.finding(&format!("metric {name}"), format!("{kind} {}", labels.join(",")).trim().to_owned());
    }
}
