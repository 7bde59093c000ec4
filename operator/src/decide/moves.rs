//! Moving the active role while its holder is alive: a failover of one that is blocked, and planned hand-overs.
//!
//! A move is on status, and each of its phases is written there before anything is done for it: a pass either changes
//! what status says, or does what status already says. So an operator that dies anywhere leaves a move that the next
//! one goes on with, and everything that is done can be done twice.
//!
//! - The active is fenced (its pod deleted by uid) only while another master stands by, and only when the kubelet and
//!   the operator's own calls both say that it serves nothing (D2). Where no kubelet can end it, it is asked instead.
//! - A hand-over is asked for, once in a move: the annotation on the Lease names the successor, and the holder releases
//!   for it. If it was asked and does not, a roll deletes the pod as it would without a standby; a drain does nothing by
//!   force and tries later.
//! - Only a successor that serves is a success. Every other end counts, and the next try waits longer; a roll is not
//!   tried again with a template that did not serve.

mod plan;
mod progress;

pub use plan::{FailoverRules, MoveKind, Moving, Outcome, Party, PastFailover, PastMove, Phase, Plan, Step};

use super::{Action, Finding, Hold, LeaseState, Observed, Pod, roll::Roll};
use mooncake_crds::Reason;
use std::time::Duration;

/// Time to ask the holder, and then for it to release for the successor. Generous: a master needs three seconds at most,
/// design, leadership 7.
pub const RELEASE_DEADLINE: Duration = Duration::from_secs(10);
/// Time for the successor to claim what was released for it, from when the holder was asked; then the old active has it
/// back.
pub const CLAIM_DEADLINE: Duration = Duration::from_secs(25);
/// Time for a new active that answers to be Ready; then the role goes on once.
pub const READY_DEADLINE: Duration = Duration::from_secs(15);
/// Time for a new active to be Ready at all; then the move has failed.
pub const VERIFY_DEADLINE: Duration = Duration::from_secs(30);
/// Time for a fenced active to lose the Lease; then its kubelet is taken for dead.
pub const FENCE_DEADLINE: Duration = Duration::from_secs(60);
/// How often the role goes on within one move.
pub const ATTEMPTS: i32 = 2;
/// Time to the next try of a hand-over that has failed; doubles with each.
const RETRY: Duration = Duration::from_secs(10);
/// Longest time to the next try.
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// A cool-down doubles this often at most.
const MOST_DOUBLINGS: u32 = 6;

/// What is to be done for moves.
#[derive(Clone, Debug)]
pub(super) struct Moves {
    /// What changes on status. Not [`Step::Keep`]: nothing else is done for a move in this pass.
    pub(super) step: Step,
    /// What is done for what is on status.
    pub(super) actions: Vec<Action>,
    /// Why the node of the active is about to go, when no move is under way for it.
    pub(super) leaving: Option<String>,
}

pub(super) fn plan(seen: &Observed, roll: &Roll, may_roll: bool) -> Moves {
    if seen.moving.is_some() {
        let (step, actions) = progress::proceed(seen);
        return Moves { step, actions, leaving: None };
    }
    let mut moves = Moves { step: begin(seen, roll, may_roll), actions: Vec::new(), leaving: None };
    if moves.step == Step::Keep {
        moves.leaving = seen.active().and_then(|active| {
            let why = active.node.as_ref()?.leaving.as_ref()?;
            let lacks = match candidate(seen, active, Needs::Stay) {
                None => "no other master stands by on a node that stays",
                Some(_) => "the last try has failed, and another one follows",
            };
            Some(format!("{why}; {lacks}"))
        });
        moves.actions.extend(withdraw(seen));
    }
    moves
}

/// A hand-over that has failed must not be obeyed at some later time.
fn withdraw(seen: &Observed) -> Option<Action> {
    let LeaseState::Present(lease) = &seen.lease else { return None };
    let ours = seen.last_move.as_ref().is_some_and(|last| last.outcome != Outcome::Moved);
    (ours && lease.designated.is_some()).then(|| Action::Designate {
        uid: lease.uid.clone(),
        resource_version: lease.resource_version.clone(),
        successor: None,
    })
}

