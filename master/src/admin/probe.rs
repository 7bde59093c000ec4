//! The self-probe (A4): `HealthCheck` over real TCP, one fresh connection for each data thread, all at the same time.
//!
//! It goes over TCP and not in-process so that the acceptor, the dispatch and the handlers are covered. It runs on the
//! control thread, which the data plane cannot exhaust.

use super::{AdminState, state::Readiness};
use crate::{
    clock::Clock,
    config::ProbeConfig,
    fault::FaultStep,
    lock::Mutex,
    rpc::{
        Server,
        native::{
            answer::Health,
            client::{self, CallError, Reading},
            frame::{FrameError, Limits, RESPONSE_HEADER, ResponseHeader},
            generation::{Generation, Method, Rpc},
        },
    },
};
use bytes::BytesMut;
use futures::future::try_join_all;
use hashbrown::HashMap;
use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, LazyLock, atomic::Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    time::Instant,
};

/// How often a pause between two rounds looks at the permit.
const PERMIT_CHECK: Duration = Duration::from_millis(100);

/// The most that an answer to `HealthCheck` may declare; it is far shorter.
const ANSWER: Limits = Limits { body: 4096, attachment: 0 };

/// The call and how its answer is read, in the newest generation; they are the same in all.
static HEALTH_CHECK: LazyLock<(&Rpc, Reading<Result<Health, i32>>)> = LazyLock::new(|| {
    let rpc = Generation::newest().rpc(Method::HealthCheck.function_id());
    let Some(call) = rpc.and_then(|rpc| Some((rpc, Reading::of(rpc)?))) else {
        // Every generation has our own calls; each probe of the tests comes by here.
        unreachable!("HealthCheck is in every table")
    };
    call
});

/// The RPC server that is to be probed.
#[derive(Clone)]
pub struct ProbeTarget {
    /// Where it is bound, as `local_addr` says it.
    pub address: SocketAddr,
    /// When each data thread last ticked: milliseconds of the process's [`Clock`], one for each thread.
    pub ticks: Arc<dyn Fn() -> Vec<u64> + Send + Sync>,
}

impl fmt::Debug for ProbeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeTarget").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ProbeTarget {
    /// A running server.
    pub fn of(server: &Server) -> ProbeTarget {
        let threads = server.thread_states();
        let ticks = move || threads.iter().map(|thread| thread.tick.load(Ordering::Relaxed)).collect();
        ProbeTarget { address: server.local_address(), ticks: Arc::new(ticks) }
    }

    /// Where a connection goes: a wildcard becomes the loopback address of its family.
    fn destination(&self) -> SocketAddr {
        let mut address = self.address;
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        address
    }
}

/// Which connections are the probe's own, and for which data thread each is meant. The probe binds and registers its
/// local address before it connects, so the acceptor always finds it.
#[derive(Debug, Default)]
pub struct ProbePeers(Mutex<HashMap<(IpAddr, u16), usize>>);

impl ProbePeers {
    /// For a connection of the probe, the index of the data thread that is to serve it.
    pub fn thread_for(&self, peer: SocketAddr) -> Option<usize> {
        self.0.lock().get(&key(peer)).copied()
    }

    /// [`ProbePeers::thread_for`] in the form in which the acceptor takes it.
    pub fn dealer(self: &Arc<ProbePeers>) -> Arc<dyn Fn(SocketAddr) -> Option<usize> + Send + Sync> {
        let peers = self.clone();
        Arc::new(move |peer| peers.thread_for(peer))
    }

    fn register(&self, local: SocketAddr, thread: usize) -> Registered<'_> {
        self.0.lock().insert(key(local), thread);
        Registered { peers: self, key: key(local) }
    }
}

