//! How keys and values come out of a page, and how the next ones are fetched meanwhile.

use crate::simd::Simd;

/// Numbers of one side of a page. (Not closures: those would not inherit the target features.)
pub(super) trait Source: Copy {
    /// Sixteen of them, from index `at` on.
    ///
    /// # Safety
    /// They lie within the page.
    unsafe fn load<S: Simd>(self, s: S, at: usize) -> S::F;
}

#[derive(Clone, Copy)]
pub(super) struct Halves(pub(super) *const u16);

#[derive(Clone, Copy)]
pub(super) struct Bytes(pub(super) *const i8);

impl Source for Halves {
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, at: usize) -> S::F {
        // SAFETY: the caller's.
        unsafe { s.load_f16(self.0.add(at)) }
    }
}

impl Source for Bytes {
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, at: usize) -> S::F {
        // SAFETY: the caller's.
        unsafe { s.load_i8(self.0.add(at)) }
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
