//! `mooncake-master`: the program.

use std::process::ExitCode;

fn main() -> ExitCode {
    let Err(error) = mooncake_master::process::run(mooncake_master::config::load_or_exit());
    eprintln!("mooncake-master: {error:#}");
    ExitCode::FAILURE
}
