//! A block as an ONNX model of integers, for Qualcomm's HTP by way of ONNX Runtime.
//!
//! Every value passes `QuantizeLinear` and `DequantizeLinear` (QDQ): 16 unsigned bits on the grid of its calibrated range,
//! since eight lose some per cent. Weights stay the integers they are. A norm is one node, because the squares in it would
//! not fit on a grid. Inputs and outputs are floats.

mod grid;
mod linear;
mod lower;
mod messages;
mod writer;

use crate::block::Block;
use crate::ranges::{RangeError, Ranges};
use crate::shape::{LayoutRules, Rows, ShapeError};
use prost::Message;

/// Why a block has no ONNX model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OnnxError {
    /// The device does not take the shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The ranges are another block's.
    #[error(transparent)]
    Ranges(#[from] RangeError),
    /// Toolchains multiply by scales above zero only.
    #[error("weights have a scale of {scale}, ONNX's are above zero: quantise them again from floats")]
    Scale {
        /// The scale.
        scale: f32,
    },
    /// ONNX counts from zero points, which are integers.
    #[error("weights have a minimum for each group, which ONNX does not have: quantise them with zero points")]
    Minima,
    /// A message holds less than 2 GiB.
    #[error(
        "the model of block {block} would take {bytes} bytes, a file of ONNX holds less than 2 GiB: split the block"
    )]
    TooLarge {
        /// The block.
        block: String,
        /// What it would take.
        bytes: usize,
    },
}

/// Writes the block for these `rows`, as a device with these rules takes it. Inputs and outputs are `f32`,
/// `[rows, width]`, in the block's order, and named as its ports are.
///
/// # Errors
/// If the rules do not allow the shape, the ranges are another block's, a scale of the weights is not above zero, weights
/// have minima, or the model would be too large for a file.
pub fn emit(block: &Block, ranges: &Ranges, rows: Rows, rules: &LayoutRules) -> Result<Vec<u8>, OnnxError> {
    rules.check(block, rows)?;
    ranges.check(block)?;
    let model = lower::lower(block, ranges, rows, rules.linear)?;
    let bytes = model.encoded_len();
    if bytes > MESSAGE_MAX {
        return Err(OnnxError::TooLarge { block: block.name().to_owned(), bytes });
    }
    Ok(model.encode_to_vec())
}

/// The most that readers of the format take.
const MESSAGE_MAX: usize = i32::MAX as usize;
