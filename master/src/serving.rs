//! Everything that exists only while this process serves: the core, the RPC ports, and the background thread.

use crate::{
    admin::{AdminState, ControlThread, MetadataEntries, ProbeTarget, RemoteMetadata},
    clock::Clock,
    config::Config,
    core::{Core, Listener},
    fault::{FaultStep, FaultTarget, Faults},
    ha::connections::Connections,
    permit::ServingPermit,
    rpc::{AcceptLimits, Budget, Ear, Plane, Server, ServerOptions, Service, ServiceInfo},
    types::{CoreOptions, OffboardingMode},
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

/// How long the end of serving waits for what is being offboarded (B9).
const DRAIN: Duration = Duration::from_secs(10);

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
    /// What goes with a client that goes offline, if that is wanted (`enable_metadata_cleanup_on_timeout`).
    pub metadata: Option<Arc<MetadataEntries>>,
}

/// A serving master. Dropping it closes its ports and stops its threads, the background last.
#[derive(Debug)]
pub struct Serving {
    faults: Arc<Faults>,
    core: Arc<Core>,
    // The ports go before the background thread.
    main: Server,
    heartbeat: Option<Server>,
    _liveness: Option<StepThread>,
    _background: StepThread,
    admin: Arc<AdminState>,
}

impl Serving {
    /// A fresh, empty core behind open ports. `remount_hold`: how long re-mounted segments take no allocation.
    pub fn open(shared: &Shared, control: &ControlThread, remount_hold: Duration) -> io::Result<Serving> {
        let Shared { config, admin, permit, connections, clock, metadata } = shared;
        let options = CoreOptions { remount_hold, ..config.core.clone() };
        let faults = admin.faults.clone();
        if faults.fails(FaultStep::Promote) {
            return Err(injected(FaultStep::Promote));
        }
        let mut core = Core::new(options, clock.clone(), permit.clone()).with_faults(faults.clone());
        if let Some(metadata) = metadata {
            core = core.with_external_metadata(metadata.clone());
        }
        // One or the other: the configuration has but one server.
        let elsewhere = config.metadata_elsewhere.as_ref();
        let elsewhere = elsewhere.map(|server| RemoteMetadata::start(server, permit.clone())).transpose()?;
        if let Some(elsewhere) = &elsewhere {
            core = core.with_external_metadata(elsewhere.clone());
        }
        let core = Arc::new(core);
        if let Some(elsewhere) = elsewhere {
            elsewhere.serve(&core);
        }
        let (readiness, role) = (admin.readiness.clone(), admin.role.clone());
        let service = Service::new(
            core.clone(),
            permit.clone(),
            clock.clone(),
            ServiceInfo {
                readiness: Arc::new(move || readiness.is_ready()),
                heartbeat_port: AtomicU32::new(0),
                heartbeat_keep_on_main: config.heartbeat.keep_on_main,
                fsdir: config.storage.disk_directory.clone().unwrap_or_default(),
                enable_disk_eviction: config.storage.enable_disk_eviction,
                quota_bytes: config.storage.quota_bytes,
                health_budget: config.probe.health_check_budget(),
                leader: Arc::new(move || role.leader()),
                faults: faults.clone(),
                default_generation: config.rpc.default_generation,
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
            generation_ports: Vec::new(),
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
                Server::start(options, service.clone(), Budget::new(HEARTBEAT_BUDGET), connections)
            })
            .transpose()?;
        if let Some(server) = &heartbeat {
            service.info().heartbeat_port.store(u32::from(server.local_address().port()), Ordering::Relaxed);
        }
        let options = ServerOptions {
            generation_ports: config.rpc.generation_ports.clone(),
            ..port(Plane::Main, config.rpc.port, config.rpc.threads)
        };
        let generations = service.generations().clone();
        let main = Server::start(options, service, budget, connections)?;
        let background = StepThread::background(core.clone(), permit.clone(), clock.clone())?;
        let ears = [Some(&main), heartbeat.as_ref()].into_iter().flatten().flat_map(Server::ears).collect();
        let mut monitor = Monitor {
            core: core.clone(),
            faults: faults.clone(),
            hearing: Hearing::new(ears, clock.clone()),
        };
        let liveness = match config.core.offboarding_mode {
            OffboardingMode::Async => {
                control.handle().spawn(judge(monitor));
                None
            }
            // It may wait for a shard's lock, which the control thread never does.
            OffboardingMode::Sync => Some(StepThread::start("liveness", move || monitor.tick(), || true)?),
        };
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
        admin.store.open(core.clone(), permit.clone(), clock.clone())?;
        let figures = core.clone();
        admin.metrics.set_store(Some(Arc::new(move || figures.stats())));
        let states = main.thread_states();
        admin.readiness.serve(ProbeTarget {
            address: main.local_address(),
            ticks: Arc::new(move || states.iter().map(|state| state.tick.load(Ordering::Relaxed)).collect()),
        });
        admin.show_clients(core.clone(), generations);
        Ok(Serving {
            faults,
            core,
            main,
            heartbeat,
            _liveness: liveness,
            _background: background,
            admin: admin.clone(),
        })
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
        self.admin.hide_clients();
        self.admin.store.close();
    }
}

