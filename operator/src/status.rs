//! Reporting: a status is written when it says something new.

use crate::{
    build, clients,
    decide::{
        Decision, Finding, LeaseState, MoveKind, Moving, Observed, Outcome, Party, PastFailover, PastMove,
        Phase, Plan, Pod, Says, Step,
    },
    observe::in_time,
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use mooncake_crds::{
    ActiveStatus, LastFailover, LastMove, MemberStatus, MooncakeMaster, MooncakeMasterStatus, MoveParty,
    MoveStatus, Reason, names,
};
use serde_json::json;
use std::time::Duration;

/// The status that follows from a pass.
pub fn report(
    master: &MooncakeMaster,
    seen: &Observed,
    decision: &Decision,
    now: Timestamp,
) -> MooncakeMasterStatus {
    let old = master.status.clone().unwrap_or_default();
    let (active, duration) = match &seen.lease {
        LeaseState::Present(lease) => {
            let holder = lease.holder.as_ref().filter(|_| seen.active().is_some());
            let active = holder.map(|holder| ActiveStatus {
                pod: holder.pod.clone(),
                address: holder.address.clone(),
                incarnation: Some(holder.incarnation.clone()).filter(|id| !id.is_empty()),
            });
            (active, lease.duration_seconds)
        }
        LeaseState::Missing | LeaseState::Foreign(_) => (None, None),
    };
    let mut findings = decision.conditions.clone();
    findings.extend(clients::findings(seen.clients.as_ref()));
    let wanted: Vec<&Pod> = seen.pods.iter().filter(|pod| pod.ordinal < seen.replicas).collect();
    let count = |of: &dyn Fn(&Pod) -> bool| seen.pods.iter().filter(|pod| of(pod)).count() as i32;
    let selector: Vec<String> =
        build::selector(master).into_iter().map(|(label, value)| format!("{label}={value}")).collect();
    let moves = take(&old, seen, &decision.step, now);
    MooncakeMasterStatus {
        observed_generation: master.metadata.generation,
        epoch: Some(seen.known_epoch),
        lease_duration_seconds: duration.or(old.lease_duration_seconds),
        replicas: seen.pods.len() as i32,
        ready_replicas: count(&|pod| pod.ready),
        standby_replicas: count(&|pod| pod.stands_by()),
        updated_replicas: count(&|pod| pod.template_hash.as_ref() == Some(&seen.template_hash)),
        selector: Some(selector.join(",")),
        template_hash: Some(seen.template_hash.clone()),
        members: wanted.iter().map(|pod| member(pod, active.as_ref())).collect(),
        move_: moves.0,
        last_move: moves.1,
        last_failover: moves.2,
        failed_template_hash: failed_template(&old, seen, &decision.step),
        conditions: conditions(&old.conditions, &findings, master.metadata.generation, now),
        clients: seen.clients.as_ref().map(|clients| clients.counts.clone()),
        active,
    }
}

/// The status when nothing could be observed: what was known stays, but the conditions say that it is not known now.
pub fn unobservable(master: &MooncakeMaster, error: &str, now: Timestamp) -> MooncakeMasterStatus {
    let old = master.status.clone().unwrap_or_default();
    let findings = [
        Reason::Unobservable,
        Reason::ProgressUnknown,
        Reason::HealthUnknown,
        Reason::FailoverUnknown,
        Reason::ClientsUnknown,
        Reason::HeartbeatRoutingUnknown,
    ]
    .map(|reason| Finding::new(reason, error));
    let conditions = conditions(&old.conditions, &findings, master.metadata.generation, now);
    MooncakeMasterStatus { conditions, ..old }
}

/// The move on status, its phase just begun; `None` also for one that an operator of another version has written.
pub fn moving(status: &MooncakeMasterStatus) -> Option<Moving> {
    let written = status.move_.as_ref()?;
    let party = |party: &MoveParty| Party {
        pod: party.pod.clone(),
        uid: party.uid.clone(),
        incarnation: party.incarnation.clone(),
    };
    let plan = Plan {
        phase: Phase::parse(&written.phase)?,
        kind: MoveKind::parse(&written.kind)?,
        from: party(&written.from),
        to: party(&written.to),
        reason: written.reason.clone(),
        epoch: written.epoch,
        attempt: written.attempt,
    };
    Some(Moving { plan, phase_for: Duration::ZERO })
}

/// A text that is another for each phase of each move.
pub fn phase(status: &MooncakeMasterStatus) -> Option<String> {
    let written = status.move_.as_ref()?;
    Some(format!("{} {} {}", written.started_at.0, written.attempt, written.phase))
}

/// The last move on status.
pub fn past_move(status: &MooncakeMasterStatus, now: Timestamp) -> Option<PastMove> {
    let last = status.last_move.as_ref()?;
    Some(PastMove {
        kind: MoveKind::parse(&last.kind)?,
        outcome: Outcome::parse(&last.outcome)?,
        failures: last.failures,
        ago: since(&last.finished_at, now),
    })
}

/// The last failover on status.
pub fn past_failover(status: &MooncakeMasterStatus, now: Timestamp) -> Option<PastFailover> {
    let last = status.last_failover.as_ref()?;
    Some(PastFailover { ago: since(&last.at, now), failures: last.failures })
}

/// A time in the future, by the clock of another machine, was just now.
fn since(then: &Time, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then.0)).unwrap_or_default()
}

