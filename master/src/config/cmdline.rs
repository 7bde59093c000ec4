//! The gflags syntax.

use super::{
    errors::{ConfigError, Source},
    option::{Kind, Spec},
    table,
};

/// What a command line says, before any value is looked at.
#[derive(Debug, Default)]
pub(super) struct CommandLine {
    /// In the order given; the last one of a name counts.
    pub(super) given: Vec<(&'static Spec, String)>,
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<String>,
    pub(super) help: bool,
    pub(super) version: bool,
}

impl CommandLine {
    /// Whether a boolean is given and true.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.given.iter().rev().find(|(spec, _)| spec.name == name).is_some_and(|(spec, text)| {
            matches!(spec.kind.parse(text), Some(super::value::Value::Bool(true)))
        })
    }
}

/// Reads the arguments after the program's name.
pub(super) fn parse(args: &[String]) -> CommandLine {
    let mut line = CommandLine::default();
    let mut args = args.iter().peekable();
    let mut bare_bool: Option<&'static Spec> = None;
    while let Some(arg) = args.next() {
        let after_bool = bare_bool.take();
        if arg == "--" {
            break;
        }
        let Some(body) = flag_body(arg) else {
            stray(&mut line, arg, after_bool);
            continue;
        };
        if matches!(body, "help" | "helpfull" | "helpshort" | "h") {
            line.help = true;
            continue;
        }
        if body == "version" {
            line.version = true;
            continue;
        }
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        match (find(name), value) {
            (Found::Option(spec), Some(value)) => line.given.push((spec, value)),
            (Found::Option(spec), None) if spec.kind == Kind::Bool => {
                line.given.push((spec, "true".to_owned()));
                bare_bool = Some(spec);
            }
            (Found::Option(spec), None) => {
                // As in gflags the next argument is the value, whatever it looks like, so that `--x -1` works; but not
                // when it is plainly the next flag.
                match args.next_if(|next| !is_known_flag(next)) {
                    Some(value) => line.given.push((spec, value.clone())),
                    None => line
                        .errors
                        .push(ConfigError::NoValue { option: spec.name, expected: spec.kind.expected() }),
                }
            }
            (Found::Negated(spec), None) => line.given.push((spec, "false".to_owned())),
            (Found::Negated(spec), Some(value)) => line.errors.push(ConfigError::BadValue {
                option: spec.name,
                from: Source::CommandLine,
                value: format!("--{name}={value}"),
                expected: format!("--{n}, --no{n}, or --{n}=true or false", n = spec.name),
            }),
            (Found::Nothing, _) => line.errors.push(ConfigError::Unknown {
                name: name.to_owned(),
                from: Source::CommandLine,
                nearest: table::nearest(name),
            }),
        }
    }
    line
}

/// What stands behind one or two dashes; None for an argument that is not a flag.
fn flag_body(arg: &str) -> Option<&str> {
    let body = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))?;
    (!body.is_empty()).then_some(body)
}

fn is_known_flag(arg: &str) -> bool {
    arg.strip_prefix("--").is_some_and(|body| {
        !matches!(find(body.split_once('=').map_or(body, |(name, _)| name)), Found::Nothing)
    })
}

enum Found {
    Option(&'static Spec),
    Negated(&'static Spec),
    Nothing,
}

fn find(name: &str) -> Found {
    let name = name.replace('-', "_");
    if let Some(spec) = table::find(&name) {
        return Found::Option(spec);
    }
    match name.strip_prefix("no").and_then(table::find) {
        Some(spec) if spec.kind == Kind::Bool => Found::Negated(spec),
        _ => Found::Nothing,
    }
}

/// gflags ignores arguments that are no flags. So do we, but for the trap in it: `--enable_ha false` sets it to *true*
/// there.
fn stray(line: &mut CommandLine, arg: &str, after_bool: Option<&'static Spec>) {
    match (after_bool, Kind::Bool.parse(arg)) {
        (Some(_), Some(super::value::Value::Bool(true))) => {}
        (Some(spec), Some(_)) => line.errors.push(ConfigError::BadValue {
            option: spec.name,
            from: Source::CommandLine,
            value: format!("--{} {arg}", spec.name),
            expected: format!(
                "--{n}={arg} or --no{n} (a word behind a boolean flag is not its value)",
                n = spec.name
            ),
        }),
        _ => line.warnings.push(format!("argument `{arg}` is not a flag and is ignored")),
    }
}
