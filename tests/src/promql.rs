//! Which metrics an expression of Prometheus is about.

use regex::Regex;
use std::collections::BTreeSet;

/// Words that are neither metrics nor functions.
const KEYWORDS: &[&str] = &["and", "or", "unless", "bool", "offset", "inf", "nan"];

/// The metrics of an expression: each word that is no keyword, no function, no duration and no label.
///
/// # Panics
/// Never: the patterns are constant.
pub fn metric_names(expression: &str) -> BTreeSet<String> {
    let pattern = |text: &str| Regex::new(text).expect("a constant pattern");
    // In this order: a string may hold braces, a selector words.
    let comments = pattern(r"(?m)#.*$");
    let strings = pattern(r#""(\\.|[^"\\])*"|'(\\.|[^'\\])*'"#);
    let selectors = pattern(r"\{[^}]*\}|\[[^\]]*\]");
    let labels = pattern(r"\b(by|without|on|ignoring|group_left|group_right)\s*(\([^)]*\))?");
    let functions = pattern(r"\b[a-zA-Z_]\w*\s*\(");
    let mut rest = expression.to_owned();
    for removed in [strings, comments, selectors, labels, functions] {
        rest = removed.replace_all(&rest, " ").into_owned();
    }
    let word = pattern(r"(^|[^\w:.])([a-zA-Z_:][\w:]*)");
    word.captures_iter(&rest)
        .map(|found| found[2].to_owned())
        .filter(|name| !KEYWORDS.contains(&name.to_lowercase().as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(expression: &str) -> Vec<String> {
        metric_names(expression).into_iter().collect()
    }

    #[test]
    fn only_metrics_are_found() {
        assert_eq!(names("up == 1"), ["up"]);
        assert_eq!(names("sum by (a, b) (rate(x_total{c=\"d}e\", f=~'g'}[5m])) > 1e3 # h"), ["x_total"]);
        assert_eq!(
            names("max(a) by (n) == 0 or\nsum without(x)(b:c) unless on (n) group_left (l) d offset 5m"),
            ["a", "b:c", "d"]
        );
        assert_eq!(names("histogram_quantile(0.99, sum by (le) (rate(l_bucket[1m])))"), ["l_bucket"]);
        assert_eq!(names("absent(x == 1) and 5"), ["x"]);
        assert_eq!(names("a/b"), ["a", "b"]);
    }
}
