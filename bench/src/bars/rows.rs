//! Every bar, and the figures that are held against it.

use super::results::{Case, FLOOR, OURS, Results, THEIRS};
use crate::report::{Spread, number};
use std::collections::BTreeMap;

/// One bar.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) figure: String,
    /// One of them is enough.
    pub(super) choices: Vec<Choice>,
}

/// A bound and the values of the rounds.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// What follows the number: `× C++`, `µs`.
    pub(super) unit: &'static str,
    pub(super) bound: f64,
    /// It is the least, not the most.
    pub(super) least: bool,
    values: Vec<f64>,
    /// What the ratio is made of.
    pub(super) made_of: String,
}

/// Where a choice stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    NotMeasured,
    /// By this share of the bound; whether in every round.
    Met(f64, bool),
    Missed(f64),
}

impl Choice {
    fn most(bound: f64, unit: &'static str, values: BTreeMap<u64, f64>) -> Choice {
        Choice { unit, bound, least: false, values: values.into_values().collect(), made_of: String::new() }
    }

    pub(super) fn spread(&self) -> Option<Spread> {
        Spread::of(self.values.clone())
    }

    pub(super) fn verdict(&self) -> Verdict {
        let Some(Spread { min, median, max, .. }) = self.spread() else { return Verdict::NotMeasured };
        // Of a bound of 0 there is no share; then it is the value itself.
        let share = |value: f64| {
            let over = if self.bound == 0.0 { value } else { value / self.bound - 1.0 };
            if self.least { over } else { -over }
        };
        let worst = if self.least { min } else { max };
        if share(median) >= 0.0 {
            Verdict::Met(share(median), share(worst) >= 0.0)
        } else {
            Verdict::Missed(-share(median))
        }
    }
}

/// All bars. Those of the comparison are listed even when they were not measured, if any of them was.
pub(super) fn all(results: &Results) -> Vec<Row> {
    let mut rows = Rows { results, rows: Vec::new() };
    rows.cpu();
    rows.saturation();
    rows.memory();
    rows.grpc();
    rows.rest();
    if rows.rows.iter().all(|row| row.choices.iter().all(|choice| choice.values.is_empty())) {
        rows.rows.clear();
    }
    rows.incidents();
    rows.rows
}

/// Operation, calls per item, and what it may cost beside the C++ master with 4 and with 64 connections.
const OPS: [(&str, &str, f64, f64, Option<f64>); 7] = [
    ("put", "Put", 2.0, 0.5, Some(0.6)),
    ("get", "Get", 1.0, 0.65, Some(0.75)),
    ("exist", "Exist", 1.0, 0.65, Some(0.75)),
    ("ping", "Ping", 1.0, 0.65, Some(0.75)),
    ("batchput", "BatchPut", 0.0, 0.17, None),
    ("batchget", "BatchGet", 0.0, 0.3, None),
    ("batchexist", "BatchExist", 0.0, 0.25, None),
];
const CPU: &str = "server_cpu_us_per_item";

struct Rows<'a> {
    results: &'a Results,
    rows: Vec<Row>,
}

