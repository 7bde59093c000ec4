//! Who may claim, and after how long: the claim policy as a pure function.

use crate::record::{LeaseRecord, Release};
use std::time::Duration;

/// What stands in the place of the lease.
#[derive(Debug, Clone, Copy)]
pub enum Situation<'a> {
    /// A record that names a holder.
    Held(&'a LeaseRecord),
    /// No Lease, or a new one that names nobody.
    Vacant {
        /// Whether the candidate saw its whole history until the deletion and was its holder or in its in-sync set.
        as_member: bool,
    },
}

/// The times that a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// The duration in the record at hand.
    pub record: Duration,
    /// The longest of the candidate's own, of every one seen in this Lease and of the configured floor.
    pub longest: Duration,
    /// `empty_promotion_after`; `None`: three times the duration that applies.
    pub empty_promotion_after: Option<Duration>,
}

impl Waits {
    fn empty(&self, duration: Duration) -> Duration {
        self.empty_promotion_after.unwrap_or(3 * duration).max(duration)
    }
}

/// How long the candidate must have seen the situation unchanged, on its own clock, before it may claim.
pub fn required_wait(candidate: &str, situation: Situation<'_>, waits: &Waits) -> Duration {
    let record = match situation {
        Situation::Vacant { as_member: true } => return waits.longest,
        Situation::Vacant { as_member: false } => return waits.empty(waits.longest),
        Situation::Held(record) => record,
    };
    // A non-member starts empty, so while somebody else still has everything it leaves them a long head start.
    let entitled = record.in_sync.is_empty()
        || record.in_sync.contains(candidate)
        || record.in_sync.is_subset(&record.dead);
    if !entitled {
        return waits.empty(waits.record);
    }
    match &record.release {
        Some(Release::Anyone) => Duration::ZERO,
        Some(Release::For(successor)) if successor == candidate => Duration::ZERO,
        Some(Release::For(_)) | None => waits.record,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn the_policy_as_a_table() {
        let waits = Waits { record: S(5), longest: S(8), empty_promotion_after: None };
        let record = |in_sync: &[&str], dead: &[&str], release: Option<Release>| LeaseRecord {
            holder: "a:1".into(),
            incarnation: "h".into(),
            in_sync: in_sync.iter().map(|&id| id.to_owned()).collect(),
            dead: dead.iter().map(|&id| id.to_owned()).collect(),
            release,
            ..LeaseRecord::default()
        };
        let anyone = || Some(Release::Anyone);
        let to = |id: &str| Some(Release::For(id.to_owned()));
        let table: [(&str, LeaseRecord, u64); 14] = [
            ("empty set, ordinary time", record(&[], &[], None), 5),
            ("empty set, released", record(&[], &[], anyone()), 0),
            ("empty set, released for me", record(&[], &[], to("me")), 0),
            ("empty set, released for another", record(&[], &[], to("x")), 5),
            ("member, ordinary time", record(&["me", "x"], &[], None), 5),
            ("member, released", record(&["me", "x"], &[], anyone()), 0),
            ("member, released for another", record(&["me", "x"], &[], to("x")), 5),
            ("non-member", record(&["x"], &[], None), 15),
            ("non-member, released", record(&["x"], &[], anyone()), 15),
            ("non-member, released for me", record(&["x"], &[], to("me")), 15),
            ("non-member, one of two members dead", record(&["x", "y"], &["x"], None), 15),
            ("non-member, all members dead", record(&["x", "y"], &["x", "y"], None), 5),
            ("non-member, all members dead, released", record(&["x"], &["x"], anyone()), 0),
            ("non-member, dead names only strangers", record(&["x"], &["z"], anyone()), 15),
        ];
        for (what, record, seconds) in table {
            assert_eq!(required_wait("me", Situation::Held(&record), &waits), S(seconds), "{what}");
        }
        assert_eq!(required_wait("me", Situation::Vacant { as_member: true }, &waits), S(8));
        assert_eq!(required_wait("me", Situation::Vacant { as_member: false }, &waits), S(24));
        // A configured time below the duration never lets an empty process in before a member.
        let short = Waits { empty_promotion_after: Some(S(1)), ..waits };
        assert_eq!(required_wait("me", Situation::Vacant { as_member: false }, &short), S(8));
        let long = Waits { empty_promotion_after: Some(S(60)), ..waits };
        assert_eq!(required_wait("me", Situation::Held(&record(&["x"], &[], None)), &long), S(60));
    }
}
