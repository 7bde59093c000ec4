//! The rules one by one: two or three candidates, a network without delay, a clock moved by hand.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "world/server.rs"]
#[allow(dead_code, reason = "the watch history is for the simulation")]
mod server;

use mooncake_lease::{
    Action, Answer, Command, Elector, ElectorConfig, Event, Identity, Input, Instant, LossReason, Moment,
    Request, RequestKind, Timings, WallTime, WatchInput,
};
use server::Server;
use std::{collections::BTreeSet, time::Duration};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A candidate, and what became of its requests.
struct Node {
    elector: Elector,
    events: Vec<Event>,
    waiting: Option<Request>,
}

struct Bench {
    server: Server,
    now: Instant,
}

impl Bench {
    fn new() -> Bench {
        Bench { server: Server::default(), now: Instant::from_nanos(1_000_000_000) }
    }

    fn node(incarnation: &str, pod: &str) -> Node {
        let config = ElectorConfig {
            identity: Identity {
                address: format!("10.0.0.{pod}:50051"),
                pod_name: format!("m-{pod}"),
                pod_uid: format!("uid-of-{pod}"),
                incarnation: incarnation.into(),
            },
            namespace: "ns".into(),
            lease_name: "m".into(),
            timings: Timings::default(),
            read_lease_ttl: Some(ms(700)),
            empty_promotion_after: None,
            epoch_floor: 0,
            duration_floor: Duration::ZERO,
            may_claim: true,
        };
        Node { elector: Elector::new(config), events: Vec::new(), waiting: None }
    }

    /// Hands an input over, without carrying requests out.
    fn input(&mut self, node: &mut Node, input: Input) {
        let wall = WallTime(self.now.as_nanos() as i64 / 1000);
        for action in node.elector.handle(Moment { at: self.now, wall }, input) {
            match action {
                Action::Emit(event) => node.events.push(event),
                Action::Send(request) => node.waiting = Some(request),
            }
        }
    }

    /// Carries requests out until there is none.
    fn settle(&mut self, node: &mut Node) {
        while let Some(request) = node.waiting.take() {
            let answer = self.server.apply(&request.kind);
            self.input(node, Input::Answer { id: request.id, answer });
        }
    }

    fn give(&mut self, node: &mut Node, input: Input) {
        self.input(node, input);
        self.settle(node);
    }

    /// Lets time pass in steps of 10 ms, with every wake-up in time.
    fn pass(&mut self, nodes: &mut [&mut Node], time: Duration) {
        let end = self.now.saturating_add(time);
        while self.now < end {
            self.now = self.now.saturating_add(ms(10));
            for node in nodes.iter_mut() {
                if node.elector.wake_at().is_some_and(|at| at <= self.now) {
                    self.give(node, Input::Tick);
                }
            }
        }
    }

    /// A leader, which found no Lease, and how long it took.
    fn leader(&mut self) -> Node {
        let mut node = Bench::node("a", "1");
        self.give(&mut node, Input::Tick);
        self.pass(&mut [&mut node], ms(16_000));
        assert_eq!(node.permit().map(|(epoch, _)| epoch), Some(1));
        node
    }
}

impl Node {
    /// The permit as the process would know it.
    fn permit(&self) -> Option<(u64, Instant)> {
        let last = self.events.iter().rev().find(|e| matches!(e, Event::Permit { .. } | Event::PermitEnded));
        match last {
            Some(&Event::Permit { epoch, until }) => Some((epoch, until)),
            _ => None,
        }
    }

    fn lost(&self) -> Option<&LossReason> {
        self.events.iter().find_map(|event| match event {
            Event::Lost { reason } => Some(reason),
            _ => None,
        })
    }
}

fn command(command: Command) -> Input {
    Input::Command(command)
}

#[test]
fn an_absent_lease_is_claimed_after_three_durations_and_a_crash_fails_over_after_one() {
    let mut bench = Bench::new();
    let mut a = Bench::node("a", "1");
    bench.give(&mut a, Input::Tick);
    bench.pass(&mut [&mut a], ms(14_900));
    assert_eq!(a.permit(), None);
    bench.pass(&mut [&mut a], ms(300));
    assert!(a.permit().is_some());

    let mut b = Bench::node("b", "2");
    bench.give(&mut b, Input::Tick);
    bench.pass(&mut [&mut a, &mut b], ms(10_000));
    assert_eq!(b.permit(), None, "a living holder is left alone");
    let crashed = bench.now;
    bench.pass(&mut [&mut b], ms(7000));
    let taken = b.permit().expect("took over").1;
    let claim_sent = taken.saturating_since(crashed).saturating_sub(ms(3000));
    assert_eq!(b.permit().unwrap().0, 2);
    assert!(claim_sent < ms(7000), "{claim_sent:?}");
    let ttl = Some(ms(700));
    assert!(b.events.contains(&Event::Elected { epoch: 2, kept: false, previous_read_lease_ttl: ttl }));
    // The old one is back and reads it.
    bench.give(&mut a, Input::Tick);
    bench.settle(&mut a);
    bench.pass(&mut [&mut a], ms(1000));
    assert!(matches!(a.lost(), Some(LossReason::Superseded { epoch: 2, .. })), "{:?}", a.events);
}

