//! What a model adds to every key, kept apart from keys of eight bits.
//!
//! Some models add a bias to keys before rope turns them. Qwen 2's is hundreds of times as large as what differs from key
//! to key, and with it one step of eight bits is as large as that. So eight-bit pages hold keys without their bias, and
//! scores get what it adds: to a query `q` and the key at position `n`, for each pair of dimensions that rope turns by `nθ`,
//!
//! ```text
//! q · R(nθ)b  =  cos(nθ) (q₁b₁ + q₂b₂) + sin(nθ) (q₂b₁ − q₁b₂)
//! ```
//!
//! whose brackets are the same for all positions. Biases are large where rope turns slowly: such a pair counts as turned by
//! the middle of its page, which is one sum for a page, and what that leaves stays in the keys. A pair of which too much
//! would stay is *quick*: it counts at each position.
//!
//! **Invariant:** what is taken from a key depends on the model and the key's position in its sequence alone, not on where
//! it is stored: the bytes of a key that moves from a draft's page to its sequence's stay right.

use super::layout::{PAGE, VECTORS};
use crate::memory::Aligned;
use crate::simd::{LANES, Simd};

/// More than this left in a key by a pair, and it is quick: less is within what keys without bias are like.
const LEFT_MAX: f32 = 2.0;

/// By how much rope turns each pair in the middle of each page.
#[derive(Debug)]
pub struct PageAngles {
    stride: usize,
    cosines: Aligned<f32>,
    sines: Aligned<f32>,
}

impl PageAngles {
    /// For contexts of `positions`. `frequencies` are angles from one position to the next; cosines and sines are multiplied
    /// by `magnitude`, as rope does.
    #[must_use]
    pub fn new(frequencies: &[f32], magnitude: f32, positions: usize) -> Self {
        let (stride, pages) = (frequencies.len().next_multiple_of(LANES), positions.div_ceil(PAGE));
        let mut angles =
            Self { stride, cosines: Aligned::zeroed(pages * stride), sines: Aligned::zeroed(pages * stride) };
        for page in 0..pages {
            for (pair, frequency) in frequencies.iter().enumerate() {
                let (sine, cosine) = ((page * PAGE + MIDDLE) as f64 * f64::from(*frequency)).sin_cos();
                angles.cosines[page * stride + pair] = cosine as f32 * magnitude;
                angles.sines[page * stride + pair] = sine as f32 * magnitude;
            }
        }
        angles
    }

    /// How many pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.cosines.len() / self.stride.max(1)
    }

    /// Cosines and sines of a page, padded with zeros.
    ///
    /// # Panics
    /// If there is no such page.
    #[must_use]
    pub fn page(&self, page: usize) -> (&[f32], &[f32]) {
        let row = page * self.stride..(page + 1) * self.stride;
        (&self.cosines[row.clone()], &self.sines[row])
    }
}

/// The position of a page that its pairs are turned by.
const MIDDLE: usize = PAGE / 2;

/// The bias of a layer's keys.
#[derive(Debug)]
pub struct KeyBias {
    /// `[key head][dimension]`.
    bias: Vec<f32>,
    head_dim: usize,
    pairs: usize,
    quick: Vec<Quick>,
}

/// A pair that turns too far within a page.
#[derive(Debug)]
struct Quick {
    pair: usize,
    /// From the middle of a page to each of its positions.
    cosines: [f32; PAGE],
    sines: [f32; PAGE],
}

