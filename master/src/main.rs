//! `mooncake-master`: the program.

use std::process::ExitCode;

/// It gives back what a removed or expired index took, page by page as it becomes free; the C library's keeps it until
/// somebody trims its arenas, for which everybody else has to wait.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Err(error) = mooncake_master::process::run(mooncake_master::config::load_or_exit());
    eprintln!("mooncake-master: {error:#}");
    ExitCode::FAILURE
}
