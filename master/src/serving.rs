//! Everything that exists only while this process serves: the core, the RPC ports, and the background thread.

use crate::{
    admin::{AdminState, ControlThread, ProbeTarget},
    clock::Clock,
    config::Config,
    core::Core,
    fault::{FaultStep, FaultTarget, Faults},
    ha::connections::Connections,
    permit::ServingPermit,
    rpc::{AcceptLimits, Budget, Plane, Server, ServerOptions, Service, ServiceInfo},
    types::CoreOptions,
};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// A new connection must say something within this.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// Without a Lease a connection may stand still in the middle of a frame or an answer for this long.
const STALL: Duration = Duration::from_secs(30);

/// A thread that listens to clients and has not ticked for this long was deaf meanwhile.
const DEAF: Duration = Duration::from_secs(1);

/// A heartbeat is a few dozen bytes; so is everything that belongs on its port.
const HEARTBEAT_FRAME: usize = 16 << 10;
/// Bytes in flight on the heartbeat port.
const HEARTBEAT_BUDGET: usize = 256 << 20;

/// What outlives a single promotion and every port shares.
#[derive(Clone)]
pub struct Shared {
    /// The configuration.
    pub config: Arc<Config>,
    /// What the control thread shows.
    pub admin: Arc<AdminState>,
    /// The permit.
    pub permit: Arc<ServingPermit>,
    /// Every accepted connection.
    pub connections: Arc<Connections>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// A serving master. Dropping it closes its ports and stops its threads.
#[derive(Debug)]
pub struct Serving {
    faults: Arc<Faults>,
    core: Arc<Core>,
    // The ports go before the background thread.
    main: Server,
    heartbeat: Option<Server>,
    _background: BackgroundThread,
}

impl Serving {
    /// A fresh, empty core behind open ports. `remount_hold`: how long re-mounted segments take no allocation.
    pub fn open(shared: &Shared, control: &ControlThread, remount_hold: Duration) -> io::Result<Serving> {
        let Shared { config, admin, permit, connections, clock } = shared;
        let options = CoreOptions { remount_hold, ..config.core.clone() };
        let faults = admin.faults.clone();
        if faults.fails(FaultStep::Promote) {
            return Err(injected(FaultStep::Promote));
        }
        let core = Core::new(options, clock.clone(), permit.clone()).with_faults(faults.clone());
        let core = Arc::new(core);
        let (readiness, role) = (admin.readiness.clone(), admin.role.clone());
        let service = Service::new(
            core.clone(),
            permit.clone(),
            clock.clone(),
            ServiceInfo {
                readiness: Arc::new(move || readiness.is_ready()),
                heartbeat_port: AtomicU32::new(0),
                heartbeat_keep_on_main: config.heartbeat.keep_on_main,
                fsdir: String::new(),
                enable_disk_eviction: config.storage.enable_disk_eviction,
                quota_bytes: config.storage.quota_bytes,
                health_budget: config.probe.health_check_budget(),
                leader: Arc::new(move || role.leader()),
                faults: faults.clone(),
            },
            admin.metrics.clone(),
        );
        let budget = Budget::new(config.rpc.byte_budget);
        let stall_timeout = config
            .ha
            .as_ref()
            .map_or(STALL, |ha| ha.lease_duration.saturating_sub(ha.renew_deadline).max(ha.retry_period));
        let peers = admin.probe_peers.clone();
        let port = |plane, port, threads| ServerOptions {
            address: SocketAddr::new(config.rpc.address, port),
            threads,
            plane,
            max_frame: config.rpc.max_frame_bytes,
            first_byte_timeout: FIRST_BYTE,
            stall_timeout,
            accept: AcceptLimits {
                total: config.rpc.max_connections,
                per_address: config.rpc.max_connections_per_address,
                probe_target: {
                    let peers = peers.clone();
                    Arc::new(move |peer| peers.thread_for(peer))
                },
                tcp_no_delay: config.rpc.tcp_no_delay,
            },
        };
        if faults.fails(FaultStep::Bind) {
            return Err(injected(FaultStep::Bind));
        }
        // The heartbeat server starts first, so that what the main one advertises is there (C1).
        let heartbeat = config
            .heartbeat
            .port
            .map(|number| {
                // A budget of its own: data that fills the other one must not keep a heartbeat waiting (C1).
                let options = ServerOptions {
                    max_frame: HEARTBEAT_FRAME,
                    ..port(Plane::Heartbeat, number, config.heartbeat.threads)
                };
                Server::start(options, service.clone(), Budget::new(HEARTBEAT_BUDGET), connections.clone())
            })
            .transpose()?;
        if let Some(server) = &heartbeat {
            service.info().heartbeat_port.store(u32::from(server.local_address().port()), Ordering::Relaxed);
        }
        let options = port(Plane::Main, config.rpc.port, config.rpc.threads);
        let main = Server::start(options, service, budget, connections.clone())?;
        let background = BackgroundThread::start(core.clone())?;
        let ports =
            [Some(&main), heartbeat.as_ref()].into_iter().flatten().map(Server::oldest_tick).collect();
        control.handle().spawn(monitor(core.clone(), faults.clone(), Hearing::new(ports, clock.clone())));
        let held = Arc::downgrade(&core);
        faults.set_target(Some(FaultTarget {
            threads: main.thread_states().len(),
            hold_shard: Arc::new(move |index, wait| {
                let Some(core) = held.upgrade() else { return false };
                let _hold = core.hold_shard(index);
                wait();
                true
            }),
        }));
        let figures = core.clone();
        admin.metrics.set_store(Some(Arc::new(move || figures.stats())));
        let states = main.thread_states();
        admin.readiness.serve(ProbeTarget {
            address: main.local_address(),
            ticks: Arc::new(move || states.iter().map(|state| state.tick.load(Ordering::Relaxed)).collect()),
        });
        Ok(Serving { faults, core, main, heartbeat, _background: background })
    }

