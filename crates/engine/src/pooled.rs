//! The embedding of a prompt on its way: the sum of its rows' final hidden states.
//!
//! Rows are added in the order of their positions, each once, in double precision. So neither chunks nor what was undone or
//! computed again on the way changes a bit of it.

use crate::backend::Backend;
use std::ops::Range;

/// The sum of the hidden states of the positions that were read.
#[derive(Debug)]
pub(crate) struct Pooled {
    sum: Vec<f64>,
    positions: usize,
}

impl Pooled {
    /// Of nothing yet.
    pub(crate) fn new(hidden: usize) -> Self {
        Self { sum: vec![0.0; hidden], positions: 0 }
    }

    /// Adds what is new of some rows of a pass, after all nodes; the first of them is at `position`.
    pub(crate) fn add<B: Backend>(&mut self, backend: &B, pass: &B::Pass, position: usize, rows: Range<usize>) {
        // Keys and values that were lost are computed again; their rows were added before.
        let known = self.positions.saturating_sub(position).min(rows.len());
        let new = rows.start + known..rows.end;
        self.positions += new.len();
        backend.add_hidden(pass, new, &mut self.sum);
    }

    /// The mean at a length of 1; zeros stay zeros.
    pub(crate) fn embedding(&self) -> Vec<f32> {
        let positions = self.positions.max(1) as f64;
        let mean = || self.sum.iter().map(|sum| sum / positions);
        let length = mean().map(|x| x * x).sum::<f64>().sqrt();
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        mean().map(|x| (x * scale) as f32).collect()
    }
}
