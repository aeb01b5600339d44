//! The products of keys and values of eight bits, and of values of four, in integers.
//!
//! Keys and values are [turned](super::rotation), and so are queries; what values add up to has to be turned back.
//! Queries, and weights times the values' scales, are rounded to 16 bits with a scale for each group of dimensions: some
//! hundred times finer than what keys and values have lost already, so that it does not show. Products of 16 bits with 8
//! add up without rounding, over a group of keys' dimensions or over the positions of a page; only these sums become
//! floats. **Invariant:** sums are exact, so the order of positions within a page, and whether they lie in the sequence's
//! page or in a branch's, changes nothing to the bit.

use super::fetch::Fetch;
use super::layout::{GROUP, NIBBLE_ZERO, PAGE, QUAD, SCALE_UNIT, VECTORS};
use super::rotation::turn;
use super::softmax::Softmax;
use crate::simd::{LANES, Simd};
use half::f16;

/// The largest factor.
const FACTOR_MAX: f32 = i16::MAX as f32;

/// What is so small counts as nothing: one by it would be infinite.
const NOTHING: f32 = 1e-30;

/// Keys or values of a layer and head in eight bits.
#[derive(Clone, Copy)]
pub(super) struct Quads {
    pub(super) quants: *const u8,
    /// `[group][position]`, in half precision.
    pub(super) scales: *const u16,
    /// Dimensions of a head.
    pub(super) dim: usize,
}

/// Values of a layer and head in four bits.
#[derive(Clone, Copy)]
pub(super) struct Nibbles {
    pub(super) quants: *const u8,
    /// `[group][position]`, in half precision.
    pub(super) scales: *const u16,
    /// The same for what [`NIBBLE_ZERO`] stands for.
    pub(super) centres: *const u16,
    /// Dimensions of a head.
    pub(super) dim: usize,
}

/// Values as integers.
pub(super) trait Values: Copy {
    /// The quant that stands for a number that groups have, their centre; absent if zero stands for zero.
    const CENTRE: Option<i32>;

    /// Dimensions of a head.
    fn dim(self) -> usize;

    /// `N` registers of dimensions, from dimension `from` on, of the four positions of a quad.
    ///
    /// # Safety
    /// These are values of a page, which nobody writes meanwhile, and the quad and the dimensions are in it.
    unsafe fn quads<S: Simd, const N: usize>(self, s: S, quad: usize, from: usize) -> [S::Q; N];

    /// What groups have at all positions: [`SCALES`] and [`CENTRES`].
    fn of_groups(self) -> [*const u16; 2];
}

/// Which of [`Values::of_groups`].
pub(super) const SCALES: usize = 0;
pub(super) const CENTRES: usize = 1;

impl Values for Quads {
    const CENTRE: Option<i32> = None;

    fn dim(self) -> usize {
        self.dim
    }

    #[inline(always)]
    unsafe fn quads<S: Simd, const N: usize>(self, s: S, quad: usize, from: usize) -> [S::Q; N] {
        // SAFETY: the caller's; 64 bytes of values.
        unsafe {
            let at = self.quants.add((quad * self.dim + from) * QUAD);
            let mut values = [s.quads(s.load_bytes(at)); N];
            if N == TWO {
                values[1] = s.quads(s.load_bytes(at.add(LANES * QUAD)));
            }
            values
        }
    }

    #[inline(always)]
    fn of_groups(self) -> [*const u16; 2] {
        [self.scales; 2]
    }
}

impl Values for Nibbles {
    const CENTRE: Option<i32> = Some(NIBBLE_ZERO);

    fn dim(self) -> usize {
        self.dim
    }

    #[inline(always)]
    unsafe fn quads<S: Simd, const N: usize>(self, s: S, quad: usize, from: usize) -> [S::Q; N] {
        // SAFETY: the caller's; a group's four positions are 64 bytes.
        unsafe {
            let group = quad * self.dim.div_ceil(GROUP) + from / GROUP;
            let (low, high) = s.nibbles(s.load_bytes(self.quants.add(group * LANES * QUAD)));
            if N == TWO {
                let mut values = [s.quads(low); N];
                values[1] = s.quads(high);
                return values;
            }
            [s.quads(if from.is_multiple_of(GROUP) { low } else { high }); N]
        }
    }

    #[inline(always)]
    fn of_groups(self) -> [*const u16; 2] {
        [self.scales, self.centres]
    }
}

/// What a group has at sixteen positions, register `v` of the page's.
///
/// # Safety
/// `of_groups` are the scales or the centres of a page, which nobody writes meanwhile.
#[inline(always)]
pub(super) unsafe fn at_positions<S: Simd>(s: S, of_groups: *const u16, group: usize, v: usize) -> S::F {
    // SAFETY: the caller's.
    unsafe { s.load_f16(of_groups.add(group * PAGE + v * LANES)) }
}

/// What a group has at one position.
///
/// # Safety
/// As [`at_positions`], and the position is in the page.
pub(super) unsafe fn at_position(of_groups: *const u16, group: usize, position: usize) -> f32 {
    // SAFETY: the caller's.
    f16::from_bits(unsafe { *of_groups.add(group * PAGE + position) }).to_f32()
}

