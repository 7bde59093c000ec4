//! Writes that another write of the same client to the same key has taken the place of.

use crate::{
    clock::Instant,
    types::{ClientId, ReplicaType},
};
use hashbrown::HashMap;

/// Below this the list is never searched for what nobody will come for any more.
const SMALL: usize = 64;

/// The wire's End names a client and a key, not a write. So when a client's unfinished write is discarded or replaced
/// and the same client writes that key again, an End may be the late one of the first write, and the data of the second
/// not be there yet. Such an End is not believed: the object becomes readable only with as many Ends as there were
/// writes, the last of which proves that this one's has come.
///
/// A client that never got the answer to its first Start writes and ends once, and its End is not believed either:
/// nothing on the wire tells it from a client of which two threads write the key, and of the two mistakes only one lets
/// readers have memory that nobody has written (`docs/differences.md`).
///
/// Memory and file of an object are ended each by itself, so they are counted each by itself. Bounded by twice the
/// writes of one release timeout that were abandoned.
#[derive(Debug, Default)]
pub(crate) struct Superseded {
    owed: HashMap<(u64, ClientId, Medium), Owed>,
    /// When all of them are over.
    last_due: Instant,
    /// With so many the next one searches for those that are over.
    search_at: usize,
}

/// Which replicas an End or a Revoke means.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Medium {
    Memory,
    Disk,
}

