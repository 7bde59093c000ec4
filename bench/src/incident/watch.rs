//! When the victim's keys are gone, and who comes then.

use super::{Spec, Variant, WATCHED};
use crate::{
    clock::{self, Instant},
    connection::{Connection, Segment, Tally},
    fleet::{self, Ports},
    keys::{KeyBatch, KeySpace},
};
use anyhow::ensure;
use mooncake_master::error::ErrorCode;
use std::{thread, time::Duration};

/// When the victim's keys were gone (the first and the last of those that are watched), seconds after its silence
/// began, and how long the mount of the variant took.
pub(super) struct Gone {
    pub(super) first: f64,
    pub(super) last: f64,
    pub(super) mounted: Option<f64>,
}

/// Looks at the victim's keys until they are gone, and does what the variant says once the first is.
pub(super) fn watch(
    ports: Ports,
    spec: &Spec,
    victim: &Segment,
    victims: KeySpace,
    begin: Instant,
) -> anyhow::Result<Gone> {
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
            return Ok(Gone { first, last: elapsed, mounted });
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