impl KeyBias {
    /// `bias` has `head_dim` numbers for each key head, laid out for rope on halves of its first `2 * frequencies.len()`.
    ///
    /// # Panics
    /// If these do not fit together.
    #[must_use]
    pub fn new(bias: &[f32], head_dim: usize, frequencies: &[f32]) -> Self {
        let pairs = frequencies.len();
        assert!(bias.len().is_multiple_of(head_dim) && 2 * pairs <= head_dim && head_dim <= super::HEAD_DIM_MAX);
        let size = |pair: usize| {
            let heads = bias.chunks_exact(head_dim).map(|head| head[pair].hypot(head[pair + pairs]));
            heads.fold(0.0, f32::max)
        };
        let is_quick = |pair: &usize| {
            let farthest = (frequencies[*pair].abs() * MIDDLE as f32).min(std::f32::consts::PI);
            size(*pair) * 2.0 * (farthest / 2.0).sin() > LEFT_MAX
        };
        let quick = (0..pairs).filter(is_quick).map(|pair| {
            let turned = |slot: usize| (slot as f64 - MIDDLE as f64) * f64::from(frequencies[pair]);
            Quick {
                pair,
                cosines: std::array::from_fn(|slot| turned(slot).cos() as f32),
                sines: std::array::from_fn(|slot| turned(slot).sin() as f32),
            }
        });
        Self { quick: quick.collect(), bias: bias.to_vec(), head_dim, pairs }
    }

    /// Of all key heads, `[key head][dimension]`.
    #[must_use]
    pub fn of_heads(&self) -> &[f32] {
        &self.bias
    }

    /// Pairs of dimensions that rope turns.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// Pairs that turn too far within a page, and the cosines and sines from its middle to each of its positions.
    pub fn quick(&self) -> impl ExactSizeIterator<Item = (usize, [&[f32; PAGE]; 2])> {
        self.quick.iter().map(|quick| (quick.pair, [&quick.cosines, &quick.sines]))
    }

    fn head(&self, kv_head: usize) -> &[f32] {
        &self.bias[kv_head * self.head_dim..][..self.head_dim]
    }
}

/// The bias of a layer's keys, and how far it is turned where.
#[derive(Clone, Copy, Debug)]
pub struct TurnedBias<'a> {
    /// Of the layer.
    pub bias: &'a KeyBias,
    /// Of its rope.
    pub angles: &'a PageAngles,
}

impl TurnedBias<'_> {
    /// Takes from the key at a position what is kept apart.
    pub fn take_from(&self, key: &mut [f32], kv_head: usize, position: usize) {
        self.each(kv_head, position, |dimension, bias| key[dimension] -= bias);
    }

    /// Gives it back.
    pub fn give_back(&self, key: &mut [f32], kv_head: usize, position: usize) {
        self.each(kv_head, position, |dimension, bias| key[dimension] += bias);
    }

    /// Tells what is kept apart at a position, by dimension.
    fn each(&self, kv_head: usize, position: usize, mut tell: impl FnMut(usize, f32)) {
        let (bias, pairs) = (self.bias.head(kv_head), self.bias.pairs);
        let (cosines, sines) = self.angles.page(position / PAGE);
        let mut quick = self.bias.quick.iter().peekable();
        for pair in 0..pairs {
            let (mut cosine, mut sine) = (cosines[pair], sines[pair]);
            if let Some(quick) = quick.next_if(|quick| quick.pair == pair) {
                let (c, s) = (quick.cosines[position % PAGE], quick.sines[position % PAGE]);
                (cosine, sine) = (cosine * c - sine * s, sine * c + cosine * s);
            }
            let (one, other) = (bias[pair], bias[pair + pairs]);
            tell(pair, one * cosine - other * sine);
            tell(pair + pairs, one * sine + other * cosine);
        }
        for (dimension, still) in bias.iter().enumerate().skip(2 * pairs) {
            tell(dimension, *still);
        }
    }
}

/// What the bias adds to the scores of some queries that share a key head.
pub(super) struct BiasScores<'a> {
    turned: TurnedBias<'a>,
    /// Of all pairs, two by two, zero where they are quick: those add nothing to what slow ones add.
    slow: Vec<[Brackets; 2]>,
    /// Of quick pairs,
    quick: Vec<Brackets>,
    /// and the same turned by the middle of the page under way.
    quick_turned: Vec<Brackets>,
    /// Of dimensions that are not turned, which add the same everywhere, by query.
    still: [f32; LANES],
}

/// A pair's brackets, by query.
#[derive(Clone, Copy)]
struct Brackets {
    cosines: [f32; LANES],
    sines: [f32; LANES],
}

