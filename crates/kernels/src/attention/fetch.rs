//! Keys and values of the next steps, fetched while computing.

use crate::simd::prefetch_for_later;

/// Memory that is needed next, fetched bit by bit while computing: the values during the keys, the next page's keys
/// during the values. Blocks of a layer and head are too short for the processor's own prefetching to get going.
///
/// They go to the second cache: the first one waits for few lines at a time, which is less than one row's attention reads. (Zen 4,
/// 4,096 positions: one row of the default model takes half as long, of a 1.5B two thirds; of many rows nothing changes.)
#[derive(Clone, Copy)]
pub(super) struct Fetch {
    from: *const u8,
    /// Bytes for each step.
    stride: usize,
}

impl Fetch {
    /// `bytes` from `from` on, in `steps` steps.
    #[inline(always)]
    pub(super) fn new(from: *const u8, bytes: usize, steps: usize) -> Self {
        Self { from, stride: bytes.div_ceil(steps) }
    }

    #[inline(always)]
    pub(super) fn step(self, step: usize) {
        let from = self.from.wrapping_add(step * self.stride);
        for line in (0..self.stride).step_by(64) {
            prefetch_for_later(from.wrapping_add(line));
        }
    }
}
