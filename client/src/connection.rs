//! One connection, which is never made anew behind its user's back.

use futures::{FutureExt, future::BoxFuture};
use http::Uri;
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mooncake_proto::v1::master_service_client::MasterServiceClient;
use std::{
    fmt, io,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};
use tonic::body::Body;

/// Receive windows, bytes: answers of large batches should not wait for window updates.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// A peer that is gone without a word is noticed after these two.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// A byte stream to a master.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// How names become addresses and addresses connections; tests bring their own network.
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// The addresses of a `host:port`.
    fn resolve<'a>(&'a self, master: &'a str) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
    /// A new connection.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Io>>>;
}

/// TCP, with names from the system's resolver.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

impl Connector for Tcp {
    fn resolve<'a>(&'a self, master: &'a str) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        async move { Ok(lookup_host(master).await?.collect()) }.boxed()
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        }
        .boxed()
    }
}

/// The generated client on one connection.
pub(crate) type Stub = MasterServiceClient<Connection>;

/// A connection and the task that drives it; cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    id: u64,
    address: SocketAddr,
    sender: http2::SendRequest<Body>,
}

impl Connection {
    /// Makes a new one.
    pub(crate) async fn open(connector: &dyn Connector, address: SocketAddr) -> io::Result<Connection> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let io = connector.connect(address).await?;
        let (sender, driver) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .handshake(TokioIo::new(io))
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%address, %error, "connection ended");
            }
        });
        Ok(Connection { id: NEXT.fetch_add(1, Ordering::Relaxed), address, sender })
    }

    /// Different for every connection of the process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The other end.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it is known to be dead.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// The generated client on it.
    pub(crate) fn stub(&self) -> Stub {
        let origin =
            Uri::builder().scheme("http").authority(self.address.to_string()).path_and_query("/").build();
        // An IP address and a port are always an authority.
        MasterServiceClient::with_origin(self.clone(), origin.unwrap_or_default())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX)
    }
}

/// A call that failed below gRPC.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub(crate) struct SendError {
    /// Whether the request certainly never left this process.
    pub(crate) never_sent: bool,
    source: hyper::Error,
}

impl tower::Service<http::Request<Body>> for Connection {
    type Response = http::Response<Incoming>;
    type Error = SendError;
    type Future = BoxFuture<'static, Result<Self::Response, SendError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        // A dead connection is told by `call`, which knows whether the request was sent.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.sender.try_send_request(request);
        async move {
            answer.await.map_err(|mut error| SendError {
                never_sent: error.take_message().is_some(),
                source: error.into_error(),
            })
        }
        .boxed()
    }
}
