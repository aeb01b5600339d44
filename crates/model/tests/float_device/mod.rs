//! A device that computes a model's linear work in single precision, from the weights as the file has them.

use duet_model::forward::{NotRun, TokenWise};
use duet_model::{Model, PlainMatrix};

#[derive(Debug)]
pub(crate) struct FloatDevice {
    layers: Vec<Layer>,
    head: Matrix,
    final_norm: Vec<f32>,
    epsilon: f32,
}

#[derive(Debug)]
struct Layer {
    attention_norm: Vec<f32>,
    qkv: Matrix,
    output: Matrix,
    ffn_norm: Vec<f32>,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

/// Rows of weights.
#[derive(Debug)]
struct Matrix(Vec<Vec<f32>>);

impl FloatDevice {
    /// For models of llama's kind: no norms after blocks, SiLU, no biases.
    pub(crate) fn new(model: &Model) -> Self {
        let layer = |layer| {
            model.read_layer(layer, |plain| Layer {
                attention_norm: plain.attention_norm,
                qkv: Matrix::of(&plain.qkv),
                output: Matrix::of(&plain.output),
                ffn_norm: plain.ffn_norm,
                gate: Matrix::of(&plain.gate),
                up: Matrix::of(&plain.up),
                down: Matrix::of(&plain.down),
            })
        };
        let layers = (0..model.config().layers).map(|index| layer(index).unwrap()).collect();
        let (final_norm, epsilon) = (model.final_norm().to_vec(), model.epsilon());
        Self { layers, head: Matrix::of(&model.plain_head().unwrap()), final_norm, epsilon }
    }

    fn norm(&self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
        let scale = (mean + self.epsilon).sqrt().recip();
        x.iter().zip(weight).map(|(x, weight)| x * scale * weight).collect()
    }
}

impl Matrix {
    fn of(plain: &PlainMatrix<'_>) -> Self {
        Self(plain.floats().collect())
    }

    fn inputs(&self) -> usize {
        self.0[0].len()
    }

    fn outputs(&self) -> usize {
        self.0.len()
    }

    fn times(&self, x: &[f32]) -> Vec<f32> {
        self.0.iter().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
    }
}

impl TokenWise for FloatDevice {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        let layer = &self.layers[layer];
        let rows = residual.chunks_exact(layer.qkv.inputs()).zip(qkv.chunks_exact_mut(layer.qkv.outputs()));
        rows.for_each(|(x, out)| out.copy_from_slice(&layer.qkv.times(&self.norm(x, &layer.attention_norm))));
        Ok(())
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        let layer = &self.layers[layer];
        let (queries, hidden) = (layer.output.inputs(), layer.output.outputs());
        let inputs = attended.chunks_exact(queries).zip(residual.chunks_exact(hidden));
        for ((attended, x), out) in inputs.zip(fed.chunks_exact_mut(hidden)) {
            let x = sum(x, &layer.output.times(attended));
            let normed = self.norm(&x, &layer.ffn_norm);
            let gates = layer.gate.times(&normed).into_iter().zip(layer.up.times(&normed));
            let gated: Vec<f32> = gates.map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
            out.copy_from_slice(&sum(&x, &layer.down.times(&gated)));
        }
        Ok(())
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        let rows = residual.chunks_exact(self.head.inputs()).zip(logits.chunks_exact_mut(self.head.outputs()));
        rows.for_each(|(x, out)| out.copy_from_slice(&self.head.times(&self.norm(x, &self.final_norm))));
        Ok(())
    }
}

fn sum(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}
