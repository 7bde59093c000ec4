//! What this process knows of the Lease, and for how long it has seen it unchanged.

use crate::{
    record::{LeaseObject, LeaseRecord},
    time::Instant,
};
use std::{collections::BTreeSet, time::Duration};

/// The Lease as last seen.
#[derive(Debug)]
pub(crate) enum View {
    Unknown,
    Absent,
    Present(Box<LeaseObject>),
}

/// What must stay equal for the Lease to count as unchanged. Neither resourceVersion nor other people's annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Unknown,
    Absent,
    Unheld { uid: String },
    Held { uid: String, holder: String, incarnation: String, epoch: u64, renew_time: String },
}

impl Key {
    fn of(object: &LeaseObject) -> Key {
        let (uid, record) = (object.uid.clone(), &object.record);
        if !record.is_held() {
            return Key::Unheld { uid };
        }
        Key::Held {
            uid,
            holder: record.holder.clone(),
            incarnation: record.incarnation.clone(),
            epoch: record.epoch,
            renew_time: record.renew_time.clone(),
        }
    }
}

/// A duration that a record without a readable one is taken to have.
const UNREADABLE_DURATION: Duration = Duration::from_secs(15);

/// The holder of the last record that named one.
#[derive(Debug)]
struct LastHeld {
    uid: String,
    holder: String,
    incarnation: String,
    epoch: u64,
    in_sync: BTreeSet<String>,
    /// The longest duration seen in this holder's tenure: a shorter one written over it by a stranger changes nothing
    /// about how long the holder may still act.
    duration: Duration,
}

#[derive(Debug)]
pub(crate) struct Observer {
    view: View,
    key: Key,
    /// resourceVersion of the state in `view`, where it is a number.
    version: Option<u128>,
    /// Grows with every accepted state; tells whether anything was learnt while a request was under way.
    pub(crate) generation: u64,
    unchanged: Duration,
    last_contact: Option<Instant>,
    /// Whether every try to read since `last_contact` succeeded.
    continuous: bool,
    longest_gap: Duration,
    pub(crate) highest_epoch: u64,
    longest: Duration,
    last_held: Option<LastHeld>,
    /// Whether an unbroken watch delivered the deletion of the last held Lease.
    witnessed: bool,
}

/// Where an observation comes from, which decides whether it can be older than what is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The answer to a request that was sent at this generation.
    Answer {
        generation: u64,
    },
    Watch,
}

