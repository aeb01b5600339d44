//! A layer's attention: every row over its own position and those before it.

use super::ExactReader;
use super::products::{THREAD_MACS, multiply};
use super::rows::{Rows, rms_norm, sigmoid, softmax};
use super::tensors::Tensors;
use super::threads::each_on_threads;
use crate::arch::{Extra, Rope, RopePairs, WideHeads};
use crate::load::LoadError;
use ndarray::{Array2, s};
use std::collections::BTreeMap;

/// Positions whose scores are kept at a time.
const QUERIES: usize = 128;

/// Keys and values of layers that later ones read.
pub(super) type ReadAgain = BTreeMap<usize, [Rows; 2]>;

impl ExactReader {
    /// Adds what attention finds to the residual stream.
    pub(super) fn attend(
        &self,
        tensors: &Tensors<'_>,
        layer: usize,
        residual: &mut Rows,
        read_again: &mut ReadAgain,
    ) -> Result<(), LoadError> {
        let b = &self.blueprint;
        let normed = self.norm(tensors, &format!("blk.{layer}.attn_norm"), residual)?;
        let (queries, gates) = self.queries(tensors, layer, &normed)?;
        let own = match b.layers[layer].cache_of {
            None => Some(self.keys_and_values(tensors, layer, &normed)?),
            Some(_) => None,
        };
        let [keys, values] = own
            .as_ref()
            .or_else(|| read_again.get(&b.layers[layer].cache_of?))
            .ok_or_else(|| LoadError::MissingTensor { name: format!("blk.{layer}.attn_k.weight") })?;
        let sinks = if b.has(Extra::Sinks) {
            tensors.layer_vector(layer, "attn_sinks.weight", b.heads)?
        } else {
            vec![f32::NEG_INFINITY; b.heads]
        };
        let mut attended = self.attended((layer, &sinks), &queries, keys, values);
        if let Some(gates) = gates {
            for (row, gates) in attended.each_mut().zip(gates.each()) {
                row.iter_mut().zip(gates).for_each(|(x, gate)| *x = (f64::from(*x) * sigmoid(f64::from(*gate))) as f32);
            }
        }
        let mut output = self.product(&tensors.output(layer)?, &attended);
        if b.has(Extra::OutputBias) {
            output.add_to_each(&tensors.layer_vector(layer, "attn_output.bias", b.hidden)?);
        }
        if b.has(Extra::PostNorms) {
            let weight = tensors.layer_vector(layer, "post_attention_norm.weight", b.hidden)?;
            output.each_mut().for_each(|row| rms_norm(row, &weight, b.epsilon));
        }
        self.add(residual, output);
        if let Some(own) = own.filter(|_| b.layers.iter().any(|plan| plan.cache_of == Some(layer))) {
            read_again.insert(layer, own);
        }
        Ok(())
    }

    /// Queries, turned, and gates of what is found.
    fn queries(&self, tensors: &Tensors<'_>, layer: usize, normed: &Rows) -> Result<(Rows, Option<Rows>), LoadError> {
        let b = &self.blueprint;
        let (head_dim, width) = (b.heads_of(layer).head_dim, b.heads * b.heads_of(layer).head_dim);
        let mut queries = self.product(&tensors.queries(layer)?, normed);
        let gates = b.has(Extra::OutputGate).then(|| {
            // Behind the query of each head its gate.
            let heads = queries.each().flat_map(|row| row.chunks_exact(2 * head_dim));
            let (query, gate): (Vec<_>, Vec<_>) = heads.map(|head| head.split_at(head_dim)).unzip();
            let gates = Rows::new(width, gate.concat());
            queries = Rows::new(width, query.concat());
            gates
        });
        if b.has(Extra::QkvBias) {
            queries.add_to_each(&tensors.qkv_bias(layer)?[0]);
        }
        self.norm_and_turn(tensors, layer, &mut queries, "attn_q_norm")?;
        Ok((queries, gates))
    }

    /// Keys and values, as they are cached.
    fn keys_and_values(&self, tensors: &Tensors<'_>, layer: usize, normed: &Rows) -> Result<[Rows; 2], LoadError> {
        let b = &self.blueprint;
        let head_dim = b.heads_of(layer).head_dim;
        let [_, keys, values] = tensors.qkv(layer)?;
        let [mut keys, mut values] = [keys, values].map(|matrix| self.product(&matrix, normed));
        if b.has(Extra::QkvBias) {
            let [_, of_keys, of_values] = tensors.qkv_bias(layer)?;
            keys.add_to_each(&of_keys);
            values.add_to_each(&of_values);
        }
        self.norm_and_turn(tensors, layer, &mut keys, "attn_k_norm")?;
        if b.has(Extra::ValueNorms) {
            let ones = vec![1.0; head_dim];
            let heads = values.each_mut().flat_map(|row| row.chunks_exact_mut(head_dim));
            heads.for_each(|head| rms_norm(head, &ones, b.epsilon));
        }
        self.cache_keys(tensors, layer, &mut keys)?;
        let heads = values.each_mut().flat_map(|row| row.chunks_exact_mut(head_dim));
        heads.for_each(|head| self.rounding.cached_value(head));
        Ok([keys, values])
    }

