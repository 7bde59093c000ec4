//! What the operator counts.

use crate::decide::{MoveKind, Outcome};
use mooncake_crds::{ConditionType, LastMove, MooncakeMasterStatus};
use prometheus::{
    Encoder, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};
use std::fmt::Write as _;

/// A metric as it is exposed and documented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// Name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it means, with its unit.
    pub help: &'static str,
}

/// Labels of what is said about one `MooncakeMaster`.
const MASTER: &[&str] = &["namespace", "name"];

const fn spec(
    name: &'static str,
    kind: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricSpec {
    MetricSpec { name, kind, labels, help }
}

const PASSES: MetricSpec = spec(
    "mooncake_operator_passes_total",
    "counter",
    &["result"],
    "Passes over a resource, by result (ok, stale, error).",
);
const PASS_SECONDS: MetricSpec =
    spec("mooncake_operator_pass_seconds", "histogram", &[], "Time of a pass over a resource, seconds.");
const WRITES: MetricSpec = spec(
    "mooncake_operator_writes_total",
    "counter",
    &["write"],
    "Writes to the API server, by kind of write.",
);
const LEADING: MetricSpec =
    spec("mooncake_operator_leading", "gauge", &[], "1 while this process leads, else 0.");
const CONDITION: MetricSpec = spec(
    "mooncake_operator_master_condition",
    "gauge",
    &["namespace", "name", "condition"],
    "Status of a condition of a MooncakeMaster: 1 true, 0 false, -1 unknown.",
);
const EPOCH: MetricSpec =
    spec("mooncake_operator_master_epoch", "gauge", MASTER, "Highest epoch seen of a MooncakeMaster.");
const LABELLED: MetricSpec = spec(
    "mooncake_operator_master_labelled_pods",
    "gauge",
    MASTER,
    "Pods of a MooncakeMaster that carry the leader label; absent while they cannot be read.",
);
const STANDBYS: MetricSpec = spec(
    "mooncake_operator_master_standbys",
    "gauge",
    MASTER,
    "Pods of a MooncakeMaster that stand by and would take over.",
);
const BLOCKED: MetricSpec = spec(
    "mooncake_operator_master_failover_blocked",
    "gauge",
    MASTER,
    "1 while the condition FailoverBlocked is True: nobody serves and the role cannot move; else 0; absent while that \
     is not known.",
);
const MOVING: MetricSpec = spec(
    "mooncake_operator_master_moving",
    "gauge",
    MASTER,
    "1 while the operator moves the active role of a MooncakeMaster, else 0.",
);
const CONTESTED: MetricSpec = spec(
    "mooncake_operator_master_contested_objects",
    "gauge",
    MASTER,
    "Objects of a MooncakeMaster that somebody else changes back whenever they are corrected (Degraded: ObjectContested).",
);
const FAILED_CALLS: MetricSpec = spec(
    "mooncake_operator_health_check_failures_total",
    "counter",
    MASTER,
    "Calls of HealthCheck by the operator that the active of a MooncakeMaster did not answer ok in time.",
);
const MOVES: MetricSpec = spec(
    "mooncake_operator_moves_total",
    "counter",
    &["namespace", "name", "kind", "outcome"],
    "Moves of the active role by the operator that came to an end, by kind (Blocked, NotReady, NodeDrain, Roll) and \
     outcome (Moved, NotServing, NotReleased, Abandoned).",
);

/// Everything that the operator exposes.
pub const CATALOGUE: &[MetricSpec] = &[
    LEADING,
    BLOCKED,
    CONDITION,
    CONTESTED,
    EPOCH,
    LABELLED,
    MOVING,
    STANDBYS,
    FAILED_CALLS,
    MOVES,
    PASS_SECONDS,
    PASSES,
    WRITES,
];

/// The text of `docs/operator-metrics.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Metrics of mooncake-operator\n\n\
         Generated from the catalogue in the code; do not edit. Served at `/metrics` of port 8080. The labels `namespace` and\n\
         `name` are those of the MooncakeMaster: scrape with `honor_labels: true` (`honorLabels` in a PodMonitor), else\n\
         Prometheus renames the first to `exported_namespace`. Only the operator that leads speaks of MooncakeMasters.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for MetricSpec { name, kind, labels, help } in CATALOGUE {
        let _ = writeln!(out, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    out
}

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
    labelled: GaugeVec,
    standbys: GaugeVec,
    blocked: GaugeVec,
    moving: GaugeVec,
    contested: GaugeVec,
    moves: IntCounterVec,
    failed_calls: IntCounterVec,
}

impl Metrics {
    /// Registers all.
    pub fn new() -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        let opts = |spec: MetricSpec| Opts::new(spec.name, spec.help);
        let gauges = |spec: MetricSpec| GaugeVec::new(opts(spec), spec.labels);
        let counters = |spec: MetricSpec| IntCounterVec::new(opts(spec), spec.labels);
        let (passes, writes) = (counters(PASSES)?, counters(WRITES)?);
        let pass_seconds = Histogram::with_opts(
            HistogramOpts::from(opts(PASS_SECONDS)).buckets(vec![0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]),
        )?;
        let leading = IntGauge::with_opts(opts(LEADING))?;
        let (conditions, epochs) = (gauges(CONDITION)?, gauges(EPOCH)?);
        let (labelled, standbys, blocked) = (gauges(LABELLED)?, gauges(STANDBYS)?, gauges(BLOCKED)?);
        let (moving, contested) = (gauges(MOVING)?, gauges(CONTESTED)?);
        let (moves, failed_calls) = (counters(MOVES)?, counters(FAILED_CALLS)?);
        registry.register(Box::new(failed_calls.clone()))?;
        registry.register(Box::new(moves.clone()))?;
        registry.register(Box::new(passes.clone()))?;
        registry.register(Box::new(pass_seconds.clone()))?;
        registry.register(Box::new(writes.clone()))?;
        registry.register(Box::new(leading.clone()))?;
        for vector in [&conditions, &epochs, &labelled, &standbys, &blocked, &moving, &contested] {
            registry.register(Box::new(vector.clone()))?;
        }
        Ok(Metrics {
            registry,
            passes,
            pass_seconds,
            writes,
            leading,
            conditions,
            epochs,
            labelled,
            standbys,
            blocked,
            moving,
            contested,
            moves,
            failed_calls,
        })
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
        let key = &[namespace, name];
        self.epochs.with_label_values(key).set(status.epoch.unwrap_or_default() as f64);
        self.standbys.with_label_values(key).set(f64::from(status.standby_replicas));
        self.moving.with_label_values(key).set(f64::from(u8::from(status.move_.is_some())));
        match failover_blocked(status) {
            Some(blocked) => self.blocked.with_label_values(key).set(f64::from(u8::from(blocked))),
            // A series that is not there is as good as removed.
            None => _ = self.blocked.remove_label_values(key),
        }
    }

    /// Counts a move that came to an end.
    pub fn count_move(&self, namespace: &str, name: &str, last: &LastMove) {
        self.moves.with_label_values(&[namespace, name, &last.kind, &last.outcome]).inc();
    }

    /// Puts the number of labelled pods of a resource; `None`: they could not be read.
    pub fn report_labelled(&self, namespace: &str, name: &str, labelled: Option<usize>) {
        let key = &[namespace, name];
        match labelled {
            Some(count) => self.labelled.with_label_values(key).set(count as f64),
            None => _ = self.labelled.remove_label_values(key),
        }
    }

    /// Puts how many objects of a resource are fought for.
    pub fn report_contested(&self, namespace: &str, name: &str, contested: usize) {
        self.contested.with_label_values(&[namespace, name]).set(contested as f64);
    }

    /// Failed calls of the active of a resource; the series is there from the first use of this.
    pub fn failed_calls(&self, namespace: &str, name: &str) -> IntCounter {
        self.failed_calls.with_label_values(&[namespace, name])
    }

    /// Removes the series of a resource that is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        for condition in ConditionType::ALL {
            _ = self.conditions.remove_label_values(&[namespace, name, condition.as_str()]);
        }
        for vector in
            [&self.epochs, &self.labelled, &self.standbys, &self.blocked, &self.moving, &self.contested]
        {
            _ = vector.remove_label_values(&[namespace, name]);
        }
        _ = self.failed_calls.remove_label_values(&[namespace, name]);
        for kind in MoveKind::ALL {
            for outcome in Outcome::ALL {
                _ = self.moves.remove_label_values(&[namespace, name, kind.as_str(), outcome.as_str()]);
            }
        }
    }

    /// The text that Prometheus reads.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }
}

