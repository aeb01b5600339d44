//! Matrix products of packed weights with rows.
//!
//! For every row `r` and output `n`, with exact integer sums over each group `g` of 32 inputs, or over each half of one where
//! weights have a scale for 16,
//!
//! ```text
//! y = Σ_g fma(scale_w[n,g] × Σ (q - zero) a, scale_a[r,g], …)        weights with a zero point
//! y = Σ_g … then fma(min[n,g], scale_a[r,g] × Σ a, …)                weights with a minimum
//! ```
//!
//! in the order of the groups; and where weights are floats, with activations that are not rounded,
//!
//! ```text
//! y = Σ_i fma(w[n,i], a[r,i], …)
//! ```
//!
//! in the order of the inputs. **Invariant:** this is the whole definition; tiles, panels, crews and instruction sets
//! only decide who computes which `y`, so a row's result is bit-identical whatever else is in the call.

mod epilogue;
mod fetching;
mod first_lines;
mod floats;
#[cfg(target_arch = "x86_64")]
pub(crate) mod matrix_unit;
mod tile;
mod unpacked;
mod weights;

pub use epilogue::{Epilogue, Gating, Target};
pub use first_lines::FirstLines;
pub use tile::{GroupPart, RowTiles};
pub use weights::{Quantized, Quants, Scales, Weights};

pub(crate) use tile::products_by_row;
pub(crate) use unpacked::pays as unpacking_pays;

use crate::crew::Worker;
use crate::isa::Isa;
use crate::packed::{Form, PANELS_TOGETHER, PackedMatrix, Panel, Section};
use crate::quantize::{SharedRows, TILE};
use crate::simd::{Kernel, Simd};
use std::ops::Range;
use unpacked::{Room, RoomMemory};

/// This worker's part of the product of `weights` with all `rows` rows of `activations`; `epilogue` takes the results. Who
/// computes what of a long product is decided meanwhile ([`Worker::pieces`]).
///
/// # Safety
/// The rows were quantised before the last sync and are not written meanwhile. No one but this crew touches the
/// epilogue's target meanwhile, and each rank of the crew makes this call once, the only one of its kind between two syncs.
///
/// # Panics
/// If the widths or numbers of rows differ, gates have no values, or weights are floats and the rows have none.
pub unsafe fn matmul(
    isa: Isa,
    weights: &PackedMatrix,
    activations: &SharedRows<'_>,
    rows: usize,
    epilogue: &Epilogue<'_>,
    worker: &Worker<'_>,
) {
    let compute = |units| {
        // SAFETY: the caller's; no unit is in two shares, nor in two pieces.
        unsafe { matmul_units(isa, weights, activations, rows, epilogue, units) };
    };
    if weights.macs() * rows.max(ROWS_READ) < worker.size() * SHORT_MACS {
        compute(worker.share(units(weights)));
    } else {
        worker.pieces(units(weights), UNITS_TOGETHER).for_each(compute);
    }
}

/// Multiply-accumulates of a worker's share that take so short that it costs more to see what others have left than it may gain:
/// some 20 µs (`cargo run --release -p duet-device --example meetings` says what it costs).
const SHORT_MACS: usize = 16 << 20;

/// Fewer rows take about as long, since weights are read all the same.
const ROWS_READ: usize = 16;

/// Units that a worker takes at a time, and whose first lines it fetches: as many panels as few rows of floats are multiplied with
/// at once.
const UNITS_TOGETHER: usize = 2;

/// How many parts a product can be divided into: [`matmul_units`] takes ranges of them. Each is a pair of panels: gates stay
/// with their values, and shares differ by a pair at most.
#[must_use]
pub fn units(weights: &PackedMatrix) -> usize {
    weights.panels().div_ceil(PANELS_TOGETHER)
}

/// Some units of the product of `weights` with all `rows` rows of `activations`: some outputs of all rows.
///
/// # Safety
/// As [`matmul`], and no unit is computed twice.
///
/// # Panics
/// As [`matmul`], or if there are no such units.
pub unsafe fn matmul_units(
    isa: Isa,
    weights: &PackedMatrix,
    activations: &SharedRows<'_>,
    rows: usize,
    epilogue: &Epilogue<'_>,
    units: Range<usize>,
) {
    let panels = units.start * PANELS_TOGETHER..(units.end * PANELS_TOGETHER).min(weights.panels());
    assert!(weights.groups() == activations.groups());
    assert!(rows == activations.rows());
    assert!(rows == 0 || !weights.has_floats() || activations.has_floats());
    assert!(!epilogue.takes_pairs() || weights.panels().is_multiple_of(2));
    assert!(epilogue.keeps_rows_apart(weights.panels()), "rows of results would overlap");
    isa.run(Product { weights, activations, rows, panels, epilogue });
}

struct Product<'a> {
    weights: &'a PackedMatrix,
    activations: &'a SharedRows<'a>,
    rows: usize,
    panels: Range<usize>,
    epilogue: &'a Epilogue<'a>,
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for section in self.weights.sections() {
            let first = section.first;
            let panels = self.panels.start.max(first)..self.panels.end.min(first + section.panels());
            if !panels.is_empty() {
                self.run_section(s, section, panels);
            }
        }
    }
}