    /// Norms queries or keys, where there are such norms, and turns them.
    fn norm_and_turn(&self, tensors: &Tensors<'_>, layer: usize, rows: &mut Rows, norm: &str) -> Result<(), LoadError> {
        let b = &self.blueprint;
        let (rope, head_dim) = (&b.ropes[b.layers[layer].rope], b.heads_of(layer).head_dim);
        let width = if b.has(Extra::WidthNorms) { rows.columns() } else { head_dim };
        if b.has(Extra::HeadNorms) || b.has(Extra::WidthNorms) {
            let weight = tensors.layer_vector(layer, &format!("{norm}.weight"), width)?;
            let parts = rows.each_mut().flat_map(|row| row.chunks_exact_mut(width));
            parts.for_each(|part| rms_norm(part, &weight, b.epsilon));
        }
        for (position, row) in rows.each_mut().enumerate() {
            row.chunks_exact_mut(head_dim).for_each(|head| turn(head, position, rope, b.rope_pairs));
        }
        Ok(())
    }

    /// Rounds keys as the cache does.
    fn cache_keys(&self, tensors: &Tensors<'_>, layer: usize, keys: &mut Rows) -> Result<(), LoadError> {
        let b = &self.blueprint;
        let (rope, head_dim) = (&b.ropes[b.layers[layer].rope], b.heads_of(layer).head_dim);
        let bias = self.bias_apart(tensors, layer)?;
        for (position, row) in keys.each_mut().enumerate() {
            let apart = bias.as_ref().map(|bias| kept_apart(bias, position, head_dim, rope, b.rope_pairs));
            let apart = apart.unwrap_or_else(|| vec![0.0; row.len()]);
            row.iter_mut().zip(&apart).for_each(|(key, apart)| *key -= apart);
            for head in row.chunks_exact_mut(head_dim) {
                // Groups are of dimensions that lie together in the cache: the first of all pairs, then the second.
                let order: Vec<usize> = match b.rope_pairs {
                    RopePairs::Halves => (0..head.len()).collect(),
                    RopePairs::Neighbours => {
                        let turned = 2 * rope.frequencies.len();
                        (0..2).flat_map(|one| (one..turned).step_by(2)).chain(turned..head.len()).collect()
                    }
                };
                let mut cached: Vec<f32> = order.iter().map(|&dimension| head[dimension]).collect();
                self.rounding.cached_key(&mut cached);
                order.iter().zip(cached).for_each(|(&dimension, cached)| head[dimension] = cached);
            }
            // It counts in full where scores are made.
            row.iter_mut().zip(&apart).for_each(|(key, apart)| *key += apart);
        }
        Ok(())
    }

    /// The bias that keys are cached without, if there is one. One that is normed with its key is a part of it.
    fn bias_apart(&self, tensors: &Tensors<'_>, layer: usize) -> Result<Option<Vec<f32>>, LoadError> {
        let b = &self.blueprint;
        let is_normed = b.has(Extra::HeadNorms) || b.has(Extra::WidthNorms);
        let apart = self.rounding.keeps_key_bias_apart() && b.has(Extra::QkvBias) && !is_normed;
        Ok(apart.then(|| tensors.qkv_bias(layer)).transpose()?.map(|[_, keys, _]| keys))
    }

    fn attended(&self, (layer, sinks): (usize, &[f32]), queries: &Rows, keys: &Rows, values: &Rows) -> Rows {
        let b = &self.blueprint;
        let WideHeads { kv_heads, head_dim } = b.heads_of(layer);
        let (positions, group) = (queries.len(), b.heads / kv_heads);
        // Heads apart: a thread's results lie beside each other.
        let mut heads = vec![0.0; queries.columns() * positions];
        let threads = b.heads * positions * positions * head_dim / THREAD_MACS;
        let work = heads.chunks_exact_mut((positions * head_dim).max(1)).enumerate();
        each_on_threads(threads, work, |(head, out)| {
            let [key, value] = [keys, values].map(|rows| head_of(rows, head / group, head_dim));
            let query = head_of(queries, head, head_dim);
            self.attended_by_head((b.layers[layer].window, sinks[head]), [query, key, value], out);
        });
        let mut attended = Rows::zeros(positions, queries.columns());
        for (position, row) in attended.each_mut().enumerate() {
            for (head, out) in row.chunks_exact_mut(head_dim).enumerate() {
                out.copy_from_slice(&heads[(head * positions + position) * head_dim..][..head_dim]);
            }
        }
        attended
    }

