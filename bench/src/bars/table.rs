//! The table of bars, for a terminal and as Markdown.

use super::{
    results::Results,
    rows::{Choice, Row, Verdict},
};
use crate::report::{Spread, number};

const HEAD: [&str; 4] = ["figure", "bar", "measured: median (min … max)", "verdict"];

/// With aligned columns.
pub(super) fn text(results: &Results, rows: &[Row]) -> String {
    let cells: Vec<[String; 4]> = rows.iter().map(cells).collect();
    let head = HEAD.map(str::to_owned);
    let width = |column: usize| {
        let lengths = cells.iter().chain([&head]).map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let widths: [usize; 4] = std::array::from_fn(width);
    let line = |row: &[String; 4]| {
        let padded: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = about(results);
    lines.extend([&head].into_iter().chain(&cells).map(line));
    lines.join("\n")
}

/// As in the documentation.
pub(super) fn markdown(results: &Results, rows: &[Row]) -> String {
    let line = |row: [String; 4]| format!("| {} |", row.map(|cell| cell.replace('|', "\\|")).join(" | "));
    let mut lines = about(results);
    lines.push(String::new());
    lines.push(line(HEAD.map(str::to_owned)));
    lines.push("|---|---|---|---|".into());
    lines.extend(rows.iter().map(|row| line(cells(row))));
    lines.join("\n") + "\n"
}

fn about(results: &Results) -> Vec<String> {
    let known = [&results.machine, &results.note].into_iter().filter(|text| !text.is_empty());
    let known: Vec<String> = known.cloned().collect();
    if known.is_empty() { known } else { vec![known.join("; ")] }
}

fn cells(row: &Row) -> [String; 4] {
    let each = |of: fn(&Choice) -> String| row.choices.iter().map(of).collect::<Vec<_>>().join(", or ");
    let met = row.choices.iter().find(|choice| matches!(choice.verdict(), Verdict::Met(..)));
    let verdict = match met {
        Some(choice) if row.choices.len() > 1 => format!("{} ({})", verdict(choice), choice.unit),
        Some(choice) => verdict(choice),
        None => row.choices.iter().map(verdict).collect::<Vec<_>>().join(", "),
    };
    [row.figure.clone(), each(bar), each(measured), verdict]
}

fn bar(choice: &Choice) -> String {
    format!("{} {} {}", if choice.least { '≥' } else { '≤' }, plain(choice.bound), choice.unit)
}

fn measured(choice: &Choice) -> String {
    let made_of = if choice.made_of.is_empty() { String::new() } else { format!(" [{}]", choice.made_of) };
    match choice.spread() {
        None => "-".into(),
        Some(Spread { count: 1, median, .. }) => format!("{}{made_of}", number(median)),
        Some(Spread { min, median, max, .. }) => {
            format!("{} ({} … {}){made_of}", number(median), number(min), number(max))
        }
    }
}

fn verdict(choice: &Choice) -> String {
    let by = |share: f64| if choice.bound == 0.0 { number(share) } else { format!("{:.0} %", share * 100.0) };
    match choice.verdict() {
        Verdict::NotMeasured => "not measured".into(),
        Verdict::Met(0.0, _) => "met".into(),
        Verdict::Met(share, true) => format!("met by {}", by(share)),
        Verdict::Met(share, false) => format!("met by {}, not in every round", by(share)),
        Verdict::Missed(share) => format!("NOT met, by {}", by(share)),
    }
}

/// A bound as it was written.
fn plain(value: f64) -> String {
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::rows;

    #[test]
    fn a_line_says_figure_bar_values_and_verdict() {
        let lines = [
            r#"{"kind":"run","machine":"a machine","note":"today"}"#,
            r#"{"kind":"start","target":"ours","round":0,"serving_ms":4.0,"idle_rss_mb":15.0}"#,
            r#"{"kind":"start","target":"ours","round":1,"serving_ms":5.0,"idle_rss_mb":15.0}"#,
            r#"{"kind":"start","target":"ours","round":2,"serving_ms":12.0,"idle_rss_mb":15.0}"#,
        ];
        let results = Results::parse(&lines.join("\n")).unwrap();
        let rows = rows::all(&results);
        let (text, markdown) = (text(&results, &rows), markdown(&results, &rows));
        assert!(text.starts_with("a machine; today\nfigure "), "{text}");
        let serving = "| start to serving | ≤ 10 ms | 5.00 (4.00 … 12.0) | met by 50 %, not in every round |";
        assert!(markdown.contains(serving), "{markdown}");
        assert!(markdown.contains("| ≤ 12 MB | 15.0 (15.0 … 15.0) | NOT met, by 25 % |"), "{markdown}");
        assert!(
            markdown.contains(
                "| ≤ 0.6 × C++, or ≤ 1.3 × the epoll floor | -, or - | not measured, not measured |"
            )
        );
    }
}