/// The move that should begin now.
fn begin(seen: &Observed, roll: &Roll, may_roll: bool) -> Step {
    let LeaseState::Present(lease) = &seen.lease else { return Step::Keep };
    let may_move = |active: &&Pod| !active.terminating || active.outlives_deletion();
    let Some(active) = seen.active().filter(may_move) else { return Step::Keep };
    for (kind, reason) in wishes(seen, active, roll, may_roll) {
        if is_too_early(seen, kind) {
            continue;
        }
        // What no kubelet ends can still be asked.
        let fence = kind == MoveKind::Blocked && kubelet_reports(active);
        let needs = match kind {
            MoveKind::NodeDrain => Needs::Stay,
            _ if fence => Needs::Nothing,
            _ => Needs::Name,
        };
        let Some(candidate) = candidate(seen, active, needs) else { continue };
        let from = Party {
            incarnation: seen.fresh_holder().map(|holder| holder.incarnation.clone()),
            ..Party::of(active)
        };
        return Step::Begin(Plan {
            phase: if fence { Phase::Fencing } else { Phase::HandingOver },
            kind,
            from,
            to: Party::of(candidate),
            reason,
            epoch: lease.epoch,
            attempt: 1,
        });
    }
    Step::Keep
}

/// Why the role should move, the most pressing first.
fn wishes(seen: &Observed, active: &Pod, roll: &Roll, may_roll: bool) -> Vec<(MoveKind, String)> {
    let mut wishes = Vec::new();
    if active.terminating {
        // The process renews on, but no Service leads to a pod that is being deleted.
        let text = format!("{} is being deleted, and its process does not end", active.id.name);
        wishes.push((MoveKind::NotReady, text));
        return wishes;
    }
    if is_blocked(seen, active) {
        let what = active.health.what().unwrap_or_default();
        wishes.push((
            MoveKind::Blocked,
            format!("{} is not Ready, and HealthCheck fails: {what}", active.id.name),
        ));
    }
    if answers_but_is_not_ready(seen, active) {
        wishes.push((MoveKind::NotReady, format!("{} answers, but its pod is not Ready", active.id.name)));
    }
    if let Some(why) = active.node.as_ref().and_then(|node| node.leaving.as_ref()) {
        wishes.push((MoveKind::NodeDrain, why.clone()));
    }
    if may_roll && roll.replaces_active() {
        wishes.push((MoveKind::Roll, format!("{} is the last pod of an older template", active.id.name)));
    }
    wishes
}

/// A kubelet that does not report says nothing about its pods, and ends none.
fn kubelet_reports(active: &Pod) -> bool {
    active.node.as_ref().is_none_or(|node| node.ready)
}

/// D2: both paths say so, for long enough.
fn is_blocked(seen: &Observed, active: &Pod) -> bool {
    let both = active.health.failed_for().map(|own| own.min(active.not_ready_for));
    !active.ready && !seen.is_cut_off() && both.is_some_and(|both| both >= seen.failover.blocked_after)
}

/// The two paths disagree: also what a stopped kubelet looks like.
fn answers_but_is_not_ready(seen: &Observed, active: &Pod) -> bool {
    !active.ready
        && active.leads()
        && active.health == super::Health::Ok
        && active.not_ready_for >= seen.failover.not_ready_after
}

/// What a candidate must have beside that it stands by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::decide) enum Needs {
    /// Nothing: it claims by itself.
    Nothing,
    /// Its process can be named in a designation.
    Name,
    /// That, and its node stays.
    Stay,
}