impl Rows<'_> {
    fn add(&mut self, figure: impl Into<String>, choices: Vec<Choice>) {
        self.rows.push(Row { figure: figure.into(), choices });
    }

    /// A figure of ours, in each round divided by what `per` makes of another target's; times `scale` for reading.
    fn ratio(&self, case: &Case, figure: &str, bound: f64, other: &Other) -> Choice {
        let ours = self.results.values(OURS, case, figure);
        let theirs = self.results.values(other.target, &other.case, other.figure);
        let divided = |(round, ours): (&u64, &f64)| Some((*round, ours / (theirs.get(round)? * other.times)));
        let values: BTreeMap<_, _> =
            ours.iter().filter_map(divided).filter(|(_, value)| value.is_finite()).collect();
        let median = |values: &BTreeMap<u64, f64>, times| {
            Spread::of(values.values().copied().collect())
                .map_or("-".into(), |spread| number(spread.median * times))
        };
        let made_of = format!("{} ÷ {} {}", median(&ours, 1.0), median(&theirs, other.times), other.unit);
        Choice { made_of, ..Choice::most(bound, other.name, values) }
    }

    fn beside_theirs(&self, case: &Case, figure: &'static str, bound: f64, unit: &'static str) -> Choice {
        let other = Other { target: THEIRS, name: "× C++", case: case.clone(), figure, times: 1.0, unit };
        self.ratio(case, figure, bound, &other)
    }

    fn cpu(&mut self) {
        for (op, name, _, bound, _) in OPS {
            let choice = self.beside_theirs(&Case::load("native", op, 4), CPU, bound, "µs");
            self.add(format!("{name}, server CPU per item, 4 connections"), vec![choice]);
        }
        for (op, name, calls, _, bound) in OPS {
            let Some(bound) = bound else { continue };
            let case = Case::load("native", op, 64);
            let floor = Other {
                target: FLOOR,
                name: "× the epoll floor",
                case: Case::load("native", "ping", 64),
                figure: CPU,
                times: calls,
                unit: "µs",
            };
            let choices =
                vec![self.beside_theirs(&case, CPU, bound, "µs"), self.ratio(&case, CPU, 1.3, &floor)];
            self.add(format!("{name}, server CPU per item, 64 connections"), choices);
        }
    }

    fn saturation(&mut self) {
        for connections in [4, 64] {
            for (op, name, ..) in OPS {
                let case = Case::load("native", op, connections);
                let throughput = self.beside_theirs(&case, "items_per_s", 1.2, "/s");
                let throughput = Choice { least: true, ..throughput };
                self.add(format!("{name}, throughput, {connections} connections"), vec![throughput]);
                let p99 = self.beside_theirs(&case, "p99_us", 1.0, "µs");
                self.add(format!("{name}, p99, {connections} connections"), vec![p99]);
            }
        }
    }

    /// A figure of ours alone.
    fn own(&mut self, name: impl Into<String>, case: &Case, figure: &str, bound: f64, unit: &'static str) {
        let choice = Choice::most(bound, unit, self.results.values(OURS, case, figure));
        self.add(name, vec![choice]);
    }

    fn memory(&mut self) {
        for keys in [1_000_000, 4_000_000] {
            let case = Case::of("memory").with("keys", keys);
            let count = count(keys);
            self.own(format!("memory per key, {count} keys"), &case, "bytes_per_key", 200.0, "B");
            let unit = "× (1.2 × start + 20 MB)";
            self.own(format!("RSS after removing {count} keys"), &case, "removed_ratio", 1.0, unit);
        }
    }

    fn grpc(&mut self) {
        for (op, name, bound) in [("get", "Get", 20.0), ("batchget", "BatchGet", 1.0)] {
            let case = Case::load("grpc", op, 4);
            self.own(format!("gRPC {name}, server CPU per item, 4 connections"), &case, CPU, bound, "µs");
        }
    }

    fn rest(&mut self) {
        let counted = Case::of("instructions");
        let clients = self.results.distinct(&counted, "clients");
        let mut extremes: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for clients in &clients {
            let case = counted.clone().with("clients", *clients);
            for (round, value) in self.results.values(OURS, &case, "instructions_per_call") {
                let (min, max) = extremes.entry(round).or_insert((value, value));
                (*min, *max) = (min.min(value), max.max(value));
            }
        }
        let made_of = extremes.values().next().map(|(min, max)| format!("{min:.0} to {max:.0} instructions"));
        let spans = extremes.into_iter().map(|(round, (min, max))| (round, max / min)).collect();
        let spans =
            Choice { made_of: made_of.unwrap_or_default(), ..Choice::most(1.05, "× the least", spans) };
        self.add("instructions per PutStart with 1, 128 and 2000 clients", vec![spans]);

        let eviction = Case::of("eviction");
        self.own("Put CPU, a full pool beside one with room", &eviction, "full_ratio", 1.3, "×");
        let start = Case::of("start");
        self.own("start to serving", &start, "serving_ms", 10.0, "ms");
        self.own("idle RSS", &start, "idle_rss_mb", 12.0, "MB");
        let many = Case::of("connections");
        self.own("memory per idle connection", &many, "kib_per_connection", 16.0, "KiB");
        let unit = "× p99 alone";
        self.own("p99 of 200 busy connections beside 1800 idle ones", &many, "p99_ratio", 1.5, unit);
    }

    fn incidents(&mut self) {
        let incident = Case::of("incident");
        for victim in self.results.distinct(&incident, "victim_keys") {
            let of_victim = incident.clone().with("victim_keys", victim);
            for other in self.results.distinct(&of_victim, "other_keys") {
                for variant in ["alone", "remount", "new-client"] {
                    let case = of_victim.clone().with("other_keys", other).with("variant", variant);
                    self.incident(
                        &case,
                        victim,
                        &format!("{} of {} keys, {variant}", count(victim), count(victim + other)),
                    );
                }
            }
        }
    }

    fn incident(&mut self, case: &Case, victim: u64, name: &str) {
        if self.results.lines(OURS, case).next().is_none() {
            return;
        }
        for (what, over, whole, bound) in [
            ("longest stall over the quiet run", "longest_over_quiet_ms", "longest_stall_ms", 10.0),
            ("p99 over the quiet run", "p99_over_quiet_ms", "p99_over_quiet_ms", 1.0),
        ] {
            let median = |target| {
                let values = self.results.values(target, case, whole).into_values().collect();
                Spread::of(values).map_or("-".into(), |spread| number(spread.median))
            };
            let made_of = format!("{} ms, C++ {} ms", median(OURS), median(THEIRS));
            let choice =
                Choice { made_of, ..Choice::most(bound, "ms", self.results.values(OURS, case, over)) };
            self.add(format!("{name}: {what}"), vec![choice]);
        }
        self.own(format!("{name}: HealthCheck not ok"), case, "health_not_ok", 0.0, "times");
        if victim <= 100_000 {
            self.own(format!("{name}: work of offboarding"), case, "offboarding_work_ms", 100.0, "ms");
        }
        let visited = self.results.values(OURS, case, "keys_visited");
        let visited = visited.into_iter().map(|(round, keys)| (round, keys / victim as f64)).collect();
        self.add(format!("{name}: keys visited"), vec![Choice::most(1.0, "× owned", visited)]);
    }
}

