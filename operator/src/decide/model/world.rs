//! The world: pods, a Lease, labels, nodes, and what the operator has written down and remembers.

use crate::{
    build::Kind,
    decide::{
        Action, Disagreement, FailoverRules, Health, Hold, Holder, LABEL_GRACE, Lease, LeaseState, MoveKind,
        Moving, Node, ObjectState, Observed, Outcome, PastFailover, PastMove, Plan, PodRef, Presence, Says,
        Step, disagreement, tests::pod,
    },
};
use std::time::Duration;

/// Short, so that stale actions of the operator meet new holders.
pub(super) const DURATION: u32 = 1;

/// Rounds are seconds; short, so that moves begin in the steps of a case.
const RULES: FailoverRules = FailoverRules {
    blocked_after: Duration::from_secs(2),
    cooldown: Duration::from_secs(10),
    not_ready_after: Duration::from_secs(5),
};

/// A pod of the model.
#[allow(clippy::struct_excessive_bools)] // independent facts
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) uid: u32,
    /// Changes with each start of the process.
    pub(super) process: u32,
    pub(super) version: u32,
    pub(super) template: u8,
    pub(super) labelled: bool,
    /// Its process runs; one of a bad template never does.
    pub(super) alive: bool,
    /// It serves nothing, while its lease thread goes on.
    pub(super) blocked: bool,
    /// Rounds since it neither served nor stood by.
    pub(super) idle: u32,
    /// Rounds in which it was not Ready.
    pub(super) unready: u32,
    /// Its StatefulSet is gone. It keeps its name until the garbage collector takes it.
    pub(super) orphan: bool,
    /// Rounds in which it leaves the Lease to others: it got it and did not get to serve.
    pub(super) reluctant: u32,
    /// It is deleted, but its kubelet does not end it; for so many rounds.
    pub(super) terminating: Option<u32>,
}

/// The process that holds the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) index: usize,
    uid: u32,
    process: u32,
}

#[derive(Clone, Debug)]
pub(super) struct ModelLease {
    pub(super) holder: Option<Holding>,
    pub(super) released: bool,
    /// The process for which it is released.
    pub(super) released_for: Option<u32>,
    /// The process that the holder is asked to release for.
    pub(super) designated: Option<u32>,
    pub(super) epoch: i64,
    /// Rounds since the last renewal.
    pub(super) age: u32,
    /// Rounds since the claim.
    pub(super) held: u32,
}

/// What is wrong with a node, or with every master that is there.
#[allow(clippy::struct_excessive_bools)] // independent facts
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// It is cordoned.
    pub(super) leaving: bool,
    /// Its kubelet neither reports nor ends anything.
    pub(super) kubelet_dead: bool,
    /// A promotion there fails: who claims gives the Lease up again and is reluctant.
    pub(super) promotion_fails: bool,
    /// Who leads there answers, but never becomes Ready.
    pub(super) never_ready: bool,
}

/// What is on the status of the resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Status {
    /// Changes with each write.
    pub(super) version: u32,
    pub(super) epoch: i64,
    pub(super) moving: Option<Plan>,
    /// Kind, outcome, failures in a row, and the round in which it ended.
    pub(super) last_move: Option<(MoveKind, Outcome, i32, u32)>,
    /// Failures in a row, and the round in which it ended.
    pub(super) last_failover: Option<(i32, u32)>,
    pub(super) failed_template: Option<u8>,
}

/// What an operator forgets when it ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    disagreement: Option<(Disagreement, u32)>,
    /// Uid of the active, and for how many rounds calls of it have failed; `None`: not called yet.
    calls: Option<(u32, u32)>,
    /// Rounds in the present phase of the move.
    phase: u32,
    unserved: u32,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) members: Vec<Option<Member>>,
    pub(super) places: Vec<Place>,
    pub(super) lease: Option<ModelLease>,
    pub(super) template: u8,
    pub(super) applied: Option<u8>,
    pub(super) next_uid: u32,
    pub(super) status: Status,
    pub(super) memory: Memory,
    pub(super) lose_label: bool,
    /// The operator reaches no pod.
    pub(super) cut_off: bool,
    pub(super) rounds: u32,
}

impl Holding {
    /// It is that very process.
    fn is(&self, index: usize, member: &Member) -> bool {
        (self.index, self.uid, self.process) == (index, member.uid, member.process)
    }
}

impl World {
    pub(super) fn new(replicas: usize) -> World {
        World {
            members: vec![None; replicas],
            places: vec![Place::default(); replicas],
            lease: None,
            template: 1,
            applied: None,
            next_uid: 1,
            status: Status::default(),
            memory: Memory::default(),
            lose_label: false,
            cut_off: false,
            rounds: 0,
        }
    }

    pub(super) fn is_good(template: u8) -> bool {
        template % 2 == 1
    }

