//! A constant of a profile: a figure, how far it may be off, and who says so.

use serde::Deserialize;

/// A figure with its source. Without an interval it is taken as certain.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The figure, in the unit that its name ends with.
    pub value: f64,
    /// The lowest that the sources allow.
    pub low: Option<f64>,
    /// The highest that they allow.
    pub high: Option<f64>,
    /// Where it comes from: a page of a paper, a vendor, a measurement, or an estimate that says it is one.
    pub source: String,
}

impl Constant {
    /// Its interval, if it is uncertain.
    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        let (low, high) = (self.low.unwrap_or(self.value), self.high.unwrap_or(self.value));
        (low < high).then_some((low, high))
    }

    /// What is wrong with it, if anything: `least` is the smallest figure that means something.
    pub(crate) fn problem(&self, least: Least) -> Option<String> {
        let (low, high) = (self.low.unwrap_or(self.value), self.high.unwrap_or(self.value));
        let fits = |figure: f64| match least {
            Least::Zero => figure >= 0.0,
            Least::Positive => figure > 0.0,
        };
        if ![low, self.value, high].into_iter().all(|figure| figure.is_finite() && fits(figure)) {
            let bound = if least == Least::Positive { "greater than zero" } else { "zero or greater" };
            return Some(format!("must be {bound}, and is {}", self.value));
        }
        if low > self.value || high < self.value {
            return Some(format!("{} lies outside its own interval, {low} to {high}", self.value));
        }
        self.source.trim().is_empty().then(|| "has no source".to_owned())
    }
}

/// The smallest figure that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Least {
    Zero,
    Positive,
}
