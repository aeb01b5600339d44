//! Attention of rows over all rows of their text. Sequence-wise.
//!
//! For each row and head: softmax(q · k / √d) · v over the rows of the text, in single precision. A worker takes a head of a
//! text as a whole: it lays the keys across and the values along in memory of its own, once for all rows that see them.
//!
//! **Invariant:** sums over dimensions and over positions are taken in their order, one chain of fused multiply-adds each, and
//! the sum of the weights in sixteen lanes, so that the rows of a tile change nothing.

use super::buffers::{Floats, SharedBuffers};
use super::{EncoderBuffers, EncoderShape};
use crate::crew::{Crew, Worker};
use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd, exp};
use std::ops::Range;

/// Rows that are computed together, where their sums fit into registers.
const ROWS: usize = 8;

/// Runs the kernel on `rows`; `texts` are the rows of each text. Rows of no text are left as they are.
///
/// # Panics
/// If a shape does not fit, heads are no whole vectors, or two texts have a row in common.
pub fn attend(isa: Isa, crew: &dyn Crew, buffers: &mut EncoderBuffers, texts: &[Range<usize>], rows: Range<usize>) {
    let shape = *buffers.shape();
    assert!(rows.end <= buffers.rows() && texts.iter().all(|text| text.end <= buffers.rows()));
    assert!(texts.is_sorted_by(|a, b| a.end <= b.start), "texts follow each other");
    assert!(shape.head_dim().is_multiple_of(LANES) && shape.head_dim() * shape.heads == shape.hidden);
    let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
    let room = Room::floats(&shape, longest);
    buffers.scratch.resize(buffers.scratch.len().max(crew.size() * room), 0.0);
    let shared = buffers.share();
    let scale = 1.0 / (shape.head_dim() as f32).sqrt();
    crew.run(&|worker| {
        let own = worker.rank() * room..(worker.rank() + 1) * room;
        // SAFETY: each worker has a part of its own.
        let scratch = unsafe { shared.scratch.part_mut(own) };
        for (text, head) in turns(texts, &rows, shape.heads, &worker) {
            let seeing = text.start.max(rows.start)..text.end.min(rows.end);
            let room = Room::new(scratch, &shape, text.len());
            // SAFETY: (text, head) is this worker's alone, the texts have no row in common (checked above), and nobody writes
            // what was projected while this kernel has the buffers.
            isa.run(Attend { shared: &shared, shape: &shape, text, head, seeing, scale, room });
        }
    });
}

/// The heads of texts that are a worker's: those that follow each other, of about the same cost together.
fn turns<'a>(
    texts: &'a [Range<usize>],
    rows: &'a Range<usize>,
    heads: usize,
    worker: &'a Worker<'a>,
) -> impl Iterator<Item = (Range<usize>, usize)> + 'a {
    let cost = |text: &Range<usize>| {
        let seeing = text.end.min(rows.end).saturating_sub(text.start.max(rows.start));
        seeing * text.len()
    };
    let total: usize = texts.iter().map(cost).sum::<usize>() * heads;
    let own = worker.share(2 * total);
    let mut before = 0;
    let items = texts.iter().flat_map(move |text| (0..heads).map(move |head| (text.clone(), head, cost(text))));
    items.filter_map(move |(text, head, cost)| {
        let middle = 2 * before + cost;
        before += cost;
        (cost > 0 && own.contains(&middle)).then_some((text, head))
    })
}

/// A worker's memory.
struct Room<'a> {
    /// `[dimension][position]`, positions in whole vectors.
    keys: &'a mut [f32],
    /// `[position][dimension]`.
    values: &'a mut [f32],
    /// `[row of the tile][position]`.
    scores: &'a mut [f32],
}

impl<'a> Room<'a> {
    fn floats(shape: &EncoderShape, longest: usize) -> usize {
        let positions = longest.next_multiple_of(LANES);
        positions * (2 * shape.head_dim() + ROWS)
    }

    fn new(scratch: &'a mut [f32], shape: &EncoderShape, len: usize) -> Self {
        let positions = len.next_multiple_of(LANES);
        let (keys, rest) = scratch.split_at_mut(positions * shape.head_dim());
        let (values, rest) = rest.split_at_mut(positions * shape.head_dim());
        Self { keys, values, scores: &mut rest[..positions * ROWS] }
    }
}

struct Attend<'a> {
    shared: &'a SharedBuffers<'a>,
    shape: &'a EncoderShape,
    text: Range<usize>,
    head: usize,
    /// Rows that are computed.
    seeing: Range<usize>,
    scale: f32,
    room: Room<'a>,
}

impl Kernel for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        self.lay_out();
        let mut row = self.seeing.start;
        while row < self.seeing.end {
            let left = self.seeing.end - row;
            // Sums of eight rows fill the registers of AVX-512; others have room for four.
            row += match left {
                ROWS.. if S::FLOAT_SUMS >= ROWS => self.tile::<S, ROWS>(s, row),
                4.. => self.tile::<S, 4>(s, row),
                2 | 3 => self.tile::<S, 2>(s, row),
                _ => self.tile::<S, 1>(s, row),
            };
        }
    }
}

