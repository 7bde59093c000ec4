//! Latencies: every one is kept, so percentiles are exact.

use std::time::Duration;

/// Latencies of one kind, in tenths of microseconds (up to 7 minutes).
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<u32>);

impl Latencies {
    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.push(u32::try_from(latency.as_nanos() / 100).unwrap_or(u32::MAX));
    }

    pub(crate) fn merge(&mut self, other: Latencies) {
        self.0.extend(other.0);
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The quantiles that are reported.
    pub(crate) fn summary(mut self) -> Summary {
        self.0.sort_unstable();
        let at = |quantile: f64| {
            let rank = (quantile * self.0.len() as f64).ceil() as usize;
            self.0.get(rank.max(1) - 1).map_or(0.0, |tenths| f64::from(*tenths) / 10.0)
        };
        Summary { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

/// In microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let mut latencies = Latencies::default();
        (1..=1000).rev().for_each(|us| latencies.record(Duration::from_micros(us)));
        let mut more = Latencies::default();
        more.record(Duration::from_secs(1000));
        let summary = latencies.clone().summary();
        assert_eq!((summary.p50, summary.p99, summary.p999, summary.max), (500.0, 990.0, 999.0, 1000.0));
        latencies.merge(more);
        assert_eq!(latencies.len(), 1001);
        assert!(latencies.summary().max > 400e6);
        assert_eq!(Latencies::default().summary(), Summary::default());
    }
}
