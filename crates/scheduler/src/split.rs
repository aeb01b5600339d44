//! A node whose rows are shared between the static lane and the dynamic one: the launches that follow from a
//! [partition](crate::elastic).
//!
//! The static lane takes chunks from the front, the dynamic lane the rest: chunks first, the remainder when it is not
//! put off any more. Each lane runs one kernel at a time; the node is complete when all of its rows are.

use crate::elastic::Partition;
use crate::kernel::{PassId, Span};
use crate::pass::Pass;
use duet_types::{Instant, Tokens};
use std::ops::Range;

/// How the lanes share one node of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) pass: PassId,
    /// The node that it is for; the embeddings go with the first one.
    pub(crate) node: usize,
    pub(crate) partition: Partition,
    /// When the node began.
    pub(crate) begun: Instant,
    pub(crate) chunk: Tokens,
}

/// A share of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Now(Span),
    /// Nothing before this time.
    Later(Instant),
    Nothing,
}

impl Split {
    /// The next rows for the static lane.
    pub(crate) fn for_static_lane(&self, pass: &Pass) -> Option<Span> {
        Some(self.span(pass, self.free_static_chunks(pass).next()?))
    }

    /// The next rows for the dynamic lane: whatever the static lane does not take, up to the next border of a chunk.
    pub(crate) fn for_dynamic_lane(&self, now: Instant, pass: &Pass) -> Share {
        let Some(start) = self.first_dynamic_row(pass) else { return Share::Nothing };
        let border = (start / self.chunk.0 + 1) * self.chunk.0;
        let gap = pass.gaps().into_iter().find(|gap| gap.contains(&start)).expect("the row is in a gap");
        let ready = self.begun + self.partition.defer;
        let is_remainder = border > pass.rows;
        if is_remainder && now < ready {
            return Share::Later(ready);
        }
        let next_static = self.free_static_chunks(pass).map(|chunk| chunk.start).find(|&chunk| chunk > start);
        let end = gap.end.min(border).min(next_static.unwrap_or(border));
        Share::Now(self.span(pass, start..end))
    }

    fn free_static_chunks(&self, pass: &Pass) -> impl Iterator<Item = Range<u32>> {
        let chunks = (0..self.partition.static_chunks).map(|index| index * self.chunk.0..(index + 1) * self.chunk.0);
        chunks.filter(|chunk| chunk.end <= pass.rows && !pass.is_assigned(chunk))
    }

    /// The first row that no lane was given and that is not in a chunk for the static lane.
    fn first_dynamic_row(&self, pass: &Pass) -> Option<u32> {
        pass.gaps().into_iter().find_map(|gap| {
            let mut row = gap.start;
            for chunk in self.free_static_chunks(pass).filter(|chunk| gap.contains(&chunk.start)) {
                if row < chunk.start {
                    break;
                }
                row = chunk.end;
            }
            (row < gap.end).then_some(row)
        })
    }

    fn span(&self, pass: &Pass, rows: Range<u32>) -> Span {
        // Parts of a node go equally far.
        let end = if pass.is_between_nodes() { self.node + 1 } else { pass.assigned_to };
        Span { nodes: pass.node..end, rows }
    }
}
