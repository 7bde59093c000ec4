//! A connection as its loop sees it.

use crate::ha::connections::{Activity, Registered};
use rustix::{
    buffer::{Buffer, spare_capacity},
    io::Errno,
    net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown},
};
use std::{
    cell::Cell,
    future::poll_fn,
    io::{self, IoSlice},
    net::TcpStream,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Reads of one connection before others get their turn: a peer that sends without end does not keep the thread.
pub(super) const READS_PER_TURN: u32 = 64;

/// What is known of a socket. The kernel tells changes only (edge-triggered), so what it told holds until a call says
/// otherwise.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// The peer has closed, or the connection broke: no further change will be told.
    ended: Cell<bool>,
    reads: Cell<u32>,
}

impl Readiness {
    pub(super) fn told(&self, readable: bool, writable: bool, ended: bool) {
        self.readable.set(self.readable.get() | readable | ended);
        self.writable.set(self.writable.get() | writable | ended);
        self.ended.set(self.ended.get() | ended);
    }

    pub(super) fn begin_turn(&self) {
        self.reads.set(READS_PER_TURN);
    }
}

/// A non-blocking socket that belongs to one task of an [`EventLoop`](super::EventLoop).
///
/// What it waits for wakes that task: the waker of whoever asks is not kept, so nothing in the task may poll it only when
/// that waker was called.
pub(in crate::rpc) struct LoopStream {
    stream: Registered<TcpStream>,
    readiness: Rc<Readiness>,
}

impl LoopStream {
    pub(super) fn new(stream: Registered<TcpStream>, readiness: Rc<Readiness>) -> LoopStream {
        LoopStream { stream, readiness }
    }

    /// What the connection is doing.
    pub(in crate::rpc) fn activity(&self) -> &Arc<Activity> {
        self.stream.activity()
    }

    /// The first byte that comes, which stays to be read; `None` when the peer closed without a word.
    pub(in crate::rpc) async fn first_byte(&self) -> io::Result<Option<u8>> {
        poll_fn(|cx| {
            let mut byte = [0];
            let read = self.poll_recv(cx, &mut byte, 0, RecvFlags::PEEK);
            read.map_ok(|(_, n)| (n == 1).then_some(byte[0]))
        })
        .await
    }

    /// Appends to `into` what fits into its capacity, which is not used up. Returns how much that was; 0 at the end.
    pub(in crate::rpc) fn poll_append(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let room = into.capacity() - into.len();
        self.poll_recv(cx, spare_capacity(into), room, RecvFlags::empty()).map_ok(|(_, n)| n)
    }

    /// Fewer bytes than `room` mean that there are no more now.
    fn poll_recv<B: Buffer<u8>>(
        &self,
        cx: &mut Context<'_>,
        buf: B,
        room: usize,
        flags: RecvFlags,
    ) -> Poll<io::Result<(B::Output, usize)>> {
        let Readiness { readable, ended, reads, .. } = &*self.readiness;
        if !readable.get() {
            return Poll::Pending;
        }
        let Some(left) = reads.get().checked_sub(1) else {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        reads.set(left);
        let received = recv(self.stream.get_ref(), buf, flags);
        called(cx, readable, received, |(_, n)| *n >= room || ended.get())
    }

    /// Fewer bytes than `len` mean that no more fit now.
    fn poll_sent(
        &self,
        cx: &mut Context<'_>,
        len: usize,
        send: impl FnOnce(&TcpStream) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let Readiness { writable, ended, .. } = &*self.readiness;
        if !writable.get() {
            return Poll::Pending;
        }
        called(cx, writable, send(self.stream.get_ref()), |sent| *sent >= len || ended.get())
    }
}

/// What a call of the kernel came to; `ready` is whether the next one may come to anything, which `is_more` says of a call
/// that did.
fn called<T>(
    cx: &Context<'_>,
    ready: &Cell<bool>,
    result: rustix::io::Result<T>,
    is_more: impl FnOnce(&T) -> bool,
) -> Poll<io::Result<T>> {
    match result {
        Ok(done) => {
            ready.set(is_more(&done));
            Poll::Ready(Ok(done))
        }
        Err(Errno::AGAIN) => {
            ready.set(false);
            Poll::Pending
        }
        Err(Errno::INTR) => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        Err(error) => Poll::Ready(Err(error.into())),
    }
}

impl AsyncRead for LoopStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        // SAFETY: the kernel writes into it and un-initializes nothing.
        let spare = unsafe { buf.unfilled_mut() };
        let read = self.poll_recv(cx, spare, room, RecvFlags::empty()).map_ok(|(_, n)| n);
        read.map_ok(|n| {
            // SAFETY: the kernel has written that many bytes at the beginning of what was not filled.
            unsafe { buf.assume_init(n) };
            buf.advance(n);
        })
    }
}

impl AsyncWrite for LoopStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_sent(cx, buf.len(), |stream| send(stream, buf, SendFlags::NOSIGNAL))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.poll_sent(cx, len, |stream| rustix::io::writev(stream, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(self.stream.get_ref(), Shutdown::Write)?))
    }
}
