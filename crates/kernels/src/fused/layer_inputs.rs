//! Inputs that each layer has of its own beside the residual stream (Gemma 4): small vectors of a row, made before the first
//! layer of its embedding and of its token; and what a layer adds of its vector at its end. Token-wise.
//!
//! Of the residual stream a layer makes gates of its vector: `x += norm(projection · (gating(gate · x) × input))`; then all of
//! `x` is multiplied with the layer's factor.

use super::{Buffers, Matrix, Norm, part};
use crate::crew::Crew;
use crate::isa::Isa;
use crate::matmul::{Epilogue, Gating, Target, matmul};
use crate::packed::{PANEL, PackedMatrix};
use crate::quantize::Rows;
use crate::rows::{add, rms_norm_in_place};
use crate::simd::{Kernel, LANES, Simd};
use std::ops::Range;

/// By what rows' embeddings become inputs of all layers.
#[derive(Clone, Copy, Debug)]
pub struct InputWeights<'a> {
    /// From the residual stream to the inputs of all layers, side by side.
    pub matrix: &'a PackedMatrix,
    /// Of each layer's input.
    pub norm: Norm<'a>,
}

/// By what a layer adds its input to the residual stream.
#[derive(Clone, Copy, Debug)]
pub struct LayerInputWeights<'a> {
    /// From the residual stream to a gate of each number of the input.
    pub gate: &'a PackedMatrix,
    /// The gates' nonlinearity.
    pub gating: Gating,
    /// From the gated input to the residual stream.
    pub projection: &'a PackedMatrix,
    /// Of what is added.
    pub norm: Norm<'a>,
    /// The residual stream is multiplied with this at last.
    pub scale: f32,
}

/// Makes the inputs of all layers of the rows' embeddings, which are in the residual stream.
///
/// # Panics
/// If a shape does not fit.
pub fn layer_inputs(isa: Isa, crew: &dyn Crew, weights: &InputWeights<'_>, buffers: &mut Buffers, rows: Range<usize>) {
    let (shape, width) = (*buffers.shape(), weights.norm.weight.len());
    assert!(rows.end <= buffers.rows() && weights.matrix.outputs() == shape.layer_inputs);
    assert!(shape.layer_inputs.is_multiple_of(width));
    let (shared, quantized, _) = buffers.share(shape.hidden, 0);
    let quantized = quantized.with_rows(rows.len());
    let (from, inputs) = (shared.residual, shared.layer_inputs);
    crew.run(&|worker| {
        let source = Rows { values: from.values, stride: from.stride, columns: from.columns, first: rows.start };
        // SAFETY: rows and columns are shared out between workers; a sync follows.
        unsafe { quantized.set_rows(isa, source, &worker) };
        worker.sync();
        let out = Target { out: inputs.values, first_row: rows.start, stride: inputs.stride };
        // SAFETY: each worker calls once, between syncs; the kernel has borrowed the buffers alone.
        unsafe { matmul(isa, weights.matrix, &quantized, rows.len(), &Epilogue::Store(out), &worker) };
        worker.sync();
        let layers = inputs.columns / width;
        for item in worker.share(rows.len() * layers) {
            let start = inputs.row(rows.start + item / layers).start + item % layers * width;
            // SAFETY: a layer's input of a row is one worker's item.
            let input = unsafe { inputs.values.part_mut(start..start + width) };
            rms_norm_in_place(isa, input, weights.norm.weight, weights.norm.epsilon);
        }
    });
}

