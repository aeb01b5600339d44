//! The activations of a pass of an encoder.

use crate::memory::{Aligned, Shared};
use crate::packed::PANEL;
use crate::quantize::{Operands, QuantizedRows, SharedRows};

/// The widths of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderShape {
    /// Of the residual stream, and of all heads side by side.
    pub hidden: usize,
    /// Of the feed-forward block.
    pub ffn: usize,
    /// Heads.
    pub heads: usize,
    /// What products read of rows.
    pub operands: Operands,
}

impl EncoderShape {
    /// Dimensions of a head.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads.max(1)
    }
}

/// The activations of some rows: one layer's, used again by the next.
#[derive(Debug)]
pub struct EncoderBuffers {
    shape: EncoderShape,
    rows: usize,
    stream: Aligned<f32>,
    normed: Aligned<f32>,
    projected: Aligned<f32>,
    attended: Aligned<f32>,
    inner: Aligned<f32>,
    quantized: QuantizedRows,
    /// What attention's workers hold of a text.
    pub(super) scratch: Vec<f32>,
}

/// [`EncoderBuffers`] in the hands of a crew.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedBuffers<'a> {
    pub(super) stream: Floats<'a>,
    pub(super) normed: Floats<'a>,
    pub(super) projected: Floats<'a>,
    pub(super) attended: Floats<'a>,
    pub(super) inner: Floats<'a>,
    quantized: SharedRows<'a>,
    pub(super) scratch: Shared<'a, f32>,
}

/// Rows of floats at a stride.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floats<'a> {
    pub(super) values: Shared<'a, f32>,
    pub(super) stride: usize,
    pub(super) columns: usize,
}

impl Floats<'_> {
    pub(super) fn start(&self, row: usize) -> usize {
        row * self.stride
    }
}

impl<'a> SharedBuffers<'a> {
    /// Room for `rows` quantised rows of this width. The memory is the same for all widths: a sync lies between their uses.
    pub(super) fn quantized(&self, columns: usize, rows: usize) -> SharedRows<'a> {
        self.quantized.with_columns(columns).with_rows(rows)
    }
}

impl EncoderBuffers {
    /// Zeroed buffers.
    #[must_use]
    pub fn new(shape: EncoderShape, rows: usize) -> Self {
        let floats = |columns| Aligned::zeroed(rows * stride(columns));
        Self {
            shape,
            rows,
            stream: floats(shape.hidden),
            normed: floats(shape.hidden),
            projected: floats(3 * shape.hidden),
            attended: floats(shape.hidden),
            inner: floats(shape.ffn),
            quantized: QuantizedRows::new(rows, shape.hidden.max(shape.ffn), shape.operands),
            scratch: Vec::new(),
        }
    }

    /// The widths.
    #[must_use]
    pub fn shape(&self) -> &EncoderShape {
        &self.shape
    }

    /// Rows there is room for.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Row `row` of the residual stream.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn stream(&self, row: usize) -> &[f32] {
        &self.stream[row * stride(self.shape.hidden)..][..self.shape.hidden]
    }

    /// Row `row` of the residual stream, to set it.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn stream_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.stream[row * stride(self.shape.hidden)..][..self.shape.hidden]
    }

    pub(super) fn share(&mut self) -> SharedBuffers<'_> {
        let EncoderShape { hidden, ffn, .. } = self.shape;
        SharedBuffers {
            stream: floats(&mut self.stream, hidden),
            normed: floats(&mut self.normed, hidden),
            projected: floats(&mut self.projected, 3 * hidden),
            attended: floats(&mut self.attended, hidden),
            inner: floats(&mut self.inner, ffn),
            quantized: self.quantized.share(hidden.max(ffn)),
            scratch: Shared::new(&mut self.scratch),
        }
    }
}

/// Rows begin at cache lines and hold whole panels.
fn stride(columns: usize) -> usize {
    columns.next_multiple_of(PANEL)
}

fn floats(buffer: &mut Aligned<f32>, columns: usize) -> Floats<'_> {
    Floats { values: Shared::new(buffer), stride: stride(columns), columns }
}