impl Brackets {
    const NONE: Self = Self { cosines: [0.0; LANES], sines: [0.0; LANES] };

    /// Of a pair's dimensions of queries and of the bias.
    #[inline(always)]
    fn new<S: Simd, const R: usize>(s: S, [one, other]: &[[f32; R]; 2], bias: [f32; 2]) -> Self {
        let mut brackets = Self::NONE;
        // SAFETY: registers of lanes.
        unsafe {
            let (one, other) = (s.load(lanes(one).as_ptr()), s.load(lanes(other).as_ptr()));
            let first = s.splat(bias[0]);
            s.store(brackets.cosines.as_mut_ptr(), s.fma(one, first, s.mul(other, s.splat(bias[1]))));
            s.store(brackets.sines.as_mut_ptr(), s.fma(other, first, s.mul(one, s.splat(-bias[1]))));
        }
        brackets
    }

    /// What they add, turned by an angle's cosine and sine, to a sum.
    #[inline(always)]
    fn add_turned<S: Simd>(&self, s: S, [cosine, sine]: [f32; 2], sum: S::F) -> S::F {
        // SAFETY: registers of lanes.
        let (along, across) = unsafe { (s.load(self.cosines.as_ptr()), s.load(self.sines.as_ptr())) };
        s.fma(s.splat(cosine), along, s.fma(s.splat(sine), across, sum))
    }

    /// The same, turned by it.
    #[inline(always)]
    fn turned<S: Simd>(&self, s: S, [cosine, sine]: [f32; 2]) -> Self {
        let mut turned = Self::NONE;
        // SAFETY: registers of lanes.
        unsafe {
            let (c, n) = (s.splat(cosine), s.splat(sine));
            let (along, across) = (s.load(self.cosines.as_ptr()), s.load(self.sines.as_ptr()));
            s.store(turned.cosines.as_mut_ptr(), s.fma(c, along, s.mul(n, across)));
            s.store(turned.sines.as_mut_ptr(), s.sub(s.mul(c, across), s.mul(n, along)));
        }
        turned
    }
}

/// Numbers of queries in the first lanes.
#[inline(always)]
fn lanes<const R: usize>(of_queries: &[f32; R]) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    lanes[..R].copy_from_slice(of_queries);
    lanes
}

/// Registers of a page's positions that are summed up together: with six queries and the angles they stay in 32 registers.
const TOGETHER: usize = 2;

impl<'a> BiasScores<'a> {
    /// For queries `[dimension][query]`, which are lanes here: 16 at most, and tiles have six.
    #[inline(always)]
    pub(super) fn new<S: Simd, const R: usize>(
        s: S,
        turned: TurnedBias<'a>,
        kv_head: usize,
        query: &[[f32; R]],
    ) -> Self {
        const { assert!(R <= LANES) };
        let (bias, pairs) = (turned.bias.head(kv_head), turned.bias.pairs);
        let mut slow = vec![[Brackets::NONE; 2]; pairs.div_ceil(2)];
        for (pair, brackets) in slow.as_flattened_mut()[..pairs].iter_mut().enumerate() {
            let queries = [query[pair], query[pair + pairs]];
            *brackets = Brackets::new(s, &queries, [bias[pair], bias[pair + pairs]]);
        }
        let of_quick = |quick: &Quick| std::mem::replace(&mut slow[quick.pair / 2][quick.pair % 2], Brackets::NONE);
        let quick: Vec<Brackets> = turned.bias.quick.iter().map(of_quick).collect();
        let mut still = [0.0_f32; LANES];
        for (query, bias) in query.iter().zip(bias).skip(2 * pairs) {
            // SAFETY: registers of lanes.
            unsafe {
                let sum = s.fma(s.load(lanes(query).as_ptr()), s.splat(*bias), s.load(still.as_ptr()));
                s.store(still.as_mut_ptr(), sum);
            }
        }
        Self { turned, slow, quick_turned: quick.clone(), quick, still }
    }