#[test]
fn a_released_lease_is_claimed_at_once() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    let mut b = Bench::node("b", "2");
    bench.give(&mut b, Input::Tick);
    bench.give(&mut a, command(Command::Resign { successor: None }));
    assert_eq!(a.events.last(), Some(&Event::Released));
    assert_eq!(a.permit(), None, "the permit ends before the release is written");
    let object = server::parse(bench.server.lease.as_ref().unwrap());
    bench.give(&mut b, Input::Watch(WatchInput::Object(Box::new(object))));
    bench.pass(&mut [&mut b], ms(20));
    assert_eq!(b.permit().map(|(epoch, _)| epoch), Some(2));
}

#[test]
fn released_for_one_others_wait_a_duration_and_the_holder_takes_it_back_after_one() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    let mut other = Bench::node("other", "2");
    let mut chosen = Bench::node("chosen", "3");
    bench.give(&mut other, Input::Tick);
    bench.give(&mut a, command(Command::Resign { successor: Some("chosen".into()) }));
    assert_eq!(a.permit(), None);
    bench.pass(&mut [&mut other], ms(3000));
    assert_eq!(other.permit(), None);
    bench.give(&mut chosen, Input::Tick);
    bench.pass(&mut [&mut chosen], ms(20));
    assert_eq!(chosen.permit().map(|(epoch, _)| epoch), Some(2));
    bench.pass(&mut [&mut a], ms(1100));
    assert!(matches!(a.lost(), Some(LossReason::Superseded { epoch: 2, .. })));

    let mut bench = Bench::new();
    let mut a = bench.leader();
    bench.give(&mut a, command(Command::Resign { successor: Some("gone".into()) }));
    bench.pass(&mut [&mut a], ms(4900));
    assert_eq!(a.permit(), None);
    bench.pass(&mut [&mut a], ms(400));
    assert_eq!(a.permit().map(|(epoch, _)| epoch), Some(1), "in the same epoch");
    assert_eq!(server::parse(bench.server.lease.as_ref().unwrap()).record.release, None);
}

fn designations(node: &Node) -> Vec<&str> {
    let designations = node.events.iter().filter_map(|event| match event {
        Event::Designated { successor } => Some(successor.as_str()),
        _ => None,
    });
    designations.collect()
}

fn designate(bench: &mut Bench, node: &mut Node, successor: &str) {
    bench.server.scribble(|raw| {
        raw["metadata"]["annotations"][mooncake_lease::record::DESIGNATED] = successor.into();
    });
    let object = server::parse(bench.server.lease.as_ref().unwrap());
    bench.give(node, Input::Watch(WatchInput::Object(Box::new(object))));
}

#[test]
fn a_designation_is_told_once_to_the_holder_and_ends_with_the_release() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    designate(&mut bench, &mut a, "a");
    bench.pass(&mut [&mut a], ms(2500));
    assert_eq!(designations(&a), [""; 0], "itself");
    designate(&mut bench, &mut a, "b");
    bench.pass(&mut [&mut a], ms(2500));
    assert_eq!(designations(&a), ["b"], "renewals keep it and tell of it once");
    let record = |bench: &Bench| server::parse(bench.server.lease.as_ref().unwrap()).record;
    assert_eq!(record(&bench).designated, "b");
    assert!(a.permit().is_some(), "it is only a request");

    let mut b = Bench::node("b", "2");
    bench.give(&mut b, Input::Tick);
    assert_eq!(designations(&b), [""; 0], "to the holder only");
    bench.give(&mut a, command(Command::Resign { successor: Some("b".into()) }));
    assert_eq!(record(&bench).designated, "");
    // Nobody comes: taken back. The release has removed the request, so the same one again is a new one.
    bench.pass(&mut [&mut a], ms(5300));
    assert_eq!(a.permit().map(|(epoch, _)| epoch), Some(1));
    assert_eq!(designations(&a), ["b"]);
    designate(&mut bench, &mut a, "b");
    bench.pass(&mut [&mut a], ms(2500));
    assert_eq!(designations(&a), ["b", "b"]);
    // So it is after whoever asked has taken it back.
    designate(&mut bench, &mut a, "");
    designate(&mut bench, &mut a, "b");
    assert_eq!(designations(&a), ["b", "b", "b"]);
    designate(&mut bench, &mut a, "c");
    assert_eq!(designations(&a), ["b", "b", "b", "c"]);
}

