//! The simulated world: candidates, network, clocks, faults, and the checks.

mod faults;
mod server;

use mooncake_lease::{
    Action, Answer, Command, Elector, ElectorConfig, Event, Identity, Input, Instant, Moment, RequestKind,
    Timings, WallTime, WatchInput,
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use server::{Change, Server};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    rc::Rc,
    time::Duration,
};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;

pub(crate) struct Profile {
    pub candidates: usize,
    pub mixed: bool,
    pub members: bool,
}

/// A process slot: it keeps its address and timings, its processes come and go.
pub(crate) struct Slot {
    elector: Option<Elector>,
    /// Grows with every process.
    process: u64,
    incarnation: String,
    pod_uid: String,
    timings: Timings,
    rate: f64,
    offset: u64,
    paused_until: u64,
    cut_until: u64,
    /// (end on the local clock, epoch)
    permit: Option<(Instant, u64)>,
    under_way: Option<u64>,
    /// Next history entry that its watch delivers.
    watched: usize,
    leaving: bool,
    /// The last designation that its process was told of, and from where on its watch had yet to see what was written.
    designated: (String, usize),
    /// Only the latest wake-up counts.
    wake: u64,
}

#[allow(clippy::large_enum_variant, reason = "a test moves few of them")]
enum What {
    Arrive { slot: usize, process: u64, id: u64, kind: Rc<RequestKind>, answered: bool },
    Reply { slot: usize, process: u64, id: u64, answer: Answer },
    Timeout { slot: usize, process: u64, id: u64 },
    Wake { slot: usize, process: u64, wake: u64 },
    Watch { slot: usize, process: u64 },
    Start { slot: usize, same_pod: bool },
    Command { slot: usize, process: u64, command: Command },
    Fault,
    Recreate,
}

pub(crate) struct World {
    now: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, What>,
    server: Server,
    slots: Vec<Slot>,
    rng: StdRng,
    profile: Profile,
    calm: bool,
    away_until: u64,
    epochs: BTreeMap<u64, String>,
    highest: u64,
    incarnations: u64,
    permits: u64,
}

const TIMINGS: [(u64, u64, u64); 4] =
    [(5000, 3000, 1000), (2000, 1200, 500), (1000, 600, 250), (10_000, 7000, 2000)];

impl World {
    pub(crate) fn new(seed: u64, profile: Profile) -> World {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut world = World {
            now: SECOND,
            sequence: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            server: Server::default(),
            slots: Vec::new(),
            profile,
            calm: false,
            away_until: 0,
            epochs: BTreeMap::new(),
            highest: 0,
            incarnations: 0,
            permits: 0,
            rng: StdRng::seed_from_u64(rng.random()),
        };
        for slot in 0..world.profile.candidates {
            let kind = if world.profile.mixed { rng.random_range(0..TIMINGS.len()) } else { 0 };
            let (duration, renew, retry) = TIMINGS[kind];
            let ms = Duration::from_millis;
            world.slots.push(Slot {
                elector: None,
                process: 0,
                incarnation: String::new(),
                pod_uid: format!("pod-{slot}-0"),
                timings: Timings::new(ms(duration), ms(renew), ms(retry)).unwrap(),
                rate: rng.random_range(0.92..1.08),
                offset: rng.random_range(0..1_000_000) * SECOND,
                paused_until: 0,
                cut_until: 0,
                permit: None,
                under_way: None,
                watched: 0,
                leaving: false,
                designated: (String::new(), 0),
                wake: 0,
            });
            let at = rng.random_range(0..2 * SECOND);
            world.at(at, What::Start { slot, same_pod: true });
        }
        world
    }

    fn at(&mut self, delay: u64, what: What) {
        self.sequence += 1;
        self.queue.push(Reverse((self.now + delay, self.sequence)));
        self.events.insert(self.sequence, what);
    }

    /// Runs with faults for so many seconds.
    pub(crate) fn chaos(&mut self, seconds: u64) {
        self.at(0, What::Fault);
        self.run_until(self.now + seconds * SECOND);
    }

    /// Runs without faults and checks that one leads, all the time at the end.
    pub(crate) fn calm(&mut self, seconds: u64) {
        self.calm = true;
        self.away_until = 0;
        for slot in 0..self.slots.len() {
            self.slots[slot].cut_until = 0;
            self.slots[slot].paused_until = 0;
            self.feed(slot, Input::Command(Command::MayClaim(true)));
            self.feed(slot, Input::Command(Command::Alone(true)));
            if self.slots[slot].elector.is_none() {
                self.at(0, What::Start { slot, same_pod: false });
            }
        }
        self.run_until(self.now + seconds * SECOND);
        for _ in 0..100 {
            self.run_until(self.now + SECOND / 10);
            let holders = (0..self.slots.len()).filter(|&slot| self.end_of(slot) > self.now).count();
            assert_eq!(holders, 1, "one leads when all is well, at {} ms", self.now / MS);
        }
        assert!(self.permits > 0);
    }

