//! High availability: the role of this process, and the lease thread that decides about it (design §6).
//!
//! [`start`] runs one OS thread with a current-thread runtime and nothing else on it: the elector with its one writer,
//! the serving permit, the leader label, SIGTERM. It never waits for another thread: promotions are sent to whoever
//! carries them out, and what becomes of them comes back through a [`Control`].

pub mod connections;
#[cfg_attr(not(feature = "kubernetes"), allow(dead_code, reason = "alone nobody asks for a hand-over"))]
mod handover;
#[cfg(feature = "kubernetes")]
mod labels;
mod process;
pub mod role;
pub mod signals;
mod tenure;
mod thread;

#[cfg(feature = "kubernetes")]
pub use labels::{EPOCH_ANNOTATION, ROLE_LABEL, ROLE_LEADER};
pub use role::{HaState, Leader, RoleInfo};

#[cfg(feature = "kubernetes")]
use crate::config::PodIdentity;
use crate::{clock::Clock, permit::ServingPermit};
use connections::Connections;
#[cfg(feature = "kubernetes")]
use mooncake_lease::Timings;
#[cfg(feature = "kubernetes")]
use std::net::SocketAddr;
use std::{io, path::PathBuf, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// Where leadership comes from.
#[derive(Debug, Clone)]
pub enum Backend {
    /// No other master: this one leads for ever, in epoch 0.
    Solo,
    /// A Kubernetes Lease.
    #[cfg(feature = "kubernetes")]
    Lease(Box<LeaseOptions>),
}

/// Leadership through a Kubernetes Lease.
#[cfg(feature = "kubernetes")]
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its times.
    pub timings: Timings,
    /// `host:port` under which clients reach this very process; becomes the holder's identity.
    pub advertised: String,
    /// This pod; `None`: no leader label is written, and a restart does not know its predecessor.
    pub pod: Option<PodIdentity>,
    /// The longest read lease that this process grants.
    pub read_lease_ttl: Duration,
    /// Address of the RPC server. That it can be bound proves that no earlier process of this pod serves.
    pub rpc_bind: SocketAddr,
    /// How to reach the API server; `None`: the pod's service account, else a kubeconfig.
    pub kube: Option<kube::Config>,
    /// How long a process without the index waits for those that have it; `None`: three lease durations.
    pub empty_promotion_after: Option<Duration>,
}

/// Times by which something must have happened.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// A holder that makes no progress for this long gives the lease up (design §6.11).
    pub progress: Duration,
    /// So does one whose first probe is not ok this long after its claim. With what the next one needs to claim, serve and
    /// be Ready it stays below the 30 s in which one that hangs is replaced (design §6.11).
    pub first_probe: Duration,
    /// Label writes hold serving back at most this long (design §6.9).
    pub label_hold: Duration,
    /// Calls that run when a hand-over begins may run on for this long (design §6.7).
    pub drain: Duration,
    /// Connections stay open until the successor's pod has been ready for this long,
    pub successor_ready: Duration,
    /// and at most for this long after its claim was read.
    pub see_off: Duration,
    /// From SIGTERM to the end of the process, with or without a released lease.
    pub shutdown: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            progress: Duration::from_secs(10),
            first_probe: Duration::from_secs(25),
            label_hold: Duration::from_secs(1),
            drain: Duration::from_secs(1),
            successor_ready: Duration::from_secs(2),
            see_off: Duration::from_secs(10),
            shutdown: Duration::from_millis(200),
        }
    }
}

/// How the lease thread behaves.
#[derive(Debug, Clone)]
pub struct HaOptions {
    /// Where leadership comes from.
    pub backend: Backend,
    /// File that holds the incarnation id of the running image.
    pub termination_log: Option<PathBuf>,
    /// Times by which something must have happened.
    pub deadlines: Deadlines,
}

