//! What is said about a resource.

use super::{
    Hold, LeaseState, ObjectState, Observed, Presence, REDUNDANCY_GRACE, is_budget, moves, roll::Roll,
};
use mooncake_crds::{ConditionStatus, ConditionType, Reason};

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Reason; type and status follow from it.
    pub reason: Reason,
    /// For a reader. Holds no counters or times: a status is written when it changes.
    pub message: String,
}

impl Finding {
    /// A finding.
    pub fn new(reason: Reason, message: impl Into<String>) -> Finding {
        Finding { reason, message: message.into() }
    }

    /// Whether nothing is under way as far as this condition tells.
    pub(super) fn is_settled(&self) -> bool {
        match self.reason.condition() {
            ConditionType::Available => self.reason.status() == ConditionStatus::True,
            // The next correction has its own time.
            ConditionType::Degraded if self.reason == Reason::ObjectContested => true,
            ConditionType::Progressing | ConditionType::Degraded | ConditionType::FailoverBlocked => {
                self.reason.status() != ConditionStatus::True
            }
            ConditionType::ClientsSilent | ConditionType::HeartbeatRouted => true,
        }
    }
}

/// `leaving`: why the node of the active is about to go, when no move is under way for it.
pub(super) fn find(seen: &Observed, roll: &Roll, leaving: Option<&str>) -> Vec<Finding> {
    let degraded = degraded(seen, roll, leaving);
    vec![available(seen), progressing(seen, roll, &degraded), degraded, moves::blocked(seen)]
}

fn available(seen: &Observed) -> Finding {
    let LeaseState::Present(lease) = &seen.lease else {
        return Finding::new(Reason::NoActive, "there is no Lease of this resource");
    };
    let Some(holder) = &lease.holder else {
        return Finding::new(Reason::NoActive, "no master has claimed the Lease yet");
    };
    match lease.hold {
        Hold::Released => {
            return Finding::new(Reason::NoActive, format!("{} has released the Lease", holder.pod));
        }
        Hold::Expired => {
            return Finding::new(Reason::LeaseExpired, format!("{} does not renew the Lease", holder.pod));
        }
        Hold::Fresh => {}
    }
    match seen.active() {
        Some(pod) if !pod.ready => {
            Finding::new(Reason::ActiveNotReady, format!("{} holds the Lease but is not Ready", pod.id.name))
        }
        Some(pod) if !pod.labelled => Finding::new(
            Reason::ActiveNotLabelled,
            format!("{} holds the Lease but does not carry the leader label", pod.id.name),
        ),
        Some(pod) => {
            Finding::new(Reason::ActiveServing, format!("{} serves at {}", pod.id.name, holder.address))
        }
        None => Finding::new(
            Reason::ActiveNotReady,
            format!("{} holds the Lease but its pod is gone", holder.pod),
        ),
    }
}

fn degraded(seen: &Observed, roll: &Roll, leaving: Option<&str>) -> Finding {
    if !seen.invalid.is_empty() {
        return Finding::new(Reason::InvalidSpec, seen.invalid.join("; "));
    }
    let mut foreign: Vec<String> = seen
        .objects
        .iter()
        .filter_map(|object| match &object.presence {
            Presence::Foreign(owner) => {
                Some(format!("{} {} ({owner})", object.kind.api_resource().kind, object.name))
            }
            _ => None,
        })
        .collect();
    if let LeaseState::Foreign(owner) = &seen.lease {
        foreign.push(format!("Lease ({owner})"));
    }
    if !foreign.is_empty() {
        return Finding::new(
            Reason::ForeignObject,
            format!("not made for this resource: {}", foreign.join(", ")),
        );
    }
    if let Some(error) = &seen.last_error {
        return Finding::new(Reason::ApplyFailed, error.clone());
    }
    if let Some(finding) = active_fails(seen) {
        return finding;
    }
    let failed: Vec<String> = seen
        .others()
        .filter_map(|pod| pod.problem().map(|problem| format!("{}: {problem}", pod.id.name)))
        .collect();
    if !failed.is_empty() {
        return Finding::new(Reason::StandbyFailed, failed.join(", "));
    }
    if let Some(why) = leaving {
        return Finding::new(Reason::ActiveNodeLeaving, why);
    }
    if let (true, Some(progress)) = (roll.failed, &roll.progress) {
        return Finding::new(Reason::RollFailed, progress.clone());
    }
    let contested: Vec<String> = seen
        .objects
        .iter()
        .filter_map(|object| {
            let what = &object.contest.as_ref()?.what;
            Some(format!("{} {} ({what})", object.kind.api_resource().kind, object.name))
        })
        .collect();
    if !contested.is_empty() {
        return Finding::new(
            Reason::ObjectContested,
            format!("changed back whenever it is corrected: {}", contested.join(", ")),
        );
    }
    let away: Vec<&str> = seen
        .others()
        .filter(|pod| !pod.stands_by() && pod.idle_for >= REDUNDANCY_GRACE)
        .map(|pod| pod.id.name.as_str())
        .collect();
    // A standby that is being replaced is no news; one that is away otherwise is.
    if !away.is_empty() && roll.progress.is_none() && seen.active().is_some() {
        return Finding::new(Reason::RedundancyLost, format!("not standing by: {}", away.join(", ")));
    }
    Finding::new(Reason::AsExpected, "nothing needs attention")
}

