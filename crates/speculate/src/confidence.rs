//! How far to trust the drafters: they compete, and what is learned is which evidence comes true. (Ours)
//!
//! Of the candidates of one place at most one comes true, so their chances are shares: each has a score, the sum of what
//! its opinions are worth, silence included, and the last share is that of whatever nobody named (a multinomial logistic
//! mix). An opinion is worth what its evidence is (the kind of drafter, and the length of the match or the rank), and what
//! its drafter is worth so deep in a draft. Every token of the answer is a trial of all candidates that there were in its
//! place, whether they were drafted or not, so nothing has to be drafted to be learned about. A request begins with what
//! earlier ones taught, and its own trials weigh as if those had been few. What several requests learned at once is
//! [joined](Confidence::join), each weight by the trials behind it.

use crate::draft_model;
use crate::drafter::{EVIDENCE, Evidence, Kind};
use duet_types::TokenId;

/// What each drafter said of a candidate; silence is `Evidence(0)`.
pub type Opinions = [Evidence; Kind::ALL.len()];

/// A candidate, and what each drafter said of it.
pub type Judged = (TokenId, Opinions);

/// Learned weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Confidence {
    /// Of the places that a draft model spoke of, the share where the likeliest token came.
    told: Weight,
    evidence: [[Weight; EVIDENCE]; Kind::ALL.len()],
    depth: [[Weight; DEPTHS]; Kind::ALL.len()],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Weight {
    value: f32,
    trials: f32,
}

impl Default for Confidence {
    /// Nothing is known, but that a draft model means what it says.
    fn default() -> Self {
        let mut evidence = [[Weight::default(); EVIDENCE]; Kind::ALL.len()];
        for (evidence, weight) in (0..).map(Evidence).zip(&mut evidence[Kind::Model as usize]) {
            if let Some(chance) = draft_model::chance_at_first(evidence) {
                *weight = Weight { value: (chance / (1.0 - chance)).ln() - BIAS, trials: TRIALS_FIRST };
            }
        }
        let told = Weight { value: TOLD_FIRST, trials: TRIALS_FIRST };
        Self { told, evidence, depth: [[Weight::default(); DEPTHS]; Kind::ALL.len()] }
    }
}

impl Confidence {
    /// The chances of the candidates of a place, `depth` tokens into a draft: together less than one.
    pub fn chances(&self, candidates: &[Judged], depth: usize, chances: &mut Vec<(TokenId, f32)>) {
        chances.clear();
        chances.extend(candidates.iter().map(|(token, opinions)| (*token, self.score(opinions, depth))));
        // The share of what nobody named has a score of 0.
        let largest = chances.iter().fold(0.0, |largest: f32, (_, score)| largest.max(*score));
        let all = chances.iter().fold((-largest).exp(), |all, (_, score)| all + (score - largest).exp());
        chances.iter_mut().for_each(|(_, score)| *score = (*score - largest).exp() / all);
    }

    /// What a request begins with.
    #[must_use]
    pub fn for_a_request(&self) -> Self {
        let mut begun = self.clone();
        begun.weights_mut().for_each(|weight| weight.trials = weight.trials.min(TRIALS_MAX));
        // Whoever is never asked could not show that it has something to say by now.
        begun.told.value = begun.told.value.max(TOLD_MIN);
        begun
    }

    /// A request that began with `begun` has learned `own`, others perhaps something else meanwhile: each weight becomes
    /// the mean, by the trials that there were since.
    pub fn join(&mut self, begun: &Self, own: &Self) {
        for ((known, begun), own) in self.weights_mut().zip(begun.weights()).zip(own.weights()) {
            let others = (known.trials - begun.trials).max(0.0);
            let mine = (own.trials - begun.trials.min(TRIALS_MAX)).max(0.0);
            if mine > 0.0 {
                known.value = (known.value * others + own.value * mine) / (others + mine);
                known.trials += mine;
            }
        }
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
        self.weights().map(|weight| [weight.value, weight.trials]).collect()
    }

    /// From what [`Self::values`] gave; nothing if it is of another shape or no numbers.
    #[must_use]
    pub fn from_values(values: &[[f32; 2]]) -> Option<Self> {
        let mut confidence = Self::default();
        let sane = |[value, trials]: &[f32; 2]| value.abs() < WEIGHT_MAX && (0.0..1e9).contains(trials);
        if values.len() != confidence.weights().count() || !values.iter().all(sane) {
            return None;
        }
        confidence.weights_mut().zip(values).for_each(|(weight, &[value, trials])| *weight = Weight { value, trials });
        confidence.told.value = confidence.told.value.clamp(0.0, 1.0);
        Some(confidence)
    }

