//! What recurrent layers know of a sequence: of a convolution the columns of the last few positions ([`short_convolution`]),
//! and of each head a matrix of all of them ([`recurrence`]).
//!
//! A state is small or large. Where it is columns alone, every page of a sequence holds, behind its keys and values, the state
//! after its last position ([`KvLayout::state`](duet_kernels::attention::KvLayout::state)). Matrices lie beside pages, one state
//! at the sequence's end and one at each border so many pages apart ([`StateLayout`](crate::kv::StateLayout)). Either way what
//! is shared, copied, spilled and read back with pages has its states with it, and a sequence can be cut at those borders, or
//! not at all ([`KvTable::cut`]).
//!
//! A pass changes no state of a table before it ends, so that it can be given up. Of columns it copies those that may be wanted
//! then, of the last rows, of which some may be accepted, and of those at borders. Matrices go from the table's block into one
//! of the pass's, row after row, and are copied at borders; when the pass ends its block is the table's. Where only some rows
//! are accepted, or those of a tree's path, the matrices are made again of what was kept of these rows (`matrices.rs`).
//!
//! Invariant: a state is what the positions before it lead to, to the bit, however these were cut into passes.

mod matrices;

use super::Pass;
use super::Segment;
use crate::arch::{Blueprint, Recurrent as Kind};
use crate::kv::{KvTable, PAGE_TOKENS, StateBlock};
use crate::load::Model;
use crate::weights::RecurrentWeights;
use duet_kernels::crew::Crew;
use duet_kernels::fused::{Buffers, ConvolvedRows, RecurrenceWeights, RecurrentRows, recurrence, short_convolution};
use matrices::Matrices;
use std::ops::Range;

/// What the state behind a segment's rows may be made of.
#[derive(Debug)]
pub(super) struct Recurrent {
    columns: Columns,
    matrices: Option<Matrices>,
}

/// Columns of a segment's rows.
#[derive(Debug)]
struct Columns {
    /// Rows, in order.
    kept: Vec<usize>,
    /// `[layer][kept][channels]`.
    values: Vec<f32>,
    layers: usize,
    channels: usize,
    /// Columns of a state.
    depth: usize,
    /// Floats of a layer's state, of which these columns are the first.
    layer_state: usize,
}

/// Of this many rows any beginning may be accepted; drafts are no longer.
const ACCEPTED_IN_PART: usize = PAGE_TOKENS;

impl Recurrent {
    /// Of each segment; nothing where no layer is recurrent.
    pub(super) fn of(model: &Model, segments: &[Segment], spare: &mut Vec<StateBlock>) -> Vec<Self> {
        let b = model.blueprint();
        let Some(kind) = b.recurrent else { return Vec::new() };
        let of = |segment: &Segment| Self {
            columns: Columns::of(b, segment),
            matrices: match kind {
                Kind::ShortConvolution { .. } => None,
                Kind::Matrices(shape) => Some(Matrices::of((model.isa(), b, shape), segment, spare.pop())),
            },
        };
        segments.iter().map(of).collect()
    }

    /// Writes the states that these rows lead to, which are accepted, behind the table's positions: that at each border, and
    /// the last.
    ///
    /// # Panics
    /// If a part of a long segment is accepted, of which nobody kept what that takes.
    pub(super) fn advance(&mut self, kv: &mut KvTable, rows: &[usize]) {
        let columns = &self.columns;
        let Some(matrices) = &mut self.matrices else {
            return columns.each_state(kv, rows, PAGE_TOKENS, |kv, end, first, column| {
                kv.write_state(end, first, column);
            });
        };
        if rows.is_empty() {
            return;
        }
        let start = kv.len().as_usize();
        let distance = kv.state_distance().unwrap_or(usize::MAX);
        let mut states = matrices.behind(kv, rows, distance);
        columns.each_state(kv, rows, distance, |_, end, first, column| {
            let at = if end == rows.len() { states.len() - 1 } else { (start + end) / distance - start / distance - 1 };
            states[at][first..first + column.len()].copy_from_slice(column);
            // A border that is the end as well.
            if end == rows.len() && (start + end).is_multiple_of(distance) {
                states[at - 1][first..first + column.len()].copy_from_slice(column);
            }
        });
        let end = states.pop().unwrap_or_default();
        matrices.keep_spare(kv.advance_state(end, states));
    }

    /// A block that nobody needs any more.
    pub(super) fn into_spare(self) -> Option<StateBlock> {
        self.matrices.and_then(Matrices::into_spare)
    }
}

impl Columns {
    fn of(b: &Blueprint, segment: &Segment) -> Self {
        let (layers, channels, depth) = (b.recurrent_layers(), b.channels(), b.columns_before());
        let (rows, start) = (segment.tokens.len(), segment.kv.len().as_usize());
        let kept: Vec<usize> = (0..rows).filter(|&row| is_wanted(row, rows, start, depth)).collect();
        let values = vec![0.0; layers * kept.len() * channels];
        Self { kept, values, layers, channels, depth, layer_state: b.layer_state() }
    }

    /// Copies the columns of some rows of a layer, the segment's first row being row `first` of the buffers.
    fn copy(&mut self, layer: usize, rows: &Range<usize>, mut read: impl FnMut(usize, &mut [f32])) {
        for (at, &row) in self.kept.iter().enumerate().filter(|(_, row)| rows.contains(row)) {
            let start = (layer * self.kept.len() + at) * self.channels;
            read(row, &mut self.values[start..start + self.channels]);
        }
    }

