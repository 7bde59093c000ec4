//! The byte budget for gRPC: what a request has received counts until its answer is under way.

use crate::rpc::budget::{Budget, Reservation};
use bytes::{Buf, Bytes};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tonic::body::Body;
use tower::Service;

/// Puts the budget around every request body of the inner service.
#[derive(Clone)]
pub(super) struct BudgetService<S> {
    inner: S,
    budget: Arc<Budget>,
}

impl<S> BudgetService<S> {
    pub(super) fn new(inner: S, budget: Arc<Budget>) -> Self {
        BudgetService { inner, budget }
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
        let request =
            request.map(|inner| Body::new(BudgetBody { inner, held: body_held, received: 0, next: None }));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(held);
            answer
        })
    }
}

/// A request body whose bytes are reserved before they are passed on. Over the budget it is not read, so that HTTP/2
/// flow control holds the peer back.
struct BudgetBody {
    inner: Incoming,
    held: Arc<crate::lock::Mutex<Reservation>>,
    received: usize,
    next: Option<Frame<Bytes>>,
}

impl HttpBody for BudgetBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.next.is_none() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    self.received += frame.data_ref().map_or(0, Buf::remaining);
                    self.next = Some(frame);
                }
                other => return Poll::Ready(other),
            }
        }
        let received = self.received;
        ready!(self.held.lock().poll_grow(received, received, cx));
        Poll::Ready(self.next.take().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
