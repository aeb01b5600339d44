//! One section of a report: what was measured, under what settings, and whether it is what was aimed for.

use serde::Serialize;
use serde_json::Value;

/// A measurement of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Its name, short.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What is measured and how, in a sentence or two.
    pub about: &'static str,
    /// What it was measured with.
    pub settings: Value,
    /// Samples of its main figure.
    pub n: usize,
    /// Everything that was found.
    pub figures: Value,
    /// What was aimed for.
    pub targets: Vec<Target>,
    /// Figures that belong here and were not measured, and why.
    pub not_measured: Vec<String>,
    /// Time it took, in seconds.
    pub took_s: f64,
    /// SVG, with captions.
    #[serde(skip)]
    pub(crate) plots: Vec<Plot>,
}

/// A plot and what it shows.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) caption: String,
    pub(crate) svg: String,
}

/// Something aimed for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// Which figure.
    pub figure: String,
    /// Which side of the limit is good.
    pub bound: Bound,
    /// The limit.
    pub limit: f64,
    /// What was measured; absent if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Whether it is met; absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

/// Which side of a limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The limit or less.
    AtMost,
    /// The limit or more.
    AtLeast,
}

impl Target {
    pub(crate) fn at_most(figure: impl Into<String>, limit: f64, value: Option<f64>) -> Self {
        let met = value.map(|value| value <= limit);
        Self { figure: figure.into(), bound: Bound::AtMost, limit, value, met }
    }

    pub(crate) fn at_least(figure: impl Into<String>, limit: f64, value: Option<f64>) -> Self {
        let met = value.map(|value| value >= limit);
        Self { figure: figure.into(), bound: Bound::AtLeast, limit, value, met }
    }

    /// A figure that is true or false: 1 is aimed for.
    pub(crate) fn holds(figure: impl Into<String>, value: Option<bool>) -> Self {
        Self::at_least(figure, 1.0, value.map(|value| if value { 1.0 } else { 0.0 }))
    }
}

impl Section {
    /// The targets whose figure was not measured join what else was not.
    pub(crate) fn note_missing(mut self) -> Self {
        for target in self.targets.iter().filter(|target| target.value.is_none()) {
            self.not_measured.push(format!("{}: too few samples, or nothing to sample", target.figure));
        }
        self
    }
}
