//! Recurrences, which stand in attention's place in some layers: gated delta nets (Qwen3-Next, Qwen 3.5) and Mamba 2 (Granite
//! 4). A row is projected to queries, keys and values, which go through a short convolution ([`super::convolution`]), a gate,
//! and numbers of each head. What a head knows of all positions before is a matrix, `S[key dimension][value dimension]`,
//! which each row changes and then reads:
//!
//! ```text
//! S = decay × S        delta = strength × (value - keyᵀ S)        S = S + key deltaᵀ        found = queryᵀ S
//! ```
//!
//! Mamba 2 takes nothing off the value ([`Rule::Sum`]). The decay is `e^(rate × step)` with `step = ln(1 + e^(number + bias))`.
//! A delta net's strength is the logistic function of a number of its own, and its queries and keys have length one; Mamba's is
//! the step, and `skip × value` is added to what is found. Then come the gate, through `x / (1 + e^-x)`, and a norm: of each
//! head before the gate, or of all heads behind it.
//!
//! Rows of a sequence go one after the other, heads beside each other. **Invariant:** a head's sums run over key dimensions in
//! order, so its matrix and its results are the same bits for any crew, instruction set and cut into calls; a draft tree is
//! its paths.

mod shape;
mod update;

pub use shape::{RecurrenceShape, Rule, Sharing};

use super::convolution::{ConvolvedRows, Form, Taps};
use super::{Buffers, Matrix, Norm, are_disjoint};
use crate::crew::{Crew, Worker};
use crate::isa::Isa;
use crate::memory::Shared;
use crate::rows::{add_scaled, rms_norm_in_place};
use update::{Gate, ToLengthOne, Update};

/// The weights of a layer's recurrence.
#[derive(Clone, Copy, Debug)]
pub struct RecurrenceWeights<'a> {
    /// Its shape.
    pub shape: RecurrenceShape,
    /// `[taps][channels]`, the one of the oldest position first.
    pub taps: &'a [f32],
    /// Of each channel.
    pub bias: Option<&'a [f32]>,
    /// Of each head, below zero.
    pub rates: &'a [f32],
    /// Of each head, added to its step's number.
    pub step_bias: &'a [f32],
    /// Of each head what of its values is added to what is found.
    pub skip: Option<&'a [f32]>,
    /// Of each head (delta nets), or of all together.
    pub norm: Norm<'a>,
}

/// Rows of one sequence.
#[derive(Debug)]
pub struct RecurrentRows<'a> {
    /// Which rows, what columns are before them, and whether they are a tree.
    pub convolved: ConvolvedRows<'a>,
    /// Of each row of the sequence what matrices take of it ([`RecurrenceShape::inputs`]); these rows' are written here.
    pub inputs: &'a mut [f32],
    /// The matrices before all of its rows; none: zeros.
    pub before: Option<&'a [f32]>,
    /// The matrices behind row `at`.
    pub now: &'a mut [f32],
    /// That row; none: `now` holds nothing yet.
    pub at: Option<usize>,
    /// Rows behind which the matrices are copied, and where to.
    pub copies: Vec<(usize, &'a mut [f32])>,
}

