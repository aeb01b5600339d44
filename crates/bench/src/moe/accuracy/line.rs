//! A setting on a data set: how surprised it is, how often it is right, how often it answers as the exact model does.
//!
//! All comparisons are paired: of the same items, item by item.

use super::likelihood::{Answer, Said};
use super::statistics::{bootstrap, wilson};
use duet_moe::Dispatched;
use serde::Serialize;
use std::fmt;

/// What was measured of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Which way to compute experts.
    pub setting: String,
    /// The name of a file; `all` for those together.
    pub data: String,
    /// What experts' capacities were calibrated on.
    pub calibrated_on: String,
    /// Items.
    pub n: usize,
    /// Tokens of their contexts.
    pub tokens: usize,
    /// Of these tokens.
    pub perplexity: f64,
    /// Absent of the exact model.
    #[serde(flatten)]
    pub ratio: Option<PerplexityRatio>,
    /// Absent where nothing is asked.
    #[serde(flatten)]
    pub accuracy: Option<Accuracy>,
    /// Absent of the exact model, and where nothing is asked.
    #[serde(flatten)]
    pub agreement: Option<Agreement>,
    /// Absent of the exact model.
    #[serde(flatten)]
    pub capacity: Option<Capacity>,
}

/// The perplexity over the exact model's, with the interval that holds it in 95 of 100 samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerplexityRatio {
    /// One is the exact model's.
    pub perplexity_ratio: f64,
    /// Its interval's lower end.
    pub perplexity_ratio_low: f64,
    /// Its upper end.
    pub perplexity_ratio_high: f64,
}

/// How often the likeliest option is the right one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// Of items with a question.
    pub accuracy: f64,
    /// How often one that has not read would be right.
    pub chance: f64,
    /// Whether the exact model is right more often than that, by the interval of its accuracy. Where it is not, a
    /// difference of accuracies says nothing: only agreement and perplexity do.
    pub above_chance: bool,
}

/// Beside the exact model's answers, with intervals that hold each in 95 of 100 samples. Where no answer changed, the
/// bootstrap knows of no difference and its interval is a point: then agreement's says how little a few items tell, since
/// accuracies differ no more than answers do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// Accuracy less the exact model's.
    pub accuracy_difference: f64,
    /// Its interval's lower end.
    pub accuracy_difference_low: f64,
    /// Its upper end.
    pub accuracy_difference_high: f64,
    /// How often the exact model chooses the same option, right or wrong.
    pub agreement: f64,
    /// Its interval's lower end.
    pub agreement_low: f64,
    /// Its upper end.
    pub agreement_high: f64,
}

/// What became of the rows' experts while contexts were read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Capacity {
    /// Part of all places of rows at experts that nobody computed.
    pub dropped: f64,
    /// Part of all slots of launches that held no row.
    pub padding: f64,
    /// Part of all places that the CPU computed for want of room.
    pub spilled: f64,
    /// Of groups.
    pub launches: u64,
}

/// What a setting said of the items of a data set.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) said: Vec<Said>,
    pub(super) dispatched: Dispatched,
}

/// Where lines are of.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) data: String,
    pub(super) calibrated_on: String,
    /// None where nothing is asked.
    pub(super) chance: Option<f64>,
}

impl Outcome {
    /// Both together.
    pub(super) fn extend(&mut self, other: &Self) {
        self.said.extend_from_slice(&other.said);
        self.dispatched += other.dispatched;
    }

    fn positions(&self) -> usize {
        self.said.iter().map(|said| said.positions).sum()
    }

    fn answers(&self) -> Vec<Answer> {
        self.said.iter().filter_map(|said| said.answer).collect()
    }

    fn perplexity(&self) -> f64 {
        (self.said.iter().map(|said| said.surprise).sum::<f64>() / self.positions().max(1) as f64).exp()
    }
}

