//! How likely a prompt is, token by token, on its way to the client.
//!
//! The row at a position says how likely the token behind it is, so `n` tokens take `n - 1` rows; before the first token
//! there is nothing. Rows that are computed again, because keys and values were lost or a pass was undone, have been told.
//!
//! Invariant: every token is told once, in order. What a row says depends on that row alone, so neither chunks nor what
//! else runs change it.

use crate::request::{PromptToken, TokenLogprobs};
use duet_types::TokenId;
use std::ops::Range;

/// How far a prompt was told.
#[derive(Debug)]
pub(crate) struct PromptScores {
    alternatives: u8,
    /// Its first tokens.
    told: usize,
}

impl PromptScores {
    /// Nothing was told; each token is to come with so many alternatives.
    pub(crate) fn new(alternatives: u8) -> Self {
        Self { alternatives, told: 0 }
    }

    pub(crate) fn alternatives(&self) -> u8 {
        self.alternatives
    }

    /// The token that the next row speaks of.
    pub(crate) fn next(&self) -> usize {
        self.told.max(1)
    }

    /// Those of some rows, which are positions, that speak of tokens of a prompt of this length that were not told.
    pub(crate) fn wanted(&self, rows: Range<usize>, prompt: usize) -> Range<usize> {
        let start = rows.start.max(self.next() - 1).min(rows.end);
        start..rows.end.min(prompt - 1).max(start)
    }

    /// The next tokens of `prompt`, and the first one if it was not told.
    pub(crate) fn tell(&mut self, prompt: &[TokenId], logprobs: Vec<TokenLogprobs>) -> Vec<PromptToken> {
        let (told, next) = (self.told, self.next());
        self.told = next + logprobs.len();
        let unscored = prompt[told..next].iter().map(|&token| PromptToken { token, logprobs: None });
        let scored = prompt[next..].iter().zip(logprobs);
        unscored.chain(scored.map(|(&token, logprobs)| PromptToken { token, logprobs: Some(logprobs) })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt() -> Vec<TokenId> {
        (0..10).map(TokenId).collect()
    }

    /// Tells what a pass over these rows says, as the tokens that are told.
    fn read(scores: &mut PromptScores, rows: Range<usize>) -> Vec<u32> {
        let wanted = scores.wanted(rows, 10);
        let logprobs = wanted.map(|row| TokenLogprobs { chosen: -(row as f32), top: Vec::new() }).collect();
        let told = scores.tell(&prompt(), logprobs);
        for PromptToken { token, logprobs } in &told {
            // The row before it spoke of it.
            assert_eq!(
                logprobs.as_ref().map(|logprobs| -logprobs.chosen),
                token.0.checked_sub(1).map(|row| row as f32)
            );
        }
        told.into_iter().map(|told| told.token.0).collect()
    }

    #[test]
    fn each_token_is_told_once_and_in_order() {
        let mut scores = PromptScores::new(0);
        assert_eq!(read(&mut scores, 0..4), [0, 1, 2, 3, 4]);
        assert_eq!(read(&mut scores, 0..3), [0; 0], "rows that are read again");
        assert_eq!(read(&mut scores, 2..6), [5, 6]);
        assert_eq!(read(&mut scores, 6..10), [7, 8, 9], "of the last row there is no token");
        assert_eq!(read(&mut scores, 9..10), [0; 0]);
        assert_eq!(read(&mut scores, 11..12), [0; 0], "a row of the answer");
    }

    #[test]
    fn a_prompt_of_one_token_is_told_without_a_row() {
        let mut scores = PromptScores::new(0);
        assert_eq!(scores.wanted(0..1, 1), 0..0);
        assert_eq!(scores.tell(&[TokenId(7)], Vec::new()), [PromptToken { token: TokenId(7), logprobs: None }]);
    }
}
