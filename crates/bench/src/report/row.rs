//! One figure of the report: what the paper says, what was predicted, and how far the two are apart.

use super::outcome::{Estimate, Outcome};
use super::readings::{drain, utilisation};
use duet_scheduler::policy::PolicyName;
use serde_json::{Map, Value, json};

/// One line of `report.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    figure: &'static str,
    setting: String,
    quantity: String,
    unit: Unit,
    paper: Option<Paper>,
    aim: Option<Aim>,
    predicted: Option<Estimate>,
    n: usize,
    seeds: usize,
    baseline: Option<BaselineLoad>,
    note: Option<String>,
}

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Times something.
    Times,
    /// Per cent, or per cent of something more or less.
    Percent,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Requests a minute.
    PerMinute,
    /// A plain number of things.
    Count,
    /// Joules.
    Joules,
    /// Gigabytes, of 10⁹.
    Gigabytes,
}

/// What the paper says of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Paper {
    /// It is this.
    Is(f64),
    /// It lies in this range, from setting to setting.
    Between(f64, f64),
    /// It is this or less.
    AtMost(f64),
    /// It is this or more.
    AtLeast(f64),
}

/// What is aimed for where the paper says nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Aim {
    /// This or less.
    AtMost(f64),
    /// Less than this.
    Below(f64),
}

/// How loaded the baseline is that a reduction is against: without it a reduction says nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BaselineLoad {
    /// Share of the arrivals' time for which its lane was busy, in per cent.
    pub(crate) utilisation: f64,
    /// From the end of the arrivals to the end of its last request, in seconds.
    pub(crate) drain_s: f64,
}

impl Row {
    /// A figure whose value is not known yet.
    pub(crate) fn new(
        figure: &'static str,
        setting: impl Into<String>,
        quantity: impl Into<String>,
        unit: Unit,
    ) -> Self {
        Self {
            figure,
            setting: setting.into(),
            quantity: quantity.into(),
            unit,
            paper: None,
            aim: None,
            predicted: None,
            n: 0,
            seeds: 0,
            baseline: None,
            note: None,
        }
    }

    /// What the paper says.
    pub(crate) fn paper(self, paper: Paper) -> Self {
        Self { paper: Some(paper), ..self }
    }

    /// What is aimed for.
    pub(crate) fn aim(self, aim: Aim) -> Self {
        Self { aim: Some(aim), ..self }
    }

    /// What the simulation says, of these requests.
    pub(crate) fn predicted(self, predicted: Option<Estimate>, of: &Outcome) -> Self {
        Self { predicted, n: of.n(), seeds: of.seed_count(), ..self }
    }

    /// What was computed from `n` requests. Its spread is that over what is uncertain.
    pub(crate) fn computed(self, predicted: Option<Estimate>, n: usize) -> Self {
        Self { predicted, n, ..self }
    }

    /// How loaded the baseline was.
    pub(crate) fn against(self, policy: PolicyName, baseline: &Outcome) -> Self {
        Self { baseline: BaselineLoad::of(policy, baseline), ..self }
    }

    /// Something to know.
    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }

    /// Which figure of the paper.
    #[must_use]
    pub fn figure(&self) -> &str {
        self.figure
    }

    /// Of what.
    #[must_use]
    pub fn setting(&self) -> &str {
        &self.setting
    }

    /// What of it.
    #[must_use]
    pub fn quantity(&self) -> &str {
        &self.quantity
    }

    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }

    pub(crate) fn told(&self) -> Option<Paper> {
        self.paper
    }

    pub(crate) fn aimed(&self) -> Option<Aim> {
        self.aim
    }

    pub(crate) fn estimate(&self) -> Option<Estimate> {
        self.predicted
    }

    pub(crate) fn baseline(&self) -> Option<BaselineLoad> {
        self.baseline
    }

    pub(crate) fn noted(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// How far the prediction lies from what the paper says, in the row's unit: 0 within its range. Absent if one of them
    /// is.
    #[must_use]
    pub fn deviation(&self) -> Option<f64> {
        Some(self.paper?.deviation(self.predicted?.value))
    }

    /// Whether there is something to hold the prediction against.
    #[must_use]
    pub fn is_compared(&self) -> bool {
        self.paper.is_some() || self.aim.is_some()
    }

    /// As an object; what is not known is not in it.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        put("figure", Some(json!(self.figure)));
        put("setting", Some(json!(self.setting)));
        put("quantity", Some(json!(self.quantity)));
        put("unit", Some(json!(self.unit.name())));
        put("paper", self.paper.map(Paper::json));
        put("paper_is", self.paper.map(|paper| json!(paper.kind())));
        if let Some(aim) = self.aim {
            put(aim.name(), Some(json!(aim.limit())));
        }
        put("predicted", self.predicted.map(|estimate| rounded(estimate.value)));
        put("low", self.predicted.map(|estimate| rounded(estimate.low)));
        put("high", self.predicted.map(|estimate| rounded(estimate.high)));
        put("deviation", self.deviation().map(rounded));
        put("seeds", (self.seeds > 0).then(|| json!(self.seeds)));
        put("n", Some(json!(self.n)));
        put("baseline_utilisation_pct", self.baseline.map(|load| rounded(load.utilisation)));
        put("baseline_drain_s", self.baseline.map(|load| rounded(load.drain_s)));
        put("note", self.note.as_ref().map(|note| json!(note)));
        Value::Object(fields)
    }
}

