//! An active that is asked to give the role away, and what comes of it.

use super::*;

#[test]
fn an_active_that_answers_but_is_not_ready_hands_over() {
    let not_ready = |seconds| {
        with(|seen| {
            block(seen, seconds, 0);
            seen.pods[0].health = Health::Ok;
        })
    };
    assert_eq!(begun(&not_ready(29)), None);
    let expected = Some((MoveKind::NotReady, Phase::HandingOver, "m-1".to_owned()));
    assert_eq!(begun(&not_ready(30)), expected);
    // What a stopped kubelet looks like.
    let mut stopped = not_ready(30);
    stopped.pods[0].node.as_mut().expect("a node").ready = false;
    assert_eq!(begun(&stopped), expected);
    stopped.pods[1].node.as_mut().expect("a node").ready = false;
    assert_eq!(begun(&stopped), None, "all kubelets are silent: it is not the master");
}

#[test]
fn a_leaving_node_makes_its_active_hand_over() {
    let mut seen = with(|seen| leave(seen, 0));
    let begins = Some((MoveKind::NodeDrain, Phase::HandingOver, "m-1".to_owned()));
    assert_eq!(begun(&seen), begins);
    let mut alone = seen.clone();
    leave(&mut alone, 1);
    assert_eq!(begun(&alone), None);
    assert_eq!(reasons(&alone)[2], Reason::ActiveNodeLeaving);

    under_way(&mut seen);
    let designate = |successor: Option<&str>| Action::Designate {
        uid: "lease".to_owned(),
        resource_version: "1".to_owned(),
        successor: successor.map(str::to_owned),
    };
    assert_eq!(decide(&seen).actions, [designate(Some("incarnation-1"))]);
    let mut unasked = seen.clone();
    wait(&mut unasked, RELEASE_DEADLINE);
    assert_eq!(outcome(&unasked), Some(Outcome::NotReleased), "it could not be asked");
    lease(&mut seen).designated = Some("incarnation-1".to_owned());
    asked(&mut seen);
    assert_eq!((decide(&seen).actions, decide(&seen).step), (vec![], Step::Keep), "asked once");
    let mut back = seen.clone();
    lease(&mut back).designated = None;
    assert_eq!(outcome(&back), Some(Outcome::NotReleased), "released, and taken back: not asked again");

    let mut deaf = seen.clone();
    wait(&mut deaf, RELEASE_DEADLINE);
    assert_eq!(outcome(&deaf), Some(Outcome::NotReleased), "no force");
    deaf.moving = None;
    for (ago, failures, again) in
        [(9, 1, false), (10, 1, true), (19, 2, false), (299, 30, false), (300, 30, true)]
    {
        deaf.last_move = Some(PastMove {
            // Whatever it was: the next hand-over would meet the same master.
            kind: MoveKind::Roll,
            outcome: Outcome::NotReleased,
            failures,
            ago: Duration::from_secs(ago),
        });
        assert_eq!(begun(&deaf), begins.clone().filter(|_| again), "{ago} {failures}");
        let withdraws = decide(&deaf).actions == [designate(None)];
        assert_eq!(withdraws, !again, "a request that failed is taken back");
    }

    // Released and unclaimed: the old active has it back after a while.
    let mut unclaimed = seen.clone();
    lease(&mut unclaimed).hold = Hold::Released;
    wait(&mut unclaimed, RELEASE_DEADLINE);
    assert_eq!((outcome(&unclaimed), fences(&unclaimed)), (None, false));
    wait(&mut unclaimed, CLAIM_DEADLINE);
    assert_eq!(outcome(&unclaimed), Some(Outcome::NotReleased));

    taken_over(&mut seen);
    seen.moving = Some(Moving { plan: advanced(decide(&seen)), phase_for: Duration::ZERO });
    // Its connections are still open.
    seen.pods[0].says = Says::Leader;
    assert_eq!(outcome(&seen), None);
    seen.pods[0].says = Says::Standby;
    assert_eq!(outcome(&seen), Some(Outcome::Moved));
}

#[test]
fn a_hand_over_for_which_the_reason_is_gone_is_not_asked_for() {
    let mut seen = with(|seen| leave(seen, 0));
    under_way(&mut seen);
    let mut stays = seen.clone();
    stays.pods[0].node = pod(0).node;
    assert_eq!(outcome(&stays), Some(Outcome::Abandoned));
    let mut other = seen.clone();
    other.pods[1].incarnation = Some("restarted".to_owned());
    assert_eq!(outcome(&other), Some(Outcome::Abandoned));
    lease(&mut stays).designated = Some("incarnation-1".to_owned());
    asked(&mut stays);
    assert_eq!(outcome(&stays), None, "it was asked already: the holder decides");
}

