//! What becomes of a product's results while they are still in registers.

use crate::memory::Shared;
use crate::packed::PANEL;
use crate::simd::{Simd, exp};
use std::ops::Range;

/// Takes the results of a product. (Not a trait: the inner loops are compiled once for all of them.)
#[derive(Clone, Copy, Debug)]
pub enum Epilogue<'a> {
    /// Writes them.
    Store(Target<'a>),
    /// Adds them to what is there: the residual stream.
    Add(Target<'a>),
    /// For a matrix whose even panels are gates and whose odd panels are the values they gate: writes what `gating` makes of
    /// them, half as wide as the product. Panel pair `i` is panel `i` of the target.
    Gated {
        /// Where it goes.
        target: Target<'a>,
        /// The nonlinearity.
        gating: Gating,
        /// Added to gates and values, in the order of the panels.
        bias: Option<&'a [f32]>,
    },
}

/// Of [`Gating::ClampedSwish`].
const LIMIT: f32 = 7.0;

/// Rows of floats that results go to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Rows that may be written.
    pub out: Shared<'a, f32>,
    /// The row of `out` that row 0 of the call is written to.
    pub first_row: usize,
    /// From one row to the next: at least the outputs rounded up to whole panels.
    pub stride: usize,
}

/// The nonlinearity of a gated feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// `x / (1 + e^-x)`.
    Silu,
    /// Gaussian error linear unit, by its tanh approximation.
    GeluTanh,
    /// `x / (1 + e^-1.702x) × (value + 1)`, gates being at most 7 and values within ±7 (gpt-oss).
    ClampedSwish,
}

impl Epilogue<'_> {
    /// Takes the results of rows `row..row + R` (counted within the call) for `panels`; sums of more panels than these are
    /// padding.
    ///
    /// # Safety
    /// Called at most once for every row and panel of a product.
    #[inline(always)]
    pub(super) unsafe fn take<S: Simd, const R: usize, const P: usize>(
        &self,
        s: S,
        row: usize,
        panels: Range<usize>,
        sums: &[[S::F; P]; R],
    ) {
        // SAFETY: the caller's; `Target::at` checks the bounds.
        unsafe {
            match self {
                Self::Store(target) => {
                    for (index, sums) in sums.iter().enumerate() {
                        let out = target.at(row + index, panels.clone());
                        for (p, sum) in sums[..panels.len()].iter().enumerate() {
                            s.store(out.add(p * PANEL), *sum);
                        }
                    }
                }
                Self::Add(target) => {
                    for (index, sums) in sums.iter().enumerate() {
                        let out = target.at(row + index, panels.clone());
                        for (p, sum) in sums[..panels.len()].iter().enumerate() {
                            s.store(out.add(p * PANEL), s.add(s.load(out.add(p * PANEL)), *sum));
                        }
                    }
                }
                Self::Gated { target, gating, bias } => {
                    for (index, sums) in sums.iter().enumerate() {
                        for pair in 0..P / 2 {
                            let panel = panels.start / 2 + pair;
                            let (mut gate, mut value) = (sums[2 * pair], sums[2 * pair + 1]);
                            if let Some(bias) = bias {
                                let bias = bias[2 * panel * PANEL..][..2 * PANEL].as_ptr();
                                gate = s.add(gate, s.load(bias));
                                value = s.add(value, s.load(bias.add(PANEL)));
                            }
                            s.store(target.at(row + index, panel..panel + 1), gating.gated(s, gate, value));
                        }
                    }
                }
            }
        }
    }

    /// Whether a row's results end before the next row's begin, if they come from so many panels.
    pub(super) fn keeps_rows_apart(&self, panels: usize) -> bool {
        match self {
            Self::Store(target) | Self::Add(target) => panels * PANEL <= target.stride,
            Self::Gated { target, .. } => panels / 2 * PANEL <= target.stride,
        }
    }

    /// Whether panels must come in pairs.
    pub(super) fn takes_pairs(&self) -> bool {
        matches!(self, Self::Gated { .. })
    }
}

impl Target<'_> {
    /// Where some panels of a row begin.
    ///
    /// # Safety
    /// This place is the caller's alone.
    #[inline(always)]
    unsafe fn at(&self, row: usize, panels: Range<usize>) -> *mut f32 {
        let start = (self.first_row + row) * self.stride;
        // SAFETY: the caller's; the bounds are checked.
        unsafe { self.out.part_mut(start + panels.start * PANEL..start + panels.end * PANEL).as_mut_ptr() }
    }
}

impl Gating {
    /// What a gate lets through of a value.
    #[inline(always)]
    fn gated<S: Simd>(self, s: S, gate: S::F, value: S::F) -> S::F {
        match self {
            Self::Silu | Self::GeluTanh => s.mul(self.apply(s, gate), value),
            Self::ClampedSwish => {
                // What is no number stays none.
                let gate = s.min(s.splat(LIMIT), gate);
                let value = s.max(s.splat(-LIMIT), s.min(s.splat(LIMIT), value));
                s.mul(self.apply(s, gate), s.add(value, s.splat(1.0)))
            }
        }
    }

    /// The nonlinearity alone.
    #[inline(always)]
    pub(crate) fn apply<S: Simd>(self, s: S, x: S::F) -> S::F {
        /// `-2 √(2/π)`.
        const MINUS_TWO_ROOT: f32 = -1.595_769;
        let exponent = match self {
            Self::Silu => s.sub(s.splat(0.0), x),
            Self::ClampedSwish => s.mul(s.splat(-1.702), x),
            // `x (1 + tanh u) / 2 = x / (1 + e^-2u)` with `u = √(2/π) (x + 0.044715 x³)`.
            Self::GeluTanh => {
                let cubic = s.fma(s.mul(s.mul(x, x), s.splat(0.044_715)), x, x);
                s.mul(s.splat(MINUS_TWO_ROOT), cubic)
            }
        };
        s.div(x, s.add(s.splat(1.0), exp(s, exponent)))
    }
}
