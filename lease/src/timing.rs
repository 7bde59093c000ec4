//! The three times of an election and the rule between them.

use std::time::Duration;

/// How long a lease lasts, how long its holder may act on it, how often it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// Why a set of times was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TimingError {
    #[error("retry period {0:?}: expected 50ms to 60s")]
    RetryPeriod(Duration),
    #[error("renew deadline {renew_deadline:?}: expected at least twice the retry period ({retry_period:?})")]
    RenewDeadline { renew_deadline: Duration, retry_period: Duration },
    #[error("lease duration {lease_duration:?}: expected more than the renew deadline ({renew_deadline:?})")]
    LeaseDuration { lease_duration: Duration, renew_deadline: Duration },
    #[error("lease duration {0:?}: expected at most 1h")]
    LeaseDurationTooLong(Duration),
}

/// The longest lease duration that is taken seriously, in this process's configuration or in a record.
pub(crate) const LONGEST: Duration = Duration::from_secs(3600);

impl Timings {
    /// Checks the rule duration > renew deadline >= 2 x retry period.
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Timings, TimingError> {
        if retry_period < Duration::from_millis(50) || retry_period > Duration::from_secs(60) {
            return Err(TimingError::RetryPeriod(retry_period));
        }
        if renew_deadline < 2 * retry_period {
            return Err(TimingError::RenewDeadline { renew_deadline, retry_period });
        }
        if lease_duration <= renew_deadline {
            return Err(TimingError::LeaseDuration { lease_duration, renew_deadline });
        }
        if lease_duration > LONGEST {
            return Err(TimingError::LeaseDurationTooLong(lease_duration));
        }
        Ok(Timings { lease_duration, renew_deadline, retry_period })
    }

    /// How long others wait before they take the lease: as it is written, so rounded up to whole seconds. That it is
    /// never below the configured one keeps the renew deadline below every duration this process ever wrote.
    pub fn lease_duration(&self) -> Duration {
        Duration::from_secs(self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0))
    }

    /// How long a holder may act after it sent the last write that was found in the record.
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// Time between two tries, and the deadline of each request.
    pub fn retry_period(&self) -> Duration {
        self.retry_period
    }
}

impl Default for Timings {
    /// 5 s, 3 s, 1 s.
    fn default() -> Self {
        Timings {
            lease_duration: Duration::from_secs(5),
            renew_deadline: Duration::from_secs(3),
            retry_period: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_rule_is_enforced_and_the_field_is_named() {
        assert_eq!(Timings::new(ms(5000), ms(3000), ms(1000)), Ok(Timings::default()));
        assert_eq!(Timings::new(ms(5000), ms(3000), ms(0)), Err(TimingError::RetryPeriod(ms(0))));
        assert!(matches!(Timings::new(ms(5000), ms(1999), ms(1000)), Err(TimingError::RenewDeadline { .. })));
        assert!(matches!(Timings::new(ms(3000), ms(3000), ms(1000)), Err(TimingError::LeaseDuration { .. })));
        assert!(matches!(
            Timings::new(ms(3_600_001), ms(3000), ms(1000)),
            Err(TimingError::LeaseDurationTooLong(_))
        ));
    }

    #[test]
    fn the_written_duration_is_rounded_up() {
        let t = Timings::new(ms(4001), ms(3000), ms(1000)).unwrap();
        assert_eq!(t.lease_duration(), ms(5000));
    }
}
