//! What can be wrong with a configuration.

use std::fmt;

/// Where a value came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The table.
    Default,
    /// The configuration file.
    File,
    /// An environment variable, by name.
    Environment(&'static str),
    /// The command line.
    CommandLine,
    /// Worked out from other options or from the machine.
    Derived,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File => f.write_str("config file"),
            Source::Environment(name) => write!(f, "environment variable {name}"),
            Source::CommandLine => f.write_str("command line"),
            Source::Derived => f.write_str("derived"),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no such option.
    #[error("unknown option `{name}` ({from}); did you mean `{nearest}`?")]
    Unknown {
        /// As written.
        name: String,
        /// Where.
        from: Source,
        /// The closest known name.
        nearest: &'static str,
    },
    /// The value cannot be understood or is out of range.
    #[error("option `{option}` ({from}): `{value}` is not valid, expected {expected}")]
    BadValue {
        /// Which.
        option: &'static str,
        /// Where.
        from: Source,
        /// As written.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// A flag without its value.
    #[error("option `{option}` (command line) has no value, expected `--{option}=` {expected}")]
    NoValue {
        /// Which.
        option: &'static str,
        /// What would be right.
        expected: String,
    },
    /// What the value asks for does not exist here.
    #[error("option `{option}` ({from}): `{value}` is not in this version, which accepts only `{accepted}`")]
    NotInThisVersion {
        /// Which.
        option: &'static str,
        /// Where.
        from: Source,
        /// As written.
        value: String,
        /// What this version has.
        accepted: String,
    },
    /// The file itself.
    #[error("config file `{path}`: {problem}")]
    File {
        /// Which.
        path: String,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// Options that do not fit together; the text names them and what was expected.
    #[error("{0}")]
    Conflict(String),
}

/// Everything that is wrong, in the order in which it was found; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for error in &self.0 {
            writeln!(f, "error: {error}")?;
        }
        f.write_str("the configuration is not valid; `--help` lists every option")
    }
}

impl std::error::Error for ConfigErrors {}
