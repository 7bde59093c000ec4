//! Watches the pods, the Lease and the endpoints of a namespace, checks the leader label in every event, and keeps a
//! journal of what changed when.

use crate::{clock::Moment, instance::eventually};
use anyhow::anyhow;
use futures::StreamExt as _;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod, discovery::v1::EndpointSlice};
use kube::{
    Api, ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher},
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};
use tokio::sync::watch;

/// The label of the active, on at most one pod.
pub const ROLE_LABEL: &str = "mooncake.io/store-role";

/// Something that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Change {
    /// The pod that carries the leader label, if any.
    Labelled { pod: Option<String> },
    /// A pod's condition Ready.
    Ready { pod: String, ready: bool },
    /// A pod of that name, and whether it was told to end.
    Pod { pod: String, uid: String, ending: bool },
    /// How often the kubelet has started a pod's container anew.
    Restarts { pod: String, count: i32 },
    /// The Lease: its epoch, the holder's incarnation, whether it is marked as released.
    Lease { epoch: u64, incarnation: String, released: bool },
    /// Ready endpoints of the Service named like the instance.
    Endpoints { ready: Vec<String> },
}

impl Change {
    /// Whether the Service now routes to `address` and nowhere else.
    pub fn routes_to(&self, address: &str) -> bool {
        matches!(self, Change::Endpoints { ready } if *ready == [address])
    }

    /// Whether the Lease shows a claim after `epoch`.
    pub fn claims_after(&self, epoch: u64) -> bool {
        matches!(self, Change::Lease { epoch: claimed, .. } if *claimed > epoch)
    }
}

#[derive(Debug, Default)]
struct Journal {
    changes: Vec<(Moment, Change)>,
    violation: Option<String>,
}

impl Journal {
    /// Adds a change if it differs from the last one of its kind (and pod).
    fn add(&mut self, change: Change) {
        let same_subject = |other: &Change| match (other, &change) {
            (Change::Ready { pod: a, .. }, Change::Ready { pod: b, .. })
            | (Change::Pod { pod: a, .. }, Change::Pod { pod: b, .. })
            | (Change::Restarts { pod: a, .. }, Change::Restarts { pod: b, .. }) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        };
        if self.changes.iter().rev().map(|(_, c)| c).find(|c| same_subject(c)) != Some(&change) {
            self.changes.push((Moment::now(), change));
        }
    }
}

/// The watch, running until it is dropped.
#[derive(Debug)]
pub struct Watch {
    journal: Arc<Mutex<Journal>>,
    pods: watch::Receiver<BTreeMap<String, IpAddr>>,
    tasks: tokio::task::JoinSet<()>,
}

impl Watch {
    /// Starts watching a namespace; `instance` is the name of its `MooncakeMaster`.
    pub fn start(client: &kube::Client, namespace: &str, instance: &str) -> Watch {
        let journal = Arc::new(Mutex::new(Journal::default()));
        let (addresses, pods) = watch::channel(BTreeMap::new());
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(watch_pods(Api::namespaced(client.clone(), namespace), journal.clone(), addresses));
        tasks.spawn(watch_lease(Api::namespaced(client.clone(), namespace), journal.clone()));
        let of_service = watcher::Config::default().labels(&format!("kubernetes.io/service-name={instance}"));
        tasks.spawn(watch_endpoints(Api::namespaced(client.clone(), namespace), of_service, journal.clone()));
        Watch { journal, pods, tasks }
    }

    /// The pods that have an address, for the prober.
    pub fn pods(&self) -> watch::Receiver<BTreeMap<String, IpAddr>> {
        self.pods.clone()
    }

    /// Everything that changed since `moment`.
    pub fn since(&self, moment: Moment) -> Vec<(Moment, Change)> {
        self.journal.lock().changes.iter().filter(|(at, _)| *at >= moment).cloned().collect()
    }

    /// The first change since `moment` that `is` accepts, waiting for it for at most `limit`; with the time of it.
    ///
    /// # Errors
    /// When there is none; `what` says what was waited for.
    pub async fn first(
        &self,
        what: &str,
        moment: Moment,
        limit: Duration,
        is: impl Fn(&Change) -> bool,
    ) -> anyhow::Result<(Moment, Change)> {
        eventually(what, limit, async || self.since(moment).into_iter().find(|(_, change)| is(change))).await
    }

    /// Ends it.
    ///
    /// # Errors
    /// When any event showed more than one pod with the leader label.
    pub async fn finish(mut self) -> anyhow::Result<()> {
        self.tasks.shutdown().await;
        match self.journal.lock().violation.take() {
            Some(violation) => Err(anyhow!("{violation}")),
            None => Ok(()),
        }
    }
}

/// What matters of a pod.
#[derive(Clone, Debug, Default)]
struct PodState {
    uid: String,
    ending: bool,
    labelled: bool,
    ready: bool,
    restarts: i32,
    ip: Option<IpAddr>,
}

impl From<&Pod> for PodState {
    fn from(pod: &Pod) -> PodState {
        let status = pod.status.as_ref();
        let conditions = status.and_then(|s| s.conditions.as_ref());
        let containers = status.and_then(|s| s.container_statuses.as_ref());
        PodState {
            uid: pod.uid().unwrap_or_default(),
            ending: pod.metadata.deletion_timestamp.is_some(),
            restarts: containers.into_iter().flatten().map(|container| container.restart_count).sum(),
            labelled: pod.labels().get(ROLE_LABEL).is_some_and(|role| role == "leader"),
            ready: conditions.is_some_and(|c| c.iter().any(|c| c.type_ == "Ready" && c.status == "True")),
            ip: status.and_then(|s| s.pod_ip.as_ref()).and_then(|ip| ip.parse().ok()),
        }
    }
}

