//! Property tests: a small world of pods, a Lease and a label, in which masters, the StatefulSet controller, users and
//! the operator act in any order, and the operator acts on what it saw a while ago.
//!
//! Never two labelled pods in any state; a roll never takes away the last master that could serve; no active is fenced
//! without a candidate, nor by an operator that reaches nobody; and once users and faults are quiet there is an active
//! again, Ready and labelled, with every pod of the present template, even if the one that led then stays blocked.

use super::*;
use proptest::prelude::*;
use world::World;

mod world;

/// One step of anybody.
#[derive(Clone, Debug)]
enum Step {
    /// The StatefulSet controller creates missing pods.
    Controller,
    /// Masters renew, claim and label; one round passes.
    Round,
    /// The operator looks.
    Observe,
    /// The operator acts on its last look, on the first so many actions.
    Act(usize),
    /// A process dies.
    Crash(usize),
    /// It is started again.
    Restart(usize),
    /// A user deletes a pod.
    Delete(usize),
    /// A master serves nothing, although its process and its lease thread run; or serves again.
    Block(usize, bool),
    /// A node is cordoned, or no longer.
    Cordon(usize, bool),
    /// A kubelet stops, or is started again.
    Kubelet(usize, bool),
    /// Promotions fail at that place, or no longer.
    PromotionFails(usize, bool),
    /// Who leads at that place never becomes Ready, or does again.
    NeverReady(usize, bool),
    /// The operator's network to the pods is cut, or no longer.
    CutOff(bool),
    /// The operator dies and another one starts.
    OperatorRestart,
    /// A user writes another template; odd ones are good.
    Template(u8),
    /// Somebody deletes the Lease.
    DeleteLease,
    /// A user deletes the resource and applies it again: StatefulSet, Lease and status are gone, the pods run on.
    Reapply,
    /// The garbage collector takes the pods of earlier StatefulSets.
    Collect,
    /// The next holder's own label write is lost.
    LoseLabel,
    /// An outsider labels a pod while none is labelled. Not between a look of the operator and its write: an outsider,
    /// unlike a new holder, does not touch the other pods, and is outside of what can be promised.
    Mislabel(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Controller),
        8 => Just(Step::Round),
        6 => Just(Step::Observe),
        6 => (1_usize..4).prop_map(Step::Act),
        3 => (0_usize..3).prop_map(Step::Crash),
        2 => (0_usize..3).prop_map(Step::Restart),
        1 => (0_usize..3).prop_map(Step::Delete),
        2 => ((0_usize..3), any::<bool>()).prop_map(|(index, is)| Step::Block(index, is)),
        1 => ((0_usize..3), any::<bool>()).prop_map(|(index, is)| Step::Cordon(index, is)),
        1 => ((0_usize..3), any::<bool>()).prop_map(|(index, is)| Step::Kubelet(index, is)),
        1 => ((0_usize..3), any::<bool>()).prop_map(|(index, is)| Step::PromotionFails(index, is)),
        1 => ((0_usize..3), any::<bool>()).prop_map(|(index, is)| Step::NeverReady(index, is)),
        1 => any::<bool>().prop_map(Step::CutOff),
        1 => Just(Step::OperatorRestart),
        1 => (1_u8..6).prop_map(Step::Template),
        1 => Just(Step::DeleteLease),
        1 => Just(Step::Reapply),
        1 => Just(Step::Collect),
        4 => Just(Step::LoseLabel),
        1 => (0_usize..3).prop_map(Step::Mislabel),
    ];
    proptest::collection::vec(step, 0..200)
}

