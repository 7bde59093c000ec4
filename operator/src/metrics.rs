//! What the operator counts.

use mooncake_crds::{ConditionType, MooncakeMasterStatus};
use prometheus::{
    Encoder, GaugeVec, Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};

/// The metrics of one process.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Passes, by result.
    pub passes: IntCounterVec,
    /// Time of a pass, seconds.
    pub pass_seconds: Histogram,
    /// Writes to the API server, by kind.
    pub writes: IntCounterVec,
    /// 1 while this process leads.
    pub leading: IntGauge,
    conditions: GaugeVec,
    epochs: GaugeVec,
}

impl Metrics {
    /// Registers all.
    pub fn new() -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        let passes = IntCounterVec::new(
            Opts::new(
                "mooncake_operator_passes_total",
                "Passes over a resource, by result (ok, stale, error)",
            ),
            &["result"],
        )?;
        let pass_seconds = Histogram::with_opts(
            HistogramOpts::new("mooncake_operator_pass_seconds", "Time of a pass over a resource, seconds")
                .buckets(vec![0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]),
        )?;
        let writes = IntCounterVec::new(
            Opts::new("mooncake_operator_writes_total", "Writes to the API server, by kind of write"),
            &["write"],
        )?;
        let leading = IntGauge::new("mooncake_operator_leading", "1 while this process leads, else 0")?;
        let conditions = GaugeVec::new(
            Opts::new(
                "mooncake_operator_master_condition",
                "Status of a condition of a MooncakeMaster: 1 true, 0 false, -1 unknown",
            ),
            &["namespace", "name", "condition"],
        )?;
        let epochs = GaugeVec::new(
            Opts::new("mooncake_operator_master_epoch", "Highest epoch seen of a MooncakeMaster"),
            &["namespace", "name"],
        )?;
        registry.register(Box::new(passes.clone()))?;
        registry.register(Box::new(pass_seconds.clone()))?;
        registry.register(Box::new(writes.clone()))?;
        registry.register(Box::new(leading.clone()))?;
        registry.register(Box::new(conditions.clone()))?;
        registry.register(Box::new(epochs.clone()))?;
        Ok(Metrics { registry, passes, pass_seconds, writes, leading, conditions, epochs })
    }

    /// Puts the series of a resource to its status.
    pub fn report(&self, namespace: &str, name: &str, status: &MooncakeMasterStatus) {
        for condition in &status.conditions {
            let value = match condition.status.as_str() {
                "True" => 1.0,
                "False" => 0.0,
                _ => -1.0,
            };
            self.conditions.with_label_values(&[namespace, name, &condition.type_]).set(value);
        }
        self.epochs.with_label_values(&[namespace, name]).set(status.epoch.unwrap_or_default() as f64);
    }

    /// Removes the series of a resource that is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        for condition in ConditionType::ALL {
            // A series that is not there is as good as removed.
            _ = self.conditions.remove_label_values(&[namespace, name, condition.as_str()]);
        }
        _ = self.epochs.remove_label_values(&[namespace, name]);
    }

    /// The text that Prometheus reads.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_name_and_a_help() {
        let metrics = Metrics::new().unwrap();
        metrics.passes.with_label_values(&["ok"]).inc();
        metrics.report("ns", "m", &MooncakeMasterStatus { epoch: Some(7), ..Default::default() });
        let text = metrics.render().unwrap();
        assert!(text.contains("mooncake_operator_master_epoch{name=\"m\",namespace=\"ns\"} 7"), "{text}");
        metrics.forget("ns", "m");
        assert!(!metrics.render().unwrap().contains("mooncake_operator_master_epoch{"));
    }
}
