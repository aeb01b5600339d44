//! SentencePiece's unigram vocabularies, as XLM-R has them: of all ways to cut a text into pieces the likeliest.
//!
//! A text is normalised first by the rules that come with the vocabulary ([`CharsMap`]); runs of spaces become one, and one is
//! put before it. Then each word, with the space before it, is cut so that the sum of its pieces' scores is largest (Viterbi's
//! way), a character that is no piece counting as ten less than the least likely one. Neighbouring unknown characters are one
//! token. The ids are those of the `sentencepiece` library and of llama.cpp, which the golden tests check (where ways are as
//! likely as each other, llama.cpp's, which adds scores in double precision). Special tokens are
//! never found in a text, so that text from outside cannot speak as the format does.
//!
//! It is linear in the text, times the longest piece; no word is looked at behind those that fill the room that there is.

use super::charsmap::CharsMap;
use super::{TokenType, TokenizerError, TooManyTokens};
use crate::gguf::{GgufError, Metadata};
use duet_types::{TokenId, Tokens};
use std::ops::Range;

/// A unigram vocabulary.
#[derive(Debug)]
pub struct Unigram {
    /// Pieces in the order of their bytes.
    pieces: Vec<Piece>,
    rules: CharsMap,
    spaces: Spaces,
    /// What an unknown character counts.
    unknown_score: f64,
    /// Bytes of the longest piece.
    longest: usize,
    count: usize,
    begin: TokenId,
    separator: TokenId,
    unknown: TokenId,
}

#[derive(Debug)]
struct Piece {
    text: Box<str>,
    id: TokenId,
    score: f64,
}

/// What becomes of spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spaces {
    /// Whether one is put before a text.
    before: bool,
    /// Whether runs become one, and those at the ends go.
    merged: bool,
    /// Whether no piece reaches beyond a word.
    end_pieces: bool,
}

/// How a space is spelled.
const SPACE: char = '▁';

/// An unknown character counts so much less than the least likely piece.
const UNKNOWN_PENALTY: f64 = 10.0;

