//! A server: its listening port or ports with an accept thread each, and its data threads. The main server and the heartbeat server are two of these.

use super::{
    acceptor::{AcceptLimits, AcceptLoop, AcceptStats, Acceptor, Counts},
    budget::Budget,
    data_thread::{DataThread, ThreadState},
    event_loop::Timers,
    grpc,
    native::{frame::Limits, generation::Generation},
    service::Service,
};
use crate::{clock::Clock, core::Listener, ha::connections::Connections, permit::ServingPermit};
use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// What a port serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plane {
    /// Everything.
    Main,
    /// Ping and ServiceReady only (C1).
    Heartbeat,
}

impl Plane {
    /// The number of its thread of that index among all that hear clients.
    pub(super) fn listener(self, index: usize) -> Listener {
        let first = match self {
            Plane::Main => 0,
            Plane::Heartbeat => 1 << 15,
        };
        // Far fewer threads than that can be asked for.
        Listener::new(first | index as u16)
    }
}

/// A part of a port through which clients are heard, and when it last showed that it runs.
pub struct Ear {
    /// The thread that owns connections; `None`: the accept loop, which every client may need.
    pub listener: Option<Listener>,
    /// Milliseconds of the clock at its last tick.
    pub tick: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// Limits of one port. Sizes in bytes.
#[derive(Clone)]
pub struct ServerOptions {
    /// Where to listen.
    pub address: SocketAddr,
    /// Further ports of that address, each for native clients of one generation; the data threads are the same.
    pub generation_ports: Vec<(&'static Generation, u16)>,
    /// Data threads, at least 1.
    pub threads: usize,
    /// What is served here.
    pub plane: Plane,
    /// The largest body of one frame or gRPC message.
    pub max_frame: usize,
    /// A new connection that has sent nothing for this long is closed.
    pub first_byte_timeout: Duration,
    /// A connection without progress in the middle of a frame or of an answer is closed after this. Under a Lease it
    /// is duration − renewDeadline (design §6.5).
    pub stall_timeout: Duration,
    /// Caps and dealing.
    pub accept: AcceptLimits,
}

impl ServerOptions {
    /// The caps of a native frame.
    pub(super) fn native_limits(&self) -> Limits {
        let most = u32::try_from(self.max_frame).unwrap_or(u32::MAX);
        Limits { body: most, attachment: most }
    }
}

/// What every data thread of a port shares.
pub(super) struct ServerShared {
    pub(super) options: ServerOptions,
    pub(super) service: Arc<Service>,
    pub(super) permit: Arc<ServingPermit>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) budget: Arc<Budget>,
    pub(super) grpc: grpc::Stack,
}

/// A running server. Dropping it closes its ports and every connection.
pub struct Server {
    // Order matters: no connection is accepted any more before the data threads end.
    acceptors: Vec<Acceptor>,
    threads: Arc<[DataThread]>,
    _timers: Timers,
    local_address: SocketAddr,
    generation_addresses: Vec<(&'static Generation, SocketAddr)>,
    accept_ticks: Vec<Arc<AtomicU64>>,
    plane: Plane,
    stats: Arc<AcceptStats>,
}

impl Server {
    /// Binds and serves. Errors name the address that could not be bound and the options that it came from.
    pub fn start(
        options: ServerOptions,
        service: Arc<Service>,
        budget: Arc<Budget>,
        connections: &Arc<Connections>,
    ) -> io::Result<Server> {
        let option = match options.plane {
            Plane::Main => "rpc_port",
            Plane::Heartbeat => "heartbeat_rpc_port",
        };
        let listener = bind(options.address)
            .map_err(|e| io::Error::new(e.kind(), format!("{e} (rpc_address, {option})")))?;
        Server::serve(listener, options, service, budget, connections)
    }

