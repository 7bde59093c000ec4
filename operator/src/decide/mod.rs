//! From what was observed to what is done: a pure function.
//!
//! These rules hold for every list of actions, whatever was observed (property tests in `model.rs`):
//! - never two pods with the leader label: the label is put on a pod only if no other pod carries it;
//! - a roll never deletes the active while another master could be replaced first, and never deletes a second pod
//!   while the last one is not standing by again;
//! - an active is fenced only while another master stands by, and never by an operator that reaches no master;
//! - nothing is done for a move that does not stand on status.

mod conditions;
mod label;
pub mod moves;
mod roll;
mod types;

pub use conditions::Finding;
pub use label::{Disagreement, disagreement};
pub use moves::{FailoverRules, MoveKind, Moving, Outcome, Party, PastFailover, PastMove, Phase, Plan, Step};
pub use types::*;

use crate::build::Kind;
use std::time::Duration;

/// How long label and Lease must disagree before the operator writes a label: the holder does it by itself in less.
pub const LABEL_GRACE: Duration = Duration::from_secs(3);
/// How long a master may neither serve nor stand by before something is said to be wrong with it.
pub const PROGRESS_DEADLINE: Duration = Duration::from_secs(120);
/// How long a standby may be away before the redundancy counts as lost: a restart is not worth a condition.
pub const REDUNDANCY_GRACE: Duration = Duration::from_secs(15);

/// Time beyond its grace period after which a pod that is being deleted has a kubelet that does not end it.
pub const DELETION_SLACK: Duration = Duration::from_secs(10);

/// Time to the next pass after status was given a new phase of a move, which is then carried out.
const AT_ONCE: Duration = Duration::from_millis(20);
/// Time to the next pass while something is under way.
const SOON: Duration = Duration::from_secs(1);
/// Time to the next pass when nothing is: standbys are asked how they are.
const LATER: Duration = Duration::from_secs(30);

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create or correct the object of that kind.
    Apply(Kind),
    /// Create the missing Lease with that epoch.
    CreateLease {
        /// Highest epoch seen.
        epoch: i64,
        /// No master of this instance has ever run, so nobody has to be waited for: the first one claims at once.
        released: bool,
    },
    /// Own the Lease that a master had to create.
    AdoptLease,
    /// Take the leader label off a pod that does not hold the Lease.
    ClearLabel(PodRef),
    /// Put the leader label on the pod that holds the Lease.
    SetLabel(PodRef),
    /// Delete a pod, so that it comes back from the present template.
    DeletePod {
        /// Which.
        pod: PodRef,
        /// Why.
        why: Why,
    },
    /// Delete the pod with that uid, whatever else has changed about it: its process releases the Lease.
    Fence {
        /// Name of the pod.
        pod: String,
        /// Its uid.
        uid: String,
    },
    /// Ask the holder of the Lease to release it for a process, or no longer to.
    Designate {
        /// Uid of the Lease.
        uid: String,
        /// Resource version of the Lease when it was read.
        resource_version: String,
        /// Incarnation id of the successor.
        successor: Option<String>,
    },
    /// Delete our object of that kind, which is no longer wanted.
    Remove {
        /// Its kind.
        kind: Kind,
        /// Its uid.
        uid: String,
    },
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is a standby of an older template.
    RollStandby,
    /// It is the active of an older template, and the last one.
    RollActive,
    /// It is of an older template and does not come up.
    Heal,
}

/// What follows from an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// In the order in which they are carried out; the first that fails ends the pass.
    pub actions: Vec<Action>,
    /// What changes about a move on status.
    pub step: Step,
    /// One for each condition type.
    pub conditions: Vec<Finding>,
    /// When to look again if nothing happens.
    pub again: Duration,
}

