//! Many connections of which few are busy: what an idle one costs, and what the busy ones feel of it.

use crate::{
    connection::{Connection, Tally},
    fleet::Ports,
    load::{self, Session, Spec},
    report::{Figures, value},
};
use anyhow::Context as _;
use std::{collections::BTreeMap, thread, time::Duration};

/// Until memory and closed connections have settled.
const SETTLE: Duration = Duration::from_secs(1);

/// The load of `spec` beside idle connections, `connections` in all, and alone; which comes first alternates with the
/// rounds.
pub(crate) fn run(
    session: &mut Session,
    spec: &Spec,
    connections: usize,
    round: usize,
) -> anyhow::Result<(Figures, BTreeMap<String, u64>)> {
    session.prefill(spec)?;
    let resident = |session: &Session| {
        session.instance.resident().context("memory needs the master's pid: spawn: or ,pid=N")
    };
    let before = resident(session)?;
    let ports = session.ports;
    let mut idle = open(ports, connections)?;
    thread::sleep(SETTLE);
    let with_all = resident(session)?;
    idle.truncate(connections - spec.connections);
    let alone = |session: &mut Session, idle: &mut Vec<Connection>| {
        idle.clear();
        thread::sleep(SETTLE);
        load::run(session, spec)
    };
    let ((beside, mut refused), (alone, others)) = if round.is_multiple_of(2) {
        let beside = load::run(session, spec)?;
        (beside, alone(session, &mut idle)?)
    } else {
        let alone = alone(session, &mut idle)?;
        idle = open(ports, connections - spec.connections)?;
        thread::sleep(SETTLE);
        (load::run(session, spec)?, alone)
    };
    drop(idle);
    for (name, count) in others {
        *refused.entry(name).or_default() += count;
    }
    let of = |figures: &Figures, name| value(figures, name).with_context(|| format!("no {name}"));
    let per_connection = with_all.saturating_sub(before) as f64 / connections as f64;
    let mut figures = vec![
        ("kib_per_connection", per_connection / 1024.0),
        ("p99_ratio", of(&beside, "p99_us")? / of(&alone, "p99_us")?),
        ("beside_p99_us", of(&beside, "p99_us")?),
        ("alone_p99_us", of(&alone, "p99_us")?),
        ("beside_p50_us", of(&beside, "p50_us")?),
        ("alone_p50_us", of(&alone, "p50_us")?),
        ("beside_items_per_s", of(&beside, "items_per_s")?),
        ("alone_items_per_s", of(&alone, "items_per_s")?),
    ];
    let cpu = "server_cpu_us_per_item";
    figures.extend(value(&beside, cpu).map(|cpu| ("beside_cpu_us_per_item", cpu)));
    figures.extend(value(&alone, cpu).map(|cpu| ("alone_cpu_us_per_item", cpu)));
    Ok((figures, refused))
}

/// Opens connections, each of which has made a call.
fn open(ports: Ports, count: usize) -> anyhow::Result<Vec<Connection>> {
    let mut unheeded = Tally::default();
    (0..count)
        .map(|_| {
            let mut connection = ports.open()?;
            connection.exist(b"mooncake-bench", &mut unheeded)?;
            Ok(connection)
        })
        .collect()
}
