//! What the operator remembers between two passes: only since when something is as it is, on its own clock.
//!
//! A restart forgets it, which makes the operator wait anew. It never makes it act earlier.

use crate::{
    clients,
    contest::Corrections,
    decide::{Disagreement, Health, Hold},
    health::{Seen, Target, Track},
};
use mooncake_lease::record::LeaseObject;
use parking_lot::Mutex;
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

/// Namespace and name of a resource.
pub type Key = (String, String);

/// Duration that counts for a Lease that names none.
const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(5);

/// Shared by the reconciler and the watch of the Leases.
#[derive(Debug, Default)]
pub struct Memory(Mutex<HashMap<Key, Remembered>>);

#[derive(Debug, Default)]
struct Remembered {
    lease: Option<SeenLease>,
    disagreement: Option<(Disagreement, Instant)>,
    idle: HashMap<String, (String, Instant)>,
    /// By name of the pod, as `idle`.
    not_ready: HashMap<String, (String, Instant)>,
    /// By name of the pod, as `idle`.
    terminating: HashMap<String, (String, Instant)>,
    unserved: Option<Instant>,
    /// A phase of a move, told by a text that is another for each.
    phase: Option<(String, Instant)>,
    track: Option<Track>,
    /// Nodes of its pods.
    nodes: Vec<String>,
    last_error: Option<String>,
    failures: u32,
    clients: clients::Remembered,
    corrections: Corrections,
}

#[derive(Debug)]
struct SeenLease {
    /// Changes with every renewal.
    renewal: String,
    unchanged_since: Instant,
    /// Changes with what a reconciler must know at once.
    facts: String,
    duration: Duration,
    released: bool,
    /// What the last pass, or the last call of [`Memory::turned`], saw.
    told: Option<Hold>,
}

impl SeenLease {
    fn hold(&self, now: Instant) -> Hold {
        if self.released {
            Hold::Released
        } else if now.saturating_duration_since(self.unchanged_since) > self.duration {
            Hold::Expired
        } else {
            Hold::Fresh
        }
    }
}

impl Memory {
    fn with<T>(&self, key: &Key, act: impl FnOnce(&mut Remembered) -> T) -> T {
        act(self.0.lock().entry(key.clone()).or_default())
    }

    /// Takes note of a Lease; whether it is held, and whether a reconciler must know of a change.
    pub fn saw_lease(&self, key: &Key, lease: &LeaseObject, now: Instant) -> (Hold, bool) {
        let record = &lease.record;
        let facts = format!(
            "{} {} {} {} {:?}",
            lease.uid, record.epoch, record.pod_uid, record.incarnation, record.release
        );
        let renewal = format!("{facts} {}", record.renew_time);
        self.with(key, |remembered| {
            let seen = remembered.lease.get_or_insert_with(|| SeenLease {
                renewal: String::new(),
                unchanged_since: now,
                facts: String::new(),
                duration: DEFAULT_LEASE_DURATION,
                released: false,
                told: None,
            });
            if seen.renewal != renewal {
                seen.renewal = renewal;
                seen.unchanged_since = now;
            }
            let changed = seen.facts != facts;
            seen.facts = facts;
            seen.duration = record.duration.unwrap_or(DEFAULT_LEASE_DURATION);
            seen.released = record.release.is_some();
            let hold = seen.hold(now);
            let turned = seen.told.replace(hold) != Some(hold);
            (hold, changed || turned)
        })
    }

    /// Resources whose Lease has run out since somebody was told.
    pub fn turned(&self, now: Instant) -> Vec<Key> {
        let mut turned = Vec::new();
        for (key, remembered) in self.0.lock().iter_mut() {
            if let Some(lease) = &mut remembered.lease {
                let hold = lease.hold(now);
                if lease.told.replace(hold) != Some(hold) {
                    turned.push(key.clone());
                }
            }
        }
        turned
    }

    /// How long label and Lease have disagreed in just this way.
    pub fn disagreed_for(&self, key: &Key, disagreement: Option<Disagreement>, now: Instant) -> Duration {
        self.with(key, |remembered| {
            let since = match (&remembered.disagreement, &disagreement) {
                (Some((before, since)), Some(present)) if before == present => *since,
                _ => now,
            };
            remembered.disagreement = disagreement.map(|present| (present, since));
            now.saturating_duration_since(since)
        })
    }

