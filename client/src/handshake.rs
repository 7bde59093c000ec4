//! The handshake (C4): who is there, which version, and where heartbeats go.

use crate::{
    STORE_VERSION,
    connection::Connection,
    error::ConnectError,
    options::HeartbeatMode,
    pool::{Answer, Failure, OnSilence, attempt},
    session::{Inner, Route, Session},
};
use mooncake_proto::v1;
use std::{net::SocketAddr, time::Duration};
use tonic::Code;

/// Why a port is not used for heartbeats.
#[derive(Debug)]
pub(crate) enum PortFault {
    Unreachable(String),
    /// It answers, but not to heartbeats.
    Misrouted,
}

/// Whether heartbeats are served on the main port.
enum OnMain {
    Served,
    Misrouted,
}

impl Inner {
    /// The first master that passes. A master that is reached and does not fit says more than one that is not
    /// reached (a standby's port is closed).
    pub(crate) async fn handshake(&self) -> Result<Session, ConnectError> {
        let mut told: Option<ConnectError> = None;
        for master in &self.options.masters {
            let error = match self.handshake_with(master).await {
                Ok(session) => return Ok(session),
                Err(error) => error,
            };
            tracing::debug!(%master, %error, "no handshake");
            if told.is_none() || !matches!(error, ConnectError::Unreachable { .. }) {
                told = Some(error);
            }
        }
        Err(told.unwrap_or_else(|| crate::OptionsError::NoMaster.into()))
    }

    async fn handshake_with(&self, master: &str) -> Result<Session, ConnectError> {
        let unreachable = |failure: Failure| {
            self.pool.forget(master);
            ConnectError::Unreachable { master: master.to_owned(), reason: failure.to_string() }
        };
        let (main, ready) = self.service_ready(master).await.map_err(unreachable)?;
        if ready.value.version != STORE_VERSION {
            return Err(ConnectError::Version {
                master: master.to_owned(),
                expected: STORE_VERSION,
                found: ready.value.version,
            });
        }
        let advertised = self.advertised_port(&main).await.map_err(unreachable)?;
        let route = self.route(master, &main, advertised, ready.epoch).await?;
        let heartbeat = match route {
            Route::Dedicated(port) => port,
            Route::Main => advertised,
        };
        let address = main.address();
        let heartbeat = (heartbeat != 0).then(|| SocketAddr::new(address.ip(), heartbeat));
        self.pool.keep_only(&heartbeat.into_iter().chain([address]).collect::<Vec<_>>());
        tracing::info!(%master, %address, advertised, ?route, epoch = ready.epoch, "connected");
        Ok(Session::new(main, advertised, route, heartbeat, ready.epoch))
    }

    /// ServiceReady on the main port. A pooled connection that turns out stale is replaced once.
    async fn service_ready(
        &self,
        master: &str,
    ) -> Result<(Connection, Answer<v1::ServiceReadyResponse>), Failure> {
        let limit = self.options.connect_timeout;
        let ask = |connection: Connection| async move {
            let asked = attempt(&connection, limit, |mut stub| async move {
                stub.service_ready(v1::ServiceReadyRequest {}).await
            });
            match asked.await {
                Ok(answer) => Ok((connection, answer)),
                Err(failure) => {
                    self.pool.discard(&connection);
                    Err(failure)
                }
            }
        };
        let (connection, reused) = self.pool.master(master).await?;
        match ask(connection).await {
            // An old active that no longer serves keeps no connection: behind a Service a new one goes elsewhere.
            Err(_) if reused => ask(self.pool.master(master).await?.0).await,
            result => result,
        }
    }

    async fn advertised_port(&self, main: &Connection) -> Result<u16, Failure> {
        let asked = attempt(main, self.options.connect_timeout, |mut stub| async move {
            stub.heartbeat_service_ready(v1::HeartbeatServiceReadyRequest {}).await
        });
        match asked.await {
            Ok(answer) => u16::try_from(answer.value.heartbeat_rpc_port).map_err(|_| {
                Failure::Connect(format!(
                    "heartbeat_rpc_port: {}, expected 0 to 65535",
                    answer.value.heartbeat_rpc_port
                ))
            }),
            // A master from before there were heartbeat ports.
            Err(Failure::Status(status)) if status.code() == Code::Unimplemented => Ok(0),
            Err(failure) => {
                self.pool.discard(main);
                Err(failure)
            }
        }
    }

