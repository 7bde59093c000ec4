//! Reporting: a status is written when it says something new.

use crate::{
    build,
    decide::{Decision, Finding, LeaseState, Observed, Pod, Says},
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use mooncake_crds::{ActiveStatus, MemberStatus, MooncakeMaster, MooncakeMasterStatus, Reason, names};
use serde_json::json;

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
    let wanted: Vec<&Pod> = seen.pods.iter().filter(|pod| pod.ordinal < seen.replicas).collect();
    let count = |of: &dyn Fn(&Pod) -> bool| seen.pods.iter().filter(|pod| of(pod)).count() as i32;
    let selector: Vec<String> =
        build::selector(master).into_iter().map(|(label, value)| format!("{label}={value}")).collect();
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
        conditions: conditions(&old.conditions, &decision.conditions, master.metadata.generation, now),
        active,
    }
}

/// The status when nothing could be observed: what was known stays, but the conditions say that it is not known now.
pub fn unobservable(master: &MooncakeMaster, error: &str, now: Timestamp) -> MooncakeMasterStatus {
    let old = master.status.clone().unwrap_or_default();
    let findings = [Reason::Unobservable, Reason::ProgressUnknown, Reason::HealthUnknown]
        .map(|reason| Finding::new(reason, error));
    let conditions = conditions(&old.conditions, &findings, master.metadata.generation, now);
    MooncakeMasterStatus { conditions, ..old }
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
        incarnation: active.and_then(|active| active.incarnation.clone()),
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

/// Writes the status if it says something new; whether it did.
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
        "metadata": { "name": master.name_any(), "uid": master.uid() },
        "status": status,
    });
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    api.patch_status(&master.name_any(), &params, &Patch::Apply(&object)).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let known =
            [Reason::ActiveServing, Reason::UpToDate, Reason::AsExpected].map(|r| Finding::new(r, "a"));
        master.status = Some(MooncakeMasterStatus {
            epoch: Some(4),
            conditions: conditions(&[], &known, Some(1), at(1)),
            ..MooncakeMasterStatus::default()
        });
        let status = unobservable(&master, "no answer", at(2));
        assert_eq!(status.epoch, Some(4));
        assert_eq!(status.conditions.len(), 3);
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
