//! SentencePiece byte-pair encoding: a text begins as its characters, and the pair that makes the token with the
//! greatest score joins, until no pair makes a token.
//!
//! Of equal scores, the leftmost joins first. Words are not split off first, so the whole text is one row:
//! O(n log n) in its length. Characters that no token has are said as their UTF-8 bytes.
//!
//! Control, unknown and byte tokens are never the result of joining, whatever their text: SentencePiece keeps them
//! apart, while llama.cpp lets plain text become `<s>` where the pieces of that string exist.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use duet_types::TokenId;

use super::TokenizerError;
use super::chain::Chain;
use super::joins::Joins;
use super::reach::Reach;
use super::spec::TokenizerSpec;
use super::vocabulary::Vocabulary;

#[derive(Debug)]
pub(super) struct SentencePiece {
    joins: Joins,
    add_space_prefix: bool,
    /// The token that says each byte.
    bytes: [Option<TokenId>; 256],
    unknown: Option<TokenId>,
}

/// Where the text stands in the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// At the beginning or after a special token: a word begins here.
    WordBegins,
    /// After other text.
    Continues,
}

impl SentencePiece {
    pub(super) fn new(spec: &TokenizerSpec, vocabulary: &Vocabulary) -> Result<Self, TokenizerError> {
        let joins = Joins::new(spec, vocabulary)?;
        let mut bytes = std::array::from_fn(|byte| vocabulary.find(&[byte as u8]).map(TokenId));
        for (text, id) in spec.tokens.iter().zip(0..) {
            if let Some(byte) = spelled_byte(text) {
                bytes[usize::from(byte)] = Some(TokenId(id));
            }
        }
        Ok(Self { joins, add_space_prefix: spec.add_space_prefix, bytes, unknown: spec.unknown })
    }

    /// Whether text that begins a word gets a space that the writer did not write.
    pub(super) fn adds_space_prefix(&self) -> bool {
        self.add_space_prefix
    }

    /// Appends the tokens of `text`, which has no special tokens.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, position: Position, tokens: &mut Vec<TokenId>) {
        let prefixed = self.add_space_prefix && position == Position::WordBegins;
        let text = spaced(text, prefixed);
        if !self.joins.keeps_breaks_apart() {
            return self.encode_row(vocabulary, &text, tokens);
        }
        for run in runs(&text) {
            match vocabulary.find(run.as_bytes()).filter(|_| run.starts_with('\n')) {
                Some(breaks) => tokens.push(TokenId(breaks)),
                None => self.encode_row(vocabulary, run, tokens),
            }
        }
    }

    /// Appends the tokens of a text whose characters may all join.
    fn encode_row(&self, vocabulary: &Vocabulary, text: &str, tokens: &mut Vec<TokenId>) {
        // Where the symbol of each place begins; one entry more for the end.
        let begins: Vec<usize> = text.char_indices().map(|(begin, _)| begin).chain([text.len()]).collect();

        let mut chain = Chain::default();
        let single = |bounds: &[usize]| find(vocabulary, &text[bounds[0]..bounds[1]]);
        chain.reset(begins.windows(2).map(single));
        let symbol = |chain: &Chain, place: usize| {
            let end = chain.next(place).unwrap_or(begins.len() - 1);
            &text[begins[place]..begins[end]]
        };
        let candidate = |chain: &Chain, left: usize| {
            let right = chain.next(left)?;
            let end = begins[left] + symbol(chain, left).len() + symbol(chain, right).len();
            let joined = vocabulary.find(&text.as_bytes()[begins[left]..end])?;
            let pair = (chain.id(left), chain.id(right));
            Some(Join { score: self.joins.score(pair, joined)?, left: Reverse(left), pair, joined })
        };

        let mut queue: BinaryHeap<Join> = chain.places().filter_map(|left| candidate(&chain, left)).collect();
        while let Some(join) = queue.pop() {
            let left = join.left.0;
            let Some(right) = chain.next(left) else { continue };
            if (chain.id(left), chain.id(right)) != join.pair {
                continue;
            }
            chain.join(left, right, join.joined);
            queue.extend(chain.previous(left).and_then(|before| candidate(&chain, before)));
            queue.extend(candidate(&chain, left));
        }
        for place in chain.places() {
            match chain.id(place) {
                NO_TOKEN => self.say_bytes(symbol(&chain, place), tokens),
                id => tokens.push(TokenId(id)),
            }
        }
    }

    /// How much text one token can stand for; nothing if some characters are not said at all.
    pub(super) fn reach(&self, vocabulary: &Vocabulary) -> Option<Reach> {
        let says_all = self.unknown.is_some() || self.bytes.iter().all(Option::is_some);
        says_all.then(|| Reach::of_pieces(vocabulary))
    }

    /// Says a character byte by byte, or as unknown where the vocabulary lacks one of its bytes.
    fn say_bytes(&self, character: &str, tokens: &mut Vec<TokenId>) {
        let bytes: Option<Vec<TokenId>> = character.bytes().map(|byte| self.bytes[usize::from(byte)]).collect();
        match bytes {
            Some(bytes) => tokens.extend(bytes),
            None => tokens.extend(self.unknown),
        }
    }
}

/// The symbol of a character that no token has. Such a symbol is always one character: a joined one is a token.
const NO_TOKEN: u32 = u32::MAX - 1;

fn find(vocabulary: &Vocabulary, symbol: &str) -> u32 {
    vocabulary.find(symbol.as_bytes()).unwrap_or(NO_TOKEN)
}

/// `text` with a real space for each `▁`, which pieces cannot tell apart, and one before it if `prefixed`.
fn spaced(text: &str, prefixed: bool) -> Cow<'_, str> {
    match (prefixed, text.contains('▁')) {
        (false, false) => Cow::Borrowed(text),
        (true, false) => Cow::Owned(format!(" {text}")),
        (false, true) => Cow::Owned(text.replace('▁', " ")),
        (true, true) => Cow::Owned(format!(" {}", text.replace('▁', " "))),
    }
}

/// Runs of line breaks, and what is between them.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_break = rest.starts_with('\n');
        let end = rest.find(|c| (c == '\n') != is_break).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        rest = behind;
        (!run.is_empty()).then_some(run)
    })
}

fn spelled_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2)
}

/// Two neighbours that may join. The greatest is the next to do so; it is stale when either has changed.
#[derive(Clone, Copy, Debug)]
struct Join {
    score: f32,
    left: Reverse<usize>,
    pair: (u32, u32),
    joined: u32,
}

impl Ord for Join {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(self.left.cmp(&other.left))
    }
}

impl PartialOrd for Join {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Join {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Join {}
