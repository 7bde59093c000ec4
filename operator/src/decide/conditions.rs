//! What is said about a resource.

use super::{Hold, LeaseState, Observed, Presence, REDUNDANCY_GRACE, roll::Roll};
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
            ConditionType::Progressing | ConditionType::Degraded => {
                self.reason.status() != ConditionStatus::True
            }
        }
    }
}

pub(super) fn find(seen: &Observed, roll: &Roll) -> Vec<Finding> {
    let degraded = degraded(seen, roll);
    vec![available(seen), progressing(seen, roll, &degraded), degraded]
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

fn degraded(seen: &Observed, roll: &Roll) -> Finding {
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
    let failed: Vec<String> = seen
        .others()
        .filter_map(|pod| pod.problem().map(|problem| format!("{}: {problem}", pod.id.name)))
        .collect();
    if !failed.is_empty() {
        return Finding::new(Reason::StandbyFailed, failed.join(", "));
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

fn progressing(seen: &Observed, roll: &Roll, degraded: &Finding) -> Finding {
    if seen.paused {
        return Finding::new(Reason::Paused, "spec.paused is set");
    }
    let blocked = matches!(
        degraded.reason,
        Reason::InvalidSpec | Reason::ForeignObject | Reason::ApplyFailed | Reason::StandbyFailed
    );
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
    if seen.objects.iter().any(|object| matches!(object.presence, Presence::Drifted(_))) {
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
