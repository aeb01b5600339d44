//! Full tiles of rows times pairs of panels on a processor's matrix unit.
//!
//! The unit has the integer sums of a group of inputs, or of a part of one that has scales of its own, for eight rows and
//! two panels; what becomes of them is what becomes of those of any other instruction set, by the same function. While they
//! are scaled the unit computes the next.

use super::tile::{Ahead, Fetching, RowTiles, TilePart, add_scaled};
use super::weights::{Eight, Quantized, Quants, Scales};
use crate::packed::{BLOCK, Form, Panel, UNIT};
use crate::quantize::{BIASED_ZERO, GROUP, TILE, byte_at};
use crate::simd::amx::{MatrixUnit, Products, Tiles};
use crate::simd::avx512::Avx512;
use crate::simd::{LANES, Simd};
use std::arch::x86_64::{_mm512_add_epi32, _mm512_load_si512, _mm512_set1_epi32};

/// Whether quants are unpacked for the unit, which takes bytes, in products of so many rows: two tiles are to share what that
/// costs, which is less than the integer products of one on AVX-512.
pub(crate) fn unpacks(form: Form, rows: usize) -> bool {
    rows >= 2 * TILE && form.bits() != 8 && !form.is_float()
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
    let shaped = unit.tiles(GROUP / W::Scales::PARTS);
    for index in 0..tiles.count {
        let row = tiles.row + index * TILE;
        let rows = TilePart { tile: tiles.activations.tile(row / TILE), height: TILE, first: 0 };
        let ahead = Ahead { index: row / TILE, count: tiles.count, packed };
        let operands = Operands { shaped: &shaped, panels, rows, groups: tiles.activations.groups() };
        // SAFETY: the caller's.
        unsafe {
            let sums = operands.sums::<W>(s, ahead);
            tiles.epilogue.take(s, row, tiles.panels_there(), &sums);
        }
    }
}

/// A tile of rows and two panels.
struct Operands<'a> {
    shaped: &'a Tiles,
    panels: &'a [Panel; 2],
    rows: TilePart,
    groups: usize,
}

impl Operands<'_> {
    /// Their product.
    ///
    /// # Safety
    /// As [`each_tile`].
    #[inline(always)]
    unsafe fn sums<W: Quantized>(&self, s: Avx512, ahead: Ahead<'_, 2>) -> [[<Avx512 as Simd>::F; 2]; TILE] {
        let mut fetching = Fetching::of::<W>(ahead, self.groups);
        let mut buffers = [Products::ZERO; 2];
        let mut shared = [[s.splat(0.0); 2]; 2];
        let mut sums = [[[s.splat(0.0)]; TILE]; 2];
        let steps = self.groups * W::Scales::PARTS;
        // SAFETY: the caller's; steps are below `steps`, groups below `groups`.
        unsafe {
            if steps > 0 {
                self.multiply::<W>(0, &mut buffers[0]);
            }
            for step in 0..steps {
                if step + 1 < steps {
                    self.multiply::<W>(step + 1, &mut buffers[(step + 1) % 2]);
                }
                let (group, part) = (step / W::Scales::PARTS, step % W::Scales::PARTS);
                if part == 0 {
                    fetching.at::<Avx512, W>(s, group);
                    if group.is_multiple_of(BLOCK) {
                        for (shared, panel) in shared.iter_mut().zip(self.panels) {
                            *shared = W::Scales::shared(s, panel.scales.add(W::FORM.block_at(group)));
                        }
                    }
                }
                for (p, sums) in sums.iter_mut().enumerate() {
                    let dots = self.biased::<W>((group, part), &buffers[step % 2].0[p]);
                    let (panel, shared) = ([self.panels[p]], [shared[p]]);
                    add_scaled::<Avx512, W, TILE, 1>(s, &panel, &shared, self.rows, (group, part), &dots, sums);
                }
            }
        }
        let mut scaled = [[s.splat(0.0); 2]; TILE];
        for (row, scaled) in scaled.iter_mut().enumerate() {
            *scaled = [s.mul(sums[0][row][0], s.splat(UNIT)), s.mul(sums[1][row][0], s.splat(UNIT))];
        }
        scaled
    }

    /// The integer sums of a step.
    ///
    /// # Safety
    /// There is such a step; the rest as [`each_tile`].
    #[inline(always)]
    unsafe fn multiply<W: Quantized>(&self, step: usize, to: &mut Products) {
        let (group, part) = (step / W::Scales::PARTS, step % W::Scales::PARTS);
        let first = part * (GROUP / 4 / W::Scales::PARTS);
        let TilePart { tile, height, .. } = self.rows;
        // SAFETY: the caller's.
        unsafe {
            let activations = tile.quants.add(group * height * GROUP + byte_at(first, 0, height));
            let weights = self.panels.map(|panel| panel.quants.add((group * Eight::REGISTERS + first) * 64));
            self.shaped.products(step, activations, weights, to);
        }
    }

    /// The sums of a panel, as they are where they begin at [`BIASED_ZERO`], or at what a zero point makes of it.
    ///
    /// # Safety
    /// The group is one of the tile's; the machine has AVX-512.
    #[inline(always)]
    unsafe fn biased<W: Quantized>(
        &self,
        (group, part): (usize, usize),
        products: &[[i32; LANES]; TILE],
    ) -> [[<Avx512 as Simd>::I; 1]; TILE] {
        // SAFETY: the caller's; a row of sums is 64 bytes at a multiple of 64.
        unsafe {
            let mut dots = [[_mm512_set1_epi32(BIASED_ZERO)]; TILE];
            for (row, dots) in dots.iter_mut().enumerate() {
                if !W::FORM.has_min() {
                    let offsets = *self.rows.tile.offsets.add(group * TILE + row);
                    *dots = [_mm512_set1_epi32(offsets.of(W::FORM, part))];
                }
                *dots = [_mm512_add_epi32(dots[0], _mm512_load_si512(products[row].as_ptr().cast()))];
            }
            dots
        }
    }
}
