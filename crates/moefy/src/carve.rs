//! One layer's block, carved into experts.
//!
//! The neurons that contribute most on the whole become the shared expert. The others are clustered by when they
//! contribute, a cluster being an expert; a linear router is fitted to how much each expert contributes. Then what the
//! neurons add is fitted anew: with the experts that the router chooses, it should come nearest to what the dense model
//! has at this place, on the texts that are read. (NPUMoE §2 takes such models as given.)

use crate::block::Block;
use crate::clusters::{clusters, normalise};
use crate::matrix::{Hands, Matrix};
use crate::ridge::Regression;
use crate::{Kept, Shape};

/// A layer's experts.
#[derive(Debug)]
pub(crate) struct Carved {
    /// Neurons of the shared expert.
    pub(crate) shared: Vec<usize>,
    /// Neurons of each other expert.
    pub(crate) experts: Vec<Vec<usize>>,
    /// A row for each expert.
    pub(crate) router: Matrix,
    /// A row for each neuron of the dense block: what it adds to the residual stream.
    pub(crate) down: Matrix,
    pub(crate) kept: Kept,
}

/// What a layer is given, and what it should come to.
#[derive(Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) normed: &'a Matrix,
    pub(crate) neurons: &'a Matrix,
    /// What the block should add.
    pub(crate) target: &'a Matrix,
    /// What each row counts: the next norm divides by the length of its residual stream, and a few rows are very long.
    pub(crate) counts: &'a [f32],
}

/// Carves a block. Returns its experts and what they add on the sample.
pub(crate) fn carve(block: &Block, sample: &Sample<'_>, shape: &Shape, hands: Hands) -> (Carved, Matrix) {
    let Sample { normed, neurons, target, counts } = *sample;
    let lengths: Vec<f32> = (0..block.down.rows()).map(|neuron| length(block.down.row(neuron))).collect();
    let (shared, routed) = split(neurons, counts, &lengths, shape.shared);
    let found = clusters(&directions(neurons, counts, &lengths, &routed), shape.experts, hands);
    let experts: Vec<Vec<usize>> = (0..shape.experts)
        .map(|expert| routed.iter().zip(&found).filter(|(_, of)| **of == expert).map(|(neuron, _)| *neuron).collect())
        .collect();
    let router = fit_router(block, sample, &experts, hands);
    let masked = masked(neurons, &normed.times_rows_of(&router, hands), &experts, shape.chosen);
    let kept = kept(neurons, &masked, &lengths, &shared);
    let down = fit_down(block, &masked, target, counts, hands);
    let added = masked.times_rows_of(&down.transposed(), hands);
    (Carved { shared, experts, router, down, kept }, added)
}

pub(crate) fn length(row: &[f32]) -> f32 {
    row.iter().map(|value| value * value).sum::<f32>().sqrt()
}

/// The `shared` neurons that contribute most, and the others, both in the order of the file.
fn split(neurons: &Matrix, counts: &[f32], lengths: &[f32], shared: usize) -> (Vec<usize>, Vec<usize>) {
    let mut squares = vec![0.0_f64; neurons.columns()];
    for (row, count) in counts.iter().enumerate() {
        let contributions = neurons.row(row).iter().zip(lengths).map(|(x, length)| f64::from(count * x * length));
        squares.iter_mut().zip(contributions).for_each(|(sum, contribution)| *sum += contribution.powi(2));
    }
    let mut order: Vec<usize> = (0..squares.len()).collect();
    order.sort_by(|&a, &b| squares[b].total_cmp(&squares[a]));
    let mut routed = order.split_off(shared);
    order.sort_unstable();
    routed.sort_unstable();
    (order, routed)
}

/// How much each of some neurons contributes to each of some rows, as directions.
fn directions(neurons: &Matrix, counts: &[f32], lengths: &[f32], of: &[usize]) -> Matrix {
    let step = neurons.rows().div_ceil(CLUSTER_ROWS);
    let rows: Vec<usize> = (0..neurons.rows()).step_by(step).collect();
    let mut directions = Matrix::zeros(of.len(), rows.len());
    for (to, &neuron) in of.iter().enumerate() {
        let contributions = rows.iter().map(|&row| (counts[row] * neurons.row(row)[neuron] * lengths[neuron]).abs());
        directions.row_mut(to).iter_mut().zip(contributions).for_each(|(to, from)| *to = from);
    }
    normalise(&mut directions);
    directions
}

