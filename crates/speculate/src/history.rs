//! Drafts from texts that are known before the answer begins: finished interactions, or what the client predicts.
//! (CoordGen §3.1: the task-relevant database; §4.1: SAM's static automaton)
//!
//! Each text was read with the last tokens of its prompt before it, so that an answer's first token is found, too.

use crate::drafter::{Candidate, Drafter, Kind, Place};
use crate::sam::{self, Breadth};
use crate::suffix_automaton::{Matched, SuffixAutomaton};
use duet_types::TokenId;
use std::sync::Arc;

/// Drafts from an automaton that others may use, too.
#[derive(Clone, Debug)]
pub struct History {
    automaton: Arc<SuffixAutomaton>,
    kind: Kind,
    breadth: Breadth,
    end: Matched,
}

impl History {
    /// Finished interactions.
    #[must_use]
    pub fn new(automaton: Arc<SuffixAutomaton>, breadth: Breadth) -> Self {
        Self { automaton, kind: Kind::History, breadth, end: Matched::default() }
    }

    /// What the client expects as an answer to a prompt. (OpenAI: predicted outputs)
    #[must_use]
    pub fn predicted(prompt: &[TokenId], answer: &[TokenId]) -> Self {
        let mut automaton = SuffixAutomaton::default();
        add_interaction(&mut automaton, prompt, answer);
        let kind = Kind::Prediction;
        Self { automaton: Arc::new(automaton), kind, breadth: Breadth::Several, end: Matched::default() }
    }
}

/// Adds an answer to an automaton, after the end of its prompt.
pub fn add_interaction(automaton: &mut SuffixAutomaton, prompt: &[TokenId], answer: &[TokenId]) {
    automaton.begin_text();
    let cue = &prompt[prompt.len().saturating_sub(CUE)..];
    cue.iter().chain(answer).for_each(|&token| automaton.push(token));
    automaton.begin_text();
}

/// Tokens of a prompt that are read before its answer.
pub const CUE: usize = 4;

impl Drafter for History {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn observe(&mut self, token: TokenId) {
        self.end = self.automaton.step(self.end, token);
    }

    fn end(&self) -> Place {
        self.end.into()
    }

    fn step(&self, place: Place, token: TokenId) -> Place {
        self.automaton.step(place.into(), token).into()
    }

    fn propose(&self, place: Place, candidates: &mut Vec<Candidate>) {
        sam::propose(&self.automaton, place.into(), self.breadth, candidates);
    }

    /// Finished interactions are shared by all that draft from them, and counted once, where they are kept.
    fn bytes(&self) -> usize {
        if self.kind == Kind::Prediction { self.automaton.bytes() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &[u32]) -> Vec<TokenId> {
        text.iter().map(|&token| TokenId(token)).collect()
    }

    #[test]
    fn an_answer_is_found_from_its_first_token_on() {
        let mut history = History::predicted(&tokens(&[1, 2, 3, 4, 5]), &tokens(&[7, 8, 9]));
        tokens(&[9, 9, 2, 3, 4, 5]).into_iter().for_each(|token| history.observe(token));
        let mut candidates = Vec::new();
        history.propose(history.end(), &mut candidates);
        assert_eq!(candidates[0].token, TokenId(7));
    }

    #[test]
    fn what_is_not_in_it_ends_the_match_and_what_is_finds_it_again() {
        let mut history = History::predicted(&[], &tokens(&[1, 2, 3, 4]));
        let next = |history: &History| {
            let mut candidates = Vec::new();
            history.propose(history.end(), &mut candidates);
            candidates.first().map(|candidate| candidate.token.0)
        };
        history.observe(TokenId(1));
        assert_eq!(next(&history), Some(2));
        history.observe(TokenId(50));
        assert_eq!(next(&history), None);
        history.observe(TokenId(3));
        assert_eq!(next(&history), Some(4));
    }
}