async fn watch_pods(
    api: Api<Pod>,
    journal: Arc<Mutex<Journal>>,
    addresses: watch::Sender<BTreeMap<String, IpAddr>>,
) {
    let mut pods: BTreeMap<String, PodState> = BTreeMap::new();
    let mut listed: BTreeMap<String, PodState> = BTreeMap::new();
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(pod)) => {
                listed.insert(pod.name_any(), PodState::from(&pod));
                continue;
            }
            Ok(watcher::Event::InitDone) => pods = std::mem::take(&mut listed),
            Ok(watcher::Event::Apply(pod)) => {
                pods.insert(pod.name_any(), PodState::from(&pod));
            }
            Ok(watcher::Event::Delete(pod)) => {
                pods.remove(&pod.name_any());
            }
            // The API server is away: part of the scenarios.
            Err(_) => continue,
        }
        note(&pods, &mut journal.lock());
        let current = pods.iter().filter_map(|(name, pod)| Some((name.clone(), pod.ip?))).collect();
        addresses.send_if_modified(|known| {
            *known != current && {
                *known = current;
                true
            }
        });
    }
}

fn note(pods: &BTreeMap<String, PodState>, journal: &mut Journal) {
    let labelled: Vec<&String> = pods.iter().filter(|(_, pod)| pod.labelled).map(|(name, _)| name).collect();
    if labelled.len() > 1 {
        journal.violation.get_or_insert(format!("leader label on {labelled:?} in one watch event"));
    }
    journal.add(Change::Labelled { pod: labelled.first().map(|name| (*name).clone()) });
    for (name, pod) in pods {
        journal.add(Change::Pod { pod: name.clone(), uid: pod.uid.clone(), ending: pod.ending });
        journal.add(Change::Restarts { pod: name.clone(), count: pod.restarts });
        journal.add(Change::Ready { pod: name.clone(), ready: pod.ready });
    }
}

async fn watch_lease(api: Api<Lease>, journal: Arc<Mutex<Journal>>) {
    let mut leases = std::pin::pin!(
        watcher(api, watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .filter_map(async |l| l.ok())
    );
    while let Some(lease) = leases.next().await {
        let annotation = |name: &str| lease.annotations().get(name).cloned().unwrap_or_default();
        let incarnation = annotation("mooncake.io/incarnation");
        let released = !incarnation.is_empty() && annotation("mooncake.io/released") == incarnation;
        let epoch = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
        journal.lock().add(Change::Lease { epoch: epoch.try_into().unwrap_or(0), incarnation, released });
    }
}

async fn watch_endpoints(api: Api<EndpointSlice>, config: watcher::Config, journal: Arc<Mutex<Journal>>) {
    let mut slices = std::pin::pin!(
        watcher(api, config).default_backoff().applied_objects().filter_map(async |slice| slice.ok())
    );
    while let Some(slice) = slices.next().await {
        let ready = slice
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.conditions.as_ref().is_none_or(|c| c.ready.unwrap_or(true)))
            .flat_map(|endpoint| endpoint.addresses.clone())
            .collect();
        journal.lock().add(Change::Endpoints { ready });
    }
}

/// The changes in a readable form, one a line, times counted from `origin`.
pub fn timeline(origin: Moment, changes: &[(Moment, Change)]) -> String {
    let line =
        |(at, change): &(Moment, Change)| format!("    {:7.3} s  {change:?}", at.since(origin).as_secs_f64());
    changes.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(labelled: &[(&str, bool)]) -> BTreeMap<String, PodState> {
        labelled
            .iter()
            .map(|(name, labelled)| {
                ((*name).to_owned(), PodState { labelled: *labelled, ..PodState::default() })
            })
            .collect()
    }

    #[test]
    fn two_labelled_pods_in_one_event_are_a_violation() {
        let mut journal = Journal::default();
        for state in [[("a", false), ("b", false)], [("a", true), ("b", false)], [("a", false), ("b", true)]]
        {
            note(&pods(&state), &mut journal);
        }
        assert_eq!(journal.violation, None);
        note(&pods(&[("a", true), ("b", true)]), &mut journal);
        note(&pods(&[("a", false), ("b", true)]), &mut journal);
        assert!(journal.violation.is_some_and(|violation| violation.contains("[\"a\", \"b\"]")));
    }

    #[test]
    fn the_journal_holds_changes_only() {
        let mut journal = Journal::default();
        for _ in 0..3 {
            note(&pods(&[("a", true), ("b", false)]), &mut journal);
        }
        let changes: Vec<Change> = journal.changes.into_iter().map(|(_, change)| change).collect();
        let of = |pod: &str| {
            let pod = pod.to_owned();
            [
                Change::Pod { pod: pod.clone(), uid: String::new(), ending: false },
                Change::Restarts { pod: pod.clone(), count: 0 },
                Change::Ready { pod, ready: false },
            ]
        };
        let labelled = Change::Labelled { pod: Some("a".to_owned()) };
        assert_eq!(changes, [vec![labelled], of("a").into(), of("b").into()].concat());
    }
}
