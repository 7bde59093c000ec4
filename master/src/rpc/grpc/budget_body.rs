//! The byte budget for gRPC requests: what one has received counts until its answer is encoded, and a request that
//! stands still does not hold it for ever.

use super::answer_body::{AnswerBody, Unsent};
use crate::rpc::budget::{Budget, Reservation};
use bytes::{Buf, Bytes};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::Sleep;
use tonic::{Status, body::Body};
use tower::{BoxError, Service};

/// Puts the budget around every request and answer of the inner service.
#[derive(Clone)]
pub(super) struct BudgetService<S> {
    inner: S,
    budget: Arc<Budget>,
    stall_timeout: Duration,
    unsent: Arc<Unsent>,
}

impl<S: Clone> BudgetService<S> {
    pub(super) fn new(inner: S, budget: Arc<Budget>, stall_timeout: Duration) -> Self {
        BudgetService { inner, budget, stall_timeout, unsent: Arc::default() }
    }

    /// The same for one connection, with its unsent answers.
    pub(super) fn for_connection(&self) -> (Self, Arc<Unsent>) {
        let unsent: Arc<Unsent> = Arc::default();
        (BudgetService { unsent: unsent.clone(), ..self.clone() }, unsent)
    }
}

impl<S> Service<http::Request<Incoming>> for BudgetService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Incoming>) -> Self::Future {
        let held = Arc::new(crate::lock::Mutex::new(self.budget.reservation()));
        let body_held = held.clone();
        let timeout = self.stall_timeout;
        let request = request.map(|inner| Body::new(BudgetBody::new(inner, body_held, timeout)));
        let answer = self.inner.call(request);
        let (reserved, unsent) = (self.budget.reservation(), self.unsent.clone());
        Box::pin(async move {
            let answer = answer.await;
            let answer =
                answer.map(|answer| answer.map(|body| Body::new(AnswerBody::new(body, reserved, unsent))));
            drop(held);
            answer
        })
    }
}

/// A request body whose bytes are reserved before they are passed on. Over the budget it is not read, so that HTTP/2
/// flow control holds the peer back. Without progress for a whole timeout it fails, and the call with it.
struct BudgetBody<B> {
    inner: B,
    held: Arc<crate::lock::Mutex<Reservation>>,
    received: usize,
    next: Option<Frame<Bytes>>,
    timeout: Duration,
    /// Set only while the body is waited for: nearly every request is there at once and needs no timer.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<B> BudgetBody<B>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    fn new(inner: B, held: Arc<crate::lock::Mutex<Reservation>>, timeout: Duration) -> Self {
        BudgetBody { inner, held, received: 0, next: None, timeout, stalled: None }
    }

    fn poll_reserved(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.next.is_none() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    self.received += frame.data_ref().map_or(0, Buf::remaining);
                    self.next = Some(frame);
                }
                other => return Poll::Ready(other.map(|result| result.map_err(Into::into))),
            }
        }
        // One connection may have hundreds of requests open, so a small one is no reason for the last quarter.
        ready!(self.held.lock().poll_grow(self.received, usize::MAX, cx));
        Poll::Ready(self.next.take().map(Ok))
    }
}

impl<B> HttpBody for BudgetBody<B>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = self.poll_reserved(cx) {
            self.stalled = None;
            return Poll::Ready(frame);
        }
        let timeout = self.timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(stalled.as_mut().poll(cx));
        let message = format!("the request stood still for {timeout:?}");
        Poll::Ready(Some(Err(Status::deadline_exceeded(message).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Mutex;
    use futures::{StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};
    use tokio::time::Instant;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Gives `sizes`, then nothing more and no end.
    fn stalling(
        sizes: &[usize],
        budget: &Arc<Budget>,
    ) -> impl HttpBody<Data = Bytes, Error = BoxError> + Unpin {
        let frames: Vec<_> =
            sizes.iter().map(|&n| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; n])))).collect();
        let inner = StreamBody::new(stream::iter(frames).chain(stream::pending()));
        BudgetBody::new(inner, Arc::new(Mutex::new(budget.reservation())), TIMEOUT)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_fails_and_gives_its_bytes_back() {
        let budget = Budget::new(1 << 20);
        let mut body = stalling(&[1000, 1000], &budget);
        for _ in 0..2 {
            assert!(body.frame().await.expect("there").is_ok());
        }
        assert_eq!(budget.used(), 2000);
        let began = Instant::now();
        let error = body.frame().await.expect("an error").expect_err("no frame came");
        assert!(began.elapsed() >= TIMEOUT);
        assert_eq!(error.downcast_ref::<Status>().expect("a status").code(), tonic::Code::DeadlineExceeded);
        drop(body);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_never_take_the_last_quarter() {
        let budget = Budget::new(100_000);
        let mut bodies: Vec<_> = (0..100).map(|_| stalling(&[1000], &budget)).collect();
        let mut passed = 0;
        for body in &mut bodies {
            passed += usize::from(body.frame().await.expect("a result").is_ok());
        }
        assert_eq!((passed, budget.used()), (75, 75_000));
        assert!(budget.reservation().try_grow(8 << 10, 8 << 10), "a native call still fits");
    }
}
