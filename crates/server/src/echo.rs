//! A prompt as a completion repeats it, and where in it each of its tokens begins.
//!
//! A token's text is not always what stands in the prompt: what begins every prompt is not written there, some tokenizers
//! put a space before the first word, and special tokens are written by their names. So each token is looked for where the
//! last one ended; one that is not there takes no room.

use crate::backend::Backend;
use duet_types::TokenId;
use std::sync::Arc;

/// A prompt that is repeated, and a place in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echo {
    bytes: Arc<[u8]>,
    /// Where the next token begins.
    at: usize,
    /// The same in characters.
    characters: usize,
}

impl Echo {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into(), at: 0, characters: 0 }
    }

    /// As it is shown: bytes that are no whole characters together are replacement characters.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Where its next token begins, in characters; moves past it.
    pub(crate) fn pass(&mut self, backend: &dyn Backend, token: TokenId) -> usize {
        let begins = self.characters;
        let rest = &self.bytes[self.at..];
        let bytes = backend.special_name(token).map_or_else(|| backend.token_bytes(token), str::as_bytes);
        let unspaced = bytes.strip_prefix(b" ").unwrap_or(bytes);
        let found = [bytes, unspaced].into_iter().find(|bytes| rest.starts_with(bytes)).unwrap_or_default();
        self.characters += characters_begun(found);
        self.at += found.len();
        begins
    }
}

/// A character split over tokens counts where it begins.
pub(crate) fn characters_begun(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| (**byte & 0xc0) != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_character_is_counted_once() {
        let euro = "€".as_bytes();
        assert_eq!(characters_begun(&euro[..2]) + characters_begun(&euro[2..]), 1);
        assert_eq!(characters_begun("né".as_bytes()), 2);
    }
}
