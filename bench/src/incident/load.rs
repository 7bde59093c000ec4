//! The load of the others: open loop, timed from the scheduled send.

use crate::{
    clock,
    connection::{Connection, Put, Segment, Tally},
    fleet::Ports,
    keys::{Draw, KeySpace},
    load::Slots,
    sample::{Latencies, Summary},
};
use mooncake_master::types::Uuid;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Keys that are read.
pub(super) const READ_KEYS: u64 = 10_000;

/// Calls per second and connections of each kind.
const LOAD: [(Call, f64, usize); 5] = [
    (Call::Get, 1000.0, 8),
    (Call::Exist, 1000.0, 8),
    (Call::Ping, 200.0, 4),
    (Call::Put, 200.0, 4),
    (Call::Health, 10.0, 1),
];

/// What the others call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Get,
    Exist,
    Ping,
    /// A start and its end, timed as one.
    Put,
    /// Not counted as a stall: it may rightly take its time. Absent where the master does not know it.
    Health,
}

impl Call {
    /// The names of p99 and longest.
    pub(super) fn figures(self) -> [&'static str; 2] {
        match self {
            Call::Get => ["get_p99_ms", "get_longest_ms"],
            Call::Exist => ["exist_p99_ms", "exist_longest_ms"],
            Call::Ping => ["ping_p99_ms", "ping_longest_ms"],
            Call::Put => ["put_p99_ms", "put_longest_ms"],
            Call::Health => ["health_p99_ms", "health_longest_ms"],
        }
    }
}

/// Who calls, and for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others<'a> {
    pub(super) ports: Ports,
    /// What is read.
    pub(super) read: KeySpace,
    pub(super) run: u16,
    pub(super) key_bytes: usize,
    /// Where the puts go, and the client that is pinged.
    pub(super) segment: &'a Segment,
    /// Bytes of a value that is put.
    pub(super) value: u64,
}

/// What they felt.
#[derive(Clone, Debug)]
pub(super) struct Felt {
    /// Latencies in microseconds of every call but Health.
    pub(super) calls: Vec<(Call, Summary)>,
    pub(super) refused: Tally,
    /// How often HealthCheck was not ok; none where it is not known.
    pub(super) unhealthy: Option<u64>,
}

/// What one caller saw.
#[derive(Clone, Debug, Default)]
struct Seen {
    latencies: Latencies,
    tally: Tally,
    unhealthy: Option<u64>,
}

impl Others<'_> {
    /// Calls while `meanwhile` runs; each phase writes keys of its own.
    pub(super) fn load<T>(
        self,
        phase: usize,
        meanwhile: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(Felt, T)> {
        let stop = AtomicBool::new(false);
        let slots = LOAD.map(|(_, rate, _)| Slots::new(rate));
        thread::scope(|scope| {
            let stop = &stop;
            let mut callers = Vec::new();
            for ((call, _, connections), slots) in LOAD.into_iter().zip(&slots) {
                for index in 0..connections {
                    let writes = KeySpace::new(self.run, 16 + phase * 64 + index, self.key_bytes);
                    let caller = scope.spawn(move || self.caller(call, writes, slots, stop));
                    callers.push((call, caller));
                }
            }
            let result = meanwhile();
            stop.store(true, Ordering::Relaxed);
            let mut seen = LOAD.map(|(call, ..)| (call, Seen::default()));
            for (call, caller) in callers {
                let one = caller.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??;
                for (_, all) in seen.iter_mut().filter(|(of, _)| *of == call) {
                    all.latencies.merge(one.latencies.clone());
                    all.tally.merge(&one.tally);
                    all.unhealthy = one.unhealthy.or(all.unhealthy);
                }
            }
            let (mut refused, mut unhealthy, mut calls) = (Tally::default(), None, Vec::new());
            for (call, seen) in seen {
                refused.merge(&seen.tally);
                unhealthy = seen.unhealthy.or(unhealthy);
                if call != Call::Health {
                    calls.push((call, seen.latencies.summary()));
                }
            }
            Ok((Felt { calls, refused, unhealthy }, result?))
        })
    }

    fn caller(self, call: Call, writes: KeySpace, slots: &Slots, stop: &AtomicBool) -> anyhow::Result<Seen> {
        let mut connection =
            if call == Call::Ping { self.ports.open_heartbeat()? } else { self.ports.open()? };
        let put = Put {
            client: Uuid { first: rand::random(), second: 5 },
            size: self.value,
            preferred: &self.segment.name,
        };
        let (mut seen, mut draw, mut key, mut written) = (Seen::default(), Draw::new(), Vec::new(), 0);
        loop {
            let due = slots.next();
            clock::sleep_until(due);
            if stop.load(Ordering::Relaxed) {
                slots.overdue(due, &mut seen.latencies);
                return Ok(seen);
            }
            self.read.write(draw.below(READ_KEYS), &mut key);
            match call {
                Call::Get => connection.get(&key, &mut seen.tally)?,
                Call::Exist => connection.exist(&key, &mut seen.tally)?,
                Call::Ping => ping(&mut connection, self.segment.client)?,
                Call::Put => {
                    writes.write(written, &mut key);
                    written += 1;
                    connection.put_start(put, &key, &mut seen.tally)?;
                    connection.put_end(put, &key, &mut seen.tally)?;
                }
                Call::Health => match connection.health()? {
                    Some(ok) => seen.unhealthy = Some(seen.unhealthy.unwrap_or(0) + u64::from(!ok)),
                    None => return Ok(seen),
                },
            }
            seen.latencies.record(clock::now().saturating_duration_since(due));
        }
    }
}

fn ping(connection: &mut Connection, client: Uuid) -> anyhow::Result<()> {
    connection.ping(client)?.map_err(|code| anyhow::anyhow!("Ping: error code {code}"))?;
    Ok(())
}
