//! Which generation a native client is of (design §8), so that clients of every generation share one port and one pool.
//!
//! A call is understood by its argument hash, whoever sent it. Its *answer* is where generations differ: a few calls are
//! the same request in two generations with another answer. What tells, the strongest first:
//! 1. the listener, if the connection came in on a generation's own (`wire_generation_ports`);
//! 2. the calls of this connection: each argument hash leaves only some generations;
//! 3. the client id that a call of this connection named, if that client told more elsewhere;
//! 4. what connections of the same peer address turned out to be;
//! 5. `wire_default_generation`.
//!
//! 4 and 5 are guesses, and the client's reaction is the proof: one that cannot read an answer closes the connection at
//! once, one that can goes on. Going on after a guessed answer makes the guess knowledge, of the address and of the client;
//! [`knowledge`] says what a close does.
//!
//! [`Dialect`] is a connection's part; a connection whose generation is known takes no lock. [`Generations`] is what
//! connections share, bounded in both its tables.

mod bounded;
mod dialect;
mod knowledge;

#[cfg(test)]
mod tests;

pub(super) use dialect::{Call, Dialect, Guess};

use super::native::generation::{Generation, GenerationSet};
use crate::{
    admin::{Metrics, WireMetrics},
    lock::Mutex,
    types::ClientId,
};
use knowledge::{Asking, Choice, Knowledge, Reader};
use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// What the connections of a serving master know together.
pub struct Generations {
    knowledge: Mutex<Knowledge>,
    default: &'static Generation,
    /// Numbers connections and early closes in their order.
    serial: AtomicU64,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Generations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generations").field("default", &self.default.name()).finish_non_exhaustive()
    }
}

impl Generations {
    /// Nothing is known yet; `default` is what a client of which nothing tells is taken for.
    pub fn new(default: &'static Generation, metrics: Arc<Metrics>) -> Arc<Generations> {
        Arc::new(Generations {
            knowledge: Mutex::new(Knowledge::default()),
            default,
            serial: AtomicU64::new(0),
            metrics,
        })
    }

    /// The generation of a client, if it has told or shown it. Of use for the admin pages; takes no shard lock.
    pub fn of_client(&self, client: ClientId) -> Option<&'static Generation> {
        self.knowledge.lock().generation_of(client)
    }

    fn wire(&self) -> &WireMetrics {
        self.metrics.wire()
    }

    fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// A connection names its client. What is known of that client; it counts until [`Self::client_left`].
    fn client_came(&self, client: ClientId, possible: GenerationSet) -> GenerationSet {
        let mut knowledge = self.knowledge.lock();
        let record = knowledge.client(client);
        let was = (record.connections > 0).then(|| record.possible.only());
        record.connections += 1;
        record.learn(possible);
        let (known, is) = (record.possible, record.possible.only());
        drop(knowledge);
        if let Some(was) = was {
            self.wire().clients.take(was);
        }
        self.wire().clients.add(is);
        known
    }

    /// The connection of a client ended.
    fn client_left(&self, client: ClientId) {
        let mut knowledge = self.knowledge.lock();
        let record = knowledge.client(client);
        record.connections = record.connections.saturating_sub(1);
        let gone = (record.connections == 0).then(|| record.possible.only());
        drop(knowledge);
        if let Some(was) = gone {
            self.wire().clients.take(was);
        }
    }

    /// A connection has turned out to be of one of `possible`.
    fn learned(&self, reader: &Reader, possible: GenerationSet) {
        let mut knowledge = self.knowledge.lock();
        let mut moved = None;
        if let Some(client) = reader.client {
            let record = knowledge.client(client);
            let was = record.possible.only();
            record.learn(possible);
            moved = Some((was, record.possible.only()));
        }
        let shared = possible.only().and_then(|generation| knowledge.confirm(reader.address, generation));
        drop(knowledge);
        if let Some((was, is)) = moved.filter(|(was, is)| was != is) {
            self.wire().clients.take(was);
            self.wire().clients.add(is);
        }
        if let Some(found) = shared {
            self.wire().shared_addresses.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                address = %reader.address,
                "clients of {found} share this address and cannot always be told apart: each new connection may cost one \
                 failed call; give them an address each, or a port by wire_generation_ports"
            );
        }
    }

    /// The form of an answer that the connection's calls do not tell.
    fn choose(&self, asking: &Asking<'_>) -> Choice {
        let choice = self.knowledge.lock().choose(asking, self.default);
        if let Choice::Guess { generation, is_news, .. } = choice {
            self.wire().guesses.fetch_add(1, Ordering::Relaxed);
            if is_news {
                self.wire().unknown_clients.fetch_add(1, Ordering::Relaxed);
                let client = asking.reader.client.map(|client| client.to_string());
                tracing::info!(
                    address = %asking.reader.address,
                    client = client.as_deref().unwrap_or("not named"),
                    "nothing tells whether this client is of {}: answering as {} and watching how it reacts",
                    asking.among,
                    generation.name()
                );
            }
        }
        choice
    }

    /// The reaction of a connection from there was seen.
    fn reacted(&self, reader: &Reader) {
        self.knowledge.lock().reacted(reader.address);
    }

    /// The peer closed directly after a guessed answer that only `against` can read.
    fn closed_early(&self, reader: &Reader, against: GenerationSet, is_trial: bool) {
        self.wire().wrong_guesses.fetch_add(1, Ordering::Relaxed);
        let now = self.next_serial();
        self.knowledge.lock().doubt(reader, against, is_trial, now);
        tracing::debug!(address = %reader.address, "closed directly after an answer in the form of {against}");
    }

    /// Of one address, in the form that the table of addresses has.
    fn key(address: IpAddr) -> IpAddr {
        address.to_canonical()
    }
}