    pub(super) fn controller(&mut self) {
        let Some(template) = self.applied else { return };
        for member in self.members.iter_mut().filter(|member| member.is_none()) {
            let alive = World::is_good(template);
            *member = Some(Member {
                uid: self.next_uid,
                process: self.next_uid,
                version: 1,
                template,
                labelled: false,
                alive,
                blocked: false,
                idle: 0,
                unready: 0,
                orphan: false,
                reluctant: 0,
                terminating: None,
            });
            self.next_uid += 1;
        }
    }

    /// The process of that member ends and another one begins, with that reluctance.
    pub(super) fn restart(&mut self, index: usize, reluctant: u32) {
        let process = self.next_uid;
        self.next_uid += 1;
        if let Some(Some(member)) = self.members.get_mut(index) {
            (member.process, member.reluctant) = (process, reluctant);
        }
    }

    /// One second: the holder renews, or releases for whom it is asked to, or a standby claims, as the lease crate does
    /// it.
    pub(super) fn round(&mut self) {
        self.rounds += 1;
        let running: Vec<(Holding, bool)> = self
            .members
            .iter()
            .enumerate()
            .filter_map(|(index, member)| {
                let member = member.as_ref().filter(|member| member.alive)?;
                let holding = Holding { index, uid: member.uid, process: member.process };
                Some((holding, member.reluctant == 0))
            })
            .collect();
        let alone = running.len() == 1;
        let candidates: Vec<Holding> =
            running.iter().filter(|(_, willing)| *willing || alone).map(|(holding, _)| *holding).collect();
        let mut ended = None;
        let mut claimed = None;
        if let Some(lease) = &mut self.lease {
            lease.age += 1;
            lease.held += 1;
            let holder = lease.holder.filter(|holder| running.iter().any(|(runs, _)| runs == holder));
            let run_out = lease.holder.is_none() || lease.age > DURATION;
            match holder {
                Some(holder) if !lease.released => {
                    lease.age = 0;
                    if self.places[holder.index].promotion_fails && lease.held > 2 {
                        (lease.released, lease.designated) = (true, None);
                        ended = Some((holder.index, 3 * DURATION + 1));
                    } else {
                        let successor = lease.designated.take_if(|process| *process != holder.process);
                        (lease.released, lease.released_for) = (successor.is_some(), successor);
                    }
                }
                // Nobody came: it is taken back.
                Some(_) if lease.released_for.is_some() && run_out => {
                    (lease.released, lease.released_for, lease.age) = (false, None, 0);
                }
                _ => {
                    let claimer = match lease.released_for {
                        Some(process) if !run_out => candidates.iter().find(|one| one.process == process),
                        _ if lease.released || run_out => candidates.first(),
                        _ => None,
                    };
                    if let Some(&claimer) = claimer {
                        ended = holder.filter(|old| *old != claimer).map(|old| (old.index, 0));
                        *lease = ModelLease {
                            holder: Some(claimer),
                            released: false,
                            released_for: None,
                            designated: None,
                            epoch: lease.epoch + 1,
                            age: 0,
                            held: 0,
                        };
                        claimed = Some(claimer);
                    }
                }
            }
        }
        if let Some(claimer) = claimed {
            self.take_over(claimer);
        }
        for member in self.members.iter_mut().flatten() {
            member.reluctant = member.reluctant.saturating_sub(1);
        }
        if let Some((index, reluctant)) = ended {
            self.restart(index, reluctant);
        }
        let holder = self.lease.as_ref().and_then(|lease| lease.holder);
        for (index, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { continue };
            let place = self.places[index];
            member.idle = if member.alive { 0 } else { member.idle + 1 };
            let leads = holder.is_some_and(|holder| holder.is(index, member)) && member.alive;
            let serves = leads && !member.blocked && member.labelled && member.terminating.is_none();
            let is_ready = serves && !place.kubelet_dead && !place.promotion_fails && !place.never_ready;
            member.unready = if is_ready { 0 } else { member.unready + 1 };
            member.terminating = member.terminating.map(|rounds| rounds + 1);
        }
        self.look();
    }

    /// What the operator's clock and calls tell it in a round.
    fn look(&mut self) {
        let active = self
            .lease
            .as_ref()
            .and_then(|lease| lease.holder)
            .and_then(|holder| Some((holder.index, self.members[holder.index].as_ref()?, holder)))
            .filter(|(_, member, holder)| member.uid == holder.uid);
        let fails = self.cut_off
            || active.is_some_and(|(index, active, _)| {
                active.blocked || !active.alive || self.places[index].promotion_fails
            });
        let active = active.map(|(_, active, _)| active);
        let uid = active.map(|active| active.uid);
        self.memory.unserved =
            if active.is_some_and(|active| active.unready == 0) { 0 } else { self.memory.unserved + 1 };
        self.memory.calls = uid.map(|uid| match self.memory.calls {
            Some((before, rounds)) if before == uid && fails => (uid, rounds + 1),
            _ => (uid, u32::from(fails)),
        });
        self.memory.phase += 1;
    }