/// Adds layer `layer`'s input of the rows to the residual stream, and multiplies that with the layer's factor.
///
/// # Panics
/// If a shape does not fit, or an input is no whole number of panels.
pub fn add_layer_input(
    isa: Isa,
    crew: &dyn Crew,
    weights: &LayerInputWeights<'_>,
    buffers: &mut Buffers,
    rows: Range<usize>,
    layer: usize,
) {
    let (shape, width) = (*buffers.shape(), weights.gate.outputs());
    assert!(rows.end <= buffers.rows() && width.is_multiple_of(PANEL) && width <= shape.ffn);
    assert!((layer + 1) * width <= shape.layer_inputs && weights.projection.inputs() == width);
    let (shared, [of_stream, of_input, _]) = buffers.share_widths([shape.hidden, width, width]);
    let [of_stream, of_input] = [of_stream, of_input].map(|quantized| quantized.with_rows(rows.len()));
    let (stream, gated) = (shared.residual, Matrix { columns: width, ..shared.gated });
    crew.run(&|worker| {
        let source = Rows { values: stream.values, stride: stream.stride, columns: stream.columns, first: rows.start };
        // SAFETY: rows and columns are shared out between workers; a sync follows.
        unsafe { of_stream.set_rows(isa, source, &worker) };
        worker.sync();
        let out = Target { out: gated.values, first_row: 0, stride: gated.stride };
        // SAFETY: each worker calls once, between syncs; the kernel has borrowed the buffers alone.
        unsafe { matmul(isa, weights.gate, &of_stream, rows.len(), &Epilogue::Store(out), &worker) };
        worker.sync();
        for row in worker.share(rows.len()) {
            let start = shared.layer_inputs.row(rows.start + row).start + layer * width;
            // SAFETY: the row is this worker's share, and nobody writes inputs.
            let (gates, input) = unsafe {
                (gated.values.part_mut(gated.row(row)), shared.layer_inputs.values.part(start..start + width))
            };
            isa.run(Gate { gates, input, gating: weights.gating });
        }
        worker.sync();
        let source = Rows { values: gated.values, stride: gated.stride, columns: width, first: 0 };
        // SAFETY: rows and columns are shared out between workers; a sync follows.
        unsafe { of_input.set_rows(isa, source, &worker) };
        worker.sync();
        let out = Target { out: shared.normed.values, first_row: 0, stride: shared.normed.stride };
        // SAFETY: as above.
        unsafe { matmul(isa, weights.projection, &of_input, rows.len(), &Epilogue::Store(out), &worker) };
        worker.sync();
        for row in worker.share(rows.len()) {
            // SAFETY: the row is this worker's share.
            unsafe {
                let result = shared.normed.values.part_mut(shared.normed.row(row));
                rms_norm_in_place(isa, result, weights.norm.weight, weights.norm.epsilon);
                let stream = stream.values.part_mut(stream.row(rows.start + row));
                add(isa, stream, result);
                stream.iter_mut().for_each(|x| *x *= weights.scale);
            }
        }
    });
}

/// Multiplies the residual stream of some rows with a layer's factor.
///
/// # Panics
/// If there are no such rows.
pub fn scale_stream(crew: &dyn Crew, scale: f32, buffers: &mut Buffers, rows: Range<usize>) {
    assert!(rows.end <= buffers.rows());
    let (shared, _, _) = buffers.share(buffers.shape().hidden, 0);
    let stream = shared.residual;
    crew.run(&|worker| {
        let (own, columns) = part(rows.len(), stream.columns, &worker);
        for row in own {
            let start = stream.row(rows.start + row).start;
            // SAFETY: these columns of the row are this worker's.
            let stream = unsafe { stream.values.part_mut(start + columns.start..start + columns.end) };
            stream.iter_mut().for_each(|x| *x *= scale);
        }
    });
}

/// `gates = gating(gates) × input`.
struct Gate<'a> {
    gates: &'a mut [f32],
    input: &'a [f32],
    gating: Gating,
}

impl Kernel for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (gates, input) in self.gates.as_chunks_mut::<LANES>().0.iter_mut().zip(self.input.as_chunks::<LANES>().0) {
            // SAFETY: both hold 16 floats.
            unsafe {
                let gate = self.gating.apply(s, s.load(gates.as_ptr()));
                s.store(gates.as_mut_ptr(), s.mul(gate, s.load(input.as_ptr())));
            }
        }
    }
}