/// Queries, turned and rounded.
pub(super) struct QueryFactors<'m, const R: usize> {
    /// By quad of dimensions, as [`Simd::factors`] wants them.
    pub(super) quads: &'m mut [[[i16; QUAD]; R]],
    /// By group.
    pub(super) scales: &'m mut [[f32; R]],
}

impl<const R: usize> QueryFactors<'_, R> {
    /// Of queries `[dimension][query]`, as they are.
    #[inline(always)]
    pub(super) fn round<S: Simd>(&mut self, s: S, query: &[[f32; R]]) {
        for (group, part) in query.chunks(GROUP).enumerate() {
            for r in 0..R {
                let mut numbers = [0.0; GROUP];
                for (number, dimension) in numbers.iter_mut().zip(part) {
                    *number = dimension[r];
                }
                turn(s, &mut numbers[..part.len()]);
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

    /// Products with the first keys, at least `slots` of them; the scores of others stay.
    ///
    /// # Safety
    /// `keys` are a page's keys, which nobody writes meanwhile.
    #[inline(always)]
    pub(super) unsafe fn scores<S: Simd>(
        &self,
        s: S,
        keys: Quads,
        fetch: Fetch,
        slots: usize,
        scores: &mut [[S::F; VECTORS]; R],
    ) {
        let together = if R * TWO <= S::SUMS { TWO } else { 1 };
        for first in (0..slots.div_ceil(LANES)).step_by(together) {
            // SAFETY: the caller's.
            unsafe {
                if together == TWO {
                    self.score_vectors::<S, TWO>(s, keys, fetch, first, scores);
                } else {
                    self.score_vectors::<S, 1>(s, keys, fetch, first, scores);
                }
            }
        }
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
                    fetch.step(quad);
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
                let scales = unsafe { at_positions(s, keys.scales, group, first + v) };
                for ((scores, sums), scale) in scores.iter_mut().zip(&sums).zip(self.scales[group]) {
                    let product = s.mul(s.to_floats(sums[v]), s.splat(scale));
                    let before = if group == 0 { s.splat(0.0) } else { scores[first + v] };
                    scores[first + v] = s.fma(product, scales, before);
                }
            }
        }
    }
}

/// Registers of slots, or of dimensions, that are summed up together.
const TWO: usize = 2;

/// Some values of a page, and the factors that they are multiplied with.
pub(super) struct Weighed<'a, V, const R: usize> {
    pub(super) values: V,
    pub(super) factors: &'a [[i16; PAGE]; R],
    /// Those behind have no weight.
    pub(super) positions: usize,
}

/// The weights of a page's positions times the scales of a group of values. Rounded beside what they could be at most, the
/// page's largest weight times the group's largest scale: that is known for all pairs that see the page at once.
pub(super) struct WeightFactors<const R: usize> {
    /// By position, quads as [`Simd::factors`] wants them.
    pub(super) factors: [[i16; PAGE]; R],
    scales: [f32; R],
    /// Where integer sums start.
    starts: [i32; R],
}

impl<const R: usize> WeightFactors<R> {
    pub(super) const NONE: Self = Self { factors: [[0; PAGE]; R], scales: [0.0; R], starts: [0; R] };

    /// Rounds weights times the scales of a group of values, `[position]` in half precision, where all pairs see all
    /// positions. Weights are 1 at most, which counts as one of `tops`.
    ///
    /// # Safety
    /// `scales` are a page's, which nobody writes meanwhile.
    #[inline(always)]
    pub(super) unsafe fn round<S: Simd>(
        &mut self,
        s: S,
        (weights, tops): (&[[f32; PAGE]; R], &[f32; LANES]),
        scales: *const u16,
        group: usize,
    ) {
        // SAFETY: the caller's; a page's positions are `VECTORS` registers.
        unsafe {
            let mut over = [s.splat(0.0); VECTORS];
            for (v, scales_of) in over.iter_mut().enumerate() {
                *scales_of = at_positions(s, scales, group, v);
            }
            let largest = over_largest(s, &mut over);
            for (r, weights) in weights.iter().enumerate() {
                self.scales[r] = tops[r] * (largest / FACTOR_MAX * SCALE_UNIT);
                store_products(s, weights, over, &mut self.factors[r]);
            }
        }
    }

    /// The same with each pair's own scales, `[pair][position]`, zero where it sees nothing.
    #[inline(always)]
    pub(super) fn round_each<S: Simd>(
        &mut self,
        s: S,
        (weights, tops): (&[[f32; PAGE]; R], &[f32; LANES]),
        scales: &[[f32; PAGE]; R],
    ) {
        for (r, (weights, scales)) in weights.iter().zip(scales).enumerate() {
            // SAFETY: a page's positions are `VECTORS` registers.
            unsafe {
                let mut over = [s.splat(0.0); VECTORS];
                for (v, scales_of) in over.iter_mut().enumerate() {
                    *scales_of = s.load(scales.as_ptr().add(v * LANES));
                }
                let largest = over_largest(s, &mut over);
                self.scales[r] = tops[r] * (largest / FACTOR_MAX * SCALE_UNIT);
                store_products(s, weights, over, &mut self.factors[r]);
            }
        }
    }

