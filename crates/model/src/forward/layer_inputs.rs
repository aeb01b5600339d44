//! Inputs that layers have of their own: made at the beginning of a pass, added at each layer's end, with the layer's factor.
//!
//! The table of what tokens have of them is as large as all other weights together, and a row of it is read for a token: so it
//! is read from the model's file, like the embeddings, and not packed.

use super::Pass;
use crate::load::Model;
use crate::weights::{INPUT_SCALE, input_epsilon, token_scale};
use duet_kernels::crew::Crew;
use duet_kernels::fused::{InputWeights, LayerInputWeights, Norm, add_layer_input, layer_inputs, scale_stream};
use std::ops::Range;

impl Model {
    /// Makes the inputs of some rows, whose embeddings are in the residual stream.
    pub(super) fn make_layer_inputs(&self, pass: &mut Pass, rows: Range<usize>, crew: &dyn Crew) {
        let b = self.blueprint();
        let table = self.file().tensor("per_layer_token_embd.weight");
        let (Some(weights), Some(table), Some(width)) = (&self.weights().inputs, table, b.layer_input) else { return };
        let weights =
            InputWeights { matrix: &weights.matrix, norm: Norm { weight: &weights.norm, epsilon: input_epsilon(b) } };
        layer_inputs(self.isa(), crew, &weights, &mut pass.activations.buffers, rows.clone());
        let tokens = pass.segments.iter().flat_map(|segment| &segment.tokens).enumerate();
        let scale = token_scale(width) * INPUT_SCALE;
        let mut of_token = vec![0.0; width * b.layers.len()];
        for (row, token) in tokens.filter(|(row, _)| rows.contains(row)) {
            table.dequantize_row(token.0 as usize, &mut of_token);
            let inputs = pass.activations.buffers.layer_inputs_mut(row);
            inputs.iter_mut().zip(&of_token).for_each(|(input, own)| *input += own * scale);
        }
    }

    /// What comes at a layer's end: its input, and its factor.
    pub(super) fn end_layer(&self, pass: &mut Pass, layer: usize, rows: Range<usize>, crew: &dyn Crew) {
        let weights = &self.weights().layers[layer];
        let scale = weights.scale.unwrap_or(1.0);
        let buffers = &mut pass.activations.buffers;
        match &weights.input {
            Some(input) => {
                let weights = LayerInputWeights {
                    gate: &input.gate,
                    gating: self.blueprint().gating,
                    projection: &input.projection,
                    norm: self.norm(&input.norm),
                    scale,
                };
                add_layer_input(self.isa(), crew, &weights, buffers, rows, layer);
            }
            None if weights.scale.is_some() => scale_stream(crew, scale, buffers, rows),
            None => {}
        }
    }
}