/// An object that the rest needs is somebody else's. The budget is for drains only.
pub(super) fn is_stopped_by_others(seen: &Observed) -> bool {
    let foreign =
        |object: &ObjectState| matches!(object.presence, Presence::Foreign(_)) && !is_budget(object);
    seen.objects.iter().any(foreign) || matches!(seen.lease, LeaseState::Foreign(_))
}

/// What the operator's own calls of the active say, beside what its kubelet says.
fn active_fails(seen: &Observed) -> Option<Finding> {
    let active = seen.active()?;
    active.health.failed_for()?;
    let name = &active.id.name;
    Some(if seen.is_cut_off() && active.ready {
        Finding::new(Reason::OperatorCutOff, "no master answers the operator")
    } else if active.ready {
        Finding::new(Reason::HealthCheckFailing, format!("HealthCheck of {name} fails, but its pod is Ready"))
    } else {
        Finding::new(Reason::ActiveBlocked, format!("{name} is not Ready, and HealthCheck fails"))
    })
}

fn progressing(seen: &Observed, roll: &Roll, degraded: &Finding) -> Finding {
    if seen.paused {
        let leaving = seen.active().and_then(|active| {
            let why = active.node.as_ref()?.leaving.as_ref()?;
            let waits = match seen.replicas {
                ..=1 => String::new(),
                _ => format!(", and the eviction of {} waits for as long", active.id.name),
            };
            Some(format!(": {why}, but the role does not move{waits}"))
        });
        return Finding::new(Reason::Paused, format!("spec.paused is set{}", leaving.unwrap_or_default()));
    }
    if let Some(moving) = &seen.moving {
        let plan = &moving.plan;
        let (kind, from, to) = (plan.kind.as_str(), &plan.from.pod, &plan.to.pod);
        let text = format!("{kind}: from {from} to {to} ({})", plan.phase.as_str());
        return Finding::new(Reason::Moving, text);
    }
    let blocked = match degraded.reason {
        Reason::ForeignObject => is_stopped_by_others(seen),
        Reason::ObjectContested => seen.objects.iter().any(|object| object.held_back().is_some()),
        Reason::InvalidSpec | Reason::ApplyFailed | Reason::StandbyFailed | Reason::RollFailed => true,
        _ => false,
    };
    if blocked && (degraded.reason != Reason::StandbyFailed || roll.delete.is_none()) {
        return Finding::new(Reason::Stopped, format!("{}: {}", degraded.reason.as_str(), degraded.message));
    }
    let missing: Vec<String> = seen
        .objects
        .iter()
        .filter(|object| matches!(object.presence, Presence::Missing))
        .map(|object| format!("{} {}", object.kind.api_resource().kind, object.name))
        .collect();
    if !missing.is_empty() {
        return Finding::new(Reason::Creating, format!("creating {}", missing.join(", ")));
    }
    if let Some(progress) = &roll.progress {
        return Finding::new(Reason::RollingOut, progress.clone());
    }
    let drifts = |presence: &Presence| matches!(presence, Presence::Drifted(_) | Presence::Unwanted(_));
    if seen.objects.iter().any(|object| drifts(&object.presence)) {
        return Finding::new(Reason::RollingOut, "the objects are being brought to the spec");
    }
    let present = seen.pods.iter().filter(|pod| pod.ordinal < seen.replicas && !pod.terminating).count();
    if present < seen.replicas as usize {
        return Finding::new(Reason::Creating, format!("{present} of {} pods exist", seen.replicas));
    }
    if seen.active().is_none() {
        return Finding::new(Reason::WaitingForActive, "no master is active yet");
    }
    let starting: Vec<&str> =
        seen.others().filter(|pod| !pod.stands_by()).map(|pod| pod.id.name.as_str()).collect();
    if !starting.is_empty() {
        return Finding::new(Reason::Creating, format!("waiting for {} to stand by", starting.join(", ")));
    }
    Finding::new(Reason::UpToDate, "everything is as the spec asks for")
}
