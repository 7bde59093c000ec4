//! Tables: one situation, one expectation. Here: an active that does not serve.

mod hand_over;

use super::*;
use crate::decide::{
    Decision, Health, Node, Presence, Says, decide,
    tests::{held_by, lease, pod, reasons, with},
};
use mooncake_crds::Reason;

const LONG: Duration = Duration::from_secs(3600);

fn failed(seconds: u64) -> Health {
    Health::Failed { lasts: Duration::from_secs(seconds), what: "shard 7 is blocked".to_owned() }
}

/// The active is not Ready and fails, for that long each.
fn block(seen: &mut Observed, kubelet: u64, own: u64) {
    seen.pods[0].ready = false;
    seen.pods[0].not_ready_for = Duration::from_secs(kubelet);
    seen.pods[0].health = failed(own);
    seen.unserved_for = Duration::from_secs(kubelet);
}

fn leave(seen: &mut Observed, index: usize) {
    let node = Node { name: "n".to_owned(), ready: true, leaving: Some("node n is cordoned".to_owned()) };
    seen.pods[index].node = Some(node);
}

fn begun(seen: &Observed) -> Option<(MoveKind, Phase, String)> {
    match decide(seen).step {
        Step::Begin(plan) => Some((plan.kind, plan.phase, plan.to.pod)),
        Step::Keep => None,
        other => panic!("{other:?}"),
    }
}

fn failover_blocked(seen: &Observed) -> Reason {
    decide(seen).conditions[3].reason
}

/// The move that begins in that situation, as it then stands on status.
fn under_way(seen: &mut Observed) {
    let Step::Begin(plan) = decide(seen).step else { panic!("nothing begins: {seen:?}") };
    seen.moving = Some(Moving { plan, phase_for: Duration::ZERO });
}

/// Status knows that the holder was asked.
fn asked(seen: &mut Observed) {
    let plan = advanced(decide(seen));
    assert_eq!(plan.phase, Phase::Releasing);
    seen.moving = Some(Moving { plan, phase_for: Duration::ZERO });
}

fn wait(seen: &mut Observed, time: Duration) {
    seen.moving.as_mut().expect("a move").phase_for = time;
}

/// m-1 has claimed and serves; m-0 stands by again.
fn taken_over(seen: &mut Observed) {
    seen.lease = held_by(1);
    lease(seen).epoch = 4;
    seen.known_epoch = 4;
    let (old, new) = seen.pods.split_at_mut(1);
    std::mem::swap(&mut old[0].labelled, &mut new[0].labelled);
    (old[0].says, new[0].says) = (Says::Standby, Says::Leader);
    (old[0].ready, new[0].ready) = (false, true);
    (old[0].health, new[0].health) = (Health::Unknown, Health::Ok);
}

fn advanced(decision: Decision) -> Plan {
    match decision.step {
        Step::Advance(plan) => plan,
        other => panic!("{other:?}"),
    }
}

fn outcome(seen: &Observed) -> Option<Outcome> {
    match decide(seen).step {
        Step::End { outcome, .. } => Some(outcome),
        _ => None,
    }
}

fn fences(seen: &Observed) -> bool {
    decide(seen).actions.iter().any(|action| matches!(action, Action::Fence { .. }))
}

