//! A model's tokens as text, ready for masks.
//!
//! Tokens are either text, whose bytes grammars match, or special: never a part of any text, and allowed only where a
//! grammar names them. Those that end an answer are always special.

use super::brief::brief;
use crate::refused::Refused;
use duet_types::TokenId;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{SimpleVob, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{ParserFactory, toktrie};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// What a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenText {
    /// These bytes, which need not be whole characters. Tokens that a user defined are text as well.
    Text(Vec<u8>),
    /// A special token of this name.
    Special(String),
}

/// All tokens of a model. Made once for a model; cloning is cheap.
#[derive(Clone)]
pub struct Vocabulary {
    shared: Arc<Shared>,
    special: Arc<BTreeMap<String, TokenId>>,
}

/// What automata need of it.
pub(super) struct Shared {
    pub(super) factory: ParserFactory,
    ends: Vec<TokenId>,
    size: usize,
}

/// Text to tokens, as the model was trained: without special tokens, and without a space before.
type Tokenize = dyn Fn(&str) -> Vec<TokenId> + Send + Sync;

impl Vocabulary {
    /// A vocabulary: the tokens in the order of their ids, those that end an answer, and how the model's tokenizer
    /// spells a text, which is how text that is certain will be forced. Takes some hundred milliseconds for 150 000
    /// tokens.
    pub fn new(
        tokens: impl IntoIterator<Item = TokenText>,
        ends: &[TokenId],
        tokenize: impl Fn(&str) -> Vec<TokenId> + Send + Sync + 'static,
    ) -> Result<Self, Refused> {
        let mut special = BTreeMap::new();
        let mut words: Vec<Vec<u8>> = Vec::new();
        for (token, id) in tokens.into_iter().zip(0..) {
            words.push(match token {
                // Its name is not needed for masks, and names may be alike.
                _ if ends.contains(&TokenId(id)) => special_word(id),
                TokenText::Text(bytes) if is_usable(&bytes) => bytes,
                TokenText::Text(_) => Vec::new(),
                TokenText::Special(name) => {
                    special.entry(name).or_insert(TokenId(id));
                    special_word(id)
                }
            });
        }
        let refused = |reason: &str| Err(Refused::Vocabulary { reason: reason.to_owned() });
        if ends.is_empty() {
            return refused("no token ends an answer");
        }
        if words.len() >= TOKENS_MAX {
            return refused("it has too many tokens");
        }
        if ends.iter().any(|end| end.0 as usize >= words.len()) {
            return refused("an end is not one of its tokens");
        }
        let size = words.len();
        let factory = factory(&words, ends, Box::new(tokenize)).map_err(|reason| Refused::Vocabulary { reason })?;
        let shared = Shared { factory, ends: ends.to_vec(), size };
        Ok(Self { shared: Arc::new(shared), special: Arc::new(special) })
    }

    /// The special token of this name.
    #[must_use]
    pub fn special(&self, name: &str) -> Option<TokenId> {
        self.special.get(name).copied()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary")
            .field("size", &self.shared.size)
            .field("ends", &self.shared.ends)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn is_end(&self, token: TokenId) -> bool {
        self.ends.contains(&token)
    }

    pub(super) fn ends(&self) -> &[TokenId] {
        &self.ends
    }

    pub(super) fn has(&self, id: u32) -> bool {
        (id as usize) < self.size
    }

    pub(super) fn ends_set(&self) -> SimpleVob {
        self.factory.tok_env().tok_trie().eos_token_set()
    }
}

/// The trie and what is made of it. It asserts what it cannot do.
fn factory(words: &[Vec<u8>], ends: &[TokenId], tokenize: Box<Tokenize>) -> Result<ParserFactory, String> {
    let made = catch_unwind(AssertUnwindSafe(|| {
        let ends: Vec<u32> = ends.iter().map(|end| end.0).collect();
        let first = ends.first().copied().unwrap_or_default();
        let trie = TokTrie::from(&TokRxInfo::new(u32::try_from(words.len())?, first), words).with_eos_tokens(&ends);
        let env: TokEnv = Arc::new(Spelling { spells_text: spells_text(&trie), trie, tokenize });
        ParserFactory::new_simple(&env)
    }));
    let mut factory = made.map_err(|error| brief(&error.to_string()))?;
    factory.quiet();
    Ok(factory)
}

/// The trie, and how the model's tokenizer spells.
struct Spelling {
    trie: TokTrie,
    tokenize: Box<Tokenize>,
    /// Whether plain text has a spelling. Where not, nothing is forced.
    spells_text: bool,
}

impl TokenizerEnv for Spelling {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<toktrie::TokenId> {
        let mut tokens = Vec::new();
        for chunk in bytes.utf8_chunks() {
            let text = chunk.valid();
            let spelled: Vec<u32> = (self.tokenize)(text).into_iter().map(|token| token.0).collect();
            // A tokenizer may put a space before a text, or know other tokens; forced text is to the letter.
            let known =
                spelled.iter().all(|id| (*id as usize) < self.trie.vocab_size() && !self.trie.is_special_token(*id));
            if known && self.trie.decode_raw(&spelled) == text.as_bytes() {
                tokens.extend(spelled);
            } else if !self.spell_greedily(text.as_bytes(), &mut tokens) {
                return tokens;
            }
            if !self.spell_greedily(chunk.invalid(), &mut tokens) {
                return tokens;
            }
        }
        tokens
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.spells_text
    }
}

impl Spelling {
    /// Adds the longest tokens of a text, up to a byte that is no token: vocabularies lack some that no text has. Whether
    /// that is all of it.
    fn spell_greedily(&self, bytes: &[u8], tokens: &mut Vec<u32>) -> bool {
        let is_token = |byte: &u8| self.trie.token_id_at_bytes(&[*byte]).is_some();
        let known = bytes.iter().take_while(|byte| is_token(byte)).count();
        tokens.extend(self.trie.greedy_tokenize(&bytes[..known]));
        known == bytes.len()
    }
}

/// Whether each character of ASCII that text has is a token.
fn spells_text(trie: &TokTrie) -> bool {
    let mut bytes = (b' '..=b'~').chain([b'\n']);
    bytes.all(|byte| trie.token_id_at_bytes(&[byte]).is_some())
}

/// Whether a token's text can be a part of a text, and of the trie.
fn is_usable(bytes: &[u8]) -> bool {
    bytes.len() <= BYTES_MAX && bytes.first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER)
}

/// What the trie has for a special token.
fn special_word(id: u32) -> Vec<u8> {
    let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
    word.extend(format!("<|{id}|>").bytes());
    word
}

/// Bytes of a token; the trie's nodes count up to 1023. Longer ones, of blanks or rules, are not offered.
const BYTES_MAX: usize = 512;

/// The trie's nodes have 24 bits for an id, and of all of them one stands for none.
const TOKENS_MAX: usize = (1 << 24) - 1;
