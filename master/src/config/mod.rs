//! Configuration: one table of options from which parsing, `--help`, the effective configuration and
//! `docs/flags.md` all follow (C6, A8, B11, C1-C3).
//!
//! Command lines written for the C++ master work here unchanged, and that is why there is a small parser of its own
//! instead of an argument crate: the gflags syntax *is* the compatibility surface. One or two dashes, `--x=v` and
//! `--x v`, for booleans `--x`, `--x=false` and `--nox`, and never a combined short option. gflags (2.2 and later)
//! reads dashes in a name as underscores, so `--rpc-port` is `--rpc_port` here too; in the file a key is written
//! with underscores only.
//!
//! Precedence: default < file < environment (where an option has a variable) < command line. Everything that is
//! wrong is reported at once, each with the option, where its value came from and what was expected; exit status 2.

mod cmdline;
mod errors;
mod file;
mod help;
mod interface;
mod option;
mod resolve;
mod table;
mod typed;
mod value;

#[cfg(test)]
mod tests;

pub use errors::{ConfigError, ConfigErrors, Source};
pub use help::{help_text, markdown};
pub use option::{Group, Kind, Spec, Status, Unit};
pub use resolve::{Effective, Setting};
pub use table::TABLE;
pub use typed::{
    AdminConfig, Config, HaConfig, HeartbeatConfig, LogConfig, LogFormat, MetadataConfig, PodIdentity,
    ProbeConfig, RemoteMetadataConfig, RpcConfig, StorageAnswers,
};
pub use value::Value;

/// What a valid configuration amounts to.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The typed configuration.
    pub config: Config,
    /// Every option with its value and where that came from, for the log, `/config` and `--check_config`.
    pub effective: Effective,
    /// What the operator should hear about although it stops nothing, e.g. a deprecated name.
    pub warnings: Vec<String>,
}

/// What the command line asks for.
#[derive(Debug, Clone)]
pub enum Command {
    /// Serve.
    Run(Box<Loaded>),
    /// `--check_config`: print the effective configuration as one JSON object and end with status 0.
    Check(Box<Loaded>),
    /// `--help` or `--version`: print this and end with status 0.
    Print(String),
}

/// Everything outside the process that the configuration depends on, so that tests own it.
pub struct Surroundings<'a> {
    /// An environment variable; empty counts as unset.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The text of the configuration file, or why it cannot be read.
    pub read_file: &'a dyn Fn(&str) -> Result<String, String>,
    /// The address of a network interface, or why there is none.
    pub interface_address: &'a dyn Fn(&str) -> Result<std::net::IpAddr, String>,
    /// CPU cores that the process may use, at least 1.
    pub cores: usize,
}

/// Reads a command line (without the program's name) and everything that it refers to.
pub fn load(args: &[String], surroundings: &Surroundings<'_>) -> Result<Command, ConfigErrors> {
    let line = cmdline::parse(args);
    if line.help {
        return Ok(Command::Print(help_text()));
    }
    if line.version {
        return Ok(Command::Print(format!("mooncake-master {}\n", env!("CARGO_PKG_VERSION"))));
    }
    let check = line.is_set("check_config");
    let loaded = Box::new(resolve::resolve(line, surroundings)?);
    Ok(if check { Command::Check(loaded) } else { Command::Run(loaded) })
}

/// [`load`] for the running process.
pub fn load_from_process() -> Result<Command, ConfigErrors> {
    let args: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let surroundings = Surroundings {
        env: &|name| std::env::var(name).ok().filter(|v| !v.is_empty()),
        read_file: &|path| std::fs::read_to_string(path).map_err(|e| e.to_string()),
        interface_address: &interface::address_of,
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
    };
    load(&args, &surroundings)
}

/// [`load_from_process`], which prints and ends the process unless it is to serve: status 0 after `--help`, `--version`
/// and `--check_config`, status 2 when anything is wrong.
pub fn load_or_exit() -> Loaded {
    match load_from_process() {
        Ok(Command::Run(loaded)) => *loaded,
        Ok(Command::Check(loaded)) => {
            for warning in &loaded.warnings {
                eprintln!("warning: {warning}");
            }
            println!("{}", loaded.effective.to_json());
            std::process::exit(0)
        }
        Ok(Command::Print(text)) => {
            print!("{text}");
            std::process::exit(0)
        }
        Err(errors) => {
            eprintln!("{errors}");
            std::process::exit(2)
        }
    }
}
