//! The election record: what the Lease object says, and how it is read from and written into its JSON.
//!
//! Everything that is not ours (labels, owner references, other annotations, other spec fields) survives a write.

use crate::{time::WallTime, timing::LONGEST};
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, time::Duration};

/// Annotation: name of the holder's pod.
pub const POD_NAME: &str = "mooncake.io/pod-name";
/// Annotation: uid of the holder's pod.
pub const POD_UID: &str = "mooncake.io/pod-uid";
/// Annotation: incarnation id of the holder, random per process start.
pub const INCARNATION: &str = "mooncake.io/incarnation";
/// Annotation: incarnation ids of the in-sync set, separated by commas.
pub const IN_SYNC: &str = "mooncake.io/in-sync";
/// Annotation: incarnation ids of members that were proven dead, separated by commas.
pub const DEAD: &str = "mooncake.io/dead";
/// Annotation: how long a read lease of the holder lasts at most, milliseconds.
pub const READ_LEASE_TTL_MS: &str = "mooncake.io/read-lease-ttl-ms";
/// Annotation: the incarnation id whose lease is released. Naming it keeps a mark from ever releasing a later holder.
pub const RELEASED: &str = "mooncake.io/released";
/// Annotation: the incarnation id for which it is released; absent: for anyone.
pub const RELEASED_FOR: &str = "mooncake.io/released-for";
/// Annotation: the incarnation id to which the holder is asked to hand over. Only a request: it restricts no claim.
pub const DESIGNATED: &str = "mooncake.io/designated";

/// The highest epoch that `leaseTransitions` (int32) can hold.
pub const HIGHEST_EPOCH: u64 = i32::MAX as u64;

/// What is wrong with a Lease object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum RecordError {
    #[error("Lease {field} is missing or not a string: expected an object of the API server")]
    Identity { field: &'static str },
    #[error("Lease {field} is {found}: expected {expected}")]
    Field { field: &'static str, found: String, expected: &'static str },
}

/// For whom a holder gave its lease up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// Whoever comes first.
    Anyone,
    /// First the process with this incarnation id.
    For(String),
}

/// The election record. Empty strings mean that the field is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseRecord {
    /// `spec.holderIdentity`: the advertised RPC address.
    pub holder: String,
    /// `spec.leaseTransitions`: grows with every claim.
    pub epoch: u64,
    /// `spec.leaseDurationSeconds`; `None` when absent or not between 1 s and 1 h.
    pub duration: Option<Duration>,
    /// `spec.renewTime`, opaque: only whether it changes matters.
    pub renew_time: String,
    /// `spec.acquireTime`, opaque.
    pub acquire_time: String,
    /// Name of the holder's pod.
    pub pod_name: String,
    /// Uid of the holder's pod.
    pub pod_uid: String,
    /// The holder's incarnation id.
    pub incarnation: String,
    /// Incarnations that have everything the holder has answered for.
    pub in_sync: BTreeSet<String>,
    /// Incarnations that were proven dead.
    pub dead: BTreeSet<String>,
    /// The longest read lease that the holder may have granted.
    pub read_lease_ttl: Option<Duration>,
    /// Whether and for whom it was released.
    pub release: Option<Release>,
    /// The incarnation to which the holder is asked to hand over. A claim and a release take it away.
    pub designated: String,
}

impl LeaseRecord {
    /// Whether the record names a holder. A Lease that was just created names none.
    pub fn is_held(&self) -> bool {
        !self.holder.is_empty() || !self.incarnation.is_empty()
    }
}

/// A Lease object as the API server returned it.
#[derive(Debug, Clone)]
pub struct LeaseObject {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// What it says.
    pub record: LeaseRecord,
    /// Fields that were not readable; the record has safe values for them.
    pub problems: Vec<RecordError>,
    raw: Value,
}

impl LeaseObject {
    /// Reads an object. Only one without uid or resourceVersion is refused; a malformed field is reported in
    /// [`LeaseObject::problems`] and counts as absent.
    pub fn parse(raw: Value) -> Result<LeaseObject, RecordError> {
        let identity = |field: &'static str, key: &str| {
            raw.pointer(key)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
                .ok_or(RecordError::Identity { field })
        };
        let uid = identity("metadata.uid", "/metadata/uid")?;
        let resource_version = identity("metadata.resourceVersion", "/metadata/resourceVersion")?;
        let mut reader = Reader { raw: &raw, problems: Vec::new() };
        let record = reader.record();
        let problems = reader.problems;
        Ok(LeaseObject { uid, resource_version, record, problems, raw })
    }

    /// The body of a replace that puts `record` in the place of this object's and keeps everything foreign. It carries
    /// uid and resourceVersion, so it succeeds on this very state of this very object or not at all.
    pub fn replaced_by(&self, record: &LeaseRecord) -> Value {
        let mut body = self.raw.clone();
        overlay(&mut body, record);
        body
    }
}

/// The body of a create.
pub fn new_lease(namespace: &str, name: &str, record: &LeaseRecord) -> Value {
    let mut body = json!({ "metadata": { "namespace": namespace, "name": name } });
    overlay(&mut body, record);
    body
}

