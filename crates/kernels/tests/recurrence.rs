//! Recurrences: against a plain computation, and to the bit across instruction sets, crews, cuts and trees.

use duet_kernels::crew::{Crew, Scoped, Solo};
use duet_kernels::fused::{
    Beginning, BufferShape, Buffers, ConvolvedRows, Norm, RecurrenceShape, RecurrenceWeights, RecurrentRows, RowNorm,
    Rule, Sharing, project, recurrence, replay,
};
use duet_kernels::isa::Isa;
use duet_kernels::packed::{Form, PackedMatrix};
use duet_kernels::quantize::Operands;
use proptest::prelude::*;

const HIDDEN: usize = 32;
const EPSILON: f32 = 1e-5;

const DELTA: RecurrenceShape = RecurrenceShape {
    rule: Rule::Delta,
    key_heads: 2,
    heads: 4,
    keys: 16,
    values: 32,
    sharing: Sharing::Neighbours,
    taps: 4,
};
const TURNS: RecurrenceShape = RecurrenceShape { sharing: Sharing::Turns, ..DELTA };
const SUM: RecurrenceShape =
    RecurrenceShape { rule: Rule::Sum, key_heads: 1, heads: 3, keys: 32, values: 16, taps: 3, ..DELTA };

fn noise(seed: usize) -> f32 {
    let mut x = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
}

fn noises(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| noise(i + seed)).collect()
}

/// A layer.
struct Layer {
    shape: RecurrenceShape,
    matrix: PackedMatrix,
    taps: Vec<f32>,
    bias: Option<Vec<f32>>,
    rates: Vec<f32>,
    step_bias: Vec<f32>,
    skip: Option<Vec<f32>>,
    norm: Vec<f32>,
}

impl Layer {
    fn new(shape: RecurrenceShape) -> Self {
        let floats = |output: usize, group: usize| {
            std::array::from_fn::<f32, 32, _>(|i| 0.5 * noise(output * 97 + group * 32 + i))
        };
        let is_sum = shape.rule == Rule::Sum;
        Self {
            matrix: PackedMatrix::new(shape.projected(), HIDDEN, Form::F32, floats).unwrap(),
            taps: noises(shape.taps * shape.channels(), 9000),
            bias: is_sum.then(|| noises(shape.channels(), 11_000)),
            rates: (0..shape.heads).map(|head| -0.1 - 0.3 * head as f32).collect(),
            step_bias: noises(shape.heads, 12_000),
            skip: is_sum.then(|| noises(shape.heads, 13_000)),
            norm: noises(if is_sum { shape.width() } else { shape.values }, 14_000),
            shape,
        }
    }

    fn weights(&self) -> RecurrenceWeights<'_> {
        RecurrenceWeights {
            shape: self.shape,
            taps: &self.taps,
            bias: self.bias.as_deref(),
            rates: &self.rates,
            step_bias: &self.step_bias,
            skip: self.skip.as_deref(),
            norm: Norm { weight: &self.norm, epsilon: EPSILON },
        }
    }

    fn residual(row: usize) -> Vec<f32> {
        noises(HIDDEN, row * 1009)
    }

    fn buffers(&self, isa: Isa, crew: &dyn Crew, rows: &[usize]) -> Buffers {
        let shape = BufferShape {
            hidden: HIDDEN,
            qkv: self.shape.projected(),
            queries: self.shape.width(),
            ffn: HIDDEN,
            experts: None,
            angles: 1,
            layer_inputs: 0,
            operands: Operands::BytesAndFloats,
        };
        let mut buffers = Buffers::new(shape, rows.len());
        for (index, row) in rows.iter().enumerate() {
            buffers.residual_mut(index).copy_from_slice(&Self::residual(*row));
        }
        let ones = vec![1.0; HIDDEN];
        let norm = RowNorm::Rms(Norm { weight: &ones, epsilon: EPSILON });
        project(isa, crew, (norm, &self.matrix), &mut buffers, 0..rows.len());
        buffers
    }
}

/// What a sequence knows between calls.
#[derive(Clone, PartialEq)]
struct Known {
    columns: Vec<f32>,
    matrices: Option<Vec<f32>>,
}

impl Known {
    fn nothing(shape: &RecurrenceShape) -> Self {
        Self { columns: vec![0.0; shape.columns()], matrices: None }
    }

    fn found(buffers: &Buffers, layer: &Layer, rows: usize) -> Vec<Vec<f32>> {
        (0..rows).map(|row| buffers.attended(row)[..layer.shape.width()].to_vec()).collect()
    }

