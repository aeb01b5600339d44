//! Which two neighbours of a SentencePiece text may join, and which of them first.

use hashbrown::HashMap;

use super::TokenizerError;
use super::spec::{TokenizerKind, TokenizerSpec};
use super::vocabulary::Vocabulary;

/// By what neighbours join: the greatest first.
#[derive(Debug)]
pub(super) enum Joins {
    /// Any two that make a token, by its score. One score a token, or none at all.
    Scores(Vec<f32>),
    /// Two that the list of merges names, the earlier the sooner.
    Merges(HashMap<(u32, u32), f32>),
}

impl Joins {
    pub(super) fn new(spec: &TokenizerSpec, vocabulary: &Vocabulary) -> Result<Self, TokenizerError> {
        if spec.kind != TokenizerKind::SentencePieceByMerges {
            let (tokens, found) = (spec.tokens.len(), spec.scores.len());
            if found != 0 && found != tokens {
                return Err(TokenizerError::Length { list: "token scores", tokens, found });
            }
            return Ok(Self::Scores(spec.scores.clone()));
        }
        let mut merges = HashMap::with_capacity(spec.merges.len());
        for (rank, merge) in spec.merges.iter().enumerate() {
            // A merge of what is no token can never apply.
            let Some((left, right)) = split(merge) else { continue };
            let id = |piece: &str| vocabulary.find(piece.replace('▁', " ").as_bytes());
            if let (Some(left), Some(right)) = (id(left), id(right)) {
                merges.entry((left, right)).or_insert(-(rank as f32));
            }
        }
        Ok(Self::Merges(merges))
    }

    /// How soon two neighbours join that make the token `joined`, if they may.
    pub(super) fn score(&self, pair: (u32, u32), joined: u32) -> Option<f32> {
        match self {
            Self::Scores(scores) => Some(scores.get(joined as usize).copied().unwrap_or(0.0)),
            Self::Merges(merges) => merges.get(&pair).copied(),
        }
    }

    /// Whether runs of line breaks are apart from what is around them, each a token where the vocabulary has it.
    pub(super) fn keeps_breaks_apart(&self) -> bool {
        matches!(self, Self::Merges(_))
    }
}

/// The sides of a merge, of which the first has one character at least.
fn split(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge[first..].find(' ')?;
    Some((&merge[..space], &merge[space + 1..]))
}
