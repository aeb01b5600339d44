//! How attention to long contexts is divided among workgroups, and what each of them shares.

use crate::adapters::SPAN_PAGES;
use crate::gpu::Gpu;
use duet_kernels::attention::{KvFormat, KvLayout};
use duet_kernels::quantize::GROUP;
use duet_model::kv::PAGE_TOKENS;

/// How attention is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Divided {
    /// Spans of a row that have workgroups of their own, at most; 0: a row's heads have one each.
    pub(crate) spans: usize,
    /// Pages that a workgroup has at once, if it has threads and memory for them.
    side: usize,
}

/// Rows and their spans that may have workgroups of their own.
const APART_MAX: usize = 1024;
/// Workgroups that a GPU has enough of. Rows and heads that are as many have one each, page by page.
const ENOUGH: usize = 512;
/// Positions of a span.
const SPAN_POSITIONS: usize = SPAN_PAGES * PAGE_TOKENS;

impl Divided {
    /// Not at all.
    pub(crate) const NOT: Self = Self { spans: 0, side: 1 };

    /// For so many rows, of which one sees so many positions, on an adapter that has so many pages at once.
    pub(crate) fn of(rows: usize, heads: usize, positions: usize, side: usize) -> Self {
        if rows * heads >= ENOUGH || positions <= PAGE_TOKENS {
            return Self::NOT;
        }
        // As few sizes as serve, since launches are kept by size.
        let spans = positions.div_ceil(SPAN_POSITIONS).next_power_of_two();
        let are_apart = spans > 1 && rows * spans <= APART_MAX;
        Self { spans: if are_apart { spans } else { 0 }, side }
    }

    /// Bytes for what spans come to, of heads of so many dimensions.
    pub(crate) fn bytes(heads: usize, dimensions: usize) -> usize {
        APART_MAX * heads * (dimensions + 2) * size_of::<f32>()
    }

    /// Pages that a workgroup of a phase has at once on an adapter. Where keys are of half precision, sums go through all pages in order.
    pub(crate) fn side(self, gpu: &Gpu, layout: &KvLayout, quick: usize, phase: u32) -> usize {
        let fits = |side: usize| gpu.takes_workgroup(side * PAGE_TOKENS, shared_bytes(layout, side, quick));
        let mut side = if phase == 2 || layout.format == KvFormat::F16 { 1 } else { self.side };
        while side > 1 && !fits(side) {
            side /= 2;
        }
        side
    }
}

/// Bytes that the threads of a workgroup share, which has so many pages at once, where keys have a bias with so many quick pairs
/// (`attention.wgsl` and the files before it).
fn shared_bytes(layout: &KvLayout, side: usize, quick: usize) -> usize {
    /// Between one array and the next, of all of them.
    const BETWEEN: usize = 512;
    const LANES: usize = 16;
    const EIGHTHS: usize = 8;
    let (dimensions, groups) = (layout.head_dim, layout.head_dim.div_ceil(GROUP));
    let of_head = 2 * dimensions + dimensions / 4 + groups + 2 * dimensions + PAGE_TOKENS + 1;
    let of_page = PAGE_TOKENS + groups * (2 * PAGE_TOKENS + EIGHTHS + LANES + 2) + LANES + 1 + dimensions;
    (of_head + side * (of_page + 2 * quick.max(1))) * size_of::<f32>() + BETWEEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_with_long_contexts_are_divided() {
        let spans = |rows, positions| Divided::of(rows, 9, positions, 1).spans;
        assert_eq!(spans(1, SPAN_POSITIONS), 0);
        assert_eq!(spans(1, SPAN_POSITIONS + 1), 2);
        assert_eq!(spans(16, 5 * SPAN_POSITIONS), 8);
        assert_eq!(spans(64, 5 * SPAN_POSITIONS), 0);
        // More than there is room for.
        assert_eq!(spans(16, 65 * SPAN_POSITIONS), 0);
    }

    #[test]
    fn few_rows_have_pages_side_by_side() {
        let side = |rows, positions| Divided::of(rows, 9, positions, SPAN_PAGES).side;
        assert_eq!(side(1, PAGE_TOKENS), 1);
        assert_eq!(side(1, PAGE_TOKENS + 1), SPAN_PAGES);
        assert_eq!(side(16, 65 * SPAN_POSITIONS), SPAN_PAGES);
        assert_eq!(side(64, 5 * SPAN_POSITIONS), 1);
    }
}