impl Observer {
    /// `longest`: the largest duration that is known from elsewhere. `longest_gap`: two contacts further apart than this
    /// say nothing about the time between them (the process slept).
    pub(crate) fn new(longest: Duration, longest_gap: Duration) -> Observer {
        Observer {
            view: View::Unknown,
            key: Key::Unknown,
            version: None,
            generation: 0,
            unchanged: Duration::ZERO,
            last_contact: None,
            continuous: false,
            longest_gap,
            highest_epoch: 0,
            longest,
            last_held: None,
            witnessed: false,
        }
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// The Lease object, if there is one.
    pub(crate) fn object(&self) -> Option<&LeaseObject> {
        match &self.view {
            View::Present(object) => Some(object),
            View::Unknown | View::Absent => None,
        }
    }

    /// The record, if it names a holder.
    pub(crate) fn held(&self) -> Option<&LeaseRecord> {
        self.object().map(|object| &object.record).filter(|record| record.is_held())
    }

    /// No Lease, or one that names nobody.
    pub(crate) fn vacant(&self) -> bool {
        matches!(self.key, Key::Absent | Key::Unheld { .. })
    }

    /// How long the situation was seen unchanged, up to the last contact.
    pub(crate) fn unchanged(&self) -> Duration {
        self.unchanged
    }

    pub(crate) fn last_contact(&self) -> Option<Instant> {
        self.last_contact.filter(|_| self.continuous)
    }

    /// The longest duration known: own, seen in this Lease, configured.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// The duration that applies to the record at hand.
    pub(crate) fn duration(&self) -> Duration {
        self.last_held.as_ref().map_or(self.longest, |held| held.duration)
    }

    pub(crate) fn witnessed(&self) -> bool {
        self.witnessed
    }

    /// Whether `incarnation` was in the in-sync set of the Lease whose deletion was witnessed.
    pub(crate) fn was_member(&self, incarnation: &str) -> bool {
        self.witnessed && self.last_held.as_ref().is_some_and(|held| held.in_sync.contains(incarnation))
    }

    /// Counts anew from the next contact.
    pub(crate) fn restart(&mut self) {
        self.unchanged = Duration::ZERO;
        self.continuous = false;
    }

    /// A try to read failed: the time since the last contact does not count.
    pub(crate) fn unreadable(&mut self) {
        self.continuous = false;
    }

    /// The watch lost its place: a claim and a deletion may have gone by unseen.
    pub(crate) fn watch_broken(&mut self) {
        self.witnessed = false;
        if self.vacant() {
            self.restart();
        }
    }

    /// A longer duration became known.
    pub(crate) fn at_least(&mut self, duration: Duration) {
        self.longest = self.longest.max(duration);
    }

    /// Takes in a Lease object. `Err(())`: it could not be ordered against what is known, read again.
    pub(crate) fn object_seen(
        &mut self,
        at: Instant,
        object: LeaseObject,
        source: Source,
    ) -> Result<bool, ()> {
        let version = object.resource_version.parse().ok();
        if !self.is_news(version, source)? {
            // Older than what is known, but it may tell of a holder that was never seen while nobody seemed to hold it.
            let epoch = object.record.epoch;
            if self.vacant() && object.record.is_held() && epoch > self.highest_epoch {
                self.highest_epoch = epoch;
                self.witnessed = false;
                self.restart();
            }
            return Ok(false);
        }
        let key = Key::of(&object);
        if object.record.is_held() {
            self.held_seen(&object);
        } else {
            // A Lease that names nobody after one that was deleted unseen.
            let deleted_unseen = self.last_held.as_ref().is_some_and(|held| held.uid != object.uid);
            self.witnessed &= deleted_unseen;
        }
        self.highest_epoch = self.highest_epoch.max(object.record.epoch);
        self.longest = self.longest.max(object.record.duration.unwrap_or_default());
        self.settle(at, View::Present(Box::new(object)), key, version);
        Ok(true)
    }

    fn held_seen(&mut self, object: &LeaseObject) {
        let record = &object.record;
        let written = record.duration.unwrap_or_else(|| self.longest.max(UNREADABLE_DURATION));
        let same = self.last_held.as_ref().filter(|held| {
            held.uid == object.uid
                && held.holder == record.holder
                && held.incarnation == record.incarnation
                && held.epoch == record.epoch
        });
        let duration = same.map_or(written, |held| held.duration.max(written));
        self.witnessed = false;
        self.last_held = Some(LastHeld {
            uid: object.uid.clone(),
            holder: record.holder.clone(),
            incarnation: record.incarnation.clone(),
            epoch: record.epoch,
            in_sync: record.in_sync.clone(),
            duration,
        });
    }

    /// A read found no Lease.
    pub(crate) fn absence_read(&mut self, at: Instant, version: &str, source: Source) -> Result<bool, ()> {
        let version = version.parse().ok();
        if !self.is_news(version, source)? {
            return Ok(false);
        }
        self.settle(at, View::Absent, Key::Absent, version);
        Ok(true)
    }

    /// The watch delivered a deletion.
    pub(crate) fn deletion_seen(&mut self, at: Instant, uid: &str, version: &str) -> Result<bool, ()> {
        let last = self.last_held.as_ref().is_some_and(|held| held.uid == uid);
        let version = version.parse().ok();
        // A read may have told of the absence before the watch did.
        if last && self.vacant() {
            self.witnessed = true;
        }
        if !self.is_news(version, Source::Watch)? {
            return Ok(false);
        }
        if self.object().is_some_and(|object| object.uid != uid) {
            return Ok(false);
        }
        self.witnessed = last;
        self.settle(at, View::Absent, Key::Absent, version);
        Ok(true)
    }

    /// Whether a state is newer than the one known. An answer to a request that was sent after everything known had
    /// been learnt is news whatever its version (a restored store counts from an older one); everything else must be
    /// comparable.
    fn is_news(&self, version: Option<u128>, source: Source) -> Result<bool, ()> {
        if source == (Source::Answer { generation: self.generation }) {
            return Ok(true);
        }
        match (version, self.version) {
            (Some(new), Some(known)) => Ok(new >= known),
            _ => Err(()),
        }
    }

    fn settle(&mut self, at: Instant, view: View, key: Key, version: Option<u128>) {
        if key == self.key {
            if let Some(last) = self.last_contact() {
                let gap = at.saturating_since(last);
                if gap <= self.longest_gap {
                    self.unchanged += gap;
                }
            }
        } else {
            self.unchanged = Duration::ZERO;
        }
        self.last_contact = Some(at);
        self.continuous = true;
        self.view = view;
        self.key = key;
        self.version = version;
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::new_lease;

    fn seen(version: u64, renew: &str, epoch: u64) -> LeaseObject {
        let record = LeaseRecord {
            holder: "a:1".into(),
            incarnation: "a".into(),
            epoch,
            renew_time: renew.into(),
            duration: Some(Duration::from_secs(5)),
            ..LeaseRecord::default()
        };
        let mut body = new_lease("n", "l", &record);
        body["metadata"]["uid"] = "u1".into();
        body["metadata"]["resourceVersion"] = version.to_string().into();
        LeaseObject::parse(body).unwrap()
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn observer() -> Observer {
        Observer::new(Duration::from_secs(5), Duration::from_secs(3))
    }

    fn answer(o: &Observer) -> Source {
        Source::Answer { generation: o.generation }
    }

    #[test]
    fn only_readable_time_counts_and_foreign_writes_do_not_disturb() {
        let mut o = observer();
        let source = answer(&o);
        assert_eq!(o.object_seen(at(0), seen(1, "r1", 1), source), Ok(true));
        assert_eq!(o.object_seen(at(1000), seen(2, "r1", 1), Source::Watch), Ok(true));
        assert_eq!(o.unchanged(), Duration::from_secs(1));
        o.unreadable();
        let source = answer(&o);
        o.object_seen(at(9000), seen(2, "r1", 1), source).unwrap();
        assert_eq!(o.unchanged(), Duration::from_secs(1), "the time without an answer does not count");
        let source = answer(&o);
        o.object_seen(at(10_000), seen(2, "r1", 1), source).unwrap();
        assert_eq!(o.unchanged(), Duration::from_secs(2));
        let source = answer(&o);
        o.object_seen(at(20_000), seen(2, "r1", 1), source).unwrap();
        assert_eq!(o.unchanged(), Duration::from_secs(2), "a process that slept saw nothing");
        o.object_seen(at(20_001), seen(3, "r2", 1), Source::Watch).unwrap();
        assert_eq!(o.unchanged(), Duration::ZERO);
    }

    #[test]
    fn late_events_are_not_taken_for_news() {
        let mut o = observer();
        let source = answer(&o);
        o.object_seen(at(0), seen(10, "r2", 2), source).unwrap();
        assert_eq!(o.object_seen(at(1), seen(9, "r1", 1), Source::Watch), Ok(false));
        let stale = Source::Answer { generation: 0 };
        assert_eq!(o.object_seen(at(1), seen(8, "r1", 1), stale), Ok(false));
        let source = answer(&o);
        assert_eq!(o.object_seen(at(1), seen(3, "r9", 2), source), Ok(true), "a restored store counts anew");
        let mut odd = seen(11, "r3", 2);
        odd.resource_version = "x".into();
        assert_eq!(o.object_seen(at(1), odd, Source::Watch), Err(()));
    }

    #[test]
    fn a_shortened_duration_does_not_shorten_the_wait() {
        let mut o = observer();
        let source = answer(&o);
        o.object_seen(at(0), seen(1, "r1", 1), source).unwrap();
        let mut short = seen(2, "r1", 1);
        short.record.duration = Some(Duration::from_secs(1));
        o.object_seen(at(1), short, Source::Watch).unwrap();
        assert_eq!(o.duration(), Duration::from_secs(5));
    }

    #[test]
    fn a_deletion_counts_as_witnessed_only_when_the_watch_delivered_it() {
        let mut o = observer();
        let source = answer(&o);
        o.object_seen(at(0), seen(1, "r1", 1), source).unwrap();
        let source = answer(&o);
        o.absence_read(at(1), "2", source).unwrap();
        assert!(o.vacant() && !o.witnessed());
        o.deletion_seen(at(2), "u1", "2").unwrap();
        assert!(o.witnessed());
        o.watch_broken();
        assert!(!o.witnessed());
    }
}
