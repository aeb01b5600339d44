//! Rows of weights, as a matrix is packed from them.
//!
//! A row is lent and not handed over: moving 32 weights takes as long as packing them.

use super::{Packable, WeightGroup};
use crate::quantize::GROUP;

/// The weights of one output.
#[derive(Clone, Copy, Debug)]
pub enum WeightRow<'a> {
    /// In groups, for a form with quants.
    Quants(&'a [WeightGroup]),
    /// For a form of floats, which takes them if they are its own: what it cannot hold is rounded.
    Floats(&'a [f32]),
    /// Zeros, for any form.
    Zeros,
}

/// Who knows the weights of outputs.
pub trait WeightRows {
    /// Those of an output. Outputs are asked for in order.
    fn row(&mut self, output: usize) -> WeightRow<'_>;
}

/// Rows that are made group by group.
pub(super) struct GroupWise<F> {
    inputs: usize,
    group: F,
    quants: Vec<WeightGroup>,
    floats: Vec<f32>,
}

impl<F> GroupWise<F> {
    /// `group(output, index)` is group `index` of an output.
    pub(super) fn new(inputs: usize, group: F) -> Self {
        Self { inputs, group, quants: Vec::new(), floats: Vec::new() }
    }
}

impl<G: Into<Packable>, F: FnMut(usize, usize) -> G> WeightRows for GroupWise<F> {
    fn row(&mut self, output: usize) -> WeightRow<'_> {
        self.quants.clear();
        self.floats.clear();
        for index in 0..self.inputs.div_ceil(GROUP) {
            match (self.group)(output, index).into() {
                Packable::Quants(group) => self.quants.push(group),
                Packable::Floats(floats) => self.floats.extend(floats),
            }
        }
        if self.floats.is_empty() {
            return WeightRow::Quants(&self.quants);
        }
        self.floats.truncate(self.inputs);
        WeightRow::Floats(&self.floats)
    }
}
