//! Where a new value goes: an immutable picture of the mounted segments, and the strategies over it (facts §3.8).

use super::{RangeIndex, Segment};
use crate::{
    clock::Instant,
    core::eligibility::ServingEligibility,
    types::{AllocationStrategy, ClientId, ReplicateConfig},
};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::{collections::BTreeMap, ops::Bound, sync::Arc};

/// Names whose allocator was really asked before a search gives up (facts §3.8). Names that cannot serve or are
/// visibly full cost one load and do not count.
const MAX_NAMES_TRIED: usize = 100;

/// Names that `free_ratio_first` compares for each replica that is still to be placed.
const SAMPLE: usize = 6;

/// All segments that are mounted and not unmounting, by name. Never changed: a mount publishes a new one.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    names: Vec<NamedSegments>,
    by_name: HashMap<Arc<[u8]>, usize>,
    /// In the order in which `local_first` goes through the hosts.
    by_host: BTreeMap<Arc<[u8]>, Vec<usize>>,
    /// The host of a writer that does not name it itself: that of its segments.
    host_of: HashMap<ClientId, Arc<[u8]>>,
}

#[derive(Debug)]
struct NamedSegments {
    name: Arc<[u8]>,
    segments: SmallVec<[Arc<Segment>; 1]>,
}

/// What a writer wants to have placed.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// The writer.
    pub(crate) client: ClientId,
    /// Bytes of each replica.
    pub(crate) size: u64,
    /// Hash of the key.
    pub(crate) hash: u64,
    pub(crate) config: &'a ReplicateConfig<'a>,
    pub(crate) strategy: AllocationStrategy,
    /// It will never be evicted.
    pub(crate) hard_pinned: bool,
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
pub(crate) const MAX_REPLICAS: usize = 64;

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
                placement.host_of.entry(segment.owner().id()).or_insert_with(|| spec.host_id.clone());
            }
        }
        placement
    }

    /// Whether something of that name is mounted.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        self.by_name.contains_key(name)
    }

    /// Every segment.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.names.iter().flat_map(|named| &named.segments)
    }

    /// Every name with its segments.
    pub(crate) fn by_name(&self) -> impl Iterator<Item = (&Arc<[u8]>, &[Arc<Segment>])> {
        self.names.iter().map(|named| (&named.name, named.segments.as_slice()))
    }

    /// Places up to `replica_num` replicas on segments of distinct names, best effort: preferred segments in their
    /// order, then as the strategy says, then all from a random start.
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
                self.try_name(&mut search, self.by_name.get(*name).copied());
            }
        } else {
            self.try_name(&mut search, self.by_name.get(config.preferred_segment).copied());
        }
        let near = config.prefer_alloc_in_same_node && config.replica_num == 1;
        match wanted.strategy {
            _ if near => self.try_hosts(&mut search),
            AllocationStrategy::LocalFirst => self.try_hosts(&mut search),
            AllocationStrategy::FreeRatioFirst => self.try_sample(&mut search),
            // No client of this version reports its SSD, and unknown ones are all alike.
            AllocationStrategy::SsdFreeRatioFirst | AllocationStrategy::Random => {}
        }
        self.try_all(&mut search, rotated(self.names.len(), wanted.random));
        search.placed
    }

    /// The writer's host first, then the others in their order, each from a point that the key chooses.
    fn try_hosts(&self, search: &mut Search<'_, '_>) {
        let wanted = search.wanted;
        let own = Some(wanted.config.host_id).filter(|host| !host.is_empty());
        let own = own.or_else(|| self.host_of.get(&wanted.client).map(|host| &**host)).unwrap_or_default();
        let from = self.by_host.range::<[u8], _>((Bound::Included(own), Bound::Unbounded));
        let before = self.by_host.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(own)));
        for (_, names) in from.chain(before) {
            if search.done() {
                break;
            }
            self.try_all(search, rotated(names.len(), wanted.hash).map(|at| names[at]));
        }
    }

    /// The freest of a few names that follow one another.
    fn try_sample(&self, search: &mut Search<'_, '_>) {
        let sample = SAMPLE * (search.count - search.placed.len());
        let names = rotated(self.names.len(), search.wanted.random).take(sample);
        let mut names: SmallVec<[(f64, usize); SAMPLE]> =
            names.map(|at| (self.names[at].free_ratio(), at)).collect();
        names.sort_by(|a, b| b.0.total_cmp(&a.0));
        self.try_all(search, names.into_iter().map(|(_, at)| at));
    }

    fn try_all(&self, search: &mut Search<'_, '_>, names: impl Iterator<Item = usize>) {
        search.tried = 0;
        for at in names {
            if search.done() {
                break;
            }
            self.try_name(search, Some(at));
        }
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
            if let Some((range, address)) = segment.allocate(wanted.size, wanted.hash, wanted.hard_pinned) {
                search.used.push(at);
                search.placed.push(Placed { segment: segment.clone(), range, address });
                break;
            }
        }
        search.tried += usize::from(asked);
    }
}

impl NamedSegments {
    fn free_ratio(&self) -> f64 {
        let sums = self.segments.iter().fold((0, 0), |(free, all), segment| {
            let size = segment.spec().size;
            (free + size - segment.usage().0.min(size), all + size)
        });
        sums.0 as f64 / (sums.1.max(1)) as f64
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