    fn run_until(&mut self, end: u64) {
        while let Some(&Reverse((at, sequence))) = self.queue.peek() {
            if at > end {
                break;
            }
            self.queue.pop();
            self.now = self.now.max(at);
            let what = self.events.remove(&sequence).unwrap();
            self.step(what);
        }
        self.now = end;
    }

    fn current(&self, slot: usize, process: u64) -> bool {
        self.slots[slot].process == process && self.slots[slot].elector.is_some()
    }

    /// Postpones what happens to a paused process; true if it was.
    fn postponed(&mut self, slot: usize, what: What) -> Option<What> {
        let until = self.slots[slot].paused_until;
        if until > self.now {
            self.at(until - self.now, what);
            return None;
        }
        Some(what)
    }

    fn step(&mut self, what: What) {
        match what {
            What::Fault => self.fault(),
            What::Recreate => self.recreate(),
            What::Start { slot, same_pod } => self.start(slot, same_pod),
            What::Arrive { slot, process, id, kind, answered } => {
                let cut = self.away_until > self.now || self.slots[slot].cut_until > self.now;
                if cut {
                    return;
                }
                let answer = self.server.apply(&kind);
                self.wake_watches();
                if answered {
                    let delay = self.latency();
                    self.at(delay, What::Reply { slot, process, id, answer });
                }
            }
            What::Reply { slot, process, .. }
            | What::Timeout { slot, process, .. }
            | What::Wake { slot, process, .. }
            | What::Watch { slot, process }
            | What::Command { slot, process, .. }
                if !self.current(slot, process) => {}
            What::Reply { slot, .. }
            | What::Timeout { slot, .. }
            | What::Wake { slot, .. }
            | What::Watch { slot, .. }
            | What::Command { slot, .. } => {
                if let Some(what) = self.postponed(slot, what) {
                    self.hand_over(slot, what);
                }
            }
        }
    }

    fn hand_over(&mut self, slot: usize, what: What) {
        let input = match what {
            What::Reply { id, answer, .. } if self.slots[slot].under_way == Some(id) => {
                self.slots[slot].under_way = None;
                Input::Answer { id, answer }
            }
            What::Timeout { id, .. } if self.slots[slot].under_way == Some(id) => {
                self.slots[slot].under_way = None;
                Input::Answer { id, answer: Answer::Unknown }
            }
            What::Wake { wake, .. } if wake == self.slots[slot].wake => Input::Tick,
            What::Command { command, .. } => Input::Command(command),
            What::Watch { .. } => {
                while self.slots[slot].cut_until <= self.now
                    && self.away_until <= self.now
                    && let Some(change) = self.server.history.get(self.slots[slot].watched).cloned()
                {
                    self.slots[slot].watched += 1;
                    let event = match change {
                        Change::Put(raw) => WatchInput::Object(Box::new(server::parse(&raw))),
                        Change::Deleted { uid, version } => {
                            WatchInput::Deleted { uid, resource_version: version.to_string() }
                        }
                    };
                    self.feed(slot, Input::Watch(event));
                }
                return;
            }
            _ => return,
        };
        self.feed(slot, input);
    }

    fn wake_watches(&mut self) {
        for slot in 0..self.slots.len() {
            let (process, delay) = (self.slots[slot].process, self.latency());
            self.at(delay, What::Watch { slot, process });
        }
    }

    fn latency(&mut self) -> u64 {
        let odd = !self.calm && self.rng.random_bool(0.03);
        if odd { self.rng.random_range(0..8 * SECOND) } else { self.rng.random_range(MS / 2..30 * MS) }
    }

    fn local(&self, slot: usize) -> Instant {
        let slot = &self.slots[slot];
        Instant::from_nanos(slot.offset + (self.now as f64 * slot.rate) as u64)
    }

    /// The true time at which a slot's permit ends; 0 without one.
    fn end_of(&self, slot: usize) -> u64 {
        let slot = &self.slots[slot];
        let Some((until, _)) = slot.permit else { return 0 };
        (until.as_nanos().saturating_sub(slot.offset) as f64 / slot.rate) as u64
    }

