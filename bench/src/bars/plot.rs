//! How cost grows, drawn: server CPU per item over what was swept, both axes logarithmic.

use super::results::{Case, OURS, Results, THEIRS};
use crate::report::Spread;
use std::fmt::Write as _;

/// Sweeps as they are named in the results, the parameter that changes, and what the axis says.
const SWEEPS: [(&str, &str, &str); 4] = [
    ("keys", "keys", "keys that are there"),
    ("clients", "clients", "clients with a mounted segment"),
    ("connections", "connections", "busy connections"),
    ("batch", "batch", "keys of a batch"),
];
const OPS: [(&str, &str); 7] = [
    ("put", "Put"),
    ("get", "Get"),
    ("exist", "Exist"),
    ("ping", "Ping"),
    ("batchput", "BatchPut"),
    ("batchget", "BatchGet"),
    ("batchexist", "BatchExist"),
];
const COLOURS: [&str; 7] = ["#c0392b", "#2471a3", "#1e8449", "#7d3c98", "#c0392b", "#2471a3", "#1e8449"];

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// Of the area with the lines.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 540.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 360.0;

/// File names and drawings of the sweeps that were run.
pub(super) fn all(results: &Results) -> Vec<(String, String)> {
    let drawn = SWEEPS.iter().filter_map(|&(sweep, parameter, label)| {
        let lines = lines(results, sweep, parameter);
        (!lines.is_empty()).then(|| (format!("{sweep}.svg"), draw(label, &lines)))
    });
    drawn.collect()
}

struct Line {
    name: String,
    colour: &'static str,
    dashed: bool,
    points: Vec<(f64, f64)>,
}

fn lines(results: &Results, sweep: &'static str, parameter: &'static str) -> Vec<Line> {
    let mut lines = Vec::new();
    for ((op, name), colour) in OPS.into_iter().zip(COLOURS) {
        for (target, whose) in [(OURS, "this master"), (THEIRS, "C++")] {
            let case = Case::of("load").with("sweep", sweep).with("op", op);
            let points = results.distinct(&case, parameter).into_iter().filter_map(|x| {
                let case = case.clone().with(parameter, x);
                let values = results.values(target, &case, "server_cpu_us_per_item");
                Some((x as f64, Spread::of(values.into_values().collect())?.median))
            });
            let points: Vec<_> = points.filter(|(x, y)| *x > 0.0 && *y > 0.0).collect();
            if !points.is_empty() {
                lines.push(Line {
                    name: format!("{name}, {whose}"),
                    colour,
                    dashed: target == THEIRS,
                    points,
                });
            }
        }
    }
    lines
}

/// An axis from `least` to `most`, from one place to another.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Axis {
        let (least, most) = (values.clone().fold(f64::MAX, f64::min), values.fold(f64::MIN, f64::max));
        // Some room, so that no point lies on the frame and one point alone has a place.
        Axis { least: least / 1.25, most: most * 1.25, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value / self.least).ln() / (self.most / self.least).ln() * (self.to - self.from)
    }

    /// Round numbers within it: three a decade, or one if there are many decades.
    fn ticks(&self) -> Vec<f64> {
        let steps: &[f64] = if self.most / self.least > 1e4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = self.least.log10().floor() as i32..=self.most.log10().ceil() as i32;
        let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
        all.filter(|tick| (self.least..=self.most).contains(tick)).collect()
    }
}

fn draw(label: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let x = Axis::of(points().map(|(x, _)| x), LEFT, RIGHT);
    let y = Axis::of(points().map(|(_, y)| y), BOTTOM, TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">Server CPU per item, µs, over {label}</text>\n"
    );
    // Writing to a string does not fail.
    for tick in x.ticks() {
        let at = x.place(tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {TOP}V{BOTTOM}\" stroke=\"#ddd\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 18.0,
            short(tick)
        );
    }
    for tick in y.ticks() {
        let at = y.place(tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            short(tick)
        );
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" stroke=\"black\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
        f64::midpoint(LEFT, RIGHT),
        BOTTOM + 40.0
    );
    for (index, line) in lines.iter().enumerate() {
        let dash = if line.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let stroke = format!("fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{dash}", line.colour);
        let at: Vec<String> = line
            .points
            .iter()
            .map(|&(of_x, of_y)| format!("{:.1} {:.1}", x.place(of_x), y.place(of_y)))
            .collect();
        let _ = writeln!(svg, "<path d=\"M{}\" {stroke}/>", at.join("L"));
        for &(of_x, of_y) in &line.points {
            let (cx, cy) = (x.place(of_x), y.place(of_y));
            let _ = writeln!(svg, "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\" fill=\"{}\"/>", line.colour);
        }
        let (left, at) = (RIGHT + 16.0, TOP + 10.0 + 20.0 * index as f64);
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {at}h24\" {stroke}/><text x=\"{}\" y=\"{}\">{}</text>",
            left + 30.0,
            at + 4.0,
            line.name
        );
    }
    svg + "</svg>\n"
}

/// A tick's number.
fn short(value: f64) -> String {
    match value {
        1e6.. => format!("{} M", value / 1e6),
        1e3.. => format!("{} k", value / 1e3),
        // Powers of ten below 1 are not exact.
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_drawn_with_its_points_in_place() {
        let line = |target, clients, cpu| {
            format!(
                r#"{{"kind":"load","target":"{target}","round":0,"op":"put","sweep":"clients","clients":{clients},"server_cpu_us_per_item":{cpu}}}"#
            )
        };
        let text = [
            line("ours", 1, 10.0),
            line("ours", 100, 10.0),
            line("theirs", 1, 20.0),
            line("theirs", 100, 40.0),
        ];
        let drawn = all(&Results::parse(&text.join("\n")).unwrap());
        let [(name, svg)] = &drawn[..] else { panic!("{} plots", drawn.len()) };
        assert_eq!(name, "clients.svg");
        assert!(svg.contains("Put, this master") && svg.contains("stroke-dasharray"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 4);
        let axis = Axis { least: 1.0, most: 100.0, from: 0.0, to: 10.0 };
        assert!((axis.place(10.0) - 5.0).abs() < 1e-9);
        assert_eq!(axis.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!((short(0.2), short(20_000.0), short(5e6)), ("0.2".into(), "20 k".into(), "5 M".into()));
    }
}