    /// A new holder touches every other pod, then labels its own.
    fn take_over(&mut self, claimer: Holding) {
        let lost = std::mem::take(&mut self.lose_label);
        for (index, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { continue };
            member.version += 1;
            member.labelled = claimer.is(index, member) && !lost;
        }
    }

    fn pods(&self) -> Vec<crate::decide::Pod> {
        let holder = self.lease.as_ref().and_then(|lease| lease.holder);
        let pods = self.members.iter().enumerate().filter_map(|(index, member)| {
            let member = member.as_ref().filter(|member| !member.orphan)?;
            let place = self.places[index];
            let released = self.lease.as_ref().is_some_and(|lease| lease.released);
            let leads = holder.is_some_and(|holder| holder.is(index, member)) && member.alive && !released;
            let mut seen = pod(index as i32);
            seen.id.uid = member.uid.to_string();
            seen.id.resource_version = member.version.to_string();
            seen.incarnation = Some(member.process.to_string()).filter(|_| !self.cut_off);
            seen.terminating = member.terminating.is_some();
            seen.terminating_for = Duration::from_secs(u64::from(member.terminating.unwrap_or_default()));
            seen.grace = Duration::ZERO;
            seen.labelled = member.labelled;
            seen.template_hash = Some(member.template.to_string());
            seen.running = member.alive;
            seen.ready = leads && member.unready == 0;
            seen.not_ready_for =
                if seen.ready { Duration::ZERO } else { Duration::from_secs(u64::from(member.unready)) };
            seen.health = match self.memory.calls {
                Some((uid, rounds)) if uid == member.uid && rounds > 1 => {
                    let lasts = Duration::from_secs(u64::from(rounds - 2));
                    Health::Failed { lasts, what: "shard 0 is blocked".to_owned() }
                }
                Some((uid, 1)) if uid == member.uid => Health::Failing("shard 0 is blocked".to_owned()),
                Some((uid, _)) if uid == member.uid => Health::Ok,
                _ => Health::Unknown,
            };
            let leaving = place.leaving.then(|| "it is cordoned".to_owned());
            seen.node = Some(Node { name: index.to_string(), ready: !place.kubelet_dead, leaving });
            let state = match member.reluctant {
                _ if leads => Says::Leader,
                0 => Says::Standby,
                _ => Says::Other("candidate".to_owned()),
            };
            seen.says = if member.alive && !self.cut_off { state } else { Says::Nothing };
            seen.failure = (!World::is_good(member.template)).then(|| "ImagePullBackOff".to_owned());
            seen.idle_for = Duration::from_secs(u64::from(member.idle));
            Some(seen)
        });
        pods.collect()
    }