/// Runs the recurrence on rows that are projected, as are those before them in their sequences, whose inputs are kept. It
/// leaves the matrices behind the last row.
///
/// # Panics
/// If a shape does not fit.
pub fn recurrence(
    isa: Isa,
    crew: &dyn Crew,
    weights: &RecurrenceWeights<'_>,
    buffers: &mut Buffers,
    sequences: &mut [RecurrentRows<'_>],
) {
    let shape = weights.shape;
    check(weights, buffers, sequences);
    let (shared, _, _) = buffers.share(buffers.shape().hidden, 0);
    let sequences = sequences.iter_mut().map(Sequence::new).collect();
    let call = Call { isa, weights, shape, projected: shared.qkv, attended: shared.attended, sequences };
    crew.run(&|worker| call.run(&worker));
}

/// Where matrices begin.
#[derive(Clone, Copy, Debug)]
pub enum Beginning<'a> {
    /// With these.
    Matrices(&'a [f32]),
    /// With zeros.
    Zeros,
    /// As they are.
    Now,
}

/// Changes a layer's matrices by some rows, whose inputs are kept, one after the other: what [`recurrence`] does, without
/// results.
///
/// # Panics
/// If a shape does not fit.
pub fn replay(
    isa: Isa,
    shape: &RecurrenceShape,
    inputs: &[f32],
    rows: &[usize],
    beginning: Beginning<'_>,
    now: &mut [f32],
) {
    shape.check();
    assert!(now.len() == shape.matrices() && rows.iter().all(|row| (row + 1) * shape.inputs() <= inputs.len()));
    let matrix = shape.matrix();
    for (head, now) in now.chunks_exact_mut(matrix).enumerate() {
        let mut from = match beginning {
            Beginning::Matrices(before) => Some(&before[head * matrix..][..matrix]),
            Beginning::Now => None,
            Beginning::Zeros => {
                now.fill(0.0);
                None
            }
        };
        for row in rows {
            let input = &inputs[row * shape.inputs()..][..shape.inputs()];
            let (from, to) = (from.take().map_or(now.as_ptr(), <[f32]>::as_ptr), now.as_mut_ptr());
            isa.run(Update { shape, input, head, from, to, out: None });
        }
    }
}

fn check(weights: &RecurrenceWeights<'_>, buffers: &Buffers, sequences: &[RecurrentRows<'_>]) {
    let shape = &weights.shape;
    shape.check();
    let channels = shape.channels();
    assert!(weights.taps.len() == shape.taps * channels && weights.bias.is_none_or(|bias| bias.len() == channels));
    assert!(weights.rates.len() == shape.heads && weights.step_bias.len() == shape.heads);
    assert!(weights.skip.is_none_or(|skip| skip.len() == shape.heads));
    let normed = if shape.rule == Rule::Delta { shape.values } else { shape.width() };
    assert!(weights.norm.weight.len() == normed);
    assert!(buffers.shape().qkv >= shape.projected() && buffers.shape().queries >= shape.width());
    let rows = sequences.iter().map(|sequence| {
        let ConvolvedRows { first_row, rows, .. } = &sequence.convolved;
        first_row + rows.start..first_row + rows.end
    });
    assert!(are_disjoint(rows), "a row of two sequences");
    for RecurrentRows { convolved, inputs, before, now, at, copies } in sequences {
        let rows = &convolved.rows;
        assert!(convolved.first_row + rows.end <= buffers.rows() && rows.end * shape.inputs() <= inputs.len());
        assert!(convolved.before.len() == shape.columns() && now.len() == shape.matrices());
        assert!(before.is_none_or(|before| before.len() == shape.matrices()));
        assert!(at.is_none_or(|at| at < rows.end) && copies.iter().all(|(_, copy)| copy.len() == now.len()));
        let is_path = |(row, path): (usize, &Vec<usize>)| path.last() == Some(&row) && path.is_sorted();
        assert!(convolved.paths.is_none_or(|paths| paths.len() >= rows.end && paths.iter().enumerate().all(is_path)));
        assert!(convolved.paths.is_some() || at.map_or(0, |at| at + 1) == rows.start, "a row was left out");
    }
}

/// [`RecurrentRows`] in the hands of a crew.
struct Sequence<'a> {
    convolved: &'a ConvolvedRows<'a>,
    inputs: Shared<'a, f32>,
    before: Option<&'a [f32]>,
    now: Shared<'a, f32>,
    at: Option<usize>,
    copies: Vec<(usize, Shared<'a, f32>)>,
}

