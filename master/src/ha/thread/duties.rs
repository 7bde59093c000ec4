//! What the lease thread does beside the elector when leadership is a Kubernetes Lease: labels, the proof that an
//! earlier process is gone, and the time in which it leaves the lease to others.

use super::{Ending, HaError, LONGEST_SLEEP, State, log};
use crate::{
    clock::Clock,
    ha::{
        HaState, LeaseOptions,
        labels::{Backoff, LabelError, LabelWriter},
        process,
    },
};
use mooncake_lease::{
    BootClock, Command, ElectorConfig, Identity, Instant as LeaseInstant, WallTime,
    driver::{self, DriverConfig},
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::sync::mpsc;

/// How often the holder looks at its own pod.
const KEEP_LABEL: Duration = Duration::from_secs(5);
/// How long the first claim waits for the removal of the own label and for the epochs of the pods. What cannot be
/// written or read would otherwise keep every master from serving.
const CLEAR_OWN: Duration = Duration::from_secs(10);

/// The master's clock as the lease crate sees it.
struct LeaseClock(Arc<dyn Clock>);

impl mooncake_lease::Clock for LeaseClock {
    fn now(&self) -> LeaseInstant {
        LeaseInstant::from_nanos(self.0.now().as_nanos())
    }

    fn wall(&self) -> WallTime {
        BootClock.wall()
    }
}

/// A prepared election.
pub(super) struct Lease {
    driver: DriverConfig,
    labels: Option<LabelWriter>,
    /// For a look at the pod of a successor, when the label is no longer this process's to write.
    pods: Option<LabelWriter>,
    has_pod: bool,
    rpc_bind: SocketAddr,
    reluctant: Option<Duration>,
    /// Namespace and name of the Lease.
    object: (String, String),
}

impl Lease {
    pub(super) async fn prepare(
        lease: LeaseOptions,
        incarnation: &str,
        state: &State,
    ) -> Result<Lease, HaError> {
        let kube = match lease.kube {
            Some(kube) => kube,
            None => driver::cluster_config().await?,
        };
        let writer = || match &lease.pod {
            Some(pod) => LabelWriter::new(kube.clone(), pod).map(Some).map_err(driver::DriverError::from),
            None => Ok(None),
        };
        let (labels, pods) = (writer()?, writer()?);
        let (pod_name, pod_uid) = lease.pod.map(|pod| (pod.name, pod.uid)).unwrap_or_default();
        let object = (lease.namespace.clone(), lease.name.clone());
        let elector = ElectorConfig {
            identity: Identity {
                address: lease.advertised,
                pod_name,
                pod_uid: pod_uid.clone(),
                incarnation: incarnation.to_owned(),
            },
            namespace: lease.namespace,
            lease_name: lease.name,
            timings: lease.timings,
            read_lease_ttl: Some(lease.read_lease_ttl),
            empty_promotion_after: lease.empty_promotion_after,
            epoch_floor: 0,
            duration_floor: Duration::ZERO,
            may_claim: labels.is_none(),
        };
        Ok(Lease {
            driver: DriverConfig { elector, kube },
            labels,
            pods,
            has_pod: !pod_uid.is_empty(),
            rpc_bind: lease.rpc_bind,
            reluctant: process::inherited_reluctance(state.now().as_nanos()),
            object,
        })
    }

    /// Takes part until the process ends.
    pub(super) async fn run(mut self, state: &State, commands: mpsc::UnboundedReceiver<Command>) {
        if let Some(period) = self.reluctant {
            // While it leaves the lease to others it is no standby that anybody may count on.
            state.parts.role.set_state(HaState::Candidate);
            let _ = state.commands.send(Command::Reluctant { period });
        } else {
            state.parts.role.set_state(HaState::Standby);
        }
        let clock = LeaseClock(state.parts.clock.clone());
        let election = driver::run(self.driver, &clock, commands, |event| state.on_event(event));
        let duties = async {
            let predecessor = async {
                if self.has_pod {
                    predecessor_gone(state, self.rpc_bind).await;
                }
            };
            let labels = async {
                if let Some(labels) = self.labels {
                    label(state, labels, self.reluctant).await;
                }
            };
            let reluctance = async {
                if let Some(period) = self.reluctant {
                    tokio::time::sleep(period).await;
                    state.end_reluctance();
                }
            };
            futures::join!(predecessor, labels, reluctance);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            result = election => if let Err(error) = result {
                log(move || tracing::error!(%error, "no election"));
            },
            () = duties => {}
        }
        state.see_off(self.pods.as_mut(), &self.object).await;
    }
}

/// Waits until the RPC address can be bound: a pod has one instance, and what this port belongs to is gone.
async fn predecessor_gone(state: &State, address: SocketAddr) {
    while let Err(error) = try_bind(address) {
        log(move || tracing::warn!(%error, %address, "the RPC address is not free yet"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let _ = state.commands.send(Command::PredecessorGone);
}

fn try_bind(address: SocketAddr) -> std::io::Result<()> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    // As the server itself binds: connections of the past that still linger do not count, a listener does.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

/// Writes labels for the life of the process.
async fn label(state: &State, mut labels: LabelWriter, reluctant: Option<Duration>) {
    let started = state.now();
    let mut backoff = Backoff::new();
    loop {
        let error = match prepare_claims(state, &labels).await {
            Ok(()) => break,
            Err(error) => error,
        };
        give_notice(&error);
        let left = CLEAR_OWN.saturating_sub(state.now().saturating_since(started));
        if left.is_zero() {
            break;
        }
        if error.doubts_connection() {
            labels.reconnect();
        }
        tokio::time::sleep(backoff.next().min(left)).await;
    }
    let _ = state.commands.send(Command::MayClaim(true));
    backoff = Backoff::new();
    let mut tried = None;
    let mut written = None;
    loop {
        let epoch = state.lease.get().map(|(epoch, _)| epoch);
        if epoch != tried {
            tried = epoch;
            backoff = Backoff::new();
        }
        let (pause, result) = match epoch {
            Some(epoch) if written == Some(epoch) => {
                (KEEP_LABEL, labels.keep_own(&|| state.holds(epoch)).await)
            }
            Some(epoch) => {
                let permit = || state.holds(epoch);
                let result = match labels.clear_others(epoch, &permit).await {
                    Ok(()) => labels.label_own(epoch, &permit).await,
                    error => error,
                };
                if result.is_ok() {
                    written = Some(epoch);
                    if let Some(tenure) = &mut *state.tenure.borrow_mut() {
                        tenure.labelled();
                    }
                    state.changed.notify_waiters();
                }
                (KEEP_LABEL, result)
            }
            None if reluctant.is_some_and(|period| state.now().saturating_since(started) < period) => {
                let result = labels.others_run().await.map(|run| {
                    let _ = state.commands.send(Command::Alone(!run));
                });
                (Duration::from_secs(1), result)
            }
            None => (KEEP_LABEL, Ok(())),
        };
        let pause = match result {
            Ok(()) => {
                backoff = Backoff::new();
                pause
            }
            Err(error) => {
                give_notice(&error);
                if matches!(error, LabelError::LaterEpoch { .. }) {
                    // The Lease went back behind its pods, or somebody leads already. No write in this epoch can
                    // succeed; the next image finds the later one on the pods before it claims.
                    state.end(Ending::ExecReluctant, 2 * LONGEST_SLEEP);
                    return;
                }
                if error.doubts_connection() {
                    labels.reconnect();
                }
                backoff.next()
            }
        };
        // A change of the permit that matters here (a new epoch) is looked at at once, an extension is not.
        let known = state.lease.get().map(|(epoch, _)| epoch);
        let news = async {
            while state.lease.get().map(|(epoch, _)| epoch) == known {
                state.changed.notified().await;
            }
        };
        let _ = tokio::time::timeout(pause, news).await;
    }
}

/// What must have been done before the first claim: no label left from an earlier process, and the epoch to claim with
/// above every one that was ever used, also when the Lease that counted them is gone.
async fn prepare_claims(state: &State, labels: &LabelWriter) -> Result<(), LabelError> {
    labels.clear_own().await?;
    let epoch = labels.highest_epoch().await?;
    let _ = state.commands.send(Command::EpochFloor { epoch, duration: Duration::ZERO });
    Ok(())
}

fn give_notice(error: &LabelError) {
    let text = error.to_string();
    log(move || tracing::warn!(error = text, "leader label not written yet"));
}
