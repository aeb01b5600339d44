//! Short convolutions, which stand in attention's place in some layers (LFM2). A row is projected to three vectors, `B`, `C`
//! and `x`, as wide as the residual stream; of each channel, with as many taps as the convolution is long,
//!
//! ```text
//! column = B × x        found = C × Σ_i fma(tap[i], column of the position taps - 1 - i before, …)
//! ```
//!
//! in the order of the positions, the oldest first; positions before the first have columns of zeros. What a row reads of
//! those before it is their columns alone, so these are the state that a sequence has between passes.
//!
//! The same convolution goes before the recurrences of other layers ([`mod@super::recurrence`]): there a column is a part of the
//! projection as it is, a bias may be added, and what is found goes through `x / (1 + e^-x)`.

use super::{Buffers, Matrix, RowNorm, norm_rows};
use crate::crew::{Crew, Worker};
use crate::isa::Isa;
use crate::matmul::{Epilogue, Gating, Target, matmul};
use crate::memory::Shared;
use crate::packed::{PANEL, PackedMatrix};
use crate::simd::{Kernel, LANES, Simd};
use std::ops::Range;

/// Longest convolution.
pub const TAPS_MAX: usize = 8;

/// Rows of one sequence.
#[derive(Clone, Debug)]
pub struct ConvolvedRows<'a> {
    /// The first of all of its rows in the buffers.
    pub first_row: usize,
    /// Which of them.
    pub rows: Range<usize>,
    /// The columns before all of them, the oldest first: one less than there are taps.
    pub before: &'a [f32],
    /// For a draft tree, each row's path from the root, itself last. Else rows follow each other.
    pub paths: Option<&'a [Vec<usize>]>,
}

/// Norm and projection of some rows. Token-wise.
///
/// # Panics
/// If a shape does not fit.
pub fn project(
    isa: Isa,
    crew: &dyn Crew,
    (norm, matrix): (RowNorm<'_>, &PackedMatrix),
    buffers: &mut Buffers,
    rows: Range<usize>,
) {
    assert!(rows.end <= buffers.rows());
    let hidden = buffers.shape().hidden;
    let (shared, quantized, _) = buffers.share(hidden, 0);
    let quantized = quantized.with_rows(rows.len());
    crew.run(&|worker| {
        let from = |row| rows.start + row;
        // SAFETY: the kernel has borrowed the buffers alone; a sync follows.
        unsafe { norm_rows(isa, norm, &shared.residual, from, &shared.normed, &quantized, &worker) };
        worker.sync();
        let out = Target { out: shared.qkv.values, first_row: rows.start, stride: shared.qkv.stride };
        // SAFETY: each worker calls once, after the sync; the kernel has borrowed the buffers alone.
        unsafe { matmul(isa, matrix, &quantized, rows.len(), &Epilogue::Store(out), &worker) };
    });
}

/// Runs the convolution on rows that are projected, as are those before them in their sequences. `taps` is
/// `[taps][channels]`, the one of the oldest position first.
///
/// # Panics
/// If a shape does not fit, or channels are no whole panels.
pub fn short_convolution(
    isa: Isa,
    crew: &dyn Crew,
    taps: &[f32],
    buffers: &mut Buffers,
    sequences: &[ConvolvedRows<'_>],
) {
    let channels = buffers.shape().hidden;
    let count = taps.len() / channels;
    assert!(channels.is_multiple_of(PANEL) && taps.len() == count * channels && (1..=TAPS_MAX).contains(&count));
    assert!(buffers.shape().queries == channels && buffers.shape().qkv >= 3 * channels);
    for sequence in sequences {
        assert!(sequence.first_row + sequence.rows.end <= buffers.rows());
        assert!(sequence.before.len() == (count - 1) * channels);
        assert!(sequence.paths.is_none_or(|paths| {
            paths.len() >= sequence.rows.end && paths.iter().enumerate().all(|(row, path)| path.last() == Some(&row))
        }));
    }
    let (shared, _, _) = buffers.share(channels, 0);
    let kernel = Taps { taps, channels, form: Form::Gated };
    crew.run(&|worker| {
        for sequence in sequences {
            let out = |row: usize| shared.attended.row(sequence.first_row + row).start;
            // SAFETY: the kernel has borrowed the buffers alone, and workers have channels of their own.
            unsafe { kernel.run(isa, sequence, &shared.qkv, (shared.attended.values, &out), &worker) };
        }
    });
}

/// A convolution, for all of whose callers.
#[derive(Clone, Copy)]
pub(super) struct Taps<'a> {
    /// `[taps][channels]`, the one of the oldest position first.
    pub(super) taps: &'a [f32],
    pub(super) channels: usize,
    pub(super) form: Form<'a>,
}

/// What a column is, and what becomes of what is found.
#[derive(Clone, Copy)]
pub(super) enum Form<'a> {
    /// `B × x`, gated by `C`.
    Gated,
    /// The projection's first channels as they are; a bias is added, and the result goes through `x / (1 + e^-x)`.
    Activated(Option<&'a [f32]>),
}

impl Taps<'_> {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.taps.len() / self.channels
    }

    /// Computes this worker's channels of a sequence's rows; `out` says where a row begins.
    ///
    /// # Safety
    /// Nobody writes projections meanwhile, and these channels of the rows' results are this worker's alone.
    pub(super) unsafe fn run(
        &self,
        isa: Isa,
        sequence: &ConvolvedRows<'_>,
        projected: &Matrix<'_>,
        (found, out): (Shared<'_, f32>, &dyn Fn(usize) -> usize),
        worker: &Worker<'_>,
    ) {
        let (count, channels) = (self.count(), self.channels);
        let panels = worker.share(channels / PANEL);
        let columns = panels.start * PANEL..panels.end * PANEL;
        for row in sequence.rows.clone() {
            let mut sources = [Source::Before(0); TAPS_MAX];
            for (back, source) in sources.iter_mut().enumerate().take(count) {
                *source = sequence.source(row, back, (count, channels, projected.stride));
            }
            isa.run(Convolve {
                taps: self.taps,
                count,
                channels,
                form: self.form,
                projected: projected.values,
                before: sequence.before,
                sources,
                own: (sequence.first_row + row) * projected.stride,
                found,
                out: out(row),
                columns: columns.clone(),
            });
        }
    }
}