struct Reader<'a> {
    raw: &'a Value,
    problems: Vec<RecordError>,
}

impl Reader<'_> {
    fn problem(&mut self, field: &'static str, found: &Value, expected: &'static str) {
        let mut found = found.to_string();
        if let Some((end, _)) = found.char_indices().nth(64) {
            found.truncate(end);
        }
        self.problems.push(RecordError::Field { field, found, expected });
    }

    fn text(&mut self, field: &'static str, value: Option<&Value>) -> String {
        match value {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => {
                self.problem(field, other, "a string");
                String::new()
            }
        }
    }

    fn spec(&self, key: &str) -> Option<&Value> {
        self.raw.get("spec").and_then(|spec| spec.get(key))
    }

    fn annotation(&mut self, name: &'static str) -> String {
        let raw = self.raw;
        self.text(name, raw.pointer("/metadata/annotations").and_then(|all| all.get(name)))
    }

    fn ids(&mut self, name: &'static str) -> BTreeSet<String> {
        let list = self.annotation(name);
        list.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect()
    }

    fn record(&mut self) -> LeaseRecord {
        let raw = self.raw;
        let spec_text = |reader: &mut Self, field: &'static str, key: &str| {
            let value = raw.get("spec").and_then(|spec| spec.get(key));
            reader.text(field, value)
        };
        let holder = spec_text(self, "spec.holderIdentity", "holderIdentity");
        let renew_time = spec_text(self, "spec.renewTime", "renewTime");
        let acquire_time = spec_text(self, "spec.acquireTime", "acquireTime");
        let epoch = match self.spec("leaseTransitions").cloned() {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_u64().unwrap_or_else(|| {
                self.problem("spec.leaseTransitions", &value, "a number from 0 up");
                0
            }),
        };
        let duration = match self.spec("leaseDurationSeconds").cloned() {
            None | Some(Value::Null) => None,
            Some(value) => {
                let seconds = value.as_u64().filter(|&s| s >= 1 && s <= LONGEST.as_secs());
                if seconds.is_none() {
                    self.problem("spec.leaseDurationSeconds", &value, "1 to 3600");
                }
                seconds.map(Duration::from_secs)
            }
        };
        let incarnation = self.annotation(INCARNATION);
        let ttl = self.annotation(READ_LEASE_TTL_MS);
        let read_lease_ttl = match ttl.parse::<u64>() {
            Ok(millis) => Some(Duration::from_millis(millis)),
            Err(_) if ttl.is_empty() => None,
            Err(_) => {
                self.problem(READ_LEASE_TTL_MS, &Value::String(ttl), "milliseconds");
                None
            }
        };
        let (released, released_for) = (self.annotation(RELEASED), self.annotation(RELEASED_FOR));
        let release = if released.is_empty() {
            None
        } else if released != incarnation {
            self.problem(RELEASED, &Value::String(released), "the incarnation id of the holder");
            None
        } else if released_for.is_empty() {
            Some(Release::Anyone)
        } else {
            Some(Release::For(released_for))
        };
        LeaseRecord {
            holder,
            epoch,
            duration,
            renew_time,
            acquire_time,
            pod_name: self.annotation(POD_NAME),
            pod_uid: self.annotation(POD_UID),
            incarnation,
            in_sync: self.ids(IN_SYNC),
            dead: self.ids(DEAD),
            read_lease_ttl,
            release,
            designated: self.annotation(DESIGNATED),
        }
    }
}

/// `value[key]` as an object, made one if it is anything else.
fn object_at<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let slot = &mut value[key];
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object above"),
    }
}

fn overlay(body: &mut Value, record: &LeaseRecord) {
    let spec = object_at(body, "spec");
    let mut put = |key: &str, text: &str| {
        if !text.is_empty() {
            spec.insert(key.to_owned(), Value::from(text));
        }
    };
    put("holderIdentity", &record.holder);
    put("renewTime", &record.renew_time);
    put("acquireTime", &record.acquire_time);
    if let Some(duration) = record.duration {
        spec.insert("leaseDurationSeconds".into(), Value::from(duration.as_secs()));
    }
    spec.insert("leaseTransitions".into(), Value::from(record.epoch.min(HIGHEST_EPOCH)));

    body["apiVersion"] = Value::from("coordination.k8s.io/v1");
    body["kind"] = Value::from("Lease");
    let metadata = object_at(body, "metadata");
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if !annotations.is_object() {
        *annotations = Value::Object(Map::new());
    }
    let joined = |ids: &BTreeSet<String>| ids.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let (released, released_for) = match &record.release {
        None => (String::new(), String::new()),
        Some(Release::Anyone) => (record.incarnation.clone(), String::new()),
        Some(Release::For(id)) => (record.incarnation.clone(), id.clone()),
    };
    let ttl = record.read_lease_ttl.map(|ttl| ttl.as_millis().to_string()).unwrap_or_default();
    let fields = [
        (POD_NAME, record.pod_name.clone()),
        (POD_UID, record.pod_uid.clone()),
        (INCARNATION, record.incarnation.clone()),
        (IN_SYNC, joined(&record.in_sync)),
        (DEAD, joined(&record.dead)),
        (READ_LEASE_TTL_MS, ttl),
        (RELEASED, released),
        (RELEASED_FOR, released_for),
        (DESIGNATED, record.designated.clone()),
    ];
    if let Some(map) = annotations.as_object_mut() {
        for (name, text) in fields {
            if text.is_empty() {
                map.remove(name);
            } else {
                map.insert(name.to_owned(), Value::from(text));
            }
        }
    }
}