/// Hash of a template with which a roll has failed. Of another template than the present one nothing is remembered.
fn failed_template(old: &MooncakeMasterStatus, seen: &Observed, step: &Step) -> Option<String> {
    let known = old.failed_template_hash.as_ref() == Some(&seen.template_hash);
    let failed = match (step, &seen.moving) {
        (Step::End { outcome: Outcome::NotServing, .. }, Some(moving))
            if moving.plan.kind == MoveKind::Roll =>
        {
            let parties = [&moving.plan.from.uid, &moving.plan.to.uid];
            let of_the_present = |pod: &&Pod| pod.template_hash.as_ref() == Some(&seen.template_hash);
            seen.pods.iter().filter(of_the_present).any(|pod| parties.contains(&&pod.id.uid))
        }
        _ => false,
    };
    (known || failed).then(|| seen.template_hash.clone())
}

/// The move, the last move and the last failover after a step.
fn take(
    old: &MooncakeMasterStatus,
    seen: &Observed,
    step: &Step,
    now: Timestamp,
) -> (Option<MoveStatus>, Option<LastMove>, Option<LastFailover>) {
    // What cannot be read is no move.
    let moving = old.move_.clone().filter(|_| seen.moving.is_some());
    let (mut last_move, mut last_failover) = (old.last_move.clone(), old.last_failover.clone());
    let written = |plan: &Plan, started_at: Time| {
        let party = |party: &Party| MoveParty {
            pod: party.pod.clone(),
            uid: party.uid.clone(),
            incarnation: party.incarnation.clone(),
        };
        MoveStatus {
            phase: plan.phase.as_str().to_owned(),
            kind: plan.kind.as_str().to_owned(),
            from: party(&plan.from),
            to: party(&plan.to),
            reason: plan.reason.clone(),
            epoch: plan.epoch,
            attempt: plan.attempt,
            started_at,
        }
    };
    let started = moving.as_ref().map_or(Time(now), |moving| moving.started_at.clone());
    let moving = match (step, moving) {
        (Step::Keep, moving) => moving,
        (Step::Begin(plan) | Step::Advance(plan), _) => Some(written(plan, started)),
        (Step::End { .. }, None) => None,
        (Step::End { outcome, message }, Some(moving)) => {
            // Once the role has gone on, something was done.
            let abandoned = *outcome == Outcome::Abandoned && moving.attempt == 1;
            let count = |before: Option<i32>| match outcome {
                Outcome::Moved => 0,
                Outcome::Abandoned if abandoned => before.unwrap_or(0),
                _ => before.unwrap_or(0).saturating_add(1),
            };
            let of_kind = [MoveKind::Blocked, MoveKind::NotReady].map(MoveKind::as_str);
            if of_kind.contains(&&*moving.kind) && !abandoned {
                let before = last_failover.as_ref().map(|last| last.failures);
                last_failover = Some(LastFailover { at: Time(now), failures: count(before) });
            }
            let before = last_move.as_ref().map(|last| last.failures);
            last_move = Some(LastMove {
                kind: moving.kind,
                outcome: outcome.as_str().to_owned(),
                from: moving.from.pod,
                to: moving.to.pod,
                message: message.clone(),
                failures: count(before),
                started_at: moving.started_at,
                finished_at: Time(now),
            });
            None
        }
    };
    (moving, last_move, last_failover)
}

