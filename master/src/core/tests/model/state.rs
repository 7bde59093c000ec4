//! What should be there: the plain model.

use crate::types::LivenessState;
use std::collections::BTreeMap;

/// `eviction_high_watermark_ratio` of the core under test.
pub(super) const WATERMARK: f64 = 0.9;
const DISCARD: u64 = 30;
pub(super) const RELEASE: u64 = 600;
const GRACE: u64 = 40;
const ACTIVE_TTL: u64 = 10;
const SUSPICION_TTL: u64 = 20;
/// Small enough that few clients make a mass silence now and then.
pub(super) const MASS_MIN: u64 = 3;
pub(super) const MASS_RATIO: f64 = 0.7;

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) writer: u64,
    pub(super) size: u64,
    pub(super) started: u64,
    pub(super) leased_until: u64,
    pub(super) complete: bool,
    pub(super) established: bool,
    pub(super) hard_pinned: bool,
    pub(super) soft_pinned_until: Option<u64>,
    /// Seconds of a soft pin that begins with the End.
    pub(super) pending_pin: Option<u64>,
    pub(super) group: Option<u8>,
    /// (incarnation of the segment, address); `complete` is said of these.
    pub(super) replicas: Vec<(usize, u64)>,
    /// Whether its file on disk is complete, if it has one.
    pub(super) disk: Option<bool>,
}

impl Object {
    pub(super) fn memory_unfinished(&self) -> bool {
        !self.complete && !self.replicas.is_empty()
    }

    pub(super) fn unfinished(&self) -> bool {
        self.memory_unfinished() || self.disk == Some(false)
    }

    pub(super) fn memory_complete(&self) -> bool {
        self.complete && !self.replicas.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replicas.is_empty() && self.disk.is_none()
    }
}

/// An incarnation of a segment.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) owner: u64,
    pub(super) usable_from: u64,
    /// When it will be unmounted; it takes nothing new.
    pub(super) graceful: Option<u64>,
    pub(super) gone: bool,
    pub(super) cleaned: bool,
}

impl Segment {
    /// Whether it is on its way out, gracefully or not.
    pub(super) fn is_going(&self) -> bool {
        self.gone || self.graceful.is_some()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) state: LivenessState,
    pub(super) since: u64,
    /// Suspected for one more window, as one of many.
    pub(super) held: bool,
    pub(super) ready: bool,
}

/// Ends that may still come of writes that others have taken the place of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    ends: u32,
    refused: bool,
    due: u64,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) now: u64,
    pub(super) served: u64,
    pub(super) next_round: u64,
    pub(super) objects: BTreeMap<u8, Object>,
    pub(super) segments: Vec<Segment>,
    pub(super) clients: BTreeMap<u64, Client>,
    /// (incarnation of the segment, size, due)
    pub(super) aside: Vec<(usize, u64, u64)>,
    /// Leases of groups, as long as they have members.
    pub(super) groups: BTreeMap<u8, u64>,
    /// By key, writer, and whether it is about the file on disk.
    pub(super) owed: BTreeMap<(u8, u64, bool), Owed>,
    /// A Start has found no room since the last look.
    pub(super) refused: bool,
    pub(super) evicted: u64,
}

impl Model {
    pub(super) fn state(&self, client: u64) -> Option<LivenessState> {
        self.clients.get(&client).map(|client| client.state)
    }

    pub(super) fn offline(&self, client: u64) -> bool {
        self.state(client) == Some(LivenessState::Offline)
    }

    pub(super) fn serves(&self, incarnation: usize) -> bool {
        let segment = &self.segments[incarnation];
        !segment.gone && self.state(segment.owner) == Some(LivenessState::Active)
    }

    /// Whether nothing of it will ever be served again.
    pub(super) fn is_gone(&self, object: &Object) -> bool {
        object.disk.is_none() && object.replicas.iter().all(|of| self.segments[of.0].gone)
    }

    /// The present incarnation under that number.
    pub(super) fn mounted(&self, number: u64) -> Option<usize> {
        (0..self.segments.len())
            .rev()
            .find(|&at| self.segments[at].number == number && !self.segments[at].cleaned)
    }

    pub(super) fn set_aside(&mut self, object: &Object, due: u64) {
        for &(segment, _) in &object.replicas {
            self.aside.push((segment, object.size, due));
        }
    }

    pub(super) fn leased_until(&self, object: &Object) -> u64 {
        object.group.map_or(object.leased_until, |group| self.groups.get(&group).copied().unwrap_or(0))
    }

