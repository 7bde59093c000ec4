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
}

#[derive(Clone, Debug)]
pub(super) struct ModelLease {
    pub(super) holder: Option<(usize, u32)>,
    pub(super) released: bool,
    /// Uid of the process for which it is released.
    pub(super) released_for: Option<u32>,
    /// Uid of the process that the holder is asked to release for.
    pub(super) designated: Option<u32>,
    pub(super) epoch: i64,
    /// Rounds since the last renewal.
    pub(super) age: u32,
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
    pub(super) leaving: Vec<bool>,
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

impl World {
    pub(super) fn new(replicas: usize) -> World {
        World {
            members: vec![None; replicas],
            leaving: vec![false; replicas],
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
                version: 1,
                template,
                labelled: false,
                alive,
                blocked: false,
                idle: 0,
                unready: 0,
                orphan: false,
            });
            self.next_uid += 1;
        }
    }

    /// One second: the holder renews, or releases for whom it is asked to, or a standby claims, as the lease crate does
    /// it.
    pub(super) fn round(&mut self) {
        self.rounds += 1;
        let running: Vec<(usize, u32)> = self
            .members
            .iter()
            .enumerate()
            .filter_map(|(index, member)| member.as_ref().filter(|m| m.alive).map(|m| (index, m.uid)))
            .collect();
        if let Some(lease) = &mut self.lease {
            lease.age += 1;
            let holder_runs = lease.holder.is_some_and(|holder| running.contains(&holder)) && !lease.released;
            let named = running.iter().find(|(_, uid)| Some(*uid) == lease.released_for);
            let run_out = lease.holder.is_none() || lease.age > DURATION;
            let claimer = match lease.released_for {
                Some(_) if !run_out => named,
                _ if lease.released || run_out => running.first(),
                _ => None,
            };
            if holder_runs {
                lease.age = 0;
                let myself = lease.holder.map(|(_, uid)| uid);
                let successor = lease.designated.take_if(|uid| Some(*uid) != myself);
                (lease.released, lease.released_for) = (successor.is_some(), successor);
            } else if let Some(&claimer) = claimer {
                *lease = ModelLease {
                    holder: Some(claimer),
                    released: false,
                    released_for: None,
                    designated: None,
                    epoch: lease.epoch + 1,
                    age: 0,
                };
                self.take_over(claimer);
            }
        }
        let holder = self.lease.as_ref().and_then(|lease| lease.holder);
        for (index, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { continue };
            member.idle = if member.alive { 0 } else { member.idle + 1 };
            let serves =
                holder == Some((index, member.uid)) && member.alive && !member.blocked && member.labelled;
            member.unready = if serves { 0 } else { member.unready + 1 };
        }
        self.look();
    }

    /// What the operator's clock and calls tell it in a round.
    fn look(&mut self) {
        let active = self
            .lease
            .as_ref()
            .and_then(|lease| lease.holder)
            .and_then(|(index, uid)| self.members[index].as_ref().filter(|member| member.uid == uid));
        let fails = self.cut_off || active.is_some_and(|active| active.blocked || !active.alive);
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
    fn take_over(&mut self, (claimer, uid): (usize, u32)) {
        let lost = std::mem::take(&mut self.lose_label);
        for (index, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member else { continue };
            member.version += 1;
            member.labelled = index == claimer && member.uid == uid && !lost;
        }
    }

    fn pods(&self) -> Vec<crate::decide::Pod> {
        let holder = self.lease.as_ref().and_then(|lease| lease.holder);
        let pods = self.members.iter().enumerate().filter_map(|(index, member)| {
            let member = member.as_ref().filter(|member| !member.orphan)?;
            let leads = holder == Some((index, member.uid)) && member.alive;
            let mut seen = pod(index as i32);
            seen.id.uid = member.uid.to_string();
            seen.id.resource_version = member.version.to_string();
            seen.incarnation = Some(member.uid.to_string()).filter(|_| !self.cut_off);
            seen.labelled = member.labelled;
            seen.template_hash = Some(member.template.to_string());
            seen.running = member.alive;
            seen.ready = leads && member.labelled && !member.blocked;
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
            let leaving = self.leaving[index].then(|| "it is cordoned".to_owned());
            seen.node = Some(Node { name: index.to_string(), ready: true, leaving });
            let state = if leads { Says::Leader } else { Says::Standby };
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
                    holder: lease.holder.map(|(index, uid)| Holder {
                        pod: format!("m-{index}"),
                        pod_uid: uid.to_string(),
                        address: String::new(),
                        incarnation: uid.to_string(),
                    }),
                    hold: match lease {
                        ModelLease { released: true, .. } => Hold::Released,
                        ModelLease { age, .. } if *age > DURATION => Hold::Expired,
                        _ => Hold::Fresh,
                    },
                    epoch: lease.epoch,
                    duration_seconds: Some(DURATION as i32),
                    designated: lease.designated.map(|uid| uid.to_string()),
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

    pub(super) fn delete(&mut self, index: usize) {
        let Some(member) = self.members[index].take() else { return };
        // SIGTERM: the holder releases, blocked or not. A dead process does not.
        if let Some(lease) = &mut self.lease
            && lease.holder == Some((index, member.uid))
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
                let count = |before: i32| match outcome {
                    Outcome::Moved => 0,
                    Outcome::Abandoned => before,
                    Outcome::NotServing | Outcome::NotReleased => before + 1,
                };
                let before = status.last_move.map_or(0, |(_, _, failures, _)| failures);
                status.last_move = Some((plan.kind, *outcome, count(before), self.rounds));
                let counts = matches!(plan.kind, MoveKind::Blocked | MoveKind::NotReady);
                if counts && *outcome != Outcome::Abandoned {
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
