//! Drafts from what the client says that it expects as an answer. (OpenAI: predicted outputs)
//!
//! The expected text is read into a suffix automaton while the sequence grows, [`READ`] tokens of it for each token of
//! the sequence. So a request that waits holds four bytes for each expected token and no automaton, the first draft
//! knows the beginning of the text, where answers begin as well, and no step takes long however much is expected.

use crate::drafter::{Candidate, Drafter, Kind, Place};
use crate::history::CUE;
use crate::sam::{self, Breadth};
use crate::suffix_automaton::{Matched, SuffixAutomaton};
use duet_types::TokenId;

/// Drafts from an expected answer.
#[derive(Clone, Debug)]
pub struct Prediction {
    automaton: SuffixAutomaton,
    /// The end of the prompt, then the expected answer.
    text: Vec<TokenId>,
    /// How much of the text the automaton holds.
    read: usize,
    end: Matched,
}

impl Prediction {
    /// Of an answer to a prompt.
    #[must_use]
    pub fn new(prompt: &[TokenId], answer: &[TokenId]) -> Self {
        let cue = &prompt[prompt.len().saturating_sub(CUE)..];
        Self { automaton: SuffixAutomaton::default(), text: [cue, answer].concat(), read: 0, end: Matched::default() }
    }

    /// Reads some tokens more of the text.
    fn read_on(&mut self) {
        let until = self.text.len().min(self.read + READ);
        if self.read == until {
            return;
        }
        self.text[self.read..until].iter().for_each(|&token| self.automaton.push(token));
        self.read = until;
        // What was read may have split the state that stood for the end of the sequence.
        self.end = self.automaton.settled(self.end);
        if self.read == self.text.len() {
            self.text = Vec::new();
            self.read = 0;
        }
    }
}

/// Tokens of the expected text that are read for each token of the sequence: a microsecond or two, and faster than any
/// answer is written.
pub const READ: usize = 8;

impl Drafter for Prediction {
    fn kind(&self) -> Kind {
        Kind::Prediction
    }

    fn observe(&mut self, token: TokenId) {
        self.read_on();
        self.end = self.automaton.step(self.end, token);
    }

    fn end(&self) -> Place {
        self.end.into()
    }

    fn step(&self, place: Place, token: TokenId) -> Place {
        self.automaton.step(place.into(), token).into()
    }

    fn propose(&self, place: Place, candidates: &mut Vec<Candidate>) {
        sam::propose(&self.automaton, place.into(), Breadth::Several, candidates);
    }

    fn bytes(&self) -> usize {
        self.automaton.bytes() + size_of_val(&*self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(text: &[u32]) -> Vec<TokenId> {
        text.iter().map(|&token| TokenId(token)).collect()
    }

    fn next(prediction: &Prediction) -> Option<u32> {
        let mut candidates = Vec::new();
        prediction.propose(prediction.end(), &mut candidates);
        candidates.first().map(|candidate| candidate.token.0)
    }

    #[test]
    fn an_answer_is_found_from_its_first_token_on() {
        let mut prediction = Prediction::new(&tokens(&[1, 2, 3, 4, 5]), &tokens(&[7, 8, 9]));
        tokens(&[9, 9, 2, 3, 4, 5]).into_iter().for_each(|token| prediction.observe(token));
        assert_eq!(next(&prediction), Some(7));
    }

    #[test]
    fn what_is_not_in_it_ends_the_match_and_what_is_finds_it_again() {
        let mut prediction = Prediction::new(&[], &tokens(&[1, 2, 3, 4]));
        prediction.observe(TokenId(1));
        assert_eq!(next(&prediction), Some(2));
        prediction.observe(TokenId(50));
        assert_eq!(next(&prediction), None);
        prediction.observe(TokenId(3));
        assert_eq!(next(&prediction), Some(4));
    }

    #[test]
    fn one_that_waits_has_no_automaton_and_reading_is_bounded() {
        let long: Vec<TokenId> = (0..100_000).map(|token| TokenId(token % 97)).collect();
        let mut prediction = Prediction::new(&[], &long);
        let waiting = prediction.bytes();
        assert!(waiting < 4 * long.len() + 1024, "{waiting} bytes");
        prediction.observe(TokenId(0));
        assert_eq!(prediction.read, READ);
        assert_eq!(next(&prediction), Some(1));
    }

    proptest! {
        /// A match that began before its text was read may be found late, but what is matched and what is drafted after
        /// it always stand in the text.
        #[test]
        fn what_is_matched_and_drafted_stands_in_the_text(
            expected in prop::collection::vec(0..4_u32, 0..60),
            sequence in prop::collection::vec(0..4_u32, 0..60),
        ) {
            let mut prediction = Prediction::new(&[], &tokens(&expected));
            let stands = |text: &[u32]| expected.windows(text.len()).any(|window| window == text);
            for (at, &token) in sequence.iter().enumerate() {
                prediction.observe(TokenId(token));
                let mut text = sequence[at + 1 - prediction.end.len as usize..=at].to_vec();
                prop_assert!(text.is_empty() || stands(&text));
                if let Some(drafted) = next(&prediction) {
                    text.push(drafted);
                    prop_assert!(stands(&text));
                }
            }
        }
    }
}
