//! Inputs that layers have of their own, and layers' factors.

use super::ExactReader;
use super::feed::let_through;
use super::rows::{Rows, rms_norm};
use super::tensors::Tensors;
use crate::arch::Extra;
use crate::load::LoadError;
use duet_types::TokenId;

impl ExactReader {
    /// The inputs of all layers, side by side, of these tokens, whose embeddings are in the residual stream.
    pub(super) fn layer_inputs(
        &self,
        tensors: &Tensors<'_>,
        tokens: &[TokenId],
        residual: &Rows,
    ) -> Result<Option<Rows>, LoadError> {
        let b = &self.blueprint;
        let Some(width) = b.layer_input else { return Ok(None) };
        let all = width * b.layers.len();
        let mut inputs = self.product(&tensors.matrix("per_layer_model_proj.weight", b.hidden, all)?, residual);
        inputs.scale(1.0 / (b.hidden as f32).sqrt());
        let norm = tensors.vector("per_layer_proj_norm.weight", width)?;
        inputs
            .each_mut()
            .flat_map(|row| row.chunks_exact_mut(width))
            .for_each(|input| rms_norm(input, &norm, b.epsilon));
        let table = tensors.matrix("per_layer_token_embd.weight", all, b.vocabulary)?.tensor;
        let mut of_tokens = Rows::zeros(tokens.len(), all);
        for (row, token) in of_tokens.each_mut().zip(tokens) {
            table.dequantize_row(token.0 as usize, row);
        }
        of_tokens.scale((width as f32).sqrt());
        inputs.add(&of_tokens);
        inputs.scale(std::f32::consts::FRAC_1_SQRT_2);
        Ok(Some(inputs))
    }

    /// What comes at a layer's end.
    pub(super) fn end_layer(
        &self,
        tensors: &Tensors<'_>,
        layer: usize,
        inputs: Option<&Rows>,
        residual: &mut Rows,
    ) -> Result<(), LoadError> {
        let b = &self.blueprint;
        if let (Some(inputs), Some(width)) = (inputs, b.layer_input) {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            let mut gates = self.product(&tensors.matrix(&name("inp_gate"), b.hidden, width)?, residual);
            for (gates, inputs) in gates.each_mut().zip(inputs.each()) {
                for (gate, input) in gates.iter_mut().zip(&inputs[layer * width..]) {
                    *gate = let_through(b.gating, f64::from(*gate), f64::from(*input)) as f32;
                }
            }
            let mut added = self.product(&tensors.matrix(&name("proj"), width, b.hidden)?, &gates);
            let norm = tensors.vector(&name("post_norm"), b.hidden)?;
            added.each_mut().for_each(|row| rms_norm(row, &norm, b.epsilon));
            residual.add(&added);
        }
        if b.has(Extra::LayerScales) {
            residual.scale(tensors.layer_vector(layer, "layer_output_scale.weight", 1)?[0]);
        }
        Ok(())
    }
}
