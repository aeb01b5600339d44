//! Plots as SVG, small enough to be read as source.
//!
//! One frame with two axes, and in it lines, steps or bars. Colours are told apart by those who cannot tell red from
//! green; text takes the page's colour.

use crate::html::escape;
use std::fmt::Write;

/// A curve and its name.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) mark: Mark,
}

/// How a point is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Not at all, only the line through it.
    None,
    /// A dot.
    Dot,
    /// A ring: this one means something else.
    Ring,
}

/// How an axis is divided.
#[derive(Clone, Debug)]
pub(crate) enum Axis {
    /// Evenly, from zero.
    Linear {
        /// What it shows.
        label: &'static str,
    },
    /// By factors.
    Log {
        /// What it shows.
        label: &'static str,
    },
    /// Names, at 0, 1, 2...
    Names {
        /// What it shows.
        label: &'static str,
        /// In their order.
        names: Vec<String>,
    },
}

/// Lines through points. Empty series are left out; `None` where nothing is left.
pub(crate) fn lines(x: &Axis, y: &Axis, series: &[Series]) -> Option<String> {
    let all = || series.iter().flat_map(|series| &series.points).filter(|point| y.holds(point.y) && x.holds(point.x));
    let x = x.scale(all().map(|point| point.x), LEFT, WIDTH - RIGHT)?;
    let y = y.scale(all().map(|point| point.y), HEIGHT - BOTTOM, TOP)?;
    let mut svg = frame(&x, &y);
    let named = series.iter().filter(|series| !series.points.is_empty());
    for (index, series) in named.enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points: Vec<_> = series.points.iter().filter(|point| y.axis.holds(point.y)).collect();
        let place = |point: &&Point| format!("{:.1},{:.1}", x.at(point.x), y.at(point.y));
        let path = points.iter().map(place).collect::<Vec<_>>().join(" ");
        let _ = writeln!(svg, r#"<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>"#);
        for point in points.iter().filter(|point| point.mark != Mark::None) {
            let fill = if point.mark == Mark::Ring { "var(--paper)" } else { colour };
            let (x, y) = (x.at(point.x), y.at(point.y));
            let _ = writeln!(
                svg,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="4.5" fill="{fill}" stroke="{colour}" stroke-width="2"/>"#
            );
        }
        svg += &legend(index, colour, &series.name);
    }
    Some(svg + "</svg>\n")
}

/// A bar of parts that add up.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// One for each part that the drawing names.
    pub(crate) parts: Vec<f64>,
}

/// Bars that stand side by side, each a stack of the same parts. `None` if all of them are empty.
pub(crate) fn bars(label: &'static str, parts: &[&str], bars: &[Bar]) -> Option<String> {
    let tallest = bars.iter().map(|bar| bar.parts.iter().sum()).fold(0.0, f64::max);
    if tallest <= 0.0 {
        return None;
    }
    let x = Axis::Names { label: "", names: bars.iter().map(|bar| bar.name.clone()).collect() };
    let y = Axis::Linear { label };
    let x = x.scale([0.0].into_iter(), LEFT, WIDTH - RIGHT)?;
    let y = y.scale([tallest].into_iter(), HEIGHT - BOTTOM, TOP)?;
    let mut svg = frame(&x, &y);
    for (index, bar) in bars.iter().enumerate() {
        let (left, right) = (x.at(index as f64 - 0.25), x.at(index as f64 + 0.25));
        let mut below = 0.0;
        for (part, colour) in bar.parts.iter().zip(COLOURS) {
            let (bottom, top) = (y.at(below), y.at(below + part));
            below += part;
            let _ = writeln!(
                svg,
                r#"<rect x="{left:.1}" y="{top:.1}" width="{:.1}" height="{:.1}" fill="{colour}"/>"#,
                right - left,
                bottom - top
            );
        }
    }
    for (index, (name, colour)) in parts.iter().zip(COLOURS).enumerate() {
        svg += &legend(index, colour, name);
    }
    Some(svg + "</svg>\n")
}

/// The share of `values` that is at most x, as a step.
pub(crate) fn cumulative(name: impl Into<String>, values: &[f64]) -> Series {
    let n = values.len() as f64;
    let mut points = Vec::with_capacity(values.len() * 2);
    for (index, &value) in values.iter().enumerate() {
        for rank in [index, index + 1] {
            points.push(Point { x: value, y: rank as f64 / n, mark: Mark::None });
        }
    }
    Series { name: name.into(), points }
}

