//! A softmax that runs over blocks of scores, and how two of them become one. Scores count in powers of two.

use crate::simd::{LANES, Simd, exp2_below};

/// A running softmax: the largest score, the sum of weights, the weighted values.
pub(super) struct Softmax<'m> {
    pub(super) largest: f32,
    pub(super) total: f32,
    /// By dimension.
    pub(super) values: &'m mut [f32],
}

impl<'m> Softmax<'m> {
    /// Before the first score; `values` are zeroes.
    #[inline(always)]
    pub(super) fn empty(values: &'m mut [f32]) -> Self {
        Self { largest: LOWEST, total: 0.0, values }
    }

    /// As behind one score, in natural units, that has no values.
    pub(super) fn begin_with(&mut self, score: f32) {
        (self.largest, self.total) = ((score * std::f32::consts::LOG2_E).max(LOWEST), 1.0);
    }
}

/// Below every score, yet finite: 2 to the power of `MASKED - LOWEST` is zero, and of `LOWEST - LOWEST` one.
pub(super) const LOWEST: f32 = -1e30;

/// The score of a position that is not visible.
pub(super) const MASKED: f32 = f32::NEG_INFINITY;

/// `into` after another, of which the largest score, the sum of weights and the values are given: as if their scores had
/// come one after the other.
#[inline(always)]
pub(super) fn merge_softmax<S: Simd>(s: S, into: &mut Softmax<'_>, (largest, total, values): (f32, f32, &[f32])) {
    let dim = into.values.len().min(values.len());
    let (before, after) = (into.largest, into.largest.max(largest));
    let (keep, take) = (scalar_exp2(s, before - after), scalar_exp2(s, largest - after));
    into.total = into.total.mul_add(keep, total * take);
    into.largest = after;
    let (keep, take) = (s.splat(keep), s.splat(take));
    for d in (0..dim).step_by(LANES) {
        // SAFETY: both hold `dim` floats, a multiple of 16.
        unsafe {
            let to = into.values.as_mut_ptr().add(d);
            s.store(to, s.fma(s.load(to), keep, s.mul(s.load(values.as_ptr().add(d)), take)));
        }
    }
}

#[inline(always)]
pub(super) fn scale_values<S: Simd>(s: S, values: &mut [f32], by: f32) {
    let by = s.splat(by);
    for d in (0..values.len()).step_by(LANES) {
        // SAFETY: heads have a multiple of 16 dimensions.
        unsafe { s.store(values.as_mut_ptr().add(d), s.mul(s.load(values.as_ptr().add(d)), by)) };
    }
}

#[inline(always)]
pub(super) fn scalar_exp2<S: Simd>(s: S, x: f32) -> f32 {
    s.max_lane(exp2_below(s, s.splat(x)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::simd::Kernel;

    /// Powers of two of some lanes.
    struct Powers([f32; LANES]);

    impl Kernel for Powers {
        type Output = [f32; LANES];

        fn run<S: Simd>(self, s: S) -> [f32; LANES] {
            let mut powers = [0.0; LANES];
            // SAFETY: registers of lanes.
            unsafe { s.store(powers.as_mut_ptr(), exp2_below(s, s.load(self.0.as_ptr()))) };
            powers
        }
    }

    #[test]
    fn powers_are_right_to_two_units_and_the_same_everywhere() {
        for first in (0..4000).step_by(LANES) {
            let exponents = std::array::from_fn(|lane| (first + lane) as f32 * -0.031_7);
            let all = Isa::available().into_iter().map(|isa| isa.run(Powers(exponents))).collect::<Vec<_>>();
            assert!(all.iter().all(|powers| powers.map(f32::to_bits) == all[0].map(f32::to_bits)), "{exponents:?}");
            for (exponent, power) in exponents.iter().zip(all[0]).filter(|(exponent, _)| **exponent > -126.0) {
                let exact = f64::from(*exponent).exp2();
                assert!((f64::from(power) / exact - 1.0).abs() < 2.5e-7, "{exponent}: {power}");
            }
        }
        for isa in Isa::available() {
            let mut exponents = [0.0; LANES];
            exponents[1..5].copy_from_slice(&[-127.0, -1e30, MASKED, LOWEST - LOWEST]);
            assert_eq!(isa.run(Powers(exponents))[..5], [1.0, 0.0, 0.0, 0.0, 1.0], "{isa}");
        }
    }
}
