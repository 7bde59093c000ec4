//! A flood of batch writes, and what heartbeats feel of it (C7).

use crate::{
    clock,
    connection::{Connection, Put, Tally},
    fleet::{self, Ports},
    keys::{KeyBatch, KeySpace},
    load::{Session, Slots},
    report::Figures,
    sample::Latencies,
};
use mooncake_master::types::Uuid;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

/// What a flood is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) connections: usize,
    pub(crate) duration: Duration,
    pub(crate) batch: u64,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: u64,
    /// Keys after which the flood ends early: they are the master's memory.
    pub(crate) max_keys: u64,
    /// Pings per second whose latency is taken.
    pub(crate) ping_rate: f64,
    /// Ping the main port although there is a heartbeat port.
    pub(crate) ping_main: bool,
}

/// Runs a flood.
pub(crate) fn run(session: &Session, spec: &Spec) -> anyhow::Result<(Figures, BTreeMap<String, u64>)> {
    let ports = session.ports;
    let ports = if spec.ping_main { Ports { heartbeat: ports.main, ..ports } } else { ports };
    // Two clients of their own: one whose Pings are timed, one that pings once a second like any client.
    let (timed, usual) = (fleet::segment(1000, 1 << 20), fleet::segment(1001, 1 << 20));
    let mut main = ports.open()?;
    for segment in [&timed, &usual] {
        fleet::mount(&mut main, &mut ports.open_heartbeat()?, segment)?;
    }
    let stop = AtomicBool::new(false);
    let put_keys = AtomicU64::new(0);
    let begin = clock::now();
    let used = session.instance.cpu();
    let (tally, pings, expired) = thread::scope(|scope| {
        let (stop, put_keys) = (&stop, &put_keys);
        let run = KeySpace::new_run();
        let pings = scope.spawn(move || ping(ports, timed.client, spec.ping_rate, stop));
        let expired = scope.spawn(move || ping(ports, usual.client, 1.0, stop));
        let flood: Vec<_> = (0..spec.connections)
            .map(|index| {
                scope.spawn(move || {
                    writer(ports, spec, KeySpace::new(run, index, spec.key_bytes), stop, put_keys)
                })
            })
            .collect();
        while begin.elapsed() < spec.duration && put_keys.load(Ordering::Relaxed) < spec.max_keys {
            thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        let mut tally = Tally::default();
        for writer in flood {
            tally.merge(&writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??);
        }
        let join = |thread: thread::ScopedJoinHandle<'_, std::io::Result<(Latencies, u64)>>| {
            anyhow::Ok(thread.join().map_err(|_| anyhow::anyhow!("a pinger panicked"))??)
        };
        let (latencies, one) = join(pings)?;
        let (_, other) = join(expired)?;
        anyhow::Ok((tally, latencies, one + other))
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let count = pings.len();
    let pings = pings.summary();
    let mut figures = vec![
        ("put_keys_per_s", tally.done as f64 / seconds),
        ("seconds", seconds),
        ("pings", count as f64),
        ("ping_p50_ms", pings.p50 / 1e3),
        ("ping_p99_ms", pings.p99 / 1e3),
        ("ping_max_ms", pings.max / 1e3),
        ("expired", expired as f64),
        ("fleet_expired", session.fleet.expired() as f64),
    ];
    let spent =
        session.instance.cpu().zip(used).map(|(after, before)| after.saturating_sub(before).as_secs_f64());
    figures.extend(spent.map(|spent| ("server_cpu_share", spent / seconds)));
    figures.extend(session.instance.resident().map(|bytes| ("rss_mb", bytes as f64 / 1e6)));
    Ok((figures, tally.refusals()))
}

fn writer(
    ports: Ports,
    spec: &Spec,
    space: KeySpace,
    stop: &AtomicBool,
    put_keys: &AtomicU64,
) -> anyhow::Result<Tally> {
    let mut connection = ports.open()?;
    let put =
        Put { client: Uuid { first: rand::random(), second: 2 }, size: spec.value_bytes, preferred: "" };
    let mut batch = KeyBatch::default();
    let (mut tally, mut next) = (Tally::default(), 0);
    while !stop.load(Ordering::Relaxed) {
        let numbers: Vec<u64> = (next..next + spec.batch).collect();
        next += spec.batch;
        let keys = batch.fill(space, numbers.into_iter());
        let mut started = Tally::default();
        connection.batch_put_start(put, keys, &mut started)?;
        if started.done == spec.batch {
            connection.batch_put_end(put, keys, &mut tally)?;
        } else {
            started.done = 0;
            tally.merge(&started);
        }
        put_keys.fetch_add(spec.batch, Ordering::Relaxed);
    }
    Ok(tally)
}

/// Pings at a rate, timed from the scheduled send; how often the client had expired.
fn ping(ports: Ports, client: Uuid, rate: f64, stop: &AtomicBool) -> std::io::Result<(Latencies, u64)> {
    let mut connection = Connection::open(ports.protocol, ports.heartbeat)?;
    let slots = Slots::new(rate);
    let (mut latencies, mut expired, mut was_there) = (Latencies::default(), 0, true);
    loop {
        let due = slots.next();
        clock::sleep_until(due);
        if stop.load(Ordering::Relaxed) {
            slots.overdue(due, &mut latencies);
            return Ok((latencies, expired));
        }
        let there = connection.ping(client)? == Ok(true);
        latencies.record(clock::now().saturating_duration_since(due));
        // It does not mount again: one expiry is counted once.
        expired += u64::from(was_there && !there);
        was_there = there;
    }
}
