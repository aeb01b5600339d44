//! How much history is kept.

use duet_types::{Bytes, Tokens};

/// How much history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Length of the file. Below [`Limits::FILE_MIN`] it is taken for that.
    pub file: Bytes,
    /// Tokens of one task of one user.
    pub task: Tokens,
    /// Memory for what is drafted from, of all tasks. What running requests still hold of older automata is not in it.
    pub index: Bytes,
}

impl Limits {
    /// A database with next to nothing in it takes a third of this.
    pub const FILE_MIN: Bytes = Bytes(4 << 20);

    /// What texts and rows may take, so that the file stays within its limit: one that is full doubles.
    pub(crate) fn stored(&self) -> Bytes {
        Bytes(self.file.0.max(Self::FILE_MIN.0) / 8 * 3)
    }

    /// What a transaction may add, at its end: until it is committed there is room for the old and the new.
    pub(crate) fn transaction(&self) -> Bytes {
        Bytes(self.file.0.max(Self::FILE_MIN.0) / 64)
    }

    /// Tokens of a task that are drafted from: one task always fits the memory.
    pub(crate) fn indexed(&self) -> Tokens {
        let fitting = Tokens(u32::try_from(self.index.0 / INDEX_BYTES_PER_TOKEN).unwrap_or(u32::MAX));
        self.task.min(fitting)
    }

    /// The longest answer that is kept; what comes after is not. Half of a [generation](crate::generations).
    pub(crate) fn answer(&self) -> Tokens {
        Tokens((self.indexed().0 / 4).max(1))
    }
}

/// More than an automaton takes for a token: two states, three edges and their places in a hash table, in vectors that
/// grow by doubling.
const INDEX_BYTES_PER_TOKEN: u64 = 320;

impl Default for Limits {
    /// Some ten million tokens in 64 MiB of disk, and the newest of the tasks in use in 128 MiB of memory.
    fn default() -> Self {
        Self { file: Bytes(64 << 20), task: Tokens(200_000), index: Bytes(128 << 20) }
    }
}
