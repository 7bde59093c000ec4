//! Clients of every generation as the wire shows them: what they send, and how they react to an answer.

use super::*;
use crate::{
    admin::{AdminState, PerGeneration},
    clock::{Clock, Instant, ManualClock},
    config::{Command, ProbeConfig, Surroundings, load},
    permit::ServingPermit,
    rpc::native::{
        frame::RequestHeader,
        generation::{Method, NAMES},
        value::Value,
    },
    types::Uuid,
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// The knowledge of a master whose default is `default`.
struct World {
    shared: Arc<Generations>,
    clock: Arc<ManualClock>,
}

impl World {
    fn new(default: &str) -> World {
        let clock = ManualClock::new(Instant::from_nanos(1_000_000_000));
        let probe =
            ProbeConfig { enabled: false, interval: Duration::from_secs(5), timeout: Duration::from_secs(3) };
        let surroundings = Surroundings {
            env: &|_| None,
            read_file: &|_| Err(String::new()),
            interface_address: &|_| Err(String::new()),
            cores: 1,
        };
        let Ok(Command::Run(loaded)) = load(&[], &surroundings) else { panic!("the defaults are valid") };
        let state = AdminState::new(
            &loaded.effective,
            &probe,
            1,
            Arc::new(ServingPermit::standalone(clock.clone())),
            clock.clone(),
        );
        World { shared: Generations::new(named(default), state.metrics.clone()), clock }
    }

    fn connect(&self, generation: &'static Generation, address: IpAddr) -> Connection<'_> {
        let dialect = Some(Dialect::new(self.shared.clone(), address, None));
        Connection { world: self, generation, address, dialect }
    }

    fn wrong_guesses(&self) -> u64 {
        self.shared.wire().wrong_guesses.load(Ordering::Relaxed)
    }

    fn gauge(&self, of: impl Fn(&WireMetrics) -> &PerGeneration) -> Vec<u64> {
        let gauge = of(self.shared.wire());
        Generation::all().iter().map(Some).chain([None]).map(|generation| gauge.get(generation)).collect()
    }
}

/// One connection of a client of that generation.
struct Connection<'w> {
    world: &'w World,
    generation: &'static Generation,
    address: IpAddr,
    dialect: Option<Dialect>,
}

fn named(name: &str) -> &'static Generation {
    Generation::by_name(name).expect(name)
}

fn host(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, last).into()
}

fn id(n: u64) -> Value {
    Value::Struct(vec![Value::U64(n), Value::U64(n)])
}

impl Connection<'_> {
    fn body(&self, method: Method, client: Option<u64>) -> (RequestHeader, Vec<u8>) {
        let rpc = self.generation.method(method).expect("in that generation");
        let body = match (rpc.args_signature(), client) {
            (None, _) => Vec::new(),
            (Some(signature), Some(client)) => id(client).encode(signature, true),
            // The head is all that the dialect looks at.
            (Some(signature), None) => signature.hash.to_le_bytes().to_vec(),
        };
        let length = body.len() as u32;
        (RequestHeader { seq: 0, function: rpc.function_id(), body: length, attachment: 0 }, body)
    }

    /// `None`: it has to wait.
    fn ask(&mut self, method: Method, client: Option<u64>) -> Option<Call> {
        let (header, body) = self.body(method, client);
        let clock = &self.world.clock;
        self.dialect.as_mut().expect("open").call(&header, &body, || clock.now())
    }

    /// Makes a call, waiting if it has to; whether the client can read the answer. If not it closes the connection at once.
    fn call(&mut self, method: Method) -> bool {
        let call = self.ask(method, None).or_else(|| {
            self.world.clock.advance(Duration::from_millis(100));
            self.ask(method, None)
        });
        self.answer(method, call.expect("it waits no longer"))
    }

    fn ping(&mut self, client: u64) {
        let call = self.ask(Method::Ping, Some(client)).expect("unambiguous");
        assert!(call.guess.is_none() && self.answer(Method::Ping, call));
    }

    fn answer(&mut self, method: Method, call: Call) -> bool {
        let dialect = self.dialect.as_mut().expect("open");
        dialect.answered(call.guess, &[0x15, 0, 0, 0]);
        dialect.all_sent(|| self.world.clock.now());
        let own = self.generation.method(method).expect("in that generation").result_signature().hash;
        let reads = call.rpc.is_some_and(|rpc| rpc.result_signature().hash == own);
        if !reads {
            assert!(call.guess.is_some(), "what is known must be right");
            self.close();
        }
        reads
    }

    fn close(&mut self) {
        if let Some(mut dialect) = self.dialect.take() {
            dialect.closed(self.world.clock.now());
        }
    }

    fn is_open(&self) -> bool {
        self.dialect.is_some()
    }
}