impl Line {
    /// The exact model's.
    pub(super) fn exact(source: &Source, exact: &Outcome) -> Self {
        Self {
            setting: "exact".to_owned(),
            data: source.data.clone(),
            calibrated_on: source.calibrated_on.clone(),
            n: exact.said.len(),
            tokens: exact.positions(),
            perplexity: exact.perplexity(),
            ratio: None,
            accuracy: accuracy(source, &exact.answers(), &exact.answers()),
            agreement: None,
            capacity: None,
        }
    }

    /// A setting's, which read the same items.
    pub(super) fn compared(setting: &str, source: &Source, exact: &Outcome, outcome: &Outcome) -> Self {
        let (expected, found) = (exact.answers(), outcome.answers());
        Self {
            setting: setting.to_owned(),
            perplexity: outcome.perplexity(),
            ratio: Some(ratio(&exact.said, &outcome.said)),
            accuracy: accuracy(source, &expected, &found),
            agreement: (!found.is_empty()).then(|| agreement(&expected, &found)),
            capacity: Some(capacity(&outcome.dispatched)),
            ..Self::exact(source, exact)
        }
    }
}

fn ratio(exact: &[Said], found: &[Said]) -> PerplexityRatio {
    let of = |items: &mut dyn Iterator<Item = usize>| {
        let (more, positions) = items.fold((0.0, 0), |(more, positions), item| {
            (more + found[item].surprise - exact[item].surprise, positions + found[item].positions)
        });
        (more / f64::from(u32::try_from(positions.max(1)).unwrap_or(u32::MAX))).exp()
    };
    let interval = bootstrap(found.len(), SEED, &|drawn| of(&mut drawn.iter().copied()));
    PerplexityRatio {
        perplexity_ratio: of(&mut (0..found.len())),
        perplexity_ratio_low: interval.low,
        perplexity_ratio_high: interval.high,
    }
}

fn accuracy(source: &Source, exact: &[Answer], found: &[Answer]) -> Option<Accuracy> {
    let chance = source.chance.filter(|_| !found.is_empty())?;
    let right = |answers: &[Answer]| answers.iter().filter(|answer| answer.right).count();
    let above_chance = wilson(right(exact), exact.len()).low > chance;
    Some(Accuracy { accuracy: right(found) as f64 / found.len() as f64, chance, above_chance })
}

fn agreement(exact: &[Answer], found: &[Answer]) -> Agreement {
    let n = found.len();
    let gained = |item: usize| f64::from(u8::from(found[item].right)) - f64::from(u8::from(exact[item].right));
    let difference = |drawn: &[usize]| drawn.iter().map(|&item| gained(item)).sum::<f64>() / n as f64;
    let interval = bootstrap(n, SEED, &difference);
    let same = exact.iter().zip(found).filter(|(exact, found)| exact.chosen == found.chosen).count();
    let agreement = wilson(same, n);
    Agreement {
        accuracy_difference: difference(&(0..n).collect::<Vec<_>>()),
        accuracy_difference_low: interval.low,
        accuracy_difference_high: interval.high,
        agreement: same as f64 / n as f64,
        agreement_low: agreement.low,
        agreement_high: agreement.high,
    }
}

