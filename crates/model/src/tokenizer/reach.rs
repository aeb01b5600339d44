//! How many tokens a text has at least, found out without tokenising it.
//!
//! No token stands for more white space than the one with the most, nor for more of anything else than the one with the
//! most of that. The two are counted apart because the longest tokens of most vocabularies are runs of spaces, several
//! times as long as any word. Bytes that the vocabulary has no token for are not said and do not count.

use super::vocabulary::Vocabulary;

/// What one token can stand for at most.
#[derive(Debug)]
pub(super) struct Reach {
    kinds: [Kind; 256],
    /// Bytes of white space.
    space: usize,
    /// Bytes of anything else.
    other: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Space,
    Other,
    Unsaid,
}

impl Reach {
    /// Of a vocabulary in whose tokens bytes stand for themselves, and which has no token for some bytes.
    pub(super) fn of_bytes(vocabulary: &Vocabulary, is_said: impl Fn(u8) -> bool) -> Self {
        let (space, other) = longest(vocabulary);
        let kinds = std::array::from_fn(|byte| match byte as u8 {
            byte if !is_said(byte) => Kind::Unsaid,
            byte if byte.is_ascii_whitespace() => Kind::Space,
            _ => Kind::Other,
        });
        Self { kinds, space: space.max(1), other: other.max(1) }
    }

    /// Of a vocabulary that says `▁` for a space, and one token for a character that it does not know.
    pub(super) fn of_pieces(vocabulary: &Vocabulary) -> Self {
        let (space, other) = longest(vocabulary);
        // A space in a token may be a `▁` in the text.
        let other = (other + space * '▁'.len_utf8()).max(char::MAX.len_utf8());
        let kinds = std::array::from_fn(|byte| match byte as u8 {
            byte if byte.is_ascii_whitespace() => Kind::Space,
            _ => Kind::Other,
        });
        Self { kinds, space: space.max(1), other }
    }

    /// Whether some texts, one after the other, certainly have more than so many tokens. Looks at no more of them than
    /// it takes to be sure.
    pub(super) fn exceeds<'a>(&self, texts: impl Iterator<Item = &'a str>, tokens: usize) -> bool {
        let most = |reach: usize| reach.saturating_mul(tokens);
        let (most_space, most_other) = (most(self.space), most(self.other));
        let (mut space, mut other) = (0, 0);
        for chunk in texts.flat_map(|text| text.as_bytes().chunks(CHUNK)) {
            for &byte in chunk {
                let kind = self.kinds[usize::from(byte)];
                space += usize::from(kind == Kind::Space);
                other += usize::from(kind == Kind::Other);
            }
            if space > most_space || other > most_other {
                return true;
            }
        }
        false
    }
}

/// The most bytes of white space, and of anything else, that any token has.
fn longest(vocabulary: &Vocabulary) -> (usize, usize) {
    let counts = (0..vocabulary.ids()).map(|id| {
        let bytes = vocabulary.bytes(id);
        let space = bytes.iter().filter(|byte| byte.is_ascii_whitespace()).count();
        (space, bytes.len() - space)
    });
    counts.fold((0, 0), |most, count| (most.0.max(count.0), most.1.max(count.1)))
}

/// Bytes that are counted before the sums are looked at.
const CHUNK: usize = 4096;
