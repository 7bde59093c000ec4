//! Events: what has changed, said once.

use crate::decide::{Action, Why};
use kube::runtime::events::{Event, EventType};
use mooncake_crds::{ConditionStatus, ConditionType, MooncakeMasterStatus, Reason};

/// What is worth an Event, from the status before and after a pass and the actions that were carried out.
pub fn events(before: &MooncakeMasterStatus, after: &MooncakeMasterStatus, done: &[Action]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut say = |type_: EventType, reason: &str, action: &str, note: String| {
        events.push(Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.chars().take(1000).collect()),
            action: action.to_owned(),
            secondary: None,
        });
    };
    for action in done {
        if let Action::DeletePod { pod, why } = action {
            let note = match why {
                Why::RollStandby => format!("replacing standby {}: the template has changed", pod.name),
                Why::RollActive => {
                    format!("replacing active {}: the template has changed, a standby takes over", pod.name)
                }
                Why::Heal => {
                    format!("replacing {}: it does not come up and its template is outdated", pod.name)
                }
            };
            say(EventType::Normal, "PodReplaced", "Roll", note);
        }
        if let Action::SetLabel(pod) | Action::ClearLabel(pod) = action {
            let note = format!("corrected the leader label of {}: it disagreed with the Lease", pod.name);
            say(EventType::Warning, "LeaderLabelCorrected", "Label", note);
        }
        if let Action::CreateLease { epoch, .. } = action
            && *epoch > 0
        {
            let note = format!("the Lease was gone and is created again with epoch {epoch}");
            say(EventType::Warning, "LeaseRecreated", "Create", note);
        }
    }
    // By epoch: the same pod may lose the role and get it back between two passes.
    if let Some(active) = &after.active
        && after.epoch != before.epoch
    {
        let epoch = after.epoch.unwrap_or_default();
        let from = before.active.as_ref().map_or_else(|| "nobody".to_owned(), |before| before.pod.clone());
        say(
            EventType::Normal,
            "ActiveChanged",
            "Elect",
            format!("{} is active at {} in epoch {epoch}; before: {from}", active.pod, active.address),
        );
    }
    for condition in ConditionType::ALL {
        let find = |status: &MooncakeMasterStatus| {
            status.conditions.iter().find(|found| found.type_ == condition.as_str()).cloned()
        };
        let (old, Some(new)) = (find(before), find(after)) else { continue };
        if old.is_some_and(|old| old.reason == new.reason) {
            continue;
        }
        let reason = Reason::ALL
            .iter()
            .find(|reason| reason.as_str() == new.reason && reason.condition() == condition);
        let worth = match (condition, reason) {
            (ConditionType::Degraded, Some(reason)) => {
                (reason.status() == ConditionStatus::True).then_some(EventType::Warning)
            }
            (ConditionType::Progressing, Some(Reason::RollingOut)) => Some(EventType::Normal),
            (ConditionType::Available, Some(Reason::LeaseExpired)) => Some(EventType::Warning),
            _ => None,
        };
        if let Some(type_) = worth {
            say(type_, &new.reason, "Observe", new.message);
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{
        apimachinery::pkg::apis::meta::v1::{Condition, Time},
        jiff::Timestamp,
    };
    use mooncake_crds::ActiveStatus;

    fn status(pod: &str, epoch: i64, degraded: Reason) -> MooncakeMasterStatus {
        MooncakeMasterStatus {
            active: Some(ActiveStatus {
                pod: pod.to_owned(),
                address: "1.2.3.4:5".to_owned(),
                incarnation: None,
            }),
            epoch: Some(epoch),
            conditions: vec![Condition {
                type_: "Degraded".to_owned(),
                status: degraded.status().as_str().to_owned(),
                reason: degraded.as_str().to_owned(),
                message: "m".to_owned(),
                observed_generation: None,
                last_transition_time: Time(Timestamp::UNIX_EPOCH),
            }],
            ..Default::default()
        }
    }

    fn reasons(before: &MooncakeMasterStatus, after: &MooncakeMasterStatus) -> Vec<String> {
        events(before, after, &[]).into_iter().map(|event| event.reason).collect()
    }

    #[test]
    fn a_change_is_said_once() {
        let a = status("m-0", 1, Reason::AsExpected);
        let b = status("m-1", 2, Reason::AsExpected);
        assert_eq!(reasons(&a, &b), ["ActiveChanged"]);
        assert_eq!(reasons(&b, &b), Vec::<String>::new());
        assert_eq!(reasons(&b, &status("m-1", 3, Reason::AsExpected)), ["ActiveChanged"]);
        assert_eq!(reasons(&b, &status("m-1", 2, Reason::ForeignObject)), ["ForeignObject"]);
        let foreign = status("m-1", 2, Reason::ForeignObject);
        assert_eq!(reasons(&foreign, &foreign), Vec::<String>::new());
        assert_eq!(reasons(&foreign, &b), Vec::<String>::new());
    }
}
