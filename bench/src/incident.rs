//! A client with many keys falls silent, and what everybody else feels while its keys are swept away.

use crate::{
    clock::{self, Instant},
    connection::{Connection, Put, Segment, Tally},
    fleet::{self, Fleet, Ports},
    keys::{Draw, KeyBatch, KeySpace},
    load::Slots,
    report::Figures,
    sample::Latencies,
    target::Instance,
};
use anyhow::ensure;
use mooncake_master::{error::ErrorCode, types::Uuid};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// What happens when the sweep has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Variant {
    /// Nothing.
    Alone,
    /// The victim comes back 100 ms later and mounts again.
    Remount,
    /// A new client mounts 100 ms later.
    NewClient,
}

impl Variant {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Variant::Alone => "alone",
            Variant::Remount => "remount",
            Variant::NewClient => "new-client",
        }
    }
}

/// What an incident is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) variant: Variant,
    /// Keys in the victim's memory.
    pub(crate) victim_keys: u64,
    /// Keys in another client's memory, of which 10,000 are read all the time.
    pub(crate) other_keys: u64,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: u64,
    /// Gives up waiting for the sweep after this.
    pub(crate) limit: Duration,
}

/// The load of the others, calls per second and connections.
const LOAD: [(Call, f64, usize); 3] =
    [(Call::Get, 1000.0, 8), (Call::Exist, 1000.0, 8), (Call::Ping, 200.0, 4)];
/// Keys that are read.
const READ_KEYS: u64 = 10_000;
/// Victim's keys that are looked at to see the sweep.
const WATCHED: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Get,
    Exist,
    Ping,
}

/// Runs an incident against a master with short TTLs.
pub(crate) fn run(
    instance: &Instance,
    ports: Ports,
    spec: &Spec,
) -> anyhow::Result<(Figures, BTreeMap<String, u64>)> {
    ensure!(
        spec.other_keys >= READ_KEYS,
        "--other-keys: at least {READ_KEYS}, these are read during the incident"
    );
    ensure!(spec.victim_keys >= WATCHED, "--victim-keys: at least {WATCHED}");
    let others = Fleet::start(ports, 1, 8 << 40)?;
    let other = others.segments[0].clone();
    let victim = fleet::segment(1, 8 << 40);
    let (mut main, mut heartbeat) = (ports.open()?, ports.open_heartbeat()?);
    fleet::mount(&mut main, &mut heartbeat, &victim)?;
    let run = KeySpace::new_run();
    let (victims, read) = (KeySpace::new(run, 0, spec.key_bytes), KeySpace::new(run, 1, spec.key_bytes));
    let fallen_silent = AtomicBool::new(false);
    thread::scope(|scope| {
        // Filling takes longer than a TTL: the victim pings meanwhile.
        let alive = scope.spawn(|| -> anyhow::Result<()> {
            while !fallen_silent.load(Ordering::Relaxed) {
                let there = heartbeat.ping(victim.client)?;
                ensure!(there == Ok(true), "the victim expired while its keys were put: {there:?}");
                thread::sleep(Duration::from_millis(500));
            }
            Ok(())
        });
        let filled = put(ports, &victim, victims, spec.victim_keys, spec.value_bytes)
            .and_then(|()| put(ports, &other, read, spec.other_keys, spec.value_bytes));
        fallen_silent.store(true, Ordering::Relaxed);
        alive.join().map_err(|_| anyhow::anyhow!("the victim panicked"))??;
        filled
    })?;
    incident(instance, ports, spec, &others, &victim, victims, read)
}

fn put(ports: Ports, segment: &Segment, space: KeySpace, keys: u64, size: u64) -> anyhow::Result<()> {
    // As somebody who mounts nothing: what the silent client's own unfinished puts do is another matter.
    let client = Uuid { first: rand::random(), second: 4 };
    ports.open()?.fill(Put { client, size, preferred: &segment.name }, space, 0..keys)
}

