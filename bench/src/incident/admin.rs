//! What the master says of its own sweep, on its admin port; nothing, if it has no such metrics.

use crate::{
    clock::{self, Instant},
    target::Instance,
};
use anyhow::ensure;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// The work of offboarding, summed since the start of the master.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Swept {
    pub(super) work_seconds: f64,
    pub(super) visited_keys: f64,
    jobs: f64,
}

impl Swept {
    /// None for a master that is not started here, or has no such metrics.
    pub(super) fn read(instance: &Instance) -> Option<Swept> {
        metrics(instance.admin?).ok().and_then(|text| Swept::parse(&text))
    }

    fn parse(text: &str) -> Option<Swept> {
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            line.trim().parse().ok()
        };
        Some(Swept {
            work_seconds: of("mooncake_master_offboarding_work_seconds_total")?,
            visited_keys: of("mooncake_master_offboarding_visited_keys_total")?,
            jobs: of("master_client_offboarding_queue_depth")?,
        })
    }

    /// Waits until nothing is being offboarded: how long after `begin` that was seen, and the sums then.
    pub(super) fn wait(
        instance: &Instance,
        begin: Instant,
        limit: Duration,
    ) -> anyhow::Result<Option<(Duration, Swept)>> {
        loop {
            let Some(swept) = Swept::read(instance) else { return Ok(None) };
            let elapsed = clock::now().saturating_duration_since(begin);
            if swept.jobs <= 0.0 {
                return Ok(Some((elapsed, swept)));
            }
            ensure!(elapsed < limit, "the sweep is not over after {limit:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn metrics(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_without_these_metrics_says_nothing() {
        let ours = "# HELP x\nmooncake_master_offboarding_work_seconds_total 0.25\n\
                    mooncake_master_offboarding_visited_keys_total 7\nmaster_client_offboarding_queue_depth 1\n";
        let expected = Swept { work_seconds: 0.25, visited_keys: 7.0, jobs: 1.0 };
        assert_eq!(Swept::parse(ours), Some(expected));
        assert_eq!(Swept::parse("master_key_count 3\n"), None);
    }
}
