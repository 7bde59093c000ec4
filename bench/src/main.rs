//! `mooncake-bench`: load on Mooncake Store masters, one alone or several side by side.
//!
//! With several targets the rounds alternate (A B A B), and ratios are taken round by round, so that a machine that
//! grows slower or faster meanwhile does not favour one of them.

mod bars;
mod cli;
mod clock;
mod connection;
mod connections;
mod eviction;
mod fleet;
mod flood;
mod floor;
mod incident;
mod instructions;
mod keys;
mod load;
mod machine;
mod measure;
mod memory;
mod report;
mod sample;
mod start;
mod target;

use clap::Parser as _;
use cli::{Cli, Command};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    allow_many_connections();
    let result = match &command {
        Command::Measure(measure) => measure::run(measure),
        Command::Floor(args) => floor::serve(args.port, args.threads),
        Command::Report(args) => bars::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mooncake-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// As many open files as are allowed at all, for the masters that are started from here as well.
fn allow_many_connections() {
    let limit = getrlimit(Resource::Nofile);
    // Should that be refused, the first connection too many will say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
