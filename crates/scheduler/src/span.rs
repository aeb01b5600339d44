//! Spans: how long a kernel may be.
//!
//! A kernel is the longest that anything else has to wait, and a launch is not free, so a span is as many nodes as fit
//! the bound, at least one; where one node alone takes longer (attention over a long context), its rows are cut
//! instead. Times come from the annotations, so the bound holds on any model and machine that was measured, and half of
//! it is left for what annotations do not know. (Agent.xpu §4.2: kernels; §4.4: bounded preemption)

use crate::annotation::{span_time, time_of};
use crate::heg::Heg;
use crate::kernel::Span;
use crate::machine::Anchors;
use crate::pass::Pass;
use duet_types::{Nanos, NodeKind, Tokens};
use std::ops::Range;

/// How a pass may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Not at all: the next kernel is the rest of the pass.
    Whole,
    /// In kernels of at most this long, as predicted.
    Within(Nanos),
    /// The same where a graph runs: attention takes all rows at once, token-wise nodes may be cut in its chunks.
    Chunks(Nanos, Tokens),
    /// The same in whole nodes: of one that takes longer, all rows.
    Nodes(Nanos),
}

impl Cut {
    /// The same kernels where everything takes so many times as long.
    pub(crate) fn on_slower(self, times: f64) -> Self {
        let shorter = |bound: Nanos| Nanos((bound.0 as f64 / times) as u64);
        match self {
            Self::Whole => Self::Whole,
            Self::Within(bound) => Self::Within(shorter(bound)),
            Self::Chunks(bound, rows) => Self::Chunks(shorter(bound), rows),
            Self::Nodes(bound) => Self::Nodes(shorter(bound)),
        }
    }
}

/// The next span of an idle pass.
#[must_use]
pub(crate) fn next_span(heg: &Heg, anchors: &Anchors, pass: &Pass, cut: Cut) -> Span {
    let (nodes, all) = (pass.node..heg.nodes(), 0..pass.rows);
    if !pass.is_between_nodes() {
        // Some rows of the node went before; the rest of them follow.
        return Span { nodes: pass.node..pass.assigned_to, rows: part_of_node(heg, anchors, pass, cut) };
    }
    let first = heg.order().kind(pass.node);
    let bound = match cut {
        Cut::Whole => return Span { nodes, rows: all },
        Cut::Within(bound) | Cut::Chunks(bound, _) | Cut::Nodes(bound) => bound,
    };
    if time_of(heg, anchors, &pass.load, pass.node) > bound {
        let whole = match cut {
            Cut::Nodes(_) => true,
            Cut::Chunks(..) if first == NodeKind::Attention => true,
            _ => !first.divides_rows(),
        };
        let rows = if whole { all } else { part_of_node(heg, anchors, pass, cut) };
        return Span { nodes: pass.node..pass.node + 1, rows };
    }
    let fits = |end: usize| span_time(heg, anchors, &pass.load, &(pass.node..end)) <= bound;
    let end = largest(pass.node + 1, nodes.end, fits);
    Span { nodes: pass.node..end, rows: all }
}

/// The next rows of one node. They are no fewer than read the weights for little work: where memory decides, half of the
/// rows take as long as all of them.
fn part_of_node(heg: &Heg, anchors: &Anchors, pass: &Pass, cut: Cut) -> Range<u32> {
    let open = pass.unassigned();
    let bound = match cut {
        Cut::Whole | Cut::Nodes(_) => return open,
        Cut::Chunks(_, chunk) => return open.start..open.end.min(open.start + chunk.0),
        Cut::Within(bound) => bound,
    };
    let rows = |parts: usize| (parts as u32 * PART_ROWS).min(open.end - open.start);
    let time = |parts: usize| {
        let load = pass.load.part(f64::from(rows(parts)) / f64::from(pass.rows));
        time_of(heg, anchors, &load, pass.node)
    };
    let bound = bound.max(time(1));
    let parts = largest(1, (open.end - open.start).div_ceil(PART_ROWS) as usize, |parts| time(parts) <= bound);
    open.start..open.start + rows(parts)
}

/// The largest number up to `most` that fits, by bisection; `least` where none does. What is larger fits less.
pub(crate) fn largest(least: usize, most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut fitting, mut exceeding) = (least, most + 1);
    while exceeding - fitting > 1 {
        let middle = usize::midpoint(fitting, exceeding);
        if fits(middle) {
            fitting = middle;
        } else {
            exceeding = middle;
        }
    }
    fitting
}

/// Rows of a part are a multiple of this: a tile of a matrix product.
const PART_ROWS: u32 = 16;
