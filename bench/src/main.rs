//! `mooncake-bench`: load on Mooncake Store masters, one alone or two side by side.
//!
//! With two targets the rounds alternate (A B A B), and ratios are taken round by round, so that a machine that
//! grows slower or faster meanwhile does not favour one of them.

mod clock;
mod connection;
mod fleet;
mod flood;
mod incident;
mod keys;
mod load;
mod memory;
mod report;
mod sample;
mod target;

use anyhow::{Context as _, ensure};
use clap::{Args, Parser, Subcommand};
use connection::Protocol;
use fleet::{Fleet, Ports};
use load::{Op, Session};
use report::{Figures, Measurement, Report};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, time::Duration};
use target::Target;

/// Puts load on Mooncake Store masters and measures them.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Common {
    /// NAME=HOST:PORT[,pid=N] or NAME=spawn:COMMAND, where {rpc_port}, {metrics_port} and {heartbeat_port} in the
    /// command are replaced. Given twice, both are measured in turn and compared.
    #[arg(long = "target", required = true, value_name = "TARGET")]
    targets: Vec<String>,
    /// What the calls speak.
    #[arg(long, value_enum, default_value = "native")]
    protocol: Protocol,
    /// Measurements of each target; a command is started anew for each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Append a JSON line per measurement to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Bytes of a key.
    #[arg(long, default_value_t = 22)]
    key_bytes: usize,
    /// Bytes of a value. Nothing is transferred, only reserved.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    value_bytes: u64,
    /// Put load on masters that are not on this machine.
    #[arg(long)]
    allow_remote: bool,
    /// Succeed although calls were refused.
    #[arg(long)]
    allow_refused: bool,
}

#[derive(Debug, Args)]
struct FleetArgs {
    /// Clients with a mounted segment, each pinged once a second.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// GiB of each segment.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    segment_gib: u64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Throughput, latency and server CPU of calls.
    Load {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        fleet: FleetArgs,
        /// What to call; all of them by default.
        #[arg(long = "op", value_enum, value_delimiter = ',')]
        ops: Vec<Op>,
        /// Connections, one call in flight on each.
        #[arg(short, long, value_delimiter = ',', default_value = "4",
              value_parser = clap::value_parser!(u32).range(1..=4096))]
        connections: Vec<u32>,
        /// Seconds of each measurement.
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// Seconds before it.
        #[arg(long, default_value_t = 1.0)]
        warmup: f64,
        /// Keys of a batch.
        #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        batch: u32,
        /// Keys that each connection reads from.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
        prefill: u64,
        /// Open loop: this many calls per second in all, latency from the scheduled send.
        #[arg(long)]
        rate: Option<f64>,
    },
    /// Pings during a flood of BatchPut.
    Flood {
        #[command(flatten)]
        common: Common,
        /// Clients with a mounted segment.
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        clients: u32,
        /// GiB of each segment.
        #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1024))]
        segment_gib: u64,
        /// Connections that write.
        #[arg(short, long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
        connections: u32,
        /// Seconds of it.
        #[arg(long, default_value_t = 60.0)]
        seconds: f64,
        /// Keys of a batch.
        #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        batch: u32,
        /// Ends early after so many keys: they stay in the master's memory.
        #[arg(long, default_value_t = 10_000_000)]
        max_keys: u64,
        /// Pings per second that are timed.
        #[arg(long, default_value_t = 20.0)]
        ping_rate: f64,
        /// Ping the main port although the master has a heartbeat port.
        #[arg(long)]
        ping_main: bool,
    },
    /// A client with many keys falls silent, under load of others. Give the master short TTLs.
    Incident {
        #[command(flatten)]
        common: Common,
        /// What happens when its keys begin to go.
        #[arg(
            long = "variant",
            value_enum,
            value_delimiter = ',',
            default_value = "alone,remount,new-client"
        )]
        variants: Vec<incident::Variant>,
        /// Its keys.
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
        victim_keys: u64,
        /// Keys of another client.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
        other_keys: u64,
        /// Seconds of the same load before it, for comparison.
        #[arg(long, default_value_t = 10.0)]
        quiet: f64,
        /// Seconds after which to give up.
        #[arg(long, default_value_t = 180.0)]
        limit: f64,
    },
    /// Memory per key.
    Memory {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        fleet: FleetArgs,
        /// Keys.
        #[arg(long, value_delimiter = ',', default_value = "1000000",
              value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
        keys: Vec<u64>,
    },
}

impl Command {
    fn common(&self) -> &Common {
        match self {
            Command::Load { common, .. }
            | Command::Flood { common, .. }
            | Command::Incident { common, .. }
            | Command::Memory { common, .. } => common,
        }
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mooncake-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    let common = command.common();
    ensure!(
        keys::LENGTHS.contains(&common.key_bytes),
        "--key-bytes: {}, expected {} to {}",
        common.key_bytes,
        keys::LENGTHS.start(),
        keys::LENGTHS.end()
    );
    let targets = common
        .targets
        .iter()
        .map(|text| Target::parse(text, common.protocol, common.allow_remote))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut bench = Bench { report: Report::new(common.json.as_deref())?, common };
    for round in 0..common.rounds as usize {
        for target in &targets {
            bench.measure(command, target, round).with_context(|| format!("target {}", target.name))?;
        }
    }
    println!("{}", bench.report.tables());
    ensure!(common.allow_refused || !bench.report.any_refused(), "calls were refused, see above");
    Ok(())
}

/// A time on the command line, at most an hour.
fn seconds(name: &str, value: f64) -> anyhow::Result<Duration> {
    ensure!((0.0..=3600.0).contains(&value), "--{name}: {value}, expected 0 to 3600 seconds");
    Ok(Duration::from_secs_f64(value))
}

struct Bench<'a> {
    report: Report,
    common: &'a Common,
}

