//! Random sequences of operations against a plain model of what should happen.

mod state;

use super::*;
use crate::types::{ClientStatus, LivenessState, Walk, WalkCursor};
use proptest::prelude::*;
use state::{MASS_MIN, MASS_RATIO, Model, Object, RELEASE};

const KEYS: u8 = 24;
const CLIENTS: u64 = 4;
const SEGMENTS: u64 = 6;
const SEGMENT_SIZE: u64 = 4000;
const LEASE: u64 = 10;
const HOLD: u64 = 30;

#[derive(Clone, Debug)]
enum Op {
    Start { client: u64, key: u8, size: u64, replicas: u64 },
    Upsert { client: u64, key: u8, size: u64 },
    End { client: u64, key: u8 },
    Revoke { client: u64, key: u8 },
    Exist { key: u8 },
    Get { key: u8 },
    Remove { key: u8, force: bool },
    Clear { client: u64, key: u8, segment: Option<u64> },
    RemoveAll { force: bool },
    Mount { segment: u64 },
    Remount { client: u64, segments: Vec<u64> },
    Unmount { segment: u64 },
    Ping { client: u64 },
    Pass { seconds: u64, alive: u8 },
    Settle,
}

fn op() -> impl Strategy<Value = Op> {
    let client = 1..=CLIENTS;
    let key = 0..KEYS;
    let size = prop_oneof![1u64..40, Just(100u64), 100u64..1500];
    let segment = 1..=SEGMENTS;
    prop_oneof![
        16 => (client.clone(), key.clone(), size.clone(), 1u64..4)
            .prop_map(|(client, key, size, replicas)| Op::Start { client, key, size, replicas }),
        8 => (client.clone(), key.clone(), size).prop_map(|(client, key, size)| Op::Upsert { client, key, size }),
        16 => (client.clone(), key.clone()).prop_map(|(client, key)| Op::End { client, key }),
        3 => (client.clone(), key.clone()).prop_map(|(client, key)| Op::Revoke { client, key }),
        4 => key.clone().prop_map(|key| Op::Exist { key }),
        8 => key.clone().prop_map(|key| Op::Get { key }),
        6 => (key.clone(), any::<bool>()).prop_map(|(key, force)| Op::Remove { key, force }),
        3 => (client.clone(), key, proptest::option::of(segment.clone()))
            .prop_map(|(client, key, segment)| Op::Clear { client, key, segment }),
        1 => any::<bool>().prop_map(|force| Op::RemoveAll { force }),
        6 => segment.clone().prop_map(|segment| Op::Mount { segment }),
        3 => (client.clone(), proptest::collection::vec(segment.clone(), 0..3))
            .prop_map(|(client, segments)| Op::Remount { client, segments }),
        2 => segment.prop_map(|segment| Op::Unmount { segment }),
        4 => client.prop_map(|client| Op::Ping { client }),
        10 => (1u64..25, any::<u8>()).prop_map(|(seconds, alive)| Op::Pass { seconds, alive }),
        4 => Just(Op::Settle),
    ]
}

/// Segments 1 and 5 are client 1's, and so on.
fn owner_of(segment: u64) -> u64 {
    (segment - 1) % CLIENTS + 1
}

fn name(key: u8) -> Vec<u8> {
    // Keys on both sides of what is stored inline.
    format!("{}{key}", if key.is_multiple_of(2) { "k" } else { "a-key-of-more-than-22-bytes-" }).into_bytes()
}

struct Run {
    rig: Rig,
    model: Model,
}

impl Run {
    fn new() -> Run {
        let rig = Rig::with(CoreOptions {
            mass_silence_min: MASS_MIN,
            mass_silence_ratio: MASS_RATIO,
            ..CoreOptions::default()
        });
        rig.core.liveness_tick();
        let model = Model {
            now: 1000,
            served: 0,
            next_round: 0,
            objects: BTreeMap::new(),
            segments: Vec::new(),
            clients: BTreeMap::new(),
            aside: Vec::new(),
        };
        Run { rig, model }
    }

