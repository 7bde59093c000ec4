//! Every flag that the `--help` of the wheel's C++ master lists is taken here with the same default, in every form that
//! gflags takes it.

use mooncake_master::config::{Command, Effective, Kind, Status, Surroundings, TABLE, Value, load};
use mooncake_tests::upstream::{python, upstream_master};
use std::{collections::BTreeMap, process};

/// Flags of gflags itself that are not for a server: help, version, completion, XML.
const FOR_PEOPLE: [&str; 12] = [
    "help",
    "helpfull",
    "helpmatch",
    "helpon",
    "helppackage",
    "helpshort",
    "helpxml",
    "version",
    "tab_completion_columns",
    "tab_completion_word",
    "symbolize_stacktrace",
    "run_with_pprof",
];

/// Whose default is written in another way, or follows from the machine, with the reason.
const DEFAULTS: [(&str, &str); 2] = [
    ("rpc_port", "0 there stands for the value of `port`, which is what is shown here"),
    ("log_dir", "from the environment of whoever asks"),
];

/// Name, type and default of each flag.
fn listed(help: &str) -> BTreeMap<String, (String, String)> {
    let text = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut flags = BTreeMap::new();
    let mut rest = text.as_str();
    // Each is "-name (help) type: T default: D", where D ends at the next flag.
    while let Some(at) = rest.find(" type: ") {
        let head = &rest[..at];
        let start = head
            .match_indices(" -")
            .map(|(i, _)| i + 2)
            .find(|i| head[*i..].split_once(" (").is_some_and(|(name, _)| is_name(name)));
        rest = &rest[at + " type: ".len()..];
        let Some(start) = start else { continue };
        let name = head[start..].split_once(" (").map_or("", |(name, _)| name).to_owned();
        let (kind, after) = rest.split_once(" default: ").expect("a default");
        let end = after.find(" -").into_iter().chain(after.find(" Flags from ")).min().unwrap_or(after.len());
        let default = after[..end].trim();
        let default = default.split(" currently: ").next().unwrap_or(default);
        flags.insert(name, (kind.to_owned(), default.trim_matches('"').to_owned()));
        rest = &after[end..];
    }
    flags
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn effective(args: &[String]) -> Result<Effective, String> {
    let surroundings = Surroundings {
        env: &|_| None,
        read_file: &|_| Err("no such file".to_owned()),
        interface_address: &|_| Ok([127, 0, 0, 1].into()),
        cores: 2,
    };
    match load(args, &surroundings) {
        Ok(Command::Run(loaded)) => Ok(loaded.effective),
        Ok(other) => Err(format!("{other:?}")),
        Err(errors) => Err(errors.to_string()),
    }
}

/// The numbers may be written differently: `0.050000000000000003` is 0.05.
fn same(kind: Kind, default: &str, theirs: &str) -> bool {
    let number = |value: &Value| match value {
        Value::Number(number) => Some(*number),
        _ => None,
    };
    match (kind.parse(default), kind.parse(theirs)) {
        (Some(ours), Some(their)) if number(&ours).is_some() => {
            number(&ours).zip(number(&their)).is_some_and(|(a, b)| (a - b).abs() < 1e-9)
        }
        (Some(ours), their) => Some(ours) == their,
        (None, _) => false,
    }
}

#[test]
fn every_flag_of_the_cpp_master_is_taken_with_the_same_default_in_every_form() {
    let master = upstream_master(&python());
    let output = process::Command::new(master).arg("--help").output().expect("the C++ master starts");
    let flags = listed(&String::from_utf8_lossy(&output.stdout));
    assert!(flags.len() > 80, "only {} flags found", flags.len());
    let mut wrong = Vec::new();
    for (name, (kind, default)) in &flags {
        if FOR_PEOPLE.contains(&name.as_str()) {
            continue;
        }
        let Some(spec) = TABLE.iter().find(|spec| spec.name == name) else {
            wrong.push(format!("{name}: not known here"));
            continue;
        };
        let other_default = DEFAULTS.iter().any(|(other, _)| other == name);
        if !other_default && !same(spec.kind, spec.default, default) {
            wrong.push(format!("{name}: default {:?} here, {default:?} there", spec.default));
        }
        if !default.is_empty() && kind != "string" || matches!(spec.kind, Kind::Duration { .. }) {
            let mut forms: Vec<Vec<String>> = Vec::new();
            for dashes in ["-", "--"] {
                forms.push(vec![format!("{dashes}{name}={default}")]);
                forms.push(vec![format!("{dashes}{}={default}", name.replace('_', "-"))]);
                match (kind.as_str(), default.as_str()) {
                    ("bool", "true") => forms.push(vec![format!("{dashes}{name}")]),
                    ("bool", _) => forms.push(vec![format!("{dashes}no{name}")]),
                    _ => forms.push(vec![format!("{dashes}{name}"), default.clone()]),
                }
            }
            let plain = effective(&[]).expect("no arguments");
            for form in forms {
                match effective(&form) {
                    Ok(with) => {
                        let of = |all: &Effective| {
                            all.0.iter().find(|s| s.spec.name == name).map(|s| s.value.clone())
                        };
                        if matches!(spec.status, Status::Active)
                            && of(&with) != of(&plain)
                            && name != "rpc_thread_num"
                        {
                            wrong.push(format!("{form:?}: {:?} instead of {:?}", of(&with), of(&plain)));
                        }
                    }
                    Err(error) => wrong.push(format!("{form:?}: {error}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} flags", flags.len());
}
