//! The file's tensors, by name and checked against the blueprint.

use super::rounding::{Rounding, WeightRounding};
use crate::arch::{Blueprint, ExpertPlan, Extra};
use crate::gguf::{GgufFile, Tensor};
use crate::load::LoadError;
use duet_kernels::packed::{PANEL, PANELS_TOGETHER};
use std::ops::Range;

/// Finds tensors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensors<'a> {
    pub(super) file: &'a GgufFile,
    pub(super) blueprint: &'a Blueprint,
}

/// Some rows of a tensor, as a matrix.
#[derive(Clone, Debug)]
pub(super) struct Matrix<'a> {
    pub(super) tensor: Tensor<'a>,
    pub(super) rows: Range<usize>,
    /// Tensors that the kernels store in one form with this one, itself among them.
    pub(super) together: Vec<Tensor<'a>>,
}

impl Matrix<'_> {
    pub(super) fn inputs(&self) -> usize {
        self.tensor.info.row_len()
    }

    pub(super) fn outputs(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn rounding(&self, rounding: Rounding) -> WeightRounding {
        rounding.of_weights(&self.together)
    }
}

/// The matrices of a gated block.
#[derive(Clone, Debug)]
pub(super) struct Feed<'a> {
    pub(super) gate: Matrix<'a>,
    pub(super) up: Matrix<'a>,
    pub(super) down: Matrix<'a>,
}

/// What is added to the products of a gated block.
#[derive(Clone, Debug)]
pub(super) struct FeedBias {
    pub(super) gate: Vec<f32>,
    pub(super) up: Vec<f32>,
    pub(super) down: Vec<f32>,
}

