//! WordPiece, as BERT's vocabularies are meant to be read: words are cut into the longest pieces that there are.
//!
//! A text is cleaned first: controls go, characters of Chinese and Japanese are words of their own, accents and capitals go
//! where the vocabulary has none. It is split at white space and around punctuation, and each word takes the longest token
//! that it begins with, then the longest that goes on from there; a word for which that does not come out is one unknown token.
//! The ids are those of the `tokenizers` library, which the golden tests check, but for one thing: what looks like a special
//! token is text, so that text from outside cannot speak as the format does.
//!
//! In files a token that begins a word is spelled with `▁` before it, and one that goes on as it is.
//!
//! It is linear: a word of more characters than [`WORD_CHARS_MAX`] is unknown, and no piece is looked for that is longer than
//! the longest token.

use super::{TokenizerError, TooManyTokens};
use crate::gguf::{GgufError, Metadata, Texts};
use duet_types::{TokenId, Tokens};
use std::collections::HashMap;
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// A vocabulary of word pieces.
#[derive(Debug)]
pub struct WordPiece {
    /// Tokens that begin a word.
    begins: HashMap<Box<str>, TokenId>,
    /// Tokens that go on in one.
    goes_on: HashMap<Box<str>, TokenId>,
    case: Case,
    /// Characters of the longest token.
    longest: usize,
    count: usize,
    begin: TokenId,
    separator: TokenId,
    unknown: TokenId,
}

/// Whether a vocabulary knows of capitals and accents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Kept,
    Dropped,
}

impl WordPiece {
    /// The tokenizer that a model file describes.
    ///
    /// # Errors
    /// [`TokenizerError`] if it is of another kind, or lacks its special tokens.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let kind = metadata.str("tokenizer.ggml.model")?;
        if kind != "bert" {
            return Err(TokenizerError::Kind(kind.to_owned()));
        }
        let tokens = metadata.strings("tokenizer.ggml.tokens")?;
        let types = metadata.opt_i32s("tokenizer.ggml.token_type")?.unwrap_or_default();
        let is_control = |id: usize, text: &str| match types.get(id) {
            Some(kind) => *kind == CONTROL,
            None => text.starts_with('[') && text.ends_with(']') && text.len() > 2,
        };
        let (mut begins, mut goes_on) = (HashMap::<Box<str>, TokenId>::new(), HashMap::<Box<str>, TokenId>::new());
        for (id, text) in tokens.iter().enumerate().filter(|(id, text)| !is_control(*id, text)) {
            let (table, text) = match text.strip_prefix(WORD) {
                Some(text) => (&mut begins, text),
                None => (&mut goes_on, text),
            };
            let id = u32::try_from(id).map_err(|_| TokenizerError::TooLarge(tokens.len()))?;
            // Where a text is there twice, the first one counts.
            table.entry(text.into()).or_insert(TokenId(id));
        }
        let special = |names: &[&'static str], spelled: &str| special(metadata, tokens, names, spelled);
        Ok(Self {
            longest: begins.keys().chain(goes_on.keys()).map(|text| text.chars().count()).max().unwrap_or(0),
            case: if begins.keys().any(|text| text.bytes().any(|byte| byte.is_ascii_uppercase())) {
                Case::Kept
            } else {
                Case::Dropped
            },
            count: tokens.len(),
            begin: special(&["cls", "bos"], "[CLS]")?,
            separator: special(&["seperator", "separator", "eos"], "[SEP]")?,
            unknown: special(&["unknown"], "[UNK]")?,
            begins,
            goes_on,
        })
    }

    /// How many tokens there are.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.count
    }

    /// What every text begins with.
    #[must_use]
    pub fn begin(&self) -> TokenId {
        self.begin
    }

    /// What every text ends with.
    #[must_use]
    pub fn separator(&self) -> TokenId {
        self.separator
    }

    /// The tokens of `text`, without special ones, if there are at most `most`. What is beyond them is not looked at.
    ///
    /// # Errors
    /// [`TooManyTokens`] if there are more.
    pub fn encode_within(&self, text: &str, most: Tokens) -> Result<Vec<TokenId>, TooManyTokens> {
        let tokens = self.beginning(text, most.as_usize().saturating_add(1));
        if tokens.len() > most.as_usize() { Err(TooManyTokens { most }) } else { Ok(tokens) }
    }

    /// The first `most` tokens of `text`, without special ones.
    #[must_use]
    pub fn beginning(&self, text: &str, most: usize) -> Vec<TokenId> {
        let mut words = Words { tokenizer: self, most, word: String::new(), chars: 0, tokens: Vec::new() };
        match self.case {
            Case::Kept => words.read(cleaned(text)),
            Case::Dropped => {
                let bare = cleaned(text).nfd().filter(|c| c.general_category() != GeneralCategory::NonspacingMark);
                words.read(bare.flat_map(char::to_lowercase));
            }
        }
        words.tokens.truncate(most);
        words.tokens
    }

    /// Appends the pieces of a word.
    fn pieces(&self, word: &str, tokens: &mut Vec<TokenId>) {
        let first = tokens.len();
        let mut rest = word;
        while !rest.is_empty() {
            let table = if rest.len() == word.len() { &self.begins } else { &self.goes_on };
            let Some((piece, token)) = self.longest_piece(table, rest) else {
                tokens.truncate(first);
                return tokens.push(self.unknown);
            };
            tokens.push(token);
            rest = &rest[piece..];
        }
    }

    /// The longest token that `text` begins with, and its bytes.
    fn longest_piece(&self, table: &HashMap<Box<str>, TokenId>, text: &str) -> Option<(usize, TokenId)> {
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8()).take(self.longest);
        let ends: Vec<usize> = ends.collect();
        ends.into_iter().rev().find_map(|end| table.get(&text[..end]).map(|&token| (end, token)))
    }
}