#[test]
fn a_blocked_active_is_fenced_when_both_paths_say_so_for_long_enough() {
    type Change = fn(&mut Observed);
    let expected = Some((MoveKind::Blocked, Phase::Fencing, "m-1".to_owned()));
    let table: [(Change, bool); 12] = [
        (|seen| block(seen, 30, 30), true),
        (|seen| block(seen, 29, 60), false),
        (|seen| block(seen, 60, 29), false),
        // Only the operator's calls fail: it is the operator that is cut off.
        (
            |seen| {
                block(seen, 60, 60);
                seen.pods[0].ready = true;
                seen.pods[0].not_ready_for = Duration::ZERO;
            },
            false,
        ),
        (
            |seen| {
                block(seen, 60, 60);
                seen.pods.iter_mut().for_each(|pod| pod.says = Says::Nothing);
            },
            false,
        ),
        (
            |seen| {
                block(seen, 60, 60);
                seen.pods[0].terminating = true;
            },
            false,
        ),
        (
            |seen| {
                block(seen, 60, 60);
                lease(seen).hold = Hold::Expired;
            },
            false,
        ),
        (
            |seen| {
                block(seen, 60, 60);
                seen.paused = true;
            },
            false,
        ),
        // Nodes may not be read.
        (
            |seen| {
                block(seen, 60, 60);
                seen.pods.iter_mut().for_each(|pod| pod.node = None);
            },
            true,
        ),
        // Neither a bad spec nor a stranger's object keeps the role where nobody serves.
        (
            |seen| {
                block(seen, 60, 60);
                seen.invalid = vec!["spec.replicas".to_owned()];
                seen.objects[3].presence = Presence::Foreign("x".to_owned());
            },
            true,
        ),
        // The master's own page is silent too, but a standby's is not.
        (
            |seen| {
                block(seen, 60, 60);
                seen.pods[0].says = Says::Nothing;
            },
            true,
        ),
        (
            |seen| {
                block(seen, 60, 60);
                seen.pods[1].incarnation = None;
            },
            true,
        ),
    ];
    for (index, (change, moves)) in table.into_iter().enumerate() {
        let seen = with(change);
        assert_eq!(begun(&seen), expected.clone().filter(|_| moves), "row {index}");
        assert!(!fences(&seen), "row {index}: not before it stands on status");
    }
}

#[test]
fn without_a_candidate_nothing_moves_and_it_is_said() {
    type Change = fn(&mut Observed);
    let table: [Change; 6] = [
        |seen| seen.pods.truncate(1),
        |seen| seen.pods[1].says = Says::Nothing,
        |seen| seen.pods[1].says = Says::Other("starting".to_owned()),
        // It got the role, did not get to serve, and leaves the Lease to others for a while.
        |seen| seen.pods[1].says = Says::Other("candidate".to_owned()),
        |seen| seen.pods[1].terminating = true,
        |seen| seen.pods[1].node.as_mut().expect("a node").ready = false,
    ];
    for (index, change) in table.into_iter().enumerate() {
        let seen = with(|seen| {
            block(seen, 60, 60);
            change(seen);
        });
        assert_eq!(begun(&seen), None, "row {index}");
        assert_eq!(failover_blocked(&seen), Reason::NoCandidate, "row {index}");
    }
    assert_eq!(failover_blocked(&with(|seen| block(seen, 60, 60))), Reason::NotBlocked);
    let short = with(|seen| {
        block(seen, 10, 10);
        seen.pods.truncate(1);
    });
    assert_eq!(failover_blocked(&short), Reason::NotBlocked, "not for long enough");
}

#[test]
fn the_best_candidate_is_of_the_present_template() {
    let seen = with(|seen| {
        seen.replicas = 3;
        seen.pods.push(pod(2));
        seen.pods[1].template_hash = Some("old".to_owned());
        block(seen, 60, 60);
    });
    assert_eq!(begun(&seen).map(|(.., to)| to).as_deref(), Some("m-2"));
    let only_old = with(|seen| {
        seen.pods[1].template_hash = Some("old".to_owned());
        block(seen, 60, 60);
    });
    assert!(begun(&only_old).is_some(), "one of an older template is better than nobody");
    let to = |change: fn(&mut Observed)| {
        let mut seen = seen.clone();
        seen.pods[1].template_hash = Some("new".to_owned());
        change(&mut seen);
        begun(&seen).map(|(.., to)| to)
    };
    assert_eq!(to(|seen| leave(seen, 1)).as_deref(), Some("m-2"), "a node that stays is better");
    let both = |seen: &mut Observed| (1..=2).for_each(|index| leave(seen, index));
    assert_eq!(to(both).as_deref(), Some("m-1"), "one that leaves is better than nobody");
    let failed = |seen: &mut Observed| {
        seen.pods[2].template_hash = Some("old".to_owned());
        seen.failed_template = Some("new".to_owned());
    };
    assert_eq!(to(failed).as_deref(), Some("m-2"), "a template that did not serve comes last");
}

