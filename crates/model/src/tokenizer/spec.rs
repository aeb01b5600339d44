//! What a model file says about its tokenizer, before any of it is checked.

use duet_types::TokenId;

use super::TokenizerError;
use super::pretokenizer::PreTokenizer;
use crate::gguf::{Metadata, Texts, Value};

/// A vocabulary and how to use it. Plain data: [`Tokenizer::new`](super::Tokenizer::new) checks it.
#[derive(Clone, Debug)]
pub struct TokenizerSpec {
    /// How text becomes tokens.
    pub kind: TokenizerKind,
    /// How byte-pair text is split into words first (`tokenizer.ggml.pre`); `None` means `default`.
    pub pre: Option<String>,
    /// The text of each token, in the spelling of the kind: the byte alphabet of GPT-2, or `▁` for spaces.
    pub tokens: Texts,
    /// A number per token for SentencePiece: the pair with the greatest score joins first. May be empty.
    pub scores: Vec<f32>,
    /// What each token is for (see [`TokenType`]). May be empty: all are normal.
    pub types: Vec<i32>,
    /// Byte-pair merges, the earliest to be applied first, each as two spellings with a space between.
    pub merges: Texts,
    /// Begins a text.
    pub bos: Option<TokenId>,
    /// Ends a text.
    pub eos: Option<TokenId>,
    /// Ends a turn.
    pub eot: Option<TokenId>,
    /// Ends a message that expects a tool's answer.
    pub eom: Option<TokenId>,
    /// Stands for what the vocabulary cannot say.
    pub unknown: Option<TokenId>,
    /// Whether a prompt begins with `bos`.
    pub add_bos: bool,
    /// Whether a prompt ends with `eos`.
    pub add_eos: bool,
    /// Whether SentencePiece text begins with a space that the writer did not write.
    pub add_space_prefix: bool,
    /// Whether whitespace after a special token is dropped. True of Phi-3, whose files do not say so.
    pub strip_after_special: bool,
}

/// The algorithms that model files ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenizerKind {
    /// `gpt2`: byte-level byte-pair encoding with a list of merges.
    BytePairs,
    /// `llama`: SentencePiece byte-pair encoding by scores, with single bytes for unknown characters.
    SentencePiece,
    /// `gemma4`: the same spelling and the same bytes, by a list of merges.
    SentencePieceByMerges,
}

/// What a token is for: `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// Text.
    Normal,
    /// What the vocabulary cannot say.
    Unknown,
    /// Speaks about the text and is not part of it.
    Control,
    /// Text that is always one token.
    UserDefined,
    /// A place kept free.
    Unused,
    /// One byte, spelled `<0xXX>`.
    Byte,
}

impl TokenType {
    /// The type with this number. Numbers that nobody defined count as unused: never printed, as llama.cpp does.
    pub(super) fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            6 => Self::Byte,
            _ => Self::Unused,
        }
    }
}

impl TokenizerSpec {
    /// Special tokens that the vocabulary does not have are as good as none: files of cut vocabularies name them.
    pub(super) fn forget_what_is_not_there(&mut self) {
        let tokens = self.tokens.len();
        for special in [&mut self.bos, &mut self.eos, &mut self.eot, &mut self.eom, &mut self.unknown] {
            *special = special.filter(|token| (token.0 as usize) < tokens);
        }
    }

    /// Reads the `tokenizer.ggml.*` keys. Where a key is absent, the default is that of llama.cpp,
    /// except that no special token is guessed for byte-pair vocabularies.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let kind = match metadata.str("tokenizer.ggml.model")? {
            "gpt2" => TokenizerKind::BytePairs,
            "llama" => TokenizerKind::SentencePiece,
            "gemma4" => TokenizerKind::SentencePieceByMerges,
            other => return Err(TokenizerError::Kind(other.to_owned())),
        };
        let sentence_piece = kind == TokenizerKind::SentencePiece;
        let by_merges = kind == TokenizerKind::SentencePieceByMerges;
        let pre = metadata.opt_str("tokenizer.ggml.pre")?.map(str::to_owned);
        let tokens = metadata.strings("tokenizer.ggml.tokens")?.clone();
        let scores = match metadata.opt_f32s("tokenizer.ggml.scores") {
            Ok(scores) if sentence_piece => scores.unwrap_or_default().to_vec(),
            Err(error) if sentence_piece => return Err(error.into()),
            _ => Vec::new(),
        };
        let types = metadata.opt_i32s("tokenizer.ggml.token_type")?.unwrap_or_default().into_owned();
        let merges = if sentence_piece { Texts::default() } else { metadata.strings("tokenizer.ggml.merges")?.clone() };

        // SentencePiece trainers number these so; a smaller vocabulary has none of them.
        let guess = |id: u32| (sentence_piece && (id as usize) < tokens.len()).then_some(id);
        let special = |key: &str, guessed: Option<u32>| -> Result<Option<TokenId>, TokenizerError> {
            match metadata.get(key).and_then(Value::integer) {
                // Some converters write so that there is none.
                Some(-1) => Ok(None),
                _ => Ok(metadata.opt_u32(key)?.or(guessed).map(TokenId)),
            }
        };
        let add_bos = match PreTokenizer::named(pre.as_deref()) {
            Some(pre) if kind == TokenizerKind::BytePairs => pre.add_bos,
            _ => true,
        };
        Ok(Self {
            bos: special("tokenizer.ggml.bos_token_id", guess(1))?,
            eos: special("tokenizer.ggml.eos_token_id", guess(2))?,
            eot: special("tokenizer.ggml.eot_token_id", None)?,
            eom: special("tokenizer.ggml.eom_token_id", None)?,
            unknown: special("tokenizer.ggml.unknown_token_id", guess(0))?,
            // Early files of Gemma 4 say that they want none, and answer nonsense without.
            add_bos: by_merges || metadata.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(add_bos),
            add_eos: metadata.opt_bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
            add_space_prefix: metadata.opt_bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(sentence_piece),
            strip_after_special: metadata.opt_str("general.name")?.is_some_and(is_phi3),
            kind,
            pre,
            tokens,
            scores,
            types,
            merges,
        })
    }
}

fn is_phi3(name: &str) -> bool {
    let name = name.to_lowercase();
    name.contains("phi-3") || name.contains("phi3")
}
