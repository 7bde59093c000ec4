//! Batches: in turns, so that nobody waits for a long one, and with room in the budget for their results.

use super::{Caller, Reply, Served};
use crate::{
    core::TOGETHER,
    error::ErrorCode,
    rpc::{
        budget::Reservation,
        native::{
            answer::{AllRefused, Elements, Payload},
            field::Keys,
            frame::{RpcErrorCode, write_error},
            request::{BatchEnd, BatchStart},
        },
        same_node::SameNode,
        service::{KEYS_PER_TURN, Step},
        telemetry::Tally,
    },
    types::{Attempt, PutStart, ReplicaType, Replicas, ReplicateConfig},
};
use smallvec::SmallVec;
use std::{
    future::poll_fn,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// Results of a batch up to this many items are not counted against the budget: a fixed bound per call.
const UNCOUNTED_ITEMS: usize = 4096;

/// How long a large batch waits for room for its results.
const ROOM_TIMEOUT: Duration = Duration::from_secs(2);

struct Large<'a>(&'a AtomicUsize);

impl Drop for Large<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Caller {
    pub(super) async fn batch_start(&self, a: &BatchStart<'_>, reply: Reply<'_>, upsert: bool) -> Served {
        let core = &**self.service.core();
        let call =
            |start: &PutStart<'_>| if upsert { core.upsert_start(start) } else { core.put_start(start) };
        let (keys, groups) = (a.keys.len(), a.config.group_ids);
        if a.slice_lengths.len() != keys || groups.is_some_and(|groups| groups.len() != keys) {
            return reply.send(&AllRefused { code: ErrorCode::InvalidParams, count: keys });
        }
        let shared = a.config.to_core();
        // Without groups every key has the same placement and nothing is copied per key.
        let items = a.keys.iter().zip(a.slice_lengths.iter());
        let mut same_node = SameNode::new(&shared);
        let mut start = |key, slice_length, config: &ReplicateConfig<'_>| {
            same_node.start(&PutStart { client: a.client, key, slice_length, config }, call)
        };
        match groups {
            None if !shared.prefer_alloc_in_same_node && !upsert => {
                self.write_batch(items, reply, |items, started| {
                    core.put_starts(items, (a.client, &shared), |result| started.push(result))
                })
                .await
            }
            None => self.batch(items, reply, |(key, length)| start(key, *length, &shared)).await,
            Some(groups) => {
                self.batch(items.zip(groups.iter()), reply, |((key, length), group_id)| {
                    start(key, *length, &ReplicateConfig { group_id, ..shared.clone() })
                })
                .await
            }
        }
    }

    pub(super) async fn batch_end(&self, a: &BatchEnd<'_>, reply: Reply<'_>) -> Served {
        let core = self.service.core();
        let kind: ReplicaType = a.kind.0;
        let ended = a.objects.iter().map(|object| (object.key, object.checksum));
        self.write_batch(ended, reply, |some, results| {
            core.put_ends(a.client, some, kind, |result| results.push(result))
        })
        .await
    }

    pub(super) async fn batch<I: Iterator, T: Payload>(
        &self,
        items: I,
        reply: Reply<'_>,
        each: impl FnMut(&I::Item) -> Attempt<T>,
    ) -> Served {
        let count = items.size_hint().0;
        let Some(_held) = self.room_for(count, size_of::<Result<T, ErrorCode>>()).await else {
            return reply.no_room(count);
        };
        let _large = self.large(count);
        match self.service.batch(items, each).await {
            Ok(results) => {
                reply.tally.batch(&results);
                reply.send(&results)
            }
            Err(_) => Served::Close,
        }
    }

    /// A batch of reads, answered straight into the output. `some` looks at the first of the keys that it is given,
    /// appends what they amount to, and returns how many these were: none if it has to wait.
    pub(super) async fn read_batch(
        &self,
        keys: Keys<'_>,
        reply: Reply<'_>,
        mut some: impl FnMut(&[&[u8]], &mut Elements<'_>, &mut Tally) -> usize,
    ) -> Served {
        let count = keys.len();
        let Some(_held) = self.room_for(count, size_of::<Replicas>()).await else {
            return reply.no_room(count);
        };
        let _large = self.large(count);
        let Reply { out, seq, rpc, tally } = reply;
        let mut widest = 0;
        loop {
            let mut elements = Elements::begin(out, seq, rpc, count, widest);
            *tally = Tally { items: Some((count as u64, 0)), ..Tally::default() };
            let mut next = Window::new(keys.iter());
            let done = self.service.drive(|| {
                next.turn(|keys| {
                    // Not under the hold.
                    elements.reserve(keys.len());
                    some(keys, &mut elements, tally)
                })
            });
            if done.await.is_err() {
                return Served::Close;
            }
            match elements.finish() {
                Ok(()) => return Served::Answered,
                // Nothing was read that may not be read again.
                Err(Some(wider)) => widest = wider,
                Err(None) => {
                    let message = "the answer is more than a frame can hold";
                    write_error(out, seq, RpcErrorCode::MessageTooLarge, message);
                    return Served::Answered;
                }
            }
        }
    }

    /// A batch of writes. `some` serves the first of the items that it is given, adds their results, and returns how many
    /// these were: none if it has to wait.
    async fn write_batch<K, T: Payload>(
        &self,
        items: impl Iterator<Item = K>,
        reply: Reply<'_>,
        mut some: impl FnMut(&[K], &mut Vec<Result<T, ErrorCode>>) -> usize,
    ) -> Served {
        let count = items.size_hint().0;
        let Some(_held) = self.room_for(count, size_of::<Result<T, ErrorCode>>()).await else {
            return reply.no_room(count);
        };
        let _large = self.large(count);
        let mut results = Vec::with_capacity(count);
        let mut next = Window::new(items);
        let done = self.service.drive(|| next.turn(|items| some(items, &mut results)));
        if done.await.is_err() {
            return Served::Close;
        }
        reply.tally.batch(&results);
        reply.send(&results)
    }

    fn large(&self, count: usize) -> Option<Large<'_>> {
        (count > UNCOUNTED_ITEMS).then(|| {
            self.large.fetch_add(1, Ordering::Relaxed);
            Large(&self.large)
        })
    }

    /// Reserves what the results of a large batch need; nothing if the budget cannot hold them.
    pub(super) async fn room_for(&self, count: usize, each: usize) -> Option<Reservation> {
        let mut held = self.budget.reservation();
        let bytes = count.saturating_mul(each);
        if count > UNCOUNTED_ITEMS {
            if bytes > self.budget.limit() / 2 {
                return None;
            }
            // Not for ever: several batches that hold their frames could be waiting for each other.
            let room = poll_fn(|cx| held.poll_grow(bytes, bytes, cx));
            tokio::time::timeout(ROOM_TIMEOUT, room).await.ok()?;
        }
        Some(held)
    }
}

/// The next items of a batch.
struct Window<I: Iterator> {
    rest: I,
    items: SmallVec<[I::Item; TOGETHER]>,
}

impl<I: Iterator> Window<I> {
    fn new(items: I) -> Window<I> {
        Window { rest: items, items: SmallVec::new() }
    }

    fn items(&mut self) -> &[I::Item] {
        let missing = TOGETHER - self.items.len();
        self.items.extend(self.rest.by_ref().take(missing));
        &self.items
    }

    /// Serves the items of one turn. `some` serves the first of those that it is given and returns how many these were:
    /// none if it has to wait.
    fn turn(&mut self, mut some: impl FnMut(&[I::Item]) -> usize) -> Step {
        let mut served = 0;
        while !self.items().is_empty() {
            if served >= KEYS_PER_TURN {
                return Step::Yield;
            }
            match some(&self.items) {
                0 if served > 0 => return Step::Yield,
                0 => return Step::Parked,
                now => {
                    self.items.drain(..now);
                    served += now;
                }
            }
        }
        Step::Done
    }
}
