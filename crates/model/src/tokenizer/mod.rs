//! Tokenizers: text to token ids and back, from what a GGUF file says and nothing else.
//!
//! **Invariants.** Any text has an encoding: building a tokenizer may fail, using one may not.
//! Encoding is exact: the ids are those of llama.cpp, which the golden tests check, because another split of the same
//! text is another input to the model. It is linear, up to a logarithm, on every input.
//! [`SpecialTokens::AsText`] never yields a control token, so text from outside cannot speak as the template does;
//! here llama.cpp is less strict, and only here do the ids differ.
//!
//! There is no normalisation here, but for encoders, and no clean-up of spaces after decoding: decoding returns what the model said.

mod alphabet;
mod byte_pairs;
mod category;
mod chain;
mod charsmap;
mod detokenizer;
mod error;
mod joins;
mod of_encoder;
mod pretokenizer;
mod reach;
mod roles;
mod sentence_piece;
mod spec;
mod special;
mod unigram;
mod vocabulary;
mod word_piece;
mod words;

use duet_types::{TokenId, Tokens};
use std::ops::ControlFlow;

pub use detokenizer::Detokenizer;
pub use error::TokenizerError;
pub use of_encoder::EncoderTokenizer;
pub use spec::{TokenType, TokenizerKind, TokenizerSpec};
pub use unigram::Unigram;
pub use word_piece::WordPiece;

use crate::gguf::Metadata;
use byte_pairs::BytePairs;
use reach::Reach;
use sentence_piece::{Position, SentencePiece};
use special::{Piece, SpecialMatcher};
use vocabulary::Vocabulary;

/// What to do with the text of special tokens inside a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// They are the tokens. For text that a template made.
    Parse,
    /// They are text like any other. For text from outside. User-defined tokens are still matched.
    AsText,
}

/// A vocabulary and its algorithm, ready to use.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    special: SpecialMatcher,
    model: Model,
    bos: Option<TokenId>,
    eos: Option<TokenId>,
    add_bos: bool,
    add_eos: bool,
    /// In ascending order.
    ends: Vec<TokenId>,
    /// Absent if one token can stand for any amount of text.
    reach: Option<Reach>,
}

/// A text has more tokens than its reader has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text has more than {most} tokens")]
pub struct TooManyTokens {
    /// How many it may have.
    pub most: Tokens,
}

/// Boxed because each holds a table of all bytes.
#[derive(Debug)]
enum Model {
    BytePairs(Box<BytePairs>),
    SentencePiece(Box<SentencePiece>),
}

impl Tokenizer {
    /// Builds a tokenizer. Optimised, it takes some 15 ms for a vocabulary of 50 000 tokens and 130 ms for 280 000.
    pub fn new(mut spec: TokenizerSpec) -> Result<Self, TokenizerError> {
        spec.forget_what_is_not_there();
        let (types, ends) = roles::assign(&spec);
        let mut vocabulary = Vocabulary::new(&spec, types)?;
        let special = SpecialMatcher::new(&spec, &vocabulary)?;
        let model = match spec.kind {
            TokenizerKind::BytePairs => Model::BytePairs(Box::new(BytePairs::new(&spec, &mut vocabulary)?)),
            TokenizerKind::SentencePiece | TokenizerKind::SentencePieceByMerges => {
                Model::SentencePiece(Box::new(SentencePiece::new(&spec, &vocabulary)?))
            }
        };
        let reach = match &model {
            // A special token may take the white space after it along, however much that is.
            _ if spec.strip_after_special => None,
            Model::BytePairs(model) => Some(model.reach(&vocabulary)),
            Model::SentencePiece(model) => model.reach(&vocabulary),
        };
        Ok(Self {
            reach,
            vocabulary,
            special,
            model,
            bos: spec.bos,
            eos: spec.eos,
            add_bos: spec.add_bos,
            add_eos: spec.add_eos,
            ends,
        })
    }