const GET: Method = Method::GetReplicaList;

/// A new client's first connection.
fn arrive<'w>(world: &'w World, generation: &str, address: IpAddr) -> Connection<'w> {
    let mut connection = world.connect(named(generation), address);
    assert!(connection.call(Method::ServiceReady) && connection.call(Method::GetStorageConfig));
    connection
}

#[test]
fn a_telling_call_settles_a_connection() {
    let world = World::new("0.3.13");
    for name in NAMES {
        let mut connection = world.connect(named(name), host(1));
        assert!(connection.call(Method::PutStart) && connection.call(GET) && connection.call(GET));
        assert!(connection.ask(GET, None).expect("known").guess.is_none());
    }
    assert_eq!(world.wrong_guesses(), 0);
    assert_eq!(world.gauge(|wire| &wire.connections), [0; 5]);
}

#[test]
fn the_client_id_tells_on_every_connection_that_names_it() {
    let world = World::new("0.3.13");
    let mut first = world.connect(named("0.3.12"), host(1));
    first.ping(7);
    assert_eq!(world.shared.of_client(Uuid { first: 7, second: 7 }), None);
    assert!(first.call(Method::PutStart));
    assert_eq!(world.shared.of_client(Uuid { first: 7, second: 7 }), Some(named("0.3.12")));
    assert_eq!(world.gauge(|wire| &wire.clients), [0, 0, 1, 0, 0]);
    // From another address, so that only the id can tell.
    let mut second = world.connect(named("0.3.12"), host(2));
    second.ping(7);
    assert!(second.ask(GET, None).is_some_and(|call| call.guess.is_none()) && second.call(GET));
    drop((first, second));
    assert_eq!(
        (world.gauge(|wire| &wire.clients), world.gauge(|wire| &wire.connections)),
        (vec![0; 5], vec![0; 5])
    );
}

#[test]
fn the_address_tells_what_the_call_does_not() {
    let world = World::new("0.3.13");
    let mut writer = world.connect(named("0.3.12"), Ipv4Addr::new(10, 9, 0, 1).to_ipv6_mapped().into());
    assert!(writer.call(Method::PutStart));
    assert!(world.connect(named("0.3.12"), host(1)).call(GET));
    assert!(!world.connect(named("0.3.12"), Ipv6Addr::LOCALHOST.into()).call(GET), "only that address");
}

#[test]
fn a_reader_fails_once_whatever_the_default_is() {
    for (default, name) in
        [("0.3.13", "0.3.12"), ("0.3.12", "0.3.13"), ("0.3.13", "0.3.9"), ("0.3.9", "0.3.11")]
    {
        let world = World::new(default);
        let mut first = arrive(&world, name, host(1));
        let failed = u64::from(!first.call(GET));
        let mut second = world.connect(named(name), host(1));
        assert!(second.call(GET) && second.call(GET), "{name} with {default}");
        // Known now, for this and for every later client from there.
        let mut later = arrive(&world, name, host(1));
        assert!(later.call(GET) && later.call(GET));
        assert_eq!(world.wrong_guesses(), failed);
    }
}

#[test]
fn a_reader_that_offers_memory_is_known_by_its_id_after_one_failure() {
    let world = World::new("0.3.13");
    // Another client keeps the address from telling.
    assert!(world.connect(named("0.3.13"), host(1)).call(Method::PutStart));
    let mut connection = arrive(&world, "0.3.12", host(1));
    connection.ping(7);
    assert!(!connection.call(GET));
    for _ in 0..3 {
        let mut next = world.connect(named("0.3.12"), host(1));
        next.ping(7);
        assert!(next.call(GET) && next.call(GET));
    }
    assert_eq!(world.shared.of_client(Uuid { first: 7, second: 7 }), Some(named("0.3.12")));
}