#[test]
fn only_a_member_can_be_designated_while_the_set_names_somebody() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    bench.give(&mut a, command(Command::InSync(["b".to_owned()].into())));
    designate(&mut bench, &mut a, "c");
    assert_eq!(designations(&a), [""; 0]);
    designate(&mut bench, &mut a, "b");
    assert_eq!(designations(&a), ["b"]);
}

#[test]
fn a_claim_takes_a_designation_away_and_never_obeys_it() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    designate(&mut bench, &mut a, "c");
    drop(a);
    let mut b = Bench::node("b", "2");
    bench.give(&mut b, Input::Tick);
    bench.pass(&mut [&mut b], ms(7000));
    assert_eq!(b.permit().map(|(epoch, _)| epoch), Some(2), "it restricts no claim");
    assert_eq!(designations(&b), [""; 0]);
    assert_eq!(server::parse(bench.server.lease.as_ref().unwrap()).record.designated, "");
}

#[test]
fn a_holder_that_ends_while_its_successor_does_not_come_leaves_the_lease_to_anyone() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    bench.give(&mut a, command(Command::Resign { successor: Some("gone".into()) }));
    bench.give(&mut a, command(Command::Resign { successor: None }));
    assert_eq!(a.events.last(), Some(&Event::Released));
    let release = server::parse(bench.server.lease.as_ref().unwrap()).record.release;
    assert_eq!(release, Some(mooncake_lease::Release::Anyone));
}

#[test]
fn a_write_that_timed_out_earns_the_permit_of_when_it_was_sent() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    // The next renewal is applied, its answer is lost.
    let due = a.elector.wake_at().unwrap();
    bench.now = due;
    bench.input(&mut a, Input::Tick);
    let sent = bench.now;
    let request = a.waiting.take().unwrap();
    assert!(matches!(request.kind, RequestKind::Replace(_)));
    bench.server.apply(&request.kind);
    bench.now = bench.now.saturating_add(ms(1000));
    bench.input(&mut a, Input::Answer { id: request.id, answer: Answer::Unknown });
    let request = a.waiting.take().unwrap();
    assert!(matches!(request.kind, RequestKind::Read), "it reads before it writes");
    let answer = bench.server.apply(&request.kind);
    bench.input(&mut a, Input::Answer { id: request.id, answer });
    assert_eq!(a.permit(), Some((1, sent.saturating_add(ms(3000)))));
}

#[test]
fn without_an_api_server_it_stops_in_time_and_goes_on_in_the_same_epoch() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    let (_, until) = a.permit().unwrap();
    // Every request times out for a minute.
    let end = bench.now.saturating_add(ms(60_000));
    while bench.now < end {
        bench.now = bench.now.saturating_add(ms(10));
        bench.input(&mut a, Input::Tick);
        if let Some(request) = a.waiting.take() {
            bench.input(&mut a, Input::Answer { id: request.id, answer: Answer::Unknown });
        }
        assert_eq!(a.permit().is_some(), bench.now < until);
    }
    bench.pass(&mut [&mut a], ms(1000));
    assert_eq!(a.permit().map(|(epoch, _)| epoch), Some(1));
    assert_eq!(a.lost(), None);
}

#[test]
fn the_holder_of_a_deleted_lease_keeps_everything_while_its_permit_stands() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    bench.server.delete();
    bench.pass(&mut [&mut a], ms(1500));
    assert_eq!(a.permit().map(|(epoch, _)| epoch), Some(2));
    assert!(a.events.contains(&Event::Elected { epoch: 2, kept: true, previous_read_lease_ttl: None }));
}

#[test]
fn a_holder_that_could_not_see_the_deletion_starts_anew() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    bench.server.delete();
    bench.now = bench.now.saturating_add(ms(10_000));
    bench.give(&mut a, Input::Tick);
    bench.pass(&mut [&mut a], ms(1000));
    assert_eq!(a.lost(), Some(&LossReason::LeaseVanished));
}

