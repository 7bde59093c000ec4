//! Events: what has changed, said once. The reasons are listed in `docs/failover.md`.

use crate::{
    decide::{Action, MoveKind, Outcome, Phase, Why},
    health::Seen,
};
use kube::runtime::events::{Event, EventType};
use mooncake_crds::{ConditionStatus, ConditionType, MooncakeMasterStatus, Reason};

fn event(type_: EventType, reason: &str, action: &str, note: &str) -> Event {
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note.chars().take(1000).collect()),
        action: action.to_owned(),
        secondary: None,
    }
}

/// Calls of the active that failed and then went well, before anything was moved for them.
pub fn recovered(seen: &Seen) -> Event {
    let Seen { pod, failures, what } = seen;
    let note = format!("HealthCheck of {pod} failed {failures} in a row ({what}) and is ok again");
    event(EventType::Normal, "HealthCheckRecovered", "Observe", &note)
}

/// What is worth an Event about a move, from the status before and after a pass.
fn moves(before: &MooncakeMasterStatus, after: &MooncakeMasterStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let by_force = |kind: &str| [MoveKind::Blocked, MoveKind::NotReady].iter().any(|of| of.as_str() == kind);
    if before.last_move != after.last_move
        && let Some(last) = &after.last_move
    {
        let (type_, reason) = match Outcome::parse(&last.outcome) {
            Some(Outcome::Moved) => (EventType::Normal, "RoleMoved"),
            Some(Outcome::Abandoned) => (EventType::Normal, "RoleMoveAbandoned"),
            Some(Outcome::NotServing | Outcome::NotReleased) | None => (EventType::Warning, "RoleMoveFailed"),
        };
        let note = format!("{}, from {} to {}: {}", last.kind, last.from, last.to, last.message);
        events.push(event(type_, reason, "Move", &note));
    }
    let phase = |status: &MooncakeMasterStatus| {
        status.move_.as_ref().map(|moving| (moving.started_at.clone(), moving.attempt, moving.phase.clone()))
    };
    if let Some(moving) = &after.move_
        && phase(before) != phase(after)
        && [Phase::Fencing, Phase::HandingOver].iter().any(|begins| begins.as_str() == moving.phase)
    {
        let type_ = if by_force(&moving.kind) { EventType::Warning } else { EventType::Normal };
        let how = if moving.phase == Phase::Fencing.as_str() { "is fenced" } else { "is to hand over" };
        let note = format!(
            "{}: {}; {} {how}, {} is to take over",
            moving.kind, moving.reason, moving.from.pod, moving.to.pod
        );
        events.push(event(type_, "RoleMoving", "Move", &note));
    }
    events
}

/// What is worth an Event, from the status before and after a pass and the actions that were carried out.
pub fn events(before: &MooncakeMasterStatus, after: &MooncakeMasterStatus, done: &[Action]) -> Vec<Event> {
    let mut events = moves(before, after);
    let mut say = |type_: EventType, reason: &str, action: &str, note: String| {
        events.push(event(type_, reason, action, &note));
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
            (ConditionType::Degraded | ConditionType::FailoverBlocked, Some(reason)) => {
                (reason.status() == ConditionStatus::True).then_some(EventType::Warning)
            }
            (ConditionType::Progressing, Some(Reason::RollingOut)) => Some(EventType::Normal),
            (_, Some(Reason::LeaseExpired | Reason::MassSilence | Reason::HeartbeatRoutingMismatch)) => {
                Some(EventType::Warning)
            }
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
    use mooncake_crds::{ActiveStatus, LastMove, MoveParty, MoveStatus};

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

    /// Each reason that an Event can have stands in the document.
    #[test]
    fn the_reasons_are_documented() {
        let document = include_str!("../../docs/failover.md");
        let code = include_str!("events.rs").split("#[cfg(test)]").next().expect("the code");
        let ours = [
            "RoleMoving",
            "RoleMoved",
            "RoleMoveFailed",
            "RoleMoveAbandoned",
            "HealthCheckRecovered",
            "PodReplaced",
            "LeaderLabelCorrected",
            "LeaseRecreated",
            "ActiveChanged",
        ];
        for reason in ours {
            assert!(code.contains(&format!("\"{reason}\"")), "{reason} is said nowhere");
            assert!(document.contains(&format!("| {reason} |")), "docs/failover.md lacks {reason}");
        }
        let documented =
            document.lines().filter(|line| line.starts_with("| ") && line.contains("| Event |")).count();
        assert_eq!(documented, ours.len(), "rows of the table of Events");
    }

    #[test]
    fn each_phase_and_the_end_of_a_move_are_said_once() {
        let moving = |phase: &str| MoveStatus {
            phase: phase.to_owned(),
            kind: "Blocked".to_owned(),
            from: MoveParty { pod: "m-0".to_owned(), ..Default::default() },
            to: MoveParty { pod: "m-1".to_owned(), ..Default::default() },
            reason: "r".to_owned(),
            epoch: 1,
            attempt: 1,
            started_at: Time(Timestamp::UNIX_EPOCH),
        };
        let calm = status("m-0", 1, Reason::AsExpected);
        let with = |phase: &str| MooncakeMasterStatus { move_: Some(moving(phase)), ..calm.clone() };
        assert_eq!(reasons(&calm, &with("Fencing")), ["RoleMoving"]);
        assert_eq!(reasons(&with("Fencing"), &with("Fencing")), Vec::<String>::new());
        assert_eq!(reasons(&with("Fencing"), &with("Verifying")), Vec::<String>::new());
        let ended = |outcome: &str| MooncakeMasterStatus {
            last_move: Some(LastMove {
                kind: "Blocked".to_owned(),
                outcome: outcome.to_owned(),
                from: "m-0".to_owned(),
                to: "m-1".to_owned(),
                message: "x".to_owned(),
                failures: 0,
                started_at: Time(Timestamp::UNIX_EPOCH),
                finished_at: Time(Timestamp::UNIX_EPOCH),
            }),
            ..calm.clone()
        };
        for (outcome, reason) in
            [("Moved", "RoleMoved"), ("NotServing", "RoleMoveFailed"), ("Abandoned", "RoleMoveAbandoned")]
        {
            assert_eq!(reasons(&with("Verifying"), &ended(outcome)), [reason]);
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
