//! The connections of a client, at most one to each address, and the rule of their renewal (C5).

use crate::{
    connection::{Connection, Connector, SendError, Stub},
    options::ClientOptions,
};
use parking_lot::Mutex;
use std::{collections::HashMap, error::Error as _, net::SocketAddr, sync::Arc, time::Duration};
use tokio::time::timeout;
use tonic::{Code, Response, Status};

/// Metadata that carries the epoch, both ways.
pub(crate) const EPOCH: &str = "mooncake-epoch";

/// Why one attempt has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// No connection could be made.
    Connect(String),
    /// The connection broke.
    Broken { never_sent: bool, reason: String },
    /// No answer in this time. The connection is not used again.
    TimedOut(Duration),
    /// A gRPC status that the master sent.
    Status(Status),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Connect(reason) | Failure::Broken { reason, .. } => f.write_str(reason),
            Failure::TimedOut(time) => write!(f, "no answer within {time:?}"),
            Failure::Status(status) => write!(f, "{}: {}", status.code(), status.message()),
        }
    }
}

impl Failure {
    fn of(status: Status) -> Failure {
        // A status with a source was made on this side; one from the master has none.
        let Some(mut cause) = status.source() else { return Failure::Status(status) };
        loop {
            if let Some(error) = cause.downcast_ref::<SendError>() {
                return Failure::Broken { never_sent: error.never_sent, reason: error.to_string() };
            }
            match cause.source() {
                Some(deeper) => cause = deeper,
                None => return Failure::Broken { never_sent: false, reason: cause.to_string() },
            }
        }
    }

    /// The master said that it is not the one to talk to, before it did anything.
    pub(crate) fn not_leader(&self) -> bool {
        matches!(self, Failure::Status(status)
            if status.code() == Code::FailedPrecondition && status.message().starts_with("NOT_LEADER"))
    }

    /// The master said that it does not serve.
    pub(crate) fn not_serving(&self) -> bool {
        matches!(self, Failure::Status(status) if status.code() == Code::Unavailable)
    }

    /// The master said that heartbeats are not served on that port.
    pub(crate) fn misrouted(&self) -> bool {
        matches!(self, Failure::Status(status)
            if status.code() == Code::FailedPrecondition
                && status.message().starts_with("HEARTBEAT_ROUTING_MISMATCH"))
    }
}

/// An answer and the epoch that came with it.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    pub(crate) epoch: Option<u64>,
}

/// One attempt on one connection.
pub(crate) async fn attempt<T, F>(
    connection: &Connection,
    limit: Duration,
    call: impl FnOnce(Stub) -> F,
) -> Result<Answer<T>, Failure>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    match timeout(limit, call(connection.stub())).await {
        Err(_) => Err(Failure::TimedOut(limit)),
        Ok(Err(status)) => Err(Failure::of(status)),
        Ok(Ok(response)) => {
            let epoch = response.metadata().get(EPOCH);
            let epoch = epoch.and_then(|epoch| epoch.to_str().ok()).and_then(|epoch| epoch.parse().ok());
            Ok(Answer { value: response.into_inner(), epoch })
        }
    }
}

/// What to do when a connection from the pool does not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnSilence {
    /// It counts as stale, like one that broke: a new connection is tried.
    Renew,
    /// It is the result.
    Report,
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Pool {
    connector: Arc<dyn Connector>,
    connect_timeout: Duration,
    connections: Mutex<HashMap<SocketAddr, Connection>>,
    /// Where each master was last reached.
    addresses: Mutex<HashMap<String, SocketAddr>>,
}

impl Pool {
    pub(crate) fn new(options: &ClientOptions) -> Pool {
        Pool {
            connector: options.connector.clone(),
            connect_timeout: options.connect_timeout,
            connections: Mutex::default(),
            addresses: Mutex::default(),
        }
    }

    /// A connection to a master: the one there is, or a new one. Whether it was there already.
    pub(crate) async fn master(&self, master: &str) -> Result<(Connection, bool), Failure> {
        let cached = self.addresses.lock().get(master).copied();
        if let Some(address) = cached {
            if let Some(connection) = self.pooled(address) {
                return Ok((connection, true));
            }
            // A failed connect forgets the address, so that the next one asks the resolver again.
            let fresh = self.open(address, self.connect_timeout).await;
            if fresh.is_err() {
                self.forget(master);
            }
            return Ok((fresh?, false));
        }
        let resolved = timeout(self.connect_timeout, self.connector.resolve(master)).await;
        let addresses = match resolved {
            Err(_) => return Err(Failure::TimedOut(self.connect_timeout)),
            Ok(Err(error)) => return Err(Failure::Connect(format!("resolving the name: {error}"))),
            Ok(Ok(addresses)) => addresses,
        };
        let mut failure = Failure::Connect("the name has no address".into());
        for address in addresses {
            match self.open(address, self.connect_timeout).await {
                Ok(connection) => {
                    self.addresses.lock().insert(master.to_owned(), address);
                    return Ok((connection, false));
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Forgets where a master was reached.
    pub(crate) fn forget(&self, master: &str) {
        self.addresses.lock().remove(master);
    }

    /// A new connection, which takes the place of one to the same address.
    pub(crate) async fn open(&self, address: SocketAddr, limit: Duration) -> Result<Connection, Failure> {
        match timeout(limit, Connection::open(&*self.connector, address)).await {
            Err(_) => Err(Failure::TimedOut(limit)),
            Ok(Err(error)) => Err(Failure::Connect(error.to_string())),
            Ok(Ok(connection)) => {
                let mut connections = self.connections.lock();
                connections.retain(|_, other| !other.is_closed());
                connections.insert(address, connection.clone());
                Ok(connection)
            }
        }
    }

    fn pooled(&self, address: SocketAddr) -> Option<Connection> {
        self.connections.lock().get(&address).cloned()
    }

    /// Takes a connection out; calls on its clones go on.
    pub(crate) fn discard(&self, connection: &Connection) {
        let mut connections = self.connections.lock();
        if connections.get(&connection.address()).is_some_and(|other| other.id() == connection.id()) {
            connections.remove(&connection.address());
        }
    }

    /// Takes out what leads to none of these addresses.
    pub(crate) fn keep_only(&self, addresses: &[SocketAddr]) {
        self.connections.lock().retain(|address, _| addresses.contains(address));
    }

    /// A call that may be repeated, on the connection that is there or a new one. One from the pool that turns out
    /// stale is replaced once; a new one is not.
    pub(crate) async fn call<T, F>(
        &self,
        address: SocketAddr,
        limit: Duration,
        on_silence: OnSilence,
        call: impl Fn(Stub) -> F,
    ) -> Result<Answer<T>, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        if let Some(connection) = self.pooled(address) {
            match attempt(&connection, limit, &call).await {
                Err(failure @ Failure::TimedOut(_)) => {
                    self.discard(&connection);
                    if on_silence == OnSilence::Report {
                        return Err(failure);
                    }
                }
                Err(Failure::Broken { .. }) => self.discard(&connection),
                result => return result,
            }
        }
        let connection = self.open(address, limit.min(self.connect_timeout)).await?;
        let result = attempt(&connection, limit, &call).await;
        if matches!(result, Err(Failure::TimedOut(_) | Failure::Broken { .. })) {
            self.discard(&connection);
        }
        result
    }
}
