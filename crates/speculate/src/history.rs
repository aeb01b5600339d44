//! Drafts from finished interactions. (CoordGen §3.1: the task-relevant database; §4.1: SAM's static automaton)
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
    breadth: Breadth,
    end: Matched,
}

impl History {
    /// Finished interactions.
    #[must_use]
    pub fn new(automaton: Arc<SuffixAutomaton>, breadth: Breadth) -> Self {
        Self { automaton, breadth, end: Matched::default() }
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
        Kind::History
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
        0
    }
}
