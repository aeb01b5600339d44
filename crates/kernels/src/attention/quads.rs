//! The products of keys and values of eight bits, in integers.
//!
//! Queries, and weights times the values' scales, are rounded to 16 bits with a scale for each group of dimensions: some
//! hundred times finer than what keys and values have lost already, so that it does not show. Products of 16 bits with 8
//! add up without rounding, over a group of keys' dimensions or over the positions of a page; only these sums become
//! floats. **Invariant:** sums are exact, so the order of positions within a page, and whether they lie in the sequence's
//! page or in a branch's, changes nothing to the bit.

use super::HEAD_DIM_MAX;
use super::fetch::Fetch;
use super::layout::{GROUP, PAGE, QUAD, SCALE_UNIT, VECTORS};
use super::softmax::Softmax;
use crate::simd::{LANES, Simd};
use half::f16;

/// The largest factor.
const FACTOR_MAX: f32 = i16::MAX as f32;

/// What is so small counts as nothing: one by it would be infinite.
const NOTHING: f32 = 1e-30;

/// Groups of a head at most.
const GROUPS_MAX: usize = HEAD_DIM_MAX / GROUP;

/// One side of a page: the keys or the values of a layer and head.
#[derive(Clone, Copy)]
pub(super) struct Quads {
    pub(super) quants: *const u8,
    /// `[group][position]`, in half precision.
    pub(super) scales: *const u16,
    /// Dimensions of a head.
    pub(super) dim: usize,
}

impl Quads {
    /// The scales of a group at sixteen positions, register `v` of the page's, in units of [`SCALE_UNIT`].
    #[inline(always)]
    unsafe fn scales<S: Simd>(self, s: S, group: usize, v: usize) -> S::F {
        // SAFETY: within the scales of the page.
        unsafe { s.load_f16(self.scales.add(group * PAGE + v * LANES)) }
    }

    /// The scale of a group at one position.
    ///
    /// # Safety
    /// This is a side of a page, which nobody writes meanwhile, and the position is in it.
    pub(super) unsafe fn scale(self, group: usize, position: usize) -> f32 {
        // SAFETY: within the scales of the page.
        f16::from_bits(unsafe { *self.scales.add(group * PAGE + position) }).to_f32()
    }
}

/// Queries, rounded.
pub(super) struct QueryFactors<const R: usize> {
    /// By quad of dimensions, as [`Simd::factors`] wants them.
    quads: [[[i16; QUAD]; R]; HEAD_DIM_MAX / QUAD],
    /// By group.
    scales: [[f32; R]; GROUPS_MAX],
}

impl<const R: usize> QueryFactors<R> {
    pub(super) const NONE: Self = Self { quads: [[[0; QUAD]; R]; HEAD_DIM_MAX / QUAD], scales: [[0.0; R]; GROUPS_MAX] };

    /// Of queries `[dimension][query]`.
    #[inline(always)]
    pub(super) fn round<S: Simd>(&mut self, s: S, query: &[[f32; R]]) {
        for (group, part) in query.chunks(GROUP).enumerate() {
            for r in 0..R {
                let mut numbers = [0.0; GROUP];
                for (number, dimension) in numbers.iter_mut().zip(part) {
                    *number = dimension[r];
                }
                let (mut factors, mut scale) = ([0; GROUP], 0.0);
                // SAFETY: a group is two registers.
                unsafe { to_factors(s, &numbers, &mut factors, &mut scale) };
                for (quad, factors) in factors.as_chunks::<QUAD>().0.iter().enumerate().take(part.len() / QUAD) {
                    self.quads[group * (GROUP / QUAD) + quad][r] = *factors;
                }
                self.scales[group][r] = scale * SCALE_UNIT;
            }
        }
    }

