//! Writes that another write of the same client to the same key has taken the place of.

use crate::{clock::Instant, types::ClientId};

/// The wire's End names a client and a key, not a write. So when a client's unfinished write is discarded or replaced
/// and the same client writes that key again, an End may be the late one of the first write, and the data of the second
/// not be there yet. Such an End is not believed: the object becomes readable only with as many Ends as there were
/// writes, the last of which proves that this one's has come.
///
/// Rare, so a plain list; bounded by the writes of one release timeout that were abandoned.
#[derive(Debug, Default)]
pub(crate) struct Superseded(Vec<Owed>);

#[derive(Debug)]
struct Owed {
    hash: u64,
    writer: ClientId,
    /// Ends that may still come and are not the present write's.
    ends: u32,
    /// An End was refused since the present write began: should that be abandoned, too, one of the Ends that could
    /// still come has been here already.
    refused: bool,
    /// Nobody comes that late.
    due: Instant,
}

impl Superseded {
    fn forget(&mut self, now: Instant) {
        self.0.retain(|owed| owed.due > now);
    }

    /// The client's unfinished write to the key with that hash is at its end; its End may come until `due`.
    pub(crate) fn note(&mut self, hash: u64, writer: ClientId, due: Instant, now: Instant) {
        self.forget(now);
        match self.0.iter_mut().find(|owed| owed.hash == hash && owed.writer == writer) {
            // A writer that died owes one End for ever. It is taken to be that one, and must not outlive its time.
            Some(owed) if owed.refused => {
                owed.ends += 1;
                owed.refused = false;
            }
            Some(owed) => {
                owed.ends += 1;
                owed.due = owed.due.max(due);
            }
            None if due > now => self.0.push(Owed { hash, writer, ends: 1, refused: false, due }),
            None => {}
        }
    }

    /// Whether an End is surely that of the present write, or comes after it.
    pub(crate) fn accept_end(&mut self, hash: u64, writer: ClientId, now: Instant) -> bool {
        if self.0.is_empty() {
            return true;
        }
        self.forget(now);
        let Some(at) = self.0.iter().position(|owed| owed.hash == hash && owed.writer == writer) else {
            return true;
        };
        let owed = &mut self.0[at];
        if owed.ends == 0 {
            self.0.swap_remove(at);
            return true;
        }
        owed.ends -= 1;
        owed.refused = true;
        false
    }

    /// An End or a Revoke came that found nothing of its client's to end: one less is still to come.
    pub(crate) fn heard(&mut self, hash: u64, writer: ClientId) {
        if let Some(at) = self.0.iter().position(|owed| owed.hash == hash && owed.writer == writer) {
            self.0[at].ends = self.0[at].ends.saturating_sub(1);
            if self.0[at].ends == 0 && !self.0[at].refused {
                self.0.swap_remove(at);
            }
        }
    }

    /// Whether a Revoke of that client may be an earlier write's: the present writer may still be writing then.
    pub(crate) fn owes(&mut self, hash: u64, writer: ClientId, now: Instant) -> bool {
        self.forget(now);
        self.0.iter().any(|owed| owed.hash == hash && owed.writer == writer && owed.ends > 0)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId { first: 1, second: 1 };
    const B: ClientId = ClientId { first: 1, second: 2 };

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_write_counts_when_as_many_ends_as_writes_have_come() {
        let mut superseded = Superseded::default();
        assert!(superseded.accept_end(7, A, at(0)));
        superseded.note(7, A, at(600), at(30));
        superseded.note(7, A, at(630), at(60));
        assert!(superseded.accept_end(7, B, at(61)) && superseded.accept_end(8, A, at(61)));
        assert!(superseded.owes(7, A, at(61)) && !superseded.owes(7, B, at(61)));
        assert!(!superseded.accept_end(7, A, at(62)));
        assert!(!superseded.accept_end(7, A, at(63)));
        assert!(!superseded.owes(7, A, at(63)));
        assert!(superseded.accept_end(7, A, at(64)));
        assert_eq!(superseded.len(), 0);
    }

    #[test]
    fn an_end_that_found_nothing_is_not_waited_for() {
        let mut superseded = Superseded::default();
        superseded.note(7, A, at(600), at(30));
        superseded.heard(7, A);
        assert!(superseded.accept_end(7, A, at(31)) && superseded.len() == 0);
    }

    #[test]
    fn a_writer_that_died_costs_its_client_the_key_for_one_release_timeout_at_most() {
        let mut superseded = Superseded::default();
        superseded.note(7, A, at(600), at(30));
        for now in (40..600).step_by(40) {
            assert!(!superseded.accept_end(7, A, at(now)));
            superseded.note(7, A, at(now + 600), at(now + 31));
        }
        assert!(superseded.accept_end(7, A, at(600)));
    }
}