    /// Lets sums count quants from `centre`: rounded weights then multiply small numbers of both signs, and what rounding
    /// takes from them does not add up to something that all dimensions have.
    #[inline(always)]
    pub(super) fn count_from(&mut self, centre: i32) {
        for (start, factors) in self.starts.iter_mut().zip(&self.factors) {
            *start = -centre * factors.iter().map(|factor| i32::from(*factor)).sum::<i32>();
        }
    }

    /// Adds weighted values of a group, of one or several pages, to results.
    ///
    /// # Safety
    /// Values are those of pages, which nobody writes meanwhile.
    #[inline(always)]
    pub(super) unsafe fn add<S: Simd, V: Values>(
        &self,
        s: S,
        group: usize,
        pages: &[Weighed<'_, V, R>],
        fetch: Fetch,
        into: &mut [Softmax<'_>; R],
    ) {
        let Some(dim) = pages.first().map(|page| page.values.dim()) else { return };
        let from = group * GROUP;
        // SAFETY: the caller's; the last group of a head may be one register.
        unsafe {
            if from + GROUP <= dim && R * TWO <= S::SUMS {
                self.add_vectors::<S, V, TWO>(s, from, pages, fetch, into);
            } else {
                for from in (from..dim.min(from + GROUP)).step_by(LANES) {
                    self.add_vectors::<S, V, 1>(s, from, pages, fetch, into);
                }
            }
        }
    }

    /// `N` registers of dimensions.
    #[inline(always)]
    unsafe fn add_vectors<S: Simd, V: Values, const N: usize>(
        &self,
        s: S,
        from: usize,
        pages: &[Weighed<'_, V, R>],
        fetch: Fetch,
        into: &mut [Softmax<'_>; R],
    ) {
        let mut sums = [[s.splat_i(0); N]; R];
        for (sums, start) in sums.iter_mut().zip(self.starts) {
            *sums = [s.splat_i(start); N];
        }
        for Weighed { values, factors, positions } in pages {
            for quad in 0..positions.div_ceil(QUAD) {
                if from == 0 {
                    fetch.step(quad);
                }
                // SAFETY: within the values of the page.
                let values: [S::Q; N] = unsafe { values.quads(s, quad, from) };
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

/// Makes of scales the factors that they stand for beside the largest, which becomes the largest factor. Returns that scale.
#[inline(always)]
fn over_largest<S: Simd>(s: S, scales: &mut [S::F; VECTORS]) -> f32 {
    let mut highest = scales[0];
    for scale in &scales[1..] {
        highest = s.max(*scale, highest);
    }
    let largest = s.max_lane(highest);
    let inverse = s.splat(if largest < NOTHING { 0.0 } else { FACTOR_MAX / largest });
    for scale in scales {
        *scale = s.mul(*scale, inverse);
    }
    largest
}

/// Rounds weights times such factors.
///
/// # Safety
/// None is above `i16::MAX`.
#[inline(always)]
unsafe fn store_products<S: Simd>(s: S, weights: &[f32; PAGE], over: [S::F; VECTORS], to: &mut [i16; PAGE]) {
    for (v, over) in over.into_iter().enumerate() {
        // SAFETY: a page's positions are `VECTORS` registers.
        unsafe {
            let product = s.mul(s.load(weights.as_ptr().add(v * LANES)), over);
            s.store_factors(to.as_mut_ptr().add(v * LANES), product);
        }
    }
}

/// Adds the sum of weighted centres, `[pair][position]`, to all dimensions of a group. It is made in the order of the
/// positions, wherever they lie.
#[inline(always)]
pub(super) fn add_centres<S: Simd, const R: usize>(
    s: S,
    (group, dim): (usize, usize),
    (weights, tops): (&[[f32; PAGE]; R], &[f32; LANES]),
    centres: &[[f32; PAGE]; R],
    into: &mut [Softmax<'_>; R],
) {
    for (r, softmax) in into.iter_mut().enumerate() {
        // SAFETY: a page's positions are `VECTORS` registers, and a head's dimensions a multiple of 16.
        unsafe {
            let mut sums = s.splat(0.0);
            for v in 0..VECTORS {
                let (weights, centres) = (weights[r].as_ptr().add(v * LANES), centres[r].as_ptr().add(v * LANES));
                sums = s.fma(s.load(weights), s.load(centres), sums);
            }
            let sum = s.splat(s.sum(sums) * tops[r]);
            for d in (group * GROUP..dim.min((group + 1) * GROUP)).step_by(LANES) {
                let to = softmax.values.as_mut_ptr().add(d);
                s.store(to, s.add(s.load(to), sum));
            }
        }
    }
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
            to.fill(0);
            *scale = 0.0;
            return;
        }
        *scale = largest / FACTOR_MAX;
        let inverse = s.splat(FACTOR_MAX / largest);
        for at in (0..N).step_by(LANES) {
            s.store_factors(to.as_mut_ptr().add(at), s.mul(s.load(from.as_ptr().add(at)), inverse));
        }
    }
}
