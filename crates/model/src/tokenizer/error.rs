//! What can be wrong with a vocabulary.

use crate::gguf::GgufError;

/// Why a tokenizer could not be built. Once built, a tokenizer has no errors: any text has an encoding.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// `tokenizer.ggml.model` names a kind of tokenizer that duet does not have.
    #[error("tokenizer model `{0}` is not supported (supported: gpt2, llama, gemma4; for embeddings bert, t5)")]
    Kind(String),
    /// `tokenizer.ggml.pre` names a way of splitting text into words that duet does not have.
    #[error("pre-tokenizer `{0}` is not supported; words would be split wrongly")]
    PreTokenizer(String),
    /// The vocabulary has no tokens.
    #[error("the vocabulary is empty")]
    Empty,
    /// Token ids are 32-bit numbers.
    #[error("the vocabulary has {0} tokens, more than a token id can name")]
    TooLarge(usize),
    /// A list that belongs to the tokens has another length than theirs.
    #[error("the vocabulary has {tokens} tokens but {found} {list}")]
    Length {
        /// Which list.
        list: &'static str,
        /// How many tokens there are.
        tokens: usize,
        /// How many entries the list has.
        found: usize,
    },
    /// A piece whose likelihood is no number.
    #[error("token `{token}` has the score {score}")]
    Score {
        /// Its text.
        token: String,
        /// What it has.
        score: f32,
    },
    /// `tokenizer.ggml.precompiled_charsmap` cannot be read.
    #[error("`tokenizer.ggml.precompiled_charsmap`: {problem}")]
    CharsMap {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A special token id lies outside the vocabulary.
    #[error("{name} token is {id}, but the vocabulary has {tokens} tokens")]
    SpecialOutOfRange {
        /// Which special token.
        name: &'static str,
        /// Its id.
        id: u32,
        /// How many tokens there are.
        tokens: usize,
    },
    /// Special tokens with more text than any model's.
    #[error("the special tokens have {bytes} bytes of text, more than the {limit} that duet allows")]
    SpecialBytes {
        /// Of all of them together.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The special tokens could not be made into a matcher.
    #[error("special tokens cannot be matched: {0}")]
    Special(#[from] aho_corasick::BuildError),
    /// The metadata lacks a key, or has it with another type.
    #[error(transparent)]
    Metadata(#[from] GgufError),
}