/// Who would take over, the best first: with a template that is not known to fail, on a node that stays, of the present
/// template, with the lowest ordinal. Any of them is better than nobody.
pub(in crate::decide) fn candidate<'a>(seen: &'a Observed, active: &Pod, needs: Needs) -> Option<&'a Pod> {
    let uid = active.id.uid.clone();
    let fits = |pod: &Pod| match needs {
        Needs::Nothing => true,
        Needs::Name => pod.incarnation.is_some(),
        Needs::Stay => pod.incarnation.is_some() && !pod.is_leaving(),
    };
    let fails = |pod: &Pod| seen.failed_template.is_some() && pod.template_hash == seen.failed_template;
    seen.others()
        .filter(|pod| pod.id.uid != uid && pod.is_candidate() && fits(pod))
        .min_by_key(|pod| (fails(pod), pod.is_leaving(), seen.outdated(pod), pod.ordinal))
}

/// A cool-down or a pause after a failure is not over.
fn is_too_early(seen: &Observed, kind: MoveKind) -> bool {
    let after_failure = seen.last_move.as_ref().is_some_and(|last| {
        let doublings = u32::try_from(last.failures - 1).unwrap_or(0).min(MOST_DOUBLINGS);
        last.failures > 0 && last.ago < (RETRY * (1 << doublings)).min(LONGEST_RETRY)
    });
    match kind {
        MoveKind::Blocked => is_cooling_down(seen),
        MoveKind::NotReady => is_cooling_down(seen) || after_failure,
        MoveKind::NodeDrain | MoveKind::Roll => after_failure,
    }
}

fn is_cooling_down(seen: &Observed) -> bool {
    seen.last_failover.as_ref().is_some_and(|last| {
        let doublings = u32::try_from(last.failures).unwrap_or(0).min(MOST_DOUBLINGS);
        last.ago < seen.failover.cooldown * (1 << doublings)
    })
}

/// The condition FailoverBlocked.
pub(super) fn blocked(seen: &Observed) -> Finding {
    let not_blocked = |why: &str| Finding::new(Reason::NotBlocked, why);
    if seen.moving.is_some() {
        return not_blocked("the role is being moved");
    }
    if seen.known_epoch == 0 {
        return not_blocked("no master has been active yet");
    }
    if seen.unserved_for < seen.failover.blocked_after {
        let serves = seen.unserved_for.is_zero();
        return not_blocked(if serves {
            "the active serves"
        } else {
            "no master serves, but not for spec.failover.blockedAfter yet"
        });
    }
    let active = seen.active();
    let candidates = seen.others().filter(|pod| pod.is_candidate()).count();
    if candidates == 0 {
        let others: Vec<String> = seen
            .others()
            .map(|pod| match (pod.problem(), &pod.node) {
                (Some(problem), _) => format!("{}: {problem}", pod.id.name),
                (None, Some(node)) if !node.ready => {
                    format!("{}: node {} is not Ready", pod.id.name, node.name)
                }
                (None, _) => format!("{}: does not stand by", pod.id.name),
            })
            .collect();
        let others =
            if others.is_empty() { "there is no other master".to_owned() } else { others.join(", ") };
        return Finding::new(Reason::NoCandidate, others);
    }
    if let Some(active) = active
        && is_cooling_down(seen)
    {
        let failures = seen.last_failover.as_ref().map_or(0, |last| last.failures);
        let reason = if failures > 0 { Reason::TakeoverFailed } else { Reason::CoolingDown };
        return Finding::new(reason, format!("{} does not serve", active.id.name));
    }
    match (active, seen.fresh_holder()) {
        (None, Some(holder)) => {
            not_blocked(&format!("the pod of {} is gone: its Lease runs out", holder.pod))
        }
        _ => not_blocked("a standby can take over"),
    }
}

/// The Lease is held by another process than that of the plan, in a later epoch.
fn has_moved(seen: &Observed, plan: &Plan) -> bool {
    let LeaseState::Present(lease) = &seen.lease else { return false };
    let holder = lease.holder.as_ref().map(|holder| &holder.incarnation);
    lease.epoch > plan.epoch && lease.hold != Hold::Released && holder != plan.from.incarnation.as_ref()
}

#[cfg(test)]
mod tests;