    /// Builds the tokenizer that a model file describes.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        Self::new(TokenizerSpec::from_metadata(metadata)?)
    }

    /// The tokens of `text`. Adds no `bos` and no `eos`.
    #[must_use]
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        let _ = self.append(text, special, usize::MAX, &mut tokens);
        tokens
    }

    /// The tokens of `text` as [`Self::encode`] makes them, if there are at most `most`. A text that has more costs no
    /// more than one that has `most`, however long it is.
    ///
    /// # Errors
    /// [`TooManyTokens`] if there are more.
    pub fn encode_within(
        &self,
        text: &str,
        special: SpecialTokens,
        most: Tokens,
    ) -> Result<Vec<TokenId>, TooManyTokens> {
        let too_many = TooManyTokens { most };
        if self.certainly_exceeds([text].into_iter(), most) {
            return Err(too_many);
        }
        let mut tokens = Vec::new();
        match self.append(text, special, most.as_usize(), &mut tokens) {
            ControlFlow::Continue(()) => Ok(tokens),
            ControlFlow::Break(()) => Err(too_many),
        }
    }

    /// Whether some texts together certainly have more than `most` tokens, as far as that shows without tokenising them:
    /// a millisecond for each megabyte at most.
    #[must_use]
    pub fn certainly_exceeds<'a>(&self, texts: impl Iterator<Item = &'a str>, most: Tokens) -> bool {
        self.reach.as_ref().is_some_and(|reach| reach.exceeds(texts, most.as_usize()))
    }

    /// Appends the tokens of `text`; breaks off when there are more than `most` in all.
    fn append(&self, text: &str, special: SpecialTokens, most: usize, tokens: &mut Vec<TokenId>) -> ControlFlow<()> {
        let mut position = Position::WordBegins;
        for piece in self.special.pieces(text, special) {
            match piece {
                Piece::Special(token) => {
                    tokens.push(token);
                    position = Position::WordBegins;
                }
                Piece::Text(text) => {
                    match &self.model {
                        Model::BytePairs(model) => model.encode(&self.vocabulary, text, most, tokens)?,
                        Model::SentencePiece(model) => model.encode(&self.vocabulary, text, position, tokens),
                    }
                    position = Position::Continues;
                }
            }
            if tokens.len() > most {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// The special tokens of `text`, each with the text behind it; the first part may have none before it.
    pub(crate) fn parts<'a>(&'a self, text: &'a str) -> Vec<(Option<TokenId>, &'a str)> {
        let mut parts = vec![(None, "")];
        for piece in self.special.pieces(text, SpecialTokens::Parse) {
            match piece {
                Piece::Special(token) => parts.push((Some(token), "")),
                Piece::Text(text) => parts.iter_mut().next_back().into_iter().for_each(|last| last.1 = text),
            }
        }
        parts
    }

    /// The tokens of a whole prompt: with `bos` before and `eos` after it where the model wants them and the text
    /// does not have them already.
    #[must_use]
    pub fn encode_prompt(&self, text: &str, special: SpecialTokens) -> Vec<TokenId> {
        self.as_prompt(self.encode(text, special))
    }

    /// The tokens of a whole prompt as [`Self::encode_prompt`] makes them, if there are at most `most`; see
    /// [`Self::encode_within`].
    ///
    /// # Errors
    /// [`TooManyTokens`] if there are more.
    pub fn encode_prompt_within(
        &self,
        text: &str,
        special: SpecialTokens,
        most: Tokens,
    ) -> Result<Vec<TokenId>, TooManyTokens> {
        let tokens = self.as_prompt(self.encode_within(text, special, most)?);
        if tokens.len() > most.as_usize() { Err(TooManyTokens { most }) } else { Ok(tokens) }
    }

    /// With the tokens before and after it that a whole prompt has.
    fn as_prompt(&self, mut tokens: Vec<TokenId>) -> Vec<TokenId> {
        if let Some(bos) = self.bos.filter(|_| self.add_bos)
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        if let Some(eos) = self.eos.filter(|_| self.add_eos)
            && tokens.last() != Some(&eos)
        {
            tokens.push(eos);
        }
        tokens
    }

    /// The bytes that a token says. Not always text: a character may be spread over several tokens.
    /// Empty for control, unknown and unused tokens (see [`Self::text_of_special`]) and for ids that do not exist.
    #[must_use]
    pub fn bytes(&self, token: TokenId) -> &[u8] {
        match self.vocabulary.token_type(token) {
            Some(TokenType::Normal | TokenType::UserDefined | TokenType::Byte) => self.vocabulary.bytes(token.0),
            _ => &[],
        }
    }

    /// The text of a control or unknown token, which [`Self::bytes`] keeps silent about.
    #[must_use]
    pub fn text_of_special(&self, token: TokenId) -> Option<&str> {
        match self.vocabulary.token_type(token)? {
            TokenType::Control | TokenType::Unknown => std::str::from_utf8(self.vocabulary.bytes(token.0)).ok(),
            _ => None,
        }
    }

    /// The control or unknown token of this text.
    #[must_use]
    pub fn special(&self, text: &str) -> Option<TokenId> {
        match self.encode(text, SpecialTokens::Parse).as_slice() {
            [token] if self.text_of_special(*token).is_some() => Some(*token),
            _ => None,
        }
    }

    /// How many tokens there are.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.vocabulary.len()
    }

    /// The token that begins a text.
    #[must_use]
    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// The token that ends a text.
    #[must_use]
    pub fn eos(&self) -> Option<TokenId> {
        self.eos
    }

    /// Whether the model has said all it will say: the end of a text, of a turn or of a message, or a well-known
    /// token that means so.
    #[must_use]
    pub fn is_end_of_generation(&self, token: TokenId) -> bool {
        self.ends.binary_search(&token).is_ok()
    }

    /// The text of `tokens`, without special tokens. The space that encoding put before the text is taken away again.
    /// Bytes that are no text become U+FFFD.
    #[must_use]
    pub fn decode(&self, tokens: &[TokenId]) -> String {
        let mut detokenizer = self.detokenizer();
        let mut text = String::new();
        for &token in tokens {
            detokenizer.push_bytes(self.bytes(token), &mut text);
        }
        text.push_str(&detokenizer.finish());
        if let Model::SentencePiece(model) = &self.model
            && model.adds_space_prefix()
            && text.starts_with(' ')
        {
            text.remove(0);
        }
        text
    }

    /// A detokeniser for one stream of tokens. It takes no leading space away: a stream continues a text.
    #[must_use]
    pub fn detokenizer(&self) -> Detokenizer {
        Detokenizer::default()
    }
}