    /// How long this very pod has neither served nor stood by.
    pub fn idle_for(&self, key: &Key, pod: &str, uid: &str, idle: bool, now: Instant) -> Duration {
        self.with(key, |remembered| lasts(&mut remembered.idle, pod, uid, idle, now))
    }

    /// How long this very pod has not been Ready.
    pub fn not_ready_for(&self, key: &Key, pod: &str, uid: &str, not_ready: bool, now: Instant) -> Duration {
        self.with(key, |remembered| lasts(&mut remembered.not_ready, pod, uid, not_ready, now))
    }

    /// How long this very pod has been seen being deleted.
    pub fn terminating_for(
        &self,
        key: &Key,
        pod: &str,
        uid: &str,
        terminating: bool,
        now: Instant,
    ) -> Duration {
        self.with(key, |remembered| lasts(&mut remembered.terminating, pod, uid, terminating, now))
    }

    /// How long no active has been Ready.
    pub fn unserved_for(&self, key: &Key, unserved: bool, now: Instant) -> Duration {
        self.with(key, |remembered| {
            if !unserved {
                remembered.unserved = None;
                return Duration::ZERO;
            }
            now.saturating_duration_since(*remembered.unserved.get_or_insert(now))
        })
    }

    /// How long the move has been in the phase that this text tells.
    pub fn phase_for(&self, key: &Key, phase: Option<String>, now: Instant) -> Duration {
        self.with(key, |remembered| {
            let since = match (&remembered.phase, &phase) {
                (Some((before, since)), Some(present)) if before == present => *since,
                _ => now,
            };
            remembered.phase = phase.map(|present| (present, since));
            now.saturating_duration_since(since)
        })
    }

    /// Takes note of a call of the active; whether a reconciler should know.
    pub fn called(&self, key: &Key, target: &Target, result: Result<(), String>, now: Instant) -> bool {
        self.with(key, |remembered| {
            let track = match &mut remembered.track {
                Some(track) if track.is_of(target) => track,
                slot => slot.insert(Track::new(target.clone())),
            };
            track.called(result, now)
        })
    }

    /// What the calls of that process have come to.
    pub fn health(&self, key: &Key, pod_uid: &str, incarnation: &str, now: Instant) -> Health {
        self.with(key, |remembered| match &remembered.track {
            Some(track) if track.is_about(pod_uid, incarnation) => track.health(now),
            _ => Health::Unknown,
        })
    }

    /// What is to be told of calls that failed and then went well, once.
    pub fn take_seen(&self, key: &Key) -> Option<Seen> {
        self.with(key, |remembered| remembered.track.as_mut()?.take_seen())
    }

    /// Takes note of the nodes of the pods of a resource.
    pub fn set_nodes(&self, key: &Key, nodes: Vec<String>) {
        self.with(key, |remembered| remembered.nodes = nodes);
    }

    /// The resources with a pod on that node.
    pub fn on_node(&self, node: &str) -> Vec<Key> {
        let all = self.0.lock();
        let there = |remembered: &Remembered| remembered.nodes.iter().any(|name| name == node);
        all.iter().filter(|(_, remembered)| there(remembered)).map(|(key, _)| key.clone()).collect()
    }

    /// What is remembered of the clients of the active.
    pub(crate) fn clients<T>(&self, key: &Key, act: impl FnOnce(&mut clients::Remembered) -> T) -> T {
        self.with(key, |remembered| act(&mut remembered.clients))
    }

    /// What is remembered of the corrections of its objects.
    pub(crate) fn corrections<T>(&self, key: &Key, act: impl FnOnce(&mut Corrections) -> T) -> T {
        self.with(key, |remembered| act(&mut remembered.corrections))
    }

    /// What the API server said to the last pass.
    pub fn last_error(&self, key: &Key) -> Option<String> {
        self.with(key, |remembered| remembered.last_error.clone())
    }