    /// How many segments could take `size` bytes now, from the raw ranges.
    fn rooms(&self, size: u64) -> usize {
        let fits = |number: u64| {
            let Some(at) = self.model.mounted(number) else { return false };
            if !self.model.serves(at) || self.model.segments[at].usable_from > self.model.now {
                return false;
            }
            let registry = self.rig.core.registry.lock();
            let segment = registry.get(segment_id(number)).expect("the model says it is mounted");
            let mut end = 0;
            let mut largest = 0;
            for (address, size, _) in segment.check() {
                let start = address - (number << 40);
                largest = largest.max(start - end);
                end = (start + size).next_multiple_of(8).min(SEGMENT_SIZE);
            }
            largest.max(SEGMENT_SIZE - end) >= size
        };
        (1..=SEGMENTS).filter(|&number| fits(number)).count()
    }

    /// What a Start that may place does with the answer.
    fn placed(
        &mut self,
        got: Attempt<Replicas>,
        rooms: usize,
        size: u64,
        wanted: u64,
    ) -> Option<Vec<(usize, u64)>> {
        let expected = rooms.min(wanted as usize);
        if expected == 0 {
            assert_eq!(code(got), ErrorCode::NoAvailableHandle);
            return None;
        }
        let got = got.unwrap();
        assert_eq!(got.len(), expected);
        assert!(got.iter().all(|replica| replica.size == size));
        let places = got.iter().map(|replica| {
            let at = self.model.mounted(replica.segment.id.second).expect("a mounted segment");
            assert!(self.model.serves(at));
            (at, replica.address)
        });
        Some(places.collect())
    }