impl Attend<'_> {
    fn positions(&self) -> usize {
        self.text.len().next_multiple_of(LANES)
    }

    /// This head's part of a row of what was projected: of queries, keys or values.
    #[inline(always)]
    fn projected(&self, row: usize, which: usize) -> &[f32] {
        let Floats { values, stride, .. } = self.shared.projected;
        let dim = self.shape.head_dim();
        let start = row * stride + which * self.shape.hidden + self.head * dim;
        // SAFETY: nobody writes them during this kernel ([`attend`] has borrowed the buffers alone).
        unsafe { values.part(start..start + dim) }
    }

    #[inline(always)]
    fn lay_out(&mut self) {
        let (dim, positions) = (self.shape.head_dim(), self.positions());
        for (position, row) in self.text.clone().enumerate() {
            for d in 0..dim {
                self.room.keys[d * positions + position] = self.projected(row, KEYS)[d];
            }
            let start = position * dim;
            let (from, to) = (self.projected(row, VALUES).as_ptr(), &mut self.room.values[start..start + dim]);
            // SAFETY: `dim` floats each, in memory that has nothing in common.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), dim) };
        }
        for d in 0..dim {
            self.room.keys[d * positions + self.text.len()..(d + 1) * positions].fill(0.0);
        }
    }

    /// Computes `R` rows from `row` on, and says how many that were.
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(&mut self, s: S, row: usize) -> usize {
        self.score::<S, R>(s, row);
        let mut totals = [0.0; R];
        for (r, total) in totals.iter_mut().enumerate() {
            *total = self.weigh(s, r);
        }
        self.gather::<S, R>(s, row, &totals);
        R
    }

    /// Scores of `R` rows with all positions.
    #[inline(always)]
    fn score<S: Simd, const R: usize>(&mut self, s: S, row: usize) {
        let (dim, positions) = (self.shape.head_dim(), self.positions());
        let mut queries = [std::ptr::null(); R];
        for (r, query) in queries.iter_mut().enumerate() {
            *query = self.projected(row + r, QUERIES).as_ptr();
        }
        let keys = self.room.keys.as_ptr();
        let scores = self.room.scores.as_mut_ptr();
        for at in (0..positions).step_by(LANES) {
            let mut sums = [s.splat(0.0); R];
            for d in 0..dim {
                // SAFETY: `d < dim` and `at + 16 <= positions`: keys are `[dim][positions]`, queries `[dim]`.
                unsafe {
                    let keys = s.load(keys.add(d * positions + at));
                    for (sum, query) in sums.iter_mut().zip(&queries) {
                        *sum = s.fma(s.splat(*query.add(d)), keys, *sum);
                    }
                }
            }
            for (r, sum) in sums.iter().enumerate() {
                // SAFETY: scores are `[ROWS][positions]`, and `r < R <= ROWS`.
                unsafe { s.store(scores.add(r * positions + at), *sum) };
            }
        }
    }

    /// Makes weights of the scores of row `r` of the tile; returns their sum.
    #[inline(always)]
    fn weigh<S: Simd>(&mut self, s: S, r: usize) -> f32 {
        let (len, positions) = (self.text.len(), self.positions());
        let scores = &mut self.room.scores[r * positions..(r + 1) * positions];
        scores[len..].fill(f32::NEG_INFINITY);
        let mut largest = s.splat(f32::NEG_INFINITY);
        for chunk in scores.as_chunks::<LANES>().0 {
            // SAFETY: 16 floats.
            largest = s.max(unsafe { s.load(chunk.as_ptr()) }, largest);
        }
        let (largest, scale) = (s.splat(s.max_lane(largest)), s.splat(self.scale));
        let mut sums = s.splat(0.0);
        for chunk in scores.as_chunks_mut::<LANES>().0 {
            // SAFETY: as above.
            unsafe {
                let weight = exp(s, s.mul(s.sub(s.load(chunk.as_ptr()), largest), scale));
                s.store(chunk.as_mut_ptr(), weight);
                sums = s.add(sums, weight);
            }
        }
        s.sum(sums)
    }

    /// Adds the values up by their weights, and writes the results.
    #[inline(always)]
    fn gather<S: Simd, const R: usize>(&mut self, s: S, row: usize, totals: &[f32; R]) {
        let (dim, positions, len) = (self.shape.head_dim(), self.positions(), self.text.len());
        let (values, weights) = (self.room.values.as_ptr(), self.room.scores.as_ptr());
        let Floats { values: out, stride, .. } = self.shared.attended;
        for d in (0..dim).step_by(LANES) {
            let mut sums = [s.splat(0.0); R];
            for position in 0..len {
                // SAFETY: `position < len`, `d + 16 <= dim`: values are `[position][dim]`, weights `[ROWS][positions]`.
                unsafe {
                    let values = s.load(values.add(position * dim + d));
                    for (r, sum) in sums.iter_mut().enumerate() {
                        *sum = s.fma(s.splat(*weights.add(r * positions + position)), values, *sum);
                    }
                }
            }
            for (r, (sum, total)) in sums.iter().zip(totals).enumerate() {
                let start = (row + r) * stride + self.head * dim + d;
                // SAFETY: this head of these rows is this worker's alone, and 16 floats long from `d` on.
                unsafe {
                    let to = out.part_mut(start..start + LANES);
                    s.store(to.as_mut_ptr(), s.div(*sum, s.splat(*total)));
                }
            }
        }
    }
}

/// Places of what was projected.
const QUERIES: usize = 0;
const KEYS: usize = 1;
const VALUES: usize = 2;