/// How many of `values` fall into each of some even bins, with a line at `limit`. `None` without values.
pub(crate) fn histogram(label: &'static str, values: &[f64], limit: f64) -> Option<String> {
    let most = values.iter().copied().fold(limit, f64::max);
    let (x, y) = (Axis::Linear { label }, Axis::Linear { label: "requests" });
    let x = x.scale([0.0, most].into_iter(), LEFT, WIDTH - RIGHT)?;
    let mut counts = [0_u32; BINS];
    for value in values {
        counts[((value / x.high * BINS as f64) as usize).min(BINS - 1)] += 1;
    }
    let tallest = f64::from(counts.iter().copied().max().filter(|&count| count > 0)?);
    let y = y.scale([tallest].into_iter(), HEIGHT - BOTTOM, TOP)?;
    let mut svg = frame(&x, &y);
    let width = x.high / BINS as f64;
    for (index, count) in counts.into_iter().enumerate() {
        let (left, right) = (x.at(index as f64 * width), x.at((index + 1) as f64 * width));
        let top = y.at(f64::from(count));
        let _ = writeln!(
            svg,
            r#"<rect x="{left:.1}" y="{top:.1}" width="{:.1}" height="{:.1}" fill="{}"/>"#,
            (right - left - 1.0).max(0.5),
            HEIGHT - BOTTOM - top,
            COLOURS[0]
        );
    }
    let at = x.at(limit);
    let _ = writeln!(
        svg,
        r#"<line x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{:.1}" stroke="{}" stroke-width="2" stroke-dasharray="4 3"/>"#,
        HEIGHT - BOTTOM,
        COLOURS[1]
    );
    Some(svg + "</svg>\n")
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;
const BINS: usize = 40;
/// Okabe and Ito's.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7a00"];

/// An axis and where its values are.
struct Scale<'a> {
    axis: &'a Axis,
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Axis {
    fn label(&self) -> &'static str {
        match self {
            Self::Linear { label } | Self::Log { label } | Self::Names { label, .. } => label,
        }
    }

    fn holds(&self, value: f64) -> bool {
        value.is_finite() && (!matches!(self, Self::Log { .. }) || value > 0.0)
    }

    fn scale(&self, values: impl Iterator<Item = f64>, start: f64, end: f64) -> Option<Scale<'_>> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            return None;
        }
        let (low, high) = match self {
            Self::Linear { .. } => (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
            Self::Log { .. } => (low / 1.5, high * 1.5),
            Self::Names { names, .. } => (-0.3, names.len() as f64 - 0.7),
        };
        Some(Scale { axis: self, low, high, start, end })
    }
}

impl Scale<'_> {
    fn at(&self, value: f64) -> f64 {
        let share = match self.axis {
            Axis::Log { .. } => (value / self.low).ln() / (self.high / self.low).ln(),
            Axis::Linear { .. } | Axis::Names { .. } => (value - self.low) / (self.high - self.low),
        };
        self.start + share * (self.end - self.start)
    }

    fn ticks(&self) -> Vec<(f64, String)> {
        match self.axis {
            Axis::Names { names, .. } => {
                names.iter().enumerate().map(|(index, name)| (index as f64, name.clone())).collect()
            }
            Axis::Linear { .. } => {
                let step = round_step(self.high / 6.0);
                let count = (self.high / step) as usize;
                (0..=count).map(|index| index as f64 * step).map(|value| (value, shown(value))).collect()
            }
            Axis::Log { .. } => {
                let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
                let values = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(decade)));
                let within = values.filter(|&value| value >= self.low && value <= self.high);
                within.map(|value| (value, shown(value))).collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let decade = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|digit| digit * decade).into_iter().find(|&step| step >= least).unwrap_or(least)
}

fn shown(value: f64) -> String {
    // Sums of steps carry rounding errors that nobody wants to read.
    ((value * 1e6).round() / 1e6).to_string()
}

/// A line of the legend.
fn legend(index: usize, colour: &str, name: &str) -> String {
    let top = TOP + 16.0 * index as f64 + 4.0;
    format!(
        "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"12\" height=\"4\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
        WIDTH - RIGHT + 12.0,
        WIDTH - RIGHT + 30.0,
        top + 7.0,
        escape(name)
    )
}

