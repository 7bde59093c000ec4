//! Structured, quiet logs on standard error, which nobody ever waits for.

use crate::config::{LogConfig, LogFormat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
};
use tracing_subscriber::{EnvFilter, fmt};

/// A pipe that is reported writable takes this much at once (POSIX `PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// Sets the process's subscriber. A second call is ignored: the first one stays.
pub fn init(config: &LogConfig) {
    // The filter was checked when the configuration was read.
    let filter = EnvFilter::try_new(&config.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder =
        fmt().with_env_filter(filter).with_writer(|| Unblocked(io::stderr().lock())).with_target(false);
    let result = match config.format {
        LogFormat::Json => builder.json().flatten_event(true).with_target(true).try_init(),
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
    };
    if let Err(error) = result {
        eprintln!("logging was set up before: {error}");
    }
}

/// Drops what cannot be written without waiting; the lock of the stream is held from the look to the write. A reader that stalls, a full disk behind a container's log, must not
/// stop the lease thread from fencing this process; a background writer instead would lose the last words of a
/// process that ends.
struct Unblocked<W>(W);

impl<W: Write + AsFd> Write for Unblocked<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        for part in line.chunks(AT_ONCE) {
            let mut fds = [PollFd::new(&self.0, PollFlags::OUT)];
            if poll(&mut fds, Some(&now)).is_err() || !fds[0].revents().contains(PollFlags::OUT) {
                break;
            }
            self.0.write_all(part)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_full_pipe_costs_lines_and_no_time() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut writer = Unblocked(writer);
        // Much more than a pipe holds: it would block for ever if it waited.
        for _ in 0..1000 {
            assert_eq!(writer.write(&[b'x'; 10_000]).unwrap(), 10_000);
        }
        drop(writer);
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        assert!((4096..10_000_000).contains(&text.len()), "{} bytes arrived", text.len());
    }
}