fn run(world: &mut World, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut decision: Option<(u32, Decision)> = None;
    for step in steps {
        match step {
            Step::Controller => world.controller(),
            Step::Round => world.round(),
            Step::Observe => {
                let seen = world.observe();
                let decided = decide(&seen);
                check(&seen, &decided)?;
                if world.cut_off {
                    let by_force = decided.actions.iter().any(|a| matches!(a, Action::Fence { .. }));
                    prop_assert!(
                        !by_force && !matches!(decided.step, super::Step::Begin(_)),
                        "{:?}",
                        decided
                    );
                }
                if decided.actions.iter().any(|a| matches!(a, Action::CreateLease { released: true, .. })) {
                    prop_assert!(
                        world.members.iter().all(Option::is_none),
                        "released, but pods run: {:?}",
                        world
                    );
                }
                decision = Some((world.status.version, decided));
            }
            Step::Act(count) => {
                let Some((version, decided)) = &decision else { continue };
                for action in decided.actions.iter().take(*count) {
                    let before = world.alive();
                    world.act(action);
                    if let Action::DeletePod { why: Why::Heal, .. } = action {
                        prop_assert_eq!(world.alive(), before, "healing took a running master away");
                    }
                }
                if decided.actions.len() <= *count {
                    world.write(*version, &decided.step);
                }
            }
            Step::Block(index, is) => {
                if let Some(Some(member)) = world.members.get_mut(*index) {
                    member.blocked = *is;
                }
            }
            Step::Cordon(index, is) => {
                if let Some(place) = world.places.get_mut(*index) {
                    place.leaving = *is;
                }
            }
            Step::Kubelet(index, runs) => {
                if *index < world.places.len() {
                    world.places[*index].kubelet_dead = true;
                    if *runs {
                        world.revive(*index);
                    }
                }
            }
            Step::PromotionFails(index, is) => {
                if let Some(place) = world.places.get_mut(*index) {
                    place.promotion_fails = *is;
                }
            }
            Step::NeverReady(index, is) => {
                if let Some(place) = world.places.get_mut(*index) {
                    place.never_ready = *is;
                }
            }
            Step::CutOff(is) => world.cut_off = *is,
            Step::OperatorRestart => {
                decision = None;
                world.memory = world::Memory::default();
            }
            Step::Crash(index) => {
                if let Some(Some(member)) = world.members.get_mut(*index) {
                    member.alive = false;
                }
            }
            Step::Restart(index) => {
                if let Some(Some(member)) = world.members.get_mut(*index)
                    && !member.alive
                {
                    member.alive = World::is_good(member.template);
                    world.restart(*index, 0);
                }
            }
            Step::Delete(index) => {
                if *index < world.members.len() {
                    world.delete(*index);
                }
            }
            Step::Template(template) => world.template = *template,
            Step::DeleteLease => world.lease = None,
            Step::Reapply => {
                // What was decided was for the earlier resource: its uid is in each write.
                decision = None;
                world.reapply();
            }
            Step::Collect => {
                for index in 0..world.members.len() {
                    if world.members[index].as_ref().is_some_and(|member| member.orphan) {
                        world.delete(index);
                    }
                }
            }
            Step::LoseLabel => world.lose_label = true,
            Step::Mislabel(index) => {
                decision = None;
                let nobody = world.labelled() == 0;
                if let Some(Some(member)) = world.members.get_mut(*index)
                    && nobody
                    && !member.orphan
                {
                    (member.labelled, member.version) = (true, member.version + 1);
                }
            }
        }
        prop_assert!(world.labelled() <= 1, "two labelled pods after {:?}: {:?}", step, world);
    }
    Ok(())
}

