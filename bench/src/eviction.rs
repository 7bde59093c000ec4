//! What eviction adds to the cost of a put: the same puts into a pool that is full, and into one with room, both with
//! about as many keys in them.

use crate::{
    connection::{Put, Tally},
    keys::{KeyBatch, KeySpace},
    load::{self, Session, Spec},
    report::{Figures, value},
};
use anyhow::Context as _;
use mooncake_master::types::Uuid;
use std::collections::BTreeMap;

/// The two pools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    pub(crate) clients: u64,
    /// GiB of a segment of the one that is full.
    pub(crate) full: u64,
    /// And of the one that is not.
    pub(crate) roomy: u64,
}

impl Pool {
    /// Keys that fill the smaller one up to where eviction has begun with any sensible watermark.
    fn keys(self, value_bytes: u64) -> u64 {
        self.clients * (self.full << 30) / value_bytes / 100 * 97
    }
}

/// Measures both, the one first in even rounds and the other in odd ones. `open` starts a master with segments of so
/// many GiB.
pub(crate) fn run(
    open: impl Fn(u64) -> anyhow::Result<Session>,
    spec: &Spec,
    pool: Pool,
    round: usize,
) -> anyhow::Result<(Figures, BTreeMap<String, u64>)> {
    let measure = |gib| {
        let mut session = open(gib)?;
        fill(&session, spec, pool.keys(spec.value_bytes))?;
        load::run(&mut session, spec)
    };
    let ((full, refused), (roomy, _)) = if round.is_multiple_of(2) {
        let roomy = measure(pool.roomy)?;
        (measure(pool.full)?, roomy)
    } else {
        (measure(pool.full)?, measure(pool.roomy)?)
    };
    let of = |figures: &Figures, name| {
        value(figures, name).with_context(|| format!("no {name}: the pid is needed"))
    };
    let cpu = "server_cpu_us_per_item";
    let done = of(&full, "items_per_s")? * spec.duration.as_secs_f64();
    let rejected = refused.values().sum::<u64>() as f64;
    let figures = vec![
        ("full_ratio", of(&full, cpu)? / of(&roomy, cpu)?),
        ("full_cpu_us_per_put", of(&full, cpu)?),
        ("roomy_cpu_us_per_put", of(&roomy, cpu)?),
        ("full_puts_per_s", of(&full, "items_per_s")?),
        ("roomy_puts_per_s", of(&roomy, "items_per_s")?),
        ("full_p99_us", of(&full, "p99_us")?),
        ("roomy_p99_us", of(&roomy, "p99_us")?),
        ("full_refused_share", rejected / (rejected + done).max(1.0)),
    ];
    Ok((figures, refused))
}

/// Puts so many keys. Those for which there is no room at the moment are not missed.
fn fill(session: &Session, spec: &Spec, keys: u64) -> anyhow::Result<()> {
    let mut connection = session.ports.open()?;
    let space = KeySpace::new(KeySpace::new_run(), 0, spec.key_bytes);
    let put =
        Put { client: Uuid { first: rand::random(), second: 6 }, size: spec.value_bytes, preferred: "" };
    let mut batch = KeyBatch::default();
    let mut unheeded = Tally::default();
    for first in (0..keys).step_by(128) {
        let numbers: Vec<u64> = (first..keys.min(first + 128)).collect();
        let keys = batch.fill(space, numbers.into_iter());
        connection.batch_put_start(put, keys, &mut unheeded)?;
        connection.batch_put_end(put, keys, &mut unheeded)?;
    }
    Ok(())
}
