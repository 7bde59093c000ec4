//! Instructions per PutStart. CPU time moves with the machine, this does not: what it grows with shows at once.

use crate::{
    clock,
    connection::{Connection, Put, Tally},
    fleet::{self, Ports},
    keys::KeySpace,
    report::Figures,
    target::{Instance, Target},
};
use anyhow::{Context as _, ensure};
use mooncake_master::types::Uuid;
use std::{collections::BTreeMap, fs, ops::Range, path::Path, process::Command, thread};

/// Calls before those that count, for whatever is only done once.
const WARMUP: u64 = 1000;

/// Counts the instructions of `calls` calls with that many clients mounted, in user mode, of the thread that serves them.
/// (What others do meanwhile is no part of a call, and far more than its share: under callgrind a call takes long.) Nobody
/// pings meanwhile.
pub(crate) fn run(
    target: &Target,
    clients: usize,
    calls: u64,
    key_bytes: usize,
    value_bytes: u64,
) -> anyhow::Result<Figures> {
    let directory = tempfile::tempdir()?;
    let profile = directory.path().join("profile");
    let under = format!(
        "valgrind --quiet --tool=callgrind --separate-threads=yes --callgrind-out-file={}",
        profile.display()
    );
    let instance = target.start_under(&under).context("under valgrind (is it installed?)")?;
    let ports = Ports::discover(target.protocol, instance.address)?;
    let mut main = ports.open()?;
    let mut heartbeat = ports.open_heartbeat()?;
    for index in 0..clients {
        fleet::mount(&mut main, &mut heartbeat, &fleet::segment(index, 64 << 30))?;
    }
    let space = KeySpace::new(KeySpace::new_run(), 0, key_bytes);
    put_start(&mut main, space, 0..WARMUP, value_bytes)?;
    dump(&instance)?;
    let begin = clock::now();
    put_start(&mut main, space, WARMUP..WARMUP + calls, value_bytes)?;
    let taken = begin.elapsed();
    dump(&instance)?;
    // What that thread does by itself is taken off.
    thread::sleep(taken);
    dump(&instance)?;
    let part = |number: u32| Part::read(directory.path(), number);
    let (before, during, idle) = (part(1)?, part(2)?, part(3)?);
    let (serving, with_calls) = during.busiest()?;
    let alone = idle.0.get(serving).copied().unwrap_or_default();
    Ok(vec![
        ("instructions_per_call", (with_calls - alone) / calls as f64),
        ("million_instructions_before", before.0.values().sum::<f64>() / 1e6),
        ("million_instructions_idle_per_s", idle.0.values().sum::<f64>() / taken.as_secs_f64() / 1e6),
    ])
}

/// What each thread has done between two dumps.
struct Part(BTreeMap<String, f64>);

impl Part {
    /// The profiles `profile.NUMBER-THREAD` of a directory.
    fn read(directory: &Path, number: u32) -> anyhow::Result<Part> {
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(thread) = name.strip_prefix(&format!("profile.{number}-")) {
                threads.insert(thread.to_owned(), read(&entry.path())?);
            }
        }
        Ok(Part(threads))
    }

    fn busiest(&self) -> anyhow::Result<(&String, f64)> {
        let busiest =
            self.0.iter().max_by(|(_, a), (_, b)| a.total_cmp(b)).context("callgrind: no profile")?;
        ensure!(*busiest.1 > 0.0, "callgrind has counted nothing");
        Ok((busiest.0, *busiest.1))
    }
}

/// Has callgrind write what it has counted since the last time.
fn dump(instance: &Instance) -> anyhow::Result<()> {
    let pid = instance.pid.context("no pid")?;
    let done = Command::new("vgdb").args([&format!("--pid={pid}"), "dump"]).output().context("vgdb")?;
    ensure!(done.status.success(), "vgdb: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn put_start(
    connection: &mut Connection,
    space: KeySpace,
    numbers: Range<u64>,
    size: u64,
) -> anyhow::Result<()> {
    let put = Put { client: Uuid { first: rand::random(), second: 7 }, size, preferred: "" };
    let (mut key, mut tally) = (Vec::new(), Tally::default());
    let calls = numbers.end - numbers.start;
    for number in numbers {
        space.write(number, &mut key);
        connection.put_start(put, &key, &mut tally)?;
    }
    tally.all("PutStart", calls)
}

/// The sum at the end of a profile.
fn read(profile: &Path) -> anyhow::Result<f64> {
    let text = fs::read_to_string(profile).with_context(|| profile.display().to_string())?;
    let totals =
        text.lines().rev().find_map(|line| line.strip_prefix("totals: ")).context("callgrind: no totals")?;
    totals.trim().parse().with_context(|| format!("callgrind: totals {totals:?}"))
}
