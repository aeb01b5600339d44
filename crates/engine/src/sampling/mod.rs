//! Sampling: from a row of logits to a token.
//!
//! The order is: penalties and biases, temperature, top-k, top-p (of what top-k left), min-p, draw. All three cuts keep
//! a beginning of the likeliest-first order, so only as much of that order is made as is needed. Nothing sorts a whole
//! vocabulary. The same seed and logits give the same token, whatever else runs. Temperatures so small that nothing can be
//! divided by them (below 2.9e-39) are 0, as is what they come near to: the likeliest token.

mod candidates;
#[cfg(test)]
mod distribution;
mod likeliest;
mod maximum;
mod penalties;
mod rng;
mod softmax;
mod wanted;

pub use candidates::Candidate;
pub use likeliest::likeliest;
pub(crate) use wanted::Wanted;

use crate::request::{SamplingParams, TokenLogprobs};
use candidates::top;
use duet_agents::Mask;
use duet_types::TokenId;
use maximum::largest;
use penalties::Penalties;
use rng::Rng;
use softmax::{Weighting, is_greedy};

/// One request's way to choose tokens.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    temperature: f32,
    top_k: usize,
    top_p: f64,
    min_p: f32,
    penalties: Penalties,
    rng: Rng,
}

/// Buffers of a choice, reused by the next one.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// The parameters must be valid. `seed` is used if they have none.
    pub(crate) fn new(params: &SamplingParams, prompt: &[TokenId], seed: u64) -> Self {
        Self {
            temperature: params.temperature,
            top_k: params.top_k as usize,
            top_p: f64::from(params.top_p),
            min_p: params.min_p,
            penalties: Penalties::new(params, prompt),
            rng: Rng::seeded(params.seed.unwrap_or(seed)),
        }
    }

    /// Chooses the next token and takes note of it. `likeliest` is the likeliest token, if any is possible. The logits are
    /// changed by the penalties.
    pub(crate) fn choose(
        &mut self,
        logits: &mut [f32],
        likeliest: Option<Candidate>,
        scratch: &mut Scratch,
    ) -> TokenId {
        self.penalties.apply(logits);
        let likeliest = if self.penalties.are_none() { likeliest } else { largest(logits) };
        let token = match likeliest {
            // Nothing is possible, or one thing is certain.
            None => 0,
            Some((token, max)) if is_greedy(self.temperature) || max == f32::INFINITY => token as usize,
            Some((_, max)) => self.draw(logits, Weighting::new(max, self.temperature), &mut scratch.candidates),
        };
        let token = TokenId(token as u32);
        self.penalties.note(token);
        token
    }

    /// What it needs of the rows that it chooses from, without a mask.
    pub(crate) fn wanted(&self) -> Wanted {
        match self.top_k {
            _ if !self.penalties.stay_none() => Wanted::All,
            _ if is_greedy(self.temperature) => Wanted::Best(1),
            // A nucleus is a share of all, and how many min-p leaves is not known before.
            0 => Wanted::All,
            count => Wanted::Best(count),
        }
    }

    /// The same as [`Self::choose`] of a row of which the likeliest tokens are known, best first, and no others: at least as many
    /// as are [wanted](Self::wanted), or all that are possible.
    pub(crate) fn choose_of_best(&mut self, likeliest: &[Candidate], scratch: &mut Scratch) -> TokenId {
        let token = match likeliest.first() {
            None => 0,
            Some(&(token, max)) if is_greedy(self.temperature) || max == f32::INFINITY => token as usize,
            Some(&(_, max)) => self.draw_of_best(likeliest, Weighting::new(max, self.temperature), scratch),
        };
        let token = TokenId(token as u32);
        self.penalties.note(token);
        token
    }

    /// Takes note of a token that was not for it to choose. Nothing is drawn.
    pub(crate) fn given(&mut self, token: TokenId) -> TokenId {
        self.penalties.note(token);
        token
    }

    /// The same among the tokens of a mask. `likeliest` are some of the likeliest tokens, best first.
    pub(crate) fn choose_among(
        &mut self,
        mask: &Mask,
        logits: &mut [f32],
        likeliest: &[Candidate],
        scratch: &mut Scratch,
    ) -> TokenId {
        let allowed = likeliest.iter().copied().find(|&(token, _)| mask.allows(TokenId(token)));
        // The best of all that may come is the best of those that are known: nothing else is looked at.
        let is_decided = is_greedy(self.temperature) && self.penalties.are_none() && allowed.is_some();
        let allowed = if is_decided {
            allowed
        } else {
            rule_out(mask, logits);
            largest(logits)
        };
        self.choose(logits, allowed, scratch)
    }

    fn draw(&mut self, logits: &[f32], weighting: Weighting, candidates: &mut Vec<Candidate>) -> usize {
        let share = self.rng.unit();
        if self.top_k == 0 && self.top_p >= 1.0 && self.min_p == 0.0 {
            return weighting.token_at(logits, share);
        }
        self.gather(logits, weighting, candidates);
        drawn(candidates, weighting, share)
    }

    fn draw_of_best(&mut self, likeliest: &[Candidate], weighting: Weighting, scratch: &mut Scratch) -> usize {
        let (share, candidates) = (self.rng.unit(), &mut scratch.candidates);
        candidates.clear();
        candidates.extend(likeliest.iter().take(self.top_k));
        self.cut_of_all(weighting, candidates);
        drawn(candidates, weighting, share)
    }

    /// Gathers the tokens that the cuts leave, likeliest first; at least one.
    fn gather(&self, logits: &[f32], weighting: Weighting, candidates: &mut Vec<Candidate>) {
        if self.top_k > 0 {
            top(logits, self.top_k, candidates);
            return self.cut_of_all(weighting, candidates);
        }
        // Without top-p the cut is min-p's alone, and needs no total.
        let total = if self.top_p < 1.0 { weighting.sum(logits) } else { 0.0 };
        let mut count = CANDIDATES_FIRST;
        loop {
            top(logits, count, candidates);
            let gathered = candidates.len();
            self.cut(weighting, total, candidates);
            if candidates.len() < gathered || gathered < count {
                return;
            }
            count *= CANDIDATES_GROWTH;
        }
    }

    /// Cuts sorted candidates that are the whole.
    fn cut_of_all(&self, weighting: Weighting, candidates: &mut Vec<Candidate>) {
        let total = candidates.iter().map(|&(_, logit)| f64::from(weighting.of(logit))).sum();
        self.cut(weighting, total, candidates);
    }

    /// Cuts sorted candidates by top-p, of which `total` is the whole, and by min-p.
    fn cut(&self, weighting: Weighting, total: f64, candidates: &mut Vec<Candidate>) {
        let mut covered = 0.0;
        let kept = candidates.iter().take_while(|&&(_, logit)| {
            let weight = weighting.of(logit);
            let is_needed = covered == 0.0 || self.top_p >= 1.0 || covered < self.top_p * total;
            covered += f64::from(weight);
            is_needed && weight >= self.min_p
        });
        let kept = kept.count();
        candidates.truncate(kept.max(1));
    }
}

