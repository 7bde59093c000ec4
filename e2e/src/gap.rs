//! How long a kind of call had no success.

use crate::clock::Moment;
use std::time::Duration;

/// One call: when it began, when it ended, whether it counts as answered.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Before the call.
    pub began: Moment,
    /// After the call.
    pub ended: Moment,
    /// Whether the master answered it.
    pub answered: bool,
}

/// From `fault` to the end of the first answered call that began after it; `None` while there is none.
///
/// This is what a user waits who calls at the moment of the fault and tries again until it works.
pub fn after(fault: Moment, samples: &[Sample]) -> Option<Duration> {
    samples
        .iter()
        .filter(|sample| sample.answered && sample.began >= fault)
        .map(|sample| sample.ended.since(fault))
        .min()
}

/// The middle of an odd number of durations, the upper middle of an even one; `None` of none.
pub fn median(durations: &[Duration]) -> Option<Duration> {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(began: u64, ended: u64, answered: bool) -> Sample {
        Sample { began: Moment::from_nanos(began), ended: Moment::from_nanos(ended), answered }
    }

    #[test]
    fn the_gap_ends_with_the_first_answer_to_a_call_after_the_fault() {
        let fault = Moment::from_nanos(100);
        // An answer that was under way when the fault came is not the end of the gap.
        let samples =
            [sample(90, 110, true), sample(120, 150, false), sample(200, 260, true), sample(210, 250, true)];
        assert_eq!(after(fault, &samples), Some(Duration::from_nanos(150)));
        assert_eq!(after(fault, &samples[..2]), None);
    }

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        let seconds = |list: &[u64]| list.iter().map(|s| Duration::from_secs(*s)).collect::<Vec<_>>();
        assert_eq!(median(&seconds(&[5, 1, 9])), Some(Duration::from_secs(5)));
        assert_eq!(median(&[]), None);
    }
}
