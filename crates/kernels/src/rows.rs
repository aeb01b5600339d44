//! What happens to single rows between the matrix products: norms, rope, biases.

use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd, exp};

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

/// What a layer norm takes off a row and multiplies it with then: its mean, and `1 / √(variance + ε)`.
pub(crate) fn mean_and_inverse_deviation(isa: Isa, x: &[f32], epsilon: f32) -> (f32, f32) {
    isa.run(Moments { x, epsilon })
}

/// `out = (x - mean) × scale × weight + bias`: the layer norm of some columns of a row, given the row's
/// [`mean_and_inverse_deviation`].
///
/// # Panics
/// If the lengths differ.
pub(crate) fn centre_columns(
    isa: Isa,
    x: &[f32],
    (mean, scale): (f32, f32),
    weight: &[f32],
    bias: &[f32],
    out: &mut [f32],
) {
    assert!(x.len() == weight.len() && x.len() == bias.len() && x.len() == out.len());
    isa.run(CentreColumns { x, mean, scale, weight, bias, out });
}

/// `x += scale × y`.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn add_scaled(isa: Isa, x: &mut [f32], scale: f32, y: &[f32]) {
    assert!(x.len() == y.len());
    isa.run(AddScaled { x, scale, y });
}

/// `x = e^(x - largest)`, in place.
pub(crate) fn exponentials(isa: Isa, x: &mut [f32], largest: f32) {
    isa.run(Exponentials { x, largest });
}

/// Products of one row with rows of a matrix in single precision: `out[i] = x · matrix[i]`, each sum in sixteen lanes
/// and the rest of the columns one after the other.
///
/// # Panics
/// If the matrix has not as many rows as `out` has values.
pub fn dots(isa: Isa, x: &[f32], matrix: &[f32], out: &mut [f32]) {
    assert!(matrix.len() == x.len() * out.len());
    isa.run(Dots { x, matrix, out });
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

struct Moments<'a> {
    x: &'a [f32],
    epsilon: f32,
}

impl Kernel for Moments<'_> {
    type Output = (f32, f32);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, f32) {
        let count = self.x.len() as f32;
        let (whole, rest) = self.x.as_chunks::<LANES>();
        let mut sums = s.splat(0.0);
        for chunk in whole {
            // SAFETY: a chunk holds 16 floats.
            sums = s.add(sums, unsafe { s.load(chunk.as_ptr()) });
        }
        let mean = (s.sum(sums) + rest.iter().sum::<f32>()) / count;
        let mut squares = s.splat(0.0);
        for chunk in whole {
            // SAFETY: as above.
            let far = s.sub(unsafe { s.load(chunk.as_ptr()) }, s.splat(mean));
            squares = s.fma(far, far, squares);
        }
        let rest: f32 = rest.iter().map(|x| (x - mean) * (x - mean)).sum();
        (mean, 1.0 / ((s.sum(squares) + rest) / count + self.epsilon).sqrt())
    }
}

struct CentreColumns<'a> {
    x: &'a [f32],
    mean: f32,
    scale: f32,
    weight: &'a [f32],
    bias: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for CentreColumns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _s: S) {
        let columns = self.x.iter().zip(self.weight).zip(self.bias);
        for (out, ((x, weight), bias)) in self.out.iter_mut().zip(columns) {
            *out = (x - self.mean) * self.scale * weight + bias;
        }
    }
}

struct AddScaled<'a> {
    x: &'a mut [f32],
    scale: f32,
    y: &'a [f32],
}

impl Kernel for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _s: S) {
        for (x, y) in self.x.iter_mut().zip(self.y) {
            *x += self.scale * y;
        }
    }
}

struct Exponentials<'a> {
    x: &'a mut [f32],
    largest: f32,
}

impl Kernel for Exponentials<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for chunk in self.x.chunks_mut(LANES) {
            let mut padded = [0.0; LANES];
            padded[..chunk.len()].copy_from_slice(chunk);
            // SAFETY: 16 floats.
            unsafe {
                let x = s.load(padded.as_ptr());
                s.store(padded.as_mut_ptr(), exp(s, s.sub(x, s.splat(self.largest))));
            }
            chunk.copy_from_slice(&padded[..chunk.len()]);
        }
    }
}

struct Dots<'a> {
    x: &'a [f32],
    matrix: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let columns = self.x.len();
        let mut blocks = self.out.chunks_exact_mut(DOTS);
        let mut at = 0;
        for block in &mut blocks {
            block.copy_from_slice(&dots_of::<S, DOTS>(s, self.x, &self.matrix[at..at + DOTS * columns]));
            at += DOTS * columns;
        }
        for out in blocks.into_remainder() {
            *out = dots_of::<S, 1>(s, self.x, &self.matrix[at..at + columns])[0];
            at += columns;
        }
    }
}

/// Chains of sums that run beside each other: one alone would wait for each addition.
const DOTS: usize = 8;

#[inline(always)]
fn dots_of<S: Simd, const N: usize>(s: S, x: &[f32], matrix: &[f32]) -> [f32; N] {
    let columns = x.len();
    let whole = columns - columns % LANES;
    let mut sums = [s.splat(0.0); N];
    for at in (0..whole).step_by(LANES) {
        // SAFETY: `at + 16 <= columns`, and the matrix has `N` rows of so many (the slices of `Dots::run`).
        unsafe {
            let x = s.load(x.as_ptr().add(at));
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = s.fma(s.load(matrix.as_ptr().add(row * columns + at)), x, *sum);
            }
        }
    }
    // A loop: a closure would not be compiled for the instruction set.
    let mut out = [0.0; N];
    for row in 0..N {
        let rest = &matrix[row * columns + whole..(row + 1) * columns];
        let rest: f32 = rest.iter().zip(&x[whole..]).map(|(weight, x)| weight * x).sum();
        out[row] = s.sum(sums[row]) + rest;
    }
    out
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