    fn apply(&mut self, op: Op) {
        let core = &self.rig.core;
        let now = self.model.now;
        match op {
            Op::Start { client: writer, key, size, replicas: wanted } => {
                let rooms = self.rooms(size);
                let config = ReplicateConfig { replica_num: wanted, ..ReplicateConfig::default() };
                let got = self.rig.start_with(writer, &name(key), size, &config);
                if self.model.offline(writer) {
                    return assert_eq!(code(got), ErrorCode::IllegalClient);
                }
                if let Some(object) = self.model.live(key) {
                    if !self.model.abandoned(&object) {
                        return assert_eq!(code(got), ErrorCode::ObjectAlreadyExists);
                    }
                    self.model.set_aside(&object, object.started + RELEASE);
                    self.model.objects.remove(&key);
                }
                self.install(got, rooms, writer, key, size, wanted, false);
            }
            Op::Upsert { client: writer, key, size } => {
                let rooms = self.rooms(size);
                let got = self.rig.upsert(writer, &name(key), size);
                if self.model.offline(writer) {
                    return assert_eq!(code(got), ErrorCode::IllegalClient);
                }
                let before = self.model.live(key);
                let in_place = before.as_ref().is_some_and(|object| {
                    object.complete
                        && object.size == size
                        && object.replicas.iter().all(|&(segment, _)| self.model.serves(segment))
                });
                if let (true, Some(object)) = (in_place, self.model.objects.get_mut(&key)) {
                    let addresses: Vec<_> = got.unwrap().iter().map(|replica| replica.address).collect();
                    assert_eq!(addresses, object.replicas.iter().map(|of| of.1).collect::<Vec<_>>());
                    (object.writer, object.started, object.complete) = (writer, now, false);
                    return;
                }
                let established = before.as_ref().is_some_and(|object| object.established);
                if self.install(got, rooms, writer, key, size, 1, established)
                    && let Some(before) = before
                {
                    self.model.set_aside(&before, now + RELEASE);
                }
            }
            Op::End { client: writer, key } => {
                let got = self.rig.end(writer, &name(key));
                if self.model.offline(writer) {
                    return assert_eq!(code(got), ErrorCode::IllegalClient);
                }
                match self.model.live(key) {
                    None => assert_eq!(code(got), ErrorCode::ObjectNotFound),
                    Some(object) if object.writer != writer => {
                        assert_eq!(code(got), ErrorCode::IllegalClient);
                    }
                    Some(object) => {
                        assert_eq!(got, Ok(()));
                        let done = Object { complete: true, established: true, ..object };
                        self.model.objects.insert(key, done);
                    }
                }
            }
            Op::Revoke { client: writer, key } => {
                let got = core.put_revoke(client(writer), &name(key), ReplicaType::All);
                if self.model.offline(writer) {
                    return assert_eq!(code(got), ErrorCode::IllegalClient);
                }
                match self.model.live(key) {
                    None => assert_eq!(code(got), ErrorCode::ObjectNotFound),
                    Some(object) if object.writer != writer => {
                        assert_eq!(code(got), ErrorCode::IllegalClient);
                    }
                    Some(object) if object.complete => assert_eq!(code(got), ErrorCode::InvalidWrite),
                    Some(_) => {
                        assert_eq!(got, Ok(()));
                        self.model.objects.remove(&key);
                    }
                }
            }
            Op::Exist { key } => {
                let got = core.exist_key(&name(key)).unwrap();
                assert_eq!(got, self.read(key).is_ok());
            }
            Op::Get { key } => {
                let got = core.get_replica_list(&name(key));
                match self.read(key) {
                    Err(expected) => assert_eq!(code(got), expected),
                    Ok(addresses) => {
                        let got: Vec<_> =
                            got.unwrap().replicas.iter().map(|replica| replica.address).collect();
                        assert_eq!(got, addresses);
                    }
                }
            }
            Op::Remove { key, force } => {
                let got = core.remove(&name(key), force);
                match self.model.live(key) {
                    None => assert_eq!(code(got), ErrorCode::ObjectNotFound),
                    Some(object) if !force && object.leased_until > now => {
                        assert_eq!(code(got), ErrorCode::ObjectHasLease);
                    }
                    Some(object) if !object.complete => assert_eq!(code(got), ErrorCode::ReplicaIsNotReady),
                    Some(_) => {
                        assert_eq!(got, Ok(()));
                        self.model.objects.remove(&key);
                    }
                }
            }
            Op::Clear { client: caller, key, segment } => {
                let segment_name = segment.map_or(String::new(), |number| format!("segment-{number}"));
                let got =
                    core.batch_replica_clear(client(caller), &name(key), segment_name.as_bytes()).unwrap();
                let mut cleared = false;
                if let Some(mut object) = self.model.live(key)
                    && object.writer == caller
                    && object.leased_until <= now
                    && object.complete
                {
                    let before = object.replicas.len();
                    object.replicas.retain(|&(at, _)| {
                        segment.is_some_and(|number| self.model.segments[at].number != number)
                    });
                    cleared = object.replicas.len() < before;
                    if object.replicas.is_empty() {
                        self.model.objects.remove(&key);
                    } else {
                        self.model.objects.insert(key, object);
                    }
                }
                assert_eq!(got, cleared);
            }
            Op::RemoveAll { force } => {
                let mut cursor = WalkCursor::default();
                while core.remove_matching(None, force, &mut cursor) != Ok(Walk::Done) {}
                let segments = &self.model.segments;
                let before = self.model.objects.len();
                self.model.objects.retain(|_, object| {
                    !object.complete
                        || !force && object.leased_until > now
                        || object.replicas.iter().all(|&(segment, _)| segments[segment].gone)
                });
                assert_eq!(cursor.acted, (before - self.model.objects.len()) as u64);
            }
            Op::Mount { segment: number } => {
                let owner = owner_of(number);
                let got = core.mount_segment(client(owner), spec(number, SEGMENT_SIZE));
                let known = self.model.mounted(number);
                if self.model.offline(owner) || known.is_some_and(|at| self.model.segments[at].gone) {
                    return assert_eq!(got, Err(ErrorCode::UnavailableInCurrentStatus));
                }
                if known.is_some_and(|at| self.model.segments[at].owner != owner) {
                    return assert_eq!(got, Err(ErrorCode::InvalidParams));
                }
                assert_eq!(got, Ok(()));
                self.model.know(owner);
                if known.is_none() {
                    self.model.mount(owner, number, 0);
                }
            }
            Op::Remount { client: caller, segments } => {
                let specs = segments.iter().map(|&number| spec(number, SEGMENT_SIZE)).collect();
                let got = core.remount_segments(client(caller), specs);
                if self.model.offline(caller) {
                    return assert_eq!(got, Err(ErrorCode::UnavailableInCurrentStatus));
                }
                for &number in &segments {
                    match self.model.mounted(number).map(|at| &self.model.segments[at]) {
                        Some(known) if known.gone => {
                            return assert_eq!(got, Err(ErrorCode::UnavailableInCurrentStatus));
                        }
                        Some(known) if known.owner != caller => {
                            return assert_eq!(got, Err(ErrorCode::InvalidParams));
                        }
                        _ => {}
                    }
                }
                assert_eq!(got, Ok(()));
                self.model.know(caller);
                if let Some(known) = self.model.clients.get_mut(&caller) {
                    known.ready = true;
                }
                for number in segments {
                    if self.model.mounted(number).is_none() {
                        self.model.mount(caller, number, now + HOLD);
                    }
                }
            }
            Op::Unmount { segment: number } => {
                let known = self.model.mounted(number);
                let owner = known.map_or(1, |at| self.model.segments[at].owner);
                let got = core.unmount_segment(segment_id(number), client(owner));
                match known {
                    Some(at) if self.model.segments[at].gone => {
                        assert_eq!(got, Err(ErrorCode::UnavailableInCurrentStatus));
                    }
                    known => {
                        assert_eq!(got, Ok(()));
                        if let Some(at) = known {
                            self.model.segments[at].gone = true;
                        }
                    }
                }
            }
            Op::Ping { client: caller } => {
                let got = core.ping(client(caller));
                let ready = self.model.clients.get(&caller).is_some_and(|known| known.ready);
                let expected = ready && !self.model.offline(caller);
                assert_eq!(got, if expected { ClientStatus::Ok } else { ClientStatus::NeedRemount });
                self.model.hear(caller);
            }
            Op::Pass { seconds, alive } => {
                let alive: Vec<u64> = (1..=CLIENTS).filter(|&n| alive >> n & 1 == 1).collect();
                for _ in 0..seconds {
                    self.rig.pass(1, &alive);
                    self.model.now += 1;
                    for &n in &alive {
                        self.model.hear(n);
                    }
                    self.model.tick();
                }
            }
            Op::Settle => {
                self.rig.settle();
                self.model.settle();
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn install(
        &mut self,
        got: Attempt<Replicas>,
        rooms: usize,
        writer: u64,
        key: u8,
        size: u64,
        wanted: u64,
        established: bool,
    ) -> bool {
        let Some(replicas) = self.placed(got, rooms, size, wanted) else { return false };
        let started = self.model.now;
        let object =
            Object { writer, size, started, leased_until: 0, complete: false, established, replicas };
        self.model.objects.insert(key, object);
        true
    }

    /// What a read finds; grants the lease.
    fn read(&mut self, key: u8) -> Result<Vec<u64>, ErrorCode> {
        let object = self.model.objects.get(&key).ok_or(ErrorCode::ObjectNotFound)?;
        let served = |&&(segment, _): &&(usize, u64)| object.complete && self.model.serves(segment);
        let addresses: Vec<_> = object.replicas.iter().filter(served).map(|of| of.1).collect();
        if addresses.is_empty() {
            let gone = object.replicas.iter().all(|&(segment, _)| self.model.segments[segment].gone);
            return Err(if gone { ErrorCode::ObjectNotFound } else { ErrorCode::ReplicaIsNotReady });
        }
        let until = self.model.now + LEASE;
        if let Some(object) = self.model.objects.get_mut(&key) {
            object.leased_until = object.leased_until.max(until);
        }
        Ok(addresses)
    }

    fn compare(&self) {
        self.rig.check();
        let stats = self.rig.core.stats();
        assert_eq!(stats.keys, self.model.objects.len() as u64);
        let live = |at: usize| !self.model.segments[at].gone;
        let aside: u64 = self.model.aside.iter().filter(|of| live(of.0)).map(|of| of.1).sum();
        let held: u64 = self
            .model
            .objects
            .values()
            .map(|object| object.size * object.replicas.iter().filter(|of| live(of.0)).count() as u64)
            .sum();
        assert_eq!((stats.aside_bytes, stats.allocated_bytes), (aside, aside + held));
        let count = |state| self.model.clients.values().filter(|client| client.state == state).count() as u64;
        assert_eq!(
            (stats.active_clients, stats.suspected_clients, stats.offline_clients),
            (count(LivenessState::Active), count(LivenessState::Suspected), count(LivenessState::Offline))
        );
        let held = self.model.clients.values().filter(|client| client.held).count() as u64;
        assert_eq!(stats.held_clients, held);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    /// About 50 000 steps. On a failure proptest prints the shrunk sequence and keeps its seed.
    #[test]
    fn the_core_does_what_the_model_says(ops in proptest::collection::vec(op(), 100..300)) {
        let mut run = Run::new();
        for (at, op) in ops.into_iter().enumerate() {
            run.apply(op);
            if at % 4 == 0 {
                run.compare();
            }
        }
        run.apply(Op::Settle);
        run.compare();
    }
}
