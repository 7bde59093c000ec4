//! Small steps from numbers to the Prometheus model.

use super::catalogue::{self, MetricKind};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

/// The families of one scrape, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Families(Vec<MetricFamily>);

impl Families {
    pub(super) fn into_vec(self) -> Vec<MetricFamily> {
        self.0
    }

    /// The family of that name; opened with the catalogue's help.
    fn family(&mut self, name: &str) -> &mut MetricFamily {
        let at = self.0.iter().rposition(|family| family.name() == name).unwrap_or_else(|| {
            // The test that scrapes everything meets each name of this module; all of them are in the catalogue.
            let Some(spec) = catalogue::find(name) else {
                unreachable!("metric {name} is not in the catalogue")
            };
            let mut family = MetricFamily::default();
            family.set_name(name.to_owned());
            family.set_help(spec.help.clone());
            family.set_field_type(match spec.kind {
                MetricKind::Gauge => MetricType::GAUGE,
                MetricKind::Counter => MetricType::COUNTER,
                MetricKind::Histogram => MetricType::HISTOGRAM,
            });
            self.0.push(family);
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    fn push(&mut self, name: &str, labels: &[(&str, &str)], set: impl FnOnce(&mut Metric)) {
        let mut metric = Metric::from_label(labels.iter().map(|(name, value)| label(name, value)).collect());
        set(&mut metric);
        self.family(name).mut_metric().push(metric);
    }

    /// A gauge or a counter, as the catalogue says.
    pub(super) fn number(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let is_counter = catalogue::find(name).is_some_and(|spec| spec.kind == MetricKind::Counter);
        self.push(name, labels, |metric| {
            if is_counter {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            } else {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        });
    }

    /// A gauge or a counter without labels.
    pub(super) fn plain(&mut self, name: &str, value: u64) {
        self.number(name, &[], value as f64);
    }

    /// A histogram: `counts` has one entry for each bound and one for what lies above.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: impl Iterator<Item = f64>,
        counts: &[u64],
        sum: f64,
    ) {
        let mut below = 0;
        let buckets = bounds.zip(counts).map(|(bound, count)| {
            below += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(below);
            bucket
        });
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(counts.iter().sum());
        histogram.set_sample_sum(sum);
        self.push(name, labels, |metric| metric.set_histogram(histogram));
    }
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}
