//! The products of keys and values in half precision.

use super::fetch::Fetch;
use super::layout::{PAGE, VECTORS};
use super::softmax::Softmax;
use crate::simd::{LANES, Simd};

/// One side of a page: the keys or the values of a layer and head.
#[derive(Clone, Copy)]
pub(super) struct Halves {
    pub(super) numbers: *const u16,
    /// Dimensions of a head.
    pub(super) dim: usize,
}

impl Halves {
    /// Products of some queries, `[dimension][query]`, with the first keys, at least `slots` of them; the scores of others stay.
    ///
    /// # Safety
    /// These are a page's keys, which nobody writes meanwhile.
    #[inline(always)]
    pub(super) unsafe fn scores<S: Simd, const R: usize>(
        self,
        s: S,
        query: &[[f32; R]],
        fetch: Fetch,
        slots: usize,
        scores: &mut [[S::F; VECTORS]; R],
    ) {
        // SAFETY: the caller's.
        unsafe {
            if slots > 2 * LANES && R * VECTORS <= S::SUMS {
                self.score_vectors::<S, R, VECTORS>(s, query, fetch, 0, scores);
            } else {
                for first in 0..slots.div_ceil(LANES) {
                    self.score_vectors::<S, R, 1>(s, query, fetch, first, scores);
                }
            }
        }
    }

    /// The scores of `V` registers of slots, from register `first` on.
    #[inline(always)]
    unsafe fn score_vectors<S: Simd, const R: usize, const V: usize>(
        self,
        s: S,
        query: &[[f32; R]],
        fetch: Fetch,
        first: usize,
        scores: &mut [[S::F; VECTORS]; R],
    ) {
        let mut sums = [[s.splat(0.0); V]; R];
        for (d, query) in query[..self.dim].iter().enumerate() {
            if first == 0 {
                fetch.step(d);
            }
            let mut keys = [s.splat(0.0); V];
            for (v, key) in keys.iter_mut().enumerate() {
                // SAFETY: within the keys of the page.
                *key = unsafe { s.load_f16(self.numbers.add(((first + v) * self.dim + d) * LANES)) };
            }
            for (row, q) in sums.iter_mut().zip(query) {
                let q = s.splat(*q);
                for (sum, key) in row.iter_mut().zip(keys) {
                    *sum = s.fma(q, key, *sum);
                }
            }
        }
        for (scores, sums) in scores.iter_mut().zip(sums) {
            scores[first..first + V].copy_from_slice(&sums);
        }
    }

    /// Adds the first positions' values, weighted.
    ///
    /// # Safety
    /// These are a page's values, which nobody writes meanwhile.
    #[inline(always)]
    pub(super) unsafe fn weigh<S: Simd, const R: usize>(
        self,
        s: S,
        weights: &[[f32; PAGE]; R],
        fetch: Fetch,
        positions: usize,
        into: &mut [Softmax<'_>; R],
    ) {
        let mut d = 0;
        // SAFETY: `d` stays below the head's dimensions, a multiple of 16.
        unsafe {
            while d + 4 * LANES <= self.dim && R * 4 <= S::SUMS {
                self.weigh_vectors::<S, R, 4>(s, weights, d, fetch, positions, into);
                d += 4 * LANES;
            }
            while d < self.dim {
                self.weigh_vectors::<S, R, 1>(s, weights, d, fetch, positions, into);
                d += LANES;
            }
        }
    }

    /// `N` registers of dimensions.
    #[inline(always)]
    unsafe fn weigh_vectors<S: Simd, const R: usize, const N: usize>(
        self,
        s: S,
        weights: &[[f32; PAGE]; R],
        d: usize,
        fetch: Fetch,
        positions: usize,
        into: &mut [Softmax<'_>; R],
    ) {
        let mut sums = [[s.splat(0.0); N]; R];
        for (row, softmax) in sums.iter_mut().zip(&*into) {
            for (v, sum) in row.iter_mut().enumerate() {
                // SAFETY: the caller's bound on `d`.
                *sum = unsafe { s.load(softmax.values.as_ptr().add(d + v * LANES)) };
            }
        }
        for position in 0..positions.min(PAGE) {
            if d == 0 {
                fetch.step(position);
            }
            let mut values = [s.splat(0.0); N];
            for (v, value) in values.iter_mut().enumerate() {
                // SAFETY: within the values of the page.
                *value = unsafe { s.load_f16(self.numbers.add(position * self.dim + d + v * LANES)) };
            }
            for (row, weights) in sums.iter_mut().zip(weights) {
                let weight = s.splat(weights[position]);
                for (sum, value) in row.iter_mut().zip(values) {
                    *sum = s.fma(weight, value, *sum);
                }
            }
        }
        for (row, softmax) in sums.iter().zip(into) {
            for (v, sum) in row.iter().enumerate() {
                // SAFETY: as above.
                unsafe { s.store(softmax.values.as_mut_ptr().add(d + v * LANES), *sum) };
            }
        }
    }
}
