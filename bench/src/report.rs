//! Results: a line each as they come, tables and ratios at the end, JSON lines for programs.

use crate::machine;
use anyhow::Context as _;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, fs::File, io::Write as _, path::Path};

/// Figures of one measurement, in the order of the columns. Names end in their unit.
pub(crate) type Figures = Vec<(&'static str, f64)>;

/// One measurement.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    pub(crate) target: String,
    pub(crate) round: usize,
    /// What was measured; the same for all targets and rounds that are compared.
    pub(crate) case: String,
    pub(crate) figures: Figures,
    /// Refusals by name; empty when all went as wanted.
    pub(crate) refused: BTreeMap<String, u64>,
    /// The parameters, for the JSON line.
    pub(crate) parameters: Map<String, Value>,
}

/// All measurements of a run.
#[derive(Debug)]
pub(crate) struct Report {
    json: Option<File>,
    measurements: Vec<Measurement>,
}

impl Report {
    /// `json` is a file to which lines are appended; a new one begins with the machine and `note`.
    pub(crate) fn new(json: Option<&Path>, note: &str) -> anyhow::Result<Report> {
        let open = |path: &Path| -> std::io::Result<File> {
            let mut file = File::options().create(true).append(true).open(path)?;
            if file.metadata()?.len() == 0 {
                writeln!(file, "{}", json!({ "kind": "run", "machine": machine::describe(), "note": note }))?;
            }
            Ok(file)
        };
        let open = |path: &Path| open(path).with_context(|| path.display().to_string());
        Ok(Report { json: json.map(open).transpose()?, measurements: Vec::new() })
    }

    /// Takes a measurement and shows it.
    pub(crate) fn add(&mut self, measurement: Measurement) -> anyhow::Result<()> {
        let figures: Vec<String> =
            measurement.figures.iter().map(|(name, value)| format!("{name} {}", number(*value))).collect();
        let refused = if measurement.refused.is_empty() {
            String::new()
        } else {
            format!("  REFUSED {:?}", measurement.refused)
        };
        println!(
            "[{}] {:<8} {:<22} {}{refused}",
            measurement.round + 1,
            measurement.target,
            measurement.case,
            figures.join("  ")
        );
        if let Some(file) = &mut self.json {
            let mut line = Map::new();
            line.insert("target".into(), json!(measurement.target));
            line.insert("round".into(), json!(measurement.round));
            line.insert("case".into(), json!(measurement.case));
            line.extend(measurement.parameters.clone());
            line.extend(measurement.figures.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
            line.insert("refused".into(), json!(measurement.refused));
            writeln!(file, "{}", Value::Object(line))?;
        }
        self.measurements.push(measurement);
        Ok(())
    }

    /// The tables: min / median / max of each figure, and the ratios of the first target to the others, round by round.
    pub(crate) fn tables(&self) -> String {
        let mut lines = Vec::new();
        let targets = distinct(self.measurements.iter().map(|m| m.target.as_str()));
        for case in distinct(self.measurements.iter().map(|m| m.case.as_str())) {
            lines.push(format!("\n{case}"));
            let of_case = || self.measurements.iter().filter(|m| m.case == case);
            let of = |target: &str| of_case().filter(|m| m.target == target).collect::<Vec<_>>();
            let names = distinct(of_case().flat_map(|m| m.figures.iter().map(|(name, _)| *name)));
            let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
            for name in names {
                let mut cells = vec![format!("  {name:width$}")];
                for target in &targets {
                    let values = of(target).iter().filter_map(|m| figure(m, name)).collect();
                    cells.push(format!("{target} {}", spread(values)));
                }
                for other in targets.iter().skip(1) {
                    let ratio = |m: &&Measurement| {
                        let other = of(other).into_iter().find(|other| other.round == m.round)?;
                        Some(figure(m, name)? / figure(other, name)?).filter(|ratio| ratio.is_finite())
                    };
                    let ratios = of(targets[0]).iter().filter_map(ratio).collect();
                    cells.push(format!("ratio to {other} {}", spread(ratios)));
                }
                lines.push(cells.join("   "));
            }
        }
        lines.join("\n")
    }

    /// Whether a call was refused in any measurement.
    pub(crate) fn any_refused(&self) -> bool {
        self.measurements.iter().any(|measurement| !measurement.refused.is_empty())
    }
}

fn figure(measurement: &Measurement, name: &str) -> Option<f64> {
    value(&measurement.figures, name)
}

/// The figure of that name.
pub(crate) fn value(figures: &Figures, name: &str) -> Option<f64> {
    figures.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
}

fn distinct<'a>(items: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

/// Min / median / max.
fn spread(values: Vec<f64>) -> String {
    match Spread::of(values) {
        None => "-".into(),
        Some(Spread { count: 1, median, .. }) => number(median),
        Some(Spread { min, median, max, .. }) => {
            format!("{} / {} / {}", number(min), number(median), number(max))
        }
    }
}

/// What is told of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// None of no values.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let (below, above) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Spread { count: values.len(), min, median: f64::midpoint(below, above), max })
    }
}

/// Three or four digits that mean something.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(target: &str, round: usize, value: f64) -> Measurement {
        Measurement {
            target: target.into(),
            round,
            case: "get, 4 connections".into(),
            figures: vec![("cpu_us_per_item", value)],
            refused: BTreeMap::new(),
            parameters: Map::new(),
        }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let directory = std::env::temp_dir().join(format!("bench-report-{}", std::process::id()));
        let mut report = Report::new(Some(&directory), "today").unwrap();
        for (round, (a, b)) in [(1.0, 10.0), (2.0, 10.0), (9.0, 18.0)].into_iter().enumerate() {
            report.add(measurement("ours", round, a)).unwrap();
            report.add(measurement("theirs", round, b)).unwrap();
        }
        let table = report.tables();
        assert!(table.contains("ours 1.00 / 2.00 / 9.00"), "{table}");
        assert!(table.contains("ratio to theirs 0.100 / 0.200 / 0.500"), "{table}");
        let lines = std::fs::read_to_string(&directory).unwrap();
        std::fs::remove_file(&directory).unwrap();
        assert_eq!(lines.lines().count(), 1 + 6);
        let line = |index| serde_json::from_str::<Value>(lines.lines().nth(index).unwrap()).unwrap();
        assert_eq!((&line(0)["kind"], &line(0)["note"]), (&"run".into(), &"today".into()));
        let line = line(1);
        assert_eq!(line["cpu_us_per_item"], 1.0);
        assert_eq!(line["target"], "ours");
    }
}
