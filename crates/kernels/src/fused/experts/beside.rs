//! A dense block with experts beside it (Gemma 4): both read the same rows of the residual stream, each by a norm of its own, and
//! what both come to is normed, each for itself and then their sum, before it is added.
//!
//! The block is the shared expert of the others, so that one plan divides the work of all. What it takes in lies beside what
//! they take in; a row's norms at the end are one worker's, since they need all of its columns. **Invariant:** all places of
//! a row are added in one call: norms of parts do not sum up.

use super::plan::Plan;
use super::{Call, Experts};
use crate::crew::Worker;
use crate::fused::{Norm, RowNorm, norm_rows};
use crate::isa::Isa;
use crate::rows::{add, dots, inverse_rms, rms_norm_in_place};

/// What a block and the experts beside it have of their own.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// Of the residual stream before the block. Experts take in what the kernel norms; the router sees the residual stream
    /// divided by its root mean square, by this epsilon.
    pub before: Norm<'a>,
    /// Of what the block comes to.
    pub of_block: Norm<'a>,
    /// Of what the experts come to together.
    pub of_experts: Norm<'a>,
    /// Of the sum of both.
    pub of_both: Norm<'a>,
    /// Of each expert, what its weight is multiplied with once it is chosen.
    pub factors: &'a [f32],
}

impl Beside<'_> {
    /// Scores of some experts, each a row of `router`, for a row of the residual stream.
    pub(super) fn score(&self, isa: Isa, stream: &[f32], router: &[f32], scores: &mut [f32]) {
        dots(isa, stream, router, scores);
        let inverse = inverse_rms(isa, stream, self.before.epsilon);
        scores.iter_mut().for_each(|score| *score *= inverse);
    }

    /// Multiplies the weights of chosen experts with their factors.
    pub(super) fn weigh(&self, chosen: &[u32], weights: &mut [f32]) {
        weights.iter_mut().zip(chosen).for_each(|(weight, &expert)| *weight *= self.factors[expert as usize]);
    }
}

/// Whether norms and factors are as long as what they are for, and there is a block without a gate, where there are any.
pub(super) fn fits(experts: &Experts<'_>, hidden: usize) -> bool {
    experts.beside.is_none_or(|Beside { before, of_block, of_experts, of_both, factors }| {
        let norms = [before, of_block, of_experts, of_both];
        norms.iter().all(|norm| norm.weight.len() == hidden)
            && factors.len() == experts.experts.len()
            && experts.shared.is_some_and(|block| block.gate.is_none())
    })
}

impl Call<'_> {
    /// Norms the rows for the block, if there is one beside the experts, before they are normed for these: the normed rows are
    /// written over, by the worker that wrote them.
    pub(in crate::fused) fn norm_beside(&self, worker: &Worker<'_>) {
        let Some(Beside { before, .. }) = self.experts.beside else { return };
        let (stream, scratch) = (&self.shared.residual, &self.shared.normed);
        let from = |row| self.rows.start + row;
        // SAFETY: the kernel has borrowed the buffers alone; syncs surround this, and whoever norms for the experts between
        // them has the same part of the same rows.
        unsafe { norm_rows(self.isa, RowNorm::Rms(before), stream, from, scratch, &self.of_block, worker) };
    }

    /// Adds what the block and a row's experts made of it to the residual stream, each normed and then both.
    pub(super) fn combine_beside(&self, plan: &Plan, norms: &Beside<'_>, worker: &Worker<'_>) {
        let normed = |x: &mut [f32], norm: Norm<'_>| rms_norm_in_place(self.isa, x, norm.weight, norm.epsilon);
        let (residual, scratch, products) = (&self.shared.residual, &self.shared.normed, &self.shared.products);
        for row in worker.share(self.rows.len()) {
            let (first, block) = (row * self.places(), row * self.places() + self.experts.chosen);
            // SAFETY: weights and products were computed before the last sync, and nobody reads normed rows behind it; the
            // row and what its block came to are this worker's.
            unsafe {
                let sum = scratch.values.part_mut(scratch.row(row));
                sum.fill(0.0);
                (first..block).for_each(|place| self.add_place(plan, place, 0..residual.columns, sum));
                normed(sum, norms.of_experts);
                if let Some(slot) = plan.slots[block] {
                    let of_block = products.values.part_mut(products.row(slot));
                    normed(of_block, norms.of_block);
                    add(self.isa, sum, of_block);
                }
                normed(sum, norms.of_both);
                add(self.isa, residual.values.part_mut(residual.row(self.rows.start + row)), sum);
            }
        }
    }
}
