//! Products of many rows in tiles whose threads share what they multiply (`product_tiled.wgsl`): where a launch has enough of them,
//! as was measured, to keep an adapter busy.

use crate::matrix::Slab;
use crate::nodes::Launcher;
use crate::products::{Products, TILE_MAX};
use crate::sharing::TILES_FEW;
use duet_kernels::packed::PANEL;
use duet_kernels::quantize::GROUP;

/// From how many workgroups on a launch has small tiles, and large ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiled {
    pub(crate) small: usize,
    pub(crate) large: usize,
}

/// Rows of a thread, of small tiles and large ones.
const ROWS_SMALL: usize = 4;
const ROWS_LARGE: usize = 8;
/// Panels of a tile, of each of which a thread has an output.
const PANELS: usize = 4;
/// Threads of a workgroup.
pub(crate) const THREADS: usize = 128;
/// Threads that have the same outputs, and other rows.
const SLICES: usize = THREADS / PANEL;

impl Tiled {
    /// Never.
    pub(crate) const NEVER: Self = Self { small: usize::MAX, large: usize::MAX };
}

impl Launcher<'_> {
    /// Rows that a thread has, if a product of so many is computed so.
    pub(crate) fn tiled(&self, slab: &Slab, rows: usize) -> Option<usize> {
        if rows <= TILES_FEW * TILE_MAX || slab.form.is_float() || self.method.products != Products::Bytes {
            return None;
        }
        let Tiled { small, large } = self.method.tiled;
        let is_busy = |each: usize, least: usize| workgroups(slab.pairs) * rows.div_ceil(tile(each)) >= least;
        let fits = |each: usize| self.gpu.takes_workgroup(THREADS, shared_bytes(each));
        let (each, _) = [(ROWS_LARGE, large), (ROWS_SMALL, small)]
            .into_iter()
            .find(|&(each, least)| is_busy(each, least) && fits(each))?;
        Some(each)
    }
}

/// Rows of a tile whose threads have so many.
pub(crate) fn tile(each: usize) -> usize {
    each * SLICES
}

/// Workgroups for so many pairs of panels.
pub(crate) fn workgroups(pairs: usize) -> usize {
    (2 * pairs).div_ceil(PANELS)
}

/// Bytes that the threads of a workgroup share: of two groups, quants and what these are scaled by, for two parts of a group.
fn shared_bytes(each: usize) -> usize {
    const PARTS_MAX: usize = 2;
    2 * (tile(each) + PANELS * PANEL) * (GROUP + PARTS_MAX * 2 * size_of::<f32>())
}
