//! Objects that somebody else keeps changing back.
//!
//! What differs from what is wanted is corrected at once, the first few times. Where it differs again and again although
//! the same is wanted, two writers fight, and each write of the one is a reason for the other. From then on the time
//! between two corrections grows, and it is said who the other one is.

use crate::{
    build::{Kind, Object},
    decide::{Contest, Presence},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::core::DynamicObject;
use mooncake_crds::names;
use serde_json::Value;
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

/// So many corrections of an object are made at once.
const AT_ONCE: u32 = 3;
/// Longest time between two corrections.
const LONGEST: Duration = Duration::from_secs(60);
/// When an object has needed no correction for this long nobody fights for it any more.
const CALM: Duration = Duration::from_secs(300);

/// The corrections of the objects of one resource.
#[derive(Debug, Default)]
pub(crate) struct Corrections(HashMap<Kind, Track>);

#[derive(Debug)]
struct Track {
    /// What is wanted: another wish is another matter.
    hash: String,
    count: u32,
    last: Instant,
    /// How it differed last, and by whom.
    what: String,
}

impl Corrections {
    /// Whether the object is fought for. `what`: how it differs now, if it does.
    pub(crate) fn look(&mut self, wanted: &Object, what: Option<String>, now: Instant) -> Option<Contest> {
        let track = self.0.get_mut(&wanted.kind).filter(|track| track.hash == wanted.hash())?;
        if let Some(what) = what {
            track.what = what;
        }
        let since = now.saturating_duration_since(track.last);
        if track.count < AT_ONCE || since >= CALM {
            return None;
        }
        let between = LONGEST.min(Duration::from_secs(2 << (track.count - AT_ONCE).min(6)));
        Some(Contest { what: track.what.clone(), wait: between.saturating_sub(since) })
    }

    /// Takes note of an object that was created or corrected.
    pub(crate) fn applied(&mut self, wanted: &Object, now: Instant) {
        let hash = wanted.hash();
        let Some(track) = self.0.get_mut(&wanted.kind).filter(|track| track.hash == hash) else {
            let new = Track { hash: hash.to_owned(), count: 0, last: now, what: String::new() };
            self.0.insert(wanted.kind, new);
            return;
        };
        let calm = now.saturating_duration_since(track.last) >= CALM;
        track.count = if calm { 1 } else { track.count.saturating_add(1) };
        track.last = now;
    }

    /// Takes note of an object that was removed: when it comes back, that is no correction.
    pub(crate) fn removed(&mut self, kind: Kind) {
        self.0.remove(&kind);
    }
}

/// How an object differs from what is wanted, and who has made it so; `None` if it does not, or is none of ours.
pub(crate) fn what_differs(presence: &Presence, found: Option<&DynamicObject>) -> Option<String> {
    match presence {
        Presence::Missing => Some("deleted".to_owned()),
        Presence::Drifted(path) => {
            let entries = found.and_then(|found| found.metadata.managed_fields.as_deref());
            let by = writer(entries.unwrap_or_default(), path);
            Some(by.map_or_else(|| path.clone(), |by| format!("{path} by {by}")))
        }
        Presence::Current | Presence::Foreign(_) | Presence::Unwanted(_) => None,
    }
}

/// Who owns the field with that path beside the operator. Who has removed it owns nothing: then whoever wrote last.
fn writer<'a>(entries: &'a [ManagedFieldsEntry], path: &str) -> Option<&'a str> {
    let others = || {
        entries.iter().filter(|entry| {
            entry.manager.as_deref() != Some(names::FIELD_MANAGER) && entry.subresource.is_none()
        })
    };
    let latest = |one: &&ManagedFieldsEntry| one.time.as_ref().map(|time| time.0);
    let owns = |one: &&ManagedFieldsEntry| one.fields_v1.as_ref().is_some_and(|set| owns(&set.0, path));
    let found = others().filter(owns).max_by_key(latest).or_else(|| others().max_by_key(latest))?;
    found.manager.as_deref()
}

