//! What an elector does next, and the bodies of its writes.

use super::{Action, Attempt, Elector, InFlight, Request, RequestKind};
use crate::{
    claim::{Situation, Waits, required_wait},
    observe::View,
    record::{HIGHEST_EPOCH, LeaseRecord, Release, fresh_renew_time, new_lease},
    time::{Instant, Moment},
};
use std::time::Duration;

/// The next step.
#[derive(Debug)]
pub(super) enum Step {
    /// A resignation is carried out.
    Over,
    /// Send this when the time has come.
    At(Instant, What),
}

/// A request in the elector's own terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Read,
    Renew,
    Claim,
    /// Mark the own lease released.
    Release,
    /// Mark the lease of an earlier incarnation of this pod released.
    ReleasePredecessor,
}

impl Elector {
    pub(super) fn plan(&self, now: Instant) -> Step {
        let ready = self.not_before;
        if let Some(resigning) = &self.resigning {
            return self.plan_resignation(ready, resigning.successor.is_some());
        }
        if self.reread || matches!(self.observer.view(), View::Unknown) {
            return Step::At(ready, What::Read);
        }
        match &self.tenure {
            Some(tenure) => self.plan_holder(now, ready, tenure.permit),
            None => self.plan_candidate(now, ready),
        }
    }

    fn plan_holder(&self, now: Instant, ready: Instant, permit: Option<Instant>) -> Step {
        if !self.observer.vacant() {
            let due = self.last_write.saturating_add(self.config.timings.retry_period());
            return Step::At(if self.write_now { ready } else { ready.max(due) }, What::Renew);
        }
        // While the permit stands nobody else can have claimed it. Afterwards only who saw everything may, and waits
        // as long as everybody who could have.
        if permit.is_some_and(|until| until > now) {
            return Step::At(ready, What::Claim);
        }
        let wait = required_wait(
            &self.config.identity.incarnation,
            Situation::Vacant { as_member: true },
            &self.waits(),
        );
        self.claim_or_poll(ready, Some(wait))
    }

    fn plan_candidate(&self, now: Instant, ready: Instant) -> Step {
        let me = &self.config.identity;
        let situation = match self.observer.held() {
            Some(record) => {
                let predecessor = self.predecessor_gone
                    && !me.pod_uid.is_empty()
                    && record.pod_uid == me.pod_uid
                    && !record.incarnation.is_empty()
                    && record.incarnation != me.incarnation;
                if predecessor && record.release.is_none() {
                    return Step::At(ready, What::ReleasePredecessor);
                }
                Situation::Held(record)
            }
            None => Situation::Vacant { as_member: self.observer.was_member(&me.incarnation) },
        };
        let willing = self.may_claim && (self.alone || now >= self.reluctant_until);
        let wait = (willing && self.next_epoch() <= HIGHEST_EPOCH)
            .then(|| required_wait(&me.incarnation, situation, &self.waits()));
        self.claim_or_poll(ready, wait)
    }

    /// Claims once the situation was seen unchanged for `wait`, polls until then; `None`: only polls.
    fn claim_or_poll(&self, ready: Instant, wait: Option<Duration>) -> Step {
        let unchanged = self.observer.unchanged();
        if wait.is_some_and(|wait| unchanged >= wait) {
            return Step::At(ready, What::Claim);
        }
        let mut pause = self.config.timings.retry_period();
        if let Some(wait) = wait {
            pause = pause.min(wait.saturating_sub(unchanged));
        }
        let due = self.observer.last_contact().map_or(ready, |contact| contact.saturating_add(pause));
        Step::At(ready.max(due), What::Read)
    }

    fn plan_resignation(&self, ready: Instant, planned: bool) -> Step {
        // With a tenure the record is ours: reading another one would have ended it.
        let ours = self.tenure.as_ref().and(self.observer.held());
        let Some(record) = ours else {
            // Nothing to release, unless a write whose outcome is unknown made it ours.
            return if self.unsettled { Step::At(ready, What::Read) } else { Step::Over };
        };
        if self.reread {
            return Step::At(ready, What::Read);
        }
        if planned && self.observer.unchanged() >= self.observer.duration() {
            // Nobody took it, marked or not: the successor is gone, so it is taken back in the same epoch.
            return Step::At(ready, What::Renew);
        }
        match &record.release {
            None => Step::At(ready, What::Release),
            // The successor that it was released for did not come; nobody else is to wait for it.
            Some(Release::For(_)) if !planned => Step::At(ready, What::Release),
            Some(_) if planned => self.claim_or_poll(ready, None),
            Some(_) => Step::Over,
        }
    }

