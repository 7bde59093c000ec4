//! A move that is under way: what is done in its phase, and how it goes on.

use super::{
    ATTEMPTS, CLAIM_DEADLINE, FENCE_DEADLINE, Moving, Needs, Outcome, Party, Phase, Plan, READY_DEADLINE,
    RELEASE_DEADLINE, Step, VERIFY_DEADLINE, candidate, has_moved, is_blocked, kubelet_reports,
};
use crate::decide::{Action, Health, Hold, Lease, LeaseState, MoveKind, Observed, Pod, Says};

pub(super) fn proceed(seen: &Observed) -> (Step, Vec<Action>) {
    let Some(moving) = &seen.moving else { return keep() };
    let plan = &moving.plan;
    let LeaseState::Present(lease) = &seen.lease else {
        // Without a Lease nobody holds the role; it is created again, and claimed. Somebody else's may stay.
        return if moving.phase_for >= FENCE_DEADLINE {
            end(Outcome::NotReleased, "there is no Lease of this resource")
        } else {
            keep()
        };
    };
    if plan.phase != Phase::Verifying && has_moved(seen, plan) {
        let holder = lease.holder.as_ref();
        let to = holder.map_or_else(
            || plan.to.clone(),
            |holder| Party {
                pod: holder.pod.clone(),
                uid: holder.pod_uid.clone(),
                incarnation: Some(holder.incarnation.clone()),
            },
        );
        return advance(Plan { phase: Phase::Verifying, to, ..plan.clone() });
    }
    match plan.phase {
        Phase::Fencing => fence(seen, moving),
        Phase::HandingOver => hand_over(seen, moving, lease),
        Phase::Releasing => release(seen, moving, lease),
        Phase::Verifying => verify(seen, moving, lease),
    }
}

fn keep() -> (Step, Vec<Action>) {
    (Step::Keep, Vec::new())
}

fn advance(plan: Plan) -> (Step, Vec<Action>) {
    (Step::Advance(plan), Vec::new())
}

fn end(outcome: Outcome, message: impl Into<String>) -> (Step, Vec<Action>) {
    (Step::End { outcome, message: message.into() }, Vec::new())
}

/// The pod, if its very process still holds the Lease.
fn holding<'a>(seen: &'a Observed, plan: &Plan) -> Option<&'a Pod> {
    let holder = seen.fresh_holder()?;
    seen.active().filter(|active| {
        active.id.uid == plan.from.uid && Some(&holder.incarnation) == plan.from.incarnation.as_ref()
    })
}

fn fence(seen: &Observed, moving: &Moving) -> (Step, Vec<Action>) {
    let plan = &moving.plan;
    let late = moving.phase_for >= FENCE_DEADLINE;
    let Some(old) = holding(seen, plan) else {
        // Its Lease is free: the masters do the rest.
        return if late {
            end(Outcome::NotReleased, format!("{} is fenced, and nobody has claimed", plan.from.pod))
        } else {
            keep()
        };
    };
    if old.terminating {
        if !late {
            return keep();
        }
        // Its kubelet does not end it, and its process can still be asked. In a roll it was.
        let asked = plan.kind == MoveKind::Roll;
        return match candidate(seen, old, Needs::Name).filter(|_| !asked) {
            Some(next) => advance(Plan { phase: Phase::HandingOver, to: Party::of(next), ..plan.clone() }),
            None => {
                end(Outcome::NotReleased, format!("{} is deleted, and its process does not end", old.id.name))
            }
        };
    }
    // A fence without somebody to take over would be an outage made by the operator.
    if candidate(seen, old, Needs::Nothing).is_none() {
        return end(Outcome::Abandoned, "no other master stands by any more");
    }
    let act = (Step::Keep, vec![Action::Fence { pod: old.id.name.clone(), uid: old.id.uid.clone() }]);
    if plan.kind == MoveKind::Roll {
        return act;
    }
    if old.ready || old.health == Health::Ok {
        return end(Outcome::Abandoned, format!("{} serves again", old.id.name));
    }
    // What an earlier operator has seen must be seen again, for as long, before a pod is deleted for it.
    match is_blocked(seen, old) && kubelet_reports(old) {
        true => act,
        false if late => {
            end(Outcome::Abandoned, format!("whether {} is blocked cannot be told", old.id.name))
        }
        false => keep(),
    }
}

/// The successor that the plan names, if that very process could still take over.
fn successor<'a>(seen: &'a Observed, plan: &Plan) -> Option<&'a Pod> {
    seen.pods
        .iter()
        .find(|pod| pod.id.uid == plan.to.uid && pod.incarnation == plan.to.incarnation && pod.is_candidate())
}

fn is_asked(plan: &Plan, lease: &Lease) -> bool {
    lease.designated.is_some() && lease.designated == plan.to.incarnation
}

