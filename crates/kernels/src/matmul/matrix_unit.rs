//! Full tiles of rows times pairs of panels on a processor's matrix unit.
//!
//! The unit has the integer sums of a group of inputs for one panel and 16 rows, two tiles that lie side by side, or the
//! eight of a tile that is alone. What becomes of them is what becomes of those of any other instruction set, by the same
//! function, three groups behind.

use super::fetching::{Ahead, Fetching};
use super::tile::{RowTiles, TilePart, add_scaled};
use super::weights::{Eight, Quantized, Quants, Scales};
use crate::packed::{BLOCK, Form, Panel, UNIT};
use crate::quantize::{BIASED_ZERO, TILE, byte_at};
use crate::simd::amx::{MatrixUnit, ROWS, Start, Sums, Tiles};
use crate::simd::avx512::Avx512;
use crate::simd::{LANES, Simd};
use std::arch::x86_64::{__m512, __m512i, _mm512_loadu_si512, _mm512_setzero_si512};

/// Whether the unit multiplies weights of a form. Elsewhere it is no faster than AVX-512, or slower: where there is a zero point,
/// what it takes from each sum has to be added, and halves of groups fill half of a product
/// (docs/benchmarks/instruction-sets.md).
pub(crate) const fn takes(form: Form) -> bool {
    matches!(form, Form::Q4_1 | Form::Q5_1 | Form::Q4K | Form::Q5K)
}

/// Whether it pays to unpack quants for the unit, which takes bytes, in products of so many rows. With fewer, that costs more than
/// the unit is faster.
pub(crate) fn unpacking_pays(rows: usize) -> bool {
    rows >= 8 * TILE
}

/// Tiles of eight rows times two panels, whose quants are bytes; `packed` has them as they lie in the matrix.
///
/// # Safety
/// The tiles exist and have eight rows, the panels are of form `W` and valid for the rows' groups, and no other call of the
/// product computes the same rows and panels.
#[inline(always)]
pub(crate) unsafe fn each_tile<W: Quantized>(
    s: Avx512,
    unit: MatrixUnit,
    panels: &[Panel; 2],
    packed: &[Panel; 2],
    tiles: &RowTiles<'_>,
) {
    assert!(W::Quants::REGISTERS == Eight::REGISTERS, "quants are bytes");
    assert!(W::FORM.has_min() && W::Scales::PARTS == 1, "a group is a product, and begins at `BIASED_ZERO`");
    let (first, end) = (tiles.row / TILE, tiles.row / TILE + tiles.count);
    // Tiles with an even number begin a pair.
    let pair = first.next_multiple_of(2).min(end);
    let pairs = pair..pair + (end - pair) / 2 * 2;
    let part = |index: usize| TilePart { tile: tiles.activations.tile(index), height: TILE, first: 0 };
    // SAFETY: the caller's, here and below.
    unsafe {
        if !pairs.is_empty() {
            let shaped = unit.tiles(2 * TILE);
            for index in pairs.clone().step_by(2) {
                let rows = [part(index), part(index + 1)];
                multiply::<W, 2>(s, &shaped, panels, packed, tiles, (index, rows));
            }
        }
        if pairs.len() < tiles.count {
            let shaped = unit.tiles(TILE);
            for index in (first..pairs.start).chain(pairs.end..end) {
                multiply::<W, 1>(s, &shaped, panels, packed, tiles, (index, [part(index)]));
            }
        }
    }
}

