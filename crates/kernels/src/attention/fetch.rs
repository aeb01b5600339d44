//! Keys and values of the next steps, fetched while computing.

use crate::simd::Simd;

/// Memory that is needed next, fetched bit by bit while computing: the values during the keys, the next page's keys
/// during the values. Blocks of a layer and head are too short for the processor's own prefetching to get going.
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
    pub(super) fn step<S: Simd>(self, s: S, step: usize) {
        let from = self.from.wrapping_add(step * self.stride);
        for line in (0..self.stride).step_by(64) {
            s.prefetch(from.wrapping_add(line));
        }
    }
}
