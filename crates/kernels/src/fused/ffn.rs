//! Feed-forward: output projection, norm, gated block, all added to the residual stream. Token-wise.

use super::buffers::SharedBuffers;
use super::{Buffers, Matrix, Norm, norm_rows};
use crate::crew::{Crew, Worker};
use crate::isa::Isa;
use crate::matmul::{Epilogue, Gating, Target, matmul};
use crate::packed::PackedMatrix;
use crate::quantize::{Rows, SharedRows};
use crate::rows::{add, rms_norm_in_place};
use std::ops::Range;

/// The weights of a layer's feed-forward kernel.
#[derive(Clone, Copy, Debug)]
pub struct FfnWeights<'a> {
    /// From the attention's heads to the residual stream.
    pub output: &'a PackedMatrix,
    /// Of the output projection before it is added (gemma).
    pub output_norm: Option<Norm<'a>>,
    /// Before the block.
    pub norm: Norm<'a>,
    /// The block.
    pub feed: Feed<'a>,
    /// Of the block's result before it is added (gemma).
    pub feed_norm: Option<Norm<'a>>,
}

/// A gated feed-forward block.
#[derive(Clone, Copy, Debug)]
pub struct Feed<'a> {
    /// Gates in the even panels, values in the odd ones.
    pub gate_up: &'a PackedMatrix,
    /// Back to the residual stream.
    pub down: &'a PackedMatrix,
    /// The gates' nonlinearity.
    pub gating: Gating,
}

/// Runs the kernel on `rows` of the buffers.
///
/// # Panics
/// If a shape does not fit.
pub fn feed_forward(isa: Isa, crew: &dyn Crew, weights: &FfnWeights<'_>, buffers: &mut Buffers, rows: Range<usize>) {
    assert!(rows.end <= buffers.rows());
    let shape = *buffers.shape();
    let (shared, quantized) = buffers.share_widths([shape.queries, shape.hidden, shape.ffn]);
    let quantized = quantized.map(|quantized| quantized.with_rows(rows.len()));
    let call = Call { isa, weights, shared, quantized, rows };
    crew.run(&|worker| call.run(&worker));
}

struct Call<'a> {
    isa: Isa,
    weights: &'a FfnWeights<'a>,
    shared: SharedBuffers<'a>,
    /// At the widths of the attention's heads, the residual stream and the block.
    quantized: [SharedRows<'a>; 3],
    rows: Range<usize>,
}

impl Call<'_> {
    fn run(&self, worker: &Worker<'_>) {
        let Self { isa, weights, shared, quantized: [heads, hidden, inner], .. } = self;
        self.quantize(&shared.attended, self.rows.start, heads, worker);
        worker.sync();
        self.project(weights.output, heads, weights.output_norm, worker);
        worker.sync();
        let from = |row| self.rows.start + row;
        // SAFETY: the kernel has borrowed the buffers alone; syncs surround this.
        unsafe { norm_rows(*isa, weights.norm, &shared.residual, from, &shared.normed, hidden, worker) };
        worker.sync();
        let out = Target { out: shared.gated.values, first_row: 0, stride: shared.gated.stride };
        let gated = Epilogue::Gated(out, weights.feed.gating);
        // SAFETY: each worker calls once, between syncs; the kernel has borrowed the buffers alone.
        unsafe { matmul(*isa, weights.feed.gate_up, hidden, self.rows.len(), &gated, worker) };
        worker.sync();
        self.quantize(&shared.gated, 0, inner, worker);
        worker.sync();
        self.project(weights.feed.down, inner, weights.feed_norm, worker);
    }

    /// Quantises rows `first..` of `from`.
    fn quantize(&self, from: &Matrix<'_>, first: usize, to: &SharedRows<'_>, worker: &Worker<'_>) {
        let source = Rows { values: from.values, stride: from.stride, columns: from.columns, first };
        // SAFETY: rows and columns are shared out between workers, with syncs before and after.
        unsafe { to.set_rows(self.isa, source, worker) };
    }

    /// Adds the product to the residual stream, by way of a norm where there is one.
    fn project(&self, matrix: &PackedMatrix, rows: &SharedRows<'_>, norm: Option<Norm<'_>>, worker: &Worker<'_>) {
        let Self { isa, shared, .. } = self;
        let residual =
            Target { out: shared.residual.values, first_row: self.rows.start, stride: shared.residual.stride };
        let Some(norm) = norm else {
            // SAFETY: each worker calls once, between syncs; the kernel has borrowed the buffers alone.
            return unsafe { matmul(*isa, matrix, rows, self.rows.len(), &Epilogue::Add(residual), worker) };
        };
        let scratch = Target { out: shared.normed.values, first_row: 0, stride: shared.normed.stride };
        // SAFETY: as above.
        unsafe { matmul(*isa, matrix, rows, self.rows.len(), &Epilogue::Store(scratch), worker) };
        worker.sync();
        for row in worker.share(self.rows.len()) {
            // SAFETY: the row is this worker's share.
            unsafe {
                let result = shared.normed.values.part_mut(shared.normed.row(row));
                rms_norm_in_place(*isa, result, norm.weight, norm.epsilon);
                add(*isa, shared.residual.values.part_mut(shared.residual.row(self.rows.start + row)), result);
            }
        }
    }
}