    fn start(&mut self, index: usize, same_pod: bool) {
        if self.slots[index].elector.is_some() {
            return;
        }
        self.incarnations += 1;
        let longest = self.slots.iter().map(|slot| slot.timings.lease_duration()).max().unwrap();
        let slot = &mut self.slots[index];
        slot.process += 1;
        slot.incarnation = format!("i{}", self.incarnations);
        if !same_pod {
            slot.pod_uid = format!("pod-{index}-{}", self.incarnations);
        }
        slot.leaving = false;
        slot.designated.0.clear();
        slot.under_way = None;
        slot.watched = self.server.history.len();
        slot.elector = Some(Elector::new(ElectorConfig {
            identity: Identity {
                address: format!("10.0.0.{index}:50051"),
                pod_name: format!("m-{index}"),
                pod_uid: slot.pod_uid.clone(),
                incarnation: slot.incarnation.clone(),
            },
            namespace: "ns".into(),
            lease_name: "m".into(),
            timings: slot.timings,
            read_lease_ttl: Some(Duration::from_secs(1)),
            empty_promotion_after: None,
            epoch_floor: self.highest,
            duration_floor: longest,
            may_claim: true,
        }));
        self.feed(index, Input::Tick);
        self.feed(index, Input::Command(Command::PredecessorGone));
    }

    pub(crate) fn feed(&mut self, slot: usize, input: Input) {
        let at = self.local(slot);
        let wall = WallTime((self.now / 1000) as i64);
        let Some(elector) = &mut self.slots[slot].elector else { return };
        let actions = elector.handle(Moment { at, wall }, input);
        let wake = elector.wake_at();
        for action in actions {
            match action {
                Action::Send(request) => self.send(slot, request.id, request.kind),
                Action::Emit(event) => self.event(slot, &event),
            }
        }
        if let Some(wake) = wake
            && self.slots[slot].elector.is_some()
        {
            let delay = wake.saturating_since(at).as_nanos() as f64 / self.slots[slot].rate;
            self.slots[slot].wake += 1;
            let (process, wake) = (self.slots[slot].process, self.slots[slot].wake);
            self.at(delay as u64 + 1000, What::Wake { slot, process, wake });
        }
    }

    fn send(&mut self, slot: usize, id: u64, kind: RequestKind) {
        let process = self.slots[slot].process;
        let kind = Rc::new(kind);
        self.slots[slot].under_way = Some(id);
        let deadline = self.slots[slot].timings.retry_period().as_nanos() as u64;
        self.at(deadline, What::Timeout { slot, process, id });
        let fate = if self.calm { 100 } else { self.rng.random_range(0..100) };
        if fate < 4 {
            return;
        }
        let delay = self.latency();
        let answered = fate >= 8;
        self.at(delay, What::Arrive { slot, process, id, kind: kind.clone(), answered });
        if (8..12).contains(&fate) {
            let delay = self.latency();
            self.at(delay, What::Arrive { slot, process, id, kind, answered: true });
        }
    }

    fn event(&mut self, index: usize, event: &Event) {
        match *event {
            Event::Permit { epoch, until } => {
                self.permits += 1;
                let incarnation = self.slots[index].incarnation.clone();
                for other in (0..self.slots.len()).filter(|&other| other != index) {
                    assert!(
                        self.end_of(other) <= self.now,
                        "two permits at {} ms: {index} in epoch {epoch}, {other} with {:?}",
                        self.now / MS,
                        self.slots[other].permit
                    );
                }
                let owner = self.epochs.entry(epoch).or_insert_with(|| incarnation.clone());
                assert_eq!(*owner, incarnation, "epoch {epoch} belongs to two processes");
                assert!(epoch >= self.highest, "permit of epoch {epoch} after epoch {}", self.highest);
                self.highest = epoch;
                self.slots[index].permit = Some((until, epoch));
            }
            Event::PermitEnded => self.slots[index].permit = None,
            Event::Lost { .. } | Event::Released => {
                let again = self.rng.random_range(0..200 * MS);
                let same_pod = !self.slots[index].leaving;
                self.stop(index);
                self.at(again, What::Start { slot: index, same_pod });
            }
            Event::Designated { ref successor } => {
                let incarnation = &self.slots[index].incarnation;
                assert!(
                    self.end_of(index) > self.now,
                    "only a holder under its permit is asked to hand over"
                );
                assert!(successor != incarnation, "never to itself");
                let (before, since) = &self.slots[index].designated;
                assert!(
                    before != successor || self.server.bore_another(*since, successor),
                    "told of {successor} twice, and the record bore nothing else in between"
                );
                self.slots[index].designated = (successor.clone(), self.slots[index].watched);
                // It lets its calls end first.
                let (process, delay) = (self.slots[index].process, self.rng.random_range(0..SECOND));
                let command = Command::Resign { successor: Some(successor.clone()) };
                self.at(delay, What::Command { slot: index, process, command });
            }
            Event::Elected { .. } | Event::Leader(_) => {}
        }
    }

    fn stop(&mut self, slot: usize) {
        self.slots[slot].elector = None;
        self.slots[slot].permit = None;
    }
}