    /// The candidates of a place were tried, `depth` tokens into a draft: `token` came. `chances` are what was thought of
    /// them.
    pub fn learn(&mut self, candidates: &[Judged], depth: usize, chances: &[(TokenId, f32)], token: TokenId) {
        for ((candidate, opinions), (_, chance)) in candidates.iter().zip(chances) {
            let error = f32::from(u8::from(*candidate == token)) - chance;
            for (kind, evidence) in opinions.iter().enumerate() {
                self.evidence[kind][usize::from(evidence.0)].learn(error);
                if *evidence != SILENCE {
                    self.depth[kind][grade(depth)].learn(error);
                }
            }
        }
    }

    fn score(&self, opinions: &Opinions, depth: usize) -> f32 {
        let of = |(kind, evidence): (usize, &Evidence)| {
            let at_depth = if *evidence == SILENCE { 0.0 } else { self.depth[kind][grade(depth)].value };
            self.evidence[kind][usize::from(evidence.0)].value + at_depth
        };
        opinions.iter().enumerate().map(of).fold(BIAS, |sum, value| sum + value)
    }

    fn weights(&self) -> impl Iterator<Item = &Weight> {
        [&self.told].into_iter().chain(self.evidence.as_flattened()).chain(self.depth.as_flattened())
    }

    fn weights_mut(&mut self) -> impl Iterator<Item = &mut Weight> {
        let evidence = self.evidence.as_flattened_mut().iter_mut();
        [&mut self.told].into_iter().chain(evidence).chain(self.depth.as_flattened_mut())
    }
}

impl Weight {
    fn learn(&mut self, error: f32) {
        self.trials += 1.0;
        self.value += error * (RATE_FIRST / self.trials.sqrt()).max(RATE_LAST);
    }
}

const SILENCE: Evidence = Evidence(0);

/// Depths in a draft that are told apart: the first tokens one by one, then two, four, and all others.
fn grade(depth: usize) -> usize {
    match depth {
        0..=2 => depth,
        3..=4 => 3,
        5..=8 => 4,
        _ => DEPTHS - 1,
    }
}

