//! Partial results of attention, so that several workers can share one row's long context.

use super::softmax::merge_softmax;
use super::tile::{ROWS, TileWork};
use super::{PAGE, Queries};
use crate::memory::Shared;
use crate::simd::Simd;

/// Pages in a span: 512 positions, long enough that merging costs nothing, short enough to share a context of 1k.
pub const SPAN_PAGES: usize = 8;

/// Spans of a context of `positions`.
pub(crate) fn spans_of(positions: usize) -> usize {
    positions.div_ceil(SPAN_PAGES * PAGE)
}

/// Room for the partial results of one call: for each key head, tile, span and pair the largest score, the sum of
/// weights and the weighted values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partials<'a> {
    memory: Shared<'a, f32>,
    tiles: usize,
    spans: usize,
    dim: usize,
}

impl<'a> Partials<'a> {
    /// Floats needed for `queries`, for all key heads.
    pub(crate) fn floats(queries: &Queries<'_>, layout: &super::LayerLayout) -> usize {
        layout.kv_heads * queries.tiles(layout) * queries.spans() * ROWS * (2 + layout.head_dim)
    }

    /// Partials for `queries` in `memory` of at least [`Self::floats`].
    ///
    /// # Panics
    /// If the memory is too small.
    pub(crate) fn new(memory: Shared<'a, f32>, queries: &Queries<'_>, layout: &super::LayerLayout) -> Self {
        assert!(memory.len() >= Self::floats(queries, layout));
        Self { memory, tiles: queries.tiles(layout), spans: queries.spans(), dim: layout.head_dim }
    }

    fn start(&self, kv_head: usize, tile: usize, span: usize, pair: usize) -> usize {
        (((kv_head * self.tiles + tile) * self.spans + span) * ROWS + pair) * (2 + self.dim)
    }

    /// # Safety
    /// No other worker touches this slot meanwhile.
    #[expect(clippy::mut_from_ref, reason = "a part of shared memory, exclusive by the caller's promise")]
    pub(crate) unsafe fn slot_mut(&self, kv_head: usize, tile: usize, span: usize, pair: usize) -> &mut [f32] {
        let start = self.start(kv_head, tile, span, pair);
        // SAFETY: the caller's.
        unsafe { self.memory.part_mut(start..start + 2 + self.dim) }
    }

    /// # Safety
    /// Nobody writes this slot meanwhile.
    unsafe fn slot(&self, kv_head: usize, tile: usize, span: usize, pair: usize) -> &[f32] {
        let start = self.start(kv_head, tile, span, pair);
        // SAFETY: the caller's.
        unsafe { self.memory.part(start..start + 2 + self.dim) }
    }
}

/// Merges all spans' partials of pair `pair` of a tile into `work`, in order.
///
/// # Safety
/// The partials are complete and not written meanwhile.
#[inline(always)]
pub(crate) unsafe fn merge_spans<S: Simd>(
    s: S,
    work: &mut TileWork<'_, 1>,
    partials: &Partials<'_>,
    tile: usize,
    pair: usize,
) {
    let (spans, kv_head) = work.place();
    for span in spans {
        if !work.sees(0, span) {
            continue;
        }
        // SAFETY: the caller's.
        let slot = unsafe { partials.slot(kv_head, tile, span, pair) };
        merge_softmax(s, work.merged_mut(0), (slot[0], slot[1], &slot[2..]));
    }
}
