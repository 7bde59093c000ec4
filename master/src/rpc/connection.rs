//! A connection from its first byte: which protocol it speaks, and the permit in front of every write.

use super::{native_connection::NativeConnection, server::ServerShared};
use crate::{ha::connections::Registered, permit::ServingPermit};
use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// The first byte of every native frame.
pub(super) const NATIVE_MAGIC: u8 = 0x15;
/// The first byte of the HTTP/2 preface, with which gRPC begins.
const HTTP2_FIRST: u8 = b'P';

/// Serves a connection until it ends. A connection of neither protocol is closed silently, as the existing master does.
pub(super) async fn serve(stream: Registered<TcpStream>, peer: SocketAddr, shared: Arc<ServerShared>) {
    let mut first = [0u8];
    let first = tokio::time::timeout(shared.options.first_byte_timeout, stream.get_ref().peek(&mut first))
        .await
        .map(|result| result.map(|n| (n == 1).then_some(first[0])));
    match first {
        Ok(Ok(Some(NATIVE_MAGIC))) => {
            let io = PermitIo { stream, permit: shared.permit.clone() };
            NativeConnection::new(io, peer, &shared).await;
        }
        Ok(Ok(Some(HTTP2_FIRST))) => {
            let io = PermitIo { stream, permit: shared.permit.clone() };
            if let Err(error) = shared.grpc.serve(io).await {
                tracing::debug!(%peer, %error, "gRPC connection ended");
            }
        }
        Ok(Ok(Some(byte))) => tracing::debug!(%peer, byte, "neither a native frame nor gRPC; closing"),
        Ok(Ok(None) | Err(_)) | Err(_) => {}
    }
}

/// A connection that writes only under the serving permit: the look directly before each write (design §6.5).
#[derive(Debug)]
pub(super) struct PermitIo {
    stream: Registered<TcpStream>,
    permit: Arc<ServingPermit>,
}

impl PermitIo {
    fn check(&self) -> io::Result<()> {
        if self.permit.held() {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "the serving permit ended"))
        }
    }
}

impl AsyncRead for PermitIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_read(cx, buf)
    }
}

impl AsyncWrite for PermitIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(self.stream.get_mut()).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(self.stream.get_mut()).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(self.stream.get_mut()).poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }
}
