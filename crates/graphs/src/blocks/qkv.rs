//! QKV: norm and projection, with the bias. Head norms, rope and the cache come after it.

use super::port;
use crate::block::{Block, Linear, Norm};
use crate::builder::BlockBuilder;
use crate::check::BlockError;

impl Block {
    /// From [`port::RESIDUAL`] to [`port::QKV`]: `linear(norm(residual))`. The projection's outputs are query heads, key
    /// heads, value heads, one below the other.
    ///
    /// # Errors
    /// If widths do not fit.
    pub fn qkv_projection(norm: Norm, projection: impl Into<Linear>) -> Result<Self, BlockError> {
        let (mut block, [residual]) = BlockBuilder::new("qkv", [(port::RESIDUAL, norm.weight.len())]);
        let normed = block.rms_norm(residual, norm);
        let qkv = block.linear(normed, projection);
        block.output(port::QKV, qkv);
        block.finish()
    }
}
