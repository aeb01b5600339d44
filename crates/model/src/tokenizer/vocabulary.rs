//! The tokens: their bytes, what each is for, and which token (if any) spells given bytes.
//!
//! All bytes lie in one arena, so a vocabulary of 262 144 tokens is three allocations and not 262 144.
//! Ids below [`Vocabulary::len`] are tokens. Byte-pair merges may pass through strings that are no token; these are
//! *extra* ids at and above `len`, which never leave the tokenizer.

use std::hash::BuildHasher;

use duet_types::TokenId;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::spec::{TokenType, TokenizerKind, TokenizerSpec};
use super::{TokenizerError, alphabet};

/// See the module. Grows only while the tokenizer is built.
#[derive(Debug)]
pub(super) struct Vocabulary {
    arena: Vec<u8>,
    /// Where the bytes of each id end; they begin where those of the id before end.
    ends: Vec<usize>,
    types: Vec<TokenType>,
    /// Ids that plain text can become, by their bytes.
    by_bytes: HashTable<u32>,
    hasher: DefaultHashBuilder,
    longest: usize,
}

impl Vocabulary {
    /// Reads the tokens of `spec`, which have these types. Of two tokens with the same bytes, text becomes the first.
    pub(super) fn new(spec: &TokenizerSpec, types: Vec<TokenType>) -> Result<Self, TokenizerError> {
        let tokens = spec.tokens.len();
        if tokens == 0 {
            return Err(TokenizerError::Empty);
        }
        // Extra ids need room above the tokens, so half of the range is kept for them.
        if tokens > (u32::MAX / 2) as usize {
            return Err(TokenizerError::TooLarge(tokens));
        }
        if types.len() != tokens {
            return Err(TokenizerError::Length { list: "token types", tokens, found: types.len() });
        }
        let mut vocabulary = Self {
            arena: Vec::with_capacity(spec.tokens.bytes()),
            ends: Vec::with_capacity(tokens),
            types,
            by_bytes: HashTable::with_capacity(tokens),
            hasher: DefaultHashBuilder::default(),
            longest: 0,
        };
        for (text, id) in spec.tokens.iter().zip(0..) {
            let entry = match spec.kind {
                TokenizerKind::BytePairs => Entry::byte_pairs(text, vocabulary.types[id as usize]),
                TokenizerKind::SentencePiece | TokenizerKind::SentencePieceByMerges => {
                    Entry::sentence_piece(text, vocabulary.types[id as usize])
                }
            };
            vocabulary.push(&entry.bytes);
            if entry.from_text && vocabulary.find(&entry.bytes).is_none() {
                vocabulary.index(id);
            }
        }
        Ok(vocabulary)
    }

    /// How many tokens there are. Extra ids do not count.
    pub(super) fn len(&self) -> usize {
        self.types.len()
    }

    /// What a token is for.
    pub(super) fn token_type(&self, token: TokenId) -> Option<TokenType> {
        self.types.get(token.0 as usize).copied()
    }

    /// The bytes of a token or of an extra id; empty for ids that do not exist.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let begin = if id == 0 { Some(0) } else { self.ends.get(id - 1).copied() };
        match (begin, self.ends.get(id)) {
            (Some(begin), Some(&end)) => &self.arena[begin..end],
            _ => &[],
        }
    }

    /// How many ids there are, extra ids included.
    pub(super) fn ids(&self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    /// The id that plain text with these bytes becomes. O(bytes); no allocation.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<u32> {
        if bytes.len() > self.longest {
            return None;
        }
        let hash = self.hasher.hash_one(bytes);
        self.by_bytes.find(hash, |&id| self.bytes(id) == bytes).copied()
    }

    /// The id of these bytes, a new extra id where no token has them.
    pub(super) fn find_or_add(&mut self, bytes: &[u8]) -> u32 {
        if let Some(id) = self.find(bytes) {
            return id;
        }
        // Saturation is out of reach: each extra id took at least one distinct string of memory.
        let id = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        self.push(bytes);
        self.index(id);
        id
    }

    fn push(&mut self, bytes: &[u8]) {
        self.arena.extend_from_slice(bytes);
        self.ends.push(self.arena.len());
    }

    fn index(&mut self, id: u32) {
        self.longest = self.longest.max(self.bytes(id).len());
        let hash = self.hasher.hash_one(self.bytes(id));
        let Self { arena, ends, by_bytes, hasher, .. } = self;
        by_bytes.insert_unique(hash, id, |&id| {
            let id = id as usize;
            let begin = if id == 0 { 0 } else { ends[id - 1] };
            hasher.hash_one(&arena[begin..ends[id]])
        });
    }
}

/// A token's bytes, and whether plain text can become it.
struct Entry {
    bytes: Vec<u8>,
    from_text: bool,
}

impl Entry {
    fn byte_pairs(text: &str, token_type: TokenType) -> Self {
        match token_type {
            TokenType::Byte => Self { bytes: byte_spelling(text), from_text: false },
            // These are cut out of the text before merging begins.
            TokenType::Control | TokenType::Unknown | TokenType::UserDefined => {
                Self { bytes: text.as_bytes().to_vec(), from_text: false }
            }
            TokenType::Normal | TokenType::Unused => match alphabet::spelled_bytes(text) {
                Some(bytes) => Self { from_text: !bytes.is_empty(), bytes },
                None => Self { bytes: text.as_bytes().to_vec(), from_text: false },
            },
        }
    }

    fn sentence_piece(text: &str, token_type: TokenType) -> Self {
        match token_type {
            TokenType::Byte => Self { bytes: byte_spelling(text), from_text: false },
            // SentencePiece keeps these apart from the pieces, so that no text can pass for them.
            TokenType::Control | TokenType::Unknown => Self { bytes: text.as_bytes().to_vec(), from_text: false },
            TokenType::Normal | TokenType::Unused | TokenType::UserDefined => {
                // A piece spells a space as `▁`; one with a real space is only ever matched whole.
                let from_text = !text.is_empty() && !text.contains(' ');
                Self { bytes: text.replace('▁', " ").into_bytes(), from_text }
            }
        }
    }
}

/// The byte that `<0xXX>` spells; the text itself where it spells none.
fn byte_spelling(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
    match digits.map(|digits| u8::from_str_radix(digits, 16)) {
        Some(Ok(byte)) => vec![byte],
        _ => text.as_bytes().to_vec(),
    }
}
