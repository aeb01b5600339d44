//! What comes after attention: output projection and norm, then the feed-forward block and its norm. Token-wise.

use super::buffers::{Floats, SharedBuffers};
use super::{Affine, EncoderBuffers, Onto, Product, part};
use crate::crew::{Crew, Worker};
use crate::fused::{Norm, RowNorm};
use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd, exp};
use std::ops::Range;

/// A layer norm.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm<'a> {
    /// One factor a column.
    pub weight: &'a [f32],
    /// Added to each column.
    pub bias: &'a [f32],
    /// Added to the variance.
    pub epsilon: f32,
}

impl LayerNorm<'_> {
    /// Norms a row.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn row(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        let norm = Norm { weight: self.weight, epsilon: self.epsilon };
        RowNorm::Layer(norm, self.bias).row(isa, x, out);
    }
}

/// The weights of [`feed()`].
#[derive(Clone, Copy, Debug)]
pub struct FeedForward<'a> {
    /// From the heads to the residual stream.
    pub output: Affine<'a>,
    /// Of the residual stream and what attention has added to it.
    pub output_norm: LayerNorm<'a>,
    /// Into the block.
    pub up: Affine<'a>,
    /// Out of it.
    pub down: Affine<'a>,
    /// Of the residual stream and what the block has added to it.
    pub norm: LayerNorm<'a>,
}

/// Runs the kernel on `rows`.
///
/// # Panics
/// If a shape does not fit.
pub fn feed(isa: Isa, crew: &dyn Crew, weights: &FeedForward<'_>, buffers: &mut EncoderBuffers, rows: Range<usize>) {
    assert!(rows.end <= buffers.rows());
    let call = Call { isa, weights, shared: buffers.share(), rows };
    crew.run(&|worker| call.run(&worker));
}

struct Call<'a> {
    isa: Isa,
    weights: &'a FeedForward<'a>,
    shared: SharedBuffers<'a>,
    rows: Range<usize>,
}

impl Call<'_> {
    fn run(&self, worker: &Worker<'_>) {
        let Self { weights, shared, .. } = self;
        self.product(&weights.output, &shared.attended, &shared.stream, Onto::WhatIsThere, worker);
        self.norm(&weights.output_norm, &shared.stream, &shared.normed, worker);
        self.product(&weights.up, &shared.normed, &shared.inner, Onto::Nothing, worker);
        self.activate(worker);
        self.product(&weights.down, &shared.inner, &shared.normed, Onto::WhatIsThere, worker);
        self.norm(&weights.norm, &shared.normed, &shared.stream, worker);
    }

    /// A product, and all of its results.
    fn product(&self, weights: &Affine<'_>, from: &Floats<'_>, out: &Floats<'_>, onto: Onto, worker: &Worker<'_>) {
        let quantized = self.shared.quantized(from.columns, self.rows.len());
        let product = Product { isa: self.isa, rows: &self.rows, quantized: &quantized, worker };
        // SAFETY: the kernel has borrowed the buffers alone; every worker calls this, with syncs before and after.
        unsafe { product.run(weights, from, out, onto) };
        worker.sync();
    }

    fn norm(&self, norm: &LayerNorm<'_>, from: &Floats<'_>, to: &Floats<'_>, worker: &Worker<'_>) {
        for row in worker.share(self.rows.len()) {
            let row = self.rows.start + row;
            // SAFETY: the row is this worker's share between the surrounding syncs, in both matrices.
            let (x, out) = unsafe {
                (
                    from.values.part(from.start(row)..from.start(row) + from.columns),
                    to.values.part_mut(to.start(row)..to.start(row) + to.columns),
                )
            };
            norm.row(self.isa, x, out);
        }
        worker.sync();
    }

    fn activate(&self, worker: &Worker<'_>) {
        let inner = &self.shared.inner;
        let (rows, columns) = part(self.rows.len(), inner.columns, worker);
        for row in rows {
            let start = inner.start(self.rows.start + row);
            // SAFETY: these columns of the row are this worker's between the surrounding syncs.
            let values = unsafe { inner.values.part_mut(start + columns.start..start + columns.end) };
            self.isa.run(Gelu { values });
        }
        worker.sync();
    }
}

/// Gaussian error linear units, in place: `x (1 + erf(x / √2)) / 2`.
///
/// With `z = |x| / √2`, `1 - erf(z)` is a polynomial in `1 / (1 + pz)` times `e^-z²`, to 1.5e-7. (Abramowitz and Stegun,
/// *Handbook of Mathematical Functions*, 7.1.26)
struct Gelu<'a> {
    values: &'a mut [f32],
}

impl Kernel for Gelu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for chunk in self.values.chunks_mut(LANES) {
            let mut padded = [0.0; LANES];
            padded[..chunk.len()].copy_from_slice(chunk);
            // SAFETY: 16 floats.
            unsafe { s.store(padded.as_mut_ptr(), gelu(s, s.load(padded.as_ptr()))) };
            chunk.copy_from_slice(&padded[..chunk.len()]);
        }
    }
}

#[inline(always)]
fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    let (one, zero) = (s.splat(1.0), s.splat(0.0));
    let z = s.mul(s.abs(x), s.splat(std::f32::consts::FRAC_1_SQRT_2));
    let t = s.div(one, s.fma(z, s.splat(0.327_591_1), one));
    let mut p = s.splat(1.061_405_4);
    for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        p = s.fma(p, t, s.splat(c));
    }
    let rest = s.mul(s.mul(p, t), exp(s, s.sub(zero, s.mul(z, z))));
    // Half of what is missing to all of x, or half of what is left of it.
    let half = s.mul(s.mul(x, s.splat(0.5)), rest);
    s.select_lt(x, zero, half, s.sub(x, half))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the series of the error function, in double precision.
    fn exact(x: f64) -> f64 {
        let z = x / std::f64::consts::SQRT_2;
        let (mut term, mut sum) = (z, z);
        for n in 1..200 {
            let n = f64::from(n);
            term *= -z * z / n;
            sum += term / (2.0 * n + 1.0);
        }
        0.5 * x * (1.0 + sum * std::f64::consts::FRAC_2_SQRT_PI)
    }

    #[test]
    fn gelu_is_exact_and_the_same_everywhere() {
        let xs: Vec<f32> = (-500..=500).map(|i| i as f32 / 100.0).collect();
        let of = |isa: Isa| {
            let mut values = xs.clone();
            isa.run(Gelu { values: &mut values });
            values
        };
        let reference = of(Isa::Portable);
        for (x, y) in xs.iter().zip(&reference) {
            assert!((f64::from(*y) - exact(f64::from(*x))).abs() < 1e-6, "gelu({x}) = {y}");
        }
        for isa in Isa::available() {
            assert_eq!(of(isa), reference, "{isa}");
        }
    }
}
