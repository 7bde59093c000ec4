//! Where a new value goes: an immutable picture of the mounted segments, and the strategies over it (facts §3.8).

use super::{
    RangeIndex, Segment,
    shared::{SharedMap, SharedSorted, SharedVec},
};
use crate::{
    clock::Instant,
    core::eligibility::ServingEligibility,
    types::{AllocationStrategy, ClientId, ReplicateConfig},
};
use smallvec::SmallVec;
use std::sync::Arc;

/// Names whose allocator was really asked before a search gives up (facts §3.8). Names that cannot serve or are
/// visibly full cost one load and do not count.
const MAX_NAMES_TRIED: usize = 100;

/// Names that `free_ratio_first` compares for each replica that is still to be placed.
const SAMPLE: usize = 6;

/// All segments that are mounted and not unmounting, by name. What is published never changes: who mounts or unmounts
/// changes a copy, which shares with it all but the few entries that differ, and publishes that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placement {
    names: SharedVec<NamedSegments>,
    /// Where in `names`.
    by_name: SharedMap<Arc<[u8]>, usize>,
    /// In the order in which `local_first` goes through the hosts.
    by_host: SharedSorted<Arc<[u8]>, SharedVec<Arc<Segment>>>,
    /// The host of a writer that does not name it itself: that of its segments, and how many of these name one. A
    /// client is one process, so its segments are all on one host.
    host_of: SharedMap<ClientId, (Arc<[u8]>, usize)>,
}

#[derive(Clone, Debug)]
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
    /// Names that have a replica already.
    used: SmallVec<[&'a [u8]; 4]>,
    placed: SmallVec<[Placed; 1]>,
}

/// Replicas of one object at the most. Nobody keeps more copies of a cache entry, and each one is looked for under the
/// lock of the key's shard.
pub(crate) const MAX_REPLICAS: usize = 64;

impl Placement {
    /// Adds a segment that is not there.
    pub(crate) fn insert(&mut self, segment: &Arc<Segment>) {
        let spec = segment.spec();
        if let Some(&at) = self.by_name.get(&spec.name) {
            self.names.at_mut(at).segments.push(segment.clone());
        } else {
            self.by_name.insert(spec.name.clone(), self.names.len());
            let segments = SmallVec::from_buf([segment.clone()]);
            self.names.push(NamedSegments { name: spec.name.clone(), segments });
        }
        if spec.host_id.is_empty() {
            return;
        }
        self.by_host.entry(&spec.host_id).push(segment.clone());
        let owner = segment.owner().id();
        match self.host_of.get_mut(&owner) {
            Some((_, count)) => *count += 1,
            None => self.host_of.insert(owner, (spec.host_id.clone(), 1)),
        }
    }

    /// Takes a segment out, if it is there.
    pub(crate) fn remove(&mut self, segment: &Arc<Segment>) {
        let spec = segment.spec();
        let is_it = |of: &Arc<Segment>| Arc::ptr_eq(of, segment);
        let Some(&at) = self.by_name.get(&spec.name) else { return };
        let Some(within) = self.names[at].segments.iter().position(is_it) else { return };
        if self.names[at].segments.len() > 1 {
            self.names.at_mut(at).segments.swap_remove(within);
        } else {
            self.by_name.remove(&spec.name);
            self.names.swap_remove(at);
            if at < self.names.len()
                && let Some(moved) = self.by_name.get_mut(&self.names[at].name)
            {
                *moved = at;
            }
        }
        if spec.host_id.is_empty() {
            return;
        }
        let on_host = self.by_host.entry(&spec.host_id);
        if let Some(at) = on_host.position(is_it) {
            on_host.swap_remove(at);
        }
        if on_host.len() == 0 {
            self.by_host.remove(&spec.host_id);
        }
        let owner = segment.owner().id();
        if let Some((_, count)) = self.host_of.get_mut(&owner) {
            *count -= 1;
            if *count == 0 {
                self.host_of.remove(&owner);
            }
        }
    }