impl<'a> Tensors<'a> {
    pub(super) fn embeddings(&self) -> Result<Tensor<'a>, LoadError> {
        self.shaped("token_embd.weight", &[self.blueprint.hidden, self.blueprint.vocabulary])
    }

    /// `output.weight`, or the embeddings where they are tied.
    pub(super) fn head(&self) -> Result<Matrix<'a>, LoadError> {
        let name = if self.file.tensor("output.weight").is_some() { "output.weight" } else { "token_embd.weight" };
        self.matrix(name, self.blueprint.hidden, self.blueprint.vocabulary)
    }

    /// Projections to queries, keys and values: three tensors, or the rows of one.
    pub(super) fn qkv(&self, layer: usize) -> Result<[Matrix<'a>; 3], LoadError> {
        let b = self.blueprint;
        let [queries, keys] = self.widths(layer);
        let queries = if b.has(Extra::OutputGate) { 2 * queries } else { queries };
        let one = weight(layer, "attn_qkv");
        if self.file.tensor(&one).is_some() {
            let all = self.matrix(&one, b.hidden, queries + 2 * keys)?;
            let ends = [queries, queries + keys, queries + 2 * keys];
            let part = |end: usize, rows: usize| Matrix { rows: end - rows..end, ..all.clone() };
            return Ok([part(ends[0], queries), part(ends[1], keys), part(ends[2], keys)]);
        }
        let tensor = |part: &str, rows: usize| self.shaped(&weight(layer, part), &[b.hidden, rows]);
        let is_of_keys = b.has(Extra::ValuesOfKeys) && !self.has(&weight(layer, "attn_v"));
        let values = if is_of_keys { "attn_k" } else { "attn_v" };
        let tensors = [tensor("attn_q", queries)?, tensor("attn_k", keys)?, tensor(values, keys)?];
        // Each has a form of its own where those above it are whole pairs of panels.
        let whole = |tensor: &Tensor<'_>| tensor.info.rows().is_multiple_of(PANELS_TOGETHER * PANEL);
        if tensors[..2].iter().all(whole) { Ok(tensors.map(alone)) } else { Ok(together(tensors)) }
    }

    /// The projection to queries.
    pub(super) fn queries(&self, layer: usize) -> Result<Matrix<'a>, LoadError> {
        if self.blueprint.layers[layer].cache_of.is_some() {
            return self.matrix(&weight(layer, "attn_q"), self.blueprint.hidden, self.widths(layer)[0]);
        }
        let [queries, ..] = self.qkv(layer)?;
        Ok(queries)
    }

    /// Widths of all queries, and of all keys, of a layer.
    fn widths(&self, layer: usize) -> [usize; 2] {
        let heads = self.blueprint.heads_of(layer);
        [self.blueprint.heads, heads.kv_heads].map(|count| count * heads.head_dim)
    }

    /// What is added to queries, keys and values.
    pub(super) fn qkv_bias(&self, layer: usize) -> Result<[Vec<f32>; 3], LoadError> {
        let [queries, keys] = self.widths(layer);
        if self.file.tensor(&format!("blk.{layer}.attn_qkv.bias")).is_some() {
            let mut all = self.layer_vector(layer, "attn_qkv.bias", queries + 2 * keys)?;
            let values = all.split_off(queries + keys);
            let of_keys = all.split_off(queries);
            return Ok([all, of_keys, values]);
        }
        let part = |name: &str, len: usize| self.layer_vector(layer, &format!("{name}.bias"), len);
        Ok([part("attn_q", queries)?, part("attn_k", keys)?, part("attn_v", keys)?])
    }

    pub(super) fn output(&self, layer: usize) -> Result<Matrix<'a>, LoadError> {
        let b = self.blueprint;
        self.matrix(&weight(layer, "attn_output"), self.widths(layer)[0], b.hidden)
    }

    /// The gated block of `ffn` neurons whose tensors' names end in `suffix`.
    pub(super) fn feed(&self, layer: usize, suffix: &str, ffn: usize) -> Result<Feed<'a>, LoadError> {
        let hidden = self.blueprint.hidden;
        let name = |part: &str| weight(layer, &format!("{part}{suffix}"));
        let (gate, up) = (name("ffn_gate"), name("ffn_up"));
        let down = self.matrix(&name("ffn_down"), ffn, hidden)?;
        if self.file.tensor(&gate).is_none() && self.file.tensor(&up).is_some_and(|up| up.info.rows() == 2 * ffn) {
            // Gates first, then what they gate.
            let both = self.matrix(&up, hidden, 2 * ffn)?;
            return Ok(Feed {
                gate: Matrix { rows: 0..ffn, ..both.clone() },
                up: Matrix { rows: ffn..2 * ffn, ..both },
                down,
            });
        }
        let [gate, up] = together([self.shaped(&gate, &[hidden, ffn])?, self.shaped(&up, &[hidden, ffn])?]);
        Ok(Feed { gate, up, down })
    }

    /// The gated block of one of many experts, which lie in one tensor of each kind.
    pub(super) fn expert(&self, layer: usize, plan: &ExpertPlan, expert: usize) -> Result<Feed<'a>, LoadError> {
        let (hidden, ExpertPlan { ffn, count, .. }) = (self.blueprint.hidden, *plan);
        let stack = |part: &str, inputs, outputs| self.shaped(&weight(layer, part), &[inputs, outputs, count]);
        if self.has(&weight(layer, "ffn_gate_up_exps")) {
            // Of each expert gates first, then what they gate.
            let both = alone(stack("ffn_gate_up_exps", hidden, 2 * ffn)?);
            let half =
                |half: usize| Matrix { rows: (2 * expert + half) * ffn..(2 * expert + half + 1) * ffn, ..both.clone() };
            let down = alone(stack("ffn_down_exps", ffn, hidden)?);
            return Ok(Feed {
                gate: half(0),
                up: half(1),
                down: Matrix { rows: expert * hidden..(expert + 1) * hidden, ..down },
            });
        }
        let [gate, up] = together([stack("ffn_gate_exps", hidden, ffn)?, stack("ffn_up_exps", hidden, ffn)?]);
        let down = alone(stack("ffn_down_exps", ffn, hidden)?);
        let of = |stack: Matrix<'a>, rows: usize| Matrix { rows: expert * rows..(expert + 1) * rows, ..stack };
        Ok(Feed { gate: of(gate, ffn), up: of(up, ffn), down: of(down, hidden) })
    }

    /// Its biases, a row of each tensor.
    pub(super) fn expert_bias(&self, layer: usize, plan: &ExpertPlan, expert: usize) -> Result<FeedBias, LoadError> {
        let row = |part: &str, len: usize| {
            let tensor = self.shaped(&format!("blk.{layer}.{part}.bias"), &[len, plan.count])?;
            let mut values = vec![0.0; len];
            tensor.dequantize_row(expert, &mut values);
            Ok::<_, LoadError>(values)
        };
        let hidden = self.blueprint.hidden;
        Ok(FeedBias {
            gate: row("ffn_gate_exps", plan.ffn)?,
            up: row("ffn_up_exps", plan.ffn)?,
            down: row("ffn_down_exps", hidden)?,
        })
    }

    /// A matrix of a form of its own.
    pub(super) fn matrix(&self, name: &str, inputs: usize, outputs: usize) -> Result<Matrix<'a>, LoadError> {
        Ok(alone(self.shaped(name, &[inputs, outputs])?))
    }

    /// A vector of layer `layer`.
    pub(super) fn layer_vector(&self, layer: usize, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        self.vector(&format!("blk.{layer}.{name}"), len)
    }

    /// A vector; dimensions of one do not count.
    pub(super) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let mut values = vec![0.0; len];
        self.shaped(name, &[len])?.dequantize_row(0, &mut values);
        Ok(values)
    }

    /// All rows of a matrix, one after the other, as the file has them.
    pub(super) fn floats(&self, name: &str, inputs: usize, outputs: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.shaped(name, &[inputs, outputs])?;
        let mut values = vec![0.0; inputs * outputs];
        values.chunks_exact_mut(inputs).enumerate().for_each(|(row, values)| tensor.dequantize_row(row, values));
        Ok(values)
    }

    /// Whether the file has a tensor.
    pub(super) fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// Lets go of the file's pages behind a layer that was read.
    pub(super) fn forget_layer(&self, layer: usize) {
        let prefix = format!("blk.{layer}.");
        self.file.tensors().iter().filter(|tensor| tensor.name.starts_with(&prefix)).for_each(|t| self.file.forget(t));
    }

    fn shaped(&self, name: &str, expected: &[usize]) -> Result<Tensor<'a>, LoadError> {
        let tensor = self.file.tensor(name).ok_or_else(|| LoadError::MissingTensor { name: name.to_owned() })?;
        let plain = |shape: &[u64]| {
            let used = shape.iter().rposition(|&len| len != 1).map_or(1, |last| last + 1);
            shape[..used].to_vec()
        };
        let wanted: Vec<u64> = expected.iter().map(|&len| len as u64).collect();
        if plain(&tensor.info.shape) == plain(&wanted) {
            Ok(tensor)
        } else {
            let found = tensor.info.shape.clone();
            Err(LoadError::Shape { tensor: name.to_owned(), expected: expected.to_vec(), found })
        }
    }
}

fn weight(layer: usize, part: &str) -> String {
    format!("blk.{layer}.{part}.weight")
}

/// A whole tensor.
fn alone(tensor: Tensor<'_>) -> Matrix<'_> {
    Matrix { tensor, rows: 0..tensor.info.rows(), together: vec![tensor] }
}

/// Whole tensors that have one form.
fn together<const N: usize>(tensors: [Tensor<'_>; N]) -> [Matrix<'_>; N] {
    tensors.map(|tensor| Matrix { tensor, rows: 0..tensor.info.rows(), together: tensors.to_vec() })
}
