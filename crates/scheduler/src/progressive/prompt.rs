//! A prompt in chunks, and the places of its computation: chunk after chunk, in each block after block.

use super::blocks::Blocks;
use duet_types::Tokens;

/// Rows to be read after some positions that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Prompt {
    /// Positions that are there: of earlier turns.
    pub context: Tokens,
    /// Rows to be read.
    pub rows: Tokens,
}

/// A place in the computation of a prompt: the chunk is about to pass the block. Places come in order; the one after the
/// last block of the last chunk is the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Index of the chunk.
    pub chunk: u32,
    /// Index of the block.
    pub block: usize,
}

impl Prompt {
    /// How many chunks of a prefill graph's rows; the last one may be shorter.
    #[must_use]
    pub fn chunks(&self, blocks: &Blocks) -> u32 {
        self.rows.0.div_ceil(blocks.rows().prefill.0)
    }

    /// Positions before a chunk, and its rows.
    #[must_use]
    pub fn chunk(&self, blocks: &Blocks, chunk: u32) -> (Tokens, Tokens) {
        let each = blocks.rows().prefill.0;
        let before = Tokens(chunk * each);
        (self.context + before, Tokens(self.rows.saturating_sub(before).0.min(each)))
    }

    /// The place after the last one.
    #[must_use]
    pub fn end(&self, blocks: &Blocks) -> Place {
        Place { chunk: self.chunks(blocks), block: 0 }
    }
}

impl Place {
    /// The first one.
    pub const START: Self = Self { chunk: 0, block: 0 };

    /// The next one, of so many blocks.
    #[must_use]
    pub fn next(self, blocks: usize) -> Self {
        self.after(1, blocks)
    }

    /// So many places later.
    #[must_use]
    pub(super) fn after(self, places: usize, blocks: usize) -> Self {
        Self::at(self.index(blocks) + places, blocks)
    }

    /// The place of an index.
    pub(super) fn at(index: usize, blocks: usize) -> Self {
        Self { chunk: (index / blocks) as u32, block: index % blocks }
    }

    /// How many places come before it.
    pub(super) fn index(self, blocks: usize) -> usize {
        self.chunk as usize * blocks + self.block
    }
}
