//! Products of matrices of floats, which nothing is rounded for: of a file in F16 all is computed that it says.
//!
//! Activations are those of [`crate::quantize::Operands::BytesAndFloats`]. Each sum is one chain of fused multiply-adds in
//! the order of the inputs, so that its bits are the same in tiles of any size.

use super::RowTiles;
use super::weights::Weights;
use crate::packed::{Form, Panel};
use crate::quantize::{GROUP, TILE};
use crate::simd::{LANES, Simd};

/// Floats of one form.
trait Floats {
    /// Bytes of one.
    const BYTES: usize;

    /// Sixteen of them.
    ///
    /// # Safety
    /// Valid for so many.
    unsafe fn load<S: Simd>(s: S, from: *const u8) -> S::F;
}

macro_rules! floats {
    ($($name:ident, $bytes:literal, $load:ident;)*) => {$(
        #[doc = concat!("[`Form::", stringify!($name), "`].")]
        pub(super) struct $name;

        impl Floats for $name {
            const BYTES: usize = $bytes;

            #[inline(always)]
            unsafe fn load<S: Simd>(s: S, from: *const u8) -> S::F {
                // SAFETY: the caller's.
                unsafe { s.$load(from.cast()) }
            }
        }

        impl Weights for $name {
            const FORM: Form = Form::$name;

            #[inline(always)]
            unsafe fn rows_by_panels<S: Simd, const R: usize, const P: usize>(
                s: S,
                panels: &[Panel; P],
                tiles: &RowTiles<'_>,
            ) {
                // SAFETY: the caller's.
                unsafe { rows_by_panels::<S, Self, R, P>(s, panels, tiles) }
            }

            #[inline(always)]
            unsafe fn row_by_row<S: Simd>(s: S, panels: &[Panel], height: usize, tiles: &RowTiles<'_>) {
                // SAFETY: the caller's.
                unsafe { row_by_row::<S, Self>(s, panels, height, tiles) }
            }
        }
    )*};
}
floats! {
    F32, 4, load;
    F16, 2, load_f16;
    BF16, 2, load_bf16;
}

/// See [`Weights::rows_by_panels`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn rows_by_panels<S: Simd, T: Floats, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    tiles: &RowTiles<'_>,
) {
    for index in 0..tiles.count {
        let row = tiles.row + index * TILE;
        let rows = RowsOfTile { values: tiles.values(row), height: R };
        // SAFETY: the caller's.
        unsafe {
            let sums = sums::<S, T, R, P>(s, panels, rows, tiles.activations.groups());
            tiles.epilogue.take(s, row, tiles.panels_there(), &sums);
        }
    }
}

/// See [`Weights::row_by_row`]. Not inlined, so that one function serves all numbers of rows.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn row_by_row<S: Simd, T: Floats>(s: S, panels: &[Panel], height: usize, tiles: &RowTiles<'_>) {
    for index in 0..tiles.count {
        let first = tiles.row + index * TILE;
        for (pair, panels) in panels.as_chunks::<2>().0.iter().enumerate() {
            let there = tiles.panels_there();
            let panels_there = there.start + 2 * pair..(there.start + 2 * pair + 2).min(there.end);
            for row in 0..height {
                let values = tiles.values(first).wrapping_add(row * GROUP);
                // SAFETY: the caller's.
                unsafe {
                    let sums = sums::<S, T, 1, 2>(s, panels, RowsOfTile { values, height }, tiles.activations.groups());
                    tiles.epilogue.take(s, first + row, panels_there.clone(), &sums);
                }
            }
        }
    }
}

/// Activations of some rows of a tile.
#[derive(Clone, Copy)]
struct RowsOfTile {
    /// Those of the first row in the first group; the next row's lie behind them.
    values: *const f32,
    /// Rows of the tile, which all have theirs in a group before those of the next group begin.
    height: usize,
}

/// `R` rows times `P` panels.
///
/// # Safety
/// The panels are of form `T`; they and the rows are valid for `groups` groups.
#[inline(always)]
unsafe fn sums<S: Simd, T: Floats, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    rows: RowsOfTile,
    groups: usize,
) -> [[S::F; P]; R] {
    let mut sums = [[s.splat(0.0); P]; R];
    for group in 0..groups {
        let mut weights = [std::ptr::null(); P];
        for (weights, panel) in weights.iter_mut().zip(panels) {
            *weights = panel.quants.wrapping_add(group * GROUP * LANES * T::BYTES);
        }
        let values = rows.values.wrapping_add(group * rows.height * GROUP);
        // SAFETY: the caller's; the group is one of theirs.
        unsafe {
            if R * P <= S::FLOAT_SUMS {
                add_group::<S, T, R, P>(s, weights, values, &mut sums);
            } else if 2 * P <= S::FLOAT_SUMS {
                for (pair, sums) in sums.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    add_group::<S, T, 2, P>(s, weights, values.add(2 * pair * GROUP), sums);
                }
                if let [sums] = sums.as_chunks_mut::<2>().1 {
                    let sums = std::array::from_mut(sums);
                    add_group::<S, T, 1, P>(s, weights, values.add((R - 1) * GROUP), sums);
                }
            } else {
                for (row, sums) in sums.iter_mut().enumerate() {
                    add_group::<S, T, 1, P>(s, weights, values.add(row * GROUP), std::array::from_mut(sums));
                }
            }
        }
    }
    sums
}

/// Adds what a group of inputs gives: `weights` are those of each panel, `values` the rows'.
///
/// # Safety
/// Valid for a group.
#[inline(always)]
unsafe fn add_group<S: Simd, T: Floats, const R: usize, const P: usize>(
    s: S,
    weights: [*const u8; P],
    values: *const f32,
    sums: &mut [[S::F; P]; R],
) {
    let mut local = [[s.splat(0.0); P]; R];
    local.copy_from_slice(sums);
    for input in 0..GROUP {
        let mut operands = [s.splat(0.0); P];
        for (operand, weights) in operands.iter_mut().zip(weights) {
            // SAFETY: the caller's; the input is below `GROUP`.
            *operand = unsafe { T::load(s, weights.add(input * LANES * T::BYTES)) };
        }
        for (row, sums) in local.iter_mut().enumerate() {
            // SAFETY: as above.
            let value = s.splat(unsafe { *values.add(row * GROUP + input) });
            for (sum, operand) in sums.iter_mut().zip(operands) {
                *sum = s.fma(operand, value, *sum);
            }
        }
    }
    sums.copy_from_slice(&local);
}
