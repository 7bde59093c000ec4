//! `--help` and `docs/flags.md`, both from the table.

use super::{
    option::{Group, Kind, Spec, Status},
    table::TABLE,
};
use std::fmt::Write as _;

/// Columns of a terminal line.
const WIDTH: usize = 100;
/// Where the help of an option begins.
const INDENT: usize = 6;

const INTRO: &str = "\
mooncake-master: the metadata service of a Mooncake Store pool.

Usage: mooncake-master [--FLAG=VALUE ...]

Without any flag it serves standalone: RPC on port 50051, admin HTTP on port 9003.
  --rpc_port=50051   one or two dashes, `=` or a space before the value; --rpc-port is the same
  --enable_ha        a boolean: also --enable_ha=false and --noenable_ha
  30, 30s, 500ms, 5m times: a plain number is in the unit shown
  64Mi, 67108864     sizes
The same names are keys of the file given with --config_path. The command line wins over the
environment, that over the file, that over the default.
";

/// The text of `--help`.
pub fn help_text() -> String {
    let mut out = String::from(INTRO);
    for &group in Group::ALL {
        let active = || TABLE.iter().filter(move |s| s.group == group && s.status == Status::Active);
        if active().next().is_none() {
            continue;
        }
        let _ = write!(out, "\n{}\n", group.title());
        for spec in active() {
            let _ = writeln!(out, "  --{}  {}", spec.name, summary(spec));
            wrap(&mut out, spec.help);
        }
    }
    out.push_str("\nOld names\n");
    for spec in TABLE {
        if let Status::Deprecated { instead } = spec.status {
            let _ = writeln!(out, "  --{}  use --{instead}", spec.name);
        }
    }
    out.push_str(
        "\nAccepted so that command lines of the C++ master work; what they change is not in this version,\n\
         so any other value than the default stops the start, or (in brackets) has no effect\n",
    );
    for &group in Group::ALL {
        let names: Vec<String> = TABLE
            .iter()
            .filter(|s| s.group == group)
            .filter_map(|s| match s.status {
                Status::DefaultOnly => Some(s.name.to_owned()),
                Status::ParameterOf(_) | Status::Ignored(_) => Some(format!("[{}]", s.name)),
                Status::Active | Status::Deprecated { .. } => None,
            })
            .collect();
        if !names.is_empty() {
            let _ = writeln!(out, "  {}:", group.title());
            wrap(&mut out, &names.join(" "));
        }
    }
    out.push_str("\n  --help, --version\n");
    out
}

/// Kind, default and environment variable in one bracket.
fn summary(spec: &Spec) -> String {
    let unit = match spec.kind {
        Kind::Duration { unit, .. } => format!(" {}", unit.name()),
        Kind::Bytes { .. } => " bytes".to_owned(),
        _ => String::new(),
    };
    let default = if spec.default.is_empty() { "empty" } else { spec.default };
    let words = match spec.kind {
        Kind::Choice(words) if words.len() > 1 => format!("; one of {}", words.join(", ")),
        _ => String::new(),
    };
    let env = spec.env.map(|name| format!("; env {name}")).unwrap_or_default();
    format!("(default {default}{unit}{words}{env})")
}

/// Adds words with a line break before each that would pass the width.
fn wrap(out: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        if column == 0 || column + 1 + word.len() > WIDTH {
            if column > 0 {
                out.push('\n');
            }
            let _ = write!(out, "{:INDENT$}{word}", "");
            column = INDENT + word.len();
        } else {
            let _ = write!(out, " {word}");
            column += 1 + word.len();
        }
    }
    out.push('\n');
}

/// The text of `docs/flags.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Flags of mooncake-master\n\n\
         Generated from the option table; do not edit. Each is a flag (`--name=value`) and a key of the file given with\n\
         `--config_path` (flat YAML or JSON). Command line > environment > file > default; an old name counts directly\n\
         behind the new one of the same source. A plain number is in the unit of the default; times take `ms`, `s`, `m`,\n\
         `h`, sizes `Ki`, `Mi`, `Gi`, `Ti`. `--check_config` prints what holds.\n",
    );
    for &group in Group::ALL {
        let _ = write!(
            out,
            "\n## {}\n\n| flag | default | values | meaning |\n|---|---|---|---|\n",
            group.title()
        );
        for spec in TABLE.iter().filter(|s| s.group == group) {
            let default = match spec.default {
                "" => "empty".to_owned(),
                text => format!("`{text}`{}", unit(spec)),
            };
            let status = match spec.status {
                Status::Active => String::new(),
                Status::Deprecated { instead } => format!(" Deprecated: use `{instead}`."),
                Status::DefaultOnly => " Not in this version: only the default is accepted.".to_owned(),
                Status::ParameterOf(switch) => format!(" No effect while `{switch}` is off."),
                Status::Ignored(why) => format!("No effect: {why}."),
            };
            let env = spec.env.map(|name| format!(" Environment: `{name}`.")).unwrap_or_default();
            let values = spec.kind.expected();
            let _ = writeln!(out, "| `{}` | {default} | {values} | {}{status}{env} |", spec.name, spec.help);
        }
    }
    out
}

fn unit(spec: &Spec) -> String {
    match spec.kind {
        Kind::Duration { unit, .. } => format!(" {}", unit.name()),
        _ => String::new(),
    }
}