    /// Products with the first keys, at least `slots` of them; 0 for others.
    ///
    /// # Safety
    /// `keys` are a page's keys, which nobody writes meanwhile.
    #[inline(always)]
    pub(super) unsafe fn scores<S: Simd>(&self, s: S, keys: Quads, fetch: Fetch, slots: usize) -> [[S::F; VECTORS]; R] {
        let mut scores = [[s.splat(0.0); VECTORS]; R];
        let together = if R * TWO <= S::SUMS { TWO } else { 1 };
        for first in (0..slots.div_ceil(LANES)).step_by(together) {
            // SAFETY: the caller's.
            unsafe {
                if together == TWO {
                    self.score_vectors::<S, TWO>(s, keys, fetch, first, &mut scores);
                } else {
                    self.score_vectors::<S, 1>(s, keys, fetch, first, &mut scores);
                }
            }
        }
        scores
    }

    /// The scores of `V` registers of slots, from register `first` on: with six queries and two registers, as many sums as
    /// hide what a product takes, and few enough to stay in 32 wide registers.
    #[inline(always)]
    unsafe fn score_vectors<S: Simd, const V: usize>(
        &self,
        s: S,
        keys: Quads,
        fetch: Fetch,
        first: usize,
        scores: &mut [[S::F; VECTORS]; R],
    ) {
        for (group, from) in (0..keys.dim).step_by(GROUP).enumerate() {
            let mut sums = [[s.splat_i(0); V]; R];
            for quad in from / QUAD..keys.dim.min(from + GROUP) / QUAD {
                if first == 0 {
                    fetch.step(s, quad);
                }
                // SAFETY: within the keys of the page.
                let at = |v: usize| unsafe { keys.quants.add(((first + v) * keys.dim + quad * QUAD) * LANES) };
                // SAFETY: 64 bytes of keys.
                let mut operands = [s.quads(unsafe { s.load_bytes(at(0)) }); V];
                for (v, operand) in operands.iter_mut().enumerate().skip(1) {
                    // SAFETY: as above.
                    *operand = s.quads(unsafe { s.load_bytes(at(v)) });
                }
                for (sums, query) in sums.iter_mut().zip(&self.quads[quad]) {
                    // SAFETY: four factors.
                    let query = unsafe { s.factors(query.as_ptr()) };
                    for (sum, key) in sums.iter_mut().zip(operands) {
                        *sum = s.dot_quads(*sum, key, query);
                    }
                }
            }
            for v in 0..V {
                // SAFETY: within the scales of the page.
                let scales = unsafe { keys.scales(s, group, first + v) };
                for ((scores, sums), scale) in scores.iter_mut().zip(&sums).zip(self.scales[group]) {
                    let product = s.mul(s.to_floats(sums[v]), s.splat(scale));
                    scores[first + v] = s.fma(product, scales, scores[first + v]);
                }
            }
        }
    }
}

/// Registers of slots, or of dimensions, that are summed up together.
const TWO: usize = 2;

/// Some values of a page, and the factors that they are multiplied with.
pub(super) struct Weighed<'a, const R: usize> {
    pub(super) values: Quads,
    pub(super) factors: &'a [[i16; PAGE]; R],
    /// Those behind have no weight.
    pub(super) positions: usize,
}

/// The weights of a page's positions times the scales of a group of values.
pub(super) struct WeightFactors<const R: usize> {
    /// By position, quads as [`Simd::factors`] wants them.
    pub(super) factors: [[i16; PAGE]; R],
    scales: [f32; R],
}

impl<const R: usize> WeightFactors<R> {
    /// Rounds them. `weights` are already multiplied with the values' scales.
    #[inline(always)]
    pub(super) fn round<S: Simd>(s: S, weights: &[[f32; PAGE]; R]) -> Self {
        let (mut factors, mut scales) = ([[0; PAGE]; R], [0.0; R]);
        for ((weights, factors), scale) in weights.iter().zip(&mut factors).zip(&mut scales) {
            // SAFETY: a page's positions are four registers.
            unsafe { to_factors(s, weights, factors, scale) };
            *scale *= SCALE_UNIT;
        }
        Self { factors, scales }
    }