/// D2: the two paths agree, but no kubelet can end it.
#[test]
fn a_blocked_active_on_a_silent_node_is_asked() {
    let mut seen = with(|seen| {
        block(seen, 30, 30);
        seen.pods[0].node.as_mut().expect("a node").ready = false;
    });
    assert_eq!(begun(&seen), Some((MoveKind::Blocked, Phase::HandingOver, "m-1".to_owned())));
    seen.pods[1].incarnation = None;
    assert_eq!(begun(&seen), None, "nobody could be named");
    seen.pods[1].incarnation = pod(1).incarnation;
    under_way(&mut seen);
    let asks = |seen: &Observed| matches!(decide(seen).actions[..], [Action::Designate { .. }]);
    assert!(asks(&seen) && !fences(&seen));
    let mut well = seen.clone();
    well.pods[0].health = Health::Ok;
    assert_eq!(outcome(&well), Some(Outcome::Abandoned));
}

#[test]
fn an_active_that_outlives_its_deletion_is_asked() {
    let deleted = |seconds| {
        with(|seen| {
            seen.pods[0].terminating = true;
            seen.pods[0].terminating_for = Duration::from_secs(seconds);
        })
    };
    assert_eq!(begun(&deleted(19)), None);
    let expected = Some((MoveKind::NotReady, Phase::HandingOver, "m-1".to_owned()));
    let mut seen = deleted(20);
    assert_eq!(begun(&seen), expected, "also while its kubelet last said that it is Ready");
    under_way(&mut seen);
    assert!(matches!(decide(&seen).actions[..], [Action::Designate { .. }]));
    let mut cooling = deleted(20);
    cooling.last_failover = Some(PastFailover { ago: Duration::from_secs(59), failures: 0 });
    assert_eq!(begun(&cooling), None);
}

#[test]
fn a_fence_hits_the_pod_by_uid_and_follows_the_epoch() {
    let mut seen = with(|seen| block(seen, 60, 60));
    under_way(&mut seen);
    let fence = Action::Fence { pod: "m-0".to_owned(), uid: "uid-0".to_owned() };
    assert_eq!(decide(&seen).actions, [fence]);
    assert_eq!(reasons(&seen)[1], Reason::Moving);
    seen.pods[0].terminating = true;
    assert_eq!((decide(&seen).actions, decide(&seen).step), (vec![], Step::Keep));
    let mut dead_kubelet = seen.clone();
    wait(&mut dead_kubelet, FENCE_DEADLINE);
    assert_eq!(advanced(decide(&dead_kubelet)).phase, Phase::HandingOver, "nobody ends it: it is asked");
    dead_kubelet.pods[1].incarnation = None;
    assert_eq!(outcome(&dead_kubelet), Some(Outcome::NotReleased));
    taken_over(&mut seen);
    let plan = advanced(decide(&seen));
    assert_eq!((plan.phase, plan.to.pod.as_str()), (Phase::Verifying, "m-1"));
    seen.moving = Some(Moving { plan, phase_for: Duration::ZERO });
    assert_eq!(outcome(&seen), Some(Outcome::Moved));
    for change in [
        |seen: &mut Observed| seen.pods[1].ready = false,
        |seen: &mut Observed| seen.pods[1].labelled = false,
        |seen: &mut Observed| seen.routed = Some(vec!["uid-0".to_owned()]),
    ] {
        let mut not_yet = seen.clone();
        change(&mut not_yet);
        assert_eq!(outcome(&not_yet), None);
        wait(&mut not_yet, VERIFY_DEADLINE);
        not_yet.pods[0].terminating = true;
        assert_eq!(outcome(&not_yet), Some(Outcome::NotServing));
    }
}

