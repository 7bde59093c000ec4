//! What is known of clients and addresses, and what a close after a guessed answer means.
//!
//! A close directly after a guessed answer is what a client does that could not read it. It is also what one does that has
//! read all it wanted. So a close makes a *doubt*, never knowledge:
//! - A doubt does not concern a client that begins (with `ServiceReady`) after it: a client that could not read an answer
//!   goes on with its next call on another connection. So any number of clients that read once and close change nothing
//!   for those that come after them.
//! - A connection that a doubt concerns is a *trial* of the other form. A trial of a form that its address has not confirmed
//!   against one that it has takes two closes in a row. Where connections that did not begin with `ServiceReady` are closed
//!   in either form, closing means little: each trial that is closed, too, after the first one, doubles how many it takes.
//! - Where both forms are confirmed, several clients share an address: one close, one later connection that gets the other.
//! - A connection that goes on ends the doubt.
//! - While an address has confirmed nothing, one guess at a time: other connections wait a moment for the reaction, so that
//!   a client of many threads fails once and not once per thread.

use super::bounded::Bounded;
use crate::{
    rpc::native::generation::{Function, Generation, GenerationSet},
    types::ClientId,
};
use std::net::IpAddr;

/// Clients that are remembered; more than there can be connections (`max_connections`), each of which holds at most one.
const CLIENTS: usize = 1 << 17;
/// Addresses that are remembered.
const ADDRESSES: usize = 1 << 16;

/// How often failed trials double the closes that a further one takes.
const MAX_DOUBLINGS: u32 = 8;

/// What is known of one client id.
#[derive(Debug)]
pub(super) struct Client {
    /// What its calls and its reactions leave.
    pub(super) possible: GenerationSet,
    /// What it could not read the last time that a guess was closed on.
    doubted: GenerationSet,
    /// Open connections that named it.
    pub(super) connections: u32,
    reported: bool,
}

impl Default for Client {
    fn default() -> Client {
        Client {
            possible: GenerationSet::all(),
            doubted: GenerationSet::EMPTY,
            connections: 0,
            reported: false,
        }
    }
}

impl Client {
    /// A connection of it is of one of `possible`. What contradicts older knowledge replaces it.
    pub(super) fn learn(&mut self, possible: GenerationSet) {
        self.possible = self.possible.and(possible).or_if_empty(possible);
        if self.possible.only().is_some() {
            self.doubted = GenerationSet::EMPTY;
        }
    }
}

/// What is known of one peer address.
#[derive(Debug, Default)]
struct Address {
    /// What connections from there turned out to be.
    confirmed: GenerationSet,
    /// The last of them.
    latest: Option<&'static Generation>,
    doubt: Option<Doubt>,
    /// Trials in a row that were closed, too.
    failed_trials: u32,
    /// Connections whose reaction to a guess has not been seen.
    outstanding: u32,
    reported: bool,
}

/// Closes directly after a guessed answer.
#[derive(Debug)]
struct Doubt {
    /// Those that would have read that answer.
    against: GenerationSet,
    /// When the last was; see [`Reader::opened`].
    since: u64,
    /// How many in a row.
    strikes: u32,
    /// Whether the last was on a new client's first connection.
    is_of_new_client: bool,
}

/// Who is to read an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    pub(super) address: IpAddr,
    /// The client that the connection named.
    pub(super) client: Option<ClientId>,
    /// The number of the connection in the order of connections and doubts.
    pub(super) opened: u64,
    /// Whether its first call was `ServiceReady`, with which a new client begins.
    pub(super) is_new_client: bool,
}

/// A question to the tables.
pub(super) struct Asking<'a> {
    pub(super) reader: &'a Reader,
    pub(super) function: &'static Function,
    /// What the calls of the connection leave; at least two that read different answers.
    pub(super) among: GenerationSet,
    /// Whether the connection may be told to wait.
    pub(super) may_wait: bool,
    /// Whether a guess of this connection is outstanding already.
    pub(super) is_outstanding: bool,
}

/// An answer of the tables.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// All that is possible read the answers of this one.
    Known(&'static Generation),
    /// The most likely. The guess is outstanding until [`Knowledge::reacted`].
    Guess {
        generation: &'static Generation,
        /// Against what is the most likely otherwise.
        is_trial: bool,
        /// Nothing at all speaks for it, and that was not reported of this client yet.
        is_news: bool,
    },
    /// Another connection from there will soon tell more.
    Wait,
}

/// Both tables.
#[derive(Debug)]
pub(super) struct Knowledge {
    clients: Bounded<ClientId, Client>,
    addresses: Bounded<IpAddr, Address>,
}

impl Default for Knowledge {
    fn default() -> Knowledge {
        Knowledge {
            clients: Bounded::new(CLIENTS, |client| client.connections > 0),
            addresses: Bounded::new(ADDRESSES, |_| false),
        }
    }
}

impl Knowledge {
    /// The record of a client.
    pub(super) fn client(&mut self, client: ClientId) -> &mut Client {
        self.clients.entry(client)
    }

