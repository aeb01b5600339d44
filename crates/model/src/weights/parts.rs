//! Which rows of which tensors a packed matrix is made of.

use super::row_reader::stored_form;
use crate::gguf::Tensor;
use crate::plain::{PlainFeed, PlainMatrix};
use duet_kernels::packed::{Form, PANEL, PANELS_TOGETHER};
use std::ops::Range;

/// Some rows of a tensor, in some order; `None` is a row of zeros.
#[derive(Clone)]
pub(super) struct Part<'a> {
    pub(super) tensor: Tensor<'a>,
    pub(super) rows: Vec<Option<usize>>,
}

impl<'a> Part<'a> {
    pub(super) fn whole(tensor: Tensor<'a>) -> Self {
        Slice::whole(tensor).rows((0..tensor.info.rows()).map(Some))
    }
}

/// A matrix as the file has it: a tensor, or its rows from `first` on where the file has several in one. Where these take turns,
/// so many rows are one's, and its next ones begin `turn` behind them.
#[derive(Clone, Copy)]
pub(super) struct Slice<'a> {
    pub(super) tensor: Tensor<'a>,
    first: usize,
    in_turn: usize,
    turn: usize,
}

impl<'a> Slice<'a> {
    pub(super) fn whole(tensor: Tensor<'a>) -> Self {
        Self::from(tensor, 0)
    }

    /// A tensor's rows from `first` on.
    pub(super) fn from(tensor: Tensor<'a>, first: usize) -> Self {
        Self { tensor, first, in_turn: usize::MAX, turn: 0 }
    }

    /// Matrices of `rows` rows each, of which a tensor has two in turns: the first ones, and the second ones.
    pub(super) fn in_turns(tensor: Tensor<'a>, rows: usize) -> [Self; 2] {
        [0, rows].map(|first| Self { tensor, first, in_turn: rows, turn: 2 * rows })
    }

    /// Some rows of it, in some order.
    pub(super) fn rows(self, rows: impl Iterator<Item = Option<usize>>) -> Part<'a> {
        let Self { tensor, first, in_turn, turn } = self;
        let at = |row: usize| first + row / in_turn * turn + row % in_turn;
        Part { tensor, rows: rows.map(|row| row.map(at)).collect() }
    }
}

/// The gated block of one expert, or those of many below each other.
pub(super) struct FeedTensors<'a> {
    pub(super) gate: Slice<'a>,
    pub(super) up: Slice<'a>,
    pub(super) down: Slice<'a>,
    pub(super) hidden: usize,
    pub(super) ffn: usize,
}

impl<'a> FeedTensors<'a> {
    /// The `index`th block.
    pub(super) fn plain(&self, index: usize) -> PlainFeed<'a> {
        let of = |slice: Slice<'a>, rows: usize| plain(&[slice.rows((index * rows..(index + 1) * rows).map(Some))]);
        PlainFeed { gate: of(self.gate, self.ffn), up: of(self.up, self.ffn), down: of(self.down, self.hidden) }
    }
}

/// The rows that parts are made of.
pub(super) fn rows_of<'a>(parts: &[Part<'a>]) -> Vec<(Tensor<'a>, Option<usize>)> {
    parts.iter().flat_map(|part| part.rows.iter().map(|&row| (part.tensor, row))).collect()
}

/// The sections of a matrix whose rows are those of `parts`, one below the other: how many rows of which form. Nothing if one
/// would begin where none can.
pub(super) fn sections(parts: &[Part<'_>]) -> Option<Vec<(usize, Form)>> {
    let mut sections: Vec<(usize, Form)> = Vec::new();
    for part in parts {
        let form = stored_form(part.tensor.info.kind);
        match sections.last_mut() {
            Some((rows, last)) if *last == form => *rows += part.rows.len(),
            Some((rows, _)) if *rows % (PANELS_TOGETHER * PANEL) != 0 => return None,
            _ => sections.push((part.rows.len(), form)),
        }
    }
    Some(sections)
}

/// Some neurons' rows, panels of gates and panels of values in turns.
pub(super) fn gated<'a>(gate: Slice<'a>, up: Slice<'a>, neurons: Range<usize>) -> Vec<Part<'a>> {
    let panels = neurons.clone().step_by(PANEL);
    let rows = |first: usize| (first..first + PANEL).map(|row| neurons.contains(&row).then_some(row));
    panels.flat_map(|first| [gate.rows(rows(first)), up.rows(rows(first))]).collect()
}

/// The parts' rows that are in the file, one below the other.
pub(super) fn plain<'a>(parts: &[Part<'a>]) -> PlainMatrix<'a> {
    let inputs = parts.first().map_or(0, |part| part.tensor.info.row_len());
    let rows = parts.iter().flat_map(|part| part.rows.iter().flatten().map(|&row| (part.tensor, row)));
    PlainMatrix::new(inputs, rows.collect())
}