    /// Adds what the bias adds to the scores of a page.
    #[inline(always)]
    pub(super) fn add<S: Simd, const R: usize>(&mut self, s: S, page: usize, scores: &mut [[S::F; VECTORS]; R]) {
        let slow = self.turn(s, page);
        for (scores, slow) in scores.iter_mut().zip(slow) {
            for score in scores {
                *score = s.add(*score, s.splat(slow));
            }
        }
        if !self.turned.bias.quick.is_empty() {
            self.add_quick(s, scores);
        }
    }

    /// Turns all brackets by the middle of a page. Returns what slow pairs add together, by query.
    #[inline(always)]
    fn turn<S: Simd>(&mut self, s: S, page: usize) -> [f32; LANES] {
        let (cosines, sines) = self.turned.angles.page(page);
        // Every other pair has a sum of its own, in a register.
        let (mut even, mut odd) = (s.splat(0.0), s.splat(0.0));
        let angles = cosines.as_chunks::<2>().0.iter().zip(sines.as_chunks::<2>().0);
        for ([one, other], (cosines, sines)) in self.slow.iter().zip(angles) {
            even = one.add_turned(s, [cosines[0], sines[0]], even);
            odd = other.add_turned(s, [cosines[1], sines[1]], odd);
        }
        for ((quick, brackets), turned) in self.turned.bias.quick.iter().zip(&self.quick).zip(&mut self.quick_turned) {
            *turned = brackets.turned(s, [cosines[quick.pair], sines[quick.pair]]);
        }
        let mut slow = [0.0; LANES];
        // SAFETY: a register of queries.
        unsafe { s.store(slow.as_mut_ptr(), s.add(s.add(even, odd), s.load(self.still.as_ptr()))) };
        slow
    }

    /// Adds what quick pairs add at each position of the page.
    #[inline(always)]
    fn add_quick<S: Simd, const R: usize>(&self, s: S, scores: &mut [[S::F; VECTORS]; R]) {
        for first in (0..VECTORS).step_by(TOGETHER) {
            let mut sums = [[s.splat(0.0); TOGETHER]; R];
            for (sums, scores) in sums.iter_mut().zip(&*scores) {
                sums.copy_from_slice(&scores[first..first + TOGETHER]);
            }
            for (quick, Brackets { cosines: along, sines: across }) in
                self.turned.bias.quick.iter().zip(&self.quick_turned)
            {
                let (mut cosines, mut sines) = ([s.splat(0.0); TOGETHER], [s.splat(0.0); TOGETHER]);
                for v in 0..TOGETHER {
                    // SAFETY: a page's positions are `VECTORS` registers.
                    unsafe {
                        cosines[v] = s.load(quick.cosines.as_ptr().add((first + v) * LANES));
                        sines[v] = s.load(quick.sines.as_ptr().add((first + v) * LANES));
                    }
                }
                for ((sums, along), across) in sums.iter_mut().zip(along).zip(across) {
                    let (along, across) = (s.splat(*along), s.splat(*across));
                    for ((sum, cosines), sines) in sums.iter_mut().zip(cosines).zip(sines) {
                        *sum = s.fma(cosines, along, s.fma(sines, across, *sum));
                    }
                }
            }
            for (sums, scores) in sums.iter().zip(&mut *scores) {
                scores[first..first + TOGETHER].copy_from_slice(sums);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::simd::Kernel;

    const PAIRS: usize = 8;
    const DIM: usize = 32;

    fn frequencies() -> Vec<f32> {
        (0..PAIRS).map(|pair| 10000_f32.powf(-(pair as f32) / PAIRS as f32)).collect()
    }

    /// Two heads, the second with large slow pairs; dimensions behind the pairs are not turned.
    fn bias() -> Vec<f32> {
        let head = |size: f32| (0..DIM).map(move |d| if d % PAIRS > 5 { size } else { 0.4 * (d as f32).sin() });
        head(1.0).chain(head(200.0)).collect()
    }

    /// What is kept apart is the turned bias, to what `LEFT_MAX` allows for each pair.
    #[test]
    fn what_is_taken_is_nearly_all_of_it_and_given_back() {
        let (frequencies, bias) = (frequencies(), bias());
        let (key_bias, angles) = (KeyBias::new(&bias, DIM, &frequencies), PageAngles::new(&frequencies, 1.0, 1000));
        assert!((1..PAIRS).contains(&key_bias.quick.len()), "{}", key_bias.quick.len());
        let turned = TurnedBias { bias: &key_bias, angles: &angles };
        for (kv_head, bias) in bias.chunks_exact(DIM).enumerate() {
            for position in [0, 1, 31, 63, 64, 500, 999] {
                let mut key = vec![0.0; DIM];
                for (pair, frequency) in frequencies.iter().enumerate() {
                    let (s, c) = (position as f64 * f64::from(*frequency)).sin_cos();
                    let (one, other) = (f64::from(bias[pair]), f64::from(bias[pair + PAIRS]));
                    key[pair] = (one * c - other * s) as f32;
                    key[pair + PAIRS] = (one * s + other * c) as f32;
                }
                key[2 * PAIRS..].copy_from_slice(&bias[2 * PAIRS..]);
                let whole = key.clone();
                turned.take_from(&mut key, kv_head, position);
                assert!(key.iter().all(|left| left.abs() <= 1.01 * LEFT_MAX), "{position}: {key:?}");
                turned.give_back(&mut key, kv_head, position);
                assert!(key.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-4), "{position}");
            }
        }
    }

    /// Adds the bias's part of the scores of a page's positions.
    struct Add<'a> {
        turned: TurnedBias<'a>,
        query: &'a [[f32; 3]],
        page: usize,
    }

    impl Kernel for Add<'_> {
        type Output = [[f32; PAGE]; 3];

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> [[f32; PAGE]; 3] {
            let mut scores = [[s.splat(1.0); VECTORS]; 3];
            BiasScores::new(s, self.turned, 1, self.query).add(s, self.page, &mut scores);
            let mut numbers = [[0.0; PAGE]; 3];
            for (numbers, scores) in numbers.iter_mut().zip(scores) {
                for (v, score) in scores.into_iter().enumerate() {
                    // SAFETY: a page's positions are `VECTORS` registers.
                    unsafe { s.store(numbers.as_mut_ptr().add(v * LANES), score) };
                }
            }
            numbers
        }
    }

