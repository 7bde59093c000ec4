//! Property tests: a small world of pods, a Lease and a label, in which masters, the StatefulSet controller, users and
//! the operator act in any order, and the operator acts on what it saw a while ago.
//!
//! Never two labelled pods in any state; a roll never takes away the last master that could serve; and once users and
//! faults are quiet there is an active again, labelled, with every pod of the present template.

use super::{tests::pod, *};
use proptest::prelude::*;

/// Short, so that stale actions of the operator meet new holders.
const DURATION: u32 = 1;

/// A pod of the model.
#[derive(Clone, Debug)]
struct Member {
    uid: u32,
    version: u32,
    template: u8,
    labelled: bool,
    /// Its process runs; one of a bad template never does.
    alive: bool,
    /// Rounds since it neither served nor stood by.
    idle: u32,
    /// Its StatefulSet is gone. It keeps its name until the garbage collector takes it.
    orphan: bool,
}

#[derive(Clone, Debug)]
struct ModelLease {
    holder: Option<(usize, u32)>,
    released: bool,
    epoch: i64,
    /// Rounds since the last renewal.
    age: u32,
}

#[derive(Clone, Debug)]
struct World {
    members: Vec<Option<Member>>,
    lease: Option<ModelLease>,
    template: u8,
    applied: Option<u8>,
    next_uid: u32,
    disagreement: Option<(Disagreement, u32)>,
    status_epoch: i64,
    lose_label: bool,
}

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

impl World {
    fn new(replicas: usize) -> World {
        World {
            members: vec![None; replicas],
            lease: None,
            template: 1,
            applied: None,
            next_uid: 1,
            disagreement: None,
            status_epoch: 0,
            lose_label: false,
        }
    }

    fn is_good(template: u8) -> bool {
        template % 2 == 1
    }

    fn controller(&mut self) {
        let Some(template) = self.applied else { return };
        for member in self.members.iter_mut().filter(|member| member.is_none()) {
            let alive = World::is_good(template);
            *member = Some(Member {
                uid: self.next_uid,
                version: 1,
                template,
                labelled: false,
                alive,
                idle: 0,
                orphan: false,
            });
            self.next_uid += 1;
        }
    }

    /// One second: the holder renews or a standby claims, as the lease crate does it.
    fn round(&mut self) {
        let running: Vec<(usize, u32)> = self
            .members
            .iter()
            .enumerate()
            .filter_map(|(index, member)| member.as_ref().filter(|m| m.alive).map(|m| (index, m.uid)))
            .collect();
        if let Some(lease) = &mut self.lease {
            lease.age += 1;
            let holder_runs = lease.holder.is_some_and(|holder| running.contains(&holder)) && !lease.released;
            let free = lease.holder.is_none() || lease.released || lease.age > DURATION;
            if holder_runs {
                lease.age = 0;
            } else if let (true, Some(&claimer)) = (free, running.first()) {
                *lease =
                    ModelLease { holder: Some(claimer), released: false, epoch: lease.epoch + 1, age: 0 };
                self.take_over(claimer);
            }
        }
        for member in self.members.iter_mut().flatten() {
            member.idle = if member.alive { 0 } else { member.idle + 1 };
        }
    }

    /// A new holder touches every other pod, then labels its own.
    fn take_over(&mut self, (claimer, uid): (usize, u32)) {
        let lost = std::mem::take(&mut self.lose_label);
        for (index, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { continue };
            member.version += 1;
            member.labelled = index == claimer && member.uid == uid && !lost;
        }
    }

    fn observe(&mut self) -> Observed {
        let (replicas, epoch) =
            (self.members.len() as i32, self.lease.as_ref().map_or(0, |lease| lease.epoch));
        self.status_epoch = self.status_epoch.max(epoch);
        let holder = self.lease.as_ref().and_then(|lease| lease.holder);
        let pods = self.members.iter().enumerate().filter_map(|(index, member)| {
            let member = member.as_ref().filter(|member| !member.orphan)?;
            let leads = holder == Some((index, member.uid)) && member.alive;
            let mut seen = pod(index as i32);
            seen.id.uid = member.uid.to_string();
            seen.id.resource_version = member.version.to_string();
            seen.labelled = member.labelled;
            seen.template_hash = Some(member.template.to_string());
            seen.running = member.alive;
            seen.ready = leads && member.labelled;
            let state = if leads { Says::Leader } else { Says::Standby };
            seen.says = if member.alive { state } else { Says::Nothing };
            seen.failure = (!World::is_good(member.template)).then(|| "ImagePullBackOff".to_owned());
            seen.idle_for = Duration::from_secs(u64::from(member.idle));
            Some(seen)
        });
        let mut seen = Observed {
            deleting: false,
            paused: false,
            replicas,
            invalid: Vec::new(),
            objects: vec![ObjectState {
                kind: Kind::StatefulSet,
                name: "m".to_owned(),
                presence: match self.applied {
                    None => Presence::Missing,
                    Some(applied) if applied == self.template => Presence::Current,
                    Some(_) => Presence::Drifted("spec.template".to_owned()),
                },
            }],
            workload_settled: self.applied == Some(self.template),
            template_hash: self.template.to_string(),
            known_epoch: self.status_epoch,
            pods: pods.collect(),
            any_pod: self.members.iter().any(Option::is_some),
            lease: match &self.lease {
                None => LeaseState::Missing,
                Some(lease) => LeaseState::Present(Lease {
                    uid: "lease".to_owned(),
                    resource_version: "1".to_owned(),
                    owned: true,
                    holder: lease.holder.map(|(index, uid)| Holder {
                        pod: format!("m-{index}"),
                        pod_uid: uid.to_string(),
                        address: String::new(),
                        incarnation: String::new(),
                    }),
                    hold: match lease {
                        ModelLease { released: true, .. } => Hold::Released,
                        ModelLease { age, .. } if *age > DURATION => Hold::Expired,
                        _ => Hold::Fresh,
                    },
                    epoch: lease.epoch,
                    duration_seconds: Some(DURATION as i32),
                }),
            },
            disagreed_for: Duration::ZERO,
            last_error: None,
        };
        let now = disagreement(&seen);
        let looks = match (&self.disagreement, &now) {
            (Some((before, looks)), Some(now)) if before == now => looks + 1,
            _ => 0,
        };
        self.disagreement = now.map(|now| (now, looks));
        // The second look is late enough.
        seen.disagreed_for = LABEL_GRACE * looks;
        seen
    }