impl Medium {
    /// `All` means all but the one on disk, whose writer ends it by itself. There are no others in this version.
    pub(crate) fn meant_by(kind: ReplicaType) -> Option<Medium> {
        match kind {
            ReplicaType::Memory | ReplicaType::All => Some(Medium::Memory),
            ReplicaType::Disk => Some(Medium::Disk),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Owed {
    /// Ends that may still come and are not the present write's.
    ends: u32,
    /// An End was refused since the present write began: should that be abandoned, too, one of the Ends that could
    /// still come has been here already.
    refused: bool,
    /// Nobody comes that late.
    due: Instant,
}

impl Superseded {
    fn get(&mut self, of: &(u64, ClientId, Medium), now: Instant) -> Option<&mut Owed> {
        if self.owed.capacity() == 0 {
            return None;
        }
        if self.last_due <= now {
            // What an incident has left is given back.
            *self = Superseded::default();
            return None;
        }
        if self.owed.get(of)?.due <= now {
            self.owed.remove(of);
        }
        self.owed.get_mut(of)
    }

    /// The client's unfinished write to the key with that hash is at its end; its End may come until `due`.
    fn note(&mut self, hash: u64, writer: ClientId, medium: Medium, due: Instant, now: Instant) {
        let of = (hash, writer, medium);
        if let Some(owed) = self.get(&of, now) {
            owed.ends += 1;
            if owed.refused {
                // A writer that died owes one End for ever. It is taken to be that one, and must not outlive its time.
                owed.refused = false;
            } else {
                owed.due = owed.due.max(due);
            }
            self.last_due = self.last_due.max(due);
            return;
        }
        if due <= now {
            return;
        }
        if self.owed.len() >= self.search_at.max(SMALL) {
            self.owed.retain(|_, owed| owed.due > now);
            self.search_at = 2 * self.owed.len();
        }
        self.last_due = self.last_due.max(due);
        self.owed.insert(of, Owed { ends: 1, refused: false, due });
    }

    /// The same for each of these media.
    pub(crate) fn note_all(
        &mut self,
        hash: u64,
        writer: ClientId,
        media: impl Iterator<Item = Medium>,
        due: Instant,
        now: Instant,
    ) {
        media.for_each(|medium| self.note(hash, writer, medium, due, now));
    }

    /// Whether an End is surely that of the present write, or comes after it.
    pub(crate) fn accept_end(&mut self, hash: u64, writer: ClientId, medium: Medium, now: Instant) -> bool {
        let of = (hash, writer, medium);
        let Some(owed) = self.get(&of, now) else { return true };
        if owed.ends == 0 {
            self.owed.remove(&of);
            return true;
        }
        owed.ends -= 1;
        owed.refused = true;
        false
    }

    /// An End or a Revoke came that found nothing of its client's to end: one less is still to come.
    pub(crate) fn heard(&mut self, hash: u64, writer: ClientId, medium: Medium) {
        let of = (hash, writer, medium);
        if let Some(owed) = self.owed.get_mut(&of) {
            owed.ends = owed.ends.saturating_sub(1);
            if owed.ends == 0 && !owed.refused {
                self.owed.remove(&of);
            }
        }
    }

    /// Whether a Revoke of that client may be an earlier write's: the present writer may still be writing then.
    pub(crate) fn owes(&mut self, hash: u64, writer: ClientId, medium: Medium, now: Instant) -> bool {
        self.get(&(hash, writer, medium), now).is_some_and(|owed| owed.ends > 0)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.owed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Medium::*, *};

    const A: ClientId = ClientId { first: 1, second: 1 };
    const B: ClientId = ClientId { first: 1, second: 2 };

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_write_counts_when_as_many_ends_as_writes_have_come() {
        let mut superseded = Superseded::default();
        assert!(superseded.accept_end(7, A, Memory, at(0)));
        superseded.note(7, A, Memory, at(600), at(30));
        superseded.note(7, A, Memory, at(630), at(60));
        assert!(superseded.accept_end(7, B, Memory, at(61)) && superseded.accept_end(8, A, Memory, at(61)));
        assert!(superseded.owes(7, A, Memory, at(61)) && !superseded.owes(7, B, Memory, at(61)));
        assert!(!superseded.accept_end(7, A, Memory, at(62)));
        assert!(!superseded.accept_end(7, A, Memory, at(63)));
        assert!(!superseded.owes(7, A, Memory, at(63)));
        assert!(superseded.accept_end(7, A, Memory, at(64)));
        assert_eq!(superseded.len(), 0);
    }

    #[test]
    fn an_end_that_found_nothing_is_not_waited_for() {
        let mut superseded = Superseded::default();
        superseded.note(7, A, Memory, at(600), at(30));
        superseded.heard(7, A, Memory);
        assert!(superseded.accept_end(7, A, Memory, at(31)) && superseded.len() == 0);
    }

    #[test]
    fn a_writer_that_died_costs_its_client_the_key_for_one_release_timeout_at_most() {
        let mut superseded = Superseded::default();
        superseded.note(7, A, Memory, at(600), at(30));
        for now in (40..600).step_by(40) {
            assert!(!superseded.accept_end(7, A, Memory, at(now)));
            superseded.note(7, A, Memory, at(now + 600), at(now + 31));
        }
        assert!(superseded.accept_end(7, A, Memory, at(600)));
    }

    #[test]
    fn memory_and_file_are_counted_each_by_itself() {
        let mut superseded = Superseded::default();
        superseded.note(7, A, Memory, at(600), at(30));
        superseded.note(7, A, Disk, at(600), at(30));
        assert!(!superseded.accept_end(7, A, Memory, at(31)) && superseded.accept_end(7, A, Memory, at(32)));
        assert!(superseded.owes(7, A, Disk, at(33)));
        assert!(!superseded.accept_end(7, A, Disk, at(34)) && superseded.accept_end(7, A, Disk, at(35)));
        assert_eq!(superseded.len(), 0);
    }

    #[test]
    fn what_is_over_is_given_back_in_time() {
        let mut superseded = Superseded::default();
        for second in 0..10_000 {
            superseded.note(second, A, Disk, at(second + 600), at(second));
            assert!(superseded.len() <= 2 * 600 + SMALL, "{second}: {}", superseded.len());
        }
        assert!(!superseded.accept_end(9999, A, Disk, at(10_000)));
        assert!(superseded.accept_end(9000, A, Disk, at(10_000)), "nobody comes that late");
    }
}
