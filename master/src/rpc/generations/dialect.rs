//! What one connection knows of its client's generation.

use super::{Asking, Choice, Generations, Reader};
use crate::{
    clock::Instant,
    rpc::native::{
        frame::RequestHeader,
        generation::{Function, Generation, GenerationSet, Method, Rpc},
    },
};
use std::{net::IpAddr, sync::Arc, time::Duration};

/// A client that cannot read an answer closes at once; a close within this time of the answer may be that, a busy machine
/// and a slow network included.
const EARLY: Duration = Duration::from_secs(5);

/// The longest that a connection waits for the reaction of another one; usually it comes within a round trip.
const WAIT: Duration = Duration::from_millis(100);

/// How a request is to be understood and answered.
#[derive(Clone, Copy, Debug)]
pub(in crate::rpc) struct Call {
    /// The function in the generation that is to read the answer; none if no generation has it.
    pub(in crate::rpc) rpc: Option<&'static Rpc>,
    /// Set if that generation was guessed.
    pub(in crate::rpc) guess: Option<Guess>,
}

/// A guess that the client's reaction will judge.
#[derive(Clone, Copy, Debug)]
pub(in crate::rpc) struct Guess {
    function: &'static Function,
    generation: &'static Generation,
    is_trial: bool,
}

/// The connection's part of the knowledge; see the module above.
pub(in crate::rpc) struct Dialect {
    shared: Arc<Generations>,
    /// Fixed by the listener: nothing is guessed and nothing learned.
    is_fixed: bool,
    /// What this connection's calls leave; never empty.
    possible: GenerationSet,
    reader: Reader,
    has_begun: bool,
    /// Since when the next call waits.
    waiting: Option<Instant>,
    /// Whether the reaction to a guess of this connection has not been seen.
    is_outstanding: bool,
    /// The last guessed answer that is on its way out.
    unsent: Option<Guess>,
    /// The last guessed answer that the peer has been sent, while it has not reacted to it.
    sent: Option<(Guess, Instant)>,
}

impl Dialect {
    /// Of a new connection from `address`, on a listener for one generation or for all.
    pub(in crate::rpc) fn new(
        shared: Arc<Generations>,
        address: IpAddr,
        fixed: Option<&'static Generation>,
    ) -> Dialect {
        let possible = fixed.map_or_else(GenerationSet::all, GenerationSet::from);
        shared.wire().connections.add(possible.only());
        let reader = Reader {
            address: Generations::key(address),
            client: None,
            opened: shared.next_serial(),
            is_new_client: false,
        };
        Dialect {
            shared,
            is_fixed: fixed.is_some(),
            possible,
            reader,
            has_begun: false,
            waiting: None,
            is_outstanding: false,
            unsent: None,
            sent: None,
        }
    }

    /// How to take the next request of the connection, a whole frame; `None`: ask again in a moment.
    pub(in crate::rpc) fn call(
        &mut self,
        header: &RequestHeader,
        body: &[u8],
        now: impl FnOnce() -> Instant,
    ) -> Option<Call> {
        self.went_on();
        let Some(function) = Function::of(header.function) else {
            return Some(Call { rpc: None, guess: None });
        };
        if !self.has_begun {
            self.has_begun = true;
            let newest = function.newest_rpc();
            self.reader.is_new_client = newest.is_some_and(|rpc| rpc.method() == Method::ServiceReady);
        }
        let head = body.first_chunk().map_or(0, |head| u32::from_le_bytes(*head));
        if let Some(only) = self.possible.only() {
            let rpc = function.rpc(only);
            if self.is_fixed || rpc.is_some_and(|rpc| rpc.accepts_head(head)) {
                if let Some(rpc) = rpc {
                    self.hear(rpc, body);
                }
                return Some(Call { rpc, guess: None });
            }
        }
        let senders = function.senders(head);
        if senders.is_empty() {
            // Nobody says that. The newest form of the function refuses it with the difference.
            return Some(Call { rpc: function.newest_rpc(), guess: None });
        }
        self.narrow(senders);
        // All senders mean the same by this body, so whichever reads it finds the client.
        if let Some(rpc) = senders.newest().and_then(|generation| function.rpc(generation)) {
            self.hear(rpc, body);
        }
        self.answer_for(function, self.possible.and(senders).or_if_empty(senders), now)
    }

