//! Which rows of a pass anybody reads behind the last layer: what no other row is made of is computed for these alone.

use super::rows::Rows;
use crate::backend::Backend;
use duet_scheduler::Kernel;
use std::ops::Range;

impl<B: Backend> Rows<B> {
    /// From the first such row of a pass to the last.
    pub(super) fn head_rows(&self, kernel: &Kernel) -> Range<usize> {
        let (mut start, mut read) = (0, None);
        for ((_, sequence), member) in self.members.iter().zip(&kernel.members) {
            let rows = start..start + member.len().as_usize();
            start = rows.end;
            let own = sequence.head_rows(member, rows);
            if !own.is_empty() {
                read = Some(read.map_or(own.clone(), |read: Range<usize>| read.start..own.end));
            }
        }
        read.unwrap_or_default()
    }
}