/// Cuts characters into words, and these into tokens.
struct Words<'a> {
    tokenizer: &'a WordPiece,
    most: usize,
    word: String,
    chars: usize,
    tokens: Vec<TokenId>,
}

impl Words<'_> {
    fn read(&mut self, chars: impl Iterator<Item = char>) {
        for c in chars {
            if self.tokens.len() >= self.most {
                return;
            }
            match Break::of(c) {
                Break::Space => self.end_word(),
                Break::Alone => {
                    self.end_word();
                    self.push(c);
                    self.end_word();
                }
                Break::None => self.push(c),
            }
        }
        self.end_word();
    }

    fn push(&mut self, c: char) {
        self.chars += 1;
        // A word that is unknown already needs no more of its characters.
        if self.chars <= WORD_CHARS_MAX {
            self.word.push(c);
        }
    }

    fn end_word(&mut self) {
        match self.chars {
            0 => {}
            1..=WORD_CHARS_MAX => self.tokenizer.pieces(&self.word, &mut self.tokens),
            _ => self.tokens.push(self.tokenizer.unknown),
        }
        self.word.clear();
        self.chars = 0;
    }
}

/// Whether a word ends at a character.
enum Break {
    None,
    Space,
    /// It is a word of its own.
    Alone,
}

impl Break {
    fn of(c: char) -> Self {
        match c {
            'a'..='z' | '0'..='9' | 'A'..='Z' => Self::None,
            _ if c.is_whitespace() => Self::Space,
            _ if c.is_ascii_punctuation() || c.general_category_group() == GeneralCategoryGroup::Punctuation => {
                Self::Alone
            }
            _ => Self::None,
        }
    }
}

/// A text without controls, with spaces around characters that are words.
fn cleaned(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|&c| !is_dropped(c)).flat_map(|c| {
        let spaced = is_ideograph(c);
        let space = || spaced.then_some(' ');
        let c = if c.is_whitespace() { ' ' } else { c };
        space().into_iter().chain([c]).chain(space())
    })
}

fn is_dropped(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' | ' '..='~' => false,
        '\0' | '\u{FFFD}' => true,
        // Not those that nobody has assigned: the library leaves them.
        _ => matches!(
            c.general_category(),
            GeneralCategory::Control | GeneralCategory::Format | GeneralCategory::PrivateUse
        ),
    }
}

/// Of the blocks that BERT takes for Chinese; not those of kana and hangul, which are written with spaces or in runs.
fn is_ideograph(c: char) -> bool {
    matches!(c,
        '\u{4E00}'..='\u{9FFF}'
        | '\u{3400}'..='\u{4DBF}'
        | '\u{20000}'..='\u{2A6DF}'
        | '\u{2A700}'..='\u{2B73F}'
        | '\u{2B740}'..='\u{2B81F}'
        | '\u{2B920}'..='\u{2CEAF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{2F800}'..='\u{2FA1F}')
}

/// A special token: by one of its names in the metadata, or by how it is spelled.
fn special(
    metadata: &Metadata,
    tokens: &Texts,
    names: &[&'static str],
    spelled: &str,
) -> Result<TokenId, TokenizerError> {
    for &name in names {
        if let Some(id) = metadata.opt_u32(&format!("tokenizer.ggml.{name}_token_id"))? {
            let known = (id as usize) < tokens.len();
            return if known {
                Ok(TokenId(id))
            } else {
                Err(TokenizerError::SpecialOutOfRange { name, id, tokens: tokens.len() })
            };
        }
    }
    let id = tokens.iter().position(|token| token == spelled).and_then(|id| u32::try_from(id).ok());
    let missing = || GgufError::MissingKey(format!("tokenizer.ggml.{}_token_id", names.first().unwrap_or(&"")));
    Ok(id.map(TokenId).ok_or_else(missing)?)
}

/// What files spell before a token that begins a word.
const WORD: char = '▁';
/// `tokenizer.ggml.token_type` of special tokens.
const CONTROL: i32 = 3;
/// BERT's: longer words are unknown.
const WORD_CHARS_MAX: usize = 100;