    fn waits(&self) -> Waits {
        Waits {
            record: self.observer.duration(),
            longest: self.observer.longest(),
            empty_promotion_after: self.config.empty_promotion_after,
        }
    }

    fn next_epoch(&self) -> u64 {
        let found = self.observer.object().map_or(0, |object| object.record.epoch);
        found.max(self.observer.highest_epoch).max(self.config.epoch_floor) + 1
    }

    pub(super) fn send(&mut self, now: Moment, what: What) {
        let kind = self.request(now, what);
        let id = self.next_id;
        self.next_id += 1;
        self.last_sent = now.at;
        // Conflicts are retried at once, but a stranger who writes without pause must not set the pace.
        self.not_before = now.at.saturating_add(self.config.timings.retry_period() / 100);
        self.in_flight =
            Some(InFlight { id, write: what != What::Read, generation: self.observer.generation });
        self.out.push(Action::Send(Request { id, kind }));
    }

    fn request(&mut self, now: Moment, what: What) -> RequestKind {
        let observed = self.observer.object();
        let old = observed.map(|object| &object.record);
        let mut record = old.cloned().unwrap_or_default();
        match what {
            What::Read => return RequestKind::Read,
            What::ReleasePredecessor => {
                record.release = Some(Release::Anyone);
                record.designated.clear();
            }
            What::Release => {
                record.designated.clear();
                let successor = self.resigning.as_ref().and_then(|resigning| resigning.successor.clone());
                record.release = Some(successor.map_or(Release::Anyone, Release::For));
                // The mark names it, and a stranger may have removed it.
                record.incarnation.clone_from(&self.config.identity.incarnation);
            }
            What::Renew | What::Claim => {
                // A renewal sent by a process that took its resignation back ends the resignation.
                self.resigning = None;
                let epoch = if what == What::Claim { self.next_epoch() } else { record.epoch };
                let renewed = fresh_renew_time(now.wall, self.last_renew_time, &record.renew_time);
                let mut in_sync = self.in_sync.clone();
                let mut acquired = record.acquire_time.clone();
                if what == What::Claim {
                    acquired = renewed.to_string();
                    if self.tenure.is_none() {
                        in_sync.clone_from(&record.in_sync);
                        in_sync.remove(&self.config.identity.incarnation);
                    }
                }
                let me = &self.config.identity;
                let previous_read_lease_ttl = record.read_lease_ttl;
                // A request to a holder that is one no more.
                let designated = if what == What::Claim { String::new() } else { record.designated };
                record = LeaseRecord {
                    holder: me.address.clone(),
                    epoch,
                    duration: Some(self.config.timings.lease_duration()),
                    renew_time: renewed.to_string(),
                    acquire_time: acquired,
                    pod_name: me.pod_name.clone(),
                    pod_uid: me.pod_uid.clone(),
                    incarnation: me.incarnation.clone(),
                    dead: record.dead.intersection(&in_sync).cloned().collect(),
                    in_sync,
                    read_lease_ttl: self.config.read_lease_ttl,
                    release: None,
                    designated,
                };
                self.last_renew_time = renewed;
                self.last_write = now.at;
                self.write_now = false;
                if self.attempts.len() == super::REMEMBERED_WRITES {
                    self.attempts.pop_front();
                }
                self.attempts.push_back(Attempt {
                    renew_time: record.renew_time.clone(),
                    epoch,
                    stamp: now.at,
                    previous_read_lease_ttl,
                });
            }
        }
        match observed {
            Some(object) => RequestKind::Replace(object.replaced_by(&record)),
            None => RequestKind::Create(new_lease(&self.config.namespace, &self.config.lease_name, &record)),
        }
    }
}