/// Whether a set of fields has that one. A key may itself contain dots, so the path is not cut at them.
fn owns(fields: &Value, path: &str) -> bool {
    fields.as_object().is_some_and(|fields| {
        fields.iter().any(|(key, inside)| {
            let rest = key.strip_prefix("f:").and_then(|key| path.strip_prefix(key));
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix('.').is_some_and(|rest| owns(inside, rest))
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wanted(hash: &str) -> Object {
        let content = json!({ "metadata": { "annotations": { "mooncake.io/applied": hash } } });
        Object { kind: Kind::Service, name: "m".to_owned(), content }
    }

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    const DRIFT: &str = "spec.ports by kubectl-edit";

    /// What a contest waits for, if there is one, in seconds.
    fn waits(all: &mut Corrections, hash: &str, now: Instant) -> Option<u64> {
        all.look(&wanted(hash), Some(DRIFT.to_owned()), now).map(|contest| contest.wait.as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_corrections_are_made_at_once_and_later_ones_ever_later() {
        let start = Instant::now();
        let mut all = Corrections::default();
        assert_eq!(waits(&mut all, "a", start), None, "not applied yet");
        all.applied(&wanted("a"), start);
        let mut now = 0;
        for _ in 0..3 {
            now += 1;
            assert_eq!(waits(&mut all, "a", at(start, now)), None);
            all.applied(&wanted("a"), at(start, now));
        }
        for between in [2, 4, 8, 16, 32, 60, 60, 60] {
            assert_eq!(waits(&mut all, "a", at(start, now)), Some(between));
            assert_eq!(waits(&mut all, "a", at(start, now + between - 1)), Some(1));
            now += between;
            assert_eq!(waits(&mut all, "a", at(start, now)), Some(0));
            all.applied(&wanted("a"), at(start, now));
        }
        // It stays said while the object is as wanted, until that has lasted.
        let contest = all.look(&wanted("a"), None, at(start, now + 299)).expect("a contest");
        assert_eq!((contest.what.as_str(), contest.wait), (DRIFT, Duration::ZERO));
        assert_eq!(all.look(&wanted("a"), None, at(start, now + 300)), None);
        all.applied(&wanted("a"), at(start, now + 300));
        assert_eq!(waits(&mut all, "a", at(start, now + 300)), None, "it begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn another_wish_is_another_matter() {
        let now = Instant::now();
        let mut all = Corrections::default();
        for _ in 0..4 {
            all.applied(&wanted("a"), now);
        }
        assert_eq!(waits(&mut all, "a", now), Some(2));
        assert_eq!(waits(&mut all, "b", now), None);
        all.applied(&wanted("b"), now);
        assert_eq!(waits(&mut all, "b", now), None);
        for _ in 0..3 {
            all.applied(&wanted("b"), now);
        }
        assert_eq!(waits(&mut all, "b", now), Some(2));
        all.removed(Kind::Service);
        assert_eq!(waits(&mut all, "b", now), None, "the operator itself has removed it");
    }

    #[test]
    fn the_other_writer_is_named() {
        let entries: Vec<ManagedFieldsEntry> = serde_json::from_value(json!([
            { "manager": "mooncake-operator", "time": "2026-01-01T00:00:09Z",
                "fieldsV1": { "f:spec": { "f:selector": {} } } },
            { "manager": "old", "time": "2026-01-01T00:00:01Z", "fieldsV1": { "f:spec": { "f:replicas": {} } } },
            { "manager": "new", "time": "2026-01-01T00:00:02Z", "fieldsV1": { "f:spec": { "f:replicas": {} } } },
            { "manager": "notes", "time": "2026-01-01T00:00:03Z",
                "fieldsV1": { "f:metadata": { "f:annotations": { "f:mooncake.io/applied": {} } } } },
            { "manager": "controller", "subresource": "status", "time": "2026-01-01T00:00:08Z",
                "fieldsV1": { "f:status": { "f:replicas": {} } } },
        ]))
        .expect("entries");
        assert_eq!(writer(&entries, "spec.replicas"), Some("new"), "the later one");
        assert_eq!(writer(&entries, "metadata.annotations.mooncake.io/applied"), Some("notes"));
        assert_eq!(writer(&entries, "spec.selector"), Some("notes"), "removed by somebody: the last writer");
        assert_eq!(writer(&entries[..1], "spec.selector"), None);
        let drifted = Presence::Drifted("spec.selector".to_owned());
        assert_eq!(what_differs(&drifted, None).as_deref(), Some("spec.selector"));
        assert_eq!(what_differs(&Presence::Missing, None).as_deref(), Some("deleted"));
        assert_eq!(what_differs(&Presence::Current, None), None);
    }
}
