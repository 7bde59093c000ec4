//! Tables: one situation, one expectation.

mod contested;

use super::*;
use mooncake_crds::Reason;

pub(super) fn pod(ordinal: i32) -> Pod {
    Pod {
        id: PodRef {
            name: format!("m-{ordinal}"),
            uid: format!("uid-{ordinal}"),
            resource_version: "1".to_owned(),
        },
        ordinal,
        labelled: false,
        template_hash: Some("new".to_owned()),
        terminating: false,
        terminating_for: Duration::ZERO,
        grace: Duration::from_secs(10),
        ready: false,
        running: true,
        failure: None,
        says: Says::Standby,
        incarnation: Some(format!("incarnation-{ordinal}")),
        idle_for: Duration::ZERO,
        not_ready_for: Duration::ZERO,
        health: Health::Unknown,
        node: Some(Node { name: format!("node-{ordinal}"), ready: true, leaving: None }),
    }
}

pub(super) fn rules() -> FailoverRules {
    FailoverRules {
        blocked_after: Duration::from_secs(30),
        cooldown: Duration::from_secs(60),
        not_ready_after: Duration::from_secs(30),
    }
}

pub(super) fn held_by(ordinal: i32) -> LeaseState {
    LeaseState::Present(Lease {
        uid: "lease".to_owned(),
        resource_version: "1".to_owned(),
        owned: true,
        holder: Some(Holder {
            pod: format!("m-{ordinal}"),
            pod_uid: format!("uid-{ordinal}"),
            address: format!("10.0.0.{ordinal}:50051"),
            incarnation: format!("incarnation-{ordinal}"),
        }),
        hold: Hold::Fresh,
        epoch: 3,
        duration_seconds: Some(5),
        designated: None,
    })
}

/// Two pods, the first active, all well.
fn settled() -> Observed {
    let mut active = pod(0);
    active.labelled = true;
    active.ready = true;
    active.says = Says::Leader;
    active.health = Health::Ok;
    Observed {
        deleting: false,
        paused: false,
        replicas: 2,
        invalid: Vec::new(),
        objects: Kind::ALL
            .iter()
            .map(|&kind| ObjectState {
                kind,
                name: "m".to_owned(),
                presence: Presence::Current,
                contest: None,
            })
            .collect(),
        workload_settled: true,
        template_hash: "new".to_owned(),
        lease: held_by(0),
        known_epoch: 3,
        pods: vec![active, pod(1)],
        any_pod: true,
        clients: None,
        disagreed_for: Duration::ZERO,
        last_error: None,
        failover: rules(),
        moving: None,
        last_move: None,
        last_failover: None,
        unserved_for: Duration::ZERO,
        routed: None,
        failed_template: None,
    }
}

pub(crate) fn with(change: impl FnOnce(&mut Observed)) -> Observed {
    let mut seen = settled();
    change(&mut seen);
    seen
}

pub(super) fn lease(seen: &mut Observed) -> &mut Lease {
    match &mut seen.lease {
        LeaseState::Present(lease) => lease,
        other => panic!("{other:?}"),
    }
}

pub(super) fn reasons(seen: &Observed) -> [Reason; 3] {
    let conditions = decide(seen).conditions;
    [conditions[0].reason, conditions[1].reason, conditions[2].reason]
}

/// What a hand-over begins with.
fn handed_over(seen: &Observed) -> Option<(MoveKind, String)> {
    match decide(seen).step {
        Step::Begin(plan) if plan.phase == Phase::HandingOver => Some((plan.kind, plan.to.pod)),
        _ => None,
    }
}

fn deleted(seen: &Observed) -> Vec<(String, Why)> {
    let delete = |action: Action| match action {
        Action::DeletePod { pod, why } => Some((pod.name, why)),
        _ => None,
    };
    decide(seen).actions.into_iter().filter_map(delete).collect()
}

fn outdated(seen: &mut Observed, pods: &[usize]) {
    for &index in pods {
        seen.pods[index].template_hash = Some("old".to_owned());
    }
}

#[test]
fn nothing_to_do_when_all_is_well() {
    let decision = decide(&settled());
    assert_eq!(decision.actions, []);
    assert_eq!(decision.again, LATER);
    assert_eq!(reasons(&settled()), [Reason::ActiveServing, Reason::UpToDate, Reason::AsExpected]);
}

