//! The tokenizers of encoders.

use super::{TokenizerError, TooManyTokens, Unigram, WordPiece};
use crate::gguf::Metadata;
use duet_types::{TokenId, Tokens};

/// By what an encoder reads texts.
#[derive(Debug)]
pub enum EncoderTokenizer {
    /// BERT's.
    WordPiece(WordPiece),
    /// XLM-R's.
    Unigram(Unigram),
}

impl EncoderTokenizer {
    /// The tokenizer that a model file describes.
    ///
    /// # Errors
    /// [`TokenizerError`] if it is of another kind, or what it says does not fit together.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        match metadata.str("tokenizer.ggml.model")? {
            super::unigram::NAME => Ok(Self::Unigram(Unigram::from_metadata(metadata)?)),
            _ => Ok(Self::WordPiece(WordPiece::from_metadata(metadata)?)),
        }
    }

    /// How many tokens there are.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        match self {
            Self::WordPiece(tokenizer) => tokenizer.vocabulary(),
            Self::Unigram(tokenizer) => tokenizer.vocabulary(),
        }
    }

    /// What every text begins with.
    #[must_use]
    pub fn begin(&self) -> TokenId {
        match self {
            Self::WordPiece(tokenizer) => tokenizer.begin(),
            Self::Unigram(tokenizer) => tokenizer.begin(),
        }
    }

    /// What every text ends with.
    #[must_use]
    pub fn separator(&self) -> TokenId {
        match self {
            Self::WordPiece(tokenizer) => tokenizer.separator(),
            Self::Unigram(tokenizer) => tokenizer.separator(),
        }
    }

    /// What the second text of a pair begins with, behind the end of the first: XLM-R's a second separator.
    #[must_use]
    pub fn before_second(&self) -> Option<TokenId> {
        match self {
            Self::WordPiece(_) => None,
            Self::Unigram(tokenizer) => Some(tokenizer.separator()),
        }
    }

    /// The tokens of `text`, without special ones, if there are at most `most`.
    ///
    /// # Errors
    /// [`TooManyTokens`] if there are more.
    pub fn encode_within(&self, text: &str, most: Tokens) -> Result<Vec<TokenId>, TooManyTokens> {
        match self {
            Self::WordPiece(tokenizer) => tokenizer.encode_within(text, most),
            Self::Unigram(tokenizer) => tokenizer.encode_within(text, most),
        }
    }

    /// The first `most` tokens of `text`, without special ones.
    #[must_use]
    pub fn beginning(&self, text: &str, most: usize) -> Vec<TokenId> {
        match self {
            Self::WordPiece(tokenizer) => tokenizer.beginning(text, most),
            Self::Unigram(tokenizer) => tokenizer.beginning(text, most),
        }
    }
}
