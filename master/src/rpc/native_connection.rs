//! A connection that speaks the native protocol: frames in, answers out, parked calls in between.

use super::{
    budget::Reservation,
    connection::PermitIo,
    generations::{Call, Dialect, Guess},
    native::{
        frame::{Limits, REQUEST_HEADER, RequestHeader},
        generation::Generation,
    },
    native_calls::{Caller, Served},
    server::ServerShared,
};
use crate::permit::ServingPermit;
use bytes::BytesMut;
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::AsyncWrite,
    time::{Instant, Sleep},
};

/// The receive buffer of a connection that has nothing special to do; frames that fit are received in it.
const BASE: usize = 8 << 10;
/// Bytes that are made room for beyond what has arrived of a larger frame.
const AHEAD: usize = 256 << 10;
/// Unsent output above this stops reading.
const OUTPUT_HIGH: usize = 1 << 20;
/// Calls of one connection that may be parked at once.
const MAX_PARKED: usize = 1024;
/// Bytes that one connection may have handled before others get their turn.
const TURN: usize = 256 << 10;

/// A call that waits for another connection's reaction (see `generations`) is tried again after this.
const PAUSE: Duration = Duration::from_millis(1);

/// The answer of a parked call and whether its form was guessed; nothing when the connection must go.
type Parked = Pin<Box<dyn Future<Output = Option<(BytesMut, Option<Guess>)>>>>;

/// The connection as one future that ends when the connection does.
pub(super) struct NativeConnection {
    io: PermitIo,
    permit: Arc<ServingPermit>,
    peer: SocketAddr,
    shared: Arc<ServerShared>,
    caller: Arc<Caller>,
    dialect: Dialect,
    /// No further call begins before this.
    pause: Option<Pin<Box<Sleep>>>,
    input: Input,
    output: Output,
    parked: FuturesUnordered<Parked>,
    receiving: Stall,
    sending: Stall,
    limits: Limits,
}

/// Received bytes: `bytes[start..]` are not handled yet.
struct Input {
    bytes: Vec<u8>,
    start: usize,
    /// Covers the capacity of `bytes`, or the whole frame that is being received if that is more. A frame is reserved
    /// whole before more than [`BASE`] of it is read, so no two frames can wait for each other's memory.
    reserved: Reservation,
}

struct Output {
    bytes: BytesMut,
    sent: usize,
    reserved: Reservation,
}

impl NativeConnection {
    /// A connection on a listener for clients of `generation` only, or of all.
    pub(super) fn new(
        io: PermitIo,
        peer: SocketAddr,
        generation: Option<&'static Generation>,
        shared: &Arc<ServerShared>,
    ) -> NativeConnection {
        NativeConnection {
            permit: shared.permit.clone(),
            peer,
            caller: Arc::new(Caller::new(
                shared.service.clone(),
                shared.options.plane,
                shared.budget.clone(),
                io.activity().clone(),
            )),
            io,
            dialect: Dialect::new(shared.service.generations().clone(), peer.ip(), generation),
            pause: None,
            shared: shared.clone(),
            input: Input { bytes: Vec::new(), start: 0, reserved: shared.budget.reservation() },
            output: Output { bytes: BytesMut::new(), sent: 0, reserved: shared.budget.reservation() },
            parked: FuturesUnordered::new(),
            receiving: Stall::new(shared.options.stall_timeout),
            sending: Stall::new(shared.options.stall_timeout),
            limits: shared.options.native_limits(),
        }
    }