/// Whether this process could hear its clients (B2): every accept loop and every thread that owns connections, each for
/// itself.
struct Hearing {
    ears: Vec<(Ear, Deafness)>,
    clock: Arc<dyn Clock>,
}

#[derive(Clone, Copy, Debug)]
struct Deafness {
    /// Until when it is known, clock milliseconds.
    known: u64,
    deaf: bool,
}

impl Hearing {
    fn new(ears: Vec<Ear>, clock: Arc<dyn Clock>) -> Hearing {
        let start = Deafness { known: clock.now().as_millis(), deaf: false };
        Hearing { ears: ears.into_iter().map(|ear| (ear, start)).collect(), clock }
    }

    /// Reports for how long, since the last call, each part of it did not listen.
    fn look(&mut self, mut report: impl FnMut(Option<Listener>, Duration)) {
        let now = self.clock.now().as_millis();
        for (ear, deafness) in &mut self.ears {
            let deaf = deafness.since_last(now, (ear.tick)());
            if !deaf.is_zero() {
                report(ear.listener, deaf);
            }
        }
    }
}

impl Deafness {
    fn since_last(&mut self, now: u64, tick: u64) -> Duration {
        let age = now.saturating_sub(tick);
        let was = *self;
        *self = Deafness { known: now, deaf: age > DEAF.as_millis() as u64 };
        match (was.deaf, self.deaf) {
            (false, false) => Duration::ZERO,
            // It began before the last look, which could not tell yet.
            (false, true) => Duration::from_millis(age),
            // The end is somewhere since the last look; all of it counts.
            (true, _) => Duration::from_millis(now.saturating_sub(was.known)),
        }
    }
}

/// The judge of silence, and what tells it whether this master listened.
struct Monitor {
    core: Arc<Core>,
    faults: Arc<Faults>,
    hearing: Hearing,
}

impl Monitor {
    /// Looks and judges: when to do it again.
    fn tick(&mut self) -> Duration {
        if let Some(pause) = self.faults.monitor_pause() {
            return pause;
        }
        let core = &self.core;
        self.hearing.look(|listener, deaf| match listener {
            Some(listener) => core.report_deaf(listener, deaf),
            None => core.report_stall(deaf),
        });
        core.liveness_tick()
    }
}

async fn judge(mut monitor: Monitor) {
    loop {
        let pause = monitor.tick();
        tokio::time::sleep(pause).await;
    }
}

/// A thread that may wait for a shard's lock, and takes step after step.
#[derive(Debug)]
struct StepThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StepThread {
    /// `step` says when it wants to be called again, and `leave` whether it may be left as it is once it is to stop.
    fn start(
        name: &str,
        mut step: impl FnMut() -> Duration + Send + 'static,
        mut leave: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<StepThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while !stopped.load(Ordering::Acquire) || !leave() {
                let pause = step();
                if pause.is_zero() {
                    std::thread::yield_now();
                } else {
                    std::thread::park_timeout(pause);
                }
            }
        })?;
        Ok(StepThread { stop, thread: Some(thread) })
    }

    /// Offboarding, abandoned puts, ranges set aside. When it is to stop, what is being offboarded is finished, unless
    /// that takes longer than [`DRAIN`] or the permit is gone: then nothing may move.
    fn background(
        core: Arc<Core>,
        permit: Arc<ServingPermit>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<StepThread> {
        let mut deadline = None;
        let drained = core.clone();
        let leave = move || {
            let now = clock.now();
            let deadline = *deadline.get_or_insert(now.saturating_add(DRAIN));
            now >= deadline || !permit.held() || drained.is_offboarded()
        };
        StepThread::start("background", move || core.background_tick(), leave)
    }
}

impl Drop for StepThread {
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
    fn the_time_in_which_a_thread_was_stuck_is_reported_once_and_of_that_thread() {
        let clock = ManualClock::new(Instant::from_nanos(50_000_000_000));
        let ticks = [Arc::new(AtomicU64::new(50_000)), Arc::new(AtomicU64::new(50_000))];
        let stuck_one = Listener::new(4);
        let ears = ticks
            .iter()
            .cloned()
            .zip([None, Some(stuck_one)])
            .map(|(tick, listener)| Ear { listener, tick: Arc::new(move || tick.load(Ordering::Relaxed)) });
        let mut hearing = Hearing::new(ears.collect(), clock.clone());
        let mut deaf = |passed: u64, stuck: bool| {
            clock.advance(Duration::from_millis(passed));
            let now = clock.now().as_millis();
            ticks[0].store(now, Ordering::Relaxed);
            if !stuck {
                ticks[1].store(now, Ordering::Relaxed);
            }
            let mut reported = Duration::ZERO;
            hearing.look(|listener, deaf| {
                assert_eq!(listener, Some(stuck_one));
                reported += deaf;
            });
            reported.as_millis()
        };
        assert_eq!(deaf(1000, false), 0);
        assert_eq!(deaf(1000, true), 0, "cannot tell yet");
        assert_eq!(deaf(1000, true), 2000);
        assert_eq!(deaf(1500, true), 1500);
        assert_eq!(deaf(1000, false), 1000, "the rest");
        assert_eq!(deaf(1000, false), 0);
    }
}
