//! Cutting special tokens out of a text, before anything else looks at it.
//!
//! The pieces that come out cover the text in order; a special token is never cut by another. Where two would
//! overlap, the longer wins wherever it stands, not the first: the text is searched for each token in turn,
//! the longest first, which is what llama.cpp does.

use aho_corasick::AhoCorasick;
use duet_types::TokenId;

use super::spec::{TokenType, TokenizerSpec};
use super::vocabulary::Vocabulary;
use super::{SpecialTokens, TokenizerError};

/// The special tokens of a vocabulary.
#[derive(Debug)]
pub(super) struct SpecialMatcher {
    /// The longest first; equal lengths in the order of their ids.
    tokens: Vec<Special>,
    /// Finds which tokens a text contains at all. Most contain none, and a vocabulary can have thousands.
    any: AhoCorasick,
    strip_after: bool,
}

#[derive(Debug)]
struct Special {
    id: TokenId,
    text: Box<str>,
    /// Matched only where the caller asks for special tokens.
    only_parsed: bool,
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

impl SpecialMatcher {
    pub(super) fn new(spec: &TokenizerSpec, vocabulary: &Vocabulary) -> Result<Self, TokenizerError> {
        let mut tokens: Vec<Special> = Vec::new();
        for (text, id) in spec.tokens.iter().zip(0..) {
            let id = TokenId(id);
            let only_parsed = match vocabulary.token_type(id) {
                Some(TokenType::Control | TokenType::Unknown) => true,
                Some(TokenType::UserDefined) => false,
                _ => continue,
            };
            if text.is_empty() {
                continue;
            }
            let strips = spec.strip_after_special && !["<unk>", "<s>", "<|endoftext|>"].contains(&text.as_str());
            tokens.push(Special { id, text: text.as_str().into(), only_parsed, strips });
        }
        tokens.sort_by_key(|special| std::cmp::Reverse(special.text.len()));
        let any = AhoCorasick::new(tokens.iter().map(|special| special.text.as_bytes()))?;
        Ok(Self { tokens, any, strip_after: spec.strip_after_special })
    }

    /// The parts of `text` in order. None is empty.
    pub(super) fn pieces<'a>(&self, text: &'a str, special: SpecialTokens) -> Vec<Piece<'a>> {
        let mut pieces = if text.is_empty() { Vec::new() } else { vec![Piece::Text(text)] };
        for index in self.present(text, special) {
            let token = &self.tokens[index];
            let mut next = Vec::with_capacity(pieces.len());
            for piece in pieces {
                match piece {
                    Piece::Text(text) => self.cut(text, token, &mut next),
                    Piece::Special(_) => next.push(piece),
                }
            }
            pieces = next;
        }
        pieces
    }

    /// The indices of the tokens that `text` contains, in ascending order.
    fn present(&self, text: &str, special: SpecialTokens) -> Vec<usize> {
        let wanted = |token: &Special| special == SpecialTokens::Parse || !token.only_parsed;
        let mut missing = self.tokens.iter().filter(|token| wanted(token)).count();
        let mut present = Vec::new();
        if missing == 0 {
            return present;
        }
        let mut seen = vec![false; self.tokens.len()];
        for found in self.any.find_overlapping_iter(text) {
            let index = found.pattern().as_usize();
            if seen[index] || !wanted(&self.tokens[index]) {
                continue;
            }
            seen[index] = true;
            present.push(index);
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
        present.sort_unstable();
        present
    }

    fn cut<'a>(&self, text: &'a str, token: &Special, pieces: &mut Vec<Piece<'a>>) {
        let mut rest = text;
        while let Some(at) = rest.find(&*token.text) {
            if at > 0 {
                pieces.push(Piece::Text(&rest[..at]));
            }
            pieces.push(Piece::Special(token.id));
            rest = &rest[at + token.text.len()..];
            if self.strip_after && token.strips {
                rest = rest.trim_start_matches([' ', '\t', '\n', '\u{B}', '\u{C}', '\r']);
            }
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest));
        }
    }
}
