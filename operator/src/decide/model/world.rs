//! The world: pods, a Lease, labels, nodes, and what the operator has written down and remembers.

mod operator;

use crate::decide::{Disagreement, MoveKind, Outcome, Plan};

/// Short, so that stale actions of the operator meet new holders.
pub(super) const DURATION: u32 = 1;

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

    pub(super) fn labelled(&self) -> usize {
        self.members.iter().flatten().filter(|member| member.labelled).count()
    }

    pub(super) fn alive(&self) -> usize {
        self.members.iter().flatten().filter(|member| member.alive).count()
    }
}