/// Decides.
pub fn decide(seen: &Observed) -> Decision {
    let mut actions = Vec::new();
    // The budget is for drains; nothing else waits for it.
    let objects_stand =
        seen.objects.iter().all(|object| object.presence == Presence::Current || is_budget(object));
    let steering = !seen.paused && !seen.deleting;
    let building = steering && !conditions::is_stopped_by_others(seen) && seen.invalid.is_empty();
    let roll = roll::plan(seen);

    // Who serves comes first, and then the label, which says where clients go: a refused object must not stand in the
    // way of either.
    let moves = steering.then(|| moves::plan(seen, &roll, building && objects_stand));
    let step = moves.as_ref().map_or(Step::Keep, |moves| moves.step.clone());
    if let Some(moves) = &moves {
        actions.extend(moves.actions.iter().cloned());
        label::correct(seen, &mut actions);
    }
    if building {
        match &seen.lease {
            // Before the pods, so that no master has to create it without an owner.
            LeaseState::Missing => {
                // Once an epoch was seen, a pod that is gone proves nothing: its process may run on a lost node. And a
                // pod of an earlier resource of this name may still serve, though this one's status knows no epoch.
                let released = seen.known_epoch == 0 && !seen.any_pod;
                actions.push(Action::CreateLease { epoch: seen.known_epoch, released });
            }
            LeaseState::Present(lease) if !lease.owned => actions.push(Action::AdoptLease),
            LeaseState::Present(_) | LeaseState::Foreign(_) => {}
        }
        actions.extend(seen.objects.iter().filter(|object| !is_budget(object)).filter_map(build_action));
    }
    let moving = seen.moving.is_some() || step != Step::Keep;
    if let (true, true, Some((pod, why))) = (building, objects_stand, &roll.delete)
        && may_delete(seen, pod, *why, moving)
        // One at a time: what is broken can wait for the next pass.
        && !actions.iter().any(|action| matches!(action, Action::Fence { .. }))
    {
        actions.push(Action::DeletePod { pod: pod.clone(), why: *why });
    }
    // Last: what is refused ends a pass, and nothing must end for the budget.
    if building {
        actions.extend(seen.objects.iter().filter(|object| is_budget(object)).filter_map(build_action));
    }

    let leaving = moves.and_then(|moves| moves.leaving);
    let conditions = conditions::find(seen, &roll, leaving.as_deref());
    let quiet = actions.is_empty()
        && !moving
        && disagreement(seen).is_none()
        && (!steering || conditions.iter().all(Finding::is_settled));
    let again = match (&step, quiet) {
        (Step::Keep, true) => LATER,
        (Step::Keep, false) => SOON,
        _ => AT_ONCE,
    };
    let again = seen.objects.iter().filter_map(ObjectState::held_back).fold(again, Duration::min);
    Decision { actions, step, conditions, again }
}

/// It is for drains only.
fn is_budget(object: &ObjectState) -> bool {
    object.kind == Kind::PodDisruptionBudget
}

fn build_action(object: &ObjectState) -> Option<Action> {
    match &object.presence {
        // Each correction is a reason for the other writer to change it back.
        _ if object.held_back().is_some() => None,
        Presence::Missing | Presence::Drifted(_) => Some(Action::Apply(object.kind)),
        Presence::Unwanted(uid) => Some(Action::Remove { kind: object.kind, uid: uid.clone() }),
        Presence::Current | Presence::Foreign(_) => None,
    }
}

/// While the role moves, only what is broken and has no part in it is replaced. An active of an older template is
/// deleted only if there is nobody whom it could hand the role over to.
fn may_delete(seen: &Observed, pod: &PodRef, why: Why, moving: bool) -> bool {
    let party = seen
        .moving
        .as_ref()
        .is_some_and(|moving| [&moving.plan.from, &moving.plan.to].iter().any(|party| party.uid == pod.uid));
    match why {
        Why::Heal => !party,
        Why::RollStandby => !moving,
        Why::RollActive => {
            let successor =
                seen.active().and_then(|active| moves::candidate(seen, active, moves::Needs::Name));
            !moving && successor.is_none()
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

#[cfg(test)]
mod model;