const DEPTHS: usize = 6;
/// Before anything is known a lone candidate's chance is a third.
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
    use proptest::prelude::*;

    fn opinions(kind: Kind, evidence: u8) -> Opinions {
        let mut opinions = Opinions::default();
        opinions[kind as usize] = Evidence(evidence);
        opinions
    }

    fn chances(confidence: &Confidence, candidates: &[Opinions], depth: usize) -> Vec<f32> {
        let candidates: Vec<_> = (0..).map(TokenId).zip(candidates.iter().copied()).collect();
        let mut chances = Vec::new();
        confidence.chances(&candidates, depth, &mut chances);
        chances.into_iter().map(|(_, chance)| chance).collect()
    }

    fn chance(confidence: &Confidence, opinions: &Opinions) -> f32 {
        chances(confidence, &[*opinions], 0)[0]
    }

    /// Candidate `right` of these came, if it is one of them.
    fn try_all(confidence: &mut Confidence, candidates: &[Opinions], depth: usize, right: usize) {
        let tokens: Vec<_> = (0..).map(TokenId).zip(candidates.iter().copied()).collect();
        let mut chances = Vec::new();
        confidence.chances(&tokens, depth, &mut chances);
        confidence.learn(&tokens, depth, &chances, TokenId(right as u32));
    }

    fn try_one(confidence: &mut Confidence, opinions: &Opinions, came_true: bool) {
        try_all(confidence, &[*opinions], 0, usize::from(!came_true));
    }

    #[test]
    fn chances_become_what_came_true() {
        let mut confidence = Confidence::default();
        let (good, bad) = (opinions(Kind::Context, 9), opinions(Kind::Calibrated, 3));
        for turn in 0..2000 {
            try_one(&mut confidence, &good, turn % 10 != 0);
            try_one(&mut confidence, &bad, turn % 10 == 0);
        }
        let (good, bad) = (chance(&confidence, &good), chance(&confidence, &bad));
        assert!((good - 0.9).abs() < 0.1 && (bad - 0.1).abs() < 0.1, "{good} {bad}");
    }

    #[test]
    fn siblings_share_what_comes_true() {
        let mut confidence = Confidence::default();
        let siblings = [opinions(Kind::Context, 9), opinions(Kind::Context, 8), opinions(Kind::Recycled, 3)];
        // One half, a quarter, an eighth, and an eighth that nobody named.
        for turn in 0..4000 {
            try_all(&mut confidence, &siblings, 0, [0, 1, 0, 2, 0, 1, 0, 3][turn % 8]);
        }
        let found = chances(&confidence, &siblings, 0);
        for (found, expected) in found.iter().zip([0.5, 0.25, 0.125]) {
            assert!((found - expected).abs() < 0.1, "{found} {expected}");
        }
        let alone = chance(&confidence, &siblings[1]);
        assert!(alone > found[1], "{alone}: without the better one it is likelier");
    }

    #[test]
    fn a_drafter_is_trusted_by_depth() {
        let mut confidence = Confidence::default();
        let evidence = opinions(Kind::Context, 9);
        for turn in 0..2000 {
            try_all(&mut confidence, &[evidence], 0, usize::from(turn % 10 == 0));
            try_all(&mut confidence, &[evidence], 6, usize::from(turn % 10 != 0));
        }
        let [near, far] = [0, 6].map(|depth| chances(&confidence, &[evidence], depth)[0]);
        assert!(near > 0.8 && far < 0.2, "{near} {far}");
    }

    #[test]
    fn a_request_follows_its_own_trials_whatever_others_had() {
        let mut confidence = Confidence::default();
        let evidence = opinions(Kind::Context, 9);
        (0..10_000).for_each(|_| try_one(&mut confidence, &evidence, true));
        let mut own = confidence.for_a_request();
        assert_eq!(chance(&own, &evidence), chance(&confidence, &evidence));
        for confidence in [&mut confidence, &mut own] {
            (0..20).for_each(|_| try_one(confidence, &evidence, false));
        }
        assert!(chance(&own, &evidence) < 0.3 && chance(&confidence, &evidence) > 0.4);
        assert_eq!(Confidence::from_values(&own.values()), Some(own));
    }

    #[test]
    fn requests_that_end_one_after_the_other_go_on_from_each_other_and_those_at_once_are_joined() {
        let evidence = opinions(Kind::Context, 9);
        let begun = Confidence::default();
        let learned = |right: bool| {
            let mut own = begun.for_a_request();
            (0..50).for_each(|_| try_one(&mut own, &evidence, right));
            own
        };
        let (good, bad) = (learned(true), learned(false));
        let mut shared = begun.clone();
        shared.join(&begun, &good);
        assert_eq!(chance(&shared, &evidence), chance(&good, &evidence), "nobody else has learned anything");
        shared.join(&begun, &bad);
        let [high, joined, low] = [&good, &shared, &bad].map(|confidence| chance(confidence, &evidence));
        assert!(high > joined + 0.1 && joined > low + 0.1, "{high} {joined} {low}: both have their say");
        // One that began with what both had learned goes on from that.
        let next = shared.clone();
        let mut own = next.for_a_request();
        (0..50).for_each(|_| try_one(&mut own, &evidence, true));
        shared.join(&next, &own);
        assert_eq!(chance(&shared, &evidence), chance(&own, &evidence));
    }

    #[test]
    fn drafters_that_agree_are_believed_more() {
        let mut confidence = Confidence::default();
        let (one, other) = (opinions(Kind::Context, 2), opinions(Kind::History, 2));
        let mut both = one;
        both[Kind::History as usize] = Evidence(2);
        for turn in 0..2000 {
            try_one(&mut confidence, &one, turn % 3 == 0);
            try_one(&mut confidence, &other, turn % 3 == 0);
            try_one(&mut confidence, &both, turn % 10 != 0);
        }
        assert!(chance(&confidence, &both) > 0.8 && chance(&confidence, &one) < 0.5);
    }

    proptest! {
        /// Whatever was learned, chances are chances, and together no more than one.
        #[test]
        fn chances_of_a_place_are_shares(
            trials in prop::collection::vec((prop::collection::vec((0..7_usize, 1..64_u8), 1..6), 0..7_usize, 0..12_usize), 0..60),
        ) {
            let mut confidence = Confidence::default();
            for (candidates, right, depth) in trials {
                let candidates: Vec<_> = candidates.iter().map(|&(kind, evidence)| opinions(Kind::ALL[kind], evidence)).collect();
                let chances = chances(&confidence, &candidates, depth);
                prop_assert!(chances.iter().all(|chance| (0.0..=1.0).contains(chance)));
                prop_assert!(chances.iter().sum::<f32>() <= 1.0 + 1e-5);
                try_all(&mut confidence, &candidates, depth, right);
            }
        }
    }
}
