//! The records by client id, with look-ups that wait for nobody.

use super::ClientLivenessRecord;
use crate::types::ClientId;
use arc_swap::ArcSwap;
use hashbrown::HashMap;
use std::sync::Arc;

type Records = HashMap<ClientId, Arc<ClientLivenessRecord>>;

const PARTS: usize = 64;

/// Every record there is, the Offline ones that are still being offboarded included.
///
/// Parts of immutable maps behind an atomic pointer: a look-up (each Ping, each write's check of its client) is
/// lock-free and never waits, however long a mount or an offboarding takes. A change copies one part of 64, which
/// happens once in the life of a client; changes are made under the registry's mutex only.
#[derive(Debug)]
pub(crate) struct Clients {
    parts: Box<[ArcSwap<Records>]>,
}

impl Clients {
    pub(crate) fn new() -> Clients {
        Clients { parts: (0..PARTS).map(|_| ArcSwap::default()).collect() }
    }

    fn part(&self, id: ClientId) -> &ArcSwap<Records> {
        // Client ids are random as a rule, but need not be: mix all bits into the upper six.
        let mixed = (id.first ^ id.second.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.parts[(mixed >> 58) as usize]
    }

    /// Calls `with` with the record of that id.
    pub(crate) fn with<T>(
        &self,
        id: ClientId,
        with: impl FnOnce(&Arc<ClientLivenessRecord>) -> T,
    ) -> Option<T> {
        self.part(id).load().get(&id).map(with)
    }

    /// The record of that id.
    pub(crate) fn get(&self, id: ClientId) -> Option<Arc<ClientLivenessRecord>> {
        self.with(id, Arc::clone)
    }

    /// Adds the record of an id that has none. Under the registry's mutex.
    pub(crate) fn insert(&self, record: Arc<ClientLivenessRecord>) {
        let part = self.part(record.id());
        let mut records = Records::clone(&part.load());
        records.insert(record.id(), record);
        part.store(Arc::new(records));
    }

    /// Forgets that very incarnation. Under the registry's mutex.
    pub(crate) fn remove(&self, record: &Arc<ClientLivenessRecord>) {
        let part = self.part(record.id());
        let mut records = Records::clone(&part.load());
        if records.get(&record.id()).is_some_and(|known| Arc::ptr_eq(known, record)) {
            records.remove(&record.id());
            part.store(Arc::new(records));
        }
    }

    /// Visits every record.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<ClientLivenessRecord>)) {
        for part in &self.parts {
            part.load().values().for_each(&mut visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Instant;

    #[test]
    fn finds_what_was_inserted_and_removes_only_that_incarnation() {
        let clients = Clients::new();
        let records: Vec<_> = (0..500)
            .map(|n| Arc::new(ClientLivenessRecord::new(ClientId { first: n, second: 7 }, n, Instant::ZERO)))
            .collect();
        for record in &records {
            clients.insert(record.clone());
        }
        assert!(records.iter().all(|record| Arc::ptr_eq(&clients.get(record.id()).unwrap(), record)));
        let impostor = Arc::new(ClientLivenessRecord::new(records[3].id(), 9, Instant::ZERO));
        clients.remove(&impostor);
        clients.remove(&records[4]);
        assert!(clients.get(records[3].id()).is_some());
        assert!(clients.get(records[4].id()).is_none());
        let mut seen = 0;
        clients.for_each(|_| seen += 1);
        assert_eq!(seen, 499);
    }
}