    /// Rows that follow each other, the kernel being called for `cut` of them first.
    fn feed(&mut self, layer: &Layer, isa: Isa, crew: &dyn Crew, rows: &[usize], cut: usize) -> Vec<Vec<f32>> {
        let shape = &layer.shape;
        let mut buffers = layer.buffers(isa, crew, rows);
        let mut inputs = vec![0.0; rows.len() * shape.inputs()];
        let (mut now, mut copy) = (vec![0.0; shape.matrices()], vec![0.0; shape.matrices()]);
        for part in [0..cut, cut..rows.len()].into_iter().filter(|part| !part.is_empty()) {
            let at = part.start.checked_sub(1);
            let copies = vec![(rows.len() - 1, copy.as_mut_slice())];
            let convolved = ConvolvedRows { first_row: 0, rows: part, before: &self.columns, paths: None };
            let before = self.matrices.as_deref();
            let rows = RecurrentRows { convolved, inputs: &mut inputs, before, now: &mut now, at, copies };
            recurrence(isa, crew, &layer.weights(), &mut buffers, &mut [rows]);
        }
        assert!(copy == now, "copied behind the last row");
        let mut again = vec![f32::NAN; shape.matrices()];
        let all: Vec<usize> = (0..rows.len()).collect();
        let beginning = self.matrices.as_deref().map_or(Beginning::Zeros, Beginning::Matrices);
        replay(isa, shape, &inputs, &all[..cut.max(1)], beginning, &mut again);
        replay(isa, shape, &inputs, &all[cut.max(1)..], Beginning::Now, &mut again);
        assert!(again == now, "the same without results");
        for row in 0..rows.len() {
            self.columns.drain(..shape.channels());
            self.columns.extend(buffers.projection(row, 0..shape.channels()));
        }
        self.matrices = Some(now);
        Self::found(&buffers, layer, rows.len())
    }

    fn feed_tree(
        &self,
        layer: &Layer,
        isa: Isa,
        crew: &dyn Crew,
        rows: &[usize],
        paths: &[Vec<usize>],
    ) -> Vec<Vec<f32>> {
        let mut buffers = layer.buffers(isa, crew, rows);
        let mut inputs = vec![0.0; rows.len() * layer.shape.inputs()];
        let mut now = vec![0.0; layer.shape.matrices()];
        let convolved = ConvolvedRows { first_row: 0, rows: 0..rows.len(), before: &self.columns, paths: Some(paths) };
        let before = self.matrices.as_deref();
        let all = RecurrentRows { convolved, inputs: &mut inputs, before, now: &mut now, at: None, copies: Vec::new() };
        recurrence(isa, crew, &layer.weights(), &mut buffers, &mut [all]);
        Self::found(&buffers, layer, rows.len())
    }
}

