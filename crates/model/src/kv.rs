//! The paged KV cache: who owns pages, and when they come back.
//!
//! A page holds the keys and values of [`PAGE_TOKENS`] consecutive positions of one sequence, all layers. Every page
//! in use belongs to one table, or is shared read-only by several (a common prefix); it returns to its pool when the
//! last table drops it. `used + free <= capacity` always holds. (Agent.xpu §4.1)

use duet_types::{Bytes, Tokens};
use std::sync::Arc;

/// Positions in one page. Attention splits contexts at multiples of this.
pub const PAGE_TOKENS: usize = 64;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvFormat {
    /// Half precision.
    #[default]
    F16,
    /// Eight bits with one scale per position and head.
    Int8,
}

/// Why a table could not grow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// Every page of the pool is in use.
    #[error("the KV cache is full: {wanted} more pages wanted, {free} of {capacity} free")]
    Full {
        /// Pages asked for.
        wanted: usize,
        /// Pages left.
        free: usize,
        /// Pages the pool may hold.
        capacity: usize,
    },
}

/// The memory that pages come from. Clones share it.
#[derive(Clone, Debug)]
pub struct KvPool {
    inner: Arc<()>,
}

impl KvPool {
    /// Pages that may still be taken.
    #[must_use]
    pub fn free_pages(&self) -> usize {
        todo!()
    }

    /// Pages that may be in use at once.
    #[must_use]
    pub fn capacity_pages(&self) -> usize {
        todo!()
    }

    /// Bytes of one page.
    #[must_use]
    pub fn page_bytes(&self) -> Bytes {
        todo!()
    }

    /// An empty table.
    #[must_use]
    pub fn table(&self) -> KvTable {
        todo!()
    }
}

/// The keys and values of one sequence: positions `0..len`.
#[derive(Debug)]
pub struct KvTable {
    pool: KvPool,
}

impl KvTable {
    /// Positions held.
    #[must_use]
    pub fn len(&self) -> Tokens {
        todo!()
    }

    /// Whether it holds no position.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Tokens::ZERO
    }

    /// Pages referenced (shared ones included).
    #[must_use]
    pub fn pages(&self) -> usize {
        todo!()
    }

    /// Makes room for `extra` more positions that only this table can write; copies a shared last page if need be.
    ///
    /// # Errors
    /// [`KvError::Full`]; the table is then unchanged.
    pub fn reserve(&mut self, extra: Tokens) -> Result<(), KvError> {
        let _ = extra;
        todo!()
    }

    /// Forgets positions from `len` on and returns their pages.
    pub fn truncate(&mut self, len: Tokens) {
        let _ = len;
        todo!()
    }

    /// A second table that shares this one's first `prefix` positions read-only; copies at most one page.
    ///
    /// # Errors
    /// [`KvError::Full`] if the last, partial page cannot be copied.
    pub fn fork(&self, prefix: Tokens) -> Result<Self, KvError> {
        let _ = prefix;
        todo!()
    }
}