    /// The generation of a client, if there is but one that it can be of.
    pub(super) fn generation_of(&mut self, client: ClientId) -> Option<&'static Generation> {
        self.clients.get(client)?.possible.only()
    }

    /// A connection from there is of that generation. If that makes generations share the address that cannot always be
    /// told apart: these.
    pub(super) fn confirm(
        &mut self,
        address: IpAddr,
        generation: &'static Generation,
    ) -> Option<GenerationSet> {
        let record = self.addresses.entry(address);
        let is_new = !record.confirmed.contains(generation);
        record.confirmed = record.confirmed.or(generation.into());
        record.latest = Some(generation);
        record.doubt = None;
        if is_new {
            record.failed_trials = 0;
        }
        let confusable = record.confirmed.and(generation.confusable());
        (is_new && !confusable.is_empty()).then(|| confusable.or(generation.into()))
    }

    /// Who is to read an answer that the calls of the connection alone do not tell.
    pub(super) fn choose(&mut self, asking: &Asking<'_>, default: &'static Generation) -> Choice {
        let Asking { reader, function, mut among, .. } = *asking;
        let newest = |set: GenerationSet| set.newest().unwrap_or(default);
        let mut client = reader.client.map(|client| self.clients.entry(client));
        let mut unlikely = GenerationSet::EMPTY;
        if let Some(client) = &client {
            among = among.and(client.possible).or_if_empty(among);
            unlikely = client.doubted;
        }
        if function.is_unambiguous(among) {
            return Choice::Known(newest(among));
        }
        let address = self.addresses.entry(reader.address);
        let confirmed = address.confirmed.and(among);
        let likely = among.without(unlikely);
        let has_own_doubt = likely != among && function.is_unambiguous(likely) && !likely.is_empty();
        if !has_own_doubt && confirmed.is_empty() && address.outstanding > 0 && asking.may_wait {
            return Choice::Wait;
        }
        let (mut is_trial, mut is_news) = (false, false);
        let generation = if has_own_doubt {
            newest(likely)
        } else if let Some(other) = address.alternative(reader, among) {
            is_trial = !other.is_confirmed;
            newest(other.among)
        } else if let Some(latest) = address.latest.filter(|latest| confirmed.contains(latest)) {
            latest
        } else if !confirmed.is_empty() {
            newest(confirmed)
        } else {
            let reported = client.as_mut().map_or(&mut address.reported, |client| &mut client.reported);
            is_news = !std::mem::replace(reported, true);
            if among.contains(default) { default } else { newest(among) }
        };
        if !asking.is_outstanding {
            address.outstanding += 1;
        }
        Choice::Guess { generation, is_trial, is_news }
    }

    /// The reaction to an outstanding guess was seen, or there will be none.
    pub(super) fn reacted(&mut self, address: IpAddr) {
        if let Some(address) = self.addresses.get(address) {
            // Not there any more, or made anew: then nothing was outstanding.
            address.outstanding = address.outstanding.saturating_sub(1);
        }
    }

    /// The connection of `reader` was closed directly after an answer that only `against` can read. `now`: see
    /// [`Reader::opened`].
    pub(super) fn doubt(&mut self, reader: &Reader, against: GenerationSet, is_trial: bool, now: u64) {
        if let Some(client) = reader.client {
            self.clients.entry(client).doubted = against;
        }
        let address = self.addresses.entry(reader.address);
        if is_trial {
            address.failed_trials = address.failed_trials.saturating_add(1);
            address.doubt = None;
            return;
        }
        // In a row: the next try of the same client, and not one of several connections that it closes together.
        let again = address
            .doubt
            .as_ref()
            .filter(|doubt| doubt.against == against && reader.opened > doubt.since && !reader.is_new_client);
        let strikes = again.map_or(0, |doubt| doubt.strikes).saturating_add(1);
        address.doubt = Some(Doubt { against, since: now, strikes, is_of_new_client: reader.is_new_client });
    }
}

/// Those to whom a doubt points.
struct Alternative {
    among: GenerationSet,
    /// The address has confirmed them, and those that the doubt is against, too.
    is_confirmed: bool,
}

impl Address {
    /// Among whom the reader is to be sought against all likelihood, if a doubt concerns it and weighs enough.
    fn alternative(&mut self, reader: &Reader, among: GenerationSet) -> Option<Alternative> {
        let doubt = self.doubt.as_ref()?;
        if reader.is_new_client && reader.opened > doubt.since {
            return None;
        }
        let (against, other) = (among.and(doubt.against), among.without(doubt.against));
        let confirmed = self.confirmed.and(other);
        let is_settled = !self.confirmed.and(against).is_empty();
        if is_settled && !confirmed.is_empty() {
            // Clients of both are there: one close, one connection that gets the other.
            self.doubt = None;
            return Some(Alternative { among: confirmed, is_confirmed: true });
        }
        let doublings = if doubt.is_of_new_client { 0 } else { self.failed_trials.saturating_sub(1) };
        let needed = (1 + u32::from(is_settled)) << doublings.min(MAX_DOUBLINGS);
        let is_enough = doubt.strikes >= needed && !other.is_empty();
        is_enough.then(|| Alternative { among: confirmed.or_if_empty(other), is_confirmed: false })
    }
}