/// What the condition says; `None`: the status does not know.
fn failover_blocked(status: &MooncakeMasterStatus) -> Option<bool> {
    let kind = ConditionType::FailoverBlocked.as_str();
    match status.conditions.iter().find(|condition| condition.type_ == kind)?.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{
        apimachinery::pkg::apis::meta::v1::{Condition, Time},
        jiff::Timestamp,
    };

    fn last_move() -> LastMove {
        LastMove {
            kind: "Blocked".to_owned(),
            outcome: "Moved".to_owned(),
            from: String::new(),
            to: String::new(),
            message: String::new(),
            failures: 0,
            started_at: Time(Timestamp::UNIX_EPOCH),
            finished_at: Time(Timestamp::UNIX_EPOCH),
        }
    }

    fn status(blocked: &str, standbys: i32) -> MooncakeMasterStatus {
        MooncakeMasterStatus {
            epoch: Some(7),
            standby_replicas: standbys,
            conditions: vec![Condition {
                type_: "FailoverBlocked".to_owned(),
                status: blocked.to_owned(),
                reason: "R".to_owned(),
                message: String::new(),
                observed_generation: None,
                last_transition_time: Time(Timestamp::UNIX_EPOCH),
            }],
            ..Default::default()
        }
    }

    #[test]
    fn a_resource_that_is_gone_leaves_no_series() {
        let metrics = Metrics::new().unwrap();
        metrics.report("ns", "m", &status("True", 1));
        metrics.report_labelled("ns", "m", Some(1));
        metrics.count_move("ns", "m", &last_move());
        metrics.report_contested("ns", "m", 1);
        metrics.failed_calls("ns", "m").inc();
        let text = metrics.render().unwrap();
        assert!(text.contains("mooncake_operator_master_epoch{name=\"m\",namespace=\"ns\"} 7"), "{text}");
        metrics.forget("ns", "m");
        let text = metrics.render().unwrap();
        assert!(!text.contains("namespace=\"ns\""), "{text}");
    }

    #[test]
    fn failover_is_blocked_when_the_condition_says_so() {
        let metrics = Metrics::new().unwrap();
        let series = "mooncake_operator_master_failover_blocked{name=\"m\",namespace=\"ns\"}";
        for (blocked, expected) in [("True", "1"), ("False", "0")] {
            metrics.report("ns", "m", &status(blocked, 0));
            let text = metrics.render().unwrap();
            assert!(text.contains(&format!("{series} {expected}\n")), "{blocked}: {text}");
        }
        metrics.report("ns", "m", &status("Unknown", 0));
        assert!(!metrics.render().unwrap().contains(series));
    }

    #[test]
    fn pods_that_cannot_be_read_are_not_counted() {
        let metrics = Metrics::new().unwrap();
        let series = "mooncake_operator_master_labelled_pods{name=\"m\",namespace=\"ns\"}";
        metrics.report_labelled("ns", "m", Some(2));
        assert!(metrics.render().unwrap().contains(&format!("{series} 2\n")));
        metrics.report_labelled("ns", "m", None);
        assert!(!metrics.render().unwrap().contains(series));
    }

    #[test]
    fn every_exposed_name_is_documented() {
        let metrics = Metrics::new().unwrap();
        metrics.passes.with_label_values(&["ok"]).inc();
        metrics.writes.with_label_values(&["apply"]).inc();
        metrics.report("ns", "m", &status("True", 1));
        metrics.report_labelled("ns", "m", Some(1));
        metrics.count_move("ns", "m", &last_move());
        metrics.report_contested("ns", "m", 1);
        metrics.failed_calls("ns", "m").inc();
        let text = metrics.render().unwrap();
        let exposed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let mut documented: Vec<String> =
            CATALOGUE.iter().map(|spec| format!("{} {}", spec.name, spec.kind)).collect();
        documented.sort_by(|a, b| a.split(' ').next().cmp(&b.split(' ').next()));
        assert_eq!(exposed, documented);

        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operator-metrics.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, markdown()).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == markdown(), "docs/operator-metrics.md is old: run the tests with UPDATE_DOCS=1");
    }
}