#[test]
fn a_fence_that_has_become_needless_or_dangerous_is_not_carried_out() {
    type Change = fn(&mut Observed);
    let table: [(Change, Option<Outcome>); 10] = [
        (|seen| seen.pods[0].ready = true, Some(Outcome::Abandoned)),
        (|seen| seen.pods[0].health = Health::Ok, Some(Outcome::Abandoned)),
        (|seen| seen.pods[1].says = Says::Nothing, Some(Outcome::Abandoned)),
        // A new operator has not called yet, or not often and long enough.
        (|seen| seen.pods[0].health = Health::Unknown, None),
        (|seen| seen.pods[0].health = Health::Failing("x".to_owned()), None),
        (|seen| block(seen, 60, 29), None),
        (|seen| block(seen, 29, 60), None),
        // No kubelet would carry it out.
        (|seen| seen.pods[0].node.as_mut().expect("a node").ready = false, None),
        (|seen| lease(seen).hold = Hold::Released, None),
        (|seen| seen.lease = LeaseState::Missing, None),
    ];
    for (index, (change, expected)) in table.into_iter().enumerate() {
        let mut seen = with(|seen| block(seen, 60, 60));
        under_way(&mut seen);
        change(&mut seen);
        assert_eq!((outcome(&seen), fences(&seen)), (expected, false), "row {index}");
    }
    let mut unknown = with(|seen| block(seen, 60, 60));
    under_way(&mut unknown);
    unknown.pods[0].health = Health::Unknown;
    wait(&mut unknown, FENCE_DEADLINE);
    assert_eq!((outcome(&unknown), fences(&unknown)), (Some(Outcome::Abandoned), false));
}

#[test]
fn a_move_without_a_lease_of_ours_comes_to_an_end() {
    for state in [LeaseState::Missing, LeaseState::Foreign("x".to_owned())] {
        let mut seen = with(|seen| leave(seen, 0));
        under_way(&mut seen);
        seen.lease = state;
        assert_eq!(outcome(&seen), None);
        wait(&mut seen, FENCE_DEADLINE);
        assert_eq!(outcome(&seen), Some(Outcome::NotReleased));
    }
}

#[test]
fn failovers_of_a_blocked_active_cool_down_and_drains_do_not() {
    let after = |ago: u64, failures| {
        with(|seen| {
            block(seen, 60, 60);
            seen.last_failover = Some(PastFailover { ago: Duration::from_secs(ago), failures });
        })
    };
    for (ago, failures, moves, reason) in [
        (59, 0, false, Reason::CoolingDown),
        (60, 0, true, Reason::NotBlocked),
        (119, 1, false, Reason::TakeoverFailed),
        (120, 1, true, Reason::NotBlocked),
        (239, 2, false, Reason::TakeoverFailed),
    ] {
        let seen = after(ago, failures);
        assert_eq!((begun(&seen).is_some(), failover_blocked(&seen)), (moves, reason), "{ago} {failures}");
    }
    let mut drain = after(1, 3);
    leave(&mut drain, 0);
    assert_eq!(begun(&drain).map(|(kind, ..)| kind), Some(MoveKind::NodeDrain));
}

#[test]
fn only_the_operator_is_cut_off() {
    let seen = with(|seen| {
        seen.pods[0].health = failed(3600);
        seen.pods.iter_mut().for_each(|pod| pod.says = Says::Nothing);
    });
    assert_eq!((begun(&seen), decide(&seen).actions), (None, vec![]));
    assert_eq!(reasons(&seen), [Reason::ActiveServing, Reason::Creating, Reason::OperatorCutOff]);
    let one = with(|seen| seen.pods[0].health = failed(3600));
    assert_eq!((begun(&one), reasons(&one)[2]), (None, Reason::HealthCheckFailing));
}

#[test]
fn nothing_else_is_replaced_while_the_role_moves() {
    let mut seen = with(|seen| {
        seen.replicas = 3;
        seen.pods.push(pod(2));
        seen.pods[2].template_hash = Some("old".to_owned());
        leave(seen, 0);
    });
    assert_eq!(decide(&seen).actions, []);
    under_way(&mut seen);
    let deletes =
        |seen: &Observed| decide(seen).actions.iter().any(|a| matches!(a, Action::DeletePod { .. }));
    assert!(!deletes(&seen));
    seen.pods[2].running = false;
    seen.pods[2].failure = Some("ImagePullBackOff".to_owned());
    assert!(deletes(&seen), "what is broken and has no part in it is healed");
}

#[test]
fn a_paused_resource_keeps_its_move() {
    let mut seen = with(|seen| block(seen, 60, 60));
    under_way(&mut seen);
    seen.paused = true;
    wait(&mut seen, LONG);
    assert_eq!((decide(&seen).step, decide(&seen).actions), (Step::Keep, vec![]));
}