/// Why the lease thread could not start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum HaError {
    #[error("the lease thread cannot start: {0}")]
    Thread(#[from] io::Error),
    #[error("leadership needs a Kubernetes API server: {0}")]
    #[cfg(feature = "kubernetes")]
    Kubernetes(#[from] mooncake_lease::driver::DriverError),
    #[error(transparent)]
    #[cfg(feature = "kubernetes")]
    Timings(#[from] mooncake_lease::TimingError),
    #[error("`enable_ha` needs a build with the feature `kubernetes`")]
    #[cfg(not(feature = "kubernetes"))]
    NoBackend,
}

impl HaOptions {
    /// From the configuration.
    pub fn from_config(config: &crate::config::Config) -> Result<HaOptions, HaError> {
        let backend = match &config.ha {
            None => Backend::Solo,
            #[cfg(not(feature = "kubernetes"))]
            Some(_) => return Err(HaError::NoBackend),
            #[cfg(feature = "kubernetes")]
            Some(ha) => Backend::Lease(Box::new(LeaseOptions {
                namespace: ha.lease_namespace.clone(),
                name: ha.lease_name.clone(),
                timings: Timings::new(ha.lease_duration, ha.renew_deadline, ha.retry_period)?,
                advertised: config.rpc.advertised.clone(),
                pod: ha.pod.clone(),
                read_lease_ttl: config.core.read_lease_ttl,
                rpc_bind: SocketAddr::new(config.rpc.address, config.rpc.port),
                kube: None,
                empty_promotion_after: None,
            })),
        };
        Ok(HaOptions {
            backend,
            termination_log: config.termination_log.clone(),
            deadlines: Deadlines::default(),
        })
    }
}

/// What the lease thread works with; shared with the rest of the process.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Given and taken by the lease thread alone.
    pub permit: Arc<ServingPermit>,
    /// The process's clock.
    pub clock: Arc<dyn Clock>,
    /// Every open connection.
    pub connections: Arc<Connections>,
    /// Written by the lease thread.
    pub role: Arc<RoleInfo>,
}

/// This process became the leader: make a fresh core and open the RPC listener. It happens at most once in the life of a
/// process image, since one that loses the lease starts anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promotion {
    /// The epoch; 0 without HA.
    pub epoch: u64,
    /// How long read leases of the leader before may last. `None`: not known, or there was none.
    pub previous_read_lease_ttl: Option<Duration>,
}

/// What the process tells the lease thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Progress,
    Promoted,
    FirstProbeOk,
    Failed,
    Closed,
}

/// Tells the lease thread what became of a promotion. Never waits.
#[derive(Debug, Clone)]
pub struct Control(mpsc::UnboundedSender<Told>);

impl Control {
    fn tell(&self, what: Told) {
        // The lease thread ends only with the process.
        let _ = self.0.send(what);
    }

    /// The promotion is getting on.
    pub fn progress(&self) {
        self.tell(Told::Progress);
    }

    /// The promotion is done: the RPC server runs.
    pub fn promoted(&self) {
        self.tell(Told::Promoted);
    }

    /// The first self-probe after the promotion was good (or there is no probe).
    pub fn first_probe_ok(&self) {
        self.tell(Told::FirstProbeOk);
    }

    /// The promotion cannot be carried out: the lease is given up and the process starts anew as a standby, which leaves
    /// the lease to others for a while (design §6.11).
    pub fn failed(&self) {
        self.tell(Told::Failed);
    }

    /// What served is closed, as [`Ha::shutdown`] asked for: the process may end.
    pub fn closed(&self) {
        self.tell(Told::Closed);
    }
}

/// The running lease thread. It outlives this handle; it ends with the process.
#[derive(Debug)]
pub struct Ha {
    /// This process image, random.
    pub incarnation: String,
    /// What is to be carried out.
    pub promotions: mpsc::UnboundedReceiver<Promotion>,
    /// Told once when a process without a Lease is to end: to close its ports and finish what is being offboarded
    /// first. With a Lease there is no time for that: it is given up at once, and without the permit nothing moves.
    pub shutdown: mpsc::UnboundedReceiver<()>,
    /// For the answers.
    pub control: Control,
}

/// Starts the lease thread. [`signals::block`] must have been called before any other thread was started: from now on
/// SIGTERM and SIGINT end the process through this thread only.
pub fn start(options: HaOptions, parts: Parts) -> Result<Ha, HaError> {
    let incarnation = process::random_incarnation();
    parts.role.set_incarnation(&incarnation);
    if let Some(path) = &options.termination_log
        && let Err(error) = process::write_termination_log(path, &incarnation)
    {
        tracing::warn!(%error, path = %path.display(), "cannot write the termination log: a crash of this process \
            cannot be proven, its lease then runs out");
    }
    let (promotion_sender, promotions) = mpsc::unbounded_channel();
    let (control_sender, told) = mpsc::unbounded_channel();
    let (shutdown_sender, shutdown) = mpsc::unbounded_channel();
    let asked = thread::Asked { promotions: promotion_sender, shutdown: shutdown_sender };
    thread::start(options, parts, &incarnation, asked, told)?;
    Ok(Ha { incarnation, promotions, shutdown, control: Control(control_sender) })
}