/// An IPv4 peer of a dual-stack listener is seen as a mapped IPv6 address.
fn key(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// Forgets the address when dropped.
struct Registered<'a> {
    peers: &'a ProbePeers,
    key: (IpAddr, u16),
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.peers.0.lock().remove(&self.key);
    }
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeFailure {
    /// No answer on every connection within the timeout.
    #[error("not every data thread answered HealthCheck within {0:?}")]
    Timeout(Duration),
    /// The connection could not be made or broke.
    #[error("connection {thread} to {address}: {source}")]
    Connection {
        /// Index of the data thread it was meant for.
        thread: usize,
        /// Where to.
        address: SocketAddr,
        /// What happened.
        source: io::Error,
    },
    /// The store said ok=false.
    #[error("shard {shard} could not be read within HealthCheck's budget ({checked} shards before it could)")]
    Blocked {
        /// The first blocked shard.
        shard: u64,
        /// Shards acquired before it.
        checked: u64,
    },
    /// The peer does not speak the native protocol, or says too much.
    #[error("the answer to HealthCheck: {0}")]
    Frame(#[from] FrameError),
    /// The RPC layer refused, or the answer is of another type.
    #[error("the answer to HealthCheck: {0}")]
    Call(#[from] CallError),
    /// The call itself failed.
    #[error("HealthCheck failed with error code {0}")]
    Code(i32),
    /// A data thread answered, but its own tick is old.
    #[error("data thread {thread} has not ticked for {age:?}")]
    LateThread {
        /// Index of the thread.
        thread: usize,
        /// Since its tick.
        age: Duration,
    },
    /// A test wants it so.
    #[error("injected fault: first_probe fails")]
    Injected,
}

/// Probes for ever: at once when the service becomes available, then every interval; rounds never overlap.
pub(super) async fn run(state: Arc<AdminState>, settings: ProbeConfig) {
    let AdminState { readiness, probe_peers: peers, faults, clock, .. } = &*state;
    let mut watch = readiness.watch();
    loop {
        let now = watch.borrow_and_update().clone();
        let Some(target) = now.serving else {
            if watch.changed().await.is_err() {
                return;
            }
            continue;
        };
        let rounds = async {
            let mut answered = false;
            loop {
                let due = Instant::now() + settings.interval;
                let probe = async {
                    if !answered && faults.fails_async(FaultStep::FirstProbe).await {
                        return Err(ProbeFailure::Injected);
                    }
                    round(&target, peers, &**clock, settings.timeout).await
                };
                tokio::select! {
                    result = probe => {
                        answered |= result.is_ok();
                        let latency = Instant::now().duration_since(due - settings.interval);
                        report(readiness, now.generation, result, latency);
                    }
                    // A round that has seen such a time says nothing about the time after it.
                    () = permit_missing(readiness) => {}
                }
                pause(readiness, due).await;
            }
        };
        tokio::select! {
            // Leaving drops the running round; its result would be of a time that is over.
            changed = watch.changed() => if changed.is_err() { return },
            () = rounds => {}
        }
    }
}

/// Waits until the permit is missing.
async fn permit_missing(readiness: &Readiness) {
    while readiness.permit().held() {
        tokio::time::sleep(PERMIT_CHECK).await;
    }
}

/// Until the next round is due. A permit that was missing and is back makes it due at once.
async fn pause(readiness: &Readiness, due: Instant) {
    loop {
        if !readiness.permit().held() {
            readiness.forget_probe();
            while !readiness.permit().held() {
                tokio::time::sleep(PERMIT_CHECK).await;
            }
            return;
        }
        let now = Instant::now();
        if now >= due {
            return;
        }
        tokio::time::sleep_until(due.min(now + PERMIT_CHECK)).await;
    }
}

fn report(readiness: &Readiness, generation: u64, result: Result<(), ProbeFailure>, latency: Duration) {
    let was_ok = readiness.probe_ok();
    if !readiness.record(generation, result.is_ok(), latency) {
        return;
    }
    match result {
        Err(failure) if was_ok => tracing::warn!(%failure, "the RPC path does not answer: not ready"),
        Err(failure) => tracing::debug!(%failure, "the RPC path still does not answer"),
        Ok(()) if !was_ok => {
            tracing::info!(latency_ms = latency.as_millis() as u64, "the RPC path answers: ready");
        }
        Ok(()) => {}
    }
}

/// One round: every walk ok within the timeout, and every data thread's own tick younger than the timeout.
async fn round(
    target: &ProbeTarget,
    peers: &ProbePeers,
    clock: &dyn Clock,
    timeout: Duration,
) -> Result<(), ProbeFailure> {
    let address = target.destination();
    let threads = (target.ticks)().len().max(1);
    let walks = (0..threads).map(|thread| walk(address, thread, peers));
    tokio::time::timeout(timeout, try_join_all(walks))
        .await
        .map_err(|_| ProbeFailure::Timeout(timeout))??;
    let now = clock.now().as_millis();
    for (thread, tick) in (target.ticks)().into_iter().enumerate() {
        let age = Duration::from_millis(now.saturating_sub(tick));
        if age >= timeout {
            return Err(ProbeFailure::LateThread { thread, age });
        }
    }
    Ok(())
}

/// One `HealthCheck` on a connection of its own.
async fn walk(address: SocketAddr, thread: usize, peers: &ProbePeers) -> Result<(), ProbeFailure> {
    let failed = |source| ProbeFailure::Connection { thread, address, source };
    let (socket, local) = bound_socket(address).map_err(failed)?;
    let _registered = peers.register(local, thread);
    let mut stream = socket.connect(address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (rpc, reading) = &*HEALTH_CHECK;
    let mut request = BytesMut::new();
    client::call(&mut request, 0, rpc, &());
    stream.write_all(&request).await.map_err(failed)?;
    let mut header = [0; RESPONSE_HEADER];
    stream.read_exact(&mut header).await.map_err(failed)?;
    let header = ResponseHeader::parse(&header, &ANSWER)?;
    let (error, length) = header.map_or((0, 0), |header| (header.error, header.body));
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).await.map_err(failed)?;
    match reading.read(error, &body)? {
        Ok(health) if health.ok => Ok(()),
        Ok(health) => {
            Err(ProbeFailure::Blocked { shard: health.shards_blocked, checked: health.shards_checked })
        }
        Err(code) => Err(ProbeFailure::Code(code)),
    }
}

/// Bound, so that its address is known before it connects. Both ends are on this machine, so the source address can be
/// the destination's.
fn bound_socket(destination: SocketAddr) -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = if destination.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    let mut source = destination;
    source.set_port(0);
    socket.bind(source)?;
    let local = socket.local_addr()?;
    Ok((socket, local))
}
