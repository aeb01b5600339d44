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

pub use epilogue::{Add, Epilogue, Gated, Gating, Store};

use crate::crew::Worker;
use crate::isa::Isa;
use crate::packed::{Form, PANEL, PackedMatrix, Panel};
use crate::quantize::{SharedRows, TILE, Tile};
use crate::simd::{Kernel, Simd};
use std::ops::Range;
pub use tile::Weights;
pub(crate) use tile::compute;

/// This worker's share of the product of `weights` with rows `0..rows` of `activations`; `epilogue` takes the results.
///
/// # Panics
/// If the widths differ, or there are fewer rows than asked for.
pub fn matmul<E: Epilogue>(
    isa: Isa,
    weights: &PackedMatrix,
    activations: &SharedRows<'_>,
    rows: usize,
    epilogue: &E,
    worker: &Worker<'_>,
) {
    let units = weights.panels().div_ceil(SHARE_PANELS);
    let share = worker.share(units);
    let panels = share.start * SHARE_PANELS..(share.end * SHARE_PANELS).min(weights.panels());
    matmul_panels(isa, weights, activations, rows, panels, epilogue);
}

/// The product for some panels only, on the calling thread.
///
/// # Panics
/// As [`matmul`], or if the panels do not exist.
pub fn matmul_panels<E: Epilogue>(
    isa: Isa,
    weights: &PackedMatrix,
    activations: &SharedRows<'_>,
    rows: usize,
    panels: Range<usize>,
    epilogue: &E,
) {
    assert!(weights.groups() == activations.groups());
    assert!(rows <= activations.rows());
    assert!(panels.end <= weights.panels());
    isa.run(Product { weights, activations, rows, panels, epilogue });
}

/// Panels are shared out in fours: the widest tile.
const SHARE_PANELS: usize = 4;

struct Product<'a, E> {
    weights: &'a PackedMatrix,
    activations: &'a SharedRows<'a>,
    rows: usize,
    panels: Range<usize>,
    epilogue: &'a E,
}

impl<E: Epilogue> Kernel for Product<'_, E> {
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
        // Few rows: four panels at a time, since each row's chain of sums is then the bottleneck. Else two.
        if self.rows <= 2 {
            while panel + 4 <= self.panels.end {
                self.run_panels::<S, 4>(s, panel, &compute.four);
                panel += 4;
            }
        }
        while panel + 2 <= self.panels.end {
            self.run_panels::<S, 2>(s, panel, &compute.two);
            panel += 2;
        }
        if panel < self.panels.end {
            self.run_panels::<S, 1>(s, panel, &compute.one);
        }
    }
}

impl<E: Epilogue> Product<'_, E> {
    /// All rows for panels `panel..panel + P`, as many rows at a time as there is code for.
    #[inline(always)]
    fn run_panels<S: Simd, const P: usize>(&self, s: S, panel: usize, compute: &[TileFn<S, P>]) {
        let panels = std::array::from_fn(|p| self.weights.panel(panel + p));
        let groups = self.weights.groups();
        let mut sums = [[[0.0; PANEL]; P]; TILE];
        let mut row = 0;
        while row < self.rows {
            let within = row % TILE;
            let rows = (self.rows - row).min(TILE - within).min(compute.len());
            let tile = self.activations.tile(row / TILE).from_row(within);
            // SAFETY: the tile and the panels are valid for `groups` groups (`PackedMatrix::panel`, `SharedRows::tile`,
            // equal by the assertion in `matmul_panels`), and `rows` rows of the tile are left; the instruction set is
            // the one this runs on; the epilogue's own promise covers its writes.
            unsafe {
                compute[rows - 1](s, &panels, tile, groups, &mut sums);
                for (index, sums) in sums[..rows].iter().enumerate() {
                    let mut scaled = [s.splat(0.0); P];
                    for (scaled, sum) in scaled.iter_mut().zip(sums) {
                        *scaled = s.load(sum.as_ptr());
                    }
                    self.epilogue.take(s, row + index, panel, scaled);
                }
            }
            row += rows;
        }
    }
}

/// Results of a tile, by row and panel.
pub type Sums<const P: usize> = [[[f32; PANEL]; P]; TILE];

/// Computes a tile: entry `n - 1` of a table takes `n` rows.
type TileFn<S, const P: usize> = unsafe fn(S, &[Panel; P], Tile, usize, &mut Sums<P>);

/// The inner loops of one form, apart from what is done with their results: each is compiled once.
struct Compute<S: Simd> {
    four: [TileFn<S, 4>; 2],
    two: [TileFn<S, 2>; TILE],
    one: [TileFn<S, 1>; 1],
}

impl<S: Simd> Compute<S> {
    #[inline(always)]
    fn of<W: Weights>() -> Self {
        Self {
            four: [S::tile::<W, 1, 4>, S::tile::<W, 2, 4>],
            two: [
                S::tile::<W, 1, 2>,
                S::tile::<W, 2, 2>,
                S::tile::<W, 3, 2>,
                S::tile::<W, 4, 2>,
                S::tile::<W, 5, 2>,
                S::tile::<W, 6, 2>,
            ],
            one: [S::tile::<W, 1, 1>],
        }
    }
}
