//! The best logits of rows, where it is known that they are wanted before the last span of a pass is run: a device that has the head
//! computes them along with the span, and is not waited for a second time.
//!
//! Who knows it says so ([`Pass::seek_best`]), and asks for them as always ([`crate::Model::best_on`]): what came with the span is
//! what a run of the head alone comes to.

use super::pass::Pass;
use super::token_wise::BestOfRow;

/// Rows whose best logits are wanted.
#[derive(Debug)]
pub struct Sought {
    /// Which of the pass.
    pub rows: Vec<usize>,
    /// How many logits of each.
    pub count: usize,
    /// By a device that has them, of each row in order.
    pub found: Option<Vec<BestOfRow>>,
}

impl Pass {
    /// Says that the best `count` logits of some rows are going to be asked for.
    pub fn seek_best(&mut self, rows: &[usize], count: usize) {
        self.sought = Some(Sought { rows: rows.to_vec(), count, found: None });
    }

    /// What came with the last span, if just that was sought.
    pub(super) fn take_best(&mut self, rows: &[usize], count: usize) -> Option<Vec<BestOfRow>> {
        self.sought.take_if(|sought| sought.rows == rows && sought.count == count)?.found
    }
}