    /// Whether something of that name is mounted.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        self.by_name.get(name).is_some()
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
                self.try_preferred(&mut search, name);
            }
        } else {
            self.try_preferred(&mut search, config.preferred_segment);
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

    fn try_preferred<'s>(&'s self, search: &mut Search<'s, '_>, name: &[u8]) {
        if let Some(&at) = self.by_name.get(name) {
            let named = &self.names[at];
            try_segments(search, &named.name, named.segments.len(), |at| &named.segments[at]);
        }
    }

    /// The writer's host first, then the others in their order, each from a point that the key chooses.
    fn try_hosts<'s>(&'s self, search: &mut Search<'s, '_>) {
        let wanted = search.wanted;
        let own = Some(wanted.config.host_id).filter(|host| !host.is_empty());
        let own = own.or_else(|| self.host_of.get(&wanted.client).map(|(host, _)| &**host));
        for (_, on_host) in self.by_host.round_from(own.unwrap_or_default()) {
            search.tried = 0;
            for at in rotated(on_host.len(), wanted.hash) {
                if search.done() {
                    return;
                }
                let segment = &on_host[at];
                try_segments(search, &segment.spec().name, 1, |_| segment);
            }
        }
    }

    /// The freest of a few names that follow one another.
    fn try_sample<'s>(&'s self, search: &mut Search<'s, '_>) {
        let sample = SAMPLE * (search.count - search.placed.len());
        let names = rotated(self.names.len(), search.wanted.random).take(sample);
        let mut names: SmallVec<[(f64, usize); SAMPLE]> =
            names.map(|at| (self.names[at].free_ratio(), at)).collect();
        names.sort_by(|a, b| b.0.total_cmp(&a.0));
        self.try_all(search, names.into_iter().map(|(_, at)| at));
    }

    fn try_all<'s>(&'s self, search: &mut Search<'s, '_>, names: impl Iterator<Item = usize>) {
        search.tried = 0;
        for at in names {
            if search.done() {
                break;
            }
            let named = &self.names[at];
            try_segments(search, &named.name, named.segments.len(), |at| &named.segments[at]);
        }
    }

    /// Checks that every index says what follows from the segments.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        use std::collections::{BTreeMap, BTreeSet};
        let mut hosts: BTreeMap<&[u8], BTreeSet<*const Segment>> = BTreeMap::new();
        let mut owners: BTreeMap<ClientId, usize> = BTreeMap::new();
        for (at, named) in self.names.iter().enumerate() {
            assert_eq!(self.by_name.get(&named.name), Some(&at));
            assert!(!named.segments.is_empty());
            for segment in &named.segments {
                let spec = segment.spec();
                assert_eq!(spec.name, named.name);
                if !spec.host_id.is_empty() {
                    assert!(hosts.entry(&spec.host_id).or_default().insert(Arc::as_ptr(segment)));
                    *owners.entry(segment.owner().id()).or_default() += 1;
                }
            }
        }
        assert_eq!(self.by_name.iter().count(), self.names.len());
        let listed = self.by_host.round_from(&b""[..]);
        let listed = listed.map(|(host, on)| (&**host, on.iter().map(Arc::as_ptr).collect()));
        assert!(listed.eq(hosts), "the hosts in their order");
        assert!(self.host_of.iter().all(|(client, (_, count))| owners.remove(client) == Some(*count)));
        assert!(owners.is_empty(), "no host of {owners:?}");
    }
}

/// Tries the segments of a name, or one of them, for one replica.
fn try_segments<'s>(
    search: &mut Search<'s, '_>,
    name: &'s [u8],
    count: usize,
    segment: impl Fn(usize) -> &'s Arc<Segment>,
) {
    if search.done() || search.used.contains(&name) {
        return;
    }
    let wanted = search.wanted;
    let mut asked = false;
    for which in rotated(count, wanted.random >> 32) {
        let segment = segment(which);
        if segment.usable_from() > wanted.now || !ServingEligibility::of(segment).can_serve() {
            continue;
        }
        asked |= segment.may_fit(wanted.size);
        if let Some((range, address)) = segment.allocate(wanted.size, wanted.hash, wanted.hard_pinned) {
            search.used.push(name);
            search.placed.push(Placed { segment: segment.clone(), range, address });
            break;
        }
    }
    search.tried += usize::from(asked);
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