/// Asks the holder, once. What then becomes of it is for [`release`].
fn hand_over(seen: &Observed, moving: &Moving, lease: &Lease) -> (Step, Vec<Action>) {
    let plan = &moving.plan;
    let Some(old) = holding(seen, plan).filter(|_| !is_asked(plan, lease)) else {
        return advance(Plan { phase: Phase::Releasing, ..plan.clone() });
    };
    let pointless = is_pointless(old, plan).or_else(|| {
        let gone = successor(seen, plan).is_none();
        gone.then(|| format!("{} does not stand by any more", plan.to.pod))
    });
    if let Some(why) = pointless {
        return if plan.attempt == 1 {
            end(Outcome::Abandoned, why)
        } else {
            // The role stays where the first try has brought it.
            let (from, to) = (plan.to.clone(), plan.from.clone());
            advance(Plan { phase: Phase::Verifying, from, to, ..plan.clone() })
        };
    }
    if moving.phase_for >= RELEASE_DEADLINE {
        return end(Outcome::NotReleased, format!("{} could not be asked", old.id.name));
    }
    let designate = Action::Designate {
        uid: lease.uid.clone(),
        resource_version: lease.resource_version.clone(),
        successor: plan.to.incarnation.clone(),
    };
    (Step::Keep, vec![designate])
}

/// Waits for what the holder does after it was asked.
fn release(seen: &Observed, moving: &Moving, lease: &Lease) -> (Step, Vec<Action>) {
    let plan = &moving.plan;
    let Some(old) = holding(seen, plan) else {
        // Released, or run out. The successor claims, or the old active takes it back.
        return if moving.phase_for >= CLAIM_DEADLINE {
            end(Outcome::NotReleased, format!("{} did not claim what was released for it", plan.to.pod))
        } else {
            keep()
        };
    };
    // A release removes the request. Without it the holder has released and nobody came.
    if !is_asked(plan, lease) {
        let text = format!("{} did not claim, and {} has the role back", plan.to.pod, old.id.name);
        return end(Outcome::NotReleased, text);
    }
    if moving.phase_for < RELEASE_DEADLINE {
        return keep();
    }
    // It still bears the request, so it never released: nothing but a fence replaces it.
    if plan.kind == MoveKind::Roll && plan.attempt == 1 && successor(seen, plan).is_some() {
        return advance(Plan { phase: Phase::Fencing, ..plan.clone() });
    }
    let seconds = RELEASE_DEADLINE.as_secs();
    end(Outcome::NotReleased, format!("{} did not release within {seconds} s", old.id.name))
}

/// Why the role need not move any more; asked only before the holder is.
fn is_pointless(old: &Pod, plan: &Plan) -> Option<String> {
    if old.terminating {
        return None;
    }
    let by_readiness = plan.attempt > 1 || matches!(plan.kind, MoveKind::NotReady | MoveKind::Blocked);
    if by_readiness && old.ready {
        return Some(format!("{} is Ready", old.id.name));
    }
    if plan.attempt > 1 {
        return None;
    }
    match plan.kind {
        MoveKind::Blocked if old.health == Health::Ok => Some(format!("{} answers again", old.id.name)),
        MoveKind::NodeDrain if old.node.is_some() && !old.is_leaving() => {
            Some(format!("the node of {} stays", old.id.name))
        }
        _ => None,
    }
}

fn verify(seen: &Observed, moving: &Moving, lease: &Lease) -> (Step, Vec<Action>) {
    let plan = &moving.plan;
    let late = moving.phase_for >= VERIFY_DEADLINE;
    let Some(active) = seen.active().filter(|active| !active.terminating) else {
        return if late { end(Outcome::NotServing, "nobody holds the Lease") } else { keep() };
    };
    let routed = seen.routed.as_ref().is_none_or(|routed| routed.contains(&active.id.uid));
    if active.ready && active.labelled && routed {
        // In a planned move the old process keeps its connections open until clients can reach the new one. Nothing
        // else is done to it before it stands by.
        let old = seen.pods.iter().find(|pod| pod.id.uid == plan.from.uid && pod.id.uid != active.id.uid);
        let closing = old.is_some_and(|old| old.running && !old.terminating && old.says != Says::Standby);
        if closing && moving.phase_for < RELEASE_DEADLINE {
            return keep();
        }
        let serves = format!("{} serves in epoch {}", active.id.name, lease.epoch);
        let succeeded = plan.attempt == 1 && active.id.uid == plan.to.uid && active.id.uid != plan.from.uid;
        return if succeeded {
            end(
                Outcome::Moved,
                format!("{serves}. The index was not carried over: clients register again by themselves"),
            )
        } else {
            // Whoever serves: the same move again would come to the same.
            end(Outcome::NotServing, format!("the first that got the role did not serve in time; {serves}"))
        };
    }
    if moving.phase_for >= READY_DEADLINE
        && plan.attempt < ATTEMPTS
        && active.health == Health::Ok
        && let Some(next) = candidate(seen, active, Needs::Name)
    {
        let from = Party {
            incarnation: seen.fresh_holder().map(|holder| holder.incarnation.clone()),
            ..Party::of(active)
        };
        return advance(Plan {
            phase: Phase::HandingOver,
            from,
            to: Party::of(next),
            reason: format!("{} answers, but is not reached through the Service", active.id.name),
            epoch: lease.epoch,
            attempt: plan.attempt + 1,
            ..plan.clone()
        });
    }
    if !late {
        return keep();
    }
    let lacks = match (active.ready, active.labelled, lease.hold) {
        (_, _, Hold::Expired | Hold::Released) => "has lost the Lease",
        (false, ..) => "is not Ready",
        (_, false, _) => "does not carry the leader label",
        _ => "is not an endpoint of the Service",
    };
    end(Outcome::NotServing, format!("{} holds the Lease but {lacks}", active.id.name))
}