/// The tiles from `index` on, side by side, times two panels.
///
/// # Safety
/// As [`each_tile`]; the unit's tiles have the shape.
#[inline(always)]
unsafe fn multiply<W: Quantized, const TILES: usize>(
    s: Avx512,
    shaped: &Tiles,
    panels: &[Panel; 2],
    packed: &[Panel; 2],
    tiles: &RowTiles<'_>,
    (index, rows): (usize, [TilePart; TILES]),
) {
    let mut sums = [[[s.splat(0.0); 2]; TILE]; TILES];
    for (p, &panel) in panels.iter().enumerate() {
        let operands = Operands { shaped, panel, rows, groups: tiles.activations.groups() };
        // What the last tile has to fetch, it does with its first panel alone.
        let turn = if p < TILES { index + p } else { usize::MAX };
        let ahead = Ahead { index: turn, count: tiles.count, packed, next: 2 };
        // SAFETY: the caller's.
        let of_panel = unsafe { operands.sums::<W>(s, ahead) };
        for (sums, of_panel) in sums.as_flattened_mut().iter_mut().zip(of_panel.as_flattened()) {
            sums[p] = s.mul(of_panel[0], s.splat(UNIT));
        }
    }
    for (tile, sums) in sums.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe { tiles.epilogue.take(s, (index + tile) * TILE, tiles.panels_there(), sums) };
    }
}

/// As many sums are under way, from the product to where they are scaled.
const UNDER_WAY: usize = 4;

/// Rows and a panel.
struct Operands<'a, const TILES: usize> {
    shaped: &'a Tiles,
    panel: Panel,
    rows: [TilePart; TILES],
    groups: usize,
}

impl<const TILES: usize> Operands<'_, TILES> {
    /// Their product.
    ///
    /// # Safety
    /// As [`each_tile`].
    #[inline(always)]
    unsafe fn sums<W: Quantized>(&self, s: Avx512, ahead: Ahead<'_, 2>) -> [[[__m512; 1]; TILE]; TILES] {
        const { assert!(TILES * TILE <= ROWS) };
        let mut fetching = Fetching::of::<W>(ahead, self.groups);
        let start = Start([BIASED_ZERO; LANES]);
        let mut under_way = [Sums::ZERO; UNDER_WAY];
        let mut shared = [[s.splat(0.0); 2]];
        let mut sums = [[[s.splat(0.0)]; TILE]; TILES];
        for turn in 0..self.groups + UNDER_WAY - 1 {
            // SAFETY: the caller's; the groups are below `groups`.
            unsafe {
                if turn < self.groups {
                    self.multiply(turn, &start);
                }
                if turn > 0 {
                    self.shaped.store(turn - 1, &mut under_way[(turn - 1) % UNDER_WAY]);
                }
                let Some(group) = turn.checked_sub(UNDER_WAY - 1) else { continue };
                fetching.at::<W>(group);
                if group.is_multiple_of(BLOCK) {
                    shared = [W::Scales::shared(s, self.panel.scales.add(W::FORM.block_at(group)))];
                }
                let ready = under_way[group % UNDER_WAY].0.as_chunks::<TILE>().0;
                for ((sums, rows), products) in sums.iter_mut().zip(self.rows).zip(ready) {
                    let dots = dots(products);
                    add_scaled::<Avx512, W, TILE, 1>(s, &[self.panel], &shared, rows, (group, 0), &dots, sums);
                }
            }
        }
        sums
    }

    /// Begins the integer sums of a group.
    ///
    /// # Safety
    /// There is such a group; the rest as [`each_tile`].
    #[inline(always)]
    unsafe fn multiply(&self, group: usize, start: &Start) {
        let TilePart { tile, height, .. } = self.rows[0];
        // SAFETY: the caller's; the bytes of the second tile of a pair follow those of the first.
        unsafe {
            let activations = tile.quants.add(group * tile.group_bytes + byte_at(0, 0, height));
            let weights = self.panel.quants.add(group * Eight::REGISTERS * 64);
            self.shaped.multiply(group, activations, weights, start);
        }
    }
}

/// The sums of a tile's rows as vectors.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn dots(products: &[[i32; LANES]; TILE]) -> [[__m512i; 1]; TILE] {
    // SAFETY: the caller's; a row of sums is 64 bytes.
    unsafe {
        let mut dots = [[_mm512_setzero_si512()]; TILE];
        for (dots, products) in dots.iter_mut().zip(products) {
            *dots = [_mm512_loadu_si512(products.as_ptr().cast())];
        }
        dots
    }
}
