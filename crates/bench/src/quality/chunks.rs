//! A text cut as `llama-perplexity` cuts it: chunks as long as the context, each read from its start, the first token
//! of each replaced by the one that begins texts, where the model wants one. Of each the second half is scored: position
//! `context / 2` and those after it, as far as a token follows in the chunk.

use super::Chunk;
use duet_model::Model;
use duet_model::tokenizer::SpecialTokens;
use duet_types::TokenId;
use std::ops::Range;

/// The chunks of a text.
#[derive(Clone, Debug)]
pub struct Chunks {
    /// As they are read.
    tokens: Vec<TokenId>,
    /// As they are in the text: where the first token of a chunk was replaced, here it is not.
    text: Vec<TokenId>,
    context: usize,
    vocabulary: usize,
}

/// Why a text has no chunks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunksError {
    /// It does not fill one.
    #[error("the text has {tokens} tokens, and a chunk needs {context}: give a longer text or a shorter --context")]
    TooShort {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens of a chunk.
        context: usize,
    },
    /// A chunk is longer than the model reads.
    #[error("--context {context} is beyond the model's context of {most}")]
    BeyondContext {
        /// Tokens of a chunk.
        context: usize,
        /// Tokens of the model's context.
        most: usize,
    },
    /// Nothing of a chunk would be scored.
    #[error("--context {0} is too short: chunks have at least 4 tokens")]
    Tiny(usize),
    /// A token that the model does not have.
    #[error("the reference's text has token {token}, and the model's vocabulary ends at {vocabulary}")]
    Vocabulary {
        /// The token.
        token: TokenId,
        /// How many tokens the model has.
        vocabulary: usize,
    },
}

impl Chunks {
    /// The chunks of a text, `most` of them at most.
    ///
    /// # Errors
    /// [`ChunksError`].
    pub fn of_text(model: &Model, text: &str, context: usize, most: Option<usize>) -> Result<Self, ChunksError> {
        let tokenizer = model.tokenizer();
        let mut tokens: Vec<TokenId> = bos(model).into_iter().collect();
        tokens.extend(tokenizer.encode(text, SpecialTokens::AsText));
        Self::of_tokens(model, tokens, context, most)
    }

    /// The chunks of a text that is tokens already.
    ///
    /// # Errors
    /// [`ChunksError`].
    pub fn of_tokens(
        model: &Model,
        mut text: Vec<TokenId>,
        context: usize,
        most: Option<usize>,
    ) -> Result<Self, ChunksError> {
        let (limit, vocabulary) = (model.config().context.as_usize(), model.config().vocabulary);
        if context < 4 {
            return Err(ChunksError::Tiny(context));
        }
        if context > limit {
            return Err(ChunksError::BeyondContext { context, most: limit });
        }
        if text.len() < context {
            return Err(ChunksError::TooShort { tokens: text.len(), context });
        }
        if let Some(&token) = text.iter().find(|token| token.0 as usize >= vocabulary) {
            return Err(ChunksError::Vocabulary { token, vocabulary });
        }
        let count = most.map_or(text.len() / context, |most| most.min(text.len() / context));
        text.truncate(count * context);
        let mut tokens = text.clone();
        if let Some(bos) = bos(model) {
            tokens.iter_mut().step_by(context).for_each(|token| *token = bos);
        }
        Ok(Self { tokens, text, context, vocabulary })
    }

    /// Each, as it is read.
    pub fn each(&self) -> impl ExactSizeIterator<Item = &Chunk> {
        self.tokens.chunks_exact(self.context)
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.tokens.len() / self.context
    }

    /// The text's tokens, one chunk after the other.
    #[must_use]
    pub fn text(&self) -> &[TokenId] {
        &self.text
    }

    /// Tokens of a chunk.
    #[must_use]
    pub fn context(&self) -> usize {
        self.context
    }

    /// Tokens that the model knows.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The rows of a chunk that are scored: what they say of the token after them.
    #[must_use]
    pub fn scored(&self) -> Range<usize> {
        self.context / 2..self.context - 1
    }
}

/// The token that the model wants before a text.
fn bos(model: &Model) -> Option<TokenId> {
    let tokenizer = model.tokenizer();
    tokenizer.bos().filter(|bos| tokenizer.encode_prompt("", SpecialTokens::AsText).first() == Some(bos))
}
