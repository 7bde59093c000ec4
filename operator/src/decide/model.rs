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
                if let Some(leaving) = world.leaving.get_mut(*index) {
                    *leaving = *is;
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
                if let Some(Some(member)) = world.members.get_mut(*index) {
                    member.alive = World::is_good(member.template);
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
            run(&mut world, &[Step::Restart(index), Step::Cordon(index, false)])?;
            // One that stays blocked must lose the role, if there is another one.
            let holder = world.lease.as_ref().and_then(|lease| lease.holder).map(|(index, _)| index);
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
        prop_assert!(seen.pods.iter().all(|p| p.template_hash.as_ref() == Some(&seen.template_hash)), "{:?}", world);
        prop_assert_eq!(decide(&seen).actions, vec![]);
    }
}
