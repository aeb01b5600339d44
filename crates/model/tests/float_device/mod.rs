//! A device that computes a model's linear work in single precision, from the weights as the file has them.

use duet_model::forward::{NotRun, TokenWise};
use duet_model::{FloatLayer, FloatMatrix, Model};

#[derive(Debug)]
pub(crate) struct FloatDevice {
    layers: Vec<FloatLayer>,
    head: FloatMatrix,
    final_norm: Vec<f32>,
    epsilon: f32,
}

impl FloatDevice {
    /// For models of llama's kind: no norms after blocks, SiLU.
    pub(crate) fn new(model: &Model) -> Self {
        let layers = (0..model.config().layers).map(|layer| model.float_layer(layer).unwrap()).collect();
        let (final_norm, epsilon) = (model.final_norm().to_vec(), model.epsilon());
        Self { layers, head: model.float_head().unwrap(), final_norm, epsilon }
    }

    fn norm(&self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
        let scale = (mean + self.epsilon).sqrt().recip();
        x.iter().zip(weight).map(|(x, weight)| x * scale * weight).collect()
    }
}

impl TokenWise for FloatDevice {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        let layer = &self.layers[layer];
        let rows = residual.chunks_exact(layer.qkv.inputs).zip(qkv.chunks_exact_mut(layer.qkv.outputs));
        rows.for_each(|(x, out)| out.copy_from_slice(&product(&layer.qkv, &self.norm(x, &layer.attention_norm))));
        Ok(())
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        let layer = &self.layers[layer];
        let (queries, hidden) = (layer.output.inputs, layer.output.outputs);
        let inputs = attended.chunks_exact(queries).zip(residual.chunks_exact(hidden));
        for ((attended, x), out) in inputs.zip(fed.chunks_exact_mut(hidden)) {
            let x = sum(x, &product(&layer.output, attended));
            let normed = self.norm(&x, &layer.ffn_norm);
            let gates = product(&layer.gate, &normed).into_iter().zip(product(&layer.up, &normed));
            let gated: Vec<f32> = gates.map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
            out.copy_from_slice(&sum(&x, &product(&layer.down, &gated)));
        }
        Ok(())
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        let rows = residual.chunks_exact(self.head.inputs).zip(logits.chunks_exact_mut(self.head.outputs));
        rows.for_each(|(x, out)| out.copy_from_slice(&product(&self.head, &self.norm(x, &self.final_norm))));
        Ok(())
    }
}

fn product(matrix: &FloatMatrix, x: &[f32]) -> Vec<f32> {
    matrix.rows().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

fn sum(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}