    async fn route(
        &self,
        master: &str,
        main: &Connection,
        advertised: u16,
        epoch: Option<u64>,
    ) -> Result<Route, ConnectError> {
        let mismatch =
            |reason: String| ConnectError::HeartbeatRouting { master: master.to_owned(), advertised, reason };
        let unreachable =
            |port, reason| ConnectError::HeartbeatUnreachable { master: master.to_owned(), port, reason };
        let at = |port| SocketAddr::new(main.address().ip(), port);
        let limit = self.options.connect_timeout;
        match self.mode {
            HeartbeatMode::Strict(port) => {
                if advertised == 0 {
                    return Err(mismatch(format!(
                        "the client wants heartbeats on port {port}, the master has no heartbeat port"
                    )));
                }
                match self.probe_port(at(port), epoch, limit).await {
                    Ok(()) => {}
                    Err(PortFault::Unreachable(reason)) => return Err(unreachable(port, reason)),
                    Err(PortFault::Misrouted) => {
                        return Err(mismatch(format!(
                            "port {port} does not serve heartbeats, {advertised} does"
                        )));
                    }
                }
                if port != advertised {
                    tracing::warn!(%master, port, advertised, "heartbeats go to another port than the advertised one");
                }
                Ok(Route::Dedicated(port))
            }
            HeartbeatMode::Legacy => match self.trial_ping(master, main).await? {
                OnMain::Served => Ok(Route::Main),
                OnMain::Misrouted => Err(mismatch(format!(
                    "the client wants heartbeats on the main port, the master serves them on {advertised} only"
                ))),
            },
            HeartbeatMode::Auto => {
                let mut reason =
                    "the main port does not serve heartbeats and no other is advertised".to_owned();
                if advertised != 0 {
                    match self.probe_port(at(advertised), epoch, limit).await {
                        Ok(()) => return Ok(Route::Dedicated(advertised)),
                        Err(PortFault::Unreachable(why)) => reason = why,
                        Err(PortFault::Misrouted) => "it does not serve heartbeats".clone_into(&mut reason),
                    }
                }
                match self.trial_ping(master, main).await? {
                    OnMain::Misrouted => Err(unreachable(advertised, reason)),
                    OnMain::Served => {
                        if advertised != 0 {
                            tracing::warn!(%master, port = advertised, %reason, "heartbeats go to the main port");
                        }
                        Ok(Route::Main)
                    }
                }
            }
        }
    }

    /// Whether heartbeats are answered there, by the same master as on the main port: `ServiceReady`, then one Ping,
    /// since any RPC port of the master answers the first.
    pub(crate) async fn probe_port(
        &self,
        address: SocketAddr,
        epoch: Option<u64>,
        limit: Duration,
    ) -> Result<(), PortFault> {
        let unreachable = |failure: Failure| {
            if failure.misrouted() {
                PortFault::Misrouted
            } else {
                PortFault::Unreachable(failure.to_string())
            }
        };
        let ready = self
            .pool
            .call(address, limit, OnSilence::Renew, |mut stub| async move {
                stub.service_ready(v1::ServiceReadyRequest {}).await
            })
            .await
            .map_err(unreachable)?;
        if let (Some(there), Some(main)) = (ready.epoch, epoch)
            && there != main
        {
            return Err(PortFault::Unreachable(format!(
                "a master of epoch {there} answers there, the main port is served in epoch {main}"
            )));
        }
        match self.ping_at(address, limit).await {
            Ok(answer) if answer.value.code == v1::ErrorCode::HeartbeatRoutingMismatch as i32 => {
                Err(PortFault::Misrouted)
            }
            Ok(_) => Ok(()),
            Err(failure) => Err(unreachable(failure)),
        }
    }

    async fn trial_ping(&self, master: &str, main: &Connection) -> Result<OnMain, ConnectError> {
        match self.ping_on(main, self.options.connect_timeout).await {
            Ok(answer) if answer.value.code == v1::ErrorCode::HeartbeatRoutingMismatch as i32 => {
                Ok(OnMain::Misrouted)
            }
            Ok(_) => Ok(OnMain::Served),
            Err(failure) if failure.misrouted() => Ok(OnMain::Misrouted),
            Err(failure) => {
                self.pool.discard(main);
                self.pool.forget(master);
                let reason = format!("trial Ping: {failure}");
                Err(ConnectError::Unreachable { master: master.to_owned(), reason })
            }
        }
    }
}
