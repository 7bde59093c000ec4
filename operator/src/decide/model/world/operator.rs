//! What the operator sees of the world, and what its actions and its writes of the status do to it.

use super::{DURATION, Member, ModelLease, World};
use crate::{
    build::Kind,
    decide::{
        Action, FailoverRules, Health, Hold, Holder, LABEL_GRACE, Lease, LeaseState, MoveKind, Moving, Node,
        ObjectState, Observed, Outcome, PastFailover, PastMove, PodRef, Presence, Says, Step, disagreement,
        tests::pod,
    },
};
use std::time::Duration;

/// Rounds are seconds; short, so that moves begin in the steps of a case.
const RULES: FailoverRules = FailoverRules {
    blocked_after: Duration::from_secs(2),
    cooldown: Duration::from_secs(10),
    not_ready_after: Duration::from_secs(5),
};

impl World {
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

    pub(in super::super) fn observe(&mut self) -> Observed {
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
                contest: None,
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

    fn delete_where(&mut self, is_it: impl Fn(&Member) -> bool) {
        if let Some(index) = self.members.iter().position(|member| member.as_ref().is_some_and(&is_it)) {
            self.delete(index);
        }
    }

    pub(in super::super) fn act(&mut self, action: &Action) {
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
    pub(in super::super) fn write(&mut self, version: u32, step: &Step) {
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
}