/// What holds for every decision by itself.
fn check(seen: &Observed, decided: &Decision) -> Result<(), TestCaseError> {
    let deletions = |action: &&Action| matches!(action, Action::DeletePod { .. } | Action::Fence { .. });
    prop_assert!(decided.actions.iter().filter(deletions).count() <= 1);
    prop_assert_eq!(decided.conditions.len(), 4);
    let for_a_move = |action: &Action| matches!(action, Action::Fence { .. } | Action::Designate { .. });
    if decided.step != super::Step::Keep {
        prop_assert!(!decided.actions.iter().any(for_a_move), "before it stands on status");
    }
    for action in &decided.actions {
        if let Action::Fence { uid, .. } = action {
            let moving = seen.moving.as_ref().map(|moving| (moving.plan.phase, &moving.plan.from.uid));
            prop_assert_eq!(moving, Some((Phase::Fencing, uid)));
            prop_assert!(seen.others().any(Pod::is_candidate), "a fence without a candidate: {:?}", seen);
        }
        if let Action::DeletePod { pod, why } = action {
            let target = seen.pods.iter().find(|p| p.id == *pod);
            prop_assert!(target.is_some_and(|p| p.template_hash.as_ref() != Some(&seen.template_hash)));
            let is_active = seen.active().is_some_and(|active| active.id == *pod);
            prop_assert_eq!(is_active, *why == Why::RollActive);
            let serves = |p: &Pod| p.running && !p.terminating && p.says == Says::Leader;
            prop_assert!(
                *why == Why::Heal || seen.active().is_some_and(serves),
                "a roll while nobody serves"
            );
            if is_active && seen.replicas > 1 {
                let ready_to_take_over = seen.others().filter(|p| p.stands_by()).count();
                prop_assert_eq!(ready_to_take_over as i32, seen.replicas - 1, "the active goes last");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn never_two_labelled_and_always_one_in_the_end(replicas in 1_usize..4, steps in steps(), last in 0_u8..3) {
        let mut world = World::new(replicas);
        run(&mut world, &steps)?;
        // Users and faults are quiet, and the template is a good one.
        world.template = last * 2 + 1;
        for index in 0..replicas {
            let well = [
                Step::Restart(index),
                Step::Cordon(index, false),
                Step::Kubelet(index, true),
                Step::PromotionFails(index, false),
                Step::NeverReady(index, false),
            ];
            run(&mut world, &well)?;
            // One that stays blocked must lose the role, if there is another one.
            let holder = world.lease.as_ref().and_then(|lease| lease.holder).map(|holder| holder.index);
            if replicas == 1 || holder != Some(index) {
                run(&mut world, &[Step::Block(index, false)])?;
            }
        }
        run(&mut world, &[Step::CutOff(false)])?;
        let quiet = [Step::Collect, Step::Controller, Step::Round, Step::Observe, Step::Act(9)];
        for _ in 0..400 {
            run(&mut world, &quiet)?;
            let seen = world.observe();
            if seen.active().is_some_and(|active| active.labelled && active.ready) && decide(&seen).again == LATER {
                break;
            }
        }
        let seen = world.observe();
        let active = seen.active();
        prop_assert!(active.is_some_and(|active| active.labelled && active.ready), "nobody serves: {:?}", world);
        prop_assert_eq!(&world.status.moving, &None);
        // A roll that has failed with this very template leaves its active; nothing else stays behind.
        let left = seen.failed_template.as_ref() == Some(&seen.template_hash);
        let outdated = |p: &&Pod| p.template_hash.as_ref() != Some(&seen.template_hash);
        for pod in seen.pods.iter().filter(outdated) {
            prop_assert!(left && active.is_some_and(|active| active.id == pod.id), "{:?}", world);
        }
        prop_assert_eq!(decide(&seen).actions, vec![]);
    }
}

/// Everybody goes on for so many rounds. How often a move began, and in how many rounds nobody was Ready.
fn goes_on(world: &mut World, rounds: u32) -> (usize, u32) {
    let (mut begun, mut unserved) = (0, 0);
    for _ in 0..rounds {
        run(world, &[Step::Controller, Step::Round]).expect("the rules hold");
        // A phase that is written is carried out at once.
        for _ in 0..4 {
            let decided = decide(&world.observe());
            begun += usize::from(matches!(decided.step, super::Step::Begin(_)));
            run(world, &[Step::Observe, Step::Act(9)]).expect("the rules hold");
            if decided.again != AT_ONCE {
                break;
            }
        }
        let seen = world.observe();
        unserved += u32::from(!seen.active().is_some_and(|active| active.ready));
    }
    (begun, unserved)
}

/// Two masters, the first active, and what the steps bring about.
fn settled(steps: &[Step]) -> World {
    let mut world = World::new(2);
    goes_on(&mut world, 20);
    assert_eq!(world.lease.as_ref().and_then(|lease| lease.holder).map(|holder| holder.index), Some(0));
    run(&mut world, steps).expect("the rules hold");
    world
}

/// An hour of it: five tries in the first half minute after the other would be an outage that the operator makes.
const AN_HOUR: u32 = 3600;

#[test]
fn a_drain_to_a_master_that_cannot_serve_is_tried_ever_less_often() {
    for fault in [Step::PromotionFails(1, true), Step::NeverReady(1, true)] {
        let mut world = settled(&[fault.clone(), Step::Cordon(0, true)]);
        let (begun, unserved) = goes_on(&mut world, AN_HOUR);
        // 10, 20, 40, 80 and 160 s apart, then every 300 s, beside the time that each takes.
        assert!((4..=18).contains(&begun), "{fault:?}: {begun} moves");
        assert!(unserved < AN_HOUR / 5, "{fault:?}: nobody served for {unserved} s");
        run(&mut world, &[Step::PromotionFails(1, false), Step::NeverReady(1, false)])
            .expect("the rules hold");
        goes_on(&mut world, 400);
        let seen = world.observe();
        assert_eq!(
            seen.active().map(|active| active.ordinal),
            Some(1),
            "{fault:?}: the drain is done at last"
        );
    }
}

#[test]
fn a_roll_whose_master_does_not_serve_is_tried_once_for_a_template() {
    for fault in [Step::PromotionFails(1, true), Step::NeverReady(1, true)] {
        let mut world = settled(&[fault.clone(), Step::Template(3)]);
        let (begun, unserved) = goes_on(&mut world, AN_HOUR);
        assert_eq!(begun, 1, "{fault:?}");
        assert!(unserved < 60, "{fault:?}: nobody served for {unserved} s");
        let seen = world.observe();
        assert!(
            seen.active().is_some_and(|active| active.ordinal == 0 && active.ready),
            "{fault:?}: {world:?}"
        );
        assert_eq!(decide(&seen).conditions[2].reason, mooncake_crds::Reason::RollFailed, "{fault:?}");
        // Another template is another matter.
        let well = [Step::PromotionFails(1, false), Step::NeverReady(1, false), Step::Template(5)];
        run(&mut world, &well).expect("the rules hold");
        goes_on(&mut world, 100);
        assert!(world.members.iter().flatten().all(|member| member.template == 5), "{fault:?}: {world:?}");
    }
}

#[test]
fn no_active_is_fenced_for_a_standby_that_is_reluctant() {
    let mut world = settled(&[Step::PromotionFails(1, true), Step::Template(3)]);
    for _ in 0..AN_HOUR {
        goes_on(&mut world, 1);
        let old = world.members[0].as_ref().map(|member| member.template);
        assert_eq!(old, Some(1), "the only master that serves is gone: {world:?}");
    }
}

#[test]
fn a_dead_kubelet_does_not_keep_the_role() {
    let dead = Step::Kubelet(0, false);
    let cases: [&[Step]; 3] = [
        // It is deleted in vain: by a user, or by the eviction of a drain.
        &[dead.clone(), Step::Delete(0)],
        // Its node fails together with it.
        &[dead.clone(), Step::Block(0, true)],
        // The node lives, the master does not, and its kubelet dies after the fence.
        &[Step::Block(0, true)],
    ];
    for (index, case) in cases.into_iter().enumerate() {
        let mut world = settled(case);
        if index == 2 {
            // Until it is fenced.
            while !world.status.moving.as_ref().is_some_and(|plan| plan.phase == Phase::Fencing) {
                run(&mut world, &[Step::Round, Step::Observe, Step::Act(9)]).expect("the rules hold");
            }
            run(&mut world, std::slice::from_ref(&dead)).expect("the rules hold");
        }
        goes_on(&mut world, 100);
        let seen = world.observe();
        assert!(
            seen.active().is_some_and(|active| active.ordinal == 1 && active.ready),
            "case {index}: {world:?}"
        );
    }
}
