//! The listener of the admin HTTP server: slow peers cost a bounded number of connections and nothing else.

use crate::lock::Mutex;
use axum::Router;
use hashbrown::HashMap;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::Sleep,
};

/// Bytes of answers that the kernel holds for one connection.
const SEND_BUFFER: usize = 64 << 10;

/// What one peer and all peers together may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Open connections.
    pub(super) total: usize,
    /// Open connections of one address. Below `total`, so that one peer cannot shut out the kubelet.
    pub(super) per_address: usize,
    /// For a whole request header, and for the pause before it on a connection that is kept open.
    pub(super) header: Duration,
    /// Without progress of a write.
    pub(super) write: Duration,
    /// Of a connection; then it ends after the answer at hand.
    pub(super) lifetime: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            total: 512,
            per_address: 128,
            header: Duration::from_secs(10),
            write: Duration::from_secs(5),
            lifetime: Duration::from_secs(60),
        }
    }
}

/// Serves for ever.
pub(super) async fn serve(listener: TcpListener, router: Router, limits: Limits) {
    let open = Arc::new(Open::default());
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, or the peer was gone already; neither ends the listener.
                tracing::debug!(%error, "admin HTTP: accept");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let Some(slot) = open.admit(peer.ip().to_canonical(), limits) else { continue };
        let router = router.clone();
        tokio::spawn(async move {
            connection(stream, router, limits).await;
            drop(slot);
        });
    }
}

async fn connection(stream: TcpStream, router: Router, limits: Limits) {
    let _ = stream.set_nodelay(true);
    // A peer that asks for much and reads nothing is stopped early, before it has cost time and kernel memory.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER);
    let stream = Progress { stream, limit: limits.write, stalled: None };
    let mut connection = std::pin::pin!(
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header)
            .max_buf_size(16 << 10)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    tokio::select! {
        // A peer that breaks off or is too slow is no news.
        _ = connection.as_mut() => {}
        () = tokio::time::sleep(limits.lifetime) => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(limits.write, connection).await;
        }
    }
}

/// Connections by address.
#[derive(Debug, Default)]
struct Open(Mutex<(usize, HashMap<IpAddr, usize>)>);

impl Open {
    fn admit(self: &Arc<Open>, address: IpAddr, limits: Limits) -> Option<Slot> {
        let mut guard = self.0.lock();
        let (total, by_address) = &mut *guard;
        let of_it = by_address.get(&address).copied().unwrap_or(0);
        if *total >= limits.total || of_it >= limits.per_address {
            return None;
        }
        *total += 1;
        by_address.insert(address, of_it + 1);
        Some(Slot { open: self.clone(), address })
    }
}

/// One connection's place; free again when dropped.
struct Slot {
    open: Arc<Open>,
    address: IpAddr,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut guard = self.open.0.lock();
        let (total, by_address) = &mut *guard;
        *total -= 1;
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

/// A stream whose writes fail once they have made no progress for a while.
struct Progress {
    stream: TcpStream,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Progress {
    fn check<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Progress {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Progress {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.check(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.check(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
