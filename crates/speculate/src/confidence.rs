//! How far to trust the drafters: they compete, and what is learned is which evidence comes true. (Ours)
//!
//! A candidate's chance is a logistic mix of what each drafter says of it, silence included. Every token of the answer is
//! a trial of all candidates that there were, whether they were drafted or not, so nothing has to be drafted to be
//! learned about. A request begins with what earlier ones taught, and its own trials weigh as if those had been few.

use crate::draft_model;
use crate::drafter::{EVIDENCE, Evidence, Kind};

/// What each drafter said of a candidate; silence is `Evidence(0)`.
pub type Opinions = [Evidence; Kind::ALL.len()];

/// Learned weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Confidence {
    bias: f32,
    /// Of the places that a draft model spoke of, the share where the likeliest token came.
    told: Weight,
    weights: [[Weight; EVIDENCE]; Kind::ALL.len()],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Weight {
    value: f32,
    trials: f32,
}

impl Default for Confidence {
    /// Nothing is known, but that a draft model means what it says.
    fn default() -> Self {
        let mut weights = [[Weight::default(); EVIDENCE]; Kind::ALL.len()];
        for (evidence, weight) in (0..).map(Evidence).zip(&mut weights[Kind::Model as usize]) {
            if let Some(chance) = draft_model::chance_at_first(evidence) {
                *weight = Weight { value: (chance / (1.0 - chance)).ln() - BIAS, trials: TRIALS_FIRST };
            }
        }
        Self { bias: BIAS, told: Weight { value: TOLD_FIRST, trials: TRIALS_FIRST }, weights }
    }
}

impl Confidence {
    /// The chance that a candidate is right.
    #[must_use]
    pub fn chance(&self, opinions: &Opinions) -> f32 {
        let sum = opinions
            .iter()
            .zip(&self.weights)
            .fold(self.bias, |sum, (evidence, weights)| sum + weights[usize::from(evidence.0)].value);
        1.0 / (1.0 + (-sum).exp())
    }

    /// What a request begins with.
    #[must_use]
    pub fn for_a_request(&self) -> Self {
        let mut begun = self.clone();
        begun.weights.as_flattened_mut().iter_mut().for_each(|weight| weight.trials = weight.trials.min(TRIALS_MAX));
        begun.told.trials = begun.told.trials.min(TRIALS_MAX);
        // Whoever is never asked could not show that it has something to say by now.
        begun.told.value = begun.told.value.max(TOLD_MIN);
        begun
    }

    /// How often the likeliest token comes where a draft model has spoken.
    #[must_use]
    pub fn told_chance(&self) -> f32 {
        self.told.value
    }

    /// A draft model had spoken, and the token that all together held likeliest came, or not.
    pub fn learn_told(&mut self, came_true: bool) {
        self.told.trials += 1.0;
        let error = f32::from(u8::from(came_true)) - self.told.value;
        self.told.value += error * (1.0 / self.told.trials).max(RATE_LAST);
    }

    /// What was learned, to be kept: each weight and the trials behind it.
    #[must_use]
    pub fn values(&self) -> Vec<[f32; 2]> {
        let all = self.weights.as_flattened().iter().chain([&self.told]);
        all.map(|weight| [weight.value, weight.trials]).collect()
    }

    /// From what [`Self::values`] gave; nothing if it is of another shape or no numbers.
    #[must_use]
    pub fn from_values(values: &[[f32; 2]]) -> Option<Self> {
        let mut confidence = Self::default();
        let weights = confidence.weights.as_flattened_mut().iter_mut().chain([&mut confidence.told]);
        let mut weights: Vec<&mut Weight> = weights.collect();
        let sane = |[value, trials]: &[f32; 2]| value.abs() < WEIGHT_MAX && (0.0..1e9).contains(trials);
        if values.len() != weights.len() || !values.iter().all(sane) {
            return None;
        }
        weights.iter_mut().zip(values).for_each(|(weight, &[value, trials])| **weight = Weight { value, trials });
        confidence.told.value = confidence.told.value.clamp(0.0, 1.0);
        Some(confidence)
    }

    /// A candidate was tried.
    pub fn learn(&mut self, opinions: &Opinions, came_true: bool) {
        let error = f32::from(u8::from(came_true)) - self.chance(opinions);
        for (evidence, weights) in opinions.iter().zip(&mut self.weights) {
            let weight = &mut weights[usize::from(evidence.0)];
            weight.trials += 1.0;
            weight.value += error * (RATE_FIRST / weight.trials.sqrt()).max(RATE_LAST);
        }
    }
}

/// Before anything is known a candidate's chance is a third.
const BIAS: f32 = -0.7;
const RATE_FIRST: f32 = 1.0;
const RATE_LAST: f32 = 0.03;
/// How often a draft model is right before anybody knows it, and at least when a request begins.
const TOLD_FIRST: f32 = 0.6;
const TOLD_MIN: f32 = 0.3;
/// As many trials stand behind what a draft model says before there were any.
const TRIALS_FIRST: f32 = 8.0;
/// Trials of earlier requests count as this many at most: the rates of a request's own follow from it.
const TRIALS_MAX: f32 = 64.0;
/// Weights beyond this say no more than "certainly".
const WEIGHT_MAX: f32 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn opinions(kind: Kind, evidence: u8) -> Opinions {
        let mut opinions = Opinions::default();
        opinions[kind as usize] = Evidence(evidence);
        opinions
    }

    #[test]
    fn chances_become_what_came_true() {
        let mut confidence = Confidence::default();
        let (good, bad) = (opinions(Kind::Context, 9), opinions(Kind::Calibrated, 3));
        for turn in 0..2000 {
            confidence.learn(&good, turn % 10 != 0);
            confidence.learn(&bad, turn % 10 == 0);
        }
        let (good, bad) = (confidence.chance(&good), confidence.chance(&bad));
        assert!((good - 0.9).abs() < 0.1 && (bad - 0.1).abs() < 0.1, "{good} {bad}");
    }

    #[test]
    fn a_request_follows_its_own_trials_whatever_others_had() {
        let mut confidence = Confidence::default();
        let evidence = opinions(Kind::Context, 9);
        (0..10_000).for_each(|_| confidence.learn(&evidence, true));
        let mut own = confidence.for_a_request();
        assert_eq!(own.chance(&evidence), confidence.chance(&evidence));
        for confidence in [&mut confidence, &mut own] {
            (0..20).for_each(|_| confidence.learn(&evidence, false));
        }
        assert!(own.chance(&evidence) < 0.3 && confidence.chance(&evidence) > 0.5);
        assert_eq!(Confidence::from_values(&own.values()), Some(own));
    }

    #[test]
    fn drafters_that_agree_are_believed_more() {
        let mut confidence = Confidence::default();
        let (one, other) = (opinions(Kind::Context, 2), opinions(Kind::History, 2));
        let mut both = one;
        both[Kind::History as usize] = Evidence(2);
        for turn in 0..2000 {
            confidence.learn(&one, turn % 3 == 0);
            confidence.learn(&other, turn % 3 == 0);
            confidence.learn(&both, turn % 10 != 0);
        }
        assert!(confidence.chance(&both) > 0.8 && confidence.chance(&one) < 0.5);
    }
}
