//! The accept thread: caps, then hands each connection to one data thread, which owns it from then on.

use super::{
    data_thread::{DataThread, Handed},
    native::generation::Generation,
};
use crate::{clock::Clock, fault::Faults, ha::connections::Connections, lock::Mutex, permit::ServingPermit};
use hashbrown::HashMap;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// A data thread whose tick is older than this gets no new connections while another is on time.
const LATE: Duration = Duration::from_millis(500);

/// How many connections are allowed, and to whom the self-probe's go.
#[derive(Clone)]
pub struct AcceptLimits {
    /// Open connections in total.
    pub total: usize,
    /// Open connections of one address.
    pub per_address: usize,
    /// For a connection of the self-probe: the index of the data thread it is meant for (A4).
    pub probe_target: Arc<dyn Fn(SocketAddr) -> Option<usize> + Send + Sync>,
    /// Whether small writes go out at once.
    pub tcp_no_delay: bool,
}

/// What the acceptor counted.
#[derive(Debug, Default)]
pub struct AcceptStats {
    /// Connections handed to a data thread.
    pub accepted: AtomicU64,
    /// Connections closed at once because of a cap.
    pub refused: AtomicU64,
}

/// Counts connections of an address down when dropped.
pub(super) struct AddressCount {
    counts: Arc<Counts>,
    address: IpAddr,
}

/// Open connections, those of all listeners of a port's server together.
#[derive(Default)]
pub(super) struct Counts {
    total: AtomicUsize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

impl Counts {
    fn admit(self: &Arc<Self>, address: IpAddr, limits: &AcceptLimits) -> Option<AddressCount> {
        let mut by_address = self.by_address.lock();
        let count = by_address.entry(address).or_insert(0);
        if *count >= limits.per_address || self.total.load(Ordering::Relaxed) >= limits.total {
            if *count == 0 {
                by_address.remove(&address);
            }
            return None;
        }
        *count += 1;
        self.total.fetch_add(1, Ordering::Relaxed);
        Some(AddressCount { counts: self.clone(), address })
    }
}

impl Drop for AddressCount {
    fn drop(&mut self) {
        self.counts.total.fetch_sub(1, Ordering::Relaxed);
        let mut by_address = self.counts.by_address.lock();
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

/// The running accept thread.
pub(super) struct Acceptor {
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the accept loop works with.
pub(super) struct AcceptLoop {
    pub(super) listener: TcpListener,
    /// Of the native clients that come in here; none: it is found out.
    pub(super) generation: Option<&'static Generation>,
    pub(super) counts: Arc<Counts>,
    pub(super) threads: Arc<[DataThread]>,
    pub(super) limits: AcceptLimits,
    pub(super) connections: Arc<Connections>,
    pub(super) permit: Arc<ServingPermit>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stats: Arc<AcceptStats>,
    /// Milliseconds of the clock at the last round of the loop, for the self-probe and for liveness.
    pub(super) tick: Arc<AtomicU64>,
    /// What the accept loop of the main server suffers in tests.
    pub(super) faults: Option<Arc<Faults>>,
}

impl Acceptor {
    pub(super) fn start(name: &str, accept_loop: AcceptLoop) -> io::Result<Acceptor> {
        accept_loop.listener.set_nonblocking(true)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stop = Arc::new(AtomicBool::new(false));
        let (thread_wake, thread_stop) = (wake.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || accept_loop.run(&thread_wake, &thread_stop))?;
        Ok(Acceptor { wake, stop, thread: Some(thread) })
    }

    /// Closes the listening socket and waits for the accept thread.
    pub(super) fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // An eventfd write can fail only when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stop();
    }
}

impl AcceptLoop {
    fn run(self, wake: &OwnedFd, stop: &AtomicBool) {
        let mut next = 0usize;
        let tick_every = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        while !stop.load(Ordering::SeqCst) {
            if let Some(faults) = &self.faults {
                faults.in_accept_loop(stop);
            }
            self.tick.store(self.clock.now().as_millis(), Ordering::Relaxed);
            let mut fds = [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
            if rustix::event::poll(&mut fds, Some(&tick_every)).is_err() {
                continue;
            }
            // A bounded number per round keeps the tick fresh in a storm of connections.
            for _ in 0..64 {
                match self.listener.accept() {
                    Ok((stream, peer)) => self.hand_out(stream, peer, &mut next),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        // Out of descriptors, most likely: the connection stays queued, others go on.
                        tracing::warn!(%error, "cannot accept a connection; trying again");
                        std::thread::sleep(Duration::from_millis(50));
                        break;
                    }
                }
            }
        }
    }

    fn hand_out(&self, stream: TcpStream, peer: SocketAddr, next: &mut usize) {
        // Without the permit nothing is answered: closed at once. During a hand-over it waits like all the others.
        if !self.permit.held() && !self.permit.is_holding() {
            return;
        }
        // The self-probe is not subject to the caps: full of clients is not the same as unable to serve them.
        let probe = (self.limits.probe_target)(peer).filter(|&index| index < self.threads.len());
        let count = match self.counts.admit(peer.ip(), &self.limits) {
            None if probe.is_none() => {
                self.stats.refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
            count => count,
        };
        if let Err(error) = self.prepare(&stream) {
            tracing::debug!(%peer, %error, "connection is gone before it was served");
            return;
        }
        let index = probe.unwrap_or_else(|| self.choose(next));
        self.stats.accepted.fetch_add(1, Ordering::Relaxed);
        let (stream, generation) = (self.connections.register(stream), self.generation);
        self.threads[index].hand(Handed { stream, peer, generation, count });
    }

    /// SO_LINGER 0 from the first moment: whenever this side closes, what is queued is dropped (design §6.5).
    fn prepare(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let socket = socket2::SockRef::from(stream);
        socket.set_linger(Some(Duration::ZERO))?;
        if self.limits.tcp_no_delay {
            socket.set_tcp_nodelay(true)?;
        }
        Ok(())
    }

    /// The thread with the fewest connections among those that are on time; ties in turn.
    fn choose(&self, next: &mut usize) -> usize {
        let now = self.clock.now().as_millis();
        let late = |thread: &DataThread| now.saturating_sub(thread.tick()) > LATE.as_millis() as u64;
        *next = next.wrapping_add(1);
        let n = self.threads.len();
        (0..n)
            .map(|i| (i + *next) % n)
            .min_by_key(|&i| (late(&self.threads[i]), self.threads[i].connections()))
            .unwrap_or(0)
    }
}
