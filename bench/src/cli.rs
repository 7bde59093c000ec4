//! The command line.

use crate::{connection::Protocol, incident, load::Op};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Puts load on Mooncake Store masters and measures them.
#[derive(Debug, Parser)]
#[command(version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Measure(Measure),
    /// Serve Ping with a constant answer from plain epoll loops: the least that a call can cost on this machine.
    Floor(FloorArgs),
    /// Compare the results of a run with the bars of the project, from its JSON lines.
    Report(ReportArgs),
}

/// What puts load on masters.
#[derive(Debug, Subcommand)]
pub(crate) enum Measure {
    /// Throughput, latency and server CPU of calls.
    Load(LoadArgs),
    /// Pings during a flood of BatchPut.
    Flood(FloodArgs),
    /// A client with many keys falls silent, under load of others. Give the master short TTLs.
    Incident(IncidentArgs),
    /// Memory per key.
    Memory(MemoryArgs),
    /// From the start of the process to its first answer, and its memory when idle.
    Start(StartArgs),
    /// Put in a pool that is full beside Put in one that is not.
    Eviction(EvictionArgs),
    /// Many idle connections: their memory, and what a busy few feel of them.
    Connections(ConnectionsArgs),
    /// Instructions per PutStart, counted by callgrind. Give the master a long client TTL: nobody pings.
    Instructions(InstructionsArgs),
}

impl Measure {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Measure::Load(args) => &args.common,
            Measure::Flood(args) => &args.common,
            Measure::Incident(args) => &args.common,
            Measure::Memory(args) => &args.common,
            Measure::Start(args) => &args.common,
            Measure::Eviction(args) => &args.common,
            Measure::Connections(args) => &args.common,
            Measure::Instructions(args) => &args.common,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// NAME=HOST:PORT[,pid=N] or NAME=spawn:COMMAND, where {rpc_port}, {metrics_port} and {heartbeat_port} in the
    /// command are replaced. Given several times, all are measured in turn and the first is compared with the others.
    #[arg(long = "target", required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
    /// What the calls speak.
    #[arg(long, value_enum, default_value = "native")]
    pub(crate) protocol: Protocol,
    /// Measurements of each target; a command is started anew for each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Append a JSON line per measurement to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// What the report shall say of this run (when, with which command); kept in the first line of a new JSON file.
    #[arg(long, default_value = "")]
    pub(crate) note: String,
    /// Bytes of a key.
    #[arg(long, default_value_t = 22)]
    pub(crate) key_bytes: usize,
    /// Bytes of a value. Nothing is transferred, only reserved.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) value_bytes: u64,
    /// Put load on masters that are not on this machine.
    #[arg(long)]
    pub(crate) allow_remote: bool,
    /// Succeed although calls were refused.
    #[arg(long)]
    pub(crate) allow_refused: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// Clients with a mounted segment, each pinged once a second.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,
    /// GiB of each segment.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) segment_gib: u64,
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// What to call; all of them by default.
    #[arg(long = "op", value_enum, value_delimiter = ',')]
    pub(crate) ops: Vec<Op>,
    /// Connections, one call in flight on each.
    #[arg(short, long, value_delimiter = ',', default_value = "4",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) connections: Vec<u32>,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Seconds before it.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) warmup: f64,
    /// Keys of a batch.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) batch: u32,
    /// Keys that each connection reads from.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) prefill: u64,
    /// Open loop: this many calls per second in all, latency from the scheduled send.
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// What changes from one run to the next: the report draws the cost over it.
    #[arg(long, value_enum)]
    pub(crate) sweep: Option<Sweep>,
}

/// What cost may grow with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sweep {
    /// Keys that are there.
    Keys,
    /// Clients with a mounted segment.
    Clients,
    /// Busy connections.
    Connections,
    /// Keys of a batch.
    Batch,
}

#[derive(Debug, Args)]
pub(crate) struct FloodArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Clients with a mounted segment.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,
    /// GiB of each segment.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) segment_gib: u64,
    /// Connections that write.
    #[arg(short, long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) connections: u32,
    /// Seconds of it.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) seconds: f64,
    /// Keys of a batch.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) batch: u32,
    /// Ends early after so many keys: they stay in the master's memory.
    #[arg(long, default_value_t = 10_000_000)]
    pub(crate) max_keys: u64,
    /// Pings per second that are timed.
    #[arg(long, default_value_t = 20.0)]
    pub(crate) ping_rate: f64,
    /// Ping the main port although the master has a heartbeat port.
    #[arg(long)]
    pub(crate) ping_main: bool,
}

#[derive(Debug, Args)]
pub(crate) struct IncidentArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// What happens when its keys begin to go.
    #[arg(long = "variant", value_enum, value_delimiter = ',', default_value = "alone,remount,new-client")]
    pub(crate) variants: Vec<incident::Variant>,
    /// Its keys.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) victim_keys: u64,
    /// Keys of another client.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) other_keys: u64,
    /// Seconds of the same load before it, for comparison.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) quiet: f64,
    /// Seconds after which to give up.
    #[arg(long, default_value_t = 180.0)]
    pub(crate) limit: f64,
}

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Keys.
    #[arg(long, value_delimiter = ',', default_value = "1000000",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) keys: Vec<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Seconds from the first answer until its memory is read.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) settle: f64,
}

#[derive(Debug, Args)]
pub(crate) struct EvictionArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Clients with a mounted segment, each pinged once a second.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,
    /// GiB of each segment of the pool that is full. Choose `--value-bytes` for the number of keys in it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) full_gib: u64,
    /// GiB of each segment of the pool that is not.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) roomy_gib: u64,
    /// Connections, one call in flight on each.
    #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) connections: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
}

#[derive(Debug, Args)]
pub(crate) struct ConnectionsArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Open connections.
    #[arg(short, long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub(crate) connections: u32,
    /// Those of them that are busy.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) busy: u32,
    /// Get calls per second of all busy ones together.
    #[arg(long, default_value_t = 10_000.0)]
    pub(crate) rate: f64,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
}

#[derive(Debug, Args)]
pub(crate) struct InstructionsArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Clients with a mounted segment.
    #[arg(long, value_delimiter = ',', default_value = "1,128,2000",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: Vec<u32>,
    /// Calls that are counted.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) calls: u64,
}

#[derive(Debug, Args)]
pub(crate) struct FloorArgs {
    /// Port on the loopback address.
    #[arg(long)]
    pub(crate) port: u16,
    /// Threads; as many as cores by default.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// JSON lines of one run, with targets named ours, theirs (the C++ master) and floor.
    pub(crate) file: PathBuf,
    /// Write the table as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Draw how cost grows as SVG files in this directory.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) plots: Option<PathBuf>,
}
