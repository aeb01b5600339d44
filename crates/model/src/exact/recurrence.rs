//! A recurrence in attention's place: of each head a matrix, which each position changes and reads.

use super::ExactReader;
use super::rows::{Rows, sigmoid};
use super::tensors::Tensors;
use crate::load::LoadError;
use duet_kernels::fused::{RecurrenceShape, Rule, Sharing};
use std::ops::Range;

/// What the normed stream is projected to, as the file has it.
struct Projected {
    /// Columns of the convolution.
    convolved: Rows,
    gates: Rows,
    /// Of delta nets: what strengths are made of.
    strengths: Option<Rows>,
    /// What steps are made of.
    steps: Rows,
}

/// Where among the convolved columns.
struct Places {
    queries: usize,
    keys: usize,
    values: usize,
}

impl ExactReader {
    /// Adds what the recurrence makes of the residual stream to it.
    pub(super) fn recur(
        &self,
        tensors: &Tensors<'_>,
        layer: usize,
        shape: &RecurrenceShape,
        residual: &mut Rows,
    ) -> Result<(), LoadError> {
        let normed = self.norm(tensors, &format!("blk.{layer}.attn_norm"), residual)?;
        let projected = match shape.rule {
            Rule::Delta => self.delta_projected(tensors, layer, shape, &normed)?,
            Rule::Sum => self.sum_projected(tensors, layer, shape, &normed)?,
        };
        let convolved = convolved(tensors, layer, shape, &projected.convolved)?;
        let mut found = self.found(tensors, layer, shape, &projected, &convolved)?;
        let is_delta = shape.rule == Rule::Delta;
        let width = if is_delta { shape.values } else { shape.width() };
        let weight = tensors.layer_vector(layer, "ssm_norm.weight", width)?;
        for (found, gates) in found.iter_mut().zip(projected.gates.each()) {
            let gate = |found: &mut [f64]| {
                found.iter_mut().zip(gates).for_each(|(x, gate)| *x *= silu(f64::from(*gate)));
            };
            if !is_delta {
                gate(found);
            }
            found.chunks_exact_mut(width).for_each(|part| norm(part, &weight, self.blueprint.epsilon));
            if is_delta {
                gate(found);
            }
        }
        let found = Rows::new(shape.width(), found.iter().flatten().map(|x| *x as f32).collect());
        let output = tensors.matrix(&format!("blk.{layer}.ssm_out.weight"), shape.width(), self.blueprint.hidden)?;
        self.add(residual, self.product(&output, &found));
        Ok(())
    }

    fn delta_projected(
        &self,
        tensors: &Tensors<'_>,
        layer: usize,
        shape: &RecurrenceShape,
        normed: &Rows,
    ) -> Result<Projected, LoadError> {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let product = |part: &str, outputs: usize| {
            Ok::<_, LoadError>(self.product(&tensors.matrix(&name(part), self.blueprint.hidden, outputs)?, normed))
        };
        let each = shape.heads / shape.key_heads;
        let (convolved, gates) = if tensors.has(&name("ssm_in")) {
            let all = product("ssm_in", shape.channels() + shape.width())?;
            let values = each * shape.values;
            let by_head = [shape.keys, shape.keys, values, values];
            let [queries, keys, values, gates] = of_key_heads(&all, shape.key_heads, by_head);
            (beside(&[queries, keys, values]), gates)
        } else {
            (product("attn_qkv", shape.channels())?, product("attn_gate", shape.width())?)
        };
        let (strengths, steps) = if tensors.has(&name("ssm_ba")) {
            let [strengths, steps] = of_key_heads(&product("ssm_ba", 2 * shape.heads)?, shape.key_heads, [each; 2]);
            (strengths, steps)
        } else {
            (product("ssm_beta", shape.heads)?, product("ssm_alpha", shape.heads)?)
        };
        Ok(Projected { convolved, gates, strengths: Some(strengths), steps })
    }

    fn sum_projected(
        &self,
        tensors: &Tensors<'_>,
        layer: usize,
        shape: &RecurrenceShape,
        normed: &Rows,
    ) -> Result<Projected, LoadError> {
        let matrix = tensors.matrix(&format!("blk.{layer}.ssm_in.weight"), self.blueprint.hidden, shape.projected())?;
        let all = self.product(&matrix, normed);
        let gates = shape.width();
        let ends = [gates, gates + shape.channels(), shape.projected()];
        let part = |columns: Range<usize>| part(&all, &columns);
        let (gates, convolved, steps) = (part(0..ends[0]), part(ends[0]..ends[1]), part(ends[1]..ends[2]));
        Ok(Projected { convolved, gates, strengths: None, steps })
    }

