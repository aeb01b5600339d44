//! The head: final norm and logits, for chosen rows only.

use super::{Buffers, Matrix, RowNorm, norm_rows, sync_fetching};
use crate::crew::Crew;
use crate::isa::Isa;
use crate::matmul::{Epilogue, FirstLines, Target, matmul};
use crate::memory::Shared;
use crate::packed::{PANEL, PackedMatrix};
use crate::simd::{Kernel, LANES, Simd, exp};

/// The weights of the head.
#[derive(Clone, Copy, Debug)]
pub struct HeadWeights<'a> {
    /// Before the projection.
    pub norm: RowNorm<'a>,
    /// From the residual stream to the vocabulary.
    pub matrix: &'a PackedMatrix,
    /// Added to the logits.
    pub bias: Option<&'a [f32]>,
    /// What logits are bent to stay below: `cap · tanh(logit / cap)`.
    pub cap: Option<f32>,
}

/// Logits of the chosen rows: `out[i × stride ..]` is row `rows[i]`. Returns the stride, the vocabulary in whole panels. `out`
/// grows if need be and is never cut: what is left of a larger call is not filled with zeros for the next one.
///
/// # Panics
/// If a row does not exist.
pub fn head(
    isa: Isa,
    crew: &dyn Crew,
    weights: &HeadWeights<'_>,
    buffers: &mut Buffers,
    rows: &[usize],
    out: &mut Vec<f32>,
) -> usize {
    assert!(rows.len() <= buffers.rows() && rows.iter().all(|&row| row < buffers.rows()));
    let hidden = buffers.shape().hidden;
    let stride = super::buffers::stride(weights.matrix.outputs());
    let len = rows.len() * stride;
    out.resize(out.len().max(len), 0.0);
    let logits = Matrix { values: Shared::new(&mut out[..len]), stride, columns: weights.matrix.outputs() };
    let (shared, quantized, _) = buffers.share(hidden, 0);
    let quantized = quantized.with_rows(rows.len());
    crew.run(&|worker| {
        // SAFETY: the kernel has borrowed the buffers alone; a sync follows.
        unsafe {
            norm_rows(isa, weights.norm, &shared.residual, |i| rows[i], &shared.normed, &quantized, &worker);
        }
        if let Some(bias) = weights.bias {
            for row in worker.share(rows.len()) {
                // SAFETY: the row is this worker's share; a sync follows.
                unsafe { logits.values.part_mut(logits.row(row)) }.copy_from_slice(bias);
            }
        }
        sync_fetching(&worker, Some(&mut FirstLines::of(weights.matrix, &worker)));
        let out = Target { out: logits.values, first_row: 0, stride: logits.stride };
        let out = if weights.bias.is_some() { Epilogue::Add(out) } else { Epilogue::Store(out) };
        // SAFETY: each worker calls once, between syncs; the kernel has borrowed the buffers alone.
        unsafe { matmul(isa, weights.matrix, &quantized, rows.len(), &out, &worker) };
        if let Some(cap) = weights.cap {
            worker.sync();
            let panels = worker.share(rows.len() * stride / PANEL);
            // SAFETY: these panels are this worker's share, and a sync was before.
            let logits = unsafe { logits.values.part_mut(panels.start * PANEL..panels.end * PANEL) };
            isa.run(Cap { logits, cap });
        }
    });
    stride
}

/// `logits = cap · tanh(logits / cap)`, whose hyperbolic tangent is `1 − 2 / (1 + e^2x)`.
struct Cap<'a> {
    logits: &'a mut [f32],
    cap: f32,
}

impl Kernel for Cap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let twice = s.splat(2.0 / self.cap);
        for logits in self.logits.as_chunks_mut::<LANES>().0 {
            // SAFETY: they are 16 floats.
            unsafe {
                let over = s.add(s.splat(1.0), exp(s, s.mul(s.load(logits.as_ptr()), twice)));
                let tangent = s.sub(s.splat(1.0), s.div(s.splat(2.0), over));
                s.store(logits.as_mut_ptr(), s.mul(tangent, s.splat(self.cap)));
            }
        }
    }
}
