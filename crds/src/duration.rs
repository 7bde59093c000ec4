//! Durations as users of Kubernetes write them: `5s`, `1m30s`, `500ms`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, time::Duration};

/// What the API server accepts: unsigned, decimal, units `ms`, `s`, `m` and `h`.
pub(crate) const PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$";
/// Longest accepted text, in characters.
pub(crate) const MAX_LENGTH: usize = 16;

/// A duration in Go's notation, kept as it was written.
///
/// It is parsed when it is used, not when it is read: one malformed resource must not keep an operator from reading
/// all the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GoDuration(pub String);

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationError {
    text: String,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a duration: expected a number and a unit (ms, s, m, h), such as 5s or 1m30s",
            self.text
        )
    }
}

impl std::error::Error for DurationError {}

impl GoDuration {
    /// The value. Fails for a missing or unknown unit, a sign, an empty text, and more than 24 000 hours.
    pub fn parse(&self) -> Result<Duration, DurationError> {
        parse_nanos(&self.0).map(Duration::from_nanos).ok_or_else(|| DurationError { text: self.0.clone() })
    }

    /// Of a text that parses: no part is finer than a millisecond, and none is written as if it could be. At most
    /// three digits follow a point, and none in a number of milliseconds.
    pub(crate) fn is_written_in_millis(&self) -> bool {
        self.0.split('.').skip(1).all(|after| {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            digits <= 3 && !after[digits..].starts_with("ms")
        })
    }
}

/// Largest value in hours; far above every sensible setting and far below what overflows a nanosecond count.
const MAX_HOURS: u64 = 24_000;

fn parse_nanos(text: &str) -> Option<u64> {
    if text.is_empty() || text.len() > MAX_LENGTH {
        return None;
    }
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let nanos_per_unit: u64 = match unit {
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = match number.split_once('.') {
            Some((_, "")) => return None,
            Some((whole, fraction)) => (whole, fraction),
            None => (number, ""),
        };
        let whole: u64 = whole.parse().ok()?;
        let mut nanos = whole.checked_mul(nanos_per_unit)?;
        let mut digit_value = nanos_per_unit;
        for digit in fraction.bytes() {
            digit_value /= 10;
            nanos =
                nanos.checked_add(u64::from(digit.checked_sub(b'0').filter(|d| *d <= 9)?) * digit_value)?;
        }
        total = total.checked_add(nanos)?;
        rest = after;
    }
    (total <= MAX_HOURS * 3_600_000_000_000).then_some(total)
}

impl From<&str> for GoDuration {
    fn from(text: &str) -> Self {
        GoDuration(text.to_owned())
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN, "maxLength": MAX_LENGTH })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("5s", 5_000_000_000_u64),
            ("500ms", 500_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5s", 1_500_000_000),
            ("0.25ms", 250_000),
            ("2h", 7_200_000_000_000),
            ("0s", 0),
        ] {
            assert_eq!(GoDuration::from(text).parse(), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn milliseconds_are_told_from_finer_parts() {
        for text in ["5s", "500ms", "1m30s", "1.5s", "0.001s", "1.125m", "1.5s20ms", "1m1.5s"] {
            assert!(GoDuration::from(text).is_written_in_millis(), "{text}");
        }
        for text in ["0.5ms", "1.0005s", "1s0.5ms", "1.5s20.5ms", "100.9ms1s"] {
            assert!(!GoDuration::from(text).is_written_in_millis(), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_with_a_sentence() {
        for text in [
            "",
            "5",
            "5 s",
            "-5s",
            "+5s",
            "5d",
            "s",
            "1.s",
            ".5s",
            "1..5s",
            "99999999999h",
            "5s ",
            "1e3s",
            "٣s",
        ] {
            let error = GoDuration::from(text).parse().expect_err(text);
            assert!(error.to_string().contains("such as 5s"), "{error}");
        }
    }
}