    /// Serves on a listener that is bound already.
    pub fn serve(
        listener: TcpListener,
        options: ServerOptions,
        service: Arc<Service>,
        budget: Arc<Budget>,
        connections: &Arc<Connections>,
    ) -> io::Result<Server> {
        let local_address = listener.local_addr()?;
        let name = match options.plane {
            Plane::Main => "data",
            Plane::Heartbeat => "heartbeat",
        };
        let faults = (options.plane == Plane::Main).then(|| service.info().faults.clone());
        let mut listeners = vec![(None, listener)];
        for &(generation, port) in &options.generation_ports {
            let listener = bind(SocketAddr::new(options.address.ip(), port))
                .map_err(|e| io::Error::new(e.kind(), format!("{e} (rpc_address, wire_generation_ports)")))?;
            listeners.push((Some(generation), listener));
        }
        let (permit, clock) = (service.permit().clone(), service.clock().clone());
        let shared = Arc::new(ServerShared {
            grpc: grpc::Stack::new(
                service.clone(),
                options.plane,
                options.max_frame,
                budget.clone(),
                options.stall_timeout,
            ),
            options,
            service,
            permit: permit.clone(),
            clock: clock.clone(),
            budget,
        });
        let timers = Timers::start(format!("{name}-timers"))?;
        let threads: Arc<[DataThread]> = (0..shared.options.threads.max(1))
            .map(|index| DataThread::start(format!("{name}-{index}"), index, shared.clone(), timers.handle()))
            .collect::<io::Result<Vec<_>>>()?
            .into();
        let stats = Arc::new(AcceptStats::default());
        let counts = Arc::new(Counts::default());
        let mut server = Server {
            acceptors: Vec::new(),
            threads,
            _timers: timers,
            local_address,
            generation_addresses: Vec::new(),
            accept_ticks: Vec::new(),
            plane: shared.options.plane,
            stats: stats.clone(),
        };
        for (generation, listener) in listeners {
            let tick = Arc::new(AtomicU64::new(clock.now().as_millis()));
            server.accept_ticks.push(tick.clone());
            let of = generation.map_or_else(String::new, |generation| format!("-{}", generation.name()));
            if let Some(generation) = generation {
                server.generation_addresses.push((generation, listener.local_addr()?));
            }
            server.acceptors.push(Acceptor::start(
                &format!("{name}-accept{of}"),
                AcceptLoop {
                    listener,
                    generation,
                    counts: counts.clone(),
                    threads: server.threads.clone(),
                    limits: shared.options.accept.clone(),
                    connections: connections.clone(),
                    permit: permit.clone(),
                    clock: clock.clone(),
                    stats: stats.clone(),
                    tick,
                    faults: faults.clone(),
                },
            )?);
        }
        Ok(server)
    }

    /// The bound address, with the real port if 0 was asked for.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// The bound addresses of the ports for one generation.
    pub fn generation_addresses(&self) -> &[(&'static Generation, SocketAddr)] {
        &self.generation_addresses
    }

    /// What the data threads show of themselves.
    pub fn thread_states(&self) -> Vec<Arc<ThreadState>> {
        self.threads.iter().map(|thread| thread.state().clone()).collect()
    }

    /// The accept loops and the data threads of this server.
    pub fn ears(&self) -> Vec<Ear> {
        let accepts = self
            .accept_ticks
            .iter()
            .cloned()
            .map(|accept| Ear { listener: None, tick: Arc::new(move || accept.load(Ordering::Relaxed)) });
        let threads = self.thread_states().into_iter().enumerate().map(|(index, state)| Ear {
            listener: Some(self.plane.listener(index)),
            tick: Arc::new(move || state.tick.load(Ordering::Relaxed)),
        });
        accepts.chain(threads).collect()
    }

    /// Counters of the accept thread.
    pub fn accept_stats(&self) -> &Arc<AcceptStats> {
        &self.stats
    }

    /// Closes the listening sockets; connections go on until the server is dropped.
    pub fn stop_accepting(&mut self) {
        self.acceptors.iter_mut().for_each(Acceptor::stop);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("local_address", &self.local_address).finish_non_exhaustive()
    }
}

/// Binds a listening socket that a restarted master can take over at once.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}"));
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM.cloexec(),
        Some(socket2::Protocol::TCP),
    )
    .map_err(named)?;
    socket.set_reuse_address(true).map_err(named)?;
    socket.bind(&address.into()).map_err(named)?;
    socket.listen(4096).map_err(named)?;
    Ok(socket.into())
}
