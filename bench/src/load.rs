//! The workloads: closed loop (one call in flight per connection) or open loop (a rate, latency from the scheduled
//! send).

use crate::{
    clock::{self, Instant},
    connection::{Connection, Put, Tally},
    fleet::{Fleet, Ports},
    keys::{Draw, KeyBatch, KeySpace},
    report::Figures,
    sample::Latencies,
    target::{Instance, own_cpu},
};
use mooncake_master::types::Uuid;
use std::{
    collections::BTreeMap,
    sync::{
        Barrier,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Op {
    /// PutStart and PutEnd of a new key.
    Put,
    /// The same for a batch, counted per key.
    Batchput,
    /// GetReplicaList of a prefilled key.
    Get,
    /// BatchGetReplicaList, counted per key.
    Batchget,
    /// ExistKey of a prefilled key.
    Exist,
    /// BatchExistKey, counted per key.
    Batchexist,
    /// Ping of a mounted client.
    Ping,
}

impl Op {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Put => "put",
            Op::Batchput => "batchput",
            Op::Get => "get",
            Op::Batchget => "batchget",
            Op::Exist => "exist",
            Op::Batchexist => "batchexist",
            Op::Ping => "ping",
        }
    }

    fn reads(self) -> bool {
        matches!(self, Op::Get | Op::Batchget | Op::Exist | Op::Batchexist)
    }
}

/// What a load run is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) op: Op,
    pub(crate) connections: usize,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
    /// Keys of one batch.
    pub(crate) batch: u64,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: u64,
    /// Keys that each worker draws from.
    pub(crate) prefill: u64,
    /// Calls per second of all connections together; `None` is a closed loop.
    pub(crate) rate: Option<f64>,
}

/// A master with its segment clients, across workloads.
pub(crate) struct Session {
    // Before the instance: it is dropped first, while there is still somebody to ping.
    pub(crate) fleet: Fleet,
    pub(crate) ports: Ports,
    pub(crate) instance: Instance,
    read_run: u16,
    /// Workers whose keys are there, and of which length and number.
    prefilled: (usize, usize, u64),
}

impl Session {
    pub(crate) fn new(instance: Instance, ports: Ports, fleet: Fleet) -> Session {
        Session { fleet, ports, instance, read_run: KeySpace::new_run(), prefilled: (0, 0, 0) }
    }

    /// Puts the keys that the connections of `spec` read, unless they are there.
    pub(crate) fn prefill(&mut self, spec: &Spec) -> anyhow::Result<()> {
        let (mut done, key_bytes, keys) = self.prefilled;
        if (key_bytes, keys) != (spec.key_bytes, spec.prefill) {
            (done, self.read_run) = (0, KeySpace::new_run());
        }
        if done < spec.connections {
            let mut connection = self.ports.open()?;
            for worker in done..spec.connections {
                let space = KeySpace::new(self.read_run, worker, spec.key_bytes);
                let put = Put {
                    client: Uuid { first: rand::random(), second: 1 },
                    size: spec.value_bytes,
                    preferred: "",
                };
                connection.fill(put, space, 0..spec.prefill)?;
            }
            done = spec.connections;
        }
        self.prefilled = (done, spec.key_bytes, spec.prefill);
        Ok(())
    }
}

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

/// One connection's part.
struct Worker {
    connection: Connection,
    spec: Spec,
    reads: KeySpace,
    writes: KeySpace,
    written: u64,
    client: Uuid,
    pinged: Vec<Uuid>,
    draw: Draw,
    key: Vec<u8>,
    batch: KeyBatch,
}

/// What a worker saw while it was measured.
#[derive(Default)]
struct Seen {
    latencies: Latencies,
    tally: Tally,
}

impl Worker {
    /// One item or batch; when its first call was answered.
    fn step(&mut self, tally: &mut Tally) -> std::io::Result<Instant> {
        let put = Put { client: self.client, size: self.spec.value_bytes, preferred: "" };
        let batch = self.spec.batch;
        match self.spec.op {
            Op::Put => {
                self.writes.write(self.written, &mut self.key);
                self.written += 1;
                let mut started = Tally::default();
                self.connection.put_start(put, &self.key, &mut started)?;
                let answered = clock::now();
                if started.done == 1 {
                    self.connection.put_end(put, &self.key, tally)?;
                } else {
                    tally.merge(&started);
                }
                return Ok(answered);
            }
            Op::Batchput => {
                let numbers: Vec<u64> = (self.written..self.written + batch).collect();
                self.written += batch;
                let keys = self.batch.fill(self.writes, numbers.into_iter());
                let mut started = Tally::default();
                self.connection.batch_put_start(put, keys, &mut started)?;
                let answered = clock::now();
                if started.done == batch {
                    self.connection.batch_put_end(put, keys, tally)?;
                } else {
                    started.done = 0;
                    tally.merge(&started);
                }
                return Ok(answered);
            }
            Op::Get | Op::Exist => {
                self.reads.write(self.draw.below(self.spec.prefill), &mut self.key);
                if self.spec.op == Op::Get {
                    self.connection.get(&self.key, tally)?;
                } else {
                    self.connection.exist(&self.key, tally)?;
                }
            }
            Op::Batchget | Op::Batchexist => {
                let numbers: Vec<u64> = (0..batch).map(|_| self.draw.below(self.spec.prefill)).collect();
                let keys = self.batch.fill(self.reads, numbers.into_iter());
                if self.spec.op == Op::Batchget {
                    self.connection.batch_get(keys, tally)?;
                } else {
                    self.connection.batch_exist(keys, tally)?;
                }
            }
            Op::Ping => {
                let client = self.pinged[self.draw.below(self.pinged.len() as u64) as usize];
                match self.connection.ping(client)? {
                    Ok(true) => tally.done += 1,
                    Ok(false) => *tally.refused.entry(1).or_default() += 1,
                    Err(code) => *tally.refused.entry(code).or_default() += 1,
                }
            }
        }
        Ok(clock::now())
    }

