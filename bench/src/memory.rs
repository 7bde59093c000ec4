//! What keys cost in memory, and what is given back.

use crate::{connection::Put, keys::KeySpace, load::Session, report::Figures};
use anyhow::Context as _;
use mooncake_master::types::Uuid;
use std::{thread, time::Duration};

/// Fills connections, which share the work.
const FILLERS: u64 = 4;
/// What was freed on the way (tables that have grown) is given back a little later.
const SETTLED: Duration = Duration::from_secs(3);

/// Puts `keys` keys of `key_bytes` bytes, then removes them.
pub(crate) fn run(
    session: &Session,
    keys: u64,
    key_bytes: usize,
    value_bytes: u64,
) -> anyhow::Result<Figures> {
    let resident = || session.instance.resident().context("memory needs the master's pid: spawn: or ,pid=N");
    let before = resident()?;
    let (run, ports) = (KeySpace::new_run(), session.ports);
    let part = keys.div_ceil(FILLERS);
    let begin = crate::clock::now();
    thread::scope(|scope| {
        let fillers: Vec<_> = (0..FILLERS)
            .map(|index| {
                scope.spawn(move || {
                    let put = Put {
                        client: Uuid { first: rand::random(), second: 3 },
                        size: value_bytes,
                        preferred: "",
                    };
                    let numbers = (index * part).min(keys)..((index + 1) * part).min(keys);
                    ports.open()?.fill(put, KeySpace::new(run, 0, key_bytes), numbers)
                })
            })
            .collect();
        fillers
            .into_iter()
            .try_for_each(|filler| filler.join().map_err(|_| anyhow::anyhow!("a filler panicked"))?)
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    thread::sleep(SETTLED);
    let full = resident()?;
    let removed = ports.open()?.remove_all()?;
    thread::sleep(SETTLED);
    let after = resident()?;
    let mut figures = vec![
        ("bytes_per_key", full.saturating_sub(before) as f64 / keys as f64),
        ("rss_before_mb", before as f64 / 1e6),
        ("rss_full_mb", full as f64 / 1e6),
        ("rss_removed_mb", after as f64 / 1e6),
        // Of what may be left: a fifth more than at the start, and 20 MB.
        ("removed_ratio", after as f64 / (before as f64 * 1.2 + 20e6)),
        ("removed", removed as f64),
        ("fill_s", seconds),
    ];
    figures.extend(session.instance.start.map(|start| ("start_ms", start.as_secs_f64() * 1e3)));
    Ok(figures)
}