    /// Writes what can be written. `Err` when the connection is over.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Result<(), ()> {
        while self.output.sent < self.output.bytes.len() {
            match Pin::new(&mut self.io).poll_write(cx, &self.output.bytes[self.output.sent..]) {
                Poll::Ready(Ok(n)) if n > 0 => {
                    self.output.sent += n;
                    self.sending.progress();
                }
                Poll::Ready(_) => return Err(()),
                Poll::Pending => return Ok(()),
            }
        }
        self.output.clear();
        self.dialect.all_sent(|| self.shared.clock.now());
        Ok(())
    }

    /// Whether no further call may begin now.
    fn is_full(&self) -> bool {
        self.parked.len() >= MAX_PARKED || self.caller.is_laden() || self.output.pending() > OUTPUT_HIGH
    }

    /// Handles the complete frames that have arrived, until there is too much under way. Returns how many bytes the next
    /// frame needs in all, 0 if its header is not complete.
    fn handle_input(&mut self) -> Result<usize, ()> {
        if self.pause.is_some() {
            return Ok(0);
        }
        loop {
            let bytes = &self.input.bytes[self.input.start..];
            let header = match RequestHeader::parse(bytes, &self.limits) {
                Ok(Some(header)) => header,
                Ok(None) => return Ok(0),
                Err(error) => {
                    tracing::debug!(peer = %self.peer, %error, "malformed frame; closing");
                    return Err(());
                }
            };
            let whole = header.frame_len() as usize;
            if bytes.len() < whole {
                return Ok(whole);
            }
            let body = &bytes[REQUEST_HEADER..REQUEST_HEADER + header.body as usize];
            let Some(call) = self.dialect.call(&header, body, || self.shared.clock.now()) else {
                self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                return Ok(0);
            };
            if Caller::restartable(call.rpc, header.body) {
                let answer = self.output.bytes.len();
                // Nearly always done in one go, without an allocation; if not, it begins again.
                let serving = self.caller.serve(call.rpc, header.seq, body, &mut self.output.bytes);
                match serving.now_or_never() {
                    Some(Served::Answered) => {
                        self.dialect.answered(call.guess, &self.output.bytes[answer..]);
                    }
                    Some(Served::Close) => return Err(()),
                    None => {
                        self.output.bytes.truncate(answer);
                        self.park(call, header, whole);
                    }
                }
            } else {
                self.park(call, header, whole);
            }
            self.input.start += whole;
            if self.is_full() {
                return Ok(0);
            }
        }
    }

    /// Serves the call in a future of this connection, so that the thread can serve its other calls meanwhile.
    fn park(&mut self, call: Call, header: RequestHeader, whole: usize) {
        let mut reserved = self.input.reserved.sibling();
        reserved.force(whole);
        let start = self.input.start + REQUEST_HEADER;
        let body = self.input.bytes[start..start + header.body as usize].to_vec();
        let caller = self.caller.clone();
        self.parked.push(Box::pin(async move {
            let _reserved = reserved;
            let mut answer = BytesMut::new();
            let served = caller.serve(call.rpc, header.seq, &body, &mut answer).await;
            (served == Served::Answered).then_some((answer, call.guess))
        }));
    }

    /// Whether the next call has to wait; `Some(false)` once when it no longer has to.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Option<bool> {
        let is_due = self.pause.as_mut()?.as_mut().poll(cx).is_ready();
        if is_due {
            self.pause = None;
        }
        Some(!is_due)
    }

    /// Receives more. `Ready(true)`: something arrived; `Ready(false)`: the peer closed or the connection broke.
    fn poll_input(&mut self, frame: usize, cx: &mut Context<'_>) -> Poll<bool> {
        if !self.input.make_room(frame, cx) {
            return Poll::Pending;
        }
        match self.io.poll_append(cx, &mut self.input.bytes) {
            Poll::Ready(Ok(n)) => {
                if n > 0 {
                    self.receiving.progress();
                }
                Poll::Ready(n > 0)
            }
            Poll::Ready(Err(_)) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Future for NativeConnection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut handled = 0;
        loop {
            let before = this.input.start;
            let Ok(frame) = this.handle_input() else { return Poll::Ready(()) };
            handled += this.input.start - before;
            let mut stopped = this.is_full();
            this.input.compact(frame);
            while this.output.pending() <= OUTPUT_HIGH
                && let Poll::Ready(Some(answer)) = this.parked.poll_next_unpin(cx)
            {
                let Some((answer, guess)) = answer else { return Poll::Ready(()) };
                this.dialect.answered(guess, &answer);
                this.output.bytes.extend_from_slice(&answer);
            }
            stopped |= this.output.pending() > OUTPUT_HIGH;
            this.output.account();
            if this.poll_output(cx).is_err() {
                return Poll::Ready(());
            }
            if this.is_full() {
                break;
            }
            match this.poll_pause(cx) {
                Some(true) => break,
                Some(false) => continue,
                None => {}
            }
            if stopped && handled <= TURN {
                // There is room again, and complete frames or finished answers may be waiting that nothing else wakes us for.
                continue;
            }
            if handled > TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match this.poll_input(frame, cx) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => {
                    // Without the permit it was this side that closed.
                    if this.permit.held() {
                        this.dialect.closed(this.shared.clock.now());
                    }
                    return Poll::Ready(());
                }
                Poll::Pending => break,
            }
        }
        // Each direction by itself: what a peer sends is no reason to keep what it does not read, and a frame that waits
        // because of us is not the peer's doing. Neither is anything that waits while calls are held.
        let (in_a_frame, in_an_answer) = if this.permit.is_holding() {
            (false, false)
        } else {
            (!this.input.is_empty() && !this.is_full(), this.output.pending() > 0)
        };
        if this.receiving.poll(in_a_frame, cx).is_ready() || this.sending.poll(in_an_answer, cx).is_ready() {
            tracing::debug!(peer = %this.peer, "no progress in the middle of a frame or an answer; closing");
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Input {
    fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Moves an unfinished frame to the front, and lets a large buffer go once its frame was handled.
    fn compact(&mut self, frame: usize) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        if self.bytes.capacity() > BASE && self.bytes.len() < BASE && frame <= BASE {
            self.bytes.shrink_to(BASE);
        }
        self.reserved.shrink(self.bytes.capacity().max(frame));
    }

    /// Room to receive into: never more than what has arrived plus [`AHEAD`]. False while the budget does not allow it.
    fn make_room(&mut self, frame: usize, cx: &mut Context<'_>) -> bool {
        let want = frame.max(BASE);
        if self.reserved.poll_grow(want, want, cx).is_pending() {
            return false;
        }
        if self.bytes.len() == self.bytes.capacity() {
            let to = want.min(self.bytes.len() + AHEAD);
            self.bytes.reserve_exact(to.saturating_sub(self.bytes.len()).max(1));
        }
        true
    }
}

impl Output {
    fn pending(&self) -> usize {
        self.bytes.len() - self.sent
    }

    fn account(&mut self) {
        if self.bytes.capacity() != self.reserved.held() {
            self.reserved.force(self.bytes.capacity());
        }
    }

    /// Everything was sent.
    fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        if self.bytes.capacity() > BASE {
            self.bytes = BytesMut::new();
            self.reserved.force(0);
        }
    }
}

