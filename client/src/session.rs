//! What holds between two handshakes, and the calls that run in it.

use crate::{
    connection::{Connection, Stub},
    error::{ConnectError, Error},
    options::{ClientOptions, HeartbeatMode},
    pool::{Answer, EPOCH, Failure, OnSilence, Pool, attempt},
};
use mooncake_proto::v1;
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tonic::{Request, Response, Status, metadata::MetadataValue};

/// Where heartbeats go at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The main port.
    Main,
    /// A port of their own.
    Dedicated(u16),
}

/// Stands for "no answer carried an epoch".
const NO_EPOCH: u64 = u64::MAX;

/// The result of a handshake.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) main: Connection,
    pub(crate) advertised: u16,
    pub(crate) route: Route,
    /// The heartbeat port, also while the route is the main one.
    pub(crate) heartbeat: Option<SocketAddr>,
    epoch: AtomicU64,
}

impl Session {
    pub(crate) fn new(
        main: Connection,
        advertised: u16,
        route: Route,
        heartbeat: Option<SocketAddr>,
        epoch: Option<u64>,
    ) -> Session {
        Session { main, advertised, route, heartbeat, epoch: AtomicU64::new(epoch.unwrap_or(NO_EPOCH)) }
    }

    /// Names it: each has a main connection of its own.
    pub(crate) fn id(&self) -> u64 {
        self.main.id()
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        Some(self.epoch.load(Ordering::Relaxed)).filter(|epoch| *epoch != NO_EPOCH)
    }

    /// One connection leads to one process, whose epoch only grows.
    fn saw(&self, epoch: Option<u64>) {
        let newer = |old| epoch.filter(|epoch| old == NO_EPOCH || *epoch > old);
        let _ = self.epoch.fetch_update(Ordering::Relaxed, Ordering::Relaxed, newer);
    }
}

/// What repeating a call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Changes nothing, may be sent twice.
    Read,
    /// Changes something, but the second time nothing more.
    Repeatable,
    /// Must not be sent twice.
    Mutation,
}

/// What the clones of a client share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: ClientOptions,
    pub(crate) mode: HeartbeatMode,
    pub(crate) pool: Pool,
    /// Segments to be mounted again when the master asks for it.
    pub(crate) segments: Mutex<Vec<v1::Segment>>,
    current: Mutex<Option<Arc<Session>>>,
    /// One handshake at a time.
    gate: tokio::sync::Mutex<()>,
}

impl Inner {
    pub(crate) fn new(options: ClientOptions) -> Result<Inner, ConnectError> {
        let mode = options.check()?;
        let pool = Pool::new(&options);
        Ok(Inner {
            options,
            mode,
            pool,
            segments: Mutex::default(),
            current: Mutex::default(),
            gate: tokio::sync::Mutex::default(),
        })
    }

    /// The session there is, if its connection is not known to be dead.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        self.current.lock().clone().filter(|session| !session.main.is_closed())
    }

    /// The session there is, or a new one; whether it is new.
    pub(crate) async fn session(&self) -> Result<(Arc<Session>, bool), ConnectError> {
        if let Some(session) = self.current() {
            return Ok((session, false));
        }
        let _one = self.gate.lock().await;
        if let Some(session) = self.current() {
            return Ok((session, true));
        }
        let session = Arc::new(self.handshake().await?);
        *self.current.lock() = Some(session.clone());
        Ok((session, true))
    }

    /// A new handshake on the connections there are.
    pub(crate) async fn renew(&self) -> Result<(), ConnectError> {
        let _one = self.gate.lock().await;
        self.current.lock().take();
        let session = self.handshake().await?;
        *self.current.lock() = Some(Arc::new(session));
        Ok(())
    }

    /// Ends a session: the next use begins with a handshake on a new connection.
    pub(crate) fn invalidate(&self, session: &Session) {
        self.pool.discard(&session.main);
        let mut current = self.current.lock();
        if current.as_ref().is_some_and(|other| other.id() == session.id()) {
            *current = None;
        }
    }

    /// A call on the main port. It is made a second time, after a new handshake, if that can do no harm and the
    /// first one did not go over a new connection.
    pub(crate) async fn call<Q: Clone, T, F>(
        &self,
        kind: Kind,
        request: Q,
        send: impl Fn(Stub, Request<Q>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut tried = false;
        loop {
            let (session, new) = self.session().await?;
            let mut message = Request::new(request.clone());
            if let (Kind::Repeatable | Kind::Mutation, Some(epoch)) = (kind, session.epoch()) {
                message.metadata_mut().insert(EPOCH, MetadataValue::from(epoch));
            }
            let limit = self.options.call_timeout;
            let failure = match attempt(&session.main, limit, |stub| send(stub, message)).await {
                Ok(Answer { value, epoch }) => {
                    session.saw(epoch);
                    return Ok(value);
                }
                Err(failure) => failure,
            };
            let again = !tried && self.may_repeat(&session, kind, new, &failure);
            if !again {
                return Err(failure.into());
            }
            tried = true;
        }
    }

    /// Ends the session if the failure says so; whether the call may be sent once more.
    fn may_repeat(&self, session: &Session, kind: Kind, new: bool, failure: &Failure) -> bool {
        let harmless = kind != Kind::Mutation;
        match failure {
            Failure::Broken { never_sent, .. } => {
                self.invalidate(session);
                !new && (harmless || *never_sent)
            }
            Failure::TimedOut(_) | Failure::Connect(_) => {
                self.invalidate(session);
                false
            }
            Failure::Status(_) if failure.not_leader() => {
                self.invalidate(session);
                true
            }
            Failure::Status(_) if failure.not_serving() => {
                self.invalidate(session);
                !new && harmless
            }
            Failure::Status(_) => false,
        }
    }

    fn ping_request(&self) -> v1::PingRequest {
        v1::PingRequest { client_id: Some(self.options.client_id) }
    }

    /// A Ping on that connection.
    pub(crate) async fn ping_on(
        &self,
        connection: &Connection,
        limit: Duration,
    ) -> Result<Answer<v1::PingResponse>, Failure> {
        let request = self.ping_request();
        attempt(connection, limit, |mut stub| async move { stub.ping(request).await }).await
    }

    /// A Ping to that port, over the pool's connection or a new one.
    pub(crate) async fn ping_at(
        &self,
        address: SocketAddr,
        limit: Duration,
    ) -> Result<Answer<v1::PingResponse>, Failure> {
        let request = self.ping_request();
        self.pool
            .call(address, limit, OnSilence::Report, |mut stub| async move { stub.ping(request).await })
            .await
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        if failure.not_serving() || failure.not_leader() {
            return Error::NotServing(failure.to_string());
        }
        match failure {
            Failure::Connect(reason) | Failure::Broken { reason, .. } => Error::Broken(reason),
            Failure::TimedOut(limit) => Error::TimedOut(limit),
            Failure::Status(status) => Error::Status(status),
        }
    }
}
