//! Texts as encoders read them.

use super::TextError;
use crate::tokenizer::TooManyTokens;
use duet_types::{TokenId, Tokens};
use std::ops::Range;

/// The tokens of a text, or of two that are read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    tokens: Vec<TokenId>,
    /// Where the second one begins; the end if there is none.
    second: usize,
}

/// What becomes of texts that the context has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlong {
    /// They are refused.
    Refused,
    /// They are read up to there.
    Cut,
}

impl Text {
    /// A text of at most `most` tokens.
    pub(super) fn new(mut tokens: Vec<TokenId>, most: Tokens, overlong: Overlong) -> Result<Self, TextError> {
        if tokens.is_empty() {
            return Err(TextError::Empty);
        }
        match overlong {
            Overlong::Cut => tokens.truncate(most.as_usize()),
            Overlong::Refused if tokens.len() > most.as_usize() => return Err(TooManyTokens { most }.into()),
            Overlong::Refused => {}
        }
        Ok(Self { second: tokens.len(), tokens })
    }

    /// Tokens of a text, or of two, of which the second one begins at `second`. What is no text of an encoder it refuses.
    #[must_use]
    pub fn of_tokens(tokens: Vec<TokenId>, second: usize) -> Self {
        Self { second, tokens }
    }

    /// Two texts, each with its special tokens.
    pub(super) fn pair(first: Vec<TokenId>, second: Vec<TokenId>) -> Self {
        let at = first.len();
        let mut tokens = first;
        tokens.extend(second);
        Self { tokens, second: at }
    }

    /// Its tokens, special ones included.
    #[must_use]
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// How many these are.
    #[must_use]
    pub fn len(&self) -> Tokens {
        Tokens(self.tokens.len() as u32)
    }

    /// Whether there are none, which is so of no text that an encoder made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Which of the two a token is of: 0 or 1.
    pub(super) fn segment(&self, index: usize) -> usize {
        usize::from(index >= self.second)
    }
}

/// The rows of texts that follow each other.
pub(super) fn rows_of(texts: &[Text]) -> Vec<Range<usize>> {
    let mut end = 0;
    let row = |text: &Text| {
        let start = end;
        end += text.tokens.len();
        start..end
    };
    texts.iter().map(row).collect()
}