    /// The pod, if it is still this very state of this very pod: what uid and resourceVersion do for a write.
    fn member(&mut self, id: &PodRef) -> Option<&mut Option<Member>> {
        let fits = |member: &Option<Member>| {
            member
                .as_ref()
                .is_some_and(|m| m.uid.to_string() == id.uid && m.version.to_string() == id.resource_version)
        };
        self.members.iter_mut().find(|member| fits(member))
    }

    fn delete(&mut self, index: usize) {
        let Some(member) = self.members[index].take() else { return };
        // SIGTERM: the holder releases. A dead process does not.
        if let Some(lease) = &mut self.lease
            && lease.holder == Some((index, member.uid))
            && member.alive
        {
            lease.released = true;
        }
    }

    fn reapply(&mut self) {
        (self.applied, self.lease, self.disagreement, self.status_epoch) = (None, None, None, 0);
        for member in self.members.iter_mut().flatten() {
            member.orphan = true;
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Apply(_) => self.applied = Some(self.template),
            Action::CreateLease { epoch, .. } => {
                // A create fails if the Lease is there by now.
                self.lease.get_or_insert(ModelLease { holder: None, released: false, epoch: *epoch, age: 0 });
            }
            Action::AdoptLease => {}
            Action::ClearLabel(id) => {
                if let Some(Some(member)) = self.member(id) {
                    (member.labelled, member.version) = (false, member.version + 1);
                }
            }
            Action::SetLabel(id) => {
                if let Some(Some(member)) = self.member(id) {
                    (member.labelled, member.version) = (true, member.version + 1);
                }
            }
            Action::DeletePod { pod, .. } => {
                let index = self.members.iter().position(|member| {
                    member.as_ref().is_some_and(|m| {
                        m.uid.to_string() == pod.uid && m.version.to_string() == pod.resource_version
                    })
                });
                if let Some(index) = index {
                    self.delete(index);
                }
            }
        }
    }

    fn labelled(&self) -> usize {
        self.members.iter().flatten().filter(|member| member.labelled).count()
    }

    fn alive(&self) -> usize {
        self.members.iter().flatten().filter(|member| member.alive).count()
    }
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
    let mut decision: Option<(Observed, Decision)> = None;
    for step in steps {
        match step {
            Step::Controller => world.controller(),
            Step::Round => world.round(),
            Step::Observe => {
                let seen = world.observe();
                let decided = decide(&seen);
                check(&seen, &decided)?;
                if decided.actions.iter().any(|a| matches!(a, Action::CreateLease { released: true, .. })) {
                    prop_assert!(
                        world.members.iter().all(Option::is_none),
                        "released, but pods run: {:?}",
                        world
                    );
                }
                decision = Some((seen, decided));
            }
            Step::Act(count) => {
                for action in decision.iter().flat_map(|(_, decided)| decided.actions.iter()).take(*count) {
                    let before = world.alive();
                    world.act(action);
                    if let Action::DeletePod { why: Why::Heal, .. } = action {
                        prop_assert_eq!(world.alive(), before, "healing took a running master away");
                    }
                }
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
    let deletions =
        decided.actions.iter().filter(|action| matches!(action, Action::DeletePod { .. })).count();
    prop_assert!(deletions <= 1);
    prop_assert_eq!(decided.conditions.len(), 3);
    for action in &decided.actions {
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
            run(&mut world, &[Step::Restart(index)])?;
        }
        let quiet = [Step::Collect, Step::Controller, Step::Round, Step::Observe, Step::Act(9)];
        for _ in 0..60 {
            run(&mut world, &quiet)?;
            let seen = world.observe();
            if seen.active().is_some_and(|active| active.labelled) && decide(&seen).again == LATER {
                break;
            }
        }
        let seen = world.observe();
        let active = seen.active();
        prop_assert!(active.is_some_and(|active| active.labelled), "nobody serves: {:?}", world);
        prop_assert!(seen.pods.iter().all(|p| p.template_hash.as_ref() == Some(&seen.template_hash)), "{:?}", world);
        prop_assert_eq!(decide(&seen).actions, vec![]);
    }
}
