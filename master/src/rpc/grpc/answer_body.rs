//! The byte budget for gRPC answers: what a peer does not read counts, and does not stay for ever.

use crate::{lock::Mutex, rpc::budget::Reservation};
use bytes::Bytes;
use futures::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::Instant;
use tonic::{Status, body::Body};

/// An answer goes out in pieces of this size, so that its progress can be seen and its memory counted down.
const PIECE: usize = 16 << 10;

/// The answers of one connection that are not sent yet, each with the time of its last progress.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    answers: Mutex<Vec<Option<Instant>>>,
}

impl Unsent {
    fn add(self: &Arc<Self>) -> Entry {
        let mut answers = self.answers.lock();
        let now = Some(Instant::now());
        let slot = answers.iter().position(Option::is_none).unwrap_or(answers.len());
        if slot == answers.len() {
            answers.push(now);
        } else {
            answers[slot] = now;
        }
        Entry { unsent: self.clone(), slot }
    }

    /// Waits until one of them has stood still for a whole `timeout`. HTTP/2 does not ask for a body that the peer gives
    /// no window for, so the body itself would never notice.
    pub(super) async fn stalled(&self, timeout: Duration) {
        loop {
            let oldest = self.answers.lock().iter().flatten().min().copied();
            let due = oldest.map_or_else(|| Instant::now() + timeout, |oldest| oldest + timeout);
            if due <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }
}

#[derive(Debug)]
struct Entry {
    unsent: Arc<Unsent>,
    slot: usize,
}

impl Entry {
    fn progress(&self) {
        self.unsent.answers.lock()[self.slot] = Some(Instant::now());
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.unsent.answers.lock()[self.slot] = None;
    }
}

/// The body of an answer. `waiting` is encoded and reserved, whether or not the peer reads.
pub(super) struct AnswerBody {
    inner: Body,
    waiting: Bytes,
    after: Option<Frame<Bytes>>,
    failed: Option<Status>,
    reserved: Reservation,
    entry: Option<Entry>,
    unsent: Arc<Unsent>,
}

impl AnswerBody {
    /// Encodes at once what is there: an answer that waits for a window would otherwise wait uncounted.
    pub(super) fn new(mut inner: Body, reserved: Reservation, unsent: Arc<Unsent>) -> AnswerBody {
        let first = inner.frame().now_or_never().flatten();
        let mut body = AnswerBody {
            inner,
            waiting: Bytes::new(),
            after: None,
            failed: None,
            reserved,
            entry: None,
            unsent,
        };
        body.take_up(first);
        body
    }

    fn take_up(&mut self, frame: Option<Result<Frame<Bytes>, Status>>) {
        match frame.map(|frame| frame.map(Frame::into_data)) {
            None => {}
            Some(Err(status)) => self.failed = Some(status),
            Some(Ok(Err(trailers))) => self.after = Some(trailers),
            Some(Ok(Ok(data))) => {
                self.reserved.force(data.len());
                self.entry = (!data.is_empty()).then(|| self.unsent.add());
                self.waiting = data;
            }
        }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if !self.waiting.is_empty() {
                let n = self.waiting.len().min(PIECE);
                let piece = self.waiting.split_to(n);
                let left = self.waiting.len();
                self.reserved.shrink(left);
                match &self.entry {
                    Some(entry) if left > 0 => entry.progress(),
                    _ => self.entry = None,
                }
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if let Some(status) = self.failed.take() {
                return Poll::Ready(Some(Err(status)));
            }
            if let Some(frame) = self.after.take() {
                return Poll::Ready(Some(Ok(frame)));
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                None => return Poll::Ready(None),
                frame => self.take_up(frame),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_empty() && self.failed.is_none() && self.after.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::budget::Budget;
    use http_body_util::Full;

    fn answer(bytes: usize, budget: &Arc<Budget>, unsent: &Arc<Unsent>) -> AnswerBody {
        let inner = Body::new(Full::new(Bytes::from(vec![7; bytes])));
        AnswerBody::new(inner, budget.reservation(), unsent.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn counts_until_it_is_read_and_ends_the_connection_when_it_never_is() {
        let (budget, unsent, timeout) = (Budget::new(1 << 20), Arc::default(), Duration::from_secs(30));
        let mut body = answer(100_000, &budget, &unsent);
        assert_eq!(budget.used(), 100_000, "counted before anybody asks for it");
        let began = Instant::now();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(body.frame().await.unwrap().unwrap().data_ref().unwrap().len() == PIECE);
        assert_eq!(budget.used(), 100_000 - PIECE);
        unsent.stalled(timeout).await;
        assert_eq!(began.elapsed().as_secs(), 50, "from the last progress");
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 100_000 - PIECE);
        assert_eq!(budget.used(), 0);
        assert!(
            tokio::time::timeout(timeout * 10, unsent.stalled(timeout)).await.is_err(),
            "nothing is left unsent"
        );
    }
}