    /// Takes note of what the API server said; how often in a row it has refused.
    pub fn set_error(&self, key: &Key, error: Option<String>) -> u32 {
        self.with(key, |remembered| {
            remembered.failures = if error.is_some() { remembered.failures.saturating_add(1) } else { 0 };
            remembered.last_error = error;
            remembered.failures
        })
    }

    /// The resource is gone.
    pub fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

/// Since when something has been so about that very pod, as a time until now; not so: zero, and begin anew.
fn lasts(
    all: &mut HashMap<String, (String, Instant)>,
    pod: &str,
    uid: &str,
    is_so: bool,
    now: Instant,
) -> Duration {
    if !is_so {
        all.remove(pod);
        return Duration::ZERO;
    }
    let entry = all.entry(pod.to_owned()).or_insert_with(|| (uid.to_owned(), now));
    if entry.0 != uid {
        *entry = (uid.to_owned(), now);
    }
    now.saturating_duration_since(entry.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key() -> Key {
        ("ns".to_owned(), "m".to_owned())
    }

    fn lease(renew: &str, incarnation: &str, released: bool) -> LeaseObject {
        let mut raw = json!({
            "metadata": { "uid": "u", "resourceVersion": "1",
                "annotations": { "mooncake.io/incarnation": incarnation, "mooncake.io/pod-uid": "p" } },
            "spec": { "holderIdentity": "1.2.3.4:5", "renewTime": renew, "leaseDurationSeconds": 5, "leaseTransitions": 1 }
        });
        if released {
            raw["metadata"]["annotations"]["mooncake.io/released"] = json!(incarnation);
        }
        LeaseObject::parse(raw).expect("a Lease")
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_expires_on_the_operators_own_clock() {
        let memory = Memory::default();
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        assert_eq!(memory.saw_lease(&key(), &lease("t1", "i", false), start), (Hold::Fresh, true));
        assert_eq!(memory.saw_lease(&key(), &lease("t2", "i", false), after(1000)), (Hold::Fresh, false));
        assert_eq!(memory.turned(after(6000)), Vec::<Key>::new(), "renewed at 1 s");
        assert_eq!(memory.turned(after(6001)), vec![key()]);
        assert_eq!(memory.turned(after(7000)), Vec::<Key>::new(), "told once");
        assert_eq!(memory.saw_lease(&key(), &lease("t2", "i", false), after(7000)), (Hold::Expired, false));
        assert_eq!(memory.saw_lease(&key(), &lease("t3", "i", false), after(8000)), (Hold::Fresh, true));
        assert_eq!(memory.saw_lease(&key(), &lease("t3", "i", true), after(8001)), (Hold::Released, true));
        assert_eq!(memory.saw_lease(&key(), &lease("t4", "j", false), after(8002)), (Hold::Fresh, true));
    }

    #[tokio::test(start_paused = true)]
    async fn another_disagreement_waits_anew() {
        let memory = Memory::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let wrong = |uid: &str| Some(Disagreement { wrong: vec![uid.to_owned()], missing: None });
        assert_eq!(memory.disagreed_for(&key(), wrong("a"), start), Duration::ZERO);
        assert_eq!(memory.disagreed_for(&key(), wrong("a"), after(2)), Duration::from_secs(2));
        assert_eq!(memory.disagreed_for(&key(), wrong("b"), after(3)), Duration::ZERO);
        assert_eq!(memory.disagreed_for(&key(), None, after(4)), Duration::ZERO);
        assert_eq!(memory.disagreed_for(&key(), wrong("b"), after(5)), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_pod_is_idle_anew() {
        let memory = Memory::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(memory.idle_for(&key(), "m-0", "a", true, start), Duration::ZERO);
        assert_eq!(memory.idle_for(&key(), "m-0", "a", true, after(9)), Duration::from_secs(9));
        assert_eq!(memory.idle_for(&key(), "m-0", "b", true, after(10)), Duration::ZERO);
        assert_eq!(memory.idle_for(&key(), "m-0", "b", false, after(11)), Duration::ZERO);
        assert_eq!(memory.idle_for(&key(), "m-0", "b", true, after(12)), Duration::ZERO);
    }
}
