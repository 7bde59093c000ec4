//! A connection from its first byte: which protocol it speaks, and the permit in front of every write.

use super::{
    event_loop::{LoopStream, Spawner},
    native::generation::Generation,
    native_connection::NativeConnection,
    server::ServerShared,
    service::Service,
};
use crate::{admin::Protocol, ha::connections::Activity, permit::ServingPermit};
use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first byte of every native frame.
pub(super) const NATIVE_MAGIC: u8 = 0x15;
/// The first byte of the HTTP/2 preface, with which gRPC begins.
const HTTP2_FIRST: u8 = b'P';

/// Serves a connection until it ends. A connection of neither protocol is closed silently, as the existing master does.
/// `generation`: that of native clients on its listener, if it is for one generation only.
pub(super) async fn serve(
    stream: LoopStream,
    peer: SocketAddr,
    generation: Option<&'static Generation>,
    shared: Arc<ServerShared>,
    spawner: Spawner,
) {
    match tokio::time::timeout(shared.options.first_byte_timeout, stream.first_byte()).await {
        Ok(Ok(Some(NATIVE_MAGIC))) => {
            let io = PermitIo::new(stream, &shared, Protocol::Native);
            NativeConnection::new(io, peer, generation, &shared).await;
        }
        Ok(Ok(Some(HTTP2_FIRST))) => {
            let io = PermitIo::new(stream, &shared, Protocol::Grpc);
            let activity = io.activity().clone();
            if let Err(error) = shared.grpc.serve(io, activity, spawner).await {
                tracing::debug!(%peer, %error, "gRPC connection ended");
            }
        }
        Ok(Ok(Some(byte))) => tracing::debug!(%peer, byte, "neither a native frame nor gRPC; closing"),
        Ok(Ok(None) | Err(_)) | Err(_) => {}
    }
}

/// A connection that writes only under the serving permit: the look directly before each write (design §6.5). While
/// calls are held for a hand-over a write waits (design §6.7).
pub(super) struct PermitIo {
    stream: LoopStream,
    activity: Arc<Activity>,
    permit: Arc<ServingPermit>,
    service: Arc<Service>,
    protocol: Protocol,
    /// The end of the hold, while a write waits for it.
    hold_over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl PermitIo {
    fn new(stream: LoopStream, shared: &ServerShared, protocol: Protocol) -> PermitIo {
        PermitIo {
            activity: stream.activity().clone(),
            stream,
            permit: shared.permit.clone(),
            service: shared.service.clone(),
            protocol,
            hold_over: None,
        }
    }

    fn sent(&self, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &wrote {
            self.service.telemetry().sent(self.protocol, *bytes);
        }
        wrote
    }

    /// What the connection is doing.
    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Appends what has come to `into`, as much as fits into its capacity.
    pub(super) fn poll_append(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let read = self.stream.poll_append(cx, into);
        if let Poll::Ready(Ok(bytes)) = &read {
            self.service.telemetry().received(self.protocol, *bytes);
        }
        read
    }

    /// Announced before the look at the permit, so that the lease thread never misses a write that it allowed.
    fn poll_permitted<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut LoopStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(over) = &mut self.hold_over {
            ready!(over.as_mut().poll(cx));
            self.hold_over = None;
        }
        let announced = self.activity.announce_write();
        if self.permit.may_answer() {
            return write(Pin::new(&mut self.stream), cx);
        }
        drop(announced);
        if self.permit.is_suspended() {
            let over = self.hold_over.insert(Box::pin(self.permit.hold_over()));
            ready!(over.as_mut().poll(cx));
            self.hold_over = None;
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, "the serving permit ended")))
    }
}

impl AsyncRead for PermitIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let bytes = buf.filled().len() - before;
        if bytes > 0 {
            self.service.telemetry().received(self.protocol, bytes);
        }
        read
    }
}

impl AsyncWrite for PermitIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = self.poll_permitted(cx, |stream, cx| stream.poll_write(cx, buf));
        self.sent(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.poll_permitted(cx, |stream, cx| stream.poll_write_vectored(cx, bufs));
        self.sent(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }
}