#[test]
fn everything_is_created_the_lease_before_the_pods() {
    let seen = with(|seen| {
        seen.objects.iter_mut().for_each(|object| object.presence = Presence::Missing);
        seen.lease = LeaseState::Missing;
        seen.pods.clear();
        seen.any_pod = false;
        seen.workload_settled = false;
    });
    let mut expected = vec![Action::CreateLease { epoch: 3, released: false }];
    expected.extend(Kind::ALL.map(Action::Apply));
    assert_eq!(decide(&seen).actions, expected);
    assert_eq!(reasons(&seen), [Reason::NoActive, Reason::Creating, Reason::AsExpected]);
    let mut first = seen;
    first.known_epoch = 0;
    assert_eq!(decide(&first).actions[0], Action::CreateLease { epoch: 0, released: true });
    // The resource was deleted and applied again: a pod of the earlier StatefulSet may still serve.
    first.any_pod = true;
    assert_eq!(decide(&first).actions[0], Action::CreateLease { epoch: 0, released: false });
}

#[test]
fn what_drifted_is_corrected_and_nothing_else() {
    let seen = with(|seen| seen.objects[3].presence = Presence::Drifted("spec.ports".to_owned()));
    assert_eq!(decide(&seen).actions, [Action::Apply(Kind::Service)]);
}

#[test]
fn a_foreign_object_stops_everything_but_the_label() {
    let seen = with(|seen| {
        seen.objects[3].presence = Presence::Foreign("without an owner".to_owned());
        seen.objects[5].presence = Presence::Drifted("spec.replicas".to_owned());
        outdated(seen, &[0, 1]);
    });
    assert_eq!(decide(&seen).actions, []);
    assert_eq!(reasons(&seen), [Reason::ActiveServing, Reason::Stopped, Reason::ForeignObject]);
    let message = &decide(&seen).conditions[2].message;
    assert!(message.contains("Service m (without an owner)"), "{message}");
    let lease = with(|seen| seen.lease = LeaseState::Foreign("owned by Deployment x".to_owned()));
    assert_eq!(decide(&lease).actions, []);
    assert_eq!(reasons(&lease)[2], Reason::ForeignObject);
}

#[test]
fn an_invalid_spec_changes_nothing() {
    let seen = with(|seen| {
        seen.invalid = vec!["spec.replicas must be from 1 to 9".to_owned()];
        seen.objects[5].presence = Presence::Drifted("spec.replicas".to_owned());
        outdated(seen, &[0, 1]);
    });
    assert_eq!(decide(&seen).actions, []);
    assert_eq!(reasons(&seen), [Reason::ActiveServing, Reason::Stopped, Reason::InvalidSpec]);
}

#[test]
fn paused_and_deleting_change_nothing() {
    for change in [|seen: &mut Observed| seen.paused = true, |seen: &mut Observed| seen.deleting = true] {
        let seen = with(|seen| {
            change(seen);
            outdated(seen, &[0, 1]);
            seen.objects[0].presence = Presence::Missing;
            seen.lease = held_by(1);
            seen.disagreed_for = Duration::from_secs(60);
        });
        assert_eq!(decide(&seen).actions, []);
    }
    assert_eq!(reasons(&with(|seen| seen.paused = true))[1], Reason::Paused);
}

#[test]
fn available_says_who_serves_or_why_nobody() {
    type Change = fn(&mut Observed);
    let table: [(Change, Reason); 8] = [
        (|_| {}, Reason::ActiveServing),
        (|seen| seen.lease = LeaseState::Missing, Reason::NoActive),
        (|seen| lease(seen).holder = None, Reason::NoActive),
        (|seen| lease(seen).hold = Hold::Released, Reason::NoActive),
        (|seen| lease(seen).hold = Hold::Expired, Reason::LeaseExpired),
        (|seen| seen.pods[0].ready = false, Reason::ActiveNotReady),
        (|seen| seen.pods[0].labelled = false, Reason::ActiveNotLabelled),
        // A pod of the same name that is another pod.
        (|seen| seen.pods[0].id.uid = "other".to_owned(), Reason::ActiveNotReady),
    ];
    for (index, (change, reason)) in table.into_iter().enumerate() {
        assert_eq!(reasons(&with(change))[0], reason, "row {index}");
    }
}

/// Design, leadership 9: only after 3 s of disagreement, removals first.
#[test]
fn the_label_follows_the_lease_late_and_removals_come_first() {
    let moved = |disagreed_for| {
        with(|seen| {
            seen.lease = held_by(1);
            seen.disagreed_for = disagreed_for;
        })
    };
    assert_eq!(decide(&moved(Duration::from_millis(2999))).actions, []);
    assert_eq!(decide(&moved(LABEL_GRACE)).actions, [Action::ClearLabel(pod(0).id)]);
    let cleared = with(|seen| {
        seen.lease = held_by(1);
        seen.pods[0].labelled = false;
        seen.disagreed_for = LABEL_GRACE;
    });
    assert_eq!(decide(&cleared).actions, [Action::SetLabel(pod(1).id)]);
}