/// Rows that clusters are found on: enough to tell neurons apart.
const CLUSTER_ROWS: usize = 2048;

/// A linear map to how long each expert's contribution is, among those of all experts to the row.
fn fit_router(block: &Block, sample: &Sample<'_>, experts: &[Vec<usize>], hands: Hands) -> Matrix {
    let mut contributions = Matrix::zeros(sample.neurons.rows(), experts.len());
    for (expert, of) in experts.iter().enumerate() {
        let down = block.down.gather(of).transposed();
        let neurons = columns(sample.neurons, of);
        let added = neurons.times_rows_of(&down, hands);
        for row in 0..added.rows() {
            contributions.row_mut(row)[expert] = length(added.row(row));
        }
    }
    for row in 0..contributions.rows() {
        let row = contributions.row_mut(row);
        let sum = row.iter().sum::<f32>().max(f32::MIN_POSITIVE);
        row.iter_mut().for_each(|contribution| *contribution /= sum);
    }
    let mut regression = Regression::new(sample.normed.columns(), experts.len());
    regression.add(sample.normed, &contributions, hands);
    regression.solve(ROUTER_DAMPING, hands)
}

const ROUTER_DAMPING: f64 = 1e-2;

fn columns(matrix: &Matrix, of: &[usize]) -> Matrix {
    let row = |row: usize| of.iter().map(move |&column| matrix.row(row)[column]);
    Matrix::of(of.len(), (0..matrix.rows()).flat_map(row).collect())
}

/// The neurons of each row, those of experts that the router does not choose being nothing.
fn masked(neurons: &Matrix, scores: &Matrix, experts: &[Vec<usize>], chosen: usize) -> Matrix {
    let mut masked = neurons.clone();
    for row in 0..masked.rows() {
        let mut order: Vec<usize> = (0..experts.len()).collect();
        order.sort_by(|&a, &b| scores.row(row)[b].total_cmp(&scores.row(row)[a]));
        for &expert in &order[chosen..] {
            experts[expert].iter().for_each(|&neuron| masked.row_mut(row)[neuron] = 0.0);
        }
    }
    masked
}

fn kept(neurons: &Matrix, masked: &Matrix, lengths: &[f32], shared: &[usize]) -> Kept {
    let mass = |matrix: &Matrix, neuron: usize| -> f64 {
        let column = (0..matrix.rows()).map(|row| f64::from(matrix.row(row)[neuron].abs()));
        column.sum::<f64>() * f64::from(lengths[neuron])
    };
    let all: Vec<f64> = (0..neurons.columns()).map(|neuron| mass(neurons, neuron)).collect();
    let left: Vec<f64> = (0..neurons.columns()).map(|neuron| mass(masked, neuron)).collect();
    let of_shared: f64 = shared.iter().map(|&neuron| all[neuron]).sum();
    let (all, left): (f64, f64) = (all.iter().sum(), left.iter().sum());
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 1.0 };
    Kept { all: share(left, all), routed: share(left - of_shared, all - of_shared) }
}

/// What each neuron adds, corrected so that all together come nearest to the target.
fn fit_down(block: &Block, masked: &Matrix, target: &Matrix, counts: &[f32], hands: Hands) -> Matrix {
    let mut missing = masked.times_rows_of(&block.down.transposed(), hands);
    let mut counted = masked.clone();
    for (row, count) in counts.iter().enumerate() {
        let missing = missing.row_mut(row).iter_mut().zip(target.row(row));
        missing.for_each(|(is, should)| *is = (should - *is) * count);
        counted.row_mut(row).iter_mut().for_each(|neuron| *neuron *= count);
    }
    let mut regression = Regression::new(masked.columns(), missing.columns());
    regression.add(&counted, &missing, hands);
    let mut down = regression.solve(DOWN_DAMPING, hands).transposed();
    down.add(&block.down);
    down
}

/// Keeps neurons that are seldom chosen near to what they were.
const DOWN_DAMPING: f64 = 1e-2;
