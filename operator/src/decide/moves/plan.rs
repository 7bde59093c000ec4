//! A move in plain values.

use crate::decide::Pod;
use std::time::Duration;

/// What `spec.failover` says of moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverRules {
    /// How long both paths must have failed.
    pub blocked_after: Duration,
    /// Least time between two failovers.
    pub cooldown: Duration,
    /// How long an active that answers may be not Ready.
    pub not_ready_after: Duration,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// As it stands in the API.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => stringify!($variant),)* }
            }

            /// What a text of the API means; `None` for one of another version.
            pub fn parse(text: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }
    };
}

words! {
    /// How far a move is.
    Phase {
        /// The pod of the old active is deleted.
        Fencing,
        /// The old active is to be asked to release for the successor.
        HandingOver,
        /// It was asked, and is not asked again.
        Releasing,
        /// Another master holds the Lease and is to serve.
        Verifying,
    }
}

words! {
    /// Why the role moves.
    MoveKind {
        /// The active is alive and serves nothing.
        Blocked,
        /// The active answers, but its pod is not Ready.
        NotReady,
        /// The node of the active is cordoned or about to go.
        NodeDrain,
        /// The active is the last pod of an older template.
        Roll,
    }
}

words! {
    /// What a move came to.
    Outcome {
        /// The successor is Ready.
        Moved,
        /// The old active has lost the Lease, and the one that claimed it first does not serve, or not in time.
        NotServing,
        /// The old active kept the Lease.
        NotReleased,
        /// The reason was gone before anything was done.
        Abandoned,
    }
}

/// One side of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod.
    pub uid: String,
    /// Id of the process.
    pub incarnation: Option<String>,
}

impl Party {
    /// A pod as it was observed.
    pub(in crate::decide) fn of(pod: &Pod) -> Party {
        Party { pod: pod.id.name.clone(), uid: pod.id.uid.clone(), incarnation: pod.incarnation.clone() }
    }
}

/// A move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How far it is.
    pub phase: Phase,
    /// Why.
    pub kind: MoveKind,
    /// Who loses the role.
    pub from: Party,
    /// Who is to get it.
    pub to: Party,
    /// What was seen.
    pub reason: String,
    /// Epoch of the old active.
    pub epoch: i64,
    /// Which try, from 1.
    pub attempt: i32,
}

/// A move that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moving {
    /// As it stands on status.
    pub plan: Plan,
    /// How long this operator has seen it in this phase.
    pub phase_for: Duration,
}

/// A move that came to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastMove {
    /// Why it was.
    pub kind: MoveKind,
    /// What it came to.
    pub outcome: Outcome,
    /// How many in a row have failed.
    pub failures: i32,
    /// How long ago it ended.
    pub ago: Duration,
}

/// A failover of an active that was blocked or not Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastFailover {
    /// How long ago it ended.
    pub ago: Duration,
    /// How many in a row after which the new active was not Ready either.
    pub failures: i32,
}

/// What changes on status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Keep,
    /// A move begins.
    Begin(Plan),
    /// The move goes on like this.
    Advance(Plan),
    /// The move is over.
    End {
        /// What it came to.
        outcome: Outcome,
        /// In words.
        message: String,
    },
}