impl Bench<'_> {
    fn session(target: &Target, clients: u32, segment_gib: u64) -> anyhow::Result<Session> {
        let instance = target.start()?;
        let ports = Ports::discover(target.protocol, instance.address)?;
        let fleet = Fleet::start(ports, clients as usize, segment_gib << 30)?;
        Ok(Session::new(instance, ports, fleet))
    }

    fn add(
        &mut self,
        target: &Target,
        round: usize,
        case: String,
        (figures, refused): (Figures, BTreeMap<String, u64>),
        parameters: Value,
    ) -> anyhow::Result<()> {
        let mut all = Map::new();
        all.insert("protocol".into(), json!(self.common.protocol));
        all.insert("key_bytes".into(), json!(self.common.key_bytes));
        all.insert("value_bytes".into(), json!(self.common.value_bytes));
        if let Value::Object(parameters) = parameters {
            all.extend(parameters);
        }
        let target = target.name.clone();
        self.report.add(Measurement { target, round, case, figures, refused, parameters: all })
    }

    fn measure(&mut self, command: &Command, target: &Target, round: usize) -> anyhow::Result<()> {
        let Common { key_bytes, value_bytes, .. } = *self.common;
        match command {
            Command::Load {
                fleet, ops, connections, seconds: time, warmup, batch, prefill, rate, ..
            } => {
                let all = clap::ValueEnum::value_variants();
                let ops: &[Op] = if ops.is_empty() { all } else { ops };
                ensure!(
                    rate.is_none_or(|rate| (0.01..=10e6).contains(&rate)),
                    "--rate: expected 0.01 to 10000000"
                );
                let mut session = Bench::session(target, fleet.clients, fleet.segment_gib)?;
                for &connections in connections {
                    for &op in ops {
                        let spec = load::Spec {
                            op,
                            connections: connections as usize,
                            warmup: seconds("warmup", *warmup)?,
                            duration: seconds("seconds", *time)?,
                            batch: u64::from(*batch),
                            key_bytes,
                            value_bytes,
                            prefill: *prefill,
                            rate: *rate,
                        };
                        let result = load::run(&mut session, &spec).with_context(|| op.name())?;
                        let case = format!("{}, {connections} connections", op.name());
                        let parameters = json!({
                            "kind": "load", "op": op.name(), "connections": connections, "clients": fleet.clients,
                            "batch": batch, "seconds": time, "rate": rate,
                        });
                        self.add(target, round, case, result, parameters)?;
                    }
                }
            }
            Command::Flood {
                clients,
                segment_gib,
                connections,
                seconds: time,
                batch,
                max_keys,
                ping_rate,
                ping_main,
                ..
            } => {
                ensure!((0.1..=1000.0).contains(ping_rate), "--ping-rate: expected 0.1 to 1000");
                let spec = flood::Spec {
                    connections: *connections as usize,
                    duration: seconds("seconds", *time)?,
                    batch: u64::from(*batch),
                    key_bytes,
                    value_bytes,
                    max_keys: *max_keys,
                    ping_rate: *ping_rate,
                    ping_main: *ping_main,
                };
                let session = Bench::session(target, *clients, *segment_gib)?;
                let result = flood::run(&session, &spec)?;
                let parameters = json!({
                    "kind": "flood", "connections": connections, "clients": clients, "batch": batch,
                    "ping_main": ping_main,
                });
                self.add(target, round, format!("flood, {connections} connections"), result, parameters)?;
            }
            Command::Incident { variants, victim_keys, other_keys, quiet, limit, .. } => {
                for &variant in variants {
                    let spec = incident::Spec {
                        variant,
                        victim_keys: *victim_keys,
                        other_keys: *other_keys,
                        key_bytes,
                        value_bytes,
                        quiet: seconds("quiet", *quiet)?,
                        limit: seconds("limit", *limit)?,
                    };
                    let instance = target.start()?;
                    let ports = Ports::discover(target.protocol, instance.address)?;
                    let result = incident::run(&instance, ports, &spec)?;
                    let parameters = json!({
                        "kind": "incident", "variant": variant.name(), "victim_keys": victim_keys,
                        "other_keys": other_keys,
                    });
                    let case = format!(
                        "incident, {}, {victim_keys} of {}",
                        variant.name(),
                        victim_keys + other_keys
                    );
                    self.add(target, round, case, result, parameters)?;
                }
            }
            Command::Memory { fleet, keys, .. } => {
                for &count in keys {
                    let session = Bench::session(target, fleet.clients, fleet.segment_gib)?;
                    let figures = memory::run(&session, count, key_bytes, value_bytes)?;
                    let parameters = json!({ "kind": "memory", "keys": count, "clients": fleet.clients });
                    self.add(
                        target,
                        round,
                        format!("memory, {count} keys"),
                        (figures, BTreeMap::new()),
                        parameters,
                    )?;
                }
            }
        }
        Ok(())
    }
}
