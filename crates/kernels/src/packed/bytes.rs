//! Where the bytes of packed weights lie: in a buffer of their own, or in something that lends them, such as a mapped file.

use crate::memory::{Aligned, Region};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Something whose bytes can be read for as long as it exists: memory, or a mapped file.
pub trait Lend: AsRef<[u8]> + Send + Sync {
    /// The memory that its bytes lie in, where a device that shares the processor's memory may be given it.
    fn region(&self) -> Option<Region> {
        None
    }
}

/// Who lends bytes to matrices.
pub type Lender = Arc<dyn Lend>;

impl Lend for Vec<u8> {}

impl Lend for Aligned<u8> {
    fn region(&self) -> Option<Region> {
        Self::region(self)
    }
}

/// Bytes of packed weights.
pub(super) enum PackedBytes {
    /// A buffer that they are packed into.
    Own(Aligned<u8>),
    /// A part of what somebody lends, never written.
    Lent {
        lender: Lender,
        /// Within the lender's bytes.
        range: Range<usize>,
    },
}

impl PackedBytes {
    /// A part of what is lent; nothing if there is no such part.
    pub(super) fn lent(lender: &Lender, from: usize, len: usize) -> Option<Self> {
        let range = from..from.checked_add(len)?;
        lender.as_ref().as_ref().get(range.clone())?;
        Some(Self::Lent { lender: Arc::clone(lender), range })
    }

    /// The buffer, while weights are packed.
    ///
    /// # Panics
    /// If the bytes are lent: those were packed before.
    pub(super) fn own(&mut self) -> &mut [u8] {
        match self {
            Self::Own(buffer) => buffer,
            Self::Lent { .. } => unreachable!("weights that somebody lends are packed"),
        }
    }

    /// The memory that they lie in, where a device may be given it.
    pub(super) fn region(&self) -> Option<Region> {
        match self {
            Self::Own(buffer) => buffer.region(),
            Self::Lent { lender, .. } => lender.region(),
        }
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Own(buffer) => buffer.bytes(),
            Self::Lent { range, .. } => range.len(),
        }
    }
}

impl Deref for PackedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(buffer) => buffer,
            Self::Lent { lender, range } => &lender.as_ref().as_ref()[range.clone()],
        }
    }
}

impl std::fmt::Debug for PackedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own(buffer) => buffer.fmt(f),
            Self::Lent { range, .. } => write!(f, "lent {range:?}"),
        }
    }
}
