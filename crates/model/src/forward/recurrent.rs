//! What recurrent layers know: of a short convolution the columns of the last few positions ([`short_convolution`]).
//!
//! Every page of a sequence holds, behind its keys and values, the state after its last position
//! ([`KvLayout::state`](duet_kernels::attention::KvLayout::state)). So the state of a sequence lies in its last page, and that of each border of pages in the page before it: what is shared,
//! copied, spilled and read back with a page has its state with it, and a sequence can be cut at borders, or not at all
//! ([`KvTable::cut`]).
//!
//! A pass writes no state before it ends, so that it can be given up, and rows of any range can be run in any order: it
//! copies the columns that may be wanted then, of the last rows, of which some may be accepted, and of those at borders.
//!
//! Invariant: a state is the columns of the positions before it, to the bit, however these were cut into passes.

use super::Segment;
use crate::arch::{Blueprint, Mixer};
use crate::kv::{KvTable, PAGE_TOKENS};
use crate::load::Model;
use duet_kernels::crew::Crew;
use duet_kernels::fused::{Buffers, ConvolvedRows, short_convolution};
use std::ops::Range;

use super::Pass;

/// The columns of a segment's rows that the state after it may be made of.
#[derive(Debug)]
pub(super) struct Recurrent {
    /// Rows, in order.
    kept: Vec<usize>,
    /// `[layer][kept][channels]`.
    columns: Vec<f32>,
    layers: usize,
    channels: usize,
    /// Columns of a state.
    depth: usize,
}

/// Of this many rows any beginning may be accepted; drafts are no longer.
const ACCEPTED_IN_PART: usize = PAGE_TOKENS;

impl Recurrent {
    /// Of each segment; nothing where no layer is recurrent.
    pub(super) fn of(b: &Blueprint, segments: &[Segment]) -> Vec<Self> {
        let layers = b.convolution_layers();
        if layers == 0 {
            return Vec::new();
        }
        let depth = b.taps - 1;
        let of = |segment: &Segment| {
            let (rows, start) = (segment.tokens.len(), segment.kv.len().as_usize());
            let kept: Vec<usize> = (0..rows).filter(|&row| is_wanted(row, rows, start, depth)).collect();
            let columns = vec![0.0; layers * kept.len() * b.hidden];
            Self { kept, columns, layers, channels: b.hidden, depth }
        };
        segments.iter().map(of).collect()
    }

    /// Copies the columns of some rows of a layer, the segment's first row being row `first` of the buffers.
    fn copy(&mut self, layer: usize, buffers: &Buffers, first: usize, rows: &Range<usize>) {
        for (at, &row) in self.kept.iter().enumerate().filter(|(_, row)| rows.contains(row)) {
            let start = (layer * self.kept.len() + at) * self.channels;
            buffers.column(first + row, &mut self.columns[start..start + self.channels]);
        }
    }

    /// Writes the states that these rows lead to, which are accepted, behind the table's positions: that at each border, and
    /// the last.
    ///
    /// # Panics
    /// If a part of a long segment is accepted, whose columns nobody kept.
    pub(super) fn advance(&self, kv: &mut KvTable, rows: &[usize]) {
        let start = kv.len().as_usize();
        for layer in 0..self.layers {
            let before = kv.state(layer * self.depth * self.channels, self.depth * self.channels);
            for end in (1..=rows.len()).filter(|&end| end == rows.len() || (start + end).is_multiple_of(PAGE_TOKENS)) {
                for place in 0..self.depth {
                    // As far behind the end as the state's columns go.
                    let column = match (end + place).checked_sub(self.depth) {
                        Some(at) => self.column(layer, rows[at]),
                        None => &before[(end + place) * self.channels..][..self.channels],
                    };
                    kv.write_state(end, (layer * self.depth + place) * self.channels, column);
                }
            }
        }
    }

    fn column(&self, layer: usize, row: usize) -> &[f32] {
        let at = self.kept.binary_search(&row).unwrap_or_else(|_| panic!("the column of row {row} was not kept"));
        &self.columns[(layer * self.kept.len() + at) * self.channels..][..self.channels]
    }
}

/// Whether a row's column may be a part of a state: one of the last rows, or before a border.
fn is_wanted(row: usize, rows: usize, start: usize, depth: usize) -> bool {
    let to_border = PAGE_TOKENS - 1 - (start + row) % PAGE_TOKENS;
    row + ACCEPTED_IN_PART + depth >= rows || to_border < depth
}

impl Model {
    /// The attention node of a layer that has a short convolution in its place.
    pub(super) fn convolve(&self, pass: &mut Pass, layer: usize, taps: &[f32], rows: &Range<usize>, crew: &dyn Crew) {
        let b = self.blueprint();
        let place = b.place(layer);
        let mut first = 0;
        let mut ranges = Vec::with_capacity(pass.segments.len());
        for segment in &pass.segments {
            let all = first..first + segment.tokens.len();
            let (from, to) = (rows.start.max(all.start), rows.end.min(all.end));
            ranges.push((all.start, if from < to { from - all.start..to - all.start } else { 0..0 }));
            first = all.end;
        }
        let states: Vec<Vec<f32>> =
            pass.segments.iter().map(|segment| segment.kv.state(place * b.columns(), b.columns())).collect();
        let parts = ranges.iter().zip(&states).zip(&pass.trees);
        let sequences: Vec<ConvolvedRows<'_>> = parts
            .map(|(((first_row, rows), before), tree)| ConvolvedRows {
                first_row: *first_row,
                rows: rows.clone(),
                before,
                paths: tree.as_ref().map(|tree| tree.paths.as_slice()),
            })
            .filter(|sequence| !sequence.rows.is_empty())
            .collect();
        let buffers = &mut pass.activations.buffers;
        short_convolution(self.isa(), crew, taps, buffers, &sequences);
        for (recurrent, (first, rows)) in pass.recurrent.iter_mut().zip(&ranges) {
            recurrent.copy(place, buffers, *first, rows);
        }
    }

    /// The positions at which what is kept of a sequence may be cut: multiples of this.
    #[must_use]
    pub fn cuts(&self) -> duet_types::Tokens {
        let is_recurrent = self.blueprint().layers.iter().any(|layer| layer.mixer != Mixer::Attention);
        duet_types::Tokens(if is_recurrent { PAGE_TOKENS as u32 } else { 1 })
    }
}
