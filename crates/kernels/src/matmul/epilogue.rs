//! What becomes of a product's results while they are still in registers.

use crate::memory::Shared;
use crate::packed::PANEL;
use crate::simd::{Simd, exp};

/// Takes the results of a product.
pub trait Epilogue: Sync {
    /// Takes the results of row `row` (counted within the call) for the panels from `panel` on.
    ///
    /// # Safety
    /// Called at most once for every row and panel of a product, whose rows and panels lie within the destination.
    unsafe fn take<S: Simd, const P: usize>(&self, s: S, row: usize, panel: usize, sums: [S::F; P]);
}

/// Writes results to rows of floats.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// Rows that may be written.
    pub out: Shared<'a, f32>,
    /// The row of `out` that row 0 of the call is written to.
    pub first_row: usize,
    /// From one row to the next: at least the outputs rounded up to whole panels.
    pub stride: usize,
}

impl Epilogue for Store<'_> {
    #[inline(always)]
    unsafe fn take<S: Simd, const P: usize>(&self, s: S, row: usize, panel: usize, sums: [S::F; P]) {
        let start = (self.first_row + row) * self.stride + panel * PANEL;
        // SAFETY: this part is this call's alone (the trait's promise), and `part_mut` checks the bounds.
        unsafe {
            let out = self.out.part_mut(start..start + P * PANEL).as_mut_ptr();
            for (p, sum) in sums.into_iter().enumerate() {
                s.store(out.add(p * PANEL), sum);
            }
        }
    }
}

/// Adds results to rows of floats: the residual stream.
#[derive(Clone, Copy, Debug)]
pub struct Add<'a>(
    /// As for [`Store`].
    pub Store<'a>,
);

impl Epilogue for Add<'_> {
    #[inline(always)]
    unsafe fn take<S: Simd, const P: usize>(&self, s: S, row: usize, panel: usize, sums: [S::F; P]) {
        let start = (self.0.first_row + row) * self.0.stride + panel * PANEL;
        // SAFETY: as in `Store`.
        unsafe {
            let out = self.0.out.part_mut(start..start + P * PANEL).as_mut_ptr();
            for (p, sum) in sums.into_iter().enumerate() {
                let at = out.add(p * PANEL);
                s.store(at, s.add(s.load(at), sum));
            }
        }
    }
}

/// The nonlinearity of a gated feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// `x / (1 + e^-x)`.
    Silu,
    /// Gaussian error linear unit, by its tanh approximation.
    GeluTanh,
}

/// For a matrix whose even panels are gates and whose odd panels are the values they gate:
/// writes `gating(gate) × value`, half as wide as the product.
#[derive(Clone, Copy, Debug)]
pub struct Gated<'a> {
    /// Where results go; panel pair `i` is panel `i` there.
    pub out: Store<'a>,
    /// The nonlinearity.
    pub gating: Gating,
}

impl Epilogue for Gated<'_> {
    #[inline(always)]
    unsafe fn take<S: Simd, const P: usize>(&self, s: S, row: usize, panel: usize, sums: [S::F; P]) {
        debug_assert!(panel.is_multiple_of(2) && P.is_multiple_of(2));
        for pair in 0..P / 2 {
            let gate = sums[2 * pair];
            let gate = match self.gating {
                Gating::Silu => silu(s, gate),
                Gating::GeluTanh => gelu_tanh(s, gate),
            };
            // SAFETY: pair `panel / 2 + pair` of this row is this call's alone (the trait's promise).
            unsafe { self.out.take(s, row, panel / 2 + pair, [s.mul(gate, sums[2 * pair + 1])]) };
        }
    }
}

#[inline(always)]
fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    s.div(x, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
}

/// `x / (1 + e^-2u)` with `u = √(2/π) (x + 0.044715 x³)`, which is `x (1 + tanh u) / 2`.
#[inline(always)]
fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    const MINUS_TWO_ROOT: f32 = -1.595_769_1;
    let cubic = s.fma(s.mul(s.mul(x, x), s.splat(0.044_715)), x, x);
    s.div(x, s.add(s.splat(1.0), exp(s, s.mul(s.splat(MINUS_TWO_ROOT), cubic))))
}
