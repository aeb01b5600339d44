//! How keys and values come out of a page, and how the next ones are fetched meanwhile.

use super::layout::{GROUP, PAGE, SCALE_UNIT};
use crate::simd::{LANES, Simd};

/// Numbers of one side of a page. (Not closures: those would not inherit the target features.)
pub(super) trait Source: Copy {
    /// Dimensions that share a scale.
    const GROUP: usize;

    /// Sixteen of them, from index `at` on.
    ///
    /// # Safety
    /// They lie within the page.
    unsafe fn load<S: Simd>(self, s: S, at: usize) -> S::F;

    /// The scales of a group at sixteen positions, register `v` of the page's; none, if numbers are as they are.
    ///
    /// # Safety
    /// They lie within the page.
    unsafe fn scales<S: Simd>(self, s: S, group: usize, v: usize) -> Option<S::F>;
}

#[derive(Clone, Copy)]
pub(super) struct Halves(pub(super) *const u16);

#[derive(Clone, Copy)]
pub(super) struct Bytes {
    pub(super) quants: *const i8,
    /// `[group][position]`.
    pub(super) scales: *const u16,
}

impl Source for Halves {
    const GROUP: usize = super::HEAD_DIM_MAX;

    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, at: usize) -> S::F {
        // SAFETY: the caller's.
        unsafe { s.load_f16(self.0.add(at)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(self, _: S, _: usize, _: usize) -> Option<S::F> {
        None
    }
}

impl Source for Bytes {
    const GROUP: usize = GROUP;

    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, at: usize) -> S::F {
        // SAFETY: the caller's.
        unsafe { s.load_i8(self.quants.add(at)) }
    }

    #[inline(always)]
    unsafe fn scales<S: Simd>(self, s: S, group: usize, v: usize) -> Option<S::F> {
        // SAFETY: the caller's.
        let scales = unsafe { s.load_f16(self.scales.add(group * PAGE + v * LANES)) };
        Some(s.mul(scales, s.splat(SCALE_UNIT)))
    }
}

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
        s.prefetch(from);
        if self.stride > 64 {
            s.prefetch(from.wrapping_add(64));
        }
    }
}
