//! The oracle on epochs: no success of an older epoch to a request sent after a success of a newer one was received.

use crate::clock::Moment;

/// One request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Who answered.
    pub pod: String,
    /// Read before the request was sent.
    pub sent: Moment,
    /// Read after the answer was received.
    pub received: Moment,
    /// The epoch that the answer carried.
    pub epoch: u64,
}

/// Two answers that no order of events allows.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    /// The one of the newer epoch, received first.
    pub newer: Answer,
    /// The one of the older epoch, sent after that.
    pub older: Answer,
}

/// Checks all answers of a scenario against each other.
///
/// # Errors
/// The first pair that breaks the rule.
pub fn check(answers: &[Answer]) -> Result<(), Box<Violation>> {
    let mut by_received: Vec<&Answer> = answers.iter().collect();
    by_received.sort_by_key(|answer| answer.received);
    let mut by_sent: Vec<&Answer> = answers.iter().collect();
    by_sent.sort_by_key(|answer| answer.sent);

    let mut received = by_received.into_iter().peekable();
    let mut newest: Option<&Answer> = None;
    for answer in by_sent {
        while let Some(earlier) = received.next_if(|earlier| earlier.received < answer.sent) {
            if newest.is_none_or(|newest| newest.epoch < earlier.epoch) {
                newest = Some(earlier);
            }
        }
        if let Some(newest) = newest
            && answer.epoch < newest.epoch
        {
            return Err(Box::new(Violation { newer: newest.clone(), older: answer.clone() }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(pod: &str, sent: u64, received: u64, epoch: u64) -> Answer {
        Answer {
            pod: pod.to_owned(),
            sent: Moment::from_nanos(sent),
            received: Moment::from_nanos(received),
            epoch,
        }
    }

    #[test]
    fn a_hand_over_is_allowed() {
        assert_eq!(check(&[answer("a", 1, 2, 1), answer("b", 3, 4, 2), answer("b", 5, 6, 2)]), Ok(()));
    }

    #[test]
    fn requests_that_overlap_prove_nothing() {
        // The older answer was asked for before the newer one was known to anybody.
        assert_eq!(check(&[answer("b", 1, 5, 2), answer("a", 4, 9, 1)]), Ok(()));
        assert_eq!(check(&[answer("b", 1, 5, 2), answer("a", 5, 9, 1)]), Ok(()));
    }

    #[test]
    fn an_old_epoch_after_a_new_one_is_found() {
        let newer = answer("b", 1, 5, 2);
        let older = answer("a", 6, 9, 1);
        let noise = answer("b", 7, 8, 2);
        let found = check(&[older.clone(), noise, newer.clone()]);
        assert_eq!(found, Err(Box::new(Violation { newer, older })));
    }

    #[test]
    fn nothing_at_all_is_no_violation() {
        assert_eq!(check(&[]), Ok(()));
    }
}
