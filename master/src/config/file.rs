//! The configuration file: flat, YAML or JSON by its extension.

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use std::{fmt, path::Path};

/// Keys and values in file order, repeated keys included: a generic map would silently keep the last of them.
#[derive(Debug, Default)]
struct Pairs(Vec<(String, serde_json::Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("option names with their values, not nested")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Pairs, E> {
                Ok(Pairs::default())
            }
            fn visit_none<E: de::Error>(self) -> Result<Pairs, E> {
                Ok(Pairs::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_any(PairsVisitor)
    }
}

/// The options of a file as text, and what is wrong with it.
pub(super) fn parse(path: &str, text: &str) -> (Vec<(String, String)>, Vec<String>) {
    let extension = Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    let parsed = match extension.as_str() {
        "json" => serde_json::from_str::<Pairs>(text).map_err(|e| e.to_string()),
        "yaml" | "yml" => serde_yaml_ng::from_str::<Pairs>(text).map_err(|e| e.to_string()),
        _ => Err("expected a name that ends in .yaml, .yml or .json".to_owned()),
    };
    let pairs = match parsed {
        Ok(Pairs(pairs)) => pairs,
        Err(problem) => return (Vec::new(), vec![problem]),
    };
    let mut options: Vec<(String, String)> = Vec::new();
    let mut problems = Vec::new();
    for (key, value) in pairs {
        if options.iter().any(|(known, _)| *known == key) {
            problems.push(format!("key `{key}` is there twice, expected once"));
            continue;
        }
        match value {
            serde_json::Value::String(text) => options.push((key, text)),
            serde_json::Value::Bool(b) => options.push((key, b.to_string())),
            serde_json::Value::Number(n) => options.push((key, n.to_string())),
            serde_json::Value::Null => problems.push(format!("key `{key}` has no value")),
            serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
                problems.push(format!("key `{key}` has a nested value, expected a single one"));
            }
        }
    }
    (options, problems)
}