impl ConvolvedRows<'_> {
    /// Where the column of the position `back` before a row is.
    fn source(&self, row: usize, back: usize, (taps, channels, stride): (usize, usize, usize)) -> Source {
        let depth = self.paths.map_or(row, |paths| paths[row].len() - 1);
        if back > depth {
            return Source::Before((taps - 1 + depth - back) * channels);
        }
        let at = self.paths.map_or(row - back, |paths| paths[row][depth - back]);
        Source::Row((self.first_row + at) * stride)
    }
}

/// Where a column is.
#[derive(Clone, Copy)]
enum Source {
    /// Of the row whose projection begins here.
    Row(usize),
    /// Among those before the pass, from here on.
    Before(usize),
}

/// Some channels of a row.
struct Convolve<'a> {
    taps: &'a [f32],
    count: usize,
    channels: usize,
    form: Form<'a>,
    projected: Shared<'a, f32>,
    before: &'a [f32],
    /// By how far back.
    sources: [Source; TAPS_MAX],
    own: usize,
    found: Shared<'a, f32>,
    out: usize,
    columns: Range<usize>,
}

impl Kernel for Convolve<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { taps, count, channels, form, projected, before, sources, own, found, out, columns } = self;
        for at in columns.step_by(LANES) {
            let mut sum = s.splat(0.0);
            for tap in 0..count {
                // SAFETY: projections are not written meanwhile; taps and columns before have `channels` floats each, which
                // are whole registers (checked by the caller).
                unsafe {
                    let column = match sources[count - 1 - tap] {
                        Source::Row(start) => {
                            let part = |part: usize| {
                                let start = start + part + at;
                                projected.part(start..start + LANES).as_ptr()
                            };
                            match form {
                                Form::Gated => s.mul(s.load(part(0)), s.load(part(2 * channels))),
                                Form::Activated(_) => s.load(part(0)),
                            }
                        }
                        Source::Before(start) => s.load(before[start + at..start + at + LANES].as_ptr()),
                    };
                    sum = s.fma(s.load(taps[tap * channels + at..][..LANES].as_ptr()), column, sum);
                }
            }
            // SAFETY: as above; these channels of the row's results are this worker's.
            unsafe {
                let result = match form {
                    Form::Gated => {
                        let start = own + channels + at;
                        s.mul(s.load(projected.part(start..start + LANES).as_ptr()), sum)
                    }
                    Form::Activated(None) => Gating::Silu.apply(s, sum),
                    Form::Activated(Some(bias)) => {
                        Gating::Silu.apply(s, s.add(sum, s.load(bias[at..at + LANES].as_ptr())))
                    }
                };
                s.store(found.part_mut(out + at..out + at + LANES).as_mut_ptr(), result);
            }
        }
    }
}
