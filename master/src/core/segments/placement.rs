//! Where a new value goes: an immutable picture of the mounted segments, and the strategy `random` over it.

use super::{RangeIndex, Segment};
use crate::{clock::Instant, core::eligibility::ServingEligibility, types::ReplicateConfig};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// Names whose allocator was really asked before a search gives up (facts §3.8). Names that cannot serve or are
/// visibly full cost one load and do not count.
const MAX_NAMES_TRIED: usize = 100;

/// All segments that are mounted and not unmounting, by name. Never changed: a mount publishes a new one.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    names: Vec<NamedSegments>,
    by_name: HashMap<Arc<[u8]>, usize>,
    by_host: HashMap<Arc<[u8]>, Vec<usize>>,
}

#[derive(Debug)]
struct NamedSegments {
    name: Arc<[u8]>,
    segments: SmallVec<[Arc<Segment>; 1]>,
}

/// What a writer wants to have placed.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// Bytes of each replica.
    pub(crate) size: u64,
    /// Hash of the key.
    pub(crate) hash: u64,
    pub(crate) config: &'a ReplicateConfig<'a>,
    pub(crate) now: Instant,
    /// Where the scan starts.
    pub(crate) random: u64,
}

/// One replica's place.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) segment: Arc<Segment>,
    pub(crate) range: RangeIndex,
    pub(crate) address: u64,
}

/// A search under way.
struct Search<'a, 'c> {
    wanted: &'a Wanted<'c>,
    count: usize,
    tried: usize,
    used: SmallVec<[usize; 4]>,
    placed: SmallVec<[Placed; 1]>,
}

/// Replicas of one object at the most. Nobody keeps more copies of a cache entry, and each one is looked for under the
/// lock of the key's shard.
const MAX_REPLICAS: usize = 64;

impl Placement {
    pub(crate) fn new<'s>(segments: impl Iterator<Item = &'s Arc<Segment>>) -> Placement {
        let mut placement = Placement::default();
        for segment in segments {
            let spec = segment.spec();
            let at = *placement.by_name.entry(spec.name.clone()).or_insert_with(|| {
                placement.names.push(NamedSegments { name: spec.name.clone(), segments: SmallVec::new() });
                placement.names.len() - 1
            });
            placement.names[at].segments.push(segment.clone());
            if !spec.host_id.is_empty() {
                let names = placement.by_host.entry(spec.host_id.clone()).or_default();
                if names.last() != Some(&at) {
                    names.push(at);
                }
            }
        }
        placement
    }

    /// Every segment.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.names.iter().flat_map(|named| &named.segments)
    }

    /// Every name with its segments.
    pub(crate) fn by_name(&self) -> impl Iterator<Item = (&Arc<[u8]>, &[Arc<Segment>])> {
        self.names.iter().map(|named| (&named.name, named.segments.as_slice()))
    }

    /// Places up to `replica_num` replicas on segments of distinct names, best effort: preferred segments in
    /// their order, then (if asked for) segments on the writer's host, then all from a random start.
    pub(crate) fn place(&self, wanted: &Wanted<'_>) -> SmallVec<[Placed; 1]> {
        let config = wanted.config;
        let count =
            usize::try_from(config.replica_num).unwrap_or(usize::MAX).min(self.names.len()).min(MAX_REPLICAS);
        let mut search = Search { wanted, count, tried: 0, used: SmallVec::new(), placed: SmallVec::new() };
        if count == 0 {
            return search.placed;
        }
        if config.preferred_segment.is_empty() {
            for name in &config.preferred_segments {
                if search.done() {
                    break;
                }
                self.try_name(&mut search, self.by_name.get(*name).copied());
            }
        } else {
            self.try_name(&mut search, self.by_name.get(config.preferred_segment).copied());
        }
        if config.prefer_alloc_in_same_node
            && config.replica_num == 1
            && let Some(local) = self.by_host.get(config.host_id)
        {
            for at in rotated(local.len(), wanted.hash) {
                self.try_name(&mut search, Some(local[at]));
            }
        }
        search.tried = 0;
        for at in rotated(self.names.len(), wanted.random) {
            if search.done() {
                break;
            }
            self.try_name(&mut search, Some(at));
        }
        search.placed
    }

    fn try_name(&self, search: &mut Search<'_, '_>, at: Option<usize>) {
        let Some(at) = at else { return };
        if search.done() || search.used.contains(&at) {
            return;
        }
        let wanted = search.wanted;
        let segments = &self.names[at].segments;
        let mut asked = false;
        for which in rotated(segments.len(), wanted.random >> 32) {
            let segment = &segments[which];
            if segment.usable_from() > wanted.now || !ServingEligibility::of(segment).can_serve() {
                continue;
            }
            asked |= segment.may_fit(wanted.size);
            if let Some((range, address)) = segment.allocate(wanted.size, wanted.hash) {
                search.used.push(at);
                search.placed.push(Placed { segment: segment.clone(), range, address });
                break;
            }
        }
        search.tried += usize::from(asked);
    }
}

impl Search<'_, '_> {
    fn done(&self) -> bool {
        self.placed.len() >= self.count || self.tried >= MAX_NAMES_TRIED + self.placed.len()
    }
}

/// `0..len`, starting at a point that `random` chooses.
fn rotated(len: usize, random: u64) -> impl Iterator<Item = usize> {
    let start = if len == 0 { 0 } else { (random % len as u64) as usize };
    (start..len).chain(0..start)
}