#[test]
fn clients_that_read_once_and_close_change_nothing() {
    for is_confirmed in [false, true] {
        let world = World::new("0.3.13");
        let mut other = arrive(&world, "0.3.13", host(1));
        if is_confirmed {
            assert!(other.call(GET) && other.call(GET));
        }
        for _ in 0..100 {
            let mut brief = arrive(&world, "0.3.13", host(1));
            assert!(brief.call(GET));
            brief.close();
        }
        let mut new = arrive(&world, "0.3.13", host(1));
        assert!(new.call(GET) && new.call(GET));
        assert!(other.call(GET), "one that was there before");
        assert!(world.connect(named("0.3.13"), host(1)).call(GET), "and a further connection");
        assert!(world.wrong_guesses() <= 100);
    }
}

#[test]
fn closes_without_a_greeting_soon_mean_nothing() {
    let world = World::new("0.3.13");
    let mut wrong = 0;
    for _ in 0..100 {
        let mut brief = world.connect(named("0.3.13"), host(1));
        wrong += u32::from(!brief.call(GET));
        brief.close();
    }
    assert!(wrong < 10, "{wrong} of 100");
}

#[test]
fn one_early_close_does_not_overturn_a_confirmed_address() {
    let world = World::new("0.3.13");
    assert!(world.connect(named("0.3.13"), host(1)).call(Method::PutStart));
    let mut brief = world.connect(named("0.3.13"), host(1));
    assert!(brief.call(GET));
    brief.close();
    assert!(world.connect(named("0.3.13"), host(1)).call(GET));
}

#[test]
fn a_late_close_is_no_sign() {
    let world = World::new("0.3.13");
    let mut idle = world.connect(named("0.3.13"), host(1));
    assert!(idle.call(GET));
    world.clock.advance(Duration::from_secs(30));
    idle.close();
    assert_eq!(world.wrong_guesses(), 0);
    assert!(world.connect(named("0.3.13"), host(1)).call(GET));
}

#[test]
fn an_error_of_the_rpc_layer_proves_nothing() {
    let world = World::new("0.3.13");
    let mut connection = world.connect(named("0.3.12"), host(1));
    let call = connection.ask(GET, None).expect("no other guess");
    let dialect = connection.dialect.as_mut().expect("open");
    dialect.answered(call.guess, &[0x15, 0, 4, 0]);
    dialect.all_sent(|| world.clock.now());
    assert!(!connection.call(GET), "still taken for the default");
    assert_eq!(world.wrong_guesses(), 1);
}

#[test]
fn two_generations_on_one_address_stop_failing() {
    let world = World::new("0.3.13");
    let mut failures = Vec::new();
    let mut readers: Vec<Connection<'_>> =
        ["0.3.13", "0.3.12", "0.3.13", "0.3.12"].map(|name| arrive(&world, name, host(1))).into();
    for round in 0..50 {
        for reader in &mut readers {
            if !reader.is_open() {
                *reader = world.connect(reader.generation, host(1));
            }
            if !reader.call(GET) {
                failures.push(round);
            }
        }
    }
    assert!(failures.len() <= 8 && failures.iter().all(|round| *round < 5), "{failures:?}");
    assert_eq!(world.wrong_guesses(), failures.len() as u64);
    assert_eq!(world.shared.wire().shared_addresses.load(Ordering::Relaxed), 1);
    assert_eq!(world.gauge(|wire| &wire.connections), [0, 0, 2, 2, 0]);
}

#[test]
fn the_threads_of_a_client_wait_for_the_first_reaction() {
    let world = World::new("0.3.13");
    let mut first = arrive(&world, "0.3.12", host(1));
    let mut second = world.connect(named("0.3.12"), host(1));
    let answer = first.ask(GET, None).expect("nothing is outstanding");
    assert!(second.ask(GET, None).is_none());
    assert!(!first.answer(GET, answer));
    let answer = second.ask(GET, None).expect("the reaction came");
    let mut third = world.connect(named("0.3.12"), host(1));
    assert!(third.ask(GET, None).is_none(), "waits for the trial");
    assert!(second.answer(GET, answer) && second.call(GET) && third.call(GET));

    // Not for ever: a client may take its time.
    let mut slow = world.connect(named("0.3.13"), host(2));
    assert!(slow.call(GET));
    let mut next = world.connect(named("0.3.13"), host(2));
    assert!(next.ask(GET, None).is_none());
    world.clock.advance(Duration::from_millis(100));
    assert!(next.ask(GET, None).is_some());
}