impl Unit {
    /// After a number.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Times => " ×",
            Self::Percent => " %",
            Self::Seconds => " s",
            Self::Milliseconds => " ms",
            Self::PerMinute => " a minute",
            Self::Count => "",
            Self::Joules => " J",
            Self::Gigabytes => " GB",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Times => "ratio",
            Self::Percent => "percent",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::PerMinute => "per_minute",
            Self::Count => "count",
            Self::Joules => "J",
            Self::Gigabytes => "GB",
        }
    }
}

impl Paper {
    /// How far a figure lies outside.
    fn deviation(self, predicted: f64) -> f64 {
        let (low, high) = match self {
            Self::Is(value) => (value, value),
            Self::Between(low, high) => (low, high),
            Self::AtMost(high) => (f64::NEG_INFINITY, high),
            Self::AtLeast(low) => (low, f64::INFINITY),
        };
        if predicted < low { predicted - low } else { (predicted - high).max(0.0) }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Is(_) => "value",
            Self::Between(..) => "range",
            Self::AtMost(_) => "at_most",
            Self::AtLeast(_) => "at_least",
        }
    }

    fn json(self) -> Value {
        match self {
            Self::Is(value) | Self::AtMost(value) | Self::AtLeast(value) => json!(value),
            Self::Between(low, high) => json!([low, high]),
        }
    }
}

impl Aim {
    fn name(self) -> &'static str {
        match self {
            Self::AtMost(_) => "aim_at_most",
            Self::Below(_) => "aim_below",
        }
    }

    /// The limit.
    pub(crate) fn limit(self) -> f64 {
        match self {
            Self::AtMost(limit) | Self::Below(limit) => limit,
        }
    }

    /// Whether it is met.
    pub(crate) fn met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::Below(limit) => value < limit,
        }
    }
}

impl BaselineLoad {
    fn of(policy: PolicyName, baseline: &Outcome) -> Option<Self> {
        let utilisation = baseline.read(utilisation(policy))?.value;
        Some(Self { utilisation, drain_s: baseline.read(drain)?.value })
    }
}

/// Six digits: more are noise to those who read them.
fn rounded(value: f64) -> Value {
    let digits = format!("{value:.5e}").parse().unwrap_or(value);
    json!(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(paper: Paper, value: f64) -> Row {
        let predicted = Some(Estimate { value, low: value - 1.0, high: value + 1.0 });
        Row { predicted, n: 7, seeds: 2, ..Row::new("Fig. 11", "3B", "mean", Unit::Percent).paper(paper) }
    }

    #[test]
    fn a_deviation_is_the_distance_from_what_the_paper_says() {
        assert_eq!(row(Paper::Is(-90.0), -40.0).deviation(), Some(50.0));
        assert_eq!(row(Paper::Between(1.2, 2.4), 1.5).deviation(), Some(0.0));
        assert_eq!(row(Paper::Between(1.0, 2.0), 0.5).deviation(), Some(-0.5));
        assert_eq!(row(Paper::Between(1.0, 2.0), 2.5).deviation(), Some(0.5));
        assert_eq!(row(Paper::AtMost(100.0), 120.0).deviation(), Some(20.0));
        assert_eq!(row(Paper::AtMost(100.0), 20.0).deviation(), Some(0.0));
        assert_eq!(row(Paper::AtLeast(6.0), 4.5).deviation(), Some(-1.5));
        assert_eq!(row(Paper::AtLeast(6.0), 7.0).deviation(), Some(0.0));
    }

    #[test]
    fn what_is_not_known_is_not_in_the_object() {
        let json = row(Paper::Between(1.0, 2.0), 2.123_456_789).json();
        assert_eq!(
            json.to_string(),
            r#"{"figure":"Fig. 11","setting":"3B","quantity":"mean","unit":"percent","paper":[1.0,2.0],"paper_is":"range","predicted":2.12346,"low":1.12346,"high":3.12346,"deviation":0.123457,"seeds":2,"n":7}"#
        );
        let bare = Row::new("Fig. 11", "3B", "mean", Unit::Times).json();
        assert!(bare.get("paper").is_none() && bare.get("predicted").is_none() && bare.get("deviation").is_none());
    }
}
