//! What was observed, in plain values: no Kubernetes types, no clock, no client.

use super::moves::{FailoverRules, Moving, PastFailover, PastMove};
use crate::{build::Kind, clients::Clients};
use std::time::Duration;

/// One resource and everything around it.
#[allow(clippy::struct_excessive_bools)] // each is one thing that was observed, independent of the others
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Being deleted: everything is left to the garbage collector.
    pub deleting: bool,
    /// `spec.paused`.
    pub paused: bool,
    /// `spec.replicas`.
    pub replicas: i32,
    /// What is wrong with the spec; empty if it is good.
    pub invalid: Vec<String>,
    /// Each object that is wanted.
    pub objects: Vec<ObjectState>,
    /// The StatefulSet controller has seen the present template, so that a deleted pod comes back from it.
    pub workload_settled: bool,
    /// Hash of the present template.
    pub template_hash: String,
    /// The Lease, read live.
    pub lease: LeaseState,
    /// Highest epoch seen, in the Lease or on status.
    pub known_epoch: i64,
    /// The pods of the StatefulSet.
    pub pods: Vec<Pod>,
    /// There is a pod with the resource's labels, whoever made it: an earlier StatefulSet's pod may outlive it.
    pub any_pod: bool,
    /// What the active says of its clients; `None` if there is none that does.
    pub clients: Option<Clients>,
    /// How long label and Lease have disagreed in the way they do now.
    pub disagreed_for: Duration,
    /// What the API server said when the last pass could not carry out an action.
    pub last_error: Option<String>,
    /// When the role is moved.
    pub failover: FailoverRules,
    /// The move that is under way, as it stands on status.
    pub moving: Option<Moving>,
    /// The last move that came to an end.
    pub last_move: Option<PastMove>,
    /// The last failover of an active that was blocked or not Ready.
    pub last_failover: Option<PastFailover>,
    /// How long no pod has been both the holder of the Lease and Ready.
    pub unserved_for: Duration,
    /// Uids of the pods that the Service routes to; `None`: not read, or not readable.
    pub routed: Option<Vec<String>>,
    /// Hash of the template with which a master got the role in a roll and did not serve.
    pub failed_template: Option<String>,
}

/// An object that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectState {
    /// Kind.
    pub kind: Kind,
    /// Name.
    pub name: String,
    /// Whether and how it is there.
    pub presence: Presence,
    /// Somebody else keeps changing it back.
    pub contest: Option<Contest>,
}

impl ObjectState {
    /// For how long it stays as it is, although that is not as wanted.
    pub(super) fn held_back(&self) -> Option<Duration> {
        let wait = self.contest.as_ref()?.wait;
        let differs = matches!(self.presence, Presence::Missing | Presence::Drifted(_));
        (differs && !wait.is_zero()).then_some(wait)
    }
}

/// An object that was corrected again and again, and always changed back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contest {
    /// How it differed last, and by whom.
    pub what: String,
    /// Time until it may be corrected again.
    pub wait: Duration,
}

/// Whether and how an object is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is not there.
    Missing,
    /// As wanted.
    Current,
    /// Ours, but the field with that path differs.
    Drifted(String),
    /// Somebody else's; says whose.
    Foreign(String),
    /// Ours, and no longer wanted. Bears its uid.
    Unwanted(String),
}

/// The Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// There is none.
    Missing,
    /// Somebody else's; says whose.
    Foreign(String),
    /// Ours.
    Present(Lease),
}

/// What the Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its uid.
    pub uid: String,
    /// Its resource version when it was read.
    pub resource_version: String,
    /// It has the resource as its owner.
    pub owned: bool,
    /// The last process that claimed it.
    pub holder: Option<Holder>,
    /// Whether the holder still holds it.
    pub hold: Hold,
    /// `leaseTransitions`.
    pub epoch: i64,
    /// `leaseDurationSeconds`.
    pub duration_seconds: Option<i32>,
    /// Incarnation id of the process that the holder is asked to hand over to.
    pub designated: Option<String>,
}

/// Whether a holder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Renewed within its duration, as far as the operator could see.
    Fresh,
    /// Not renewed for its duration, on the operator's own clock.
    Expired,
    /// Given up.
    Released,
}

/// The process that a Lease names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Name of its pod.
    pub pod: String,
    /// Uid of its pod.
    pub pod_uid: String,
    /// `host:port` for clients.
    pub address: String,
    /// Id of the process.
    pub incarnation: String,
}

/// A pod, named so that a write hits this very state of this very pod or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
}

/// A pod of the StatefulSet.
#[allow(clippy::struct_excessive_bools)] // each is one thing that was observed, independent of the others
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its identity.
    pub id: PodRef,
    /// Its ordinal.
    pub ordinal: i32,
    /// It carries the leader label.
    pub labelled: bool,
    /// Hash of the template that it was made from.
    pub template_hash: Option<String>,
    /// It is being deleted.
    pub terminating: bool,
    /// How long this operator has seen it being deleted.
    pub terminating_for: Duration,
    /// How long its process may take to end once it is deleted.
    pub grace: Duration,
    /// The kubelet says that it is Ready.
    pub ready: bool,
    /// The kubelet says that the master's container runs.
    pub running: bool,
    /// What the kubelet says the container waits for, if that is a failure.
    pub failure: Option<String>,
    /// What the master says of itself.
    pub says: Says,
    /// Id of its process, if it has said it.
    pub incarnation: Option<String>,
    /// How long it has neither served nor stood by.
    pub idle_for: Duration,
    /// How long the kubelet has not said that it is Ready.
    pub not_ready_for: Duration,
    /// What the operator's own HealthCheck says; asked of the active only.
    pub health: Health,
    /// Its node; `None` before it has one, and where nodes may not be read.
    pub node: Option<Node>,
}

