//! Values: from text, to JSON and back to text.

use super::option::{Kind, Spec, Unit};
use std::{fmt, net::IpAddr, time::Duration};

/// A parsed value.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Value {
    Bool(bool),
    Count(u64),
    Signed(i64),
    Number(f64),
    Duration(Duration),
    Address(IpAddr),
    Text(String),
}

impl Kind {
    /// What a value of this kind looks like, for messages.
    pub fn expected(self) -> String {
        match self {
            Kind::Bool => "true or false".to_owned(),
            Kind::Count { min, max: u64::MAX } => format!("a whole number, at least {min}"),
            Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Number { min, max } => format!("a number from {min} to {max}"),
            Kind::Signed => "a whole number".to_owned(),
            Kind::Duration { unit, min } => {
                let least = if min == 0 { "0 or more".to_owned() } else { format!("at least {min}") };
                format!(
                    "a whole number of {unit} ({least}), or one with the unit ms, s, m or h",
                    unit = unit.name()
                )
            }
            Kind::Bytes { min, max } => {
                let most = if max == u64::MAX { String::new() } else { format!(" and at most {max}") };
                format!("a number of bytes (at least {min}{most}), or one with the unit Ki, Mi, Gi or Ti")
            }
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Address => "an IPv4 or IPv6 address".to_owned(),
            Kind::Text => "text".to_owned(),
        }
    }

    /// The value that `text` stands for; None if it stands for none of this kind.
    pub fn parse(self, text: &str) -> Option<Value> {
        match self {
            Kind::Bool => parse_bool(text).map(Value::Bool),
            Kind::Count { min, max } => {
                parse_whole(text).filter(|n| (min..=max).contains(n)).map(Value::Count)
            }
            Kind::Number { min, max } => {
                text.parse::<f64>().ok().filter(|n| (min..=max).contains(n)).map(Value::Number)
            }
            Kind::Signed => text.parse::<i64>().ok().map(Value::Signed),
            Kind::Duration { unit, min } => {
                let time = parse_duration(text, unit)?;
                (time >= Duration::from_millis(min * unit.millis())).then_some(Value::Duration(time))
            }
            Kind::Bytes { min, max } => {
                parse_bytes(text).filter(|n| (min..=max).contains(n)).map(Value::Count)
            }
            Kind::Choice(words) => words.contains(&text).then(|| Value::Text(text.to_owned())),
            Kind::Address => {
                let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
                bare.parse().ok().map(Value::Address)
            }
            Kind::Text => Some(Value::Text(text.to_owned())),
        }
    }
}

impl Spec {
    /// The default as a value.
    pub fn default_value(&self) -> Value {
        // A test parses the default of every row of the table.
        self.kind.parse(self.default).unwrap_or_else(|| unreachable!("default of {}", self.name))
    }
}

impl Value {
    /// As JSON that the configuration file understands: a time is a number in the option's unit where it is whole in it.
    pub fn to_json(&self, kind: Kind) -> serde_json::Value {
        match self {
            Value::Bool(b) => (*b).into(),
            Value::Count(n) => (*n).into(),
            Value::Signed(n) => (*n).into(),
            Value::Number(n) => (*n).into(),
            Value::Address(a) => a.to_string().into(),
            Value::Text(t) => t.as_str().into(),
            Value::Duration(d) => {
                let millis = d.as_millis() as u64;
                let unit = if let Kind::Duration { unit, .. } = kind { unit } else { Unit::Millis };
                if millis.is_multiple_of(unit.millis()) {
                    (millis / unit.millis()).into()
                } else {
                    format!("{millis}ms").into()
                }
            }
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(b) => write!(f, "{b}"),
            Value::Count(n) => write!(f, "{n}"),
            Value::Signed(n) => write!(f, "{n}"),
            Value::Number(n) => write!(f, "{n}"),
            Value::Duration(d) => write!(f, "{d:?}"),
            Value::Address(a) => write!(f, "{a}"),
            Value::Text(t) => f.write_str(t),
        }
    }
}

/// The words that gflags takes, in any case.
fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "1" => Some(true),
        "false" | "f" | "no" | "n" | "0" => Some(false),
        _ => None,
    }
}

/// Decimal, or hexadecimal after `0x` as gflags takes it; no sign.
fn parse_whole(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return hex.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u64::from_str_radix(hex, 16).ok())?;
    }
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The leading digits and what follows them.
fn split_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

fn parse_duration(text: &str, unit: Unit) -> Option<Duration> {
    let (number, suffix) = split_unit(text)?;
    let factor = match suffix {
        "" => unit.millis(),
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(factor).map(Duration::from_millis)
}

fn parse_bytes(text: &str) -> Option<u64> {
    if let Some(plain) = parse_whole(text) {
        return Some(plain);
    }
    let (number, suffix) = split_unit(text)?;
    let shift = match suffix.strip_suffix('B').unwrap_or(suffix) {
        "Ki" => 10,
        "Mi" => 20,
        "Gi" => 30,
        "Ti" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}