fn incident(
    instance: &Instance,
    ports: Ports,
    spec: &Spec,
    others: &Fleet,
    victim: &Segment,
    victims: KeySpace,
    read: KeySpace,
) -> anyhow::Result<(Figures, BTreeMap<String, u64>)> {
    let stop = AtomicBool::new(false);
    let slots = LOAD.map(|(_, rate, _)| Slots::new(rate));
    let pinged = others.segments[0].client;
    let begin = clock::now();
    let used = instance.cpu();
    let (seen, swept) = thread::scope(|scope| {
        let stop = &stop;
        let mut load = Vec::new();
        for ((call, _, connections), slots) in LOAD.into_iter().zip(&slots) {
            load.extend(
                (0..connections)
                    .map(|_| (call, scope.spawn(move || caller(ports, call, read, pinged, slots, stop)))),
            );
        }
        let swept = watch(ports, spec, victim, victims, begin);
        thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
        let mut seen: Vec<(Call, Latencies, Tally)> =
            LOAD.iter().map(|(call, ..)| (*call, Latencies::default(), Tally::default())).collect();
        for (call, thread) in load {
            let (latencies, tally) = thread.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??;
            for (_, all, counts) in seen.iter_mut().filter(|(of, ..)| *of == call) {
                all.merge(latencies.clone());
                counts.merge(&tally);
            }
        }
        anyhow::Ok((seen, swept?))
    })?;
    let mut figures = Figures::new();
    let mut refused = Tally::default();
    let mut longest = 0.0f64;
    for (call, latencies, tally) in seen {
        let summary = latencies.summary();
        let [p99, max] = match call {
            Call::Get => ["get_p99_ms", "get_longest_ms"],
            Call::Exist => ["exist_p99_ms", "exist_longest_ms"],
            Call::Ping => ["ping_p99_ms", "ping_longest_ms"],
        };
        figures.extend([(p99, summary.p99 / 1e3), (max, summary.max / 1e3)]);
        longest = longest.max(summary.max / 1e3);
        refused.merge(&tally);
    }
    figures.insert(0, ("longest_stall_ms", longest));
    figures.extend([("gone_after_s", swept.first), ("gone_for_s", swept.last - swept.first)]);
    figures.extend(swept.mounted.map(|seconds| ("mount_took_s", seconds)));
    figures.push(("others_expired", others.expired() as f64));
    let spent = instance.cpu().zip(used).map(|(after, before)| after.saturating_sub(before).as_secs_f64());
    figures.extend(spent.map(|spent| ("server_cpu_s", spent)));
    Ok((figures, refused.refusals()))
}

fn caller(
    ports: Ports,
    call: Call,
    read: KeySpace,
    pinged: Uuid,
    slots: &Slots,
    stop: &AtomicBool,
) -> anyhow::Result<(Latencies, Tally)> {
    let mut connection = if call == Call::Ping { ports.open_heartbeat()? } else { ports.open()? };
    let (mut latencies, mut tally, mut draw, mut key) =
        (Latencies::default(), Tally::default(), Draw::new(), Vec::new());
    loop {
        let due = slots.next();
        clock::sleep_until(due);
        if stop.load(Ordering::Relaxed) {
            slots.overdue(due, &mut latencies);
            return Ok((latencies, tally));
        }
        read.write(draw.below(READ_KEYS), &mut key);
        match call {
            Call::Get => connection.get(&key, &mut tally)?,
            Call::Exist => connection.exist(&key, &mut tally)?,
            Call::Ping => {
                connection.ping(pinged)?.map_err(|code| anyhow::anyhow!("Ping: error code {code}"))?;
            }
        }
        latencies.record(clock::now().saturating_duration_since(due));
    }
}

/// When the victim's keys were gone (the first and the last of those that are watched), seconds after its silence
/// began, and how long the mount of the variant took.
struct Swept {
    first: f64,
    last: f64,
    mounted: Option<f64>,
}

/// Looks at the victim's keys until they are gone, and does what the variant says once the first is.
fn watch(
    ports: Ports,
    spec: &Spec,
    victim: &Segment,
    victims: KeySpace,
    begin: Instant,
) -> anyhow::Result<Swept> {
    let mut connection = ports.open()?;
    let mut batch = KeyBatch::default();
    let numbers: Vec<u64> = (0..WATCHED).map(|index| index * (spec.victim_keys / WATCHED)).collect();
    let keys = batch.fill(victims, numbers.into_iter());
    let limit = spec.limit;
    let gone_code = ErrorCode::ObjectNotFound.number();
    let mut first = None;
    let mut mounting: Option<thread::JoinHandle<anyhow::Result<f64>>> = None;
    loop {
        let mut tally = Tally::default();
        connection.batch_get(keys, &mut tally)?;
        let gone = tally.refused.get(&gone_code).copied().unwrap_or_default();
        let elapsed = begin.elapsed().as_secs_f64();
        if gone > 0 && first.is_none() {
            first = Some(elapsed);
            mounting = match spec.variant {
                Variant::Alone => None,
                Variant::Remount => {
                    let victim = victim.clone();
                    Some(thread::spawn(move || come_back(ports, &victim, begin + limit)))
                }
                Variant::NewClient => {
                    Some(thread::spawn(move || come_back(ports, &fleet::segment(2, 1 << 30), begin + limit)))
                }
            };
        }
        if let (WATCHED, Some(first)) = (gone, first) {
            let mounted = match mounting {
                Some(thread) => Some(thread.join().map_err(|_| anyhow::anyhow!("the mount panicked"))??),
                None => None,
            };
            return Ok(Swept { first, last: elapsed, mounted });
        }
        ensure!(
            begin.elapsed() < spec.limit,
            "{gone} of {WATCHED} watched keys were gone after {:?}: are the master's TTLs short?",
            spec.limit
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// A client that mounts 100 ms from now, again and again while it is refused; seconds until it was done.
fn come_back(ports: Ports, segment: &Segment, limit: Instant) -> anyhow::Result<f64> {
    thread::sleep(Duration::from_millis(100));
    let begin = clock::now();
    let mut connection = Connection::open(ports.protocol, ports.main)?;
    loop {
        match connection.remount(segment)? {
            Ok(()) => return Ok(begin.elapsed().as_secs_f64()),
            Err(code) => ensure!(clock::now() < limit, "ReMountSegment: error code {code} to the end"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}
