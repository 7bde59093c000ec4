//! Structured, quiet logs on standard error.

use crate::config::{LogConfig, LogFormat};
use std::io::IsTerminal;
use tracing_subscriber::{EnvFilter, fmt};

/// Sets the process's subscriber. A second call is ignored: the first one stays.
pub fn init(config: &LogConfig) {
    // The filter was checked when the configuration was read.
    let filter = EnvFilter::try_new(&config.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let result = match config.format {
        LogFormat::Json => builder.json().flatten_event(true).with_target(true).try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    if let Err(error) = result {
        eprintln!("logging was set up before: {error}");
    }
}