    pub(super) fn observe(&mut self) -> Observed {
        let epoch = self.lease.as_ref().map_or(0, |lease| lease.epoch);
        self.status.epoch = self.status.epoch.max(epoch);
        let ago = |round: u32| Duration::from_secs(u64::from(self.rounds - round));
        let mut seen = Observed {
            deleting: false,
            paused: false,
            replicas: self.members.len() as i32,
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
            known_epoch: self.status.epoch,
            pods: self.pods(),
            any_pod: self.members.iter().any(Option::is_some),
            lease: match &self.lease {
                None => LeaseState::Missing,
                Some(lease) => LeaseState::Present(Lease {
                    uid: "lease".to_owned(),
                    resource_version: "1".to_owned(),
                    owned: true,
                    holder: lease.holder.map(|holder| Holder {
                        pod: format!("m-{}", holder.index),
                        pod_uid: holder.uid.to_string(),
                        address: String::new(),
                        incarnation: holder.process.to_string(),
                    }),
                    hold: match lease {
                        ModelLease { released: true, .. } => Hold::Released,
                        ModelLease { age, .. } if *age > DURATION => Hold::Expired,
                        _ => Hold::Fresh,
                    },
                    epoch: lease.epoch,
                    duration_seconds: Some(DURATION as i32),
                    designated: lease.designated.map(|process| process.to_string()),
                }),
            },
            clients: None,
            disagreed_for: Duration::ZERO,
            last_error: None,
            failover: RULES,
            moving: self
                .status
                .moving
                .clone()
                .map(|plan| Moving { plan, phase_for: Duration::from_secs(u64::from(self.memory.phase)) }),
            last_move: self.status.last_move.map(|(kind, outcome, failures, round)| PastMove {
                kind,
                outcome,
                failures,
                ago: ago(round),
            }),
            last_failover: self
                .status
                .last_failover
                .map(|(failures, round)| PastFailover { ago: ago(round), failures }),
            unserved_for: Duration::from_secs(u64::from(self.memory.unserved)),
            routed: None,
            failed_template: self.status.failed_template.map(|template| template.to_string()),
        };
        let now = disagreement(&seen);
        let looks = match (&self.memory.disagreement, &now) {
            (Some((before, looks)), Some(now)) if before == now => looks + 1,
            _ => 0,
        };
        self.memory.disagreement = now.map(|now| (now, looks));
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

    /// The API server takes a deletion; where a kubelet works, the pod is gone with it.
    pub(super) fn delete(&mut self, index: usize) {
        let Some(member) = &mut self.members[index] else { return };
        if self.places[index].kubelet_dead {
            member.terminating.get_or_insert(0);
            member.version += 1;
        } else {
            self.end(index);
        }
    }

    /// The kubelet is there again, and ends what is to end.
    pub(super) fn revive(&mut self, index: usize) {
        self.places[index].kubelet_dead = false;
        if self.members[index].as_ref().is_some_and(|member| member.terminating.is_some()) {
            self.end(index);
        }
    }

    fn end(&mut self, index: usize) {
        let Some(member) = self.members[index].take() else { return };
        // SIGTERM: the holder releases, blocked or not. A dead process does not.
        if let Some(lease) = &mut self.lease
            && lease.holder.is_some_and(|holder| holder.is(index, &member))
            && member.alive
        {
            (lease.released, lease.released_for) = (true, None);
        }
    }

    pub(super) fn reapply(&mut self) {
        (self.applied, self.lease) = (None, None);
        (self.status, self.memory) = (Status::default(), Memory::default());
        for member in self.members.iter_mut().flatten() {
            member.orphan = true;
        }
    }

    fn delete_where(&mut self, is_it: impl Fn(&Member) -> bool) {
        if let Some(index) = self.members.iter().position(|member| member.as_ref().is_some_and(&is_it)) {
            self.delete(index);
        }
    }

    pub(super) fn act(&mut self, action: &Action) {
        match action {
            Action::Apply(_) => self.applied = Some(self.template),
            Action::CreateLease { epoch, .. } => {
                // A create fails if the Lease is there by now.
                self.lease.get_or_insert(ModelLease {
                    holder: None,
                    released: false,
                    released_for: None,
                    designated: None,
                    epoch: *epoch,
                    age: 0,
                    held: 0,
                });
            }
            Action::AdoptLease | Action::Remove { .. } => {}
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
            Action::DeletePod { pod, .. } => self.delete_where(|m| {
                m.uid.to_string() == pod.uid && m.version.to_string() == pod.resource_version
            }),
            Action::Fence { uid, .. } => self.delete_where(|m| m.uid.to_string() == *uid),
            Action::Designate { successor, .. } => {
                if let Some(lease) = &mut self.lease {
                    lease.designated = successor.as_ref().and_then(|id| id.parse().ok());
                }
            }
        }
    }

    /// The status is written, if it is still as it was when that was decided.
    pub(super) fn write(&mut self, version: u32, step: &Step) {
        if self.status.version != version || *step == Step::Keep {
            return;
        }
        let status = &mut self.status;
        status.version += 1;
        self.memory.phase = 0;
        match step {
            Step::Keep => {}
            Step::Begin(plan) | Step::Advance(plan) => status.moving = Some(plan.clone()),
            Step::End { outcome, .. } => {
                let Some(plan) = status.moving.take() else { return };
                let abandoned = *outcome == Outcome::Abandoned && plan.attempt == 1;
                let count = |before: i32| match outcome {
                    Outcome::Moved => 0,
                    Outcome::Abandoned if abandoned => before,
                    _ => before + 1,
                };
                let before = status.last_move.map_or(0, |(_, _, failures, _)| failures);
                status.last_move = Some((plan.kind, *outcome, count(before), self.rounds));
                let counts = matches!(plan.kind, MoveKind::Blocked | MoveKind::NotReady);
                let parties = [&plan.from.uid, &plan.to.uid];
                if plan.kind == MoveKind::Roll
                    && *outcome == Outcome::NotServing
                    && self.members.iter().flatten().any(|member| {
                        member.template == self.template && parties.contains(&&member.uid.to_string())
                    })
                {
                    status.failed_template = Some(self.template);
                }
                if counts && !abandoned {
                    let before = status.last_failover.map_or(0, |(failures, _)| failures);
                    status.last_failover = Some((count(before), self.rounds));
                }
            }
        }
    }

    pub(super) fn labelled(&self) -> usize {
        self.members.iter().flatten().filter(|member| member.labelled).count()
    }

    pub(super) fn alive(&self) -> usize {
        self.members.iter().flatten().filter(|member| member.alive).count()
    }
}
