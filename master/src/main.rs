//! `mooncake-master`: the program.

use std::process::ExitCode;

/// It gives back what a removed or expired index took, a little at a time and by a thread of its own; the C library's keeps
/// it until somebody trims its arenas, for which everybody else has to wait. Set up in `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let Err(error) = mooncake_master::process::run(mooncake_master::config::load_or_exit());
    eprintln!("mooncake-master: {error:#}");
    ExitCode::FAILURE
}