impl Unigram {
    /// The tokenizer that a model file describes.
    ///
    /// # Errors
    /// [`TokenizerError`] if it is of another kind, or what it says does not fit together.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let kind = metadata.str("tokenizer.ggml.model")?;
        if kind != NAME {
            return Err(TokenizerError::Kind(kind.to_owned()));
        }
        let tokens = metadata.strings("tokenizer.ggml.tokens")?;
        let scores = metadata.f32s("tokenizer.ggml.scores")?;
        let types = metadata.opt_i32s("tokenizer.ggml.token_type")?.unwrap_or_default();
        check_length("token scores", tokens.len(), scores.len())?;
        if !types.is_empty() {
            check_length("token types", tokens.len(), types.len())?;
        }
        let is_of =
            |id: usize, kind: TokenType| types.get(id).map(|&number| TokenType::from_number(number)) == Some(kind);
        let is_normal = |id: usize| types.is_empty() || is_of(id, TokenType::Normal);
        let mut pieces = Vec::with_capacity(tokens.len());
        let mut least = f64::INFINITY;
        for ((id, text), &score) in tokens.iter().enumerate().zip(scores) {
            let is_user_defined = is_of(id, TokenType::UserDefined);
            if text.is_empty() || !(is_normal(id) || is_user_defined) {
                continue;
            }
            if !score.is_finite() {
                return Err(TokenizerError::Score { token: text.to_owned(), score });
            }
            if is_normal(id) {
                least = least.min(f64::from(score));
            }
            let score = if is_user_defined { 0.0 } else { f64::from(score) };
            let id = u32::try_from(id).map_err(|_| TokenizerError::TooLarge(tokens.len()))?;
            pieces.push(Piece { text: text.into(), id: TokenId(id), score });
        }
        pieces.sort_by(|a, b| a.text.cmp(&b.text).then(a.id.cmp(&b.id)));
        // Where a text is there twice, the first one counts.
        pieces.dedup_by(|later, first| later.text == first.text);
        let charsmap = metadata.opt_i32s("tokenizer.ggml.precompiled_charsmap")?.unwrap_or_default();
        let charsmap: Vec<u8> = charsmap.iter().map(|&byte| byte as u8).collect();
        let flag = |name: &str, default| Ok::<_, GgufError>(metadata.opt_bool(name)?.unwrap_or(default));
        let special = |name, key: &str| special(metadata, tokens.len(), name, key);
        let end_pieces = |piece: &Piece| !piece.text.chars().skip(1).any(|c| c == SPACE);
        Ok(Self {
            spaces: Spaces {
                before: flag("tokenizer.ggml.add_space_prefix", true)?,
                merged: flag("tokenizer.ggml.remove_extra_whitespaces", true)?,
                end_pieces: pieces.iter().all(end_pieces),
            },
            rules: CharsMap::new(&charsmap)?,
            longest: pieces.iter().map(|piece| piece.text.len()).max().unwrap_or(0),
            unknown_score: if least.is_finite() { least } else { 0.0 } - UNKNOWN_PENALTY,
            count: tokens.len(),
            begin: special("bos", "tokenizer.ggml.bos_token_id")?,
            separator: special("eos", "tokenizer.ggml.eos_token_id")?,
            unknown: special("unknown", "tokenizer.ggml.unknown_token_id")?,
            pieces,
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

    /// The first `most` tokens of `text`, without special ones. Of a word that is much longer than there is room for they are
    /// those of its beginning alone.
    #[must_use]
    pub fn beginning(&self, text: &str, most: usize) -> Vec<TokenId> {
        let mut cut = Cut::of(self, most);
        let mut rest = text;
        let (mut has_begun, mut spaces) = (false, 0_usize);
        while let Some(c) = rest.chars().next() {
            if cut.tokens.len() > most || cut.has_too_many {
                break;
            }
            let (written, bytes) = self.rules.replacement(rest).unwrap_or((&rest[..c.len_utf8()], c.len_utf8()));
            rest = &rest[bytes..];
            for c in written.chars() {
                if c == ' ' {
                    spaces += 1;
                    continue;
                }
                // A space before the text, and what is left of those before this character.
                let before = usize::from(!has_begun && self.spaces.before);
                let kept = if self.spaces.merged { usize::from(has_begun && spaces > 0) } else { spaces };
                for _ in 0..before + kept {
                    cut.push(SPACE);
                }
                (has_begun, spaces) = (true, 0);
                cut.push(c);
            }
        }
        if !self.spaces.merged && cut.tokens.len() <= most && !cut.has_too_many {
            (0..spaces).for_each(|_| cut.push(SPACE));
        }
        cut.end_word();
        cut.tokens.truncate(most);
        cut.tokens
    }

    /// The tokens of `text`, without special ones, if there are at most `most`.
    ///
    /// # Errors
    /// [`TooManyTokens`] if there are more.
    pub fn encode_within(&self, text: &str, most: Tokens) -> Result<Vec<TokenId>, TooManyTokens> {
        let tokens = self.beginning(text, most.as_usize().saturating_add(1));
        if tokens.len() > most.as_usize() { Err(TooManyTokens { most }) } else { Ok(tokens) }
    }

    /// Tells of each piece that `text` begins with.
    fn pieces_at(&self, text: &str, mut tell: impl FnMut(&Piece)) {
        let mut range = 0..self.pieces.len();
        for (depth, &byte) in text.as_bytes().iter().enumerate() {
            range = self.with_byte(range, depth, byte);
            let Some(first) = self.pieces[range.clone()].first() else { return };
            if first.text.len() == depth + 1 {
                tell(first);
            }
        }
    }

    /// Those pieces of `range`, which have their first `depth` bytes in common, whose next byte is this one.
    fn with_byte(&self, range: Range<usize>, depth: usize, byte: u8) -> Range<usize> {
        let at = |piece: &Piece| piece.text.as_bytes().get(depth).copied();
        let pieces = &self.pieces[range.clone()];
        let start = range.start + pieces.partition_point(|piece| at(piece) < Some(byte));
        let end = range.start + pieces.partition_point(|piece| at(piece) <= Some(byte));
        start..end
    }
}

/// GGUF `tokenizer.ggml.model`.
pub(super) const NAME: &str = "t5";

/// A text on its way.
struct Cut<'a> {
    of: &'a Unigram,
    word: String,
    /// At each byte of the word the best way there.
    best: Vec<Way>,
    tokens: Vec<TokenId>,
    after_unknown: bool,
    /// A word of more bytes, without a place that every way goes through, has more tokens than there is room for: where every
    /// place is inside some piece, the best way has fewer unknown characters in a row than two pieces have bytes, since a
    /// piece counts for more than they do. So a token covers less than three pieces.
    most_bytes: usize,
    /// Whether the word is such a one. Nothing behind it counts.
    has_too_many: bool,
}

#[derive(Clone, Copy)]
struct Way {
    score: f64,
    from: usize,
    token: Option<TokenId>,
}

impl<'a> Cut<'a> {
    fn of(of: &'a Unigram, most: usize) -> Self {
        let most_bytes = most.saturating_add(1).saturating_mul(3 * of.longest.max(char::MAX_LEN_UTF8));
        let (word, best, tokens) = (String::new(), Vec::new(), Vec::new());
        Self { of, word, best, tokens, after_unknown: false, most_bytes, has_too_many: false }
    }