/// In double precision, by the formulas.
fn plainly(layer: &Layer, rows: usize) -> Vec<Vec<f64>> {
    let shape = &layer.shape;
    let (channels, width) = (shape.channels(), shape.width());
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let projected: Vec<Vec<f64>> = (0..rows)
        .map(|row| {
            let x: Vec<f64> = Layer::residual(row).into_iter().map(f64::from).collect();
            let scale = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / HIDDEN as f64 + f64::from(EPSILON)).sqrt();
            let output = |o: usize| (0..HIDDEN).map(|i| x[i] * scale * f64::from(layer.matrix.weight(o, i))).sum();
            (0..shape.projected()).map(output).collect()
        })
        .collect();
    let convolved = |row: usize, channel: usize| {
        let tap = |tap: usize| {
            let before = (shape.taps - 1 - tap) as i64;
            let column = usize::try_from(row as i64 - before).map_or(0.0, |row| projected[row][channel]);
            f64::from(layer.taps[tap * channels + channel]) * column
        };
        let bias = layer.bias.as_ref().map_or(0.0, |bias| f64::from(bias[channel]));
        silu((0..shape.taps).map(tap).sum::<f64>() + bias)
    };
    let mut matrices = vec![vec![vec![0.0; shape.values]; shape.keys]; shape.heads];
    let norm = |x: &mut [f64]| {
        let root = (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + f64::from(EPSILON)).sqrt();
        x.iter_mut().zip(&layer.norm).for_each(|(x, weight)| *x = *x / root * f64::from(*weight));
    };
    let mut results = Vec::new();
    for (row, projected) in projected.iter().enumerate() {
        let mut result = Vec::new();
        for (head, matrix) in matrices.iter_mut().enumerate() {
            let key_head = match shape.sharing {
                Sharing::Neighbours => head / (shape.heads / shape.key_heads),
                Sharing::Turns => head % shape.key_heads,
            };
            let part =
                |first: usize, len: usize| -> Vec<f64> { (first..first + len).map(|c| convolved(row, c)).collect() };
            let mut query = part(key_head * shape.keys, shape.keys);
            let mut key = part((shape.key_heads + key_head) * shape.keys, shape.keys);
            let value = part(2 * shape.key_heads * shape.keys + head * shape.values, shape.values);
            let numbers = &projected[channels + width..];
            let number = numbers[numbers.len() - shape.heads + head] + f64::from(layer.step_bias[head]);
            let step = number.exp().ln_1p();
            let decay = (f64::from(layer.rates[head]) * step).exp();
            let mut strength = step;
            if shape.rule == Rule::Delta {
                strength = 1.0 / (1.0 + (-numbers[head]).exp());
                for x in [&mut query, &mut key] {
                    let root = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                    x.iter_mut().for_each(|x| *x /= root);
                }
                query.iter_mut().for_each(|x| *x /= (shape.keys as f64).sqrt());
            }
            for column in 0..shape.values {
                matrix.iter_mut().for_each(|row| row[column] *= decay);
                let found: f64 = matrix.iter().zip(&key).map(|(row, key)| row[column] * key).sum();
                let found = if shape.rule == Rule::Delta { found } else { 0.0 };
                let delta = strength * (value[column] - found);
                matrix.iter_mut().zip(&key).for_each(|(row, key)| row[column] += key * delta);
                let mut out: f64 = matrix.iter().zip(&query).map(|(row, query)| row[column] * query).sum();
                out += layer.skip.as_ref().map_or(0.0, |skip| f64::from(skip[head]) * value[column]);
                result.push(out);
            }
        }
        let gate = |result: &mut [f64]| {
            result.iter_mut().zip(&projected[channels..]).for_each(|(x, gate)| *x *= silu(*gate));
        };
        if shape.rule == Rule::Delta {
            result.chunks_exact_mut(shape.values).for_each(norm);
            gate(&mut result);
        } else {
            gate(&mut result);
            norm(&mut result);
        }
        results.push(result);
    }
    results
}

#[test]
fn results_are_those_of_the_formulas() {
    for shape in [DELTA, TURNS, SUM] {
        let layer = Layer::new(shape);
        let rows: Vec<usize> = (0..9).collect();
        let found = Known::nothing(&shape).feed(&layer, Isa::chosen().unwrap(), &Solo, &rows, 4);
        for (row, (found, expected)) in found.iter().zip(plainly(&layer, rows.len())).enumerate() {
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!((f64::from(*found) - expected).abs() < 1e-4, "{shape:?}, row {row}, {at}: {found} {expected}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cuts_crews_and_instruction_sets_change_nothing(
        shape in prop::sample::select(vec![DELTA, TURNS, SUM]),
        cuts in prop::collection::vec(1_usize..6, 1..4),
        within in any::<prop::sample::Index>(),
        threads in 1_usize..4,
        parents in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
    ) {
        let layer = Layer::new(shape);
        let rows: Vec<usize> = (0..cuts.iter().sum()).collect();
        let mut known = Known::nothing(&shape);
        let whole = known.feed(&layer, Isa::Portable, &Solo, &rows, 0);
        for isa in Isa::available() {
            let (mut parts, mut found, mut at) = (Known::nothing(&shape), Vec::new(), 0);
            for cut in &cuts {
                let within = within.index(cut + 1);
                found.extend(parts.feed(&layer, isa, &Scoped { threads }, &rows[at..at + cut], within));
                at += cut;
            }
            prop_assert!(found == whole && parts == known, "{}", isa);
            let mut paths: Vec<Vec<usize>> = Vec::new();
            for (row, parent) in parents.iter().enumerate() {
                let mut path = parent.index(row + 1).checked_sub(1).map_or_else(Vec::new, |parent| paths[parent].clone());
                path.push(row);
                paths.push(path);
            }
            let drafts: Vec<usize> = (0..paths.len()).map(|row| row + 100).collect();
            for known in [&known, &Known::nothing(&shape)] {
                let tree = known.feed_tree(&layer, isa, &Scoped { threads }, &drafts, &paths);
                for (path, found) in paths.iter().zip(&tree) {
                    let drafts: Vec<usize> = path.iter().map(|row| row + 100).collect();
                    prop_assert!(known.clone().feed(&layer, isa, &Solo, &drafts, 0).last() == Some(found));
                }
            }
        }
    }
}