/// A renew time that is later than `last` and differs from `observed`, whatever the wall clock does: observers tell by
/// it that the holder is alive.
pub(crate) fn fresh_renew_time(wall: WallTime, last: WallTime, observed: &str) -> WallTime {
    let mut next = WallTime(wall.0.max(last.0 + 1));
    while next.to_string() == observed {
        next.0 += 1;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> LeaseRecord {
        LeaseRecord {
            holder: "10.0.0.1:50051".into(),
            epoch: 7,
            duration: Some(Duration::from_secs(5)),
            renew_time: WallTime(5).to_string(),
            acquire_time: WallTime(4).to_string(),
            pod_name: "m-0".into(),
            pod_uid: "u".into(),
            incarnation: "i1".into(),
            in_sync: ["i2".to_owned(), "i3".to_owned()].into(),
            dead: ["i3".to_owned()].into(),
            read_lease_ttl: Some(Duration::from_millis(1500)),
            release: Some(Release::For("i2".into())),
            designated: "i2".into(),
        }
    }

    fn object(mut body: Value) -> LeaseObject {
        body["metadata"]["uid"] = "uid-1".into();
        body["metadata"]["resourceVersion"] = "12".into();
        LeaseObject::parse(body).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let object = object(new_lease("ns", "lease", &record()));
        assert_eq!(object.record, record());
        assert_eq!(object.problems, []);
        let cleared =
            LeaseRecord { release: None, in_sync: BTreeSet::new(), designated: String::new(), ..record() };
        let body = object.replaced_by(&cleared);
        assert_eq!(body["metadata"]["annotations"].get(RELEASED), None);
        assert_eq!(body["metadata"]["annotations"].get(DESIGNATED), None);
        assert_eq!(LeaseObject::parse(body).unwrap().record, cleared);
    }

    #[test]
    fn foreign_fields_survive_and_the_replace_names_its_object() {
        let object = object(json!({
            "metadata": {
                "annotations": { "other": "x" }, "labels": { "a": "b" }, "ownerReferences": [{ "uid": "o" }]
            },
            "spec": { "strategy": "OldestEmulationVersion" }
        }));
        assert!(!object.record.is_held());
        let body = object.replaced_by(&record());
        for (pointer, expected) in [
            ("/metadata/annotations/other", "x"),
            ("/metadata/labels/a", "b"),
            ("/metadata/ownerReferences/0/uid", "o"),
            ("/spec/strategy", "OldestEmulationVersion"),
            ("/metadata/uid", "uid-1"),
            ("/metadata/resourceVersion", "12"),
        ] {
            assert_eq!(body.pointer(pointer), Some(&Value::from(expected)), "{pointer}");
        }
    }

    #[test]
    fn malformed_fields_are_named_and_count_as_absent() {
        let object = object(json!({
            "metadata": { "annotations": { INCARNATION: "i1", RELEASED: "i0", READ_LEASE_TTL_MS: "soon" } },
            "spec": { "holderIdentity": 7, "leaseTransitions": -1, "leaseDurationSeconds": 0 }
        }));
        assert_eq!(object.problems.len(), 5, "{:?}", object.problems);
        assert_eq!(object.record.duration, None);
        assert_eq!(object.record.release, None);
        assert_eq!(
            LeaseObject::parse(json!({})).unwrap_err(),
            RecordError::Identity { field: "metadata.uid" }
        );
    }

    #[test]
    fn renew_times_differ_even_when_the_wall_clock_stands_or_jumps_back() {
        let first = fresh_renew_time(WallTime(10), WallTime(0), "");
        assert_eq!(fresh_renew_time(WallTime(10), first, ""), WallTime(11));
        assert_eq!(fresh_renew_time(WallTime(2), first, &WallTime(11).to_string()), WallTime(12));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{1,4}", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn garbage_never_panics_and_can_be_written_over(
            fields in prop::collection::vec(any_json(), 8), annotations in any_json(), spec in any_json(),
            whole in any::<bool>(),
        ) {
            let raw = json!({
                "metadata": {
                    "uid": "u", "resourceVersion": "1",
                    "annotations": if whole { annotations } else {
                        json!({ INCARNATION: fields[0], RELEASED: fields[1], IN_SYNC: fields[2], READ_LEASE_TTL_MS: fields[3] })
                    },
                },
                "spec": if whole { spec } else {
                    json!({ "holderIdentity": fields[4], "leaseTransitions": fields[5],
                            "leaseDurationSeconds": fields[6], "renewTime": fields[7] })
                },
            });
            let object = LeaseObject::parse(raw).unwrap();
            prop_assert_eq!(LeaseObject::parse(object.replaced_by(&record())).unwrap().record, record());
        }
    }
}
