//! The state machine of one candidate.
//!
//! It has at most one request under way. Whatever it learns (answers, watch events) goes through the observer, and only
//! what was *found in the record* counts: a write that was answered, one that timed out and was applied after all, and
//! one that was applied twice are told apart by nothing but the renew time that the record shows.

mod messages;
mod plan;

pub use messages::{
    Action, Answer, Command, ElectorConfig, Event, Identity, Input, Leader, LossReason, Request, RequestKind,
    WatchInput,
};

use crate::{
    observe::{Observer, Source},
    record::{LeaseObject, LeaseRecord},
    time::{Instant, Moment, WallTime},
};
use plan::Step;
use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

/// Writes that are remembered, so that one found in the record later earns its permit. Forgetting one only costs a
/// permit that a later write earns again.
const REMEMBERED_WRITES: usize = 64;

/// A write that was sent and may be found in the record.
#[derive(Debug)]
struct Attempt {
    renew_time: String,
    epoch: u64,
    /// Read before the request was sent: what the permit counts from.
    stamp: Instant,
    previous_read_lease_ttl: Option<Duration>,
}

/// A request under way.
#[derive(Debug)]
struct InFlight {
    id: u64,
    write: bool,
    generation: u64,
}

/// This process holds the lease, or did when it last looked.
#[derive(Debug)]
struct Tenure {
    epoch: u64,
    /// When the permit ends; `None` when it has ended or was never given.
    permit: Option<Instant>,
}

/// This process gives the lease up.
#[derive(Debug)]
struct Resigning {
    /// The successor's incarnation; `None`: for anyone, and for good.
    successor: Option<String>,
}

/// One candidate for one Lease.
///
/// Invariant: every permit it gives ends at (instant stamped before a write was sent, that write having been found in
/// the record) + renew deadline, and none is given after a resignation or a loss.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each with a name of its own")]
pub struct Elector {
    config: ElectorConfig,
    observer: Observer,
    tenure: Option<Tenure>,
    attempts: VecDeque<Attempt>,
    in_flight: Option<InFlight>,
    next_id: u64,
    /// No request before this, so that a failing API server is not hammered.
    not_before: Instant,
    last_sent: Instant,
    last_write: Instant,
    last_renew_time: WallTime,
    /// What is known may be out of date: read before anything else.
    reread: bool,
    /// The record needs a write before the next renewal is due.
    write_now: bool,
    /// A write whose outcome is not known.
    unsettled: bool,
    may_claim: bool,
    predecessor_gone: bool,
    reluctant_until: Instant,
    alone: bool,
    in_sync: BTreeSet<String>,
    resigning: Option<Resigning>,
    /// The last designation that was told of; empty once the record bears none, so that the same one can be asked for
    /// again.
    designated: String,
    over: bool,
    leader: Option<Leader>,
    out: Vec<Action>,
    wake: Option<Instant>,
}

impl Elector {
    /// A candidate that has seen nothing yet. Call [`Elector::handle`] with [`Input::Tick`] to start it.
    pub fn new(config: ElectorConfig) -> Elector {
        let longest = config.timings.lease_duration().max(config.duration_floor);
        // A poll per retry period, answered within another one, and some slack.
        let observer = Observer::new(longest, 3 * config.timings.retry_period());
        Elector {
            may_claim: config.may_claim,
            config,
            observer,
            tenure: None,
            attempts: VecDeque::new(),
            in_flight: None,
            next_id: 0,
            not_before: Instant::ZERO,
            last_sent: Instant::ZERO,
            last_write: Instant::ZERO,
            last_renew_time: WallTime::default(),
            reread: true,
            write_now: false,
            unsettled: false,
            predecessor_gone: false,
            reluctant_until: Instant::ZERO,
            alone: false,
            in_sync: BTreeSet::new(),
            resigning: None,
            designated: String::new(),
            over: false,
            leader: None,
            out: Vec::new(),
            wake: None,
        }
    }