    /// The core.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Where the main RPC server is bound.
    pub fn rpc_address(&self) -> SocketAddr {
        self.main.local_address()
    }

    /// Where the heartbeat server is bound, if there is one.
    pub fn heartbeat_address(&self) -> Option<SocketAddr> {
        self.heartbeat.as_ref().map(Server::local_address)
    }
}

fn injected(step: FaultStep) -> io::Error {
    io::Error::other(format!("injected fault: {} fails", step.name()))
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.faults.set_target(None);
    }
}

/// Whether this process could hear its clients (B2): every accept loop and every thread that owns connections ran.
struct Hearing<F> {
    ports: Vec<F>,
    clock: Arc<dyn Clock>,
    /// Until when it is known, clock milliseconds.
    known: u64,
    deaf: bool,
}

impl<F: Fn() -> u64> Hearing<F> {
    fn new(ports: Vec<F>, clock: Arc<dyn Clock>) -> Hearing<F> {
        let known = clock.now().as_millis();
        Hearing { ports, clock, known, deaf: false }
    }

    /// For how long, since the last call, some part of it did not listen.
    fn deaf_since_last(&mut self) -> Duration {
        let now = self.clock.now().as_millis();
        let oldest = self.ports.iter().map(|tick| tick()).fold(now, u64::min);
        let (was_deaf, known) = (self.deaf, self.known);
        self.deaf = now - oldest > DEAF.as_millis() as u64;
        self.known = now;
        match (was_deaf, self.deaf) {
            (false, false) => Duration::ZERO,
            // It began before the last look, which could not tell yet.
            (false, true) => Duration::from_millis(now - oldest),
            // The end is somewhere since the last look; all of it counts.
            (true, _) => Duration::from_millis(now.saturating_sub(known)),
        }
    }
}

/// Judges silence, on the control thread.
async fn monitor<F: Fn() -> u64>(core: Arc<Core>, faults: Arc<Faults>, mut hearing: Hearing<F>) {
    loop {
        while let Some(pause) = faults.monitor_pause() {
            tokio::time::sleep(pause).await;
        }
        let deaf = hearing.deaf_since_last();
        if !deaf.is_zero() {
            core.report_stall(deaf);
        }
        let pause = core.liveness_tick();
        tokio::time::sleep(pause).await;
    }
}

/// The thread that may wait for a shard's lock: offboarding, abandoned puts, ranges set aside.
#[derive(Debug)]
struct BackgroundThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundThread {
    fn start(core: Arc<Core>) -> io::Result<BackgroundThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("background".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                let pause = core.background_tick();
                if pause.is_zero() {
                    std::thread::yield_now();
                } else {
                    std::thread::park_timeout(pause);
                }
            }
        })?;
        Ok(BackgroundThread { stop, thread: Some(thread) })
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Instant, ManualClock};
    use std::sync::atomic::AtomicU64;

    #[test]
    fn the_time_in_which_a_thread_was_stuck_is_reported_once() {
        let clock = ManualClock::new(Instant::from_nanos(50_000_000_000));
        let ticks = [Arc::new(AtomicU64::new(50_000)), Arc::new(AtomicU64::new(50_000))];
        let ports = ticks.iter().cloned().map(|tick| move || tick.load(Ordering::Relaxed)).collect();
        let mut hearing = Hearing::new(ports, clock.clone());
        let mut deaf = |passed: u64, stuck: bool| {
            clock.advance(Duration::from_millis(passed));
            let now = clock.now().as_millis();
            ticks[0].store(now, Ordering::Relaxed);
            if !stuck {
                ticks[1].store(now, Ordering::Relaxed);
            }
            hearing.deaf_since_last().as_millis()
        };
        assert_eq!(deaf(1000, false), 0);
        assert_eq!(deaf(1000, true), 0, "cannot tell yet");
        assert_eq!(deaf(1000, true), 2000);
        assert_eq!(deaf(1500, true), 1500);
        assert_eq!(deaf(1000, false), 1000, "the rest");
        assert_eq!(deaf(1000, false), 0);
    }
}