    fn closed_loop(mut self, phase: &AtomicU8) -> std::io::Result<Seen> {
        let mut seen = Seen::default();
        let mut unmeasured = Tally::default();
        loop {
            let measured = match phase.load(Ordering::Relaxed) {
                OVER => return Ok(seen),
                phase => phase == MEASURING,
            };
            let begin = clock::now();
            if measured {
                let answered = self.step(&mut seen.tally)?;
                seen.latencies.record(answered - begin);
            } else {
                self.step(&mut unmeasured)?;
            }
        }
    }

    fn open_loop(mut self, phase: &AtomicU8, slots: &Slots) -> std::io::Result<Seen> {
        let mut seen = Seen::default();
        let mut unmeasured = Tally::default();
        loop {
            let due = slots.next();
            clock::sleep_until(due);
            match phase.load(Ordering::Relaxed) {
                OVER => {
                    slots.overdue(due, &mut seen.latencies);
                    return Ok(seen);
                }
                MEASURING => {
                    let answered = self.step(&mut seen.tally)?;
                    seen.latencies.record(answered.saturating_duration_since(due));
                }
                _ => {
                    self.step(&mut unmeasured)?;
                }
            }
        }
    }
}

/// The times at which an open loop sends, shared by its connections.
pub(crate) struct Slots {
    begin: Instant,
    period: Duration,
    next: AtomicU64,
}

impl Slots {
    /// From now on, `rate` a second.
    pub(crate) fn new(rate: f64) -> Slots {
        Slots { begin: clock::now(), period: Duration::from_secs_f64(1.0 / rate), next: AtomicU64::new(0) }
    }

    /// The next one, whoever asks.
    pub(crate) fn next(&self) -> Instant {
        let slot = self.next.fetch_add(1, Ordering::Relaxed);
        self.begin + Duration::from_nanos((self.period.as_nanos() * u128::from(slot)) as u64)
    }

    /// At the end: the sends that are due, `due` among them, and will not happen count with the time they have waited.
    /// Without it a stall that lasts to the end would not be seen.
    pub(crate) fn overdue(&self, mut due: Instant, latencies: &mut Latencies) {
        let now = clock::now();
        // What is due within a millisecond may just not have had its turn.
        while now.saturating_duration_since(due) > Duration::from_millis(1) {
            latencies.record(now - due);
            due = self.next();
        }
    }
}

/// Runs a workload.
pub(crate) fn run(session: &mut Session, spec: &Spec) -> anyhow::Result<(Figures, BTreeMap<String, u64>)> {
    if spec.op.reads() {
        session.prefill(spec)?;
    }
    let write_run = KeySpace::new_run();
    let pinged: Vec<Uuid> = session.fleet.segments.iter().map(|segment| segment.client).collect();
    let workers = (0..spec.connections).map(|index| {
        Ok(Worker {
            connection: session.ports.open()?,
            spec: *spec,
            reads: KeySpace::new(session.read_run, index, spec.key_bytes),
            writes: KeySpace::new(write_run, index, spec.key_bytes),
            written: 0,
            client: Uuid { first: rand::random(), second: index as u64 },
            pinged: pinged.clone(),
            draw: Draw::new(),
            key: Vec::new(),
            batch: KeyBatch::default(),
        })
    });
    let workers = workers.collect::<anyhow::Result<Vec<_>>>()?;
    let phase = AtomicU8::new(WARMING);
    let ready = Barrier::new(workers.len() + 1);
    let slots = spec.rate.map(Slots::new);
    let (seen, elapsed, server, own) = thread::scope(|scope| {
        let running: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                scope.spawn(|| {
                    ready.wait();
                    match &slots {
                        Some(slots) => worker.open_loop(&phase, slots),
                        None => worker.closed_loop(&phase),
                    }
                })
            })
            .collect();
        ready.wait();
        thread::sleep(spec.warmup);
        let used = || (session.instance.cpu(), own_cpu());
        let (before, begin) = (used(), clock::now());
        phase.store(MEASURING, Ordering::Relaxed);
        thread::sleep(spec.duration);
        phase.store(OVER, Ordering::Relaxed);
        let (after, elapsed) = (used(), begin.elapsed());
        let mut seen = Seen::default();
        for worker in running {
            let part = worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
            seen.latencies.merge(part.latencies);
            seen.tally.merge(&part.tally);
        }
        let spent = |before: Option<Duration>, after: Option<Duration>| Some(after?.saturating_sub(before?));
        anyhow::Ok((seen, elapsed, spent(before.0, after.0), spent(before.1, after.1)))
    })?;
    let items = seen.tally.done.max(1) as f64;
    let calls = seen.latencies.len();
    let per_item = |time: Duration| time.as_secs_f64() * 1e6 / items;
    let latency = seen.latencies.summary();
    let mut figures = vec![("items_per_s", seen.tally.done as f64 / elapsed.as_secs_f64())];
    figures.extend(server.map(|time| ("server_cpu_us_per_item", per_item(time))));
    figures.push(("p50_us", latency.p50));
    figures.push(("p99_us", latency.p99));
    figures.push(("p999_us", latency.p999));
    figures.push(("max_us", latency.max));
    figures.push(("calls", calls as f64));
    figures.extend(own.map(|time| ("load_cpu_us_per_item", per_item(time))));
    figures.extend(session.instance.resident().map(|bytes| ("rss_mb", bytes as f64 / 1e6)));
    Ok((figures, seen.tally.refusals()))
}
