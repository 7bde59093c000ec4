//! The JSON lines of a run.

use anyhow::Context as _;
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};

/// The targets that bars are about, as the scripts name them.
pub(super) const OURS: &str = "ours";
pub(super) const THEIRS: &str = "theirs";
pub(super) const FLOOR: &str = "floor";

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    pub(super) machine: String,
    pub(super) note: String,
    lines: Vec<Value>,
}

impl Results {
    pub(super) fn read(path: &Path) -> anyhow::Result<Results> {
        let name = || path.display().to_string();
        Results::parse(&fs::read_to_string(path).with_context(name)?).with_context(name)
    }

    pub(super) fn parse(text: &str) -> anyhow::Result<Results> {
        let mut results = Results::default();
        for (number, line) in text.lines().enumerate() {
            let line: Value = serde_json::from_str(line).with_context(|| format!("line {}", number + 1))?;
            if line["kind"] == "run" {
                let text = |name| line[name].as_str().unwrap_or_default().to_owned();
                (results.machine, results.note) = (text("machine"), text("note"));
            } else {
                results.lines.push(line);
            }
        }
        Ok(results)
    }

    /// The lines of a target that belong to a case.
    pub(super) fn lines<'a>(&'a self, target: &'a str, case: &'a Case) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |line| line["target"] == target && case.holds(line))
    }

    /// A figure of a target, by round.
    pub(super) fn values(&self, target: &str, case: &Case, figure: &str) -> BTreeMap<u64, f64> {
        self.lines(target, case)
            .filter_map(|line| Some((line["round"].as_u64()?, line[figure].as_f64()?)))
            .collect()
    }

    /// Values of a parameter among the lines of a case, in order.
    pub(super) fn distinct(&self, case: &Case, parameter: &str) -> Vec<u64> {
        let lines = self.lines.iter().filter(|line| case.holds(line));
        let mut found: Vec<u64> = lines.filter_map(|line| line[parameter].as_u64()).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Which measurements are meant.
#[derive(Clone, Debug)]
pub(super) struct Case(Vec<(&'static str, Value)>);

impl Case {
    pub(super) fn of(kind: &'static str) -> Case {
        Case(vec![("kind", kind.into())])
    }

    /// Only those with that parameter.
    pub(super) fn with(mut self, parameter: &'static str, value: impl Into<Value>) -> Case {
        self.0.push((parameter, value.into()));
        self
    }

    /// A closed loop that is part of no sweep.
    pub(super) fn load(protocol: &'static str, op: &'static str, connections: u64) -> Case {
        let case =
            Case::of("load").with("protocol", protocol).with("op", op).with("connections", connections);
        case.with("rate", Value::Null).with("sweep", Value::Null)
    }

    fn holds(&self, line: &Value) -> bool {
        self.0.iter().all(|(name, value)| line[*name] == *value)
    }
}
