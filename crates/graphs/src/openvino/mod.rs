//! A block as OpenVINO's intermediate representation, version 11: a text that lists layers, and the bytes of their
//! constants.
//!
//! Weights stay integers. A product reads them through `Convert` and `Multiply` (for groups also `Subtract` of the zero
//! points and `Reshape`), which OpenVINO's plugins recognise and compute with as they are. They know integer zero points
//! only, so minima are zero points and a small product beside. Norms are primitive operations in the order in which the
//! plugins fuse them.
//!
//! Only the text depends on the number of rows: the constants of a block are the same bytes for every shape, so graphs
//! of several shapes can share one file of them.

mod attention;
mod linear;
mod lower;
mod network;
mod xml;

use crate::attention::ChunkAttention;
use crate::block::Block;
use crate::shape::{LayoutRules, Rows, ShapeError};

/// A network as the toolchain reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ir {
    /// The layers: what is called `*.xml` in a folder.
    pub xml: String,
    /// The constants: what is called `*.bin`.
    pub bin: Vec<u8>,
}

/// Writes the block for these `rows`, as a device with these rules takes it. Inputs and outputs are `f32`,
/// `[rows, width]`, in the block's order, and named as its ports are.
///
/// # Errors
/// If the rules do not allow the shape.
pub fn emit(block: &Block, rows: Rows, rules: &LayoutRules) -> Result<Ir, ShapeError> {
    rules.check(block, rows)?;
    let network = lower::lower(block, rows, rules.linear);
    Ok(Ir { xml: xml::write(&network), bin: network.into_constants() })
}

/// Writes a chunk's attention; nothing if it [is none](ChunkAttention::is_whole). Inputs and outputs are `f32` and named as
/// [`crate::attention::port`] has them.
#[must_use]
pub fn emit_attention(shape: &ChunkAttention) -> Option<Ir> {
    let network = shape.is_whole().then(|| attention::lower(shape))?;
    Some(Ir { xml: xml::write(&network), bin: network.into_constants() })
}