/// What a figure is divided by.
struct Other {
    target: &'static str,
    /// What the ratio is called.
    name: &'static str,
    case: Case,
    figure: &'static str,
    times: f64,
    /// Of the figure.
    unit: &'static str,
}

/// A number of keys as people say it.
fn count(keys: u64) -> String {
    match keys {
        1_000_000.. => format!("{} M", (keys as f64 / 1e4).round() / 1e2),
        1000.. => format!("{} k", keys / 1000),
        _ => keys.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bars_are_held_against_the_rounds() {
        let mut lines = vec![json!({ "kind": "run", "machine": "m", "note": "n" })];
        let load = |target, round: u64, op, connections, cpu| {
            json!({ "kind": "load", "target": target, "round": round, "op": op, "protocol": "native",
                    "connections": connections, "rate": null, "sweep": null, "server_cpu_us_per_item": cpu })
        };
        for round in 0..3 {
            lines.push(load("ours", round, "put", 4, 8.0 + round as f64));
            lines.push(load("theirs", round, "put", 4, 20.0));
            lines.push(load("ours", round, "put", 64, 15.0));
            lines.push(load("theirs", round, "put", 64, 20.0));
            lines.push(load("floor", round, "ping", 64, 6.0));
            lines.push(load("ours", round, "batchget", 4, 1.0));
            lines.push(load("theirs", round, "batchget", 4, 2.0));
        }
        for (clients, instructions) in [(1, 1000.0), (128, 1010.0), (2000, 1020.0)] {
            lines.push(json!({ "kind": "instructions", "target": "ours", "round": 0, "clients": clients,
                               "instructions_per_call": instructions }));
        }
        lines.push(json!({ "kind": "incident", "target": "ours", "round": 0, "variant": "alone", "victim_keys": 100_000,
                           "other_keys": 2_000_000, "health_not_ok": 1, "keys_visited": 100_000 }));
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let results = Results::parse(&text.join("\n")).unwrap();
        let rows = all(&results);
        let of = |name: &str| {
            &rows.iter().find(|row| row.figure == name).unwrap_or_else(|| panic!("{name}")).choices
        };

        let median = |choice: &Choice| number(choice.spread().unwrap().median);
        let put = &of("Put, server CPU per item, 4 connections")[0];
        assert_eq!(median(put), "0.450");
        assert!(matches!(put.verdict(), Verdict::Met(share, true) if (share - 0.1).abs() < 1e-9), "{put:?}");
        assert_eq!(put.made_of, "9.00 ÷ 20.0 µs");
        let put = of("Put, server CPU per item, 64 connections");
        assert!(matches!(put[0].verdict(), Verdict::Missed(share) if (share - 0.25).abs() < 1e-9), "{put:?}");
        assert_eq!(median(&put[1]), "1.25");
        assert!(matches!(put[1].verdict(), Verdict::Met(_, true)), "{put:?}");
        assert!(matches!(
            of("BatchGet, server CPU per item, 4 connections")[0].verdict(),
            Verdict::Missed(_)
        ));
        let flat = &of("instructions per PutStart with 1, 128 and 2000 clients")[0];
        assert_eq!(median(flat), "1.02");
        assert_eq!(of("idle RSS")[0].verdict(), Verdict::NotMeasured);
        let name = "100 k of 2.1 M keys, alone";
        assert_eq!(of(&format!("{name}: HealthCheck not ok"))[0].verdict(), Verdict::Missed(1.0));
        assert_eq!(of(&format!("{name}: keys visited"))[0].verdict(), Verdict::Met(0.0, true));
    }

    #[test]
    fn what_was_not_run_at_all_is_not_listed() {
        assert!(all(&Results::default()).is_empty());
    }
}