    /// What a head finds at each position: `out[position * head_dim..]`.
    fn attended_by_head(
        &self,
        (window, sink): (Option<usize>, f32),
        [query, key, value]: [Array2<f64>; 3],
        out: &mut [f32],
    ) {
        let (positions, head_dim) = query.dim();
        let first_of = |position: usize| window.map_or(0, |window| (position + 1).saturating_sub(window));
        let mut sums = Array2::zeros((QUERIES.min(positions), head_dim));
        for from in (0..positions).step_by(QUERIES) {
            let to = positions.min(from + QUERIES);
            // All that any of these positions sees.
            let first = first_of(from);
            let mut weights = Array2::zeros((to - from, to - first));
            multiply(query.slice(s![from..to, ..]), key.slice(s![first..to, ..]).t(), weights.view_mut());
            weights *= f64::from(self.blueprint.attention_scale);
            for (position, mut scores) in (from..to).zip(weights.rows_mut()) {
                let seen = first_of(position) - first..=position - first;
                let scores = scores.as_slice_mut().unwrap_or_default();
                let mut with_sink = scores[seen.clone()].to_vec();
                with_sink.push(f64::from(sink));
                softmax(&mut with_sink);
                scores[seen.clone()].copy_from_slice(&with_sink[..with_sink.len() - 1]);
                scores[..*seen.start()].fill(0.0);
                scores[seen.end() + 1..].fill(0.0);
            }
            let mut sums = sums.slice_mut(s![..to - from, ..]);
            multiply(weights.view(), value.slice(s![first..to, ..]), sums.view_mut());
            out[from * head_dim..].iter_mut().zip(&sums).for_each(|(out, sum)| *out = *sum as f32);
        }
    }
}

/// A head of all rows, in double precision.
fn head_of(rows: &Rows, head: usize, head_dim: usize) -> Array2<f64> {
    let value = |(position, at): (usize, usize)| f64::from(rows.row(position)[head * head_dim + at]);
    Array2::from_shape_fn((rows.len(), head_dim), value)
}

/// What keys at a position are cached without: their bias turned by the angle of their position where it is large and
/// turns quickly, else by that of the middle of their 64 positions.
fn kept_apart(bias: &[f32], position: usize, head_dim: usize, rope: &Rope, pairs: RopePairs) -> Vec<f32> {
    const PAGE: usize = 64;
    const LEFT_MAX: f64 = 2.0;
    let (middle, half) = (position / PAGE * PAGE + PAGE / 2, rope.frequencies.len());
    let [mut by_position, mut by_page] = [bias.to_vec(), bias.to_vec()];
    by_position.chunks_exact_mut(head_dim).for_each(|head| turn(head, position, rope, pairs));
    by_page.chunks_exact_mut(head_dim).for_each(|head| turn(head, middle, rope, pairs));
    // What is not turned is all of it.
    let mut apart = bias.to_vec();
    for (pair, frequency) in rope.frequencies.iter().enumerate() {
        let (one, other) = places(pair, half, pairs);
        let heads = || (0..bias.len()).step_by(head_dim);
        let size = heads().map(|head| f64::from(bias[head + one]).hypot(f64::from(bias[head + other])));
        let farthest = (f64::from(*frequency).abs() * (PAGE / 2) as f64).min(std::f64::consts::PI);
        let is_quick = size.fold(0.0, f64::max) * 2.0 * (farthest / 2.0).sin() > LEFT_MAX;
        let turned = if is_quick { &by_position } else { &by_page };
        for at in heads().flat_map(|head| [head + one, head + other]) {
            apart[at] = turned[at];
        }
    }
    apart
}

/// Where the two dimensions of a pair are, of so many pairs.
fn places(pair: usize, half: usize, pairs: RopePairs) -> (usize, usize) {
    match pairs {
        RopePairs::Neighbours => (2 * pair, 2 * pair + 1),
        RopePairs::Halves => (pair, pair + half),
    }
}

/// Turns the pairs of a head by their angles at a position.
fn turn(head: &mut [f32], position: usize, rope: &Rope, pairs: RopePairs) {
    let half = rope.frequencies.len();
    for (pair, frequency) in rope.frequencies.iter().enumerate() {
        let (sine, cosine) = (position as f64 * f64::from(*frequency)).sin_cos();
        let (one, other) = places(pair, half, pairs);
        let (x, y) = (f64::from(head[one]), f64::from(head[other]));
        head[one] = ((x * cosine - y * sine) * f64::from(rope.magnitude)) as f32;
        head[other] = ((y * cosine + x * sine) * f64::from(rope.magnitude)) as f32;
    }
}
