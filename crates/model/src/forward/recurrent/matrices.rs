//! The matrices of a segment while a pass is under way.
//!
//! Rows of a layer go in order, whatever rows are asked for: those before them that were left out go first, for all that they
//! take is there when any later row may go. Of a short segment, of which a part may be accepted, and of a tree, what the
//! matrices took of each row is kept until the pass ends; of a long one only of the layer that is on.

use super::ACCEPTED_IN_PART;
use crate::arch::Blueprint;
use crate::forward::Segment;
use crate::kv::{KvTable, StateBlock};
use duet_kernels::fused::{Beginning, ConvolvedRows, RecurrenceShape, RecurrentRows, replay};
use duet_kernels::isa::Isa;
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Matrices {
    isa: Isa,
    shape: RecurrenceShape,
    /// Floats of a layer's columns, which lie before its matrices.
    columns: usize,
    layer_state: usize,
    /// The state behind the rows that went, layer by layer.
    now: StateBlock,
    /// Those at borders: behind which row, and the state.
    borders: Vec<(usize, StateBlock)>,
    /// How many rows of each layer went.
    gone: Vec<usize>,
    /// `[layer][row]`, or `[row]` of the layer that is on.
    inputs: Vec<f32>,
    rows: usize,
    keeps_inputs: bool,
    is_tree: bool,
    /// The table's block before, if nobody else has it.
    earlier: Option<StateBlock>,
}

impl Matrices {
    pub(super) fn of(
        (isa, b, shape): (Isa, &Blueprint, RecurrenceShape),
        segment: &Segment,
        spare: Option<StateBlock>,
    ) -> Self {
        let (rows, layers, layer_state) = (segment.tokens.len(), b.recurrent_layers(), b.layer_state());
        let is_tree = segment.parents.is_some();
        let keeps_inputs = is_tree || rows <= ACCEPTED_IN_PART;
        let start = segment.kv.len().as_usize();
        let ends_at_border =
            |row: &usize| segment.kv.state_distance().is_some_and(|all| (start + row + 1).is_multiple_of(all));
        let borders = (0..rows).filter(ends_at_border).filter(|_| !is_tree);
        let block = || vec![0.0; layers * layer_state];
        Self {
            isa,
            shape,
            columns: b.columns_before() * b.channels(),
            layer_state,
            now: spare.unwrap_or_else(block),
            borders: borders.map(|row| (row, block())).collect(),
            gone: vec![0; layers],
            inputs: vec![0.0; if keeps_inputs { layers } else { 1 } * rows * shape.inputs()],
            rows,
            keeps_inputs,
            is_tree,
            earlier: None,
        }
    }

    /// The rows that go when these are asked for. Whoever asks for the first row again begins again.
    pub(super) fn due(&mut self, layer: usize, rows: &Range<usize>) -> Range<usize> {
        if rows.is_empty() {
            return 0..0;
        }
        if rows.start == 0 {
            self.gone[layer] = 0;
        }
        let gone = self.gone[layer];
        if rows.end > gone { gone..rows.end } else { 0..0 }
    }

    /// What the kernel takes.
    pub(super) fn rows<'a>(
        &'a mut self,
        layer: usize,
        kv: &'a KvTable,
        convolved: ConvolvedRows<'a>,
    ) -> RecurrentRows<'a> {
        let own = self.of_layer(layer);
        let copies = self.borders.iter_mut().map(|(row, block)| (*row, &mut block[own.clone()])).collect();
        let inputs = self.rows * self.shape.inputs();
        let first = if self.keeps_inputs { layer * inputs } else { 0 };
        RecurrentRows {
            at: convolved.rows.start.checked_sub(1),
            convolved,
            inputs: &mut self.inputs[first..first + inputs],
            before: kv.end_state().map(|block| &block[own.clone()]),
            now: &mut self.now[own],
            copies,
        }
    }

    pub(super) fn went_through(&mut self, layer: usize, rows: &Range<usize>) {
        if !rows.is_empty() {
            self.gone[layer] = rows.end;
        }
    }

    /// Where a layer's matrices lie in a state.
    fn of_layer(&self, layer: usize) -> Range<usize> {
        let first = layer * self.layer_state + self.columns;
        first..first + self.shape.matrices()
    }

    /// The states behind these rows, which are accepted: those at borders, in order, and the last. Their columns are not
    /// written yet.
    ///
    /// # Panics
    /// If a part of a long segment is accepted.
    pub(super) fn behind(&mut self, kv: &KvTable, rows: &[usize], distance: usize) -> Vec<StateBlock> {
        if !self.is_tree && rows.len() == self.rows {
            let mut states: Vec<StateBlock> = self.borders.drain(..).map(|(_, block)| block).collect();
            states.push(std::mem::take(&mut self.now));
            return states;
        }
        assert!(self.keeps_inputs, "a part of {} rows is accepted, of which nothing was kept", self.rows);
        let start = kv.len().as_usize();
        let ends: Vec<usize> = (1..rows.len()).filter(|end| (start + end).is_multiple_of(distance)).collect();
        let mut states = Vec::new();
        let mut from = 0;
        for end in ends {
            self.replay(kv, (from == 0, &rows[from..end]));
            states.push(self.now.clone());
            from = end;
        }
        self.replay(kv, (from == 0, &rows[from..]));
        if (start + rows.len()).is_multiple_of(distance) {
            states.push(self.now.clone());
        }
        states.push(std::mem::take(&mut self.now));
        states
    }

    pub(super) fn keep_spare(&mut self, earlier: Option<StateBlock>) {
        self.earlier = earlier;
    }

    /// A block that the next pass may take: the table's before, or the pass's own if that was given up.
    pub(super) fn into_spare(self) -> Option<StateBlock> {
        self.earlier.or(Some(self.now)).filter(|block| !block.is_empty())
    }

    fn replay(&mut self, kv: &KvTable, (is_first, rows): (bool, &[usize])) {
        let inputs = self.rows * self.shape.inputs();
        for layer in 0..self.gone.len() {
            let own = self.of_layer(layer);
            let beginning = match kv.end_state() {
                Some(before) if is_first => Beginning::Matrices(&before[own.clone()]),
                None if is_first => Beginning::Zeros,
                _ => Beginning::Now,
            };
            let inputs = &self.inputs[layer * inputs..(layer + 1) * inputs];
            replay(self.isa, &self.shape, inputs, rows, beginning, &mut self.now[own]);
        }
    }
}