    /// Scores get what the bias, taken from keys, would have added, of an odd number of pairs as well, quick ones among them.
    #[test]
    fn scores_get_what_was_taken_from_keys() {
        for pairs in [PAIRS - 1, PAIRS] {
            let frequencies = &frequencies()[..pairs];
            let bias = bias();
            let (key_bias, angles) = (KeyBias::new(&bias, DIM, frequencies), PageAngles::new(frequencies, 1.0, 1000));
            assert!((1..pairs).contains(&key_bias.quick.len()), "{}", key_bias.quick.len());
            let turned = TurnedBias { bias: &key_bias, angles: &angles };
            let query: Vec<[f32; 3]> = (0..DIM).map(|d| [1, 2, 3].map(|r| ((d * r) as f32).cos())).collect();
            for page in [0, 1, 15] {
                let scores = Isa::Portable.run(Add { turned, query: &query, page });
                for slot in 0..PAGE.min(1000 - page * PAGE) {
                    let mut taken = vec![0.0; DIM];
                    turned.give_back(&mut taken, 1, page * PAGE + slot);
                    for (r, scores) in scores.iter().enumerate() {
                        let products = query.iter().zip(&taken).map(|(q, b)| f64::from(q[r]) * f64::from(*b));
                        let (all, expected) = products.fold((0.0, 1.0), |(all, sum), x| (all + x.abs(), sum + x));
                        let off = (f64::from(scores[slot]) - expected).abs();
                        assert!(off < 1e-6 * all, "{pairs} pairs, page {page}, slot {slot}: {off} of {all}");
                    }
                }
                for isa in Isa::available() {
                    assert_eq!(isa.run(Add { turned, query: &query, page }), scores, "{isa}");
                }
            }
        }
    }
}
