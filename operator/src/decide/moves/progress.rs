//! A move that is under way: what is done in its phase, and how it goes on.

use super::{
    ATTEMPTS, CLAIM_DEADLINE, FENCE_DEADLINE, Moving, Outcome, Party, Phase, Plan, READY_DEADLINE,
    RELEASE_DEADLINE, Step, VERIFY_DEADLINE, candidate, has_moved,
};
use crate::decide::{Action, Health, Hold, Lease, LeaseState, MoveKind, Observed, Pod, Says};

pub(super) fn proceed(seen: &Observed) -> (Step, Vec<Action>) {
    let Some(moving) = &seen.moving else { return keep() };
    // Without a Lease nobody holds the role; it is created again, and claimed.
    let LeaseState::Present(lease) = &seen.lease else { return keep() };
    let plan = &moving.plan;
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
        return (Step::Advance(Plan { phase: Phase::Verifying, to, ..plan.clone() }), Vec::new());
    }
    match plan.phase {
        Phase::Fencing => fence(seen, moving),
        Phase::HandingOver => hand_over(seen, moving, lease),
        Phase::Verifying => verify(seen, moving, lease),
    }
}

fn keep() -> (Step, Vec<Action>) {
    (Step::Keep, Vec::new())
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
    let Some(old) = holding(seen, plan).filter(|old| !old.terminating) else {
        // It is on its way out, or its Lease is free: the masters do the rest.
        return if late {
            end(Outcome::NotReleased, format!("{} is fenced, and nobody has claimed", plan.from.pod))
        } else {
            keep()
        };
    };
    // A fence without somebody to take over would be an outage made by the operator.
    if candidate(seen, old, false).is_none() {
        return end(Outcome::Abandoned, "no other master stands by any more");
    }
    let act = (Step::Keep, vec![Action::Fence { pod: old.id.name.clone(), uid: old.id.uid.clone() }]);
    if plan.kind == MoveKind::Roll {
        return act;
    }
    if old.ready || old.health == Health::Ok {
        return end(Outcome::Abandoned, format!("{} serves again", old.id.name));
    }
    // What an earlier operator has seen must be seen again before a pod is deleted for it.
    match &old.health {
        Health::Failing(_) | Health::Failed { .. } if !seen.is_cut_off() => act,
        _ if late => end(Outcome::Abandoned, format!("whether {} is blocked cannot be told", old.id.name)),
        _ => keep(),
    }
}

fn hand_over(seen: &Observed, moving: &Moving, lease: &Lease) -> (Step, Vec<Action>) {
    let plan = &moving.plan;
    let Some(old) = holding(seen, plan) else {
        // Released, or run out. The successor claims, or the old active takes it back.
        return if moving.phase_for >= CLAIM_DEADLINE {
            end(Outcome::NotReleased, format!("{} did not claim what was released for it", plan.to.pod))
        } else {
            keep()
        };
    };
    let asked = lease.designated.is_some() && lease.designated == plan.to.incarnation;
    let successor = seen.pods.iter().find(|pod| {
        pod.id.uid == plan.to.uid && pod.incarnation == plan.to.incarnation && pod.is_candidate()
    });
    if !asked {
        if let Some(why) = is_pointless(old, plan) {
            return end(Outcome::Abandoned, why);
        }
        if successor.is_none() {
            return end(Outcome::Abandoned, format!("{} does not stand by any more", plan.to.pod));
        }
    }
    if moving.phase_for >= RELEASE_DEADLINE {
        let fence = plan.kind == MoveKind::Roll && successor.is_some();
        return if fence {
            (Step::Advance(Plan { phase: Phase::Fencing, ..plan.clone() }), Vec::new())
        } else {
            end(
                Outcome::NotReleased,
                format!("{} did not release within {} s", old.id.name, RELEASE_DEADLINE.as_secs()),
            )
        };
    }
    if asked {
        return keep();
    }
    let designate = Action::Designate {
        uid: lease.uid.clone(),
        resource_version: lease.resource_version.clone(),
        successor: plan.to.incarnation.clone(),
    };
    (Step::Keep, vec![designate])
}

/// Why the role need not move any more; asked only before the holder is.
fn is_pointless(old: &Pod, plan: &Plan) -> Option<String> {
    let again = plan.attempt > 1 || plan.kind == MoveKind::NotReady;
    if again && old.ready {
        return Some(format!("{} is Ready", old.id.name));
    }
    let stays = old.node.as_ref().is_some_and(|node| node.leaving.is_none());
    (plan.attempt == 1 && plan.kind == MoveKind::NodeDrain && stays)
        .then(|| format!("the node of {} stays", old.id.name))
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
        let message = format!(
            "{} serves in epoch {}. The index was not carried over: clients register again by themselves",
            active.id.name, lease.epoch
        );
        return end(Outcome::Moved, message);
    }
    if moving.phase_for >= READY_DEADLINE
        && plan.attempt < ATTEMPTS
        && active.health == Health::Ok
        && let Some(next) = candidate(seen, active, true)
    {
        let from = Party {
            incarnation: seen.fresh_holder().map(|holder| holder.incarnation.clone()),
            ..Party::of(active)
        };
        return (
            Step::Advance(Plan {
                phase: Phase::HandingOver,
                from,
                to: Party::of(next),
                reason: format!("{} answers, but is not reached through the Service", active.id.name),
                epoch: lease.epoch,
                attempt: plan.attempt + 1,
                ..plan.clone()
            }),
            Vec::new(),
        );
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