fn capacity(dispatched: &Dispatched) -> Capacity {
    Capacity {
        dropped: dispatched.drop_rate(),
        padding: dispatched.padding(),
        spilled: dispatched.spill_rate(),
        launches: dispatched.launches,
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16} {:<44} {:>4} items, perplexity {:.3}", self.data, self.setting, self.n, self.perplexity)?;
        if let Some(PerplexityRatio { perplexity_ratio, perplexity_ratio_low, perplexity_ratio_high }) = self.ratio {
            write!(f, " ({perplexity_ratio:.4} x, {perplexity_ratio_low:.4} to {perplexity_ratio_high:.4})")?;
        }
        if let Some(Accuracy { accuracy, chance, above_chance }) = self.accuracy {
            write!(f, "; {:.1} % right", 100.0 * accuracy)?;
            if !above_chance {
                write!(f, " (the exact model is not above chance, {:.1} %)", 100.0 * chance)?;
            }
        }
        if let Some(agreement) = &self.agreement {
            write!(f, "; {agreement}")?;
        }
        if let Some(Capacity { dropped, padding, spilled, launches }) = self.capacity {
            let [dropped, padding, spilled] = [dropped, padding, spilled].map(|share| 100.0 * share);
            write!(f, "; dropped {dropped:.1} %, spilled {spilled:.1} %, padding {padding:.1} %, {launches} launches")?;
        }
        Ok(())
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [difference, low, high, same, same_low, same_high] = [
            self.accuracy_difference,
            self.accuracy_difference_low,
            self.accuracy_difference_high,
            self.agreement,
            self.agreement_low,
            self.agreement_high,
        ]
        .map(|share| 100.0 * share);
        write!(f, "difference {difference:+.1} points ({low:+.1} to {high:+.1}); ")?;
        write!(f, "same answer {same:.1} % ({same_low:.1} to {same_high:.1})")
    }
}

/// Of the bootstraps' draws.
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn said(surprise: f64, chosen: usize) -> Said {
        Said { surprise, positions: 10, answer: Some(Answer { chosen, right: chosen == 0 }) }
    }

    fn source() -> Source {
        Source { data: "quiz".to_owned(), calibrated_on: "other items".to_owned(), chance: Some(0.25) }
    }

    fn outcome(said: Vec<Said>) -> Outcome {
        Outcome {
            said,
            dispatched: Dispatched { packed: 30, slots: 40, dropped: 10, launches: 2, ..Default::default() },
        }
    }

    #[test]
    fn a_setting_is_compared_item_by_item() {
        let exact = outcome((0..20).map(|_| said(20.0, 0)).collect());
        let found = outcome((0..20).map(|item| said(20.0 + 10.0 * 2.0_f64.ln(), usize::from(item < 5))).collect());
        let line = Line::compared("pruned", &source(), &exact, &found);
        let ratio = line.ratio.unwrap();
        // All items lose alike, so the interval is a point.
        for found in [ratio.perplexity_ratio, ratio.perplexity_ratio_low, ratio.perplexity_ratio_high] {
            assert!((found - 2.0).abs() < 1e-9, "{found}");
        }
        assert!((line.perplexity - 2.0 * 2.0_f64.exp()).abs() < 1e-9);
        let (accuracy, agreement) = (line.accuracy.unwrap(), line.agreement.unwrap());
        assert!(accuracy.accuracy == 0.75 && accuracy.above_chance);
        assert!(agreement.accuracy_difference == -0.25 && agreement.agreement == 0.75);
        assert!(agreement.accuracy_difference_low < -0.25 && agreement.accuracy_difference_high < 0.0);
        let Capacity { dropped, padding, spilled, launches } = line.capacity.unwrap();
        assert_eq!((dropped, padding, spilled, launches), (0.25, 0.25, 0.0, 2));
    }

    #[test]
    fn what_was_not_measured_is_absent_and_chance_is_said() {
        let exact = outcome((0..20).map(|item| said(20.0, usize::from(item >= 6))).collect());
        let line = Line::exact(&source(), &exact);
        let json = serde_json::to_value(&line).unwrap();
        assert!(json.get("perplexity_ratio").is_none() && json.get("agreement").is_none(), "{json}");
        assert!(json["accuracy"] == 0.3 && json["above_chance"] == false && json["n"] == 20);
        assert!(line.to_string().contains("not above chance, 25.0 %"), "{line}");
        let silent = outcome(vec![Said { surprise: 1.0, positions: 1, answer: None }]);
        let json = serde_json::to_value(Line::compared("pruned", &source(), &silent, &silent)).unwrap();
        assert!(json.get("accuracy").is_none() && json["perplexity_ratio"] == 1.0 && json["dropped"] == 0.25, "{json}");
    }
}