    /// Tells of each column of the states at borders that are so far apart, and of the last: how many rows are before it, where
    /// it lies in the state, and itself.
    fn each_state(
        &self,
        kv: &mut KvTable,
        rows: &[usize],
        distance: usize,
        mut write: impl FnMut(&mut KvTable, usize, usize, &[f32]),
    ) {
        let start = kv.len().as_usize();
        for layer in 0..self.layers {
            let first = layer * self.layer_state;
            let before = kv.state(first, self.depth * self.channels);
            for end in (1..=rows.len()).filter(|&end| end == rows.len() || (start + end).is_multiple_of(distance)) {
                for place in 0..self.depth {
                    // As far behind the end as the state's columns go.
                    let column = match (end + place).checked_sub(self.depth) {
                        Some(at) => self.column(layer, rows[at]),
                        None => &before[(end + place) * self.channels..][..self.channels],
                    };
                    write(kv, end, first + place * self.channels, column);
                }
            }
        }
    }

    fn column(&self, layer: usize, row: usize) -> &[f32] {
        let at = self.kept.binary_search(&row).unwrap_or_else(|_| panic!("the column of row {row} was not kept"));
        &self.values[(layer * self.kept.len() + at) * self.channels..][..self.channels]
    }
}

/// Whether a row's column may be a part of a state: one of the last rows, or before a border.
fn is_wanted(row: usize, rows: usize, start: usize, depth: usize) -> bool {
    let to_border = PAGE_TOKENS - 1 - (start + row) % PAGE_TOKENS;
    row + ACCEPTED_IN_PART + depth >= rows || to_border < depth
}

impl Model {
    /// The attention node of a layer that has something else in its place.
    pub(super) fn recur(
        &self,
        pass: &mut Pass,
        layer: usize,
        weights: &RecurrentWeights,
        rows: &Range<usize>,
        crew: &dyn Crew,
    ) {
        let b = self.blueprint();
        let place = b.place(layer);
        let (first, columns) = (place * b.layer_state(), b.columns_before() * b.channels());
        let befores: Vec<Vec<f32>> = pass.segments.iter().map(|segment| segment.kv.state(first, columns)).collect();
        let mut parts = parts_of(&pass.segments, rows);
        let buffers = &mut pass.activations.buffers;
        for ((_, rows), recurrent) in parts.iter_mut().zip(&mut pass.recurrent) {
            if let Some(matrices) = &mut recurrent.matrices {
                *rows = matrices.due(place, rows);
            }
        }
        let convolved = parts.iter().zip(&befores).zip(&pass.trees).map(|(((first_row, rows), before), tree)| {
            let paths = tree.as_ref().map(|tree| tree.paths.as_slice());
            ConvolvedRows { first_row: *first_row, rows: rows.clone(), before, paths }
        });
        match &weights.matrices {
            None => {
                let sequences: Vec<ConvolvedRows<'_>> = convolved.filter(|all| !all.rows.is_empty()).collect();
                short_convolution(self.isa(), crew, &weights.taps, buffers, &sequences);
            }
            Some(matrices) => {
                let weights = RecurrenceWeights {
                    shape: matrices.shape,
                    taps: &weights.taps,
                    bias: matrices.bias.as_deref(),
                    rates: &matrices.rates,
                    step_bias: &matrices.step_bias,
                    skip: matrices.skip.as_deref(),
                    norm: self.norm(&matrices.norm),
                };
                let states = pass.segments.iter().zip(&mut pass.recurrent).zip(convolved);
                let mut sequences: Vec<RecurrentRows<'_>> = states
                    .filter(|(_, convolved)| !convolved.rows.is_empty())
                    .filter_map(|((segment, recurrent), convolved)| {
                        Some(recurrent.matrices.as_mut()?.rows(place, &segment.kv, convolved))
                    })
                    .collect();
                recurrence(self.isa(), crew, &weights, buffers, &mut sequences);
            }
        }
        for (recurrent, (first, rows)) in pass.recurrent.iter_mut().zip(&parts) {
            if let Some(matrices) = &mut recurrent.matrices {
                matrices.went_through(place, rows);
            }
            recurrent.columns.copy(place, rows, |row, column| read_column(buffers, b, first + row, column));
        }
    }
}

fn read_column(buffers: &Buffers, b: &Blueprint, row: usize, column: &mut [f32]) {
    match b.recurrent {
        Some(Kind::Matrices(_)) => column.copy_from_slice(buffers.projection(row, 0..b.channels())),
        _ => buffers.column(row, column),
    }
}

/// Of each segment its first row in the pass, and which of its own rows are asked for.
fn parts_of(segments: &[Segment], rows: &Range<usize>) -> Vec<(usize, Range<usize>)> {
    let mut first = 0;
    let mut parts = Vec::with_capacity(segments.len());
    for segment in segments {
        let all = first..first + segment.tokens.len();
        let (from, to) = (rows.start.max(all.start), rows.end.min(all.end));
        parts.push((all.start, if from < to { from - all.start..to - all.start } else { 0..0 }));
        first = all.end;
    }
    parts
}