    /// Takes one input in and returns what is to be done, in order. A request replaces the one under way.
    pub fn handle(&mut self, now: Moment, input: Input) -> Vec<Action> {
        if self.over {
            return Vec::new();
        }
        self.expire(now.at);
        match input {
            Input::Tick => {}
            Input::Answer { id, answer } => self.answered(now.at, id, answer),
            Input::Watch(event) => self.watched(now.at, event),
            Input::Command(command) => self.commanded(now.at, command),
        }
        self.report_leader();
        self.proceed(now);
        std::mem::take(&mut self.out)
    }

    /// When to call [`Elector::handle`] with [`Input::Tick`] if nothing else happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        self.wake
    }

    /// Whether it still takes part: false after a loss and after a resignation for anyone was carried out.
    pub fn is_over(&self) -> bool {
        self.over
    }

    fn emit(&mut self, event: Event) {
        self.out.push(Action::Emit(event));
    }

    fn expire(&mut self, now: Instant) {
        if let Some(tenure) = &mut self.tenure
            && tenure.permit.is_some_and(|until| until <= now)
        {
            tenure.permit = None;
            self.emit(Event::PermitEnded);
        }
    }

    fn end_permit(&mut self) {
        if self.tenure.as_mut().and_then(|tenure| tenure.permit.take()).is_some() {
            self.emit(Event::PermitEnded);
        }
    }

    fn lose(&mut self, reason: LossReason) {
        self.end_permit();
        self.tenure = None;
        self.in_flight = None;
        self.over = true;
        self.emit(Event::Lost { reason });
    }

    fn answered(&mut self, now: Instant, id: u64, answer: Answer) {
        let Some(request) = self.in_flight.take_if(|request| request.id == id) else {
            return;
        };
        let source = Source::Answer { generation: request.generation };
        let retry = self.config.timings.retry_period();
        match answer {
            Answer::Found(object) => {
                self.reread = false;
                self.unsettled = false;
                self.take(now, object, source);
            }
            Answer::Absent { resource_version } => {
                self.reread = false;
                self.unsettled = false;
                match self.observer.absence_read(now, &resource_version, source) {
                    Ok(true) => self.digest(now),
                    Ok(false) => {}
                    Err(()) => self.reread = true,
                }
            }
            Answer::Written(object) => {
                self.write_now = false;
                self.take(now, object, source);
            }
            // Somebody else wrote, or an earlier write of ours landed after all. Read and go on at once.
            Answer::Conflict | Answer::Missing => {
                self.reread = true;
                self.write_now |= request.write;
            }
            Answer::Unknown => {
                self.unsettled |= request.write;
                self.failed(request.write, retry);
            }
            Answer::Refused => self.failed(request.write, retry),
        }
    }

    fn failed(&mut self, write: bool, retry: Duration) {
        self.reread = true;
        self.write_now |= write;
        if !write {
            self.observer.unreadable();
        }
        self.not_before = self.last_sent.saturating_add(retry / 2);
    }

    fn watched(&mut self, now: Instant, event: WatchInput) {
        match event {
            WatchInput::Object(object) => {
                self.take(now, *object, Source::Watch);
            }
            WatchInput::Deleted { uid, resource_version } => {
                match self.observer.deletion_seen(now, &uid, &resource_version) {
                    Ok(true) => self.digest(now),
                    Ok(false) => {}
                    Err(()) => self.reread = true,
                }
            }
            WatchInput::Broken => {
                self.observer.watch_broken();
                self.reread = true;
            }
        }
    }

    /// Takes an object in.
    fn take(&mut self, now: Instant, object: LeaseObject, source: Source) {
        let seen_before = self.observer.highest_epoch;
        let (held, epoch) = (object.record.is_held(), object.record.epoch);
        match self.observer.object_seen(now, object, source) {
            Ok(true) => {}
            Ok(false) => return,
            Err(()) => {
                self.reread = true;
                return;
            }
        }
        if held && epoch < seen_before {
            self.lose(LossReason::EpochWentBack { seen: seen_before, found: epoch });
        } else {
            self.digest(now);
        }
    }

    /// Draws the conclusions from a state that was news.
    fn digest(&mut self, now: Instant) {
        let Some(record) = self.observer.held() else {
            self.vacancy_seen(now);
            return;
        };
        let me = &self.config.identity;
        let found = self
            .attempts
            .iter()
            .find(|attempt| attempt.renew_time == record.renew_time && attempt.epoch == record.epoch);
        let address_fits = record.holder == me.address || record.holder.is_empty();
        // A stranger may have removed the annotation that tells it is ours.
        let mine = address_fits
            && (record.incarnation == me.incarnation || (record.incarnation.is_empty() && found.is_some()));
        let epoch = record.epoch;
        let claimed = self.attempts.iter().any(|attempt| attempt.epoch == epoch);
        match &mut self.tenure {
            Some(tenure) if mine && epoch == tenure.epoch => {}
            Some(tenure) if mine && claimed => {
                // The Lease was away and is ours again; nobody was in between.
                tenure.epoch = epoch;
                self.out.push(Action::Emit(Event::Elected {
                    epoch,
                    kept: true,
                    previous_read_lease_ttl: None,
                }));
            }
            None if mine && claimed => {
                self.tenure = Some(Tenure { epoch, permit: None });
                self.in_sync.clone_from(&record.in_sync);
                let previous_read_lease_ttl = found.and_then(|attempt| attempt.previous_read_lease_ttl);
                if self.resigning.is_none() {
                    self.out.push(Action::Emit(Event::Elected {
                        epoch,
                        kept: false,
                        previous_read_lease_ttl,
                    }));
                }
            }
            Some(_) => {
                let reason = superseded_by(record);
                self.superseded(reason);
                return;
            }
            None if record.incarnation == me.incarnation => {
                let reason = superseded_by(record);
                self.lose(reason);
                return;
            }
            None => {
                // A claim of ours that lost to this one must not be recognized if a late create brings it back.
                self.attempts.retain(|attempt| attempt.epoch > epoch);
                return;
            }
        }
        let until = found.map(|attempt| attempt.stamp.saturating_add(self.config.timings.renew_deadline()));
        self.credit(now, until);
        self.heed_designation(now);
    }

    /// Tells of a designation that can be obeyed: to another process that may claim, while the permit stands.
    fn heed_designation(&mut self, now: Instant) {
        let standing = self.tenure.as_ref().and_then(|tenure| tenure.permit).is_some_and(|until| until > now);
        let Some(record) = self.observer.held().filter(|_| standing && self.resigning.is_none()) else {
            return;
        };
        let successor = &record.designated;
        if successor.is_empty() {
            // A release took it away, or whoever asked: what comes next is a new request.
            self.designated.clear();
            return;
        }
        let entitled = |set: &BTreeSet<String>| set.is_empty() || set.contains(successor);
        if *successor == self.config.identity.incarnation
            || *successor == self.designated
            || !entitled(&record.in_sync)
            || !entitled(&self.in_sync)
        {
            return;
        }
        self.designated.clone_from(successor);
        let successor = successor.clone();
        self.emit(Event::Designated { successor });
    }

    /// The record is ours: what is it worth?
    fn credit(&mut self, now: Instant, until: Option<Instant>) {
        let Some(record) = self.observer.held() else { return };
        let wrong = record.incarnation != self.config.identity.incarnation
            || record.holder != self.config.identity.address
            || record.duration != Some(self.config.timings.lease_duration())
            || record.in_sync != self.in_sync;
        let released = record.release.is_some();
        if self.resigning.is_some() {
            return;
        }
        if released {
            // Somebody holds this process for dead, or the mark is of a resignation that was taken back. Others may
            // claim at any moment, so only a write that finds it unclaimed lets it go on.
            self.write_now = true;
            self.end_permit();
            return;
        }
        self.write_now |= wrong;
        if let (Some(until), Some(tenure)) = (until, &mut self.tenure)
            && until > now
            && tenure.permit.is_none_or(|known| until > known)
        {
            tenure.permit = Some(until);
            let epoch = tenure.epoch;
            self.emit(Event::Permit { epoch, until });
        }
    }

    fn superseded(&mut self, reason: LossReason) {
        if self.resigning.as_ref().is_some_and(|resigning| resigning.successor.is_none()) {
            self.end_permit();
            self.finish_resignation();
        } else {
            self.lose(reason);
        }
    }

    fn finish_resignation(&mut self) {
        self.over = true;
        self.emit(Event::Released);
    }

    /// The Lease is gone or names nobody.
    fn vacancy_seen(&mut self, now: Instant) {
        let Some(tenure) = &self.tenure else { return };
        let standing = tenure.permit.is_some_and(|until| until > now);
        let (resigned, planned) = match &self.resigning {
            Some(resigning) => (resigning.successor.is_none(), resigning.successor.is_some()),
            None => (false, false),
        };
        if !standing && !resigned && (planned || !self.observer.witnessed()) {
            // Somebody may have held it in between: this memory cannot be trusted any more.
            self.lose(LossReason::LeaseVanished);
        }
    }

    fn commanded(&mut self, now: Instant, command: Command) {
        match command {
            Command::MayClaim(may) => self.may_claim = may,
            Command::PredecessorGone => self.predecessor_gone = true,
            Command::Reluctant { period } => self.reluctant_until = now.saturating_add(period),
            Command::Alone(alone) => self.alone = alone,
            Command::EpochFloor { epoch, duration } => {
                self.config.epoch_floor = self.config.epoch_floor.max(epoch);
                self.observer.at_least(duration);
            }
            Command::InSync(members) => {
                if self.in_sync != members {
                    self.in_sync = members;
                    self.write_now |= self.tenure.is_some();
                }
            }
            // There is nothing to hand over.
            Command::Resign { successor: Some(_) } if self.tenure.is_none() => {}
            Command::Resign { successor } => {
                self.end_permit();
                // A renewal under way is conditional on the same state as the release: only one of them is applied.
                if self.in_flight.take().is_some_and(|request| request.write) {
                    self.unsettled = true;
                }
                self.observer.restart();
                self.not_before = now;
                self.resigning = Some(Resigning { successor });
            }
        }
    }

    fn report_leader(&mut self) {
        let leader = self
            .observer
            .held()
            .filter(|record| record.release.is_none() && !record.holder.is_empty())
            .filter(|_| self.observer.unchanged() < self.observer.duration())
            .map(|record| Leader { address: record.holder.clone(), epoch: record.epoch });
        if leader != self.leader {
            self.leader.clone_from(&leader);
            self.emit(Event::Leader(leader));
        }
    }

    /// Sends the next request if it is due, and says when to look again.
    fn proceed(&mut self, now: Moment) {
        // Losing the right to stay (an unwitnessed deletion) is noticed when the permit ends, too.
        if !self.over && self.observer.vacant() {
            self.vacancy_seen(now.at);
        }
        self.wake = None;
        if self.over {
            return;
        }
        let permit_end = self.tenure.as_ref().and_then(|tenure| tenure.permit);
        let mut due = None;
        if self.in_flight.is_none() {
            match self.plan(now.at) {
                Step::Over => {
                    self.finish_resignation();
                    return;
                }
                Step::At(at, what) if at <= now.at => self.send(now, what),
                Step::At(at, _) => due = Some(at),
            }
        }
        self.wake = match (due, permit_end) {
            (Some(due), Some(end)) => Some(due.min(end)),
            (due, end) => due.or(end),
        };
    }
}

fn superseded_by(record: &LeaseRecord) -> LossReason {
    LossReason::Superseded {
        holder: record.holder.clone(),
        pod_name: record.pod_name.clone(),
        epoch: record.epoch,
    }
}
