//! The alert rules and the dashboard: whole, current, tested, and about metrics that exist.

use mooncake_tests::{Master, promql::metric_names};
use serde_yaml_ng::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where runbooks are found by whoever is woken. Whoever publishes them elsewhere replaces it (docs/runbooks/README.md).
const RUNBOOKS: &str = "https://runbooks.example.com/";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(path: &Path) -> Value {
    serde_yaml_ng::from_str(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files of a directory with that ending, by name.
fn files(directory: &str, ending: &str) -> Vec<PathBuf> {
    let directory = repository(directory);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(ending));
    files.sort();
    assert!(!files.is_empty(), "no *{ending} in {}", directory.display());
    files
}

fn rule_files() -> Vec<PathBuf> {
    files("manifests/alerts", ".rules.yaml")
}

/// Every alert by its name.
fn alerts() -> BTreeMap<String, Value> {
    let mut alerts = BTreeMap::new();
    for file in rule_files() {
        for group in yaml(&file)["groups"].as_sequence().expect("groups") {
            for rule in group["rules"].as_sequence().expect("rules") {
                let name = rule["alert"].as_str().expect("only alerts here").to_owned();
                assert!(alerts.insert(name.clone(), rule.clone()).is_none(), "{name} is there twice");
            }
        }
    }
    alerts
}

/// Every documented metric, histograms with their suffixes.
fn documented() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for document in ["docs/metrics.md", "docs/operator-metrics.md"] {
        let text = read(&repository(document));
        for line in text.lines().filter_map(|line| line.strip_prefix("| `")) {
            let mut cells = line.split('|').map(str::trim);
            let name = cells.next().expect("a name").trim_end_matches('`');
            if cells.next() == Some("histogram") {
                names.extend(["bucket", "sum", "count"].map(|suffix| format!("{name}_{suffix}")));
            } else {
                names.insert(name.to_owned());
            }
        }
    }
    assert!(names.len() > 100, "the documents have another form: {} names", names.len());
    names
}

fn promtool(arguments: &[&Path]) {
    let output = Command::new("promtool").args(arguments).output();
    let output = output.expect("promtool is missing: install Debian's package prometheus");
    let printed =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}\n{printed}");
}

#[test]
fn the_rules_pass_their_tests() {
    for rules in rule_files() {
        promtool(&[Path::new("check"), Path::new("rules"), Path::new("--lint-fatal"), &rules]);
    }
    for tests in files("manifests/alerts/tests", ".test.yaml") {
        promtool(&[Path::new("test"), Path::new("rules"), &tests]);
    }
}

#[test]
fn every_alert_is_tested_for_firing_and_for_staying_quiet() {
    let (mut firing, mut quiet) = (BTreeSet::new(), BTreeSet::new());
    for file in files("manifests/alerts/tests", ".test.yaml") {
        for test in yaml(&file)["tests"].as_sequence().expect("tests") {
            for case in test["alert_rule_test"].as_sequence().expect("cases") {
                let name = case["alertname"].as_str().expect("alertname").to_owned();
                let expected = case["exp_alerts"].as_sequence().expect("exp_alerts");
                if expected.is_empty() { &mut quiet } else { &mut firing }.insert(name);
            }
        }
    }
    let all: BTreeSet<String> = alerts().into_keys().collect();
    assert_eq!(firing, all, "tested for firing");
    assert_eq!(quiet, all, "tested for staying quiet");
}

#[test]
fn every_alert_says_how_bad_it_is_and_what_to_do() {
    let alerts = alerts();
    let overview = read(&repository("docs/runbooks/README.md"));
    for (name, rule) in &alerts {
        assert!(name.starts_with("Mooncake"), "{name}");
        let severity = rule["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("critical" | "warning")), "{name}: {severity:?}");
        for annotation in ["summary", "description"] {
            let text = rule["annotations"][annotation].as_str().unwrap_or_default();
            assert!(text.ends_with('.') && text.len() > 20, "{name}: {annotation}: {text}");
        }
        let url = rule["annotations"]["runbook_url"].as_str();
        assert_eq!(url, Some(format!("{RUNBOOKS}{name}.md").as_str()), "{name}");
        let runbook = read(&repository(&format!("docs/runbooks/{name}.md")));
        let headings: Vec<&str> = runbook.lines().filter(|line| line.starts_with('#')).collect();
        let title = format!("# {name}");
        assert_eq!(headings, [&title, "## Meaning", "## Impact", "## Diagnosis", "## Mitigation"], "{name}");
        assert!(runbook.contains("```sh\n"), "{name}: the runbook has no command");
        let severity = severity.unwrap_or_default();
        let line = format!("| [{name}]({name}.md) | {severity} |");
        assert!(overview.contains(&line), "not in the overview: {line}");
    }
    for file in files("docs/runbooks", ".md") {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(name == "README" || alerts.contains_key(&name), "{name}: a runbook without an alert");
    }
}

/// The rule files are the one source; the manifest holds them word by word. `UPDATE_DOCS=1` writes it.
#[test]
fn the_manifest_holds_the_rule_files() {
    let mut manifest = "\
# Generated from *.rules.yaml; do not edit. The tests write it with UPDATE_DOCS=1.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: mooncake
spec:
  groups:
"
    .to_owned();
    for file in rule_files() {
        let text = read(&file);
        let (comment, groups) = text.split_once("groups:\n").expect("groups");
        let comment = comment.lines().map(|line| format!("  {line}"));
        for line in comment.chain(groups.lines().map(str::to_owned)) {
            manifest.push_str(format!("  {line}").trim_end());
            manifest.push('\n');
        }
    }
    let path = repository("manifests/alerts/prometheusrule.yaml");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &manifest).expect("written");
    }
    assert!(read(&path) == manifest, "{} is old: run the tests with UPDATE_DOCS=1", path.display());

    let wrapped = yaml(&path)["spec"]["groups"].clone();
    let groups = |file: &PathBuf| yaml(file)["groups"].as_sequence().expect("groups").clone();
    assert_eq!(wrapped, Value::Sequence(rule_files().iter().flat_map(groups).collect()));
}

