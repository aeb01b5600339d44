//! What a tile keeps for each dimension of a head.

use super::HEAD_DIM_MAX;
use super::layout::{GROUP, QUAD};
use crate::simd::LANES;
use std::mem::MaybeUninit;

/// Room for what a tile of `R` pairs keeps, on the stack of who attends, for the widest heads. Only what the heads at hand
/// have is ever cleared or touched, and nothing is moved: where a context is short, clearing what six pairs of the widest
/// heads would have takes longer than attending to it.
pub(super) struct TileMemory<const R: usize> {
    query: [MaybeUninit<[f32; R]>; HEAD_DIM_MAX],
    quads: [MaybeUninit<[[i16; QUAD]; R]>; HEAD_DIM_MAX / QUAD],
    scales: [MaybeUninit<[f32; R]>; HEAD_DIM_MAX / GROUP],
    span: [[MaybeUninit<f32>; HEAD_DIM_MAX]; R],
    merged: [[MaybeUninit<f32>; HEAD_DIM_MAX]; R],
}

/// The same for heads of some width, all zero.
pub(super) struct TileParts<'m, const R: usize> {
    /// `[dimension][pair]`.
    pub(super) query: &'m mut [[f32; R]],
    /// `[quad of dimensions][pair]`.
    pub(super) quads: &'m mut [[[i16; QUAD]; R]],
    /// `[group of dimensions][pair]`.
    pub(super) scales: &'m mut [[f32; R]],
    /// `[dimension]` of each pair: of a span, and of all.
    pub(super) span: [&'m mut [f32]; R],
    pub(super) merged: [&'m mut [f32]; R],
}

impl<const R: usize> TileMemory<R> {
    /// Costs nothing.
    pub(super) const NEW: Self = Self {
        query: [const { MaybeUninit::uninit() }; HEAD_DIM_MAX],
        quads: [const { MaybeUninit::uninit() }; HEAD_DIM_MAX / QUAD],
        scales: [const { MaybeUninit::uninit() }; HEAD_DIM_MAX / GROUP],
        span: [[const { MaybeUninit::uninit() }; HEAD_DIM_MAX]; R],
        merged: [[const { MaybeUninit::uninit() }; HEAD_DIM_MAX]; R],
    };

    /// What heads of `dim` dimensions need of it.
    ///
    /// # Panics
    /// If no head is that wide, or the width is not one of registers.
    #[inline(always)]
    pub(super) fn parts(&mut self, dim: usize) -> TileParts<'_, R> {
        assert!(dim.is_multiple_of(LANES));
        TileParts {
            query: filled(&mut self.query[..dim], [0.0; R]),
            quads: filled(&mut self.quads[..dim / QUAD], [[0; QUAD]; R]),
            scales: filled(&mut self.scales[..dim.div_ceil(GROUP)], [0.0; R]),
            span: of_pairs(&mut self.span, dim),
            merged: of_pairs(&mut self.merged, dim),
        }
    }
}

#[inline(always)]
fn filled<T: Copy>(all: &mut [MaybeUninit<T>], with: T) -> &mut [T] {
    for one in &mut *all {
        one.write(with);
    }
    // SAFETY: all were written.
    unsafe { all.assume_init_mut() }
}

/// Zeroes of each pair, one pair right behind the other, so that they do not share places of a cache.
#[inline(always)]
fn of_pairs<const R: usize>(all: &mut [[MaybeUninit<f32>; HEAD_DIM_MAX]; R], dim: usize) -> [&mut [f32]; R] {
    let mut left = filled(&mut all.as_flattened_mut()[..R * dim], 0.0);
    std::array::from_fn(|_| {
        let (own, others) = std::mem::take(&mut left).split_at_mut(dim);
        left = others;
        own
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_their_own_zeroes() {
        let mut memory = TileMemory::<3>::NEW;
        for dim in [16, 48, HEAD_DIM_MAX] {
            let parts = memory.parts(dim);
            assert_eq!((parts.query.len(), parts.quads.len(), parts.scales.len()), (dim, dim / 4, dim.div_ceil(32)));
            assert!(parts.query.iter().flatten().chain(parts.scales.iter().flatten()).all(|number| *number == 0.0));
            for (pair, values) in parts.span.into_iter().chain(parts.merged).enumerate() {
                assert!(values.len() == dim && values.iter().all(|value| *value == 0.0), "{pair}");
                values.fill(1.0);
            }
        }
    }
}
