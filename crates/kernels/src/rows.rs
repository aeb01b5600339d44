//! What happens to single rows between the matrix products: norms, rope, biases.

use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd};

/// What a root-mean-square norm multiplies a row with: `1 / √(mean(x²) + ε)`.
pub(crate) fn inverse_rms(isa: Isa, x: &[f32], epsilon: f32) -> f32 {
    isa.run(InverseRms { x, epsilon })
}

/// `out = x × scale × weight`: the norm of a row, or of some columns of it, given the row's [`inverse_rms`].
///
/// # Panics
/// If the lengths differ.
pub(crate) fn scale_columns(isa: Isa, x: &[f32], scale: f32, weight: &[f32], out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len());
    isa.run(ScaleColumns { x, scale, weight, out });
}

/// Root-mean-square norm of a row in place: `x = x / √(mean(x²) + ε) × weight`.
///
/// # Panics
/// If the lengths differ.
pub fn rms_norm_in_place(isa: Isa, x: &mut [f32], weight: &[f32], epsilon: f32) {
    assert!(x.len() == weight.len());
    let scale = isa.run(InverseRms { x, epsilon });
    for (x, weight) in x.iter_mut().zip(weight) {
        *x = *x * scale * weight;
    }
}

struct InverseRms<'a> {
    x: &'a [f32],
    epsilon: f32,
}

impl Kernel for InverseRms<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = s.splat(0.0);
        let mut chunks = self.x.chunks_exact(LANES);
        for chunk in &mut chunks {
            // SAFETY: a chunk holds 16 floats.
            let x = unsafe { s.load(chunk.as_ptr()) };
            sums = s.fma(x, x, sums);
        }
        let rest: f32 = chunks.remainder().iter().map(|x| x * x).sum();
        1.0 / ((s.sum(sums) + rest) / self.x.len() as f32 + self.epsilon).sqrt()
    }
}

struct ScaleColumns<'a> {
    x: &'a [f32],
    scale: f32,
    weight: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for ScaleColumns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _s: S) {
        for ((out, x), weight) in self.out.iter_mut().zip(self.x).zip(self.weight) {
            *out = x * self.scale * weight;
        }
    }
}

/// Rotates a head: dimension `i` with dimension `i + len / 2`, by the angles whose cosines and sines are given.
///
/// # Panics
/// If the cosines and sines are not half as many as the dimensions.
pub fn rope(isa: Isa, head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    assert!(head.len().is_multiple_of(2));
    assert!(cosines.len() == head.len() / 2 && sines.len() == head.len() / 2);
    isa.run(Rope { head, cosines, sines });
}

struct Rope<'a> {
    head: &'a mut [f32],
    cosines: &'a [f32],
    sines: &'a [f32],
}

impl Kernel for Rope<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _s: S) {
        let (low, high) = self.head.split_at_mut(self.cosines.len());
        for (((a, b), cos), sin) in low.iter_mut().zip(high).zip(self.cosines).zip(self.sines) {
            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
        }
    }
}

/// `x += y`.
///
/// # Panics
/// If the lengths differ.
pub fn add(isa: Isa, x: &mut [f32], y: &[f32]) {
    assert!(x.len() == y.len());
    isa.run(AddRows { x, y });
}

struct AddRows<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
}

impl Kernel for AddRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _s: S) {
        for (x, y) in self.x.iter_mut().zip(self.y) {
            *x += y;
        }
    }
}
