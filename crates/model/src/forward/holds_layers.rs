//! A device that has room for some of a model's layers only.

use super::token_wise::NotRun;
use duet_types::Bytes;
use std::fmt::Debug;
use std::ops::Range;

/// Holds contiguous layers of a model, as it is told; the head goes with the last one.
pub trait HoldsLayers: Debug + Send + Sync {
    /// What weights may take there.
    fn room(&self) -> Bytes;

    /// What a layer takes of that; the last one with the head.
    fn bytes_of(&self, layer: usize) -> Bytes;

    /// The layers that it holds.
    fn held(&self) -> Range<usize>;

    /// Holds these instead.
    ///
    /// # Errors
    /// [`NotRun`]; then it holds none, until it is told others or is probed.
    fn hold(&self, layers: Range<usize>) -> Result<(), NotRun>;
}
