//! The head: final norm and logits.

use super::port;
use crate::block::{Block, Linear, Norm};
use crate::builder::BlockBuilder;
use crate::check::BlockError;

impl Block {
    /// From [`port::RESIDUAL`] to [`port::LOGITS`]: `linear(norm(residual))`.
    ///
    /// # Errors
    /// If widths do not fit.
    pub fn head(norm: Norm, vocabulary: impl Into<Linear>) -> Result<Self, BlockError> {
        let (mut block, [residual]) = BlockBuilder::new("head", [(port::RESIDUAL, norm.weight.len())]);
        let normed = block.rms_norm(residual, norm);
        let logits = block.linear(normed, vocabulary);
        block.output(port::LOGITS, logits);
        block.finish()
    }
}