#[test]
fn a_label_is_left_alone_when_the_lease_does_not_say() {
    for change in [
        |seen: &mut Observed| lease(seen).holder = None,
        |seen: &mut Observed| seen.lease = LeaseState::Missing,
        |seen: &mut Observed| lease(seen).hold = Hold::Expired,
        |seen: &mut Observed| lease(seen).hold = Hold::Released,
    ] {
        let seen = with(|seen| {
            change(seen);
            seen.disagreed_for = Duration::from_secs(60);
        });
        let labels = decide(&seen)
            .actions
            .into_iter()
            .any(|a| matches!(a, Action::ClearLabel(_) | Action::SetLabel(_)));
        assert!(!labels);
    }
    // Nor put on a pod that is going away, or whose lease has run out.
    for change in [
        |seen: &mut Observed| seen.pods[0].terminating = true,
        |seen: &mut Observed| lease(seen).hold = Hold::Expired,
    ] {
        let seen = with(|seen| {
            change(seen);
            seen.pods[0].labelled = false;
            seen.disagreed_for = Duration::from_secs(60);
        });
        assert_eq!(decide(&seen).actions, []);
    }
}

#[test]
fn a_roll_replaces_standbys_first_and_the_active_last() {
    let start = with(|seen| outdated(seen, &[0, 1]));
    assert_eq!(deleted(&start), [("m-1".to_owned(), Why::RollStandby)]);
    assert_eq!(reasons(&start), [Reason::ActiveServing, Reason::RollingOut, Reason::AsExpected]);

    let starting = with(|seen| {
        outdated(seen, &[0]);
        seen.pods[1].says = Says::Other("starting".to_owned());
    });
    assert_eq!(deleted(&starting), []);
    assert_eq!(reasons(&starting)[1], Reason::RollingOut);

    // The active hands over, and is deleted as it stands only if there is nobody that can be named.
    let mut standby_is_new = with(|seen| outdated(seen, &[0]));
    assert_eq!(deleted(&standby_is_new), []);
    assert_eq!(handed_over(&standby_is_new), Some((MoveKind::Roll, "m-1".to_owned())));
    standby_is_new.pods[1].incarnation = None;
    assert_eq!(deleted(&standby_is_new), [("m-0".to_owned(), Why::RollActive)]);
    assert_eq!(handed_over(&standby_is_new), None);
}

#[test]
fn a_roll_waits_for_what_is_under_way() {
    type Change = fn(&mut Observed);
    let table: [Change; 10] = [
        |seen| seen.pods[0].running = false,
        |seen| seen.pods[0].terminating = true,
        |seen| seen.pods[0].says = Says::Nothing,
        |seen| seen.pods[0].says = Says::Standby,
        |seen| seen.workload_settled = false,
        |seen| seen.pods[1].terminating = true,
        |seen| drop(seen.pods.remove(1)),
        |seen| lease(seen).hold = Hold::Expired,
        |seen| lease(seen).holder = None,
        |seen| seen.objects[5].presence = Presence::Drifted("spec.template".to_owned()),
    ];
    for (index, change) in table.into_iter().enumerate() {
        let seen = with(|seen| {
            outdated(seen, &[0, 1]);
            change(seen);
        });
        assert_eq!(deleted(&seen), [], "row {index}");
        assert_eq!(reasons(&seen)[1], Reason::RollingOut, "row {index}");
    }
}

#[test]
fn the_last_pod_is_replaced_only_while_it_serves() {
    let seen = with(|seen| {
        outdated(seen, &[0]);
        seen.pods[0].says = Says::Other("starting".to_owned());
    });
    assert_eq!(deleted(&seen), []);
    let message = &decide(&seen).conditions[1].message;
    assert_eq!(message, "waiting for the active to serve");
}

#[test]
fn a_standby_that_does_not_come_up_stops_the_roll_and_a_revert_heals_it() {
    let stuck = |hash: &str| {
        with(|seen| {
            seen.template_hash = hash.to_owned();
            outdated(seen, &[0]);
            seen.pods[1].running = false;
            seen.pods[1].says = Says::Nothing;
            seen.pods[1].failure = Some("ImagePullBackOff".to_owned());
        })
    };
    assert_eq!(deleted(&stuck("new")), []);
    assert_eq!(reasons(&stuck("new")), [Reason::ActiveServing, Reason::Stopped, Reason::StandbyFailed]);
    let message = &decide(&stuck("new")).conditions[2].message;
    assert!(message.contains("m-1: ImagePullBackOff"), "{message}");
    // The change is taken back: now the stuck pod is the outdated one.
    assert_eq!(deleted(&stuck("old")), [("m-1".to_owned(), Why::Heal)]);
    assert_eq!(reasons(&stuck("old"))[1], Reason::RollingOut);
}