fn frame(x: &Scale<'_>, y: &Scale<'_>) -> String {
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\n");
    let (left, right, top, bottom) = (LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM);
    for (value, text) in y.ticks() {
        let at = y.at(value);
        let _ = writeln!(
            svg,
            r#"<line x1="{left}" x2="{right}" y1="{at:.1}" y2="{at:.1}" class="grid"/><text x="{:.1}" y="{:.1}" text-anchor="end">{text}</text>"#,
            left - 6.0,
            at + 4.0
        );
    }
    for (value, text) in x.ticks() {
        let _ = writeln!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            x.at(value),
            bottom + 18.0,
            escape(&text)
        );
    }
    let _ = writeln!(
        svg,
        r#"<path d="M{left} {top}V{bottom}H{right}" fill="none" class="axis"/><text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text><text transform="translate(14 {:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
        (left + right) / 2.0,
        HEIGHT - 8.0,
        escape(x.axis.label()),
        (top + bottom) / 2.0,
        escape(y.axis.label())
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_where_their_values_say() {
        let axis = Axis::Log { label: "s" };
        let scale = axis.scale([1.0, 100.0].into_iter(), 0.0, 100.0).unwrap();
        assert!((scale.at(10.0) - 50.0).abs() < 1e-9);
        let ticks: Vec<_> = scale.ticks().into_iter().map(|(_, text)| text).collect();
        assert_eq!(ticks, ["1", "2", "5", "10", "20", "50", "100"]);
        let axis = Axis::Linear { label: "s" };
        let scale = axis.scale([10.0].into_iter(), 0.0, 105.0).unwrap();
        assert!((scale.at(5.0) - 50.0).abs() < 1e-9);
        assert_eq!(scale.ticks().last().unwrap().1, "10");
    }

    #[test]
    fn nothing_is_not_plotted() {
        let axis = Axis::Linear { label: "s" };
        assert!(lines(&axis, &axis, &[]).is_none());
        assert!(histogram("ms", &[], 10.0).is_none());
        let log = Axis::Log { label: "s" };
        let zero = Series { name: "x".into(), points: vec![Point { x: 1.0, y: 0.0, mark: Mark::Dot }] };
        assert!(lines(&axis, &log, &[zero]).is_none());
    }

    #[test]
    fn a_bar_is_as_high_as_its_parts_together() {
        let bar = |parts: &[f64]| Bar { name: "a & b".into(), parts: parts.into() };
        let svg = bars("s", &["one", "two"], &[bar(&[1.0, 3.0]), bar(&[2.0, 0.0])]).unwrap();
        let heights: Vec<f64> = svg
            .lines()
            .filter(|line| line.starts_with("<rect") && !line.contains("<text"))
            .map(|line| line.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        let [one, three, two, none] = heights[..] else { panic!("four parts: {svg}") };
        assert!((three / one - 3.0).abs() < 0.01 && (two / one - 2.0).abs() < 0.01 && none == 0.0, "{heights:?}");
        assert!(svg.contains("a &amp; b") && svg.contains(">two<"));
        assert!(bars("s", &["one"], &[bar(&[0.0])]).is_none());
    }

    #[test]
    fn a_cumulative_curve_ends_at_one() {
        let curve = cumulative("x", &[1.0, 2.0, 4.0]);
        assert_eq!(curve.points.last().unwrap().y, 1.0);
        assert_eq!(curve.points[0].y, 0.0);
        let axis = Axis::Linear { label: "s" };
        let svg = lines(&axis, &axis, &[curve]).unwrap();
        assert_eq!(svg.matches("<polyline").count(), 1);
    }

    #[test]
    fn names_cannot_break_the_page() {
        let point = Point { x: 0.0, y: 1.0, mark: Mark::Ring };
        let series = Series { name: "<b>&".into(), points: vec![point] };
        let names = Axis::Names { label: "load", names: vec!["3+6".into()] };
        let svg = lines(&names, &Axis::Log { label: "s" }, &[series]).unwrap();
        assert!(svg.contains("&lt;b&gt;&amp;") && svg.contains("3+6") && svg.contains("<circle"));
    }
}
