//! The fused kernels of a layer: QKV, attention, feed-forward; and the head. (Agent.xpu §4.2: three kernels a layer.)
//!
//! Each takes a crew and some rows of [`Buffers`], and is safe to call alone: what its workers share is borrowed for
//! the call, and steps that read each other's results are separated by syncs. Token-wise kernels (QKV, feed-forward,
//! head) take any rows of any sequences; attention takes the rows of one sequence at a time.

mod attention;
mod buffers;
mod ffn;
mod head;
mod qkv;

pub use attention::{AttentionShape, SequenceRows, TreeRows, attention};
pub use buffers::{BufferShape, Buffers};
pub use ffn::{Feed, FfnWeights, feed_forward};
pub use head::{HeadWeights, head};
pub use qkv::{KvDestination, KvTail, QkvWeights, qkv};

use crate::isa::Isa;
use crate::memory::Shared;
use crate::quantize::SharedRows;
use crate::rows::rms_norm;

/// A root-mean-square norm.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// One factor a column.
    pub weight: &'a [f32],
    /// Added to the mean square.
    pub epsilon: f32,
}

/// Rows of floats at a stride, shared by a crew.
#[derive(Clone, Copy, Debug)]
struct Matrix<'a> {
    values: Shared<'a, f32>,
    stride: usize,
    columns: usize,
}

impl<'a> Matrix<'a> {
    fn row(&self, row: usize) -> std::ops::Range<usize> {
        row * self.stride..row * self.stride + self.columns
    }
}

/// Norms row `row` of `x` into `scratch` (a row of the same number) and quantises it as row `to`.
///
/// # Safety
/// Both rows are this worker's between the surrounding syncs.
unsafe fn norm_row(
    isa: Isa,
    norm: Norm<'_>,
    x: &Matrix<'_>,
    row: usize,
    scratch: &Matrix<'_>,
    to: &SharedRows<'_>,
    to_row: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        let normed = scratch.values.part_mut(scratch.row(to_row));
        rms_norm(isa, x.values.part(x.row(row)), norm.weight, norm.epsilon, normed);
        to.set_row(isa, to_row, normed);
    }
}