    /// The answer that the client reads, which is one of `among`.
    fn answer_for(
        &mut self,
        function: &'static Function,
        among: GenerationSet,
        now: impl FnOnce() -> Instant,
    ) -> Option<Call> {
        if function.is_unambiguous(among) {
            let rpc = among.newest().and_then(|generation| function.rpc(generation));
            return Some(Call { rpc, guess: None });
        }
        let now = now();
        let waiting = *self.waiting.get_or_insert(now);
        let choice = self.shared.choose(&Asking {
            reader: &self.reader,
            function,
            among,
            may_wait: !self.is_outstanding && now.saturating_since(waiting) < WAIT,
            is_outstanding: self.is_outstanding,
        });
        let call = match choice {
            Choice::Wait => return None,
            Choice::Known(generation) => Call { rpc: function.rpc(generation), guess: None },
            Choice::Guess { generation, is_trial, .. } => {
                self.is_outstanding = true;
                let guess = Guess { function, generation, is_trial };
                Call { rpc: function.rpc(generation), guess: Some(guess) }
            }
        };
        self.waiting = None;
        Some(call)
    }

    /// The answer to a call was appended to the output.
    pub(in crate::rpc) fn answered(&mut self, guess: Option<Guess>, answer: &[u8]) {
        let Some(guess) = guess else { return };
        // An error of the RPC layer (the third byte of the header) has the same form for all.
        if answer.get(2) == Some(&0) {
            self.unsent = Some(guess);
        } else {
            self.reacted();
        }
    }

    /// All output was handed to the network.
    pub(in crate::rpc) fn all_sent(&mut self, now: impl FnOnce() -> Instant) {
        if let Some(guess) = self.unsent.take() {
            self.sent = Some((guess, now()));
        }
    }

    /// The peer closed the connection.
    pub(in crate::rpc) fn closed(&mut self, now: Instant) {
        if let Some((guess, at)) = self.sent.take()
            && now.saturating_since(at) < EARLY
        {
            let against = guess.function.readers(self.possible, guess.generation);
            self.shared.closed_early(&self.reader, against, guess.is_trial);
        }
        self.reacted();
    }

    /// A further request: the answer before it was read.
    fn went_on(&mut self) {
        if let Some((Guess { function, generation, .. }, _)) = self.sent.take() {
            self.narrow(function.readers(self.possible, generation));
            self.reacted();
        }
    }

    /// Whatever was to be seen of the last guess has been seen.
    fn reacted(&mut self) {
        if std::mem::take(&mut self.is_outstanding) {
            self.shared.reacted(&self.reader);
        }
    }

    /// The client is one of `set`. If that contradicts what was known, the last word counts.
    fn narrow(&mut self, set: GenerationSet) {
        let narrowed = self.possible.and(set).or_if_empty(set);
        if narrowed != self.possible {
            self.change(narrowed);
            self.shared.learned(&self.reader, narrowed);
        }
    }

    fn change(&mut self, possible: GenerationSet) {
        let connections = &self.shared.wire().connections;
        connections.take(self.possible.only());
        connections.add(possible.only());
        self.possible = possible;
    }

    /// Takes up the client that a request names. A connection is its client's alone, so the first name counts.
    fn hear(&mut self, rpc: &Rpc, body: &[u8]) {
        if self.reader.client.is_some() || !rpc.names_client() {
            return;
        }
        let Some(client) = rpc.client(body) else { return };
        self.reader.client = Some(client);
        let known = self.shared.client_came(client, self.possible);
        if known != self.possible && !self.is_fixed {
            self.change(known);
        }
    }
}

impl Drop for Dialect {
    fn drop(&mut self) {
        self.reacted();
        self.shared.wire().connections.take(self.possible.only());
        if let Some(client) = self.reader.client {
            self.shared.client_left(client);
        }
    }
}
