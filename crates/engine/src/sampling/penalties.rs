//! Penalties and biases: changes to the logits of few tokens, before anything is chosen.
//!
//! The repetition penalty counts a token as seen from the prompt on, as llama.cpp and CTRL do (over the whole
//! sequence, not its last 64 tokens); presence and frequency count generated tokens only, as OpenAI does.

use crate::request::SamplingParams;
use duet_types::TokenId;
use std::collections::HashMap;

/// What was seen so far, and what it costs. Holds nothing while nothing is penalised.
#[derive(Clone, Debug)]
pub(crate) struct Penalties {
    repetition: f32,
    presence: f32,
    frequency: f32,
    bias: Vec<(TokenId, f32)>,
    /// Tokens seen, and how often each was generated.
    seen: HashMap<TokenId, u32>,
}

impl Penalties {
    pub(crate) fn new(params: &SamplingParams, prompt: &[TokenId]) -> Self {
        let repetition = params.repetition_penalty;
        let seen = if repetition == 1.0 { HashMap::new() } else { prompt.iter().map(|&token| (token, 0)).collect() };
        Self {
            repetition,
            presence: params.presence_penalty,
            frequency: params.frequency_penalty,
            bias: params.logit_bias.clone(),
            seen,
        }
    }

    /// Takes note of a generated token.
    pub(crate) fn note(&mut self, token: TokenId) {
        if self.is_penalising() {
            *self.seen.entry(token).or_default() += 1;
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn are_none(&self) -> bool {
        self.bias.is_empty() && self.seen.is_empty()
    }

    /// Whether it changes nothing, whatever is generated.
    pub(crate) fn stay_none(&self) -> bool {
        self.bias.is_empty() && !self.is_penalising()
    }

    /// Changes the logits. O(tokens seen), whatever the vocabulary. Each token is changed on its own, so the map's
    /// order does not matter.
    pub(crate) fn apply(&self, logits: &mut [f32]) {
        for (token, &generated) in &self.seen {
            let logit = &mut logits[token.0 as usize];
            *logit = if *logit > 0.0 { *logit / self.repetition } else { *logit * self.repetition };
            if generated > 0 {
                *logit -= self.presence + self.frequency * generated as f32;
            }
        }
        for &(token, bias) in &self.bias {
            logits[token.0 as usize] += bias;
        }
    }

    fn is_penalising(&self) -> bool {
        self.repetition != 1.0 || self.presence != 0.0 || self.frequency != 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn penalised(params: &SamplingParams, prompt: &[u32], generated: &[u32], mut logits: Vec<f32>) -> Vec<f32> {
        let prompt: Vec<TokenId> = prompt.iter().copied().map(TokenId).collect();
        let mut penalties = Penalties::new(params, &prompt);
        generated.iter().for_each(|&token| penalties.note(TokenId(token)));
        penalties.apply(&mut logits);
        logits
    }

    #[test]
    fn repetition_counts_the_prompt_and_shrinks_either_sign() {
        let params = SamplingParams { repetition_penalty: 2.0, ..SamplingParams::default() };
        assert_eq!(penalised(&params, &[0], &[1, 1], vec![4.0, -4.0, 4.0]), [2.0, -8.0, 4.0]);
    }

    #[test]
    fn presence_and_frequency_count_generated_tokens_only() {
        let params = SamplingParams { presence_penalty: 1.0, frequency_penalty: 0.5, ..SamplingParams::default() };
        assert_eq!(penalised(&params, &[0], &[1, 1], vec![4.0, 4.0, 4.0]), [4.0, 2.0, 4.0]);
    }

    #[test]
    fn a_bias_is_added() {
        let params = SamplingParams { logit_bias: vec![(TokenId(1), -100.0)], ..SamplingParams::default() };
        assert_eq!(penalised(&params, &[], &[], vec![1.0, 1.0]), [1.0, -99.0]);
    }
}