impl<'a> Sequence<'a> {
    fn new(rows: &'a mut RecurrentRows<'_>) -> Self {
        Self {
            convolved: &rows.convolved,
            inputs: Shared::new(rows.inputs),
            before: rows.before,
            now: Shared::new(rows.now),
            at: rows.at,
            copies: rows.copies.iter_mut().map(|(row, copy)| (*row, Shared::new(copy))).collect(),
        }
    }

    /// The row before one on its path.
    fn parent(&self, row: usize) -> Option<usize> {
        match self.convolved.paths {
            None => row.checked_sub(1),
            Some(paths) => paths[row].iter().rev().nth(1).copied(),
        }
    }
}

struct Call<'a> {
    isa: Isa,
    weights: &'a RecurrenceWeights<'a>,
    shape: RecurrenceShape,
    projected: Matrix<'a>,
    attended: Matrix<'a>,
    sequences: Vec<Sequence<'a>>,
}

impl Call<'_> {
    fn run(&self, worker: &Worker<'_>) {
        let stride = self.shape.inputs();
        let form = Form::Activated(self.weights.bias);
        let taps = Taps { taps: self.weights.taps, channels: self.shape.channels(), form };
        for sequence in &self.sequences {
            let out = |row: usize| row * stride;
            // SAFETY: the kernel has borrowed the buffers alone, and workers have channels of their own.
            unsafe { taps.run(self.isa, sequence.convolved, &self.projected, (sequence.inputs, &out), worker) };
        }
        worker.sync();
        self.each(self.shape.heads, worker, |sequence, row, head| self.prepare(sequence, row, head));
        worker.sync();
        for item in worker.share(self.sequences.len() * self.shape.heads) {
            self.go_through(&self.sequences[item / self.shape.heads], item % self.shape.heads);
        }
        worker.sync();
        let groups = if self.shape.rule == Rule::Delta { self.shape.heads } else { 1 };
        self.each(groups, worker, |sequence, row, group| self.finish(sequence, row, group, groups));
    }

    /// Deals out parts of rows.
    fn each(&self, parts: usize, worker: &Worker<'_>, work: impl Fn(&Sequence<'_>, usize, usize)) {
        let rows = |sequence: &Sequence<'_>| sequence.convolved.rows.len();
        let mine = worker.share(self.sequences.iter().map(rows).sum::<usize>() * parts);
        let mut before = 0;
        for sequence in &self.sequences {
            let all = before..before + rows(sequence) * parts;
            for item in mine.start.max(all.start)..mine.end.min(all.end) {
                let item = item - all.start;
                work(sequence, sequence.convolved.rows.start + item / parts, item % parts);
            }
            before = all.end;
        }
    }

    /// Queries and keys of length one, and a head's decay and strength.
    fn prepare(&self, sequence: &Sequence<'_>, row: usize, head: usize) {
        let RecurrenceShape { rule, key_heads, heads, keys, .. } = self.shape;
        let start = row * self.shape.inputs();
        if rule == Rule::Delta && head < key_heads {
            for part in [head * keys, (key_heads + head) * keys] {
                // SAFETY: this row's part is this item's, between syncs.
                let part = unsafe { sequence.inputs.part_mut(start + part..start + part + keys) };
                self.isa.run(ToLengthOne(part));
            }
        }
        let numbers =
            (sequence.convolved.first_row + row) * self.projected.stride + self.shape.channels() + self.shape.width();
        // SAFETY: nobody writes projections during the kernel.
        let numbers = unsafe { self.projected.values.part(numbers..numbers + self.shape.numbers()) };
        let step = softplus(numbers[numbers.len() - heads + head] + self.weights.step_bias[head]);
        let decay = exp(self.weights.rates[head] * step);
        let strength = if rule == Rule::Delta { logistic(numbers[head]) } else { step };
        let scalars = start + self.shape.channels();
        // SAFETY: as above.
        unsafe {
            sequence.inputs.part_mut(scalars + head..scalars + head + 1)[0] = decay;
            sequence.inputs.part_mut(scalars + heads + head..scalars + heads + head + 1)[0] = strength;
        }
    }

    /// All rows of a sequence, for one head.
    fn go_through(&self, sequence: &Sequence<'_>, head: usize) {
        let (shape, matrix) = (&self.shape, self.shape.matrix());
        let own = head * matrix..(head + 1) * matrix;
        let update = |row: usize, is_first: bool, out: Option<&mut [f32]>| {
            let input = row * shape.inputs()..(row + 1) * shape.inputs();
            // SAFETY: inputs are complete since the last sync; this head's matrices are this item's.
            unsafe {
                let to = sequence.now.part_mut(own.clone()).as_mut_ptr();
                let from = match sequence.before {
                    Some(before) if is_first => before[own.clone()].as_ptr(),
                    None if is_first => {
                        sequence.now.part_mut(own.clone()).fill(0.0);
                        to.cast_const()
                    }
                    _ => to.cast_const(),
                };
                self.isa.run(Update { shape, input: sequence.inputs.part(input), head, from, to, out });
            }
        };
        let mut at = sequence.at;
        for row in sequence.convolved.rows.clone() {
            let parent = sequence.parent(row);
            if at != parent
                && let Some(paths) = sequence.convolved.paths
            {
                for (index, &row) in paths[row][..paths[row].len() - 1].iter().enumerate() {
                    update(row, index == 0, None);
                }
            }
            let out = self.attended.row(sequence.convolved.first_row + row).start + head * shape.values;
            // SAFETY: the row's result of this head is this item's.
            let out = unsafe { self.attended.values.part_mut(out..out + shape.values) };
            update(row, parent.is_none(), Some(out));
            at = Some(row);
            for (_, copy) in sequence.copies.iter().filter(|(behind, _)| *behind == row) {
                // SAFETY: this head's matrices are this item's.
                unsafe { copy.part_mut(own.clone()).copy_from_slice(sequence.now.part(own.clone())) };
            }
        }
    }

    /// The gate and the norm of a row's head, or of all of its heads.
    fn finish(&self, sequence: &Sequence<'_>, row: usize, group: usize, groups: usize) {
        let (shape, Norm { weight, epsilon }) = (&self.shape, self.weights.norm);
        let width = shape.width() / groups;
        let row_at = sequence.convolved.first_row + row;
        let found = self.attended.row(row_at).start + group * width;
        let gates = row_at * self.projected.stride + shape.channels() + group * width;
        // SAFETY: this part of the row is this item's, since the last sync.
        let (found, gates) = unsafe {
            (self.attended.values.part_mut(found..found + width), self.projected.values.part(gates..gates + width))
        };
        match shape.rule {
            Rule::Delta => {
                rms_norm_in_place(self.isa, found, weight, epsilon);
                self.isa.run(Gate { found, gates });
            }
            Rule::Sum => {
                let values = row * shape.inputs() + shape.channels() - shape.width();
                // SAFETY: inputs are complete.
                let values = unsafe { sequence.inputs.part(values..values + shape.width()) };
                let heads = found.chunks_exact_mut(shape.values).zip(values.chunks_exact(shape.values));
                for ((found, values), skip) in heads.zip(self.weights.skip.unwrap_or_default()) {
                    add_scaled(self.isa, found, *skip, values);
                }
                self.isa.run(Gate { found, gates });
                rms_norm_in_place(self.isa, found, weight, epsilon);
            }
        }
    }
}

/// Numbers of heads are few, and computed as the system's library does in double precision.
fn softplus(x: f32) -> f32 {
    /// From here on it is its argument.
    const LINEAR: f32 = 20.0;
    if x > LINEAR { x } else { f64::from(x).exp().ln_1p() as f32 }
}

fn exp(x: f32) -> f32 {
    f64::from(x).exp() as f32
}

fn logistic(x: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(x)).exp())) as f32
}
