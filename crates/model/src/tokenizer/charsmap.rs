//! SentencePiece's compiled rules of normalisation: what the longest known beginning of a text is replaced by.
//!
//! Rules are a trie over bytes in a double array, of which each unit says where its children are (`base`), by which byte it is
//! reached (`label`), and whether a rule ends there; and behind it what the rules write, one zero after the other. (Yata et al.,
//! darts-clone; Kanda 2018.) A file may hold anything: what points nowhere ends a match.

use super::TokenizerError;

/// Rules of normalisation.
#[derive(Debug, Default)]
pub(super) struct CharsMap {
    units: Vec<u32>,
    /// What is written, each ended by a zero.
    written: String,
}

impl CharsMap {
    /// Reads `tokenizer.ggml.precompiled_charsmap`.
    pub(super) fn new(bytes: &[u8]) -> Result<Self, TokenizerError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let refuse = |problem| TokenizerError::CharsMap { problem };
        let (size, rest) = bytes.split_first_chunk().ok_or_else(|| refuse("it is shorter than its own length"))?;
        let size = u32::from_le_bytes(*size) as usize;
        if size > rest.len() || !size.is_multiple_of(size_of::<u32>()) {
            return Err(refuse("its table is longer than it is"));
        }
        let (units, written) = rest.split_at(size);
        let units = units.as_chunks().0.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        let written = std::str::from_utf8(written).map_err(|_| refuse("what its rules write is no text"))?.to_owned();
        Ok(Self { units, written })
    }

    /// What the longest beginning of `text` that a rule knows is replaced by, and its bytes.
    pub(super) fn replacement(&self, text: &str) -> Option<(&str, usize)> {
        let (mut at, mut found) = (base(*self.units.first()?), None);
        for (index, &byte) in text.as_bytes().iter().enumerate().take_while(|(_, byte)| **byte != 0) {
            at ^= usize::from(byte);
            let Some(&unit) = self.units.get(at) else { break };
            if label(unit) != u32::from(byte) {
                break;
            }
            at ^= base(unit);
            if ends_rule(unit) {
                let written = self.units.get(at).map(|unit| (unit & !VALUE) as usize);
                found = written.map(|written| (written, index + 1)).or(found);
            }
        }
        let (written, bytes) = found.filter(|(_, bytes)| text.is_char_boundary(*bytes))?;
        Some((self.written.get(written..)?.split('\0').next()?, bytes))
    }
}

/// Set in units that say what is written.
const VALUE: u32 = 1 << 31;

fn base(unit: u32) -> usize {
    ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize
}

fn label(unit: u32) -> u32 {
    unit & (VALUE | 0xFF)
}

fn ends_rule(unit: u32) -> bool {
    unit & (1 << 8) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_are_read_beyond_their_end(bytes in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,20}") {
            if let Ok(rules) = CharsMap::new(&bytes) {
                for (at, _) in text.char_indices() {
                    prop_assert!(rules.replacement(&text[at..]).is_none_or(|(_, bytes)| bytes <= text.len() - at));
                }
            }
        }

        /// A table that is well formed but for what it holds.
        #[test]
        fn no_table_leads_astray(units in prop::collection::vec(any::<u32>(), 1..80), text in "[a-f]{1,20}") {
            let table: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
            let bytes = [&(table.len() as u32).to_le_bytes()[..], &table, b"x\0yz\0"].concat();
            let rules = CharsMap::new(&bytes).unwrap();
            prop_assert!(rules.replacement(&text).is_none_or(|(written, _)| written.len() <= 5));
        }
    }
}