/// Ends a connection that stands in the middle of a frame or an answer for a whole timeout.
struct Stall {
    timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    last_progress: Instant,
}

impl Stall {
    fn new(timeout: Duration) -> Stall {
        Stall { timeout, timer: None, last_progress: Instant::now() }
    }

    fn progress(&mut self) {
        // Otherwise nobody asks, and the beginning counts.
        if self.timer.is_some() {
            self.last_progress = Instant::now();
        }
    }

    fn poll(&mut self, in_the_middle: bool, cx: &mut Context<'_>) -> Poll<()> {
        if !in_the_middle {
            self.timer = None;
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| {
            // What was before, e.g. while a call was parked, is not the peer's doing.
            self.last_progress = Instant::now();
            Box::pin(tokio::time::sleep(self.timeout))
        });
        // The timer is not moved at each progress: it runs out, and is then set for what is left.
        while timer.as_mut().poll(cx).is_ready() {
            let due = self.last_progress + self.timeout;
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// Under a Lease this bounds how late an answer may still go out (design §6.5), so it must not be exceeded.
    #[tokio::test(start_paused = true)]
    async fn a_stall_is_counted_from_the_last_progress() {
        let mut stall = Stall::new(Duration::from_secs(30));
        let began = Instant::now();
        assert!(poll_fn(|cx| Poll::Ready(stall.poll(true, cx).is_pending())).await);
        tokio::time::advance(Duration::from_secs(20)).await;
        stall.progress();
        poll_fn(|cx| stall.poll(true, cx)).await;
        let took = began.elapsed();
        assert!((50_000..50_010).contains(&took.as_millis()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn time_outside_of_a_frame_is_no_stall() {
        let mut stall = Stall::new(Duration::from_secs(30));
        assert!(poll_fn(|cx| Poll::Ready(stall.poll(true, cx).is_pending())).await);
        assert!(poll_fn(|cx| Poll::Ready(stall.poll(false, cx).is_pending())).await);
        tokio::time::advance(Duration::from_secs(100)).await;
        let began = Instant::now();
        poll_fn(|cx| stall.poll(true, cx)).await;
        assert!(began.elapsed() >= Duration::from_secs(30));
    }
}
