//! Cutting special tokens out of a text, before anything else looks at it.
//!
//! The pieces that come out cover the text in order; a special token is never cut by another. Where two would
//! overlap, the longer wins wherever it stands, not the first (of equal lengths the one with the lower id), which is what
//! llama.cpp gets by searching the text for each token in turn.
//!
//! Here the text is looked at once, however many tokens there are. For each place the longest token that ends there waits
//! in a queue, the longest first. One that overlaps what was cut out already is replaced by the next shorter one that ends
//! at the same place. So the queue is never longer than the text, and a place is looked at once, or a few times where
//! tokens end in other tokens.

use aho_corasick::Anchored;
use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use duet_types::TokenId;
use hashbrown::HashSet;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::spec::{TokenType, TokenizerSpec};
use super::vocabulary::Vocabulary;
use super::{SpecialTokens, TokenizerError};

/// The special tokens of a vocabulary.
#[derive(Debug)]
pub(super) struct SpecialMatcher {
    /// All of them.
    parsed: Finder,
    /// Those that are matched even in text from outside.
    always: Finder,
}

/// Finds some special tokens in texts.
#[derive(Debug)]
struct Finder {
    /// The longest first; equal lengths in the order of their ids. A token's place here is its rank.
    tokens: Vec<Special>,
    /// Its patterns are the tokens, by their ranks.
    automaton: NFA,
    /// Where the automaton begins.
    start: StateID,
    /// The rank of the longest token that each token ends in, itself not counted.
    shorter: Vec<Option<usize>>,
}

#[derive(Clone, Copy, Debug)]
struct Special {
    id: TokenId,
    /// Bytes.
    len: usize,
    /// Whitespace after it is dropped.
    strips: bool,
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Has no special token.
    Text(&'a str),
    /// Is a special token.
    Special(TokenId),
}

/// A special token in a text, with the whitespace that is dropped after it.
#[derive(Clone, Copy, Debug)]
struct Cut {
    begin: usize,
    end: usize,
    token: TokenId,
}

impl SpecialMatcher {
    pub(super) fn new(spec: &TokenizerSpec, vocabulary: &Vocabulary) -> Result<Self, TokenizerError> {
        let (mut parsed, mut always) = (Vec::new(), Vec::new());
        for (text, id) in spec.tokens.iter().zip(0..) {
            let id = TokenId(id);
            let only_parsed = match vocabulary.token_type(id) {
                Some(TokenType::Control | TokenType::Unknown) => true,
                Some(TokenType::UserDefined) => false,
                _ => continue,
            };
            let strips = spec.strip_after_special && !["<unk>", "<s>", "<|endoftext|>"].contains(&text);
            let special = (text, Special { id, len: text.len(), strips });
            parsed.push(special);
            if !only_parsed {
                always.push(special);
            }
        }
        Ok(Self { parsed: Finder::new(parsed)?, always: Finder::new(always)? })
    }

    /// The parts of `text` in order. None is empty.
    pub(super) fn pieces<'a>(&self, text: &'a str, special: SpecialTokens) -> Vec<Piece<'a>> {
        let finder = match special {
            SpecialTokens::Parse => &self.parsed,
            SpecialTokens::AsText => &self.always,
        };
        let mut pieces = Vec::new();
        let mut at = 0;
        for cut in finder.cuts(text, &mut 0) {
            if at < cut.begin {
                pieces.push(Piece::Text(&text[at..cut.begin]));
            }
            pieces.push(Piece::Special(cut.token));
            at = cut.end;
        }
        if at < text.len() {
            pieces.push(Piece::Text(&text[at..]));
        }
        pieces
    }
}

impl Finder {
    /// Finds `tokens`, which come in the order of their ids. Of those with the same text, the first is found.
    fn new(mut tokens: Vec<(&str, Special)>) -> Result<Self, TokenizerError> {
        let mut seen = HashSet::with_capacity(tokens.len());
        tokens.retain(|(text, _)| !text.is_empty() && seen.insert(*text));
        let bytes = tokens.iter().map(|(text, _)| text.len()).sum();
        if bytes > SPECIAL_BYTES_MAX {
            return Err(TokenizerError::SpecialBytes { bytes, limit: SPECIAL_BYTES_MAX });
        }
        tokens.sort_by_key(|(text, _)| Reverse(text.len()));
        let automaton = NFA::new(tokens.iter().map(|(text, _)| text.as_bytes()))?;
        let start = automaton.start_state(Anchored::No);
        let start = start.unwrap_or_else(|_| unreachable!("this automaton searches from anywhere"));
        let mut finder = Self {
            tokens: tokens.iter().map(|&(_, special)| special).collect(),
            automaton,
            start,
            shorter: Vec::new(),
        };
        finder.shorter = tokens.iter().map(|(text, _)| finder.ends_in(text)).collect();
        Ok(finder)
    }

    /// The longest token that a token with this text ends in, itself not counted.
    fn ends_in(&self, text: &str) -> Option<usize> {
        let next = |state, &byte| self.automaton.next_state(Anchored::No, state, byte);
        let state = text.as_bytes().iter().fold(self.start, next);
        (self.automaton.match_len(state) > 1).then(|| self.automaton.match_pattern(state, 1).as_usize())
    }

    /// The tokens to cut out of `text`, in order. Counts in `looks` how often a token and a place were compared.
    fn cuts(&self, text: &str, looks: &mut usize) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let mut waiting = self.longest_at_each_end(text);
        if waiting.is_empty() {
            return cuts;
        }
        let mut taken = vec![false; text.len()];
        while let Some(Reverse((rank, end))) = waiting.pop() {
            *looks += 1;
            let Special { id, len, strips } = self.tokens[rank];
            let begin = end - len;
            // What was taken before is no shorter than this token, so it cannot lie between its first and its last byte.
            if taken[end - 1] {
                continue;
            }
            if taken[begin] {
                waiting.extend(self.shorter[rank].map(|shorter| Reverse((shorter, end))));
                continue;
            }
            let free = text.as_bytes()[end..].iter().zip(&taken[end..]);
            let spaces = free.take_while(|&(byte, taken)| strips && !taken && is_space(*byte)).count();
            taken[begin..end + spaces].fill(true);
            cuts.push(Cut { begin, end: end + spaces, token: id });
        }
        cuts.sort_unstable_by_key(|cut| cut.begin);
        cuts
    }

    /// The rank of the longest token that ends at each place of `text`, and the place; the lowest rank, then the first
    /// place, comes out first.
    fn longest_at_each_end(&self, text: &str) -> BinaryHeap<Reverse<(usize, usize)>> {
        let mut found = Vec::new();
        if self.tokens.is_empty() {
            return found.into();
        }
        let mut state = self.start;
        for (&byte, end) in text.as_bytes().iter().zip(1..) {
            state = self.automaton.next_state(Anchored::No, state, byte);
            if self.automaton.is_match(state) {
                // A state's patterns are each other's endings, the longest first.
                found.push(Reverse((self.automaton.match_pattern(state, 0).as_usize(), end)));
            }
        }
        found.into()
    }
}

/// What counts as whitespace after a special token.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\x0B' | b'\x0C' | b'\r')
}

/// More than whole vocabularies have. An automaton takes some hundred bytes for each while it is built.
const SPECIAL_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests;
