//! Which segments are mounted, and by which incarnation of a client.

use super::Segment;
use crate::{
    core::liveness::ClientLivenessRecord,
    types::{ClientId, SegmentId, SegmentSpec, SegmentStatus},
};
use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The mounted segments, unmounting ones included, in a stable order. Behind the one mutex that mounts, unmounts and
/// the commit of Offline take; no data call on keys and no Ping ever does.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    segments: BTreeMap<SegmentId, Arc<Segment>>,
    /// The ids of each client's.
    by_client: HashMap<ClientId, BTreeSet<SegmentId>>,
}

/// How a description compares with what is mounted under its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// Nothing is.
    No,
    /// The same segment of the same client.
    Same,
    /// It is on its way out, gracefully or not.
    Unmounting,
    /// Another one.
    Different,
}

impl Registry {
    pub(crate) fn get(&self, id: SegmentId) -> Option<&Arc<Segment>> {
        self.segments.get(&id)
    }

    pub(crate) fn compare(&self, spec: &SegmentSpec, owner: Option<&Arc<ClientLivenessRecord>>) -> Known {
        let Some(segment) = self.segments.get(&spec.id) else { return Known::No };
        if segment.status() != SegmentStatus::Ok {
            return Known::Unmounting;
        }
        let mounted = segment.spec();
        let same_owner = owner.is_some_and(|owner| Arc::ptr_eq(owner, segment.owner()));
        if same_owner && (&mounted.name, mounted.base, mounted.size) == (&spec.name, spec.base, spec.size) {
            Known::Same
        } else {
            Known::Different
        }
    }

    /// Adds a segment whose id is not known.
    pub(crate) fn insert(&mut self, segment: Arc<Segment>) {
        let id = segment.spec().id;
        self.by_client.entry(segment.owner().id()).or_default().insert(id);
        let before = self.segments.insert(id, segment);
        debug_assert!(before.is_none(), "compare() said that the id is not known");
    }

    /// Forgets that very incarnation; a later one under the same id stays.
    pub(crate) fn remove(&mut self, segment: &Arc<Segment>) {
        let id = segment.spec().id;
        if self.segments.get(&id).is_some_and(|mounted| Arc::ptr_eq(mounted, segment)) {
            self.segments.remove(&id);
            let client = segment.owner().id();
            if let Some(ids) = self.by_client.get_mut(&client) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_client.remove(&client);
                }
            }
        }
    }

    /// Every segment.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.segments.values()
    }

    /// The segments of a client, whichever incarnation mounted them.
    pub(crate) fn of_client(&self, client: ClientId) -> impl Iterator<Item = &Arc<Segment>> {
        let ids = self.by_client.get(&client);
        ids.into_iter().flatten().filter_map(|id| self.segments.get(id))
    }

    /// The segments of that incarnation of a client.
    pub(crate) fn owned_by(&self, owner: &Arc<ClientLivenessRecord>) -> Vec<Arc<Segment>> {
        self.of_client(owner.id()).filter(|segment| Arc::ptr_eq(segment.owner(), owner)).cloned().collect()
    }
}