#[test]
fn a_roll_that_gets_no_release_deletes_the_active() {
    let mut seen = with(|seen| seen.pods[0].template_hash = Some("old".to_owned()));
    under_way(&mut seen);
    let mut unasked = seen.clone();
    wait(&mut unasked, RELEASE_DEADLINE);
    assert_eq!(outcome(&unasked), Some(Outcome::NotReleased), "never without having asked");
    lease(&mut seen).designated = Some("incarnation-1".to_owned());
    asked(&mut seen);
    wait(&mut seen, RELEASE_DEADLINE);
    let mut back = seen.clone();
    lease(&mut back).designated = None;
    assert_eq!(outcome(&back), Some(Outcome::NotReleased), "never after a release");
    let mut second = seen.clone();
    second.moving.as_mut().expect("a move").plan.attempt = ATTEMPTS;
    assert_eq!(outcome(&second), Some(Outcome::NotReleased), "never the one that the role has gone to");
    let mut reluctant = seen.clone();
    reluctant.pods[1].says = Says::Other("candidate".to_owned());
    assert_eq!(outcome(&reluctant), Some(Outcome::NotReleased), "never for one that would not claim");
    let plan = advanced(decide(&seen));
    assert_eq!((plan.phase, plan.kind), (Phase::Fencing, MoveKind::Roll));
    seen.moving = Some(Moving { plan, phase_for: Duration::ZERO });
    assert!(fences(&seen), "although it serves");
    seen.pods[0].terminating = true;
    wait(&mut seen, FENCE_DEADLINE);
    assert_eq!(outcome(&seen), Some(Outcome::NotReleased), "it was asked already");
    seen.pods[0].terminating = false;
    seen.pods[1].says = Says::Nothing;
    assert!(!fences(&seen));
}

#[test]
fn a_roll_does_not_begin_again_with_a_template_that_did_not_serve() {
    let mut seen = with(|seen| {
        seen.pods[0].template_hash = Some("old".to_owned());
        seen.failed_template = Some("new".to_owned());
    });
    assert_eq!((begun(&seen), decide(&seen).actions), (None, vec![]));
    assert_eq!(reasons(&seen), [Reason::ActiveServing, Reason::Stopped, Reason::RollFailed]);
    seen.failed_template = Some("another".to_owned());
    assert_eq!(begun(&seen).map(|(kind, ..)| kind), Some(MoveKind::Roll));
}

#[test]
fn only_the_successor_that_serves_is_a_success() {
    let mut seen = with(|seen| leave(seen, 0));
    under_way(&mut seen);
    taken_over(&mut seen);
    seen.moving = Some(Moving { plan: advanced(decide(&seen)), phase_for: Duration::ZERO });
    assert_eq!(outcome(&seen), Some(Outcome::Moved));
    // It did not get to serve, and the old active is back.
    let mut back = seen.clone();
    let pods = with(|_| ()).pods;
    (back.lease, back.pods) = (held_by(0), pods);
    assert_eq!(outcome(&back), Some(Outcome::NotServing));
    back.last_move = Some(PastMove {
        kind: MoveKind::NodeDrain,
        outcome: Outcome::NotServing,
        failures: 1,
        ago: Duration::from_secs(9),
    });
    (back.moving, back.pods[0].node) = (None, seen.pods[0].node.clone());
    assert_eq!(begun(&back), None, "and the next try waits");
    // The process that was asked has started anew and claimed what it had released.
    let mut same = seen.clone();
    let plan = &mut same.moving.as_mut().expect("a move").plan;
    plan.from.uid.clone_from(&plan.to.uid);
    assert_eq!(outcome(&same), Some(Outcome::NotServing));
}

/// Design, operator, Move: the role goes back once, or to another candidate; then FailoverBlocked.
#[test]
fn a_new_active_that_is_not_ready_gives_the_role_on_once() {
    let mut seen = with(|seen| block(seen, 60, 60));
    under_way(&mut seen);
    taken_over(&mut seen);
    seen.pods[1].ready = false;
    seen.moving = Some(Moving { plan: advanced(decide(&seen)), phase_for: READY_DEADLINE });
    let plan = advanced(decide(&seen));
    assert_eq!((plan.phase, plan.attempt, plan.epoch), (Phase::HandingOver, 2, 4));
    assert_eq!((plan.from.pod.as_str(), plan.to.pod.as_str()), ("m-1", "m-0"));
    let mut silent = seen.clone();
    silent.pods[1].health = failed(5);
    assert_eq!(decide(&silent).step, Step::Keep, "one that does not answer cannot be asked");
    let mut second = seen.clone();
    second.moving.as_mut().expect("a move").plan.attempt = ATTEMPTS;
    assert_eq!(decide(&second).step, Step::Keep);
    wait(&mut second, VERIFY_DEADLINE);
    assert_eq!(outcome(&second), Some(Outcome::NotServing));

    // Ready after all: the role stays, and the cool-down is not passed by.
    let mut late = seen.clone();
    late.moving = Some(Moving { plan, phase_for: Duration::ZERO });
    late.pods[1].ready = true;
    let plan = advanced(decide(&late));
    assert_eq!((plan.phase, plan.attempt, plan.to.pod.as_str()), (Phase::Verifying, 2, "m-1"));
    late.moving = Some(Moving { plan, phase_for: Duration::ZERO });
    assert_eq!(outcome(&late), Some(Outcome::NotServing));
}