impl Product<'_> {
    /// Some panels of one section.
    #[inline(always)]
    fn run_section<S: Simd>(&self, s: S, section: &Section, panels: Range<usize>) {
        let compute = Compute::of(section.form);
        let mut memory = s.unpacks(section.form, self.rows).then(|| RoomMemory::take(self.activations.groups()));
        let room = memory.as_mut().map(RoomMemory::room);
        let mut panel = panels.start;
        if let Some(four) = &compute.four {
            while panel + 4 <= panels.end {
                self.run_four(s, section, panel, four, &compute.two);
                panel += 4;
            }
        }
        while panel < panels.end {
            let count = PANELS_TOGETHER.min(panels.end - panel);
            self.run_panels(s, section, panel..panel + count, 0..self.rows, room, &compute.two);
            panel += count;
        }
        if let Some(memory) = memory {
            memory.keep();
        }
    }

    /// All rows for four panels of floats: at once for few rows left over; else in pairs.
    #[inline(always)]
    fn run_four<S: Simd>(
        &self,
        s: S,
        section: &Section,
        panel: usize,
        four: &[PanelFn<S, 4>],
        two: &[PanelFn<S, PANELS_TOGETHER>],
    ) {
        let rest = self.rows % TILE;
        let whole = if rest <= four.len() { self.rows - rest } else { self.rows };
        for panel in [panel, panel + 2] {
            self.run_panels(s, section, panel..panel + 2, 0..whole, None, two);
        }
        self.run_panels(s, section, panel..panel + 4, whole..self.rows, None, four);
    }

    /// Some rows, from the first of a tile on, for `P` panels, the last of which there need not be: it is padding.
    #[inline(always)]
    fn run_panels<S: Simd, const P: usize>(
        &self,
        s: S,
        section: &Section,
        panels: Range<usize>,
        rows: Range<usize>,
        room: Option<Room<'_>>,
        compute: &[PanelFn<S, P>],
    ) {
        let (activations, epilogue, panel) = (self.activations, self.epilogue, panels.start);
        let pointers: [Panel; P] = std::array::from_fn(|p| section.panel(panel - section.first + p));
        let mut row = rows.start;
        while row < rows.end {
            let left = rows.end - row;
            let (height, count) = if left >= TILE { (TILE, left / TILE) } else { (left, 1) };
            let tiles = RowTiles { activations, row, count, panel, panels: panels.len(), room, epilogue };
            // SAFETY: the panels are valid for the activations' groups (`Section::panel`; the widths were compared
            // in `matmul`), the tiles have this height (the rows are all there are), the instruction set is the one
            // this runs on, and each row and panel is computed once.
            unsafe { compute[height - 1](s, &pointers, &tiles) };
            row += height * count;
        }
    }
}

/// Computes tiles of `n` rows: entry `n - 1` of a table.
type PanelFn<S, const P: usize> = unsafe fn(S, &[Panel; P], &RowTiles<'_>);

/// The inner loops of one form.
struct Compute<S: Simd> {
    /// Of few rows of floats, whose sums are in the order of the inputs: one panel's chains of additions alone would be the
    /// bottleneck. Quants need no more panels: each group's integer sums are chains of their own, so several groups are computed
    /// at once.
    four: Option<[PanelFn<S, 4>; 3]>,
    two: [PanelFn<S, PANELS_TOGETHER>; TILE],
}

impl<S: Simd> Compute<S> {
    #[inline(always)]
    fn of(form: Form) -> Self {
        match form {
            Form::Q8_0 => Self::with::<weights::Q8_0>(),
            Form::Q4_0 => Self::with::<weights::Q4_0>(),
            Form::Q4_1 => Self::with::<weights::Q4_1>(),
            Form::Q5_0 => Self::with::<weights::Q5_0>(),
            Form::Q5_1 => Self::with::<weights::Q5_1>(),
            Form::Q2K => Self::with::<weights::Q2K>(),
            Form::Q3K => Self::with::<weights::Q3K>(),
            Form::Q4K => Self::with::<weights::Q4K>(),
            Form::Q5K => Self::with::<weights::Q5K>(),
            Form::Q6K => Self::with::<weights::Q6K>(),
            Form::IQ4NL => Self::with::<weights::IQ4NL>(),
            Form::IQ4XS => Self::with::<weights::IQ4XS>(),
            Form::MXFP4 => Self::with::<weights::MXFP4>(),
            Form::F32 => Self::of_floats::<floats::F32>(),
            Form::F16 => Self::of_floats::<floats::F16>(),
            Form::BF16 => Self::of_floats::<floats::BF16>(),
        }
    }

    #[inline(always)]
    fn of_floats<W: Weights>() -> Self {
        let four = [S::rows_by_panels::<W, 1, 4>, S::rows_by_panels::<W, 2, 4>, S::rows_by_panels::<W, 3, 4>];
        Self { four: Some(four), ..Self::with::<W>() }
    }

    #[inline(always)]
    fn with<W: Weights>() -> Self {
        Self {
            four: None,
            two: [
                S::rows_by_panels::<W, 1, 2>,
                S::rows_by_panels::<W, 2, 2>,
                S::rows_by_panels::<W, 3, 2>,
                S::rows_by_panels::<W, 4, 2>,
                S::rows_by_panels::<W, 5, 2>,
                S::rows_by_panels::<W, 6, 2>,
                S::rows_by_panels::<W, 7, 2>,
                S::rows_by_panels::<W, 8, 2>,
            ],
        }
    }
}
