//! The final hidden states: what a row is after all nodes and the final norm, where the head would read it.

use super::Pass;
use crate::load::Model;
use std::ops::Range;

impl Model {
    /// Adds the final hidden states of some rows to `sum`, one row after the other, after all nodes. The order is defined,
    /// so that a text's sum is the same however it was cut into passes.
    ///
    /// # Panics
    /// If a row does not exist or was said not to be read, or `sum` is not as wide as the residual stream.
    pub fn add_hidden(&self, pass: &Pass, rows: Range<usize>, sum: &mut [f64]) {
        assert!(rows.end <= pass.rows() && sum.len() == self.blueprint().hidden);
        pass.assert_read(&rows);
        let norm = self.row_norm(&self.weights().final_norm);
        let mut normed = vec![0.0; sum.len()];
        for row in rows {
            norm.row(self.isa(), pass.activations.buffers.residual(row), &mut normed);
            sum.iter_mut().zip(&normed).for_each(|(sum, x)| *sum += f64::from(*x));
        }
    }
}