#[test]
fn a_standby_that_stays_silent_stops_the_roll_but_is_not_deleted_for_it() {
    let silent = with(|seen| {
        outdated(seen, &[0]);
        seen.pods[1].says = Says::Nothing;
        seen.pods[1].idle_for = PROGRESS_DEADLINE;
    });
    assert_eq!(deleted(&silent), []);
    assert_eq!(reasons(&silent), [Reason::ActiveServing, Reason::Stopped, Reason::StandbyFailed]);
    // An operator that reaches no pod replaces one standby, cannot see the next come up, and stops.
    let cut_off = with(|seen| {
        seen.replicas = 3;
        seen.pods.push(pod(2));
        outdated(seen, &[0, 1]);
        for pod in &mut seen.pods[1..] {
            pod.says = Says::Nothing;
            pod.idle_for = PROGRESS_DEADLINE;
        }
    });
    assert_eq!(deleted(&cut_off), []);
}

#[test]
fn a_broken_first_template_is_healed_without_an_active() {
    let seen = with(|seen| {
        lease(seen).holder = None;
        outdated(seen, &[0, 1]);
        for pod in &mut seen.pods {
            pod.running = false;
            pod.ready = false;
            pod.labelled = false;
            pod.says = Says::Nothing;
            pod.failure = Some("CrashLoopBackOff".to_owned());
        }
    });
    assert_eq!(deleted(&seen), [("m-0".to_owned(), Why::Heal)]);
}

#[test]
fn a_single_master_is_replaced_too() {
    let seen = with(|seen| {
        seen.replicas = 1;
        seen.pods.truncate(1);
        outdated(seen, &[0]);
    });
    assert_eq!(deleted(&seen), [("m-0".to_owned(), Why::RollActive)]);
}

#[test]
fn pods_beyond_the_replicas_are_the_controllers_business() {
    let seen = with(|seen| {
        let mut extra = pod(2);
        extra.template_hash = Some("old".to_owned());
        seen.pods.push(extra);
    });
    assert_eq!(deleted(&seen), []);
}

#[test]
fn redundancy_is_lost_after_a_while_only() {
    let away = |idle_for| {
        with(|seen| {
            seen.pods[1].says = Says::Nothing;
            seen.pods[1].running = false;
            seen.pods[1].idle_for = idle_for;
        })
    };
    assert_eq!(reasons(&away(Duration::from_secs(2)))[2], Reason::AsExpected);
    assert_eq!(reasons(&away(REDUNDANCY_GRACE))[2], Reason::RedundancyLost);
    assert_eq!(reasons(&away(PROGRESS_DEADLINE))[2], Reason::StandbyFailed);
}

#[test]
fn what_the_api_server_refused_is_said() {
    let seen = with(|seen| seen.last_error = Some("apply: quota".to_owned()));
    assert_eq!(reasons(&seen)[2], Reason::ApplyFailed);
    assert_eq!(decide(&seen).again, SOON);
}

#[test]
fn a_budget_of_somebody_else_stops_nothing() {
    let of_the_budget = |presence: Presence| {
        with(|seen| {
            outdated(seen, &[1]);
            let budget = seen.objects.iter_mut().find(|object| object.kind == Kind::PodDisruptionBudget);
            budget.expect("a budget").presence = presence;
            let service = seen.objects.iter_mut().find(|object| object.kind == Kind::Service);
            service.expect("a Service").presence = Presence::Drifted("spec".to_owned());
        })
    };
    let foreign = of_the_budget(Presence::Foreign("x".to_owned()));
    assert_eq!(decide(&foreign).actions, [Action::Apply(Kind::Service)]);
    assert_eq!(reasons(&foreign), [Reason::ActiveServing, Reason::RollingOut, Reason::ForeignObject]);
    // One that is refused ends a pass: nothing else comes after it.
    let refused = of_the_budget(Presence::Missing);
    assert_eq!(
        decide(&refused).actions,
        [Action::Apply(Kind::Service), Action::Apply(Kind::PodDisruptionBudget)]
    );
}

#[test]
fn a_pause_says_what_waits_for_it() {
    let seen = with(|seen| {
        seen.paused = true;
        seen.pods[0].node.as_mut().expect("a node").leaving = Some("node n is cordoned".to_owned());
    });
    let progressing = &decide(&seen).conditions[1];
    assert_eq!(progressing.reason, Reason::Paused);
    assert!(progressing.message.contains("the eviction of m-0 waits"), "{progressing:?}");
}