#[test]
fn a_former_holder_that_saw_the_deletion_waits_a_duration_and_keeps_its_memory() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    let uid = server::parse(bench.server.lease.as_ref().unwrap()).uid;
    // Nothing gets through until the permit is over.
    for _ in 0..400 {
        bench.now = bench.now.saturating_add(ms(10));
        bench.input(&mut a, Input::Tick);
        if let Some(request) = a.waiting.take() {
            bench.input(&mut a, Input::Answer { id: request.id, answer: Answer::Unknown });
        }
    }
    assert_eq!(a.permit(), None);
    bench.server.delete();
    bench.give(&mut a, Input::Watch(WatchInput::Deleted { uid, resource_version: "999".into() }));
    bench.pass(&mut [&mut a], ms(4500));
    assert_eq!(a.permit(), None);
    bench.pass(&mut [&mut a], ms(1500));
    assert_eq!(a.permit().map(|(epoch, _)| epoch), Some(2));
    assert_eq!(a.lost(), None);
}

#[test]
fn a_restarted_process_of_the_same_pod_releases_its_predecessor_once_that_is_surely_dead() {
    let mut bench = Bench::new();
    drop(bench.leader());
    let mut again = Bench::node("a2", "1");
    bench.give(&mut again, Input::Tick);
    bench.pass(&mut [&mut again], ms(2000));
    assert_eq!(again.permit(), None, "same address and pod, but a stranger until the port is bound");
    bench.give(&mut again, command(Command::PredecessorGone));
    bench.pass(&mut [&mut again], ms(50));
    assert_eq!(again.permit().map(|(epoch, _)| epoch), Some(2));
}

#[test]
fn only_members_claim_in_time_and_the_claim_hands_the_set_on() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    let members = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect::<BTreeSet<_>>();
    bench.give(&mut a, command(Command::InSync(members(&["b", "c"]))));
    let mut stranger = Bench::node("stranger", "4");
    let mut b = Bench::node("b", "2");
    bench.give(&mut stranger, Input::Tick);
    bench.pass(&mut [&mut stranger], ms(14_000));
    assert_eq!(stranger.permit(), None);
    bench.give(&mut b, Input::Tick);
    bench.pass(&mut [&mut b], ms(5500));
    assert_eq!(b.permit().map(|(epoch, _)| epoch), Some(2));
    assert_eq!(server::parse(bench.server.lease.as_ref().unwrap()).record.in_sync, members(&["c"]));
    bench.pass(&mut [&mut b], ms(3000));
    assert_eq!(server::parse(bench.server.lease.as_ref().unwrap()).record.in_sync, members(&["c"]));
}

#[test]
fn a_lower_epoch_makes_a_standby_start_anew() {
    let mut bench = Bench::new();
    drop(bench.leader());
    bench.server.scribble(|raw| raw["spec"]["leaseTransitions"] = 9.into());
    let mut b = Bench::node("b", "2");
    bench.give(&mut b, Input::Tick);
    bench.server.scribble(|raw| raw["spec"]["leaseTransitions"] = 3.into());
    bench.pass(&mut [&mut b], ms(1100));
    assert_eq!(b.lost(), Some(&LossReason::EpochWentBack { seen: 9, found: 3 }));
}

#[test]
fn the_gate_and_reluctance_hold_claims_back() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    let mut b = Bench::node("b", "2");
    bench.give(&mut b, command(Command::MayClaim(false)));
    bench.give(&mut a, command(Command::Resign { successor: None }));
    bench.pass(&mut [&mut b], ms(30_000));
    assert_eq!(b.permit(), None);
    bench.give(&mut b, command(Command::Reluctant { period: ms(15_000) }));
    bench.give(&mut b, command(Command::MayClaim(true)));
    bench.pass(&mut [&mut b], ms(14_000));
    assert_eq!(b.permit(), None);
    bench.give(&mut b, command(Command::Alone(true)));
    bench.pass(&mut [&mut b], ms(1100));
    assert_eq!(b.permit().map(|(epoch, _)| epoch), Some(2));
}

#[test]
fn a_strangers_writes_are_repaired_and_cost_nothing() {
    let mut bench = Bench::new();
    let mut a = bench.leader();
    bench.server.scribble(|raw| {
        raw["spec"]["holderIdentity"] = serde_json::Value::Null;
        raw["metadata"]["annotations"]["other"] = "x".into();
        raw["metadata"]["annotations"][mooncake_lease::record::INCARNATION] = serde_json::Value::Null;
        raw["spec"]["leaseDurationSeconds"] = 1.into();
    });
    let object = server::parse(bench.server.lease.as_ref().unwrap());
    bench.give(&mut a, Input::Watch(WatchInput::Object(Box::new(object))));
    bench.pass(&mut [&mut a], ms(1100));
    assert!(a.permit().is_some() && a.lost().is_none(), "{:?}", a.events);
    let raw = bench.server.lease.as_ref().unwrap();
    assert_eq!(raw["metadata"]["annotations"]["other"], "x");
    let record = server::parse(raw).record;
    assert_eq!((record.holder.as_str(), record.duration), ("10.0.0.1:50051", Some(ms(5000))));
}
