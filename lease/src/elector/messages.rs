//! What goes into an [`Elector`](super::Elector) and what comes out.

use crate::{record::LeaseObject, time::Instant, timing::Timings};
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};

/// Who a candidate is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `host:port` under which it serves; becomes `holderIdentity`.
    pub address: String,
    /// Name of its pod; may be empty outside Kubernetes.
    pub pod_name: String,
    /// Uid of its pod; may be empty.
    pub pod_uid: String,
    /// Random per process start. Two processes never share one.
    pub incarnation: String,
}

/// How a candidate behaves.
#[derive(Debug, Clone)]
pub struct ElectorConfig {
    /// Who it is.
    pub identity: Identity,
    /// Namespace of the Lease, for re-creating it.
    pub namespace: String,
    /// Name of the Lease.
    pub lease_name: String,
    /// Its times.
    pub timings: Timings,
    /// The longest read lease that it will grant when it serves; written for its successor.
    pub read_lease_ttl: Option<Duration>,
    /// How long a process without the index leaves those that have it; `None`: three lease durations.
    pub empty_promotion_after: Option<Duration>,
    /// Every claim gets an epoch above this (`status.epoch`).
    pub epoch_floor: u64,
    /// A lease duration known from elsewhere (`status.leaseDurationSeconds`), zero for none.
    pub duration_floor: Duration,
    /// Whether it may claim from the start; see [`Command::MayClaim`].
    pub may_claim: bool,
}

/// Something that happened.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one is alive at a time")]
pub enum Input {
    /// The time of [`wake_at`](super::Elector::wake_at) has come, or the start.
    Tick,
    /// The outcome of a request. Answers to requests that were replaced meanwhile are ignored.
    Answer {
        /// [`Request::id`].
        id: u64,
        /// Its outcome.
        answer: Answer,
    },
    /// News from the watch.
    Watch(WatchInput),
    /// A request of the process itself.
    Command(Command),
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Answer {
    /// A read found this.
    Found(LeaseObject),
    /// A read found no Lease, as of this resourceVersion of the collection.
    Absent {
        /// resourceVersion of the list.
        resource_version: String,
    },
    /// A write succeeded; the object as it is now.
    Written(LeaseObject),
    /// A write found another state than it named, or a create found the Lease there: nothing was applied.
    Conflict,
    /// A replace found no Lease: nothing was applied.
    Missing,
    /// No answer in time, or an error after which a write may have been applied or may yet be.
    Unknown,
    /// An error after which nothing was applied.
    Refused,
}

/// News from the watch. Events come in their order; after a gap in them comes [`WatchInput::Broken`] first.
#[derive(Debug)]
pub enum WatchInput {
    /// Created or modified.
    Object(Box<LeaseObject>),
    /// Deleted.
    Deleted {
        /// Its uid.
        uid: String,
        /// resourceVersion of the deletion.
        resource_version: String,
    },
    /// Events may have been missed.
    Broken,
}

/// What the process asks of its elector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Opens or closes the gate before claims. It does not end a tenure.
    MayClaim(bool),
    /// The process has proof that no earlier process of its pod runs (it has bound that one's port): a lease held by an
    /// earlier incarnation of its pod is marked released.
    PredecessorGone,
    /// Gives the lease up, and never answers from its own state again before it has taken it back. Without a successor it
    /// is for anyone and for good; [`Event::Released`] follows. With one, it takes the lease back once its own record has
    /// stayed unclaimed for a lease duration.
    Resign {
        /// Incarnation id of the successor.
        successor: Option<String>,
    },
    /// Does not claim for this long, unless it is alone.
    Reluctant {
        /// For how long from now.
        period: Duration,
    },
    /// Whether there is no other candidate.
    Alone(bool),
    /// `status` names a higher epoch or a longer duration.
    EpochFloor {
        /// `status.epoch`.
        epoch: u64,
        /// `status.leaseDurationSeconds`.
        duration: Duration,
    },
    /// The in-sync set as the holder wants it; written with a renewal, at once.
    InSync(BTreeSet<String>),
}

/// What is to be done.
#[derive(Debug)]
pub enum Action {
    /// Send this to the API server and hand its outcome back. It replaces a request that is under way.
    Send(Request),
    /// Tell the process.
    Emit(Event),
}

/// A request to the API server.
#[derive(Debug)]
pub struct Request {
    /// For the answer.
    pub id: u64,
    /// What to do.
    pub kind: RequestKind,
}

/// The requests that an elector makes.
#[derive(Debug)]
pub enum RequestKind {
    /// Read the Lease (a list by name, so that absence has a version, too).
    Read,
    /// Replace it with this body, which carries uid and resourceVersion.
    Replace(Value),
    /// Create it with this body.
    Create(Value),
}

/// What the process must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The lease is this process's, in this epoch. A permit usually follows at once.
    Elected {
        /// The epoch, higher than every one before it.
        epoch: u64,
        /// The Lease was lost and re-created by its own holder: memory and connections stay.
        kept: bool,
        /// How long read leases of the holder before may last; `None`: not known.
        previous_read_lease_ttl: Option<Duration>,
    },
    /// It may serve until then, on its own clock. Also extends an earlier permit.
    Permit {
        /// The epoch.
        epoch: u64,
        /// The end.
        until: Instant,
    },
    /// The holder is asked to hand over to that process, which may claim. Once for each new value, only under a permit;
    /// [`Command::Resign`] with this successor does it.
    Designated {
        /// The successor's incarnation id.
        successor: String,
    },
    /// The permit is over, by time or at once. A later [`Event::Permit`] of the same epoch means that nobody claimed the
    /// lease in between.
    PermitEnded,
    /// Its memory is worth nothing any more: the process must start anew. Nothing follows.
    Lost {
        /// Why.
        reason: LossReason,
    },
    /// The resignation for anyone is carried out (or somebody else holds the lease). Nothing follows.
    Released,
    /// Who leads, as far as this process can see.
    Leader(Option<Leader>),
}

/// A leader as it is seen in the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// `holderIdentity`.
    pub address: String,
    /// Its epoch.
    pub epoch: u64,
}

/// Why a process must start anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LossReason {
    /// The record names somebody else or a higher epoch.
    #[error("the lease is held by {holder:?} in epoch {epoch}")]
    Superseded {
        /// `holderIdentity`.
        holder: String,
        /// Name of its pod; may be empty.
        pod_name: String,
        /// Its epoch.
        epoch: u64,
    },
    /// The record shows an epoch below one that was seen: the Lease or its store was set back.
    #[error("the lease shows epoch {found} after epoch {seen}")]
    EpochWentBack {
        /// The highest seen.
        seen: u64,
        /// The one found.
        found: u64,
    },
    /// The Lease was deleted while this process could not see what happened to it.
    #[error("the lease was deleted and may have been held by another since")]
    LeaseVanished,
}
