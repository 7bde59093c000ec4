//! `mooncake-master`: the program.

use std::process::ExitCode;

fn main() -> ExitCode {
    match mooncake_master::process::run(mooncake_master::config::load_or_exit()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mooncake-master: {error:#}");
            ExitCode::FAILURE
        }
    }
}