    /// What each position finds, all heads side by side.
    fn found(
        &self,
        tensors: &Tensors<'_>,
        layer: usize,
        shape: &RecurrenceShape,
        projected: &Projected,
        convolved: &[Vec<f64>],
    ) -> Result<Vec<Vec<f64>>, LoadError> {
        let column = |part: &str| tensors.floats(&format!("blk.{layer}.{part}"), 1, shape.heads);
        let rates = match shape.rule {
            Rule::Delta => tensors.layer_vector(layer, "ssm_a", shape.heads)?,
            Rule::Sum => column("ssm_a")?,
        };
        let step_bias = tensors.layer_vector(layer, "ssm_dt.bias", shape.heads)?;
        let skip = match shape.rule {
            Rule::Delta => vec![0.0; shape.heads],
            Rule::Sum => column("ssm_d")?,
        };
        let of_keys = shape.key_heads * shape.keys;
        let places = match shape.rule {
            Rule::Delta => Places { queries: 0, keys: of_keys, values: 2 * of_keys },
            Rule::Sum => Places { values: 0, keys: shape.width(), queries: shape.width() + of_keys },
        };
        let mut found = vec![Vec::with_capacity(shape.width()); convolved.len()];
        for head in 0..shape.heads {
            let key_head = match shape.sharing {
                Sharing::Neighbours => head / (shape.heads / shape.key_heads),
                Sharing::Turns => head % shape.key_heads,
            };
            let mut matrix = vec![0.0; shape.keys * shape.values];
            for (row, found) in found.iter_mut().enumerate() {
                let part = |first: usize, len: usize| convolved[row][first..first + len].to_vec();
                let mut query = part(places.queries + key_head * shape.keys, shape.keys);
                let mut key = part(places.keys + key_head * shape.keys, shape.keys);
                let value = part(places.values + head * shape.values, shape.values);
                let step = (f64::from(projected.steps.row(row)[head]) + f64::from(step_bias[head])).exp().ln_1p();
                let decay = (f64::from(rates[head]) * step).exp();
                matrix.iter_mut().for_each(|x| *x *= decay);
                let mut delta = value.clone();
                let strength = match &projected.strengths {
                    None => step,
                    Some(strengths) => {
                        to_length(&mut query, 1.0 / (shape.keys as f64).sqrt());
                        to_length(&mut key, 1.0);
                        delta.iter_mut().zip(read(&matrix, &key)).for_each(|(delta, known)| *delta -= known);
                        sigmoid(f64::from(strengths.row(row)[head]))
                    }
                };
                for (matrix, key) in matrix.chunks_exact_mut(shape.values).zip(&key) {
                    matrix.iter_mut().zip(&delta).for_each(|(x, delta)| *x += key * delta * strength);
                }
                let skip = f64::from(skip[head]);
                found.extend(read(&matrix, &query).iter().zip(&value).map(|(x, value)| x + skip * value));
            }
        }
        Ok(found)
    }
}

/// The transposed matrix times a vector over its rows.
fn read(matrix: &[f64], by: &[f64]) -> Vec<f64> {
    let columns = matrix.len() / by.len();
    let mut sums = vec![0.0; columns];
    for (row, by) in matrix.chunks_exact(columns).zip(by) {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x * by);
    }
    sums
}

fn to_length(x: &mut [f64], length: f64) {
    let root = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
    x.iter_mut().for_each(|x| *x *= length / root);
}

fn norm(x: &mut [f64], weight: &[f32], epsilon: f32) {
    let root = (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + f64::from(epsilon)).sqrt();
    x.iter_mut().zip(weight).for_each(|(x, weight)| *x = *x / root * f64::from(*weight));
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// Each column over its last positions, and through the gate's nonlinearity.
fn convolved(
    tensors: &Tensors<'_>,
    layer: usize,
    shape: &RecurrenceShape,
    columns: &Rows,
) -> Result<Vec<Vec<f64>>, LoadError> {
    let (taps, channels) = (shape.taps, shape.channels());
    // Of each channel, the tap of the oldest position first.
    let weights = tensors.floats(&format!("blk.{layer}.ssm_conv1d.weight"), taps, channels)?;
    let bias = match shape.rule {
        Rule::Delta => vec![0.0; channels],
        Rule::Sum => tensors.layer_vector(layer, "ssm_conv1d.bias", channels)?,
    };
    let at = |row: usize, channel: usize| {
        let terms = (0..taps).filter_map(|tap| {
            let back = row.checked_sub(taps - 1 - tap)?;
            Some(f64::from(weights[channel * taps + tap]) * f64::from(columns.row(back)[channel]))
        });
        silu(terms.sum::<f64>() + f64::from(bias[channel]))
    };
    Ok((0..columns.len()).map(|row| (0..channels).map(|channel| at(row, channel)).collect()).collect())
}

/// Some columns.
fn part(rows: &Rows, columns: &Range<usize>) -> Rows {
    Rows::new(columns.len(), rows.each().flat_map(|row| row[columns.clone()].to_vec()).collect())
}

/// Parts of so many columns of each key head, which lie together for it; each part of all heads.
fn of_key_heads<const N: usize>(rows: &Rows, key_heads: usize, sizes: [usize; N]) -> [Rows; N] {
    let group: usize = sizes.iter().sum();
    let mut first = 0;
    sizes.map(|size| {
        let of = |row: &[f32], head: usize| row[head * group + first..head * group + first + size].to_vec();
        let of_row = |row: &[f32]| (0..key_heads).flat_map(|head| of(row, head)).collect::<Vec<f32>>();
        let values = rows.each().flat_map(of_row).collect();
        first += size;
        Rows::new(size * key_heads, values)
    })
}

/// Rows side by side.
fn beside(parts: &[Rows]) -> Rows {
    let row = |row: usize| parts.iter().flat_map(move |part| part.row(row).to_vec());
    Rows::new(parts.iter().map(Rows::columns).sum(), (0..parts[0].len()).flat_map(row).collect())
}