/// What the operator's own HealthCheck of a master says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Not asked, or not answered for yet.
    #[default]
    Unknown,
    /// The last call was answered ok in time.
    Ok,
    /// Some calls in a row have failed, fewer than it takes.
    Failing(String),
    /// As many calls in a row have failed as it takes.
    Failed {
        /// Since when.
        lasts: Duration,
        /// What the last one came to.
        what: String,
    },
}

impl Health {
    /// For how long this path has counted as failed.
    pub(super) fn failed_for(&self) -> Option<Duration> {
        match self {
            Health::Failed { lasts, .. } => Some(*lasts),
            Health::Unknown | Health::Ok | Health::Failing(_) => None,
        }
    }

    /// What the last call came to, if that was a failure.
    pub(super) fn what(&self) -> Option<&str> {
        match self {
            Health::Failing(what) | Health::Failed { what, .. } => Some(what),
            Health::Unknown | Health::Ok => None,
        }
    }
}

/// The node of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its kubelet reports, and well.
    pub ready: bool,
    /// Why it is about to go, or takes no new pods; `None` if it stays.
    pub leaving: Option<String>,
}

/// What a master says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// It stands by.
    Standby,
    /// It leads, or is about to.
    Leader,
    /// Something else, such as `starting`.
    Other(String),
    /// It was not reached.
    Nothing,
}

impl Observed {
    /// The holder, while it holds.
    pub(super) fn fresh_holder(&self) -> Option<&Holder> {
        match &self.lease {
            LeaseState::Present(lease) if lease.hold == Hold::Fresh => lease.holder.as_ref(),
            _ => None,
        }
    }

    /// The holder, while it holds and its pod is there.
    pub(crate) fn active_holder(&self) -> Option<&Holder> {
        self.fresh_holder().filter(|_| self.active().is_some())
    }

    /// The pod of the holder, while it holds. By uid: a pod with the same name may be another one by now.
    pub(crate) fn active(&self) -> Option<&Pod> {
        let holder = self.fresh_holder()?;
        self.pods.iter().find(|pod| pod.id.uid == holder.pod_uid)
    }

    /// The pods that are wanted, but for the active.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Pod> {
        let active = self.active().map(|pod| pod.id.uid.clone());
        self.pods
            .iter()
            .filter(|pod| pod.ordinal < self.replicas)
            .filter(move |pod| Some(&pod.id.uid) != active.as_ref())
    }

    /// The operator reaches none of the masters that run.
    pub(super) fn is_cut_off(&self) -> bool {
        let mut running = self.pods.iter().filter(|pod| pod.running && !pod.terminating).peekable();
        running.peek().is_some() && running.all(|pod| pod.says == Says::Nothing)
    }

    pub(super) fn outdated(&self, pod: &Pod) -> bool {
        pod.template_hash.as_ref() != Some(&self.template_hash)
    }
}

impl Pod {
    /// It stands by and would take over.
    pub(crate) fn stands_by(&self) -> bool {
        self.running && !self.terminating && self.says == Says::Standby
    }

    /// It would take over, and its node is well as far as that is known.
    pub(super) fn is_candidate(&self) -> bool {
        self.stands_by() && self.node.as_ref().is_none_or(|node| node.ready)
    }

    /// Its node is about to go, as far as that is known.
    pub(super) fn is_leaving(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.leaving.is_some())
    }

    /// It was to be gone long ago: its kubelet does not end it, so its process may go on.
    pub(super) fn outlives_deletion(&self) -> bool {
        self.terminating && self.terminating_for >= self.grace + super::DELETION_SLACK
    }

    /// It runs and says that it leads.
    pub(super) fn leads(&self) -> bool {
        self.running && !self.terminating && self.says == Says::Leader
    }

    /// It does not come up, and not only as far as the operator can reach it: an operator that is cut off from the
    /// pods must not delete them for that. A running master that answers nobody is restarted by its kubelet.
    pub(super) fn is_broken(&self) -> bool {
        self.problem().is_some() && !(self.running && self.says == Says::Nothing)
    }

    /// What keeps it from coming up, if it will not come up by itself.
    pub(crate) fn problem(&self) -> Option<String> {
        if let Some(failure) = &self.failure {
            return Some(failure.clone());
        }
        let idle = self.idle_for >= super::PROGRESS_DEADLINE && !self.terminating;
        idle.then(|| match &self.says {
            _ if !self.running => "NotRunning".to_owned(),
            Says::Nothing => "Unreachable".to_owned(),
            Says::Other(state) => format!("Stuck in {state}"),
            Says::Standby | Says::Leader => "NotServing".to_owned(),
        })
    }
}
