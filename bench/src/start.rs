//! How long a master takes to serve, and what it needs while nobody calls.

use crate::{
    clock,
    connection::{Connection, Tally},
    report::Figures,
    target::Target,
};
use anyhow::Context as _;
use std::{thread, time::Duration};

/// Starts it, asks one question, and lets it be for `settle`.
pub(crate) fn run(target: &Target, settle: Duration) -> anyhow::Result<Figures> {
    let instance = target.start()?;
    let accepted = clock::now();
    let accepting = instance.start.context("a start is measured of spawn: targets only")?;
    let mut tally = Tally::default();
    Connection::open(target.protocol, instance.address)?.exist(b"mooncake-bench", &mut tally)?;
    let serving = accepting + accepted.elapsed();
    thread::sleep(settle);
    let mut figures =
        vec![("serving_ms", serving.as_secs_f64() * 1e3), ("accepting_ms", accepting.as_secs_f64() * 1e3)];
    figures.extend(instance.resident().map(|bytes| ("idle_rss_mb", bytes as f64 / 1e6)));
    Ok(figures)
}
