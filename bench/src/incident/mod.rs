//! A client with many keys falls silent, and what everybody else feels while its keys are swept away.
//!
//! The same load runs twice against the same master with the same keys: first while the victim is alive, then while it
//! is retired. What the incident costs the others is the difference.

mod admin;
mod load;
mod watch;

use crate::{
    clock,
    connection::{Connection, Put, Segment},
    fleet::{self, Fleet, Ports},
    keys::KeySpace,
    report::Figures,
    target::Instance,
};
use admin::Swept;
use anyhow::ensure;
use load::{Felt, Others};
use mooncake_master::types::Uuid;
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
    /// How long the load runs before the incident, for comparison.
    pub(crate) quiet: Duration,
    /// Gives up waiting for the sweep after this.
    pub(crate) limit: Duration,
}

/// Victim's keys that are looked at to see the sweep.
const WATCHED: u64 = 256;
/// How long the load goes on after the sweep.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Runs an incident against a master with short TTLs.
pub(crate) fn run(
    instance: &Instance,
    ports: Ports,
    spec: &Spec,
) -> anyhow::Result<(Figures, BTreeMap<String, u64>)> {
    ensure!(
        spec.other_keys >= load::READ_KEYS,
        "--other-keys: at least {}, these are read during the incident",
        load::READ_KEYS
    );
    ensure!(spec.victim_keys >= WATCHED, "--victim-keys: at least {WATCHED}");
    let fleet = Fleet::start(ports, 1, 8 << 40)?;
    let other = fleet.segments[0].clone();
    let victim = fleet::segment(1, 8 << 40);
    let (mut main, mut heartbeat) = (ports.open()?, ports.open_heartbeat()?);
    fleet::mount(&mut main, &mut heartbeat, &victim)?;
    let run = KeySpace::new_run();
    let (victims, read) = (KeySpace::new(run, 0, spec.key_bytes), KeySpace::new(run, 1, spec.key_bytes));
    let others =
        Others { ports, read, run, key_bytes: spec.key_bytes, segment: &other, value: spec.value_bytes };
    // Filling and the quiet run take longer than a TTL: the victim pings meanwhile.
    let quiet = while_alive(heartbeat, victim.client, || {
        put(ports, &victim, victims, spec.victim_keys, spec.value_bytes)?;
        put(ports, &other, read, spec.other_keys, spec.value_bytes)?;
        let (felt, ()) = others.load(0, || {
            thread::sleep(spec.quiet);
            Ok(())
        })?;
        Ok(felt)
    })?;
    let (begin, used, before) = (clock::now(), instance.cpu(), Swept::read(instance));
    let (felt, gone) = others.load(1, || {
        let gone = watch::watch(ports, spec, &victim, victims, begin)?;
        // What is isolated at once may be swept for a while after.
        let done = Swept::wait(instance, begin, spec.limit)?;
        thread::sleep(AFTERWARDS);
        Ok((gone, done))
    })?;
    let (gone, done) = gone;
    let mut figures = compare(&quiet, &felt);
    figures.extend([("gone_after_s", gone.first), ("gone_for_s", gone.last - gone.first)]);
    figures.extend(gone.mounted.map(|seconds| ("mount_took_s", seconds)));
    figures.push(("others_expired", fleet.expired() as f64));
    if let (Some(before), Some((swept_after, after))) = (before, done) {
        figures.extend([
            ("swept_after_s", swept_after.as_secs_f64()),
            ("offboarding_work_ms", (after.work_seconds - before.work_seconds) * 1e3),
            ("keys_visited", after.visited_keys - before.visited_keys),
        ]);
    }
    let spent = instance.cpu().zip(used).map(|(after, before)| after.saturating_sub(before).as_secs_f64());
    figures.extend(spent.map(|spent| ("server_cpu_s", spent)));
    Ok((figures, felt.refused.refusals()))
}

/// Does something while that client is pinged twice a second; it is silent from the end on.
fn while_alive<T>(
    mut heartbeat: Connection,
    client: Uuid,
    meanwhile: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let fallen_silent = AtomicBool::new(false);
    thread::scope(|scope| {
        let alive = scope.spawn(|| -> anyhow::Result<()> {
            while !fallen_silent.load(Ordering::Relaxed) {
                let there = heartbeat.ping(client)?;
                ensure!(there == Ok(true), "the victim expired before its time: {there:?}");
                thread::sleep(Duration::from_millis(500));
            }
            Ok(())
        });
        let result = meanwhile();
        fallen_silent.store(true, Ordering::Relaxed);
        alive.join().map_err(|_| anyhow::anyhow!("the victim panicked"))??;
        result
    })
}

fn put(ports: Ports, segment: &Segment, space: KeySpace, keys: u64, size: u64) -> anyhow::Result<()> {
    // As somebody who mounts nothing: what the silent client's own unfinished puts do is another matter.
    let client = Uuid { first: rand::random(), second: 4 };
    ports.open()?.fill(Put { client, size, preferred: &segment.name }, space, 0..keys)
}

/// What the others felt, call by call, and how much more than in the quiet run the worst of it was.
fn compare(quiet: &Felt, felt: &Felt) -> Figures {
    let longest = |felt: &Felt| felt.calls.iter().map(|(_, summary)| summary.max).fold(0.0, f64::max);
    let p99_over = felt.calls.iter().zip(&quiet.calls).map(|((_, felt), (_, quiet))| felt.p99 - quiet.p99);
    let mut figures = vec![
        ("longest_stall_ms", longest(felt) / 1e3),
        ("longest_over_quiet_ms", (longest(felt) - longest(quiet)) / 1e3),
        ("p99_over_quiet_ms", p99_over.fold(f64::NEG_INFINITY, f64::max) / 1e3),
    ];
    for (call, summary) in &felt.calls {
        let [p99, longest] = call.figures();
        figures.extend([(p99, summary.p99 / 1e3), (longest, summary.max / 1e3)]);
    }
    figures.extend(felt.unhealthy.map(|times| ("health_not_ok", times as f64)));
    figures
}