/// The token at `share` (`0.0..1.0`) of the sum of the candidates' weights.
fn drawn(candidates: &[Candidate], weighting: Weighting, share: f64) -> usize {
    let weights = || candidates.iter().map(|&(_, logit)| f64::from(weighting.of(logit)));
    let mut rest = weights().sum::<f64>() * share;
    for (weight, &(token, _)) in weights().zip(candidates.iter()) {
        if rest < weight {
            return token as usize;
        }
        rest -= weight;
    }
    // Only rounding leads here.
    candidates.last().map_or(0, |&(token, _)| token as usize)
}

/// Makes all tokens impossible that may not come.
fn rule_out(mask: &Mask, logits: &mut [f32]) {
    let known = mask.vocabulary().min(logits.len());
    for (logits, &word) in logits[..known].chunks_mut(32).zip(mask.words()) {
        match word {
            u32::MAX => {}
            0 => logits.fill(f32::NEG_INFINITY),
            word => {
                for (bit, logit) in logits.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
    logits[known..].fill(f32::NEG_INFINITY);
}

/// Log probabilities of `chosen` and of the `alternatives` likeliest tokens, by the model's own logits: before
/// penalties and temperature.
pub(crate) fn logprobs(logits: &[f32], chosen: TokenId, alternatives: u8, scratch: &mut Scratch) -> TokenLogprobs {
    let max = largest(logits).map_or(0.0, |(_, max)| max);
    let log_sum = f64::from(max) + Weighting::new(max, 1.0).sum(logits).ln();
    let logprob = |logit: f32| (f64::from(logit) - log_sum) as f32;
    top(logits, usize::from(alternatives), &mut scratch.candidates);
    let best = scratch.candidates.iter().map(|&(token, logit)| (TokenId(token), logprob(logit))).collect();
    TokenLogprobs { chosen: logprob(logits[chosen.0 as usize]), top: best }
}

/// Candidates gathered at first when their number is not known; a nucleus is rarely larger.
const CANDIDATES_FIRST: usize = 64;
/// How many times more are gathered when those were too few.
const CANDIDATES_GROWTH: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn choose(sampler: &mut Sampler, logits: &[f32]) -> TokenId {
        sampler.choose(&mut logits.to_vec(), largest(logits), &mut Scratch::default())
    }

    /// How often each token is drawn, in percent.
    fn shares(params: &SamplingParams, logits: &[f32]) -> Vec<u32> {
        let mut sampler = Sampler::new(params, &[], 1);
        let mut counts = vec![0; logits.len()];
        for _ in 0..20_000 {
            counts[choose(&mut sampler, logits).0 as usize] += 1_u32;
        }
        counts.iter().map(|count| (count + 100) / 200).collect()
    }

    fn assert_shares(params: SamplingParams, expected: &[u32]) {
        // Probabilities of 10, 20, 30 and 40 per cent.
        let logits: Vec<f32> = [0.1_f32, 0.2, 0.3, 0.4].iter().map(|share| share.ln()).collect();
        let drawn = shares(&params, &logits);
        let close = drawn.iter().zip(expected).all(|(drawn, expected)| drawn.abs_diff(*expected) <= 1);
        assert!(close, "{params:?} drew {drawn:?}, not {expected:?}");
    }

    fn warm() -> SamplingParams {
        SamplingParams { temperature: 1.0, ..SamplingParams::default() }
    }

    #[test]
    fn tokens_are_drawn_as_often_as_they_are_likely() {
        assert_shares(warm(), &[10, 20, 30, 40]);
        // Squared and made to sum to one again.
        assert_shares(SamplingParams { temperature: 0.5, ..warm() }, &[3, 13, 30, 53]);
    }

    #[test]
    fn cuts_leave_the_likeliest() {
        assert_shares(SamplingParams { top_k: 2, ..warm() }, &[0, 0, 43, 57]);
        assert_shares(SamplingParams { top_p: 0.75, ..warm() }, &[0, 22, 33, 45]);
        assert_shares(SamplingParams { top_p: 0.0, ..warm() }, &[0, 0, 0, 100]);
        assert_shares(SamplingParams { min_p: 0.6, ..warm() }, &[0, 0, 43, 57]);
        // Of what top-k left, 40 of 90 per cent are 44, not yet half.
        assert_shares(SamplingParams { top_k: 3, top_p: 0.5, ..warm() }, &[0, 0, 43, 57]);
        assert_shares(SamplingParams { top_p: 0.95, min_p: 0.6, ..warm() }, &[0, 0, 43, 57]);
    }

    #[test]
    fn temperature_zero_takes_the_likeliest_and_the_first_of_equals() {
        let mut sampler = Sampler::new(&SamplingParams::default(), &[], 1);
        let token = choose(&mut sampler, &[1.0, 7.0, 7.0]);
        assert_eq!(token, TokenId(1));
    }

    #[test]
    fn a_wide_nucleus_is_gathered_in_steps() {
        let logits = vec![0.0; 3000];
        let sampler = Sampler::new(&SamplingParams { top_p: 0.5, ..warm() }, &[], 1);
        let mut candidates = Vec::new();
        sampler.gather(&logits, Weighting::new(0.0, 1.0), &mut candidates);
        assert_eq!(candidates.len(), 1500);
    }

    #[test]
    fn the_smallest_temperatures_take_the_likeliest() {
        for bits in [1, 0x0009_0000, 0x001F_FFFF, 0x0020_0000, 0x0020_0001, 0x0080_0000] {
            let params = SamplingParams { temperature: f32::from_bits(bits), ..warm() };
            let mut sampler = Sampler::new(&params, &[], 1);
            assert_eq!(choose(&mut sampler, &[1.0, -3.0, 7.0, 6.5]), TokenId(2), "{}", params.temperature);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Every positive temperature: where the likeliest token leads by much, as measured by it, it is the one.
        /// What is drawn of the best is what is drawn of all: few distinct values, so that there are ties at every cut.
        #[test]
        fn the_best_are_enough_for_those_who_want_no_more(
            values in prop::collection::vec(0..12_u8, 1..100),
            (temperature, top_k) in (0..3_u8, 1..9_u32),
            (top_p, min_p) in (0.1..1.2_f32, -0.3..0.3_f32),
            seed in 0..1000_u64,
        ) {
            let (temperature, top_p, min_p) = (f32::from(temperature) * 0.7, top_p.min(1.0), min_p.max(0.0));
            let params = SamplingParams { temperature, top_k, top_p, min_p, ..SamplingParams::default() };
            let logit = |&value: &u8| if value == 0 { f32::NEG_INFINITY } else { f32::from(value) / 3.0 };
            let logits: Vec<f32> = values.iter().map(logit).collect();
            let mut of_all = Sampler::new(&params, &[], seed);
            let Wanted::Best(count) = of_all.wanted() else { return Err(TestCaseError::fail("all is wanted")) };
            let (mut of_best, mut best) = (of_all.clone(), Vec::new());
            top(&logits, count, &mut best);
            for _ in 0..20 {
                let token = of_best.choose_of_best(&best, &mut Scratch::default());
                prop_assert_eq!(token, choose(&mut of_all, &logits));
            }
        }

        #[test]
        fn the_nearer_to_zero_the_surer_is_the_likeliest(
            bits in 1..=f32::MAX.to_bits(),
            logits in prop::collection::vec(prop_oneof![-30.0..30.0_f32, Just(f32::NEG_INFINITY), Just(f32::NAN)], 1..40),
            likeliest in any::<prop::sample::Index>(),
            lead in prop_oneof![1e-6..1e-3_f32, 1e-3..10.0_f32],
            seed in any::<u64>(),
            top_k in prop_oneof![Just(0_u32), 1..5_u32],
            top_p in prop_oneof![Just(1.0_f32), 0.1..1.0_f32],
            min_p in prop_oneof![Just(0.0_f32), 0.0..0.9_f32],
        ) {
            let (temperature, mut logits) = (f32::from_bits(bits), logits);
            let (second, likeliest) = (largest(&logits).map_or(0.0, |(_, max)| max), likeliest.index(logits.len()));
            logits[likeliest] = second + lead;
            if !is_greedy(temperature) {
                let weighting = Weighting::new(logits[likeliest], temperature);
                prop_assert_eq!(weighting.of(logits[likeliest]), 1.0);
                prop_assert!(logits.iter().all(|&logit| (0.0..=1.0).contains(&weighting.of(logit))));
            }
            let params = SamplingParams { temperature, top_k, top_p, min_p, ..SamplingParams::default() };
            let token = choose(&mut Sampler::new(&params, &[], seed), &logits);
            prop_assert!(logits[token.0 as usize].is_finite(), "what is impossible was drawn");
            // Beyond 87 all others weigh nothing.
            if f64::from(logits[likeliest] - second) / f64::from(temperature) > 88.0 {
                prop_assert_eq!(token, TokenId(likeliest as u32));
            }
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_tokens() {
        let draw = |seed| {
            let params = SamplingParams { seed: Some(seed), top_p: 0.9, ..warm() };
            let mut sampler = Sampler::new(&params, &[], 0);
            let logits: Vec<f32> = (0..500).map(|token| (token % 17) as f32 / 4.0).collect();
            (0..50).map(|_| choose(&mut sampler, &logits)).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }

    #[test]
    fn rows_without_a_possible_token_do_no_harm() {
        let params = SamplingParams { top_p: 0.9, ..warm() };
        let mut sampler = Sampler::new(&params, &[], 1);
        assert_eq!(choose(&mut sampler, &[f32::NAN, f32::NEG_INFINITY]), TokenId(0));
        assert_eq!(choose(&mut sampler, &[0.0, f32::INFINITY, f32::NAN]), TokenId(1));
    }

    #[test]
    fn log_probabilities_are_the_model_s() {
        let logits: Vec<f32> = [0.1_f32, 0.2, 0.3, 0.4].iter().map(|share| share.ln() + 3.0).collect();
        let logprobs = logprobs(&logits, TokenId(1), 2, &mut Scratch::default());
        assert!((logprobs.chosen - 0.2_f32.ln()).abs() < 1e-5);
        assert_eq!(logprobs.top.iter().map(|&(token, _)| token.0).collect::<Vec<_>>(), [3, 2]);
        assert!((logprobs.top[0].1 - 0.4_f32.ln()).abs() < 1e-5);
    }
}
