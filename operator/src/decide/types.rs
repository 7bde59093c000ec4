//! What was observed, in plain values: no Kubernetes types, no clock, no client.

use crate::build::Kind;
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
    /// How long label and Lease have disagreed in the way they do now.
    pub disagreed_for: Duration,
    /// What the API server said when the last pass could not carry out an action.
    pub last_error: Option<String>,
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
    /// The kubelet says that it is Ready.
    pub ready: bool,
    /// The kubelet says that the master's container runs.
    pub running: bool,
    /// What the kubelet says the container waits for, if that is a failure.
    pub failure: Option<String>,
    /// What the master says of itself.
    pub says: Says,
    /// How long it has neither served nor stood by.
    pub idle_for: Duration,
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

    pub(super) fn outdated(&self, pod: &Pod) -> bool {
        pod.template_hash.as_ref() != Some(&self.template_hash)
    }
}

impl Pod {
    /// It stands by and would take over.
    pub(crate) fn stands_by(&self) -> bool {
        self.running && !self.terminating && self.says == Says::Standby
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
