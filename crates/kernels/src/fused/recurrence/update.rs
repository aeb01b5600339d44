//! What a recurrence does to parts of a row, and to a head's matrix.

use super::shape::{RecurrenceShape, Rule};
use crate::matmul::Gating;
use crate::simd::{Kernel, LANES, Simd};

/// Divides by the root of the sum of squares.
pub(super) struct ToLengthOne<'a>(pub(super) &'a mut [f32]);

/// Added to that sum.
const LEAST: f32 = 1e-6;

impl Kernel for ToLengthOne<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut sums = s.splat(0.0);
        for at in (0..self.0.len()).step_by(LANES) {
            // SAFETY: whole registers (checked by the caller).
            let x = unsafe { s.load(self.0.as_ptr().add(at)) };
            sums = s.fma(x, x, sums);
        }
        let scale = s.splat(1.0 / (s.sum(sums) + LEAST).sqrt());
        for at in (0..self.0.len()).step_by(LANES) {
            // SAFETY: as above.
            unsafe { s.store(self.0.as_mut_ptr().add(at), s.mul(s.load(self.0.as_ptr().add(at)), scale)) };
        }
    }
}

/// `found = found × gate / (1 + e^-gate)`.
pub(super) struct Gate<'a> {
    pub(super) found: &'a mut [f32],
    pub(super) gates: &'a [f32],
}

impl Kernel for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for at in (0..self.found.len()).step_by(LANES) {
            // SAFETY: both hold whole registers (checked by the caller).
            unsafe {
                let gate = Gating::Silu.apply(s, s.load(self.gates.as_ptr().add(at)));
                s.store(self.found.as_mut_ptr().add(at), s.mul(s.load(self.found.as_ptr().add(at)), gate));
            }
        }
    }
}

/// What a row does to a head's matrix, and what it reads of it. Both matrices are the head's, and may be the same.
pub(super) struct Update<'a> {
    pub(super) shape: &'a RecurrenceShape,
    /// The row's ([`RecurrenceShape::inputs`]).
    pub(super) input: &'a [f32],
    pub(super) head: usize,
    pub(super) from: *const f32,
    pub(super) to: *mut f32,
    /// Where what is read of it goes.
    pub(super) out: Option<&'a mut [f32]>,
}

impl Kernel for Update<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut at = 0;
        while at < self.shape.values {
            let left = (self.shape.values - at) / LANES;
            // SAFETY: the matrices are the head's alone while this runs, and have `keys` rows of `values` floats.
            unsafe {
                at += LANES
                    * match left {
                        0 | 1 => self.columns::<S, 1>(s, at),
                        2 | 3 => self.columns::<S, 2>(s, at),
                        _ => self.columns::<S, 4>(s, at),
                    };
            }
        }
    }
}

impl Update<'_> {
    /// `V` registers of columns, from column `at` on. Returns `V`.
    ///
    /// # Safety
    /// `from` and `to` are valid for a head's matrix.
    #[inline(always)]
    unsafe fn columns<S: Simd, const V: usize>(&mut self, s: S, at: usize) -> usize {
        let RecurrenceShape { rule, key_heads, heads, keys, values, .. } = *self.shape;
        let part = |from: usize, len: usize| &self.input[from..from + len];
        let key_head = self.shape.key_head(self.head);
        let (queries, key) = (part(key_head * keys, keys), part((key_heads + key_head) * keys, keys));
        let value = part(2 * key_heads * keys + self.head * values + at, V * LANES);
        let numbers = part(self.shape.channels(), 2 * heads);
        let (decay, strength) = (s.splat(numbers[self.head]), s.splat(numbers[heads + self.head]));
        // SAFETY: the caller's; `key` and `queries` are as long as the matrix has rows.
        unsafe {
            let mut found = [s.splat(0.0); V];
            if rule == Rule::Delta {
                for (row, key) in key.iter().enumerate() {
                    let key = s.splat(*key);
                    for (v, found) in found.iter_mut().enumerate() {
                        let old = s.mul(s.load(self.from.add(row * values + at + v * LANES)), decay);
                        *found = s.fma(old, key, *found);
                    }
                }
            }
            let mut delta = found;
            for v in 0..V {
                delta[v] = s.mul(s.sub(s.load(value.as_ptr().add(v * LANES)), found[v]), strength);
            }
            let mut result = [s.splat(0.0); V];
            for row in 0..keys {
                let (key, query) = (s.splat(key[row]), s.splat(queries[row]));
                for v in 0..V {
                    let place = row * values + at + v * LANES;
                    let new = s.fma(key, delta[v], s.mul(s.load(self.from.add(place)), decay));
                    s.store(self.to.add(place), new);
                    result[v] = s.fma(new, query, result[v]);
                }
            }
            if let Some(out) = &mut self.out {
                // Queries of length one count by the root of their dimensions.
                let scale = s.splat(if rule == Rule::Delta { 1.0 / (keys as f32).sqrt() } else { 1.0 });
                let out = &mut out[at..at + V * LANES];
                for (v, result) in result.iter().enumerate() {
                    s.store(out.as_mut_ptr().add(v * LANES), s.mul(*result, scale));
                }
            }
        }
        V
    }
}
