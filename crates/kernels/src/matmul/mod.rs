//! Matrix products of packed weights with quantised rows.
//!
//! For every row `r` and output `n`, with exact integer sums over each group `g` of 32 inputs,
//!
//! ```text
//! y = Σ_g fma(scale_w[n,g] × Σ (q - zero) a, scale_a[r,g], …)        weights with a zero point
//! y = Σ_g … then fma(min[n,g], scale_a[r,g] × Σ a, …)                weights with a minimum
//! ```
//!
//! in the order of the groups. **Invariant:** this is the whole definition; tiles, panels, crews and instruction sets
//! only decide who computes which `y`, so a row's result is bit-identical whatever else is in the call.

mod epilogue;
mod tile;

pub use epilogue::{Epilogue, Gating, Target};
pub use tile::{RowTiles, Weights};

pub(crate) use tile::rows_by_panels;

use crate::crew::Worker;
use crate::isa::Isa;
use crate::packed::{Form, PackedMatrix, Panel};
use crate::quantize::{SharedRows, TILE};
use crate::simd::{Kernel, Simd};
use std::ops::Range;

/// This worker's share of the product of `weights` with all `rows` rows of `activations`; `epilogue` takes the results.
///
/// # Safety
/// The rows were quantised before the last sync and are not written meanwhile. No one but this crew touches the
/// epilogue's target meanwhile, and each rank of the crew makes this call once.
///
/// # Panics
/// If the widths or numbers of rows differ, or gates have no values.
pub unsafe fn matmul(
    isa: Isa,
    weights: &PackedMatrix,
    activations: &SharedRows<'_>,
    rows: usize,
    epilogue: &Epilogue<'_>,
    worker: &Worker<'_>,
) {
    let units = worker.share(units(weights));
    // SAFETY: the caller's; each rank has its own units.
    unsafe { matmul_units(isa, weights, activations, rows, epilogue, units) };
}

/// How many parts a product can be divided into: [`matmul_units`] takes ranges of them.
#[must_use]
pub fn units(weights: &PackedMatrix) -> usize {
    weights.panels().div_ceil(SHARE_PANELS)
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
    let panels = units.start * SHARE_PANELS..(units.end * SHARE_PANELS).min(weights.panels());
    assert!(weights.groups() == activations.groups());
    assert!(rows == activations.rows());
    assert!(!epilogue.takes_pairs() || weights.panels().is_multiple_of(2));
    assert!(epilogue.keeps_rows_apart(weights.panels()), "rows of results would overlap");
    isa.run(Product { weights, activations, rows, panels, epilogue });
}

/// Panels are shared out in pairs: gates stay with their values, and shares differ by a pair at most.
const SHARE_PANELS: usize = 2;

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
        let compute = match self.weights.form() {
            Form::Byte => Compute::<S>::of::<tile::Byte>(),
            Form::ByteMin => Compute::<S>::of::<tile::ByteMin>(),
            Form::Nibble => Compute::<S>::of::<tile::Nibble>(),
            Form::NibbleMin => Compute::<S>::of::<tile::NibbleMin>(),
        };
        let mut panel = self.panels.start;
        while panel + 4 <= self.panels.end {
            self.run_four(s, panel, &compute);
            panel += 4;
        }
        while panel + 2 <= self.panels.end {
            self.run_panels::<S, 2>(s, panel, 0..self.rows, &compute.two);
            panel += 2;
        }
        if panel < self.panels.end {
            self.run_panels::<S, 1>(s, panel, 0..self.rows, &compute.one);
        }
    }
}

impl Product<'_> {
    /// All rows for four panels: at once for few rows left over, whose chains of sums are else the bottleneck; else in
    /// pairs.
    #[inline(always)]
    fn run_four<S: Simd>(&self, s: S, panel: usize, compute: &Compute<S>) {
        let rest = self.rows % TILE;
        let whole = if rest <= compute.four.len() { self.rows - rest } else { self.rows };
        for panel in [panel, panel + 2] {
            self.run_panels::<S, 2>(s, panel, 0..whole, &compute.two);
        }
        self.run_panels::<S, 4>(s, panel, whole..self.rows, &compute.four);
    }

    /// Some rows, from the first of a tile on, for panels `panel..panel + P`.
    #[inline(always)]
    fn run_panels<S: Simd, const P: usize>(&self, s: S, panel: usize, rows: Range<usize>, compute: &[PanelFn<S, P>]) {
        let panels: [Panel; P] = std::array::from_fn(|p| self.weights.panel(panel + p));
        let (activations, epilogue) = (self.activations, self.epilogue);
        let mut row = rows.start;
        while row < rows.end {
            let left = rows.end - row;
            let (height, count) = if left >= TILE { (TILE, left / TILE) } else { (left, 1) };
            let tiles = RowTiles { activations, row, count, panel, epilogue };
            // SAFETY: the panels are valid for the activations' groups (`PackedMatrix::panel`; the widths were compared
            // in `matmul`), the tiles have this height (the rows are all there are), the instruction set is the one
            // this runs on, and each row and panel is computed once.
            unsafe { compute[height - 1](s, &panels, &tiles) };
            row += height * count;
        }
    }
}

/// Computes tiles of `n` rows: entry `n - 1` of a table.
type PanelFn<S, const P: usize> = unsafe fn(S, &[Panel; P], &RowTiles<'_>);

/// The inner loops of one form.
struct Compute<S: Simd> {
    four: [PanelFn<S, 4>; 3],
    two: [PanelFn<S, 2>; TILE],
    one: [PanelFn<S, 1>; TILE],
}

impl<S: Simd> Compute<S> {
    #[inline(always)]
    fn of<W: Weights>() -> Self {
        Self {
            four: [S::rows_by_panels::<W, 1, 4>, S::rows_by_panels::<W, 2, 4>, S::rows_by_panels::<W, 3, 4>],
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
            one: [
                S::rows_by_panels::<W, 1, 1>,
                S::rows_by_panels::<W, 2, 1>,
                S::rows_by_panels::<W, 3, 1>,
                S::rows_by_panels::<W, 4, 1>,
                S::rows_by_panels::<W, 5, 1>,
                S::rows_by_panels::<W, 6, 1>,
                S::rows_by_panels::<W, 7, 1>,
                S::rows_by_panels::<W, 8, 1>,
            ],
        }
    }
}