#[test]
fn a_listener_of_one_generation_asks_nobody() {
    let world = World::new("0.3.13");
    let fixed = Dialect::new(world.shared.clone(), host(1), Some(named("0.3.12")));
    let mut connection =
        Connection { world: &world, generation: named("0.3.12"), address: host(1), dialect: Some(fixed) };
    connection.ping(7);
    assert!(connection.call(GET) && connection.call(GET));
    assert_eq!(world.gauge(|wire| &wire.clients), [0, 0, 1, 0, 0]);
    // A call of another generation is refused there and changes nothing.
    connection.generation = named("0.3.13");
    let call = connection.ask(Method::PutStart, None).expect("known");
    assert!(std::ptr::eq(call.rpc.expect("there"), named("0.3.12").method(Method::PutStart).expect("there")));
    assert_eq!(world.gauge(|wire| &wire.connections), [0, 0, 1, 0, 0]);
}

#[test]
fn what_no_generation_says_is_refused_by_the_newest() {
    let world = World::new("0.3.9");
    let mut dialect = Dialect::new(world.shared.clone(), host(1), None);
    let mut ask = |function, body: &[u8]| {
        let header = RequestHeader { seq: 0, function, body: body.len() as u32, attachment: 0 };
        dialect.call(&header, body, || world.clock.now()).expect("nothing to wait for")
    };
    assert!(ask(0xdead_beef, b"").rpc.is_none());
    let call = ask(GET.function_id(), b"????");
    assert!(std::ptr::eq(call.rpc.expect("known"), Generation::newest().method(GET).expect("there")));
}

#[test]
fn each_client_is_reported_once() {
    let world = World::new("0.3.13");
    for _ in 0..5 {
        let mut connection = world.connect(named("0.3.13"), host(1));
        assert!(connection.call(GET));
        world.clock.advance(Duration::from_secs(10));
        connection.close();
    }
    assert_eq!(world.shared.wire().unknown_clients.load(Ordering::Relaxed), 1);
    assert_eq!(world.shared.wire().guesses.load(Ordering::Relaxed), 5);
}

/// Clients of one generation per address that come, read, write and go in any order: none fails twice.
#[test]
fn in_any_order_no_client_fails_twice() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let default = *NAMES.choose(&mut rng).expect("some");
        let world = World::new(default);
        let of_address: Vec<&str> = (0..4).map(|_| *NAMES.choose(&mut rng).expect("some")).collect();
        let mut clients: Vec<(Vec<Connection<'_>>, u64, u32)> = Vec::new();
        for step in 0..200u64 {
            if clients.len() < 3 || rng.random_ratio(1, 20) {
                let at = rng.random_range(0..4usize);
                clients.push((vec![arrive(&world, of_address[at], host(at as u8))], step, 0));
                continue;
            }
            let index = rng.random_range(0..clients.len());
            let (connections, client, failures) = &mut clients[index];
            let (generation, address) = (connections[0].generation, connections[0].address);
            let at = rng.random_range(0..=connections.len().min(3));
            if at == connections.len() {
                connections.push(world.connect(generation, address));
            }
            let connection = &mut connections[at];
            if !connection.is_open() {
                *connection = world.connect(generation, address);
            }
            match rng.random_range(0..10) {
                0 => connection.ping(*client),
                1 => assert!(connection.call(Method::PutStart)),
                2 => assert!(connection.call(Method::ExistKey)),
                3 => {
                    // In the end it has been idle for a while.
                    world.clock.advance(Duration::from_secs(10));
                    clients.swap_remove(index);
                }
                _ => {
                    *failures += u32::from(!connection.call(GET));
                    assert!(
                        *failures <= 1,
                        "seed {seed}, step {step}, a client of {} with {default}",
                        generation.name()
                    );
                }
            }
        }
        drop(clients);
        assert_eq!(world.gauge(|wire| &wire.connections), [0; 5], "seed {seed}");
        assert_eq!(world.gauge(|wire| &wire.clients), [0; 5], "seed {seed}");
    }
}
