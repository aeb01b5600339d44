//! The kernels of a layer of an encoder: a transformer that reads a whole text at once, and keeps nothing of it.
//!
//! As in [`crate::fused`] there are three to a layer. [`project`] makes queries, keys and values of some rows; [`attend`] lets
//! each row see all rows of its text, before it and behind it; [`feed()`] does the rest. What differs is the place of the norms:
//! a BERT norms what it has added up, so that the residual stream is normed wherever a kernel begins. (Devlin et al., *BERT*)
//!
//! **Invariant:** what is computed for a row depends on the rows of its text alone: not on other texts, the rows of the call,
//! the crew or the instruction set.

mod attention;
mod buffers;
mod feed;

pub use attention::attend;
pub use buffers::{EncoderBuffers, EncoderShape};
pub use feed::{FeedForward, LayerNorm, feed};

use crate::crew::{Crew, Worker};
use crate::isa::Isa;
use crate::matmul::{Epilogue, Target, matmul};
use crate::packed::{PANEL, PackedMatrix};
use crate::quantize::{Rows, SharedRows};
use crate::rows::add;
use buffers::Floats;
use std::ops::Range;

/// A matrix product with a bias.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// The matrix.
    pub matrix: &'a PackedMatrix,
    /// One number for each output.
    pub bias: &'a [f32],
}

/// Makes queries, keys and values of `rows`: heads side by side, queries before keys before values. Token-wise.
///
/// # Panics
/// If a shape does not fit.
pub fn project(isa: Isa, crew: &dyn Crew, weights: &Affine<'_>, buffers: &mut EncoderBuffers, rows: Range<usize>) {
    let shared = buffers.share();
    let quantized = shared.quantized(shared.stream.columns, rows.len());
    crew.run(&|worker| {
        let product = Product { isa, rows: &rows, quantized: &quantized, worker: &worker };
        // SAFETY: the kernel has borrowed the buffers alone; every worker calls this once, and nothing runs beside it.
        unsafe { product.run(weights, &shared.stream, &shared.projected, Onto::Nothing) };
    });
}

/// What a product's results are added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Onto {
    /// The bias alone.
    Nothing,
    /// What is there, and the bias.
    WhatIsThere,
}

/// A product of some rows, as one worker computes its part of it.
struct Product<'a> {
    isa: Isa,
    rows: &'a Range<usize>,
    /// At the width of what goes in.
    quantized: &'a SharedRows<'a>,
    worker: &'a Worker<'a>,
}

impl Product<'_> {
    /// Rows of `out` are the products of rows of `from`. All workers call this; the results are there behind the next sync.
    ///
    /// # Safety
    /// Between the surrounding syncs nobody touches the quantised rows and these rows of `out`, or writes those of `from`.
    unsafe fn run(&self, weights: &Affine<'_>, from: &Floats<'_>, out: &Floats<'_>, onto: Onto) {
        let Self { isa, rows, quantized, worker } = *self;
        let source = Rows { values: from.values, stride: from.stride, columns: from.columns, first: rows.start };
        // SAFETY: rows and columns are shared out between workers; a sync follows.
        unsafe { quantized.set_rows(isa, source, worker) };
        let (own, columns) = part(rows.len(), out.columns, worker);
        for row in own {
            let start = out.start(rows.start + row);
            // SAFETY: these columns of the row are this worker's until the sync.
            let to = unsafe { out.values.part_mut(start + columns.start..start + columns.end) };
            let bias = &weights.bias[columns.clone()];
            match onto {
                Onto::Nothing => to.copy_from_slice(bias),
                Onto::WhatIsThere => add(isa, to, bias),
            }
        }
        worker.sync();
        let target = Target { out: out.values, first_row: rows.start, stride: out.stride };
        // SAFETY: each worker calls once, between syncs; the rest is the caller's.
        unsafe { matmul(isa, weights.matrix, quantized, rows.len(), &Epilogue::Add(target), worker) };
    }
}

/// The rows and columns of a matrix that are this worker's: whole rows if there is one for each worker, else some columns of
/// all, in whole cache lines.
fn part(rows: usize, columns: usize, worker: &Worker<'_>) -> (Range<usize>, Range<usize>) {
    if rows >= worker.size() {
        return (worker.share(rows), 0..columns);
    }
    let panels = worker.share(columns.div_ceil(PANEL));
    (0..rows, panels.start * PANEL..(panels.end * PANEL).min(columns))
}