    pub(super) fn lease(&mut self, key: u8, until: u64) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        let lease = match object.group {
            Some(group) => self.groups.entry(group).or_default(),
            None => &mut object.leased_until,
        };
        *lease = (*lease).max(until);
    }

    pub(super) fn insert(&mut self, key: u8, object: Object) {
        if let Some(group) = object.group {
            self.groups.entry(group).or_default();
        }
        self.objects.insert(key, object);
        self.forget_groups();
    }

    pub(super) fn remove(&mut self, key: u8) {
        self.objects.remove(&key);
        self.forget_groups();
    }

    /// A group is there as long as it has members.
    pub(super) fn forget_groups(&mut self) {
        let objects = &self.objects;
        self.groups.retain(|&group, _| objects.values().any(|object| object.group == Some(group)));
    }

    /// The write under way to that key is at its end; its Ends may come until `due`.
    pub(super) fn supersede(&mut self, key: u8, object: &Object, due: u64) {
        if object.memory_unfinished() {
            self.owe(key, object.writer, false, due);
        }
        if object.disk == Some(false) {
            self.owe(key, object.writer, true, due);
        }
    }

    fn owe(&mut self, key: u8, writer: u64, disk: bool, due: u64) {
        let now = self.now;
        self.owed.retain(|_, owed| owed.due > now);
        match self.owed.get_mut(&(key, writer, disk)) {
            Some(owed) if owed.refused => {
                owed.ends += 1;
                owed.refused = false;
            }
            Some(owed) => {
                owed.ends += 1;
                owed.due = owed.due.max(due);
            }
            None if due > now => {
                self.owed.insert((key, writer, disk), Owed { ends: 1, refused: false, due });
            }
            None => {}
        }
    }

    /// Whether an End counts for the present write.
    pub(super) fn accept_end(&mut self, key: u8, writer: u64, disk: bool) -> bool {
        let now = self.now;
        self.owed.retain(|_, owed| owed.due > now);
        let Some(owed) = self.owed.get_mut(&(key, writer, disk)) else { return true };
        if owed.ends == 0 {
            self.owed.remove(&(key, writer, disk));
            return true;
        }
        owed.ends -= 1;
        owed.refused = true;
        false
    }

    /// An End or a Revoke found nothing.
    pub(super) fn heard(&mut self, key: u8, writer: u64, disk: bool) {
        if let Some(owed) = self.owed.get_mut(&(key, writer, disk)) {
            owed.ends = owed.ends.saturating_sub(1);
            if owed.ends == 0 && !owed.refused {
                self.owed.remove(&(key, writer, disk));
            }
        }
    }

    pub(super) fn owes(&self, key: u8, writer: u64) -> bool {
        self.owed.get(&(key, writer, false)).is_some_and(|owed| owed.due > self.now && owed.ends > 0)
    }

    /// The used share of the segments that serve.
    fn used(&self) -> f64 {
        let capacity =
            (0..self.segments.len()).filter(|&at| self.serves(at)).count() as u64 * super::SEGMENT_SIZE;
        let aside: u64 = self.aside.iter().filter(|of| self.serves(of.0)).map(|of| of.1).sum();
        let held: u64 = self
            .objects
            .values()
            .map(|object| object.size * object.replicas.iter().filter(|of| self.serves(of.0)).count() as u64)
            .sum();
        if capacity == 0 { 0.0 } else { (aside + held) as f64 / capacity as f64 }
    }

    /// What is left of it by the clean-up of what lay on segments that are gone and (in a round) by the discard of what
    /// was abandoned.
    pub(super) fn left(&self, object: &Object, round: bool) -> Object {
        let mut left = object.clone();
        left.replicas.retain(|of| !self.segments[of.0].gone);
        if round && self.abandoned(&left) {
            if left.memory_unfinished() {
                left.replicas.clear();
            }
            left.disk = left.disk.filter(|&complete| complete);
        }
        left
    }

    /// Takes over what the core has evicted, after having checked that each may go.
    pub(super) fn evict(&mut self, gone: &[u8], round: bool) {
        assert!(gone.is_empty() || self.refused || self.used() > WATERMARK, "nothing asked for it");
        for &key in gone {
            let object = &self.objects[&key];
            let left = self.left(object, round);
            assert!(!left.unfinished() && !object.hard_pinned, "{key}: {object:?}");
            assert!(self.leased_until(object) <= self.now, "{key} is leased: {object:?}");
            // The one that was looked at; others of its group may lie with clients that are Suspected.
            let served = |object: &Object| {
                object.replicas.iter().all(|of| self.serves(of.0) || self.segments[of.0].gone)
            };
            let Some(group) = object.group else {
                assert!(served(object), "{key} may come back: {object:?}");
                continue;
            };
            let members = || self.objects.iter().filter(|of| of.1.group == Some(group));
            assert!(members().any(|of| served(of.1)), "{key} may come back: {object:?}");
            assert!(
                members().all(|of| gone.contains(of.0) || self.left(of.1, round).is_empty()),
                "all of group {group}, or nothing"
            );
        }
        for key in gone {
            match self.objects.get_mut(key) {
                // Its file goes on serving it.
                Some(object) if object.disk == Some(true) && object.group.is_none() => {
                    object.replicas.clear();
                }
                _ => drop(self.objects.remove(key)),
            }
        }
        self.evicted += gone.len() as u64;
        self.refused = false;
        self.forget_groups();
    }

    /// Ends the write under way: what it wrote to in memory is kept aside until `due`.
    pub(super) fn discard(&mut self, key: u8, mut object: Object, due: u64) {
        self.supersede(key, &object, due);
        if object.memory_unfinished() {
            self.set_aside(&object, due);
            object.replicas.clear();
        }
        object.disk = object.disk.filter(|&complete| complete);
        self.put(key, object);
    }

    /// Puts an object back that was changed, if anything is left of it.
    pub(super) fn put(&mut self, key: u8, object: Object) {
        if object.is_empty() { self.remove(key) } else { self.insert(key, object) }
    }

    /// Segments whose time of grace is over go.
    pub(super) fn end_graces(&mut self) {
        let now = self.now;
        let is_over = |segment: &&mut Segment| segment.graceful.is_some_and(|due| due <= now);
        self.segments.iter_mut().filter(is_over).for_each(|segment| segment.gone = true);
    }

    /// What a write finds under that key: gone replicas are dropped, and the object with the last.
    pub(super) fn live(&mut self, key: u8) -> Option<Object> {
        let segments = &self.segments;
        let object = self.objects.get_mut(&key)?;
        object.replicas.retain(|&(segment, _)| !segments[segment].gone);
        if object.is_empty() {
            self.remove(key);
        }
        self.objects.get(&key).cloned()
    }

    pub(super) fn abandoned(&self, object: &Object) -> bool {
        object.unfinished() && object.started + DISCARD < self.now
    }

    pub(super) fn hear(&mut self, client: u64) {
        if let Some(known) = self.clients.get_mut(&client)
            && known.state != LivenessState::Offline
        {
            known.state = LivenessState::Active;
            known.since = self.now;
            known.held = false;
        }
    }

    pub(super) fn tick(&mut self) {
        self.served += 1;
        let now = self.now;
        for client in self.clients.values_mut() {
            if client.state == LivenessState::Active && now - client.since >= ACTIVE_TTL {
                (client.state, client.since, client.held) = (LivenessState::Suspected, now, false);
            }
        }
        let fresh =
            |client: &Client| client.state == LivenessState::Suspected && now - client.since <= ACTIVE_TTL;
        let silent = self.clients.values().filter(|client| fresh(client)).count() as u64;
        let active =
            self.clients.values().filter(|client| client.state == LivenessState::Active).count() as u64;
        if silent >= MASS_MIN && silent as f64 >= MASS_RATIO * (active + silent) as f64 {
            self.clients.values_mut().filter(|client| fresh(client)).for_each(|client| client.held = true);
        }
        for (&id, client) in &mut self.clients {
            let window = if client.held { 2 * SUSPICION_TTL } else { SUSPICION_TTL };
            if client.state == LivenessState::Suspected
                && now - client.since >= window
                && self.served >= GRACE
            {
                (client.state, client.since, client.held) = (LivenessState::Offline, now, false);
                self.segments.iter_mut().filter(|segment| segment.owner == id).for_each(|of| of.gone = true);
            }
        }
    }

    pub(super) fn settle(&mut self) {
        let gone: Vec<bool> = self.segments.iter().map(|segment| segment.gone).collect();
        for object in self.objects.values_mut() {
            object.replicas.retain(|&(segment, _)| !gone[segment]);
        }
        self.objects.retain(|_, object| !object.is_empty());
        self.aside.retain(|&(segment, ..)| !gone[segment]);
        self.segments.iter_mut().filter(|segment| segment.gone).for_each(|segment| segment.cleaned = true);
        self.clients.retain(|_, client| client.state != LivenessState::Offline);
        if self.now >= self.next_round {
            self.next_round = self.now + 1;
            for key in 0..super::KEYS {
                if let Some(object) = self.objects.get(&key).cloned()
                    && self.abandoned(&object)
                {
                    let due = object.started + RELEASE;
                    self.discard(key, object, due);
                }
            }
            let now = self.now;
            for object in self.objects.values_mut() {
                object.soft_pinned_until = object.soft_pinned_until.filter(|&until| until > now);
            }
            self.aside.retain(|&(.., due)| due > self.now);
        }
        self.forget_groups();
    }

    pub(super) fn mount(&mut self, client: u64, number: u64, usable_from: u64) {
        self.segments.push(Segment {
            number,
            owner: client,
            usable_from,
            graceful: None,
            gone: false,
            cleaned: false,
        });
    }

    pub(super) fn know(&mut self, client: u64) {
        let now = self.now;
        self.clients.entry(client).or_insert(Client {
            state: LivenessState::Active,
            since: now,
            held: false,
            ready: false,
        });
        self.hear(client);
    }
}
