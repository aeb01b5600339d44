//! A softmax that runs over blocks of scores, and how two of them become one.

use super::HEAD_DIM_MAX;
use crate::simd::{LANES, Simd, exp};

/// A running softmax: the largest score, the sum of weights, the weighted values.
pub(super) struct Softmax {
    pub(super) largest: f32,
    pub(super) total: f32,
    pub(super) values: [f32; HEAD_DIM_MAX],
}

impl Softmax {
    pub(super) const EMPTY: Self = Self { largest: LOWEST, total: 0.0, values: [0.0; HEAD_DIM_MAX] };
}

/// Below every score, yet finite: `exp(MASKED - LOWEST)` is zero and `exp(LOWEST - LOWEST)` one.
pub(super) const LOWEST: f32 = -1e30;

/// The score of a position that is not visible.
pub(super) const MASKED: f32 = f32::NEG_INFINITY;

/// `into` after `part`, as if their scores had come one after the other.
#[inline(always)]
pub(super) fn merge_softmax<S: Simd>(s: S, into: &mut Softmax, part: &Softmax, dim: usize) {
    let largest = into.largest.max(part.largest);
    let (keep, take) = (scalar_exp(s, into.largest - largest), scalar_exp(s, part.largest - largest));
    into.total = into.total.mul_add(keep, part.total * take);
    into.largest = largest;
    let (keep, take) = (s.splat(keep), s.splat(take));
    for d in (0..dim).step_by(LANES) {
        // SAFETY: both hold `HEAD_DIM_MAX` floats, and `dim` is a multiple of 16 not above it.
        unsafe {
            let to = into.values.as_mut_ptr().add(d);
            s.store(to, s.fma(s.load(to), keep, s.mul(s.load(part.values.as_ptr().add(d)), take)));
        }
    }
}

#[inline(always)]
pub(super) fn scale_values<S: Simd>(s: S, values: &mut [f32; HEAD_DIM_MAX], dim: usize, by: f32) {
    let by = s.splat(by);
    for d in (0..dim).step_by(LANES) {
        // SAFETY: as in `merge_softmax`.
        unsafe { s.store(values.as_mut_ptr().add(d), s.mul(s.load(values.as_ptr().add(d)), by)) };
    }
}

#[inline(always)]
pub(super) fn scalar_exp<S: Simd>(s: S, x: f32) -> f32 {
    s.max_lane(exp(s, s.splat(x)))
}