    /// Adds weighted values of a group, of one or several pages, to results.
    ///
    /// # Safety
    /// Values are those of pages, which nobody writes meanwhile.
    #[inline(always)]
    pub(super) unsafe fn add<S: Simd>(
        &self,
        s: S,
        group: usize,
        pages: &[Weighed<'_, R>],
        fetch: Fetch,
        into: &mut [Softmax; R],
    ) {
        let Some(dim) = pages.first().map(|page| page.values.dim) else { return };
        let from = group * GROUP;
        // SAFETY: the caller's; the last group of a head may be one register.
        unsafe {
            if from + GROUP <= dim && R * TWO <= S::SUMS {
                self.add_vectors::<S, TWO>(s, from, pages, fetch, into);
            } else {
                for from in (from..dim.min(from + GROUP)).step_by(LANES) {
                    self.add_vectors::<S, 1>(s, from, pages, fetch, into);
                }
            }
        }
    }

    /// `N` registers of dimensions.
    #[inline(always)]
    unsafe fn add_vectors<S: Simd, const N: usize>(
        &self,
        s: S,
        from: usize,
        pages: &[Weighed<'_, R>],
        fetch: Fetch,
        into: &mut [Softmax; R],
    ) {
        let mut sums = [[s.splat_i(0); N]; R];
        for Weighed { values: Quads { quants, dim, .. }, factors, positions } in pages {
            for quad in 0..positions.div_ceil(QUAD) {
                if from == 0 {
                    fetch.step(s, quad);
                }
                // SAFETY: within the values of the page.
                let at = unsafe { quants.add((quad * dim + from) * QUAD) };
                // SAFETY: 64 bytes of values.
                let mut values = [s.quads(unsafe { s.load_bytes(at) }); N];
                for (v, value) in values.iter_mut().enumerate().skip(1) {
                    // SAFETY: `N` registers of values.
                    *value = s.quads(unsafe { s.load_bytes(at.add(v * LANES * QUAD)) });
                }
                for (sums, factors) in sums.iter_mut().zip(*factors) {
                    // SAFETY: within a page's factors.
                    let weights = unsafe { s.factors(factors.as_ptr().add(quad * QUAD)) };
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = s.dot_quads(*sum, value, weights);
                    }
                }
            }
        }
        for ((sums, softmax), scale) in sums.iter().zip(into).zip(self.scales) {
            for (v, sum) in sums.iter().enumerate() {
                // SAFETY: a head's dimensions, a multiple of 16 of them.
                unsafe {
                    let to = softmax.values.as_mut_ptr().add(from + v * LANES);
                    s.store(to, s.fma(s.to_floats(*sum), s.splat(scale), s.load(to)));
                }
            }
        }
    }
}

/// Where the factor of a position stands.
pub(super) fn factor_at(position: usize) -> usize {
    const PLACES: [usize; QUAD] = [0, 2, 1, 3];
    position / QUAD * QUAD + PLACES[position % QUAD]
}

/// Weights times the scales of a group at their positions.
///
/// # Safety
/// `values` are those of a page, which nobody writes meanwhile.
#[inline(always)]
pub(super) unsafe fn scaled<S: Simd, const R: usize>(
    s: S,
    weights: &[[f32; PAGE]; R],
    values: Quads,
    group: usize,
) -> [[f32; PAGE]; R] {
    let mut scaled = *weights;
    for v in 0..VECTORS {
        // SAFETY: the caller's; a row has `VECTORS` registers.
        unsafe {
            let scales = values.scales(s, group, v);
            for row in &mut scaled {
                let at = row.as_mut_ptr().add(v * LANES);
                s.store(at, s.mul(s.load(at), scales));
            }
        }
    }
    scaled
}

/// Rounds numbers to 16 bits, in the order of factors.
///
/// # Safety
/// `N` is a multiple of 16.
#[inline(always)]
unsafe fn to_factors<S: Simd, const N: usize>(s: S, from: &[f32; N], to: &mut [i16; N], scale: &mut f32) {
    // SAFETY: the caller's.
    unsafe {
        let mut largest = s.splat(0.0);
        for at in (0..N).step_by(LANES) {
            largest = s.max(s.abs(s.load(from.as_ptr().add(at))), largest);
        }
        let largest = s.max_lane(largest);
        if largest < NOTHING {
            return;
        }
        *scale = largest / FACTOR_MAX;
        let inverse = s.splat(FACTOR_MAX / largest);
        for at in (0..N).step_by(LANES) {
            s.store_factors(to.as_mut_ptr().add(at), s.mul(s.load(from.as_ptr().add(at)), inverse));
        }
    }
}