    fn push(&mut self, c: char) {
        if self.has_too_many {
            return;
        }
        if c == SPACE && self.of.spaces.merged && self.of.spaces.end_pieces {
            self.end_word();
        }
        self.word.push(c);
        if self.word.len() >= self.most_bytes {
            self.shorten_word();
        }
    }

    /// Appends the pieces of the word.
    fn end_word(&mut self) {
        self.find_ways();
        self.take_way_to(self.word.len());
    }

    /// Appends those pieces of a long word that are certain whatever follows. **Invariant:** a word takes no more memory than
    /// the room that there is for tokens, however long it is.
    fn shorten_word(&mut self) {
        let end = self.find_ways();
        self.take_way_to(end);
        self.has_too_many = end == 0;
    }

    /// Appends the pieces up to a place in the word that the best way goes through, and leaves the rest.
    fn take_way_to(&mut self, end: usize) {
        let (mut at, first) = (end, self.tokens.len());
        let mut unknown_before = false;
        while at > 0 {
            let Way { from, token, .. } = self.best[at];
            if token.is_some() || !unknown_before {
                self.tokens.push(token.unwrap_or(self.of.unknown));
            }
            (at, unknown_before) = (from, token.is_none());
        }
        self.tokens[first..].reverse();
        if end > 0 {
            // An unknown character goes on in the next word.
            if self.after_unknown && unknown_before {
                self.tokens.remove(first);
            }
            self.after_unknown = self.best[end].token.is_none();
        }
        self.word.drain(..end);
    }

    /// Fills `best`, and returns the last place that every way goes through, whatever follows the word.
    fn find_ways(&mut self) -> usize {
        let Self { of, word, best, .. } = self;
        let (mut through, mut reach) = (0, 0);
        best.clear();
        best.resize(word.len() + 1, Way { score: f64::NEG_INFINITY, from: 0, token: None });
        best[0].score = 0.0;
        for (at, c) in word.char_indices() {
            if at == reach && at + of.longest <= word.len() {
                through = at;
            }
            reach = reach.max(at + c.len_utf8());
            let score = best[at].score;
            let mut is_piece = false;
            of.pieces_at(&word[at..], |piece| {
                reach = reach.max(at + piece.text.len());
                is_piece |= piece.text.len() == c.len_utf8();
                let way = &mut best[at + piece.text.len()];
                if score + piece.score > way.score {
                    *way = Way { score: score + piece.score, from: at, token: Some(piece.id) };
                }
            });
            let way = &mut best[at + c.len_utf8()];
            if !is_piece && score + of.unknown_score > way.score {
                *way = Way { score: score + of.unknown_score, from: at, token: None };
            }
        }
        through
    }
}

fn check_length(list: &'static str, tokens: usize, found: usize) -> Result<(), TokenizerError> {
    if found == tokens { Ok(()) } else { Err(TokenizerError::Length { list, tokens, found }) }
}

/// A special token by the metadata.
fn special(metadata: &Metadata, tokens: usize, name: &'static str, key: &str) -> Result<TokenId, TokenizerError> {
    let id = metadata.u32(key)?;
    if (id as usize) < tokens { Ok(TokenId(id)) } else { Err(TokenizerError::SpecialOutOfRange { name, id, tokens }) }
}