fn member(pod: &Pod, active: Option<&ActiveStatus>) -> MemberStatus {
    let active = active.filter(|active| active.pod == pod.id.name);
    let role = match (&pod.says, active) {
        (_, Some(_)) => "Active",
        (Says::Standby, None) => "Standby",
        _ => "Unknown",
    };
    MemberStatus {
        name: pod.id.name.clone(),
        role: role.to_owned(),
        incarnation: active.and_then(|active| active.incarnation.clone()).or_else(|| pod.incarnation.clone()),
        ready: pod.ready,
        template_hash: pod.template_hash.clone(),
        problem: pod.problem(),
    }
}

/// The new conditions over the old ones. `lastTransitionTime` moves when the status flips, and only then. Conditions
/// of others stay.
fn conditions(
    old: &[Condition],
    findings: &[Finding],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut all = old.to_vec();
    for finding in findings {
        let (kind, status) = (finding.reason.condition().as_str(), finding.reason.status().as_str());
        let before = all.iter().position(|condition| condition.type_ == kind);
        let since = before
            .map(|index| &all[index])
            .filter(|condition| condition.status == status)
            .map_or(Time(now), |condition| condition.last_transition_time.clone());
        let condition = Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: finding.reason.as_str().to_owned(),
            message: finding.message.chars().take(1024).collect(),
            observed_generation: generation,
            last_transition_time: since,
        };
        match before {
            Some(index) => all[index] = condition,
            None => all.push(condition),
        }
    }
    all
}

/// Writes the status if it says something new; whether it did. It is for the very state of the resource that was read:
/// an operator that was away for a while does not write over what another one has written since.
pub async fn write(
    client: &Client,
    master: &MooncakeMaster,
    status: &MooncakeMasterStatus,
) -> Result<bool, kube::Error> {
    if master.status.as_ref() == Some(status) {
        return Ok(false);
    }
    let api: Api<MooncakeMaster> = Api::namespaced(client.clone(), &master.namespace().unwrap_or_default());
    let object = json!({
        "apiVersion": "store.mooncake.io/v1alpha1",
        "kind": names::KIND,
        // With the uid the write fails if another resource has taken the name meanwhile.
        "metadata": {
            "name": master.name_any(),
            "uid": master.uid(),
            "resourceVersion": master.resource_version(),
        },
        "status": status,
    });
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    in_time(api.patch_status(&master.name_any(), &params, &Patch::Apply(&object))).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mooncake_crds::ConditionType;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn a_transition_time_moves_only_when_the_status_flips() {
        let first = conditions(&[], &[Finding::new(Reason::NoActive, "a")], Some(1), at(1));
        let same_status = conditions(&first, &[Finding::new(Reason::LeaseExpired, "b")], Some(2), at(2));
        assert_eq!(same_status[0].last_transition_time, Time(at(1)));
        assert_eq!(same_status[0].reason, "LeaseExpired");
        assert_eq!(same_status[0].observed_generation, Some(2));
        let flipped = conditions(&same_status, &[Finding::new(Reason::ActiveServing, "c")], Some(2), at(3));
        assert_eq!(flipped[0].last_transition_time, Time(at(3)));
        assert_eq!(flipped.len(), 1);
    }

    #[test]
    fn nothing_is_claimed_of_what_cannot_be_observed() {
        let mut master =
            MooncakeMaster::new("m", serde_json::from_value(json!({ "image": "i:1" })).expect("a spec"));
        let known = [
            Reason::ActiveServing,
            Reason::UpToDate,
            Reason::AsExpected,
            Reason::NotBlocked,
            Reason::ClientsHeard,
            Reason::HeartbeatsRouted,
        ]
        .map(|r| Finding::new(r, "a"));
        master.status = Some(MooncakeMasterStatus {
            epoch: Some(4),
            conditions: conditions(&[], &known, Some(1), at(1)),
            ..MooncakeMasterStatus::default()
        });
        let status = unobservable(&master, "no answer", at(2));
        assert_eq!(status.epoch, Some(4));
        assert_eq!(status.conditions.len(), ConditionType::ALL.len(), "of none is anything known");
        for condition in &status.conditions {
            assert_eq!((&*condition.status, &*condition.message), ("Unknown", "no answer"), "{condition:?}");
            assert_eq!(condition.last_transition_time, Time(at(2)));
        }
    }

    #[test]
    fn conditions_of_others_stay() {
        let theirs = Condition {
            type_: "Theirs".to_owned(),
            status: "True".to_owned(),
            reason: "X".to_owned(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(at(1)),
        };
        let all =
            conditions(std::slice::from_ref(&theirs), &[Finding::new(Reason::NoActive, "a")], Some(1), at(2));
        assert_eq!(all[0], theirs);
        assert_eq!(all.len(), 2);
    }
}
