//! Clients that offer memory and keep it alive: each mounted, then pinged once a second.

use crate::{
    clock,
    connection::{Connection, Protocol, Segment},
};
use anyhow::{Context as _, ensure};
use mooncake_master::types::Uuid;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Connections that keep a fleet alive, at most.
const KEEPERS: usize = 32;

/// Where a fleet is mounted, and where it sends its heartbeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) protocol: Protocol,
    pub(crate) main: SocketAddr,
    pub(crate) heartbeat: SocketAddr,
}

impl Ports {
    /// Heartbeats go to the master's heartbeat port if it has one.
    pub(crate) fn discover(protocol: Protocol, main: SocketAddr) -> anyhow::Result<Ports> {
        let port = Connection::open(protocol, main)?.heartbeat_port().context("GetHeartbeatRpcPort")?;
        let heartbeat = if port == 0 { main } else { SocketAddr::new(main.ip(), port) };
        Ok(Ports { protocol, main, heartbeat })
    }

    /// A connection to the main port.
    pub(crate) fn open(self) -> anyhow::Result<Connection> {
        Connection::open(self.protocol, self.main).with_context(|| format!("connecting to {}", self.main))
    }

    /// A connection to the heartbeat port.
    pub(crate) fn open_heartbeat(self) -> anyhow::Result<Connection> {
        Connection::open(self.protocol, self.heartbeat)
            .with_context(|| format!("connecting to {}", self.heartbeat))
    }
}

/// A segment of a client of its own. `index` tells them apart in one run.
pub(crate) fn segment(index: usize, bytes: u64) -> Segment {
    let id = Uuid { first: rand::random(), second: index as u64 };
    Segment {
        client: id,
        id,
        name: format!("bench-{:04x}-{index}:1", id.first as u16),
        base: (index as u64 + 1) << 40,
        size: bytes,
    }
}

/// Mounts it the way a client does: mount, ping, and a remount when it is asked for.
pub(crate) fn mount(
    connection: &mut Connection,
    heartbeat: &mut Connection,
    segment: &Segment,
) -> anyhow::Result<()> {
    let refused = |what, code| anyhow::anyhow!("{what} of {}: error code {code}", segment.name);
    connection.mount(segment)?.map_err(|code| refused("MountSegment", code))?;
    if !heartbeat.ping(segment.client)?.map_err(|code| refused("Ping", code))? {
        connection.remount(segment)?.map_err(|code| refused("ReMountSegment", code))?;
    }
    Ok(())
}

/// Mounted segments, kept alive until dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) segments: Vec<Segment>,
    stop: Arc<AtomicBool>,
    /// Times that a client was told to mount again: each is an expiry.
    expired: Arc<AtomicU64>,
    keepers: Vec<JoinHandle<()>>,
}

impl Fleet {
    /// Mounts `clients` segments of `bytes` each and keeps them alive.
    pub(crate) fn start(ports: Ports, clients: usize, bytes: u64) -> anyhow::Result<Fleet> {
        ensure!(clients > 0, "a fleet needs a client");
        let segments: Vec<Segment> = (0..clients).map(|index| segment(index, bytes)).collect();
        let (mut main, mut heartbeat) = (ports.open()?, ports.open_heartbeat()?);
        for segment in &segments {
            mount(&mut main, &mut heartbeat, segment)?;
        }
        let mut fleet =
            Fleet { segments, stop: Arc::default(), expired: Arc::default(), keepers: Vec::new() };
        for part in fleet.segments.chunks(clients.div_ceil(KEEPERS)) {
            let (part, stop, expired) = (part.to_vec(), fleet.stop.clone(), fleet.expired.clone());
            let (main, heartbeat) = (ports.open()?, ports.open_heartbeat()?);
            fleet.keepers.push(std::thread::spawn(move || {
                if let Err(error) = keep(&part, main, heartbeat, &stop, &expired) {
                    // Its clients will expire, which the results show.
                    eprintln!("heartbeats of {} clients ended: {error}", part.len());
                }
            }));
        }
        Ok(fleet)
    }

    /// Expiries so far.
    pub(crate) fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for keeper in self.keepers.drain(..) {
            // A keeper that panicked has said so.
            let _ = keeper.join();
        }
    }
}

fn keep(
    segments: &[Segment],
    mut main: Connection,
    mut heartbeat: Connection,
    stop: &AtomicBool,
    expired: &AtomicU64,
) -> std::io::Result<()> {
    let step = Duration::from_secs(1) / segments.len() as u32;
    let mut due = clock::now();
    for segment in segments.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if heartbeat.ping(segment.client)? == Ok(false) {
            expired.fetch_add(1, Ordering::Relaxed);
            // Refused behind a barrier: the next Ping asks again.
            let _ = main.remount(segment)?;
        }
        due = (due + step).max(clock::now());
        clock::sleep_until(due);
    }
    Ok(())
}