#[test]
fn the_example_configuration_is_one() {
    let mut config = yaml(&repository("manifests/alerts/prometheus.example.yaml"));
    // Debian's promtool is built without the discovery in Kubernetes.
    for job in config["scrape_configs"].as_sequence_mut().expect("jobs") {
        let job = job.as_mapping_mut().expect("a job");
        assert!(job.remove("kubernetes_sd_configs").is_some());
    }
    let rules = repository("manifests/alerts").canonicalize().expect("a directory").join("*.rules.yaml");
    assert_eq!(config["rule_files"][0], "*.rules.yaml");
    config["rule_files"][0] = Value::String(rules.to_string_lossy().into_owned());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("prometheus.yml");
    fs::write(&file, serde_yaml_ng::to_string(&config).expect("yaml")).expect("written");
    promtool(&[Path::new("check"), Path::new("config"), &file]);
}

#[test]
fn the_rules_are_about_metrics_that_are_exposed() {
    let documented = documented();
    let mut of_masters = BTreeSet::new();
    for (alert, rule) in alerts() {
        let names = metric_names(rule["expr"].as_str().expect("expr"));
        assert!(!names.is_empty(), "{alert} is about nothing");
        for name in names {
            assert!(
                documented.contains(&name),
                "{alert}: {name} is no metric of a master or of the operator"
            );
            if !name.starts_with("mooncake_operator_") {
                of_masters.insert(name);
            }
        }
    }
    // The operator's own test compares its document with what it exposes; a master is asked here.
    let master = Master::start();
    master.wait_ready(200, 10);
    let (status, text) = master.get("/metrics");
    assert_eq!(status, 200);
    let exposed: BTreeSet<&str> = text.lines().filter_map(|line| line.split([' ', '{']).next()).collect();
    for name in of_masters {
        assert!(exposed.contains(name.as_str()), "a master does not expose {name}:\n{text}");
    }
}

/// Every metric of this master's own that the document does not call absent is there from the beginning; the scenario
/// of the runbooks asks a real cluster the same.
#[test]
fn what_the_document_does_not_call_absent_is_exposed_at_once() {
    let master = Master::start();
    master.wait_ready(200, 10);
    let (_, text) = master.get("/metrics");
    let document = read(&repository("docs/metrics.md"));
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `mooncake_master_"));
    let mut checked = 0;
    for row in
        rows.filter(|row| !row.contains("absent while there was none") && !row.contains("absent without HA"))
    {
        let name = row.split('`').next().expect("a name");
        assert!(text.contains(&format!("# TYPE mooncake_master_{name} ")), "{name} is not exposed:\n{text}");
        checked += 1;
    }
    assert!(checked > 30, "the document has another form: {checked} rows");
}

#[test]
fn the_dashboard_is_about_metrics_that_exist() {
    let documented = documented();
    let check = |place: &str, expression: &str| {
        let names = metric_names(expression);
        assert!(!names.is_empty(), "{place}: {expression} is about nothing");
        for name in names {
            assert!(
                documented.contains(&name),
                "{place}: {name} is no metric of a master or of the operator"
            );
        }
    };
    for file in files("manifests/dashboards", ".json") {
        let dashboard: serde_json::Value = serde_json::from_str(&read(&file)).expect("JSON");
        let (mut ids, mut rules) = (BTreeSet::new(), Vec::new());
        for variable in dashboard["templating"]["list"].as_array().expect("variables") {
            if let Some(query) = variable["query"]["query"].as_str() {
                let query = query.strip_prefix("label_values(").and_then(|rest| rest.rsplit_once(", "));
                check("variable", query.expect("label_values(series, label)").0);
            }
        }
        for panel in dashboard["panels"].as_array().expect("panels") {
            let title = panel["title"].as_str().expect("a title");
            assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: an id twice");
            if panel["type"] == "row" {
                continue;
            }
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}: no unit");
            for target in panel["targets"].as_array().expect("targets") {
                let expression = target["expr"].as_str().expect("expr");
                check(title, expression);
                let expression = expression.replace("$__rate_interval", "1m");
                let record = format!("panel:{}", rules.len());
                rules.push(serde_json::json!({ "record": record, "expr": expression }));
            }
        }
        // promtool checks expressions only as rules.
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("panels.yaml");
        let group = serde_json::json!({ "groups": [{ "name": "panels", "rules": rules }] });
        fs::write(&path, group.to_string()).expect("written");
        promtool(&[Path::new("check"), Path::new("rules"), &path]);
    }
}
