//! Random sequences of operations against a plain model of what should happen.

mod ops;
mod state;

use super::*;
use crate::types::{ClientStatus, LivenessState, Walk, WalkCursor};
use ops::{CLIENTS, HOLD, KEYS, LEASE, Op, SEGMENT_SIZE, SEGMENTS, Want, op};
use proptest::{prelude::*, test_runner::RngSeed};
use state::{MASS_MIN, MASS_RATIO, Model, Object, RELEASE};

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
    /// Each object gets a file on disk, too.
    disk: bool,
}

impl Run {
    fn new(disk: bool) -> Run {
        let rig = Rig::with(CoreOptions {
            mass_silence_min: MASS_MIN,
            mass_silence_ratio: MASS_RATIO,
            disk_directory: disk.then(|| "/pool".to_owned()),
            ..CoreOptions::default()
        });
        rig.core.liveness_tick();
        Run { rig, model: Model { now: 1000, ..Model::default() }, disk }
    }

    /// How many segments could take `size` bytes now, from the raw ranges.
    fn rooms(&self, size: u64) -> usize {
        let fits = |number: u64| {
            let Some(at) = self.model.mounted(number) else { return false };
            let segment = &self.model.segments[at];
            if !self.model.serves(at) || segment.usable_from > self.model.now || segment.graceful.is_some() {
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
            self.model.refused = true;
            return None;
        }
        let got = got.unwrap();
        assert_eq!((got.len(), got.disk.is_some()), (expected, self.disk));
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
            Op::Start { client: writer, key, size, replicas: wanted, want } => {
                let rooms = self.rooms(size);
                let got = self.rig.start_with(writer, &name(key), size, &want.config(wanted));
                if self.model.offline(writer) {
                    return assert_eq!(code(got), ErrorCode::IllegalClient);
                }
                if let Some(object) = self.model.live(key) {
                    let is_there = object.memory_complete() || object.disk == Some(true);
                    if is_there || !self.model.abandoned(&object) {
                        return assert_eq!(code(got), ErrorCode::ObjectAlreadyExists);
                    }
                    let due = object.started + RELEASE;
                    self.model.discard(key, object, due);
                }
                if let Some(replicas) = self.placed(got, rooms, size, wanted) {
                    self.install(writer, key, size, want, replicas, None);
                }
            }
            Op::Upsert { client: writer, key, size, want } => {
                let rooms = self.rooms(size);
                let config = want.config(1);
                let request =
                    PutStart { client: client(writer), key: &name(key), slice_length: size, config: &config };
                let got = core.upsert_start(&request);
                if self.model.offline(writer) {
                    return assert_eq!(code(got), ErrorCode::IllegalClient);
                }
                let before = self.model.live(key);
                let established = before.clone().filter(|object| object.established);
                if established
                    .as_ref()
                    .is_some_and(|object| want.group.is_some() && object.group != want.group)
                {
                    return assert_eq!(code(got), ErrorCode::InvalidParams);
                }
                let in_place = before.as_ref().is_some_and(|object| {
                    object.memory_complete()
                        && object.size == size
                        && object.replicas.iter().all(|&(segment, _)| self.model.serves(segment))
                });
                if let (true, Some(before)) = (in_place, &before) {
                    self.model.supersede(key, before, now + RELEASE);
                }
                if let (true, Some(object)) = (in_place, self.model.objects.get_mut(&key)) {
                    let addresses: Vec<_> = got.unwrap().iter().map(|replica| replica.address).collect();
                    assert_eq!(addresses, object.replicas.iter().map(|of| of.1).collect::<Vec<_>>());
                    (object.writer, object.started, object.complete) = (writer, now, false);
                    object.pending_pin = want.soft_pin;
                    object.disk = object.disk.filter(|&complete| complete).map(|_| false);
                    return;
                }
                let Some(replicas) = self.placed(got, rooms, size, 1) else { return };
                if let Some(before) = before {
                    self.model.supersede(key, &before, now + RELEASE);
                    self.model.set_aside(&before, now + RELEASE);
                    if !before.established {
                        self.model.remove(key);
                    }
                }
                self.install(writer, key, size, want, replicas, established.as_ref());
            }
            Op::End { client: writer, key, disk } => {
                let kind = if disk { ReplicaType::Disk } else { ReplicaType::All };
                let got = core.put_end(client(writer), &name(key), None, kind);
                if self.model.offline(writer) {
                    return assert_eq!(code(got), ErrorCode::IllegalClient);
                }
                let object = match self.model.live(key) {
                    Some(object) if object.writer == writer => object,
                    other => {
                        let expected = other.map_or(ErrorCode::ObjectNotFound, |_| ErrorCode::IllegalClient);
                        self.model.heard(key, writer, disk);
                        return assert_eq!(code(got), expected);
                    }
                };
                if !(if disk { object.disk == Some(false) } else { object.memory_unfinished() }) {
                    self.model.heard(key, writer, disk);
                    let is_there = if disk { object.disk.is_some() } else { !object.replicas.is_empty() };
                    let is_right = is_there || object.unfinished();
                    return assert_eq!(
                        got,
                        if is_right { Ok(()) } else { Err(ErrorCode::InvalidWrite.into()) }
                    );
                }
                if !self.model.accept_end(key, writer, disk) {
                    return assert_eq!(code(got), ErrorCode::ObjectNotFound);
                }
                assert_eq!(got, Ok(()));
                let soft_pinned_until = match object.pending_pin {
                    None => object.soft_pinned_until,
                    Some(0) => None,
                    Some(ttl) => Some(now + ttl),
                };
                let done = Object {
                    complete: object.complete || !disk,
                    disk: if disk { Some(true) } else { object.disk },
                    established: true,
                    soft_pinned_until,
                    pending_pin: None,
                    ..object
                };
                self.model.insert(key, done);
                self.model.lease(key, now);
            }
            Op::Revoke { client: writer, key, disk } => {
                let kind = if disk { ReplicaType::Disk } else { ReplicaType::All };
                let got = core.put_revoke(client(writer), &name(key), kind);
                if self.model.offline(writer) {
                    return assert_eq!(code(got), ErrorCode::IllegalClient);
                }
                let mut object = match self.model.live(key) {
                    Some(object) if object.writer == writer => object,
                    other => {
                        let expected = other.map_or(ErrorCode::ObjectNotFound, |_| ErrorCode::IllegalClient);
                        self.model.heard(key, writer, disk);
                        return assert_eq!(code(got), expected);
                    }
                };
                let ended = if disk { object.disk == Some(true) } else { object.memory_complete() };
                if ended || !object.unfinished() {
                    return assert_eq!(code(got), ErrorCode::InvalidWrite);
                }
                assert_eq!(got, Ok(()));
                if disk {
                    object.disk = None;
                } else {
                    if self.model.owes(key, writer) {
                        self.model.set_aside(&object, now + RELEASE);
                    }
                    object.replicas.clear();
                }
                self.model.put(key, object);
            }
            Op::EvictDisk { key } => {
                let got = core.evict_disk_replica(&name(key), ReplicaType::Disk);
                match self.model.live(key) {
                    None => assert_eq!(code(got), ErrorCode::ObjectNotFound),
                    Some(object) => {
                        assert_eq!(got, Ok(()));
                        self.model.put(key, Object { disk: None, ..object });
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
                    Ok((addresses, on_disk)) => {
                        let got = got.unwrap().replicas;
                        assert_eq!(got.disk.is_some(), on_disk);
                        assert_eq!(got.iter().map(|replica| replica.address).collect::<Vec<_>>(), addresses);
                    }
                }
            }
            Op::Remove { key, force } => {
                let got = core.remove(&name(key), force);
                match self.model.live(key) {
                    None => assert_eq!(code(got), ErrorCode::ObjectNotFound),
                    Some(object) if !force && self.model.leased_until(&object) > now => {
                        assert_eq!(code(got), ErrorCode::ObjectHasLease);
                    }
                    Some(object) if object.unfinished() => {
                        assert_eq!(code(got), ErrorCode::ReplicaIsNotReady);
                    }
                    Some(_) => {
                        assert_eq!(got, Ok(()));
                        self.model.remove(key);
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
                    && self.model.leased_until(&object) <= now
                    && (segment.is_some() || !object.unfinished())
                {
                    let before = object.replicas.len();
                    let complete = object.complete;
                    object.replicas.retain(|&(at, _)| {
                        !complete || segment.is_some_and(|number| self.model.segments[at].number != number)
                    });
                    cleared =
                        object.replicas.len() < before || segment.is_none() && object.disk.take().is_some();
                    if segment.is_none() {
                        object.disk = None;
                    }
                    self.model.put(key, object);
                }
                assert_eq!(got, cleared);
            }
            Op::RemoveAll { force } => {
                let mut cursor = WalkCursor::default();
                while core.remove_matching(None, force, &mut cursor) != Ok(Walk::Done) {}
                let model = &self.model;
                let removable = |object: &Object| {
                    !object.unfinished()
                        && (force || model.leased_until(object) <= now)
                        && !model.is_gone(object)
                };
                let removed: Vec<u8> =
                    model.objects.iter().filter(|of| removable(of.1)).map(|of| *of.0).collect();
                assert_eq!(cursor.acted, removed.len() as u64);
                for key in removed {
                    self.model.remove(key);
                }
            }
            Op::Mount { segment: number } => {
                let owner = owner_of(number);
                let got = core.mount_segment(client(owner), spec(number, SEGMENT_SIZE));
                let known = self.model.mounted(number);
                if self.model.offline(owner) || known.is_some_and(|at| self.model.segments[at].is_going()) {
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
                        Some(known) if known.is_going() => {
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
            Op::Graceful { segment: number, seconds } => {
                let known = self.model.mounted(number);
                let owner = known.map_or(owner_of(number), |at| self.model.segments[at].owner);
                let grace = Duration::from_secs(seconds);
                let got = core.graceful_unmount_segment(segment_id(number), client(owner), grace);
                let Some(at) = known else {
                    let has_others = self.model.segments.iter().any(|of| of.owner == owner && !of.cleaned);
                    let expected =
                        if has_others { ErrorCode::InvalidParams } else { ErrorCode::SegmentNotFound };
                    return assert_eq!(got, Err(expected));
                };
                let segment = &mut self.model.segments[at];
                if segment.gone {
                    return assert_eq!(got, Err(ErrorCode::UnavailableInCurrentStatus));
                }
                assert_eq!(got, Ok(()));
                segment.graceful.get_or_insert(now + seconds);
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
                let round = now >= self.model.next_round;
                self.rig.settle();
                self.model.end_graces();
                let gone = self.evicted(round);
                self.model.evict(&gone, round);
                self.model.settle();
            }
        }
    }

    /// What the core has no longer in memory, for no other reason than eviction.
    fn evicted(&self, round: bool) -> Vec<u8> {
        let is_evicted = |(&key, object): (&u8, &Object)| {
            let left = self.model.left(object, round);
            let evicted = match self.rig.core.object_info(&name(key)).unwrap() {
                None => !left.is_empty(),
                Some(info) => info.replicas.is_empty() && !left.replicas.is_empty(),
            };
            evicted.then_some(key)
        };
        self.model.objects.iter().filter_map(is_evicted).collect()
    }

    /// A write has begun in new ranges; `before` is what stays of an object that was complete once.
    fn install(
        &mut self,
        writer: u64,
        key: u8,
        size: u64,
        want: Want,
        replicas: Vec<(usize, u64)>,
        before: Option<&Object>,
    ) {
        let new = Object {
            writer,
            size,
            started: self.model.now,
            leased_until: 0,
            complete: false,
            established: false,
            hard_pinned: want.hard_pin,
            soft_pinned_until: None,
            pending_pin: want.soft_pin,
            group: want.group,
            replicas,
            disk: self.disk.then_some(false),
        };
        let object = match before {
            Some(before) => Object {
                established: true,
                hard_pinned: before.hard_pinned,
                soft_pinned_until: before.soft_pinned_until,
                group: before.group,
                ..new
            },
            None => new,
        };
        self.model.insert(key, object);
    }

    /// What a read finds; grants the lease.
    fn read(&mut self, key: u8) -> Result<(Vec<u64>, bool), ErrorCode> {
        let object = self.model.objects.get(&key).ok_or(ErrorCode::ObjectNotFound)?;
        let served = |&&(segment, _): &&(usize, u64)| object.complete && self.model.serves(segment);
        let addresses: Vec<_> = object.replicas.iter().filter(served).map(|of| of.1).collect();
        let on_disk = object.disk == Some(true);
        if addresses.is_empty() && !on_disk {
            let gone = self.model.is_gone(object);
            return Err(if gone { ErrorCode::ObjectNotFound } else { ErrorCode::ReplicaIsNotReady });
        }
        self.model.lease(key, self.model.now + LEASE);
        Ok((addresses, on_disk))
    }

    fn compare(&self) {
        self.rig.check();
        let stats = self.rig.core.stats();
        assert_eq!(stats.keys, self.model.objects.len() as u64);
        assert_eq!(stats.evicted_keys, self.model.evicted);
        let pinned = self.model.objects.values().filter(|object| object.soft_pinned_until.is_some()).count();
        assert_eq!(stats.soft_pinned_keys, pinned as u64);
        for (&key, object) in &self.model.objects {
            let info = self.rig.core.object_info(&name(key)).unwrap().expect("it is there");
            let left = self.model.leased_until(object).saturating_sub(self.model.now);
            assert_eq!(info.lease_left.map_or(0, |left| left.as_secs()), left);
            assert_eq!((info.hard_pinned, info.disk.is_some()), (object.hard_pinned, object.disk.is_some()));
        }
        let unfinished = self.model.objects.values().filter(|object| object.unfinished()).count();
        assert_eq!(stats.unfinished_keys, unfinished as u64);
        let files = self.model.objects.values().filter_map(|object| Some((object.size, object.disk?)));
        let sums = files.fold((0, 0), |sum, (size, done)| (sum.0 + u64::from(done), sum.1 + size));
        assert_eq!((stats.disk_files, stats.disk_bytes), sums);
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

fn config() -> ProptestConfig {
    let mut config = ProptestConfig { cases: 256, ..ProptestConfig::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(rand::random());
    }
    println!("PROPTEST_RNG_SEED={}", config.rng_seed);
    config
}

proptest! {
    #![proptest_config(config())]
    /// At least 25 600 steps, about 50 000. On a failure proptest prints the shrunk sequence and keeps its seed.
    #[test]
    fn the_core_does_what_the_model_says(
        disk in proptest::bool::weighted(0.4),
        ops in proptest::collection::vec(op(), 100..300),
    ) {
        let mut run = Run::new(disk);
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
