//! A dense feed-forward block in single precision.

use crate::MoefyError;
use crate::matrix::{Hands, Matrix};
use duet_model::{Gating, Model, PlainMatrix};

/// What comes after attention in a layer: output projection, norm, gated block.
#[derive(Debug)]
pub(crate) struct Block {
    output: Matrix,
    norm: Vec<f32>,
    epsilon: f32,
    gate: Matrix,
    up: Matrix,
    /// A row for each neuron: what it adds to the residual stream.
    pub(crate) down: Matrix,
}

impl Block {
    pub(crate) fn of(model: &Model, layer: usize) -> Result<Self, MoefyError> {
        let of = |plain: &PlainMatrix<'_>| Matrix::of(plain.inputs(), plain.floats().flatten().collect());
        let block = model.read_layer(layer, |plain| {
            let post_norms = plain.output_norm.is_some() || plain.feed_norm.is_some();
            (!post_norms).then(|| Self {
                output: of(&plain.output),
                norm: plain.ffn_norm.clone(),
                epsilon: model.epsilon(),
                gate: of(&plain.gate),
                up: of(&plain.up),
                down: of(&plain.down).transposed(),
            })
        })?;
        block.filter(|_| model.gating() == Gating::Silu).ok_or(MoefyError::Block)
    }

    /// Adds attention's output projection to the residual stream.
    pub(crate) fn attend(&self, attended: &Matrix, residual: &mut Matrix, hands: Hands) {
        residual.add(&attended.times_rows_of(&self.output, hands));
    }

    /// What the block is given.
    pub(crate) fn normed(&self, residual: &Matrix) -> Matrix {
        let mut normed = residual.clone();
        for row in 0..normed.rows() {
            let row = normed.row_mut(row);
            let mean = row.iter().map(|x| x * x).sum::<f32>() / row.len() as f32;
            let scale = (mean + self.epsilon).sqrt().recip();
            row.iter_mut().zip(&self.norm).for_each(|(x, weight)| *x *= scale * weight);
        }
        normed
    }

    /// What each neuron gives for each row.
    pub(crate) fn neurons(&self, normed: &Matrix, hands: Hands) -> Matrix {
        let mut neurons = normed.times_rows_of(&self.gate, hands);
        let up = normed.times_rows_of(&self.up, hands);
        for row in 0..neurons.rows() {
            let gates = neurons.row_mut(row);
            gates.iter_mut().zip(up.row(row)).for_each(|(gate, up)| *gate = *gate / (1.0 + (-*gate).exp()) * up);
        }
        neurons
    }
}
