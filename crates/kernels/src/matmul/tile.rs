//! The inner loop: a few rows times a few panels, all sums in registers.

use super::Epilogue;
use crate::packed::{Panel, UNIT};
use crate::quantize::{GROUP, SharedRows, TILE, Tile};
use crate::simd::{LANES, Simd};

/// How the bytes of a panel become operands of the integer products.
pub trait Weights {
    /// Registers that hold a group.
    const REGISTERS: usize;
    /// Four-input steps in a register.
    const STEPS: usize;
    /// The zero point is `8 << ZERO_SHIFT`; `None` where groups have a minimum instead.
    const ZERO_SHIFT: Option<u32>;
    /// The steps held in one register; with one step a register, both are the same.
    fn steps<S: Simd>(s: S, register: S::B) -> (S::B, S::B);
}

macro_rules! weights {
    ($name:ident, $registers:expr, $steps:literal, $zero:expr, |$s:ident, $register:ident| $split:expr) => {
        pub(super) struct $name;
        impl Weights for $name {
            const REGISTERS: usize = $registers;
            const STEPS: usize = $steps;
            const ZERO_SHIFT: Option<u32> = $zero;
            #[inline(always)]
            fn steps<S: Simd>($s: S, $register: S::B) -> (S::B, S::B) {
                $split
            }
        }
    };
}
weights!(Byte, GROUP / 4, 1, Some(4), |_s, register| (register, register));
weights!(ByteMin, GROUP / 4, 1, None, |_s, register| (register, register));
weights!(Nibble, GROUP / 8, 2, Some(0), |s, register| s.nibbles(register));
weights!(NibbleMin, GROUP / 8, 2, None, |s, register| s.nibbles(register));

/// Rows of a product that one call computes for some panels: `count` tiles from row `row` on.
#[derive(Clone, Copy, Debug)]
pub struct RowTiles<'a> {
    pub(super) activations: &'a SharedRows<'a>,
    pub(super) row: usize,
    pub(super) count: usize,
    pub(super) panel: usize,
    pub(super) epilogue: &'a Epilogue<'a>,
}

/// Integer sums start at the bits of this float, so that their bits are always those of `BIAS + sum`: from there one
/// fused multiply-add gives `scale × sum`, rounded once. (A sum stays within ±2^21, and `scale × BIAS` is exact: 11 bits
/// times 2.)
const BIAS: f32 = 12_582_912.0;
const BIASED_ZERO: i32 = BIAS.to_bits() as i32;

/// Tiles of `R` rows times `P` panels.
///
/// # Safety
/// The tiles exist and have `R` rows, the panels are valid for the rows' groups, they have minima where `W` needs them, and no other call
/// of the product computes the same rows and panels.
#[inline(always)]
pub(crate) unsafe fn rows_by_panels<S: Simd, W: Weights, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    tiles: &RowTiles<'_>,
) {
    let unit = s.splat(UNIT);
    for index in 0..tiles.count {
        let row = tiles.row + index * TILE;
        let tile = tiles.activations.tile(row / TILE);
        // SAFETY: the caller's.
        unsafe {
            let ahead = Ahead { index: row / TILE, count: tiles.count };
            let mut sums = tile_by_panels::<S, W, R, P>(s, panels, tile, tiles.activations.groups(), ahead);
            for sums in &mut sums {
                for sum in sums {
                    *sum = s.mul(*sum, unit);
                }
            }
            tiles.epilogue.take(s, row, tiles.panel, &sums);
        }
    }
}

/// Which of the tiles that read the same panels this is: together the whole ones, or else the only one, fetch the next
/// panels from memory while they compute, each a share of the groups.
#[derive(Clone, Copy)]
struct Ahead {
    index: usize,
    count: usize,
}

/// More tiles than this compute longer than the next panels need to arrive.
const AHEAD_TILES: usize = 8;

/// A tile of `R` rows times `P` panels, in the weights' own unit.
///
/// # Safety
/// The tile has `R` rows, it and the panels are valid for `groups` groups, and the panels have minima where `W` needs them.
#[inline(always)]
unsafe fn tile_by_panels<S: Simd, W: Weights, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    tile: Tile,
    groups: usize,
    ahead: Ahead,
) -> [[S::F; P]; R] {
    let sharers = ahead.count.min(AHEAD_TILES);
    // One row of many bytes is faster left to the processor's own prefetching.
    let fetches = (R > 1 || W::STEPS > 1) && ahead.index < ahead.count;
    let mut turn = if ahead.index < sharers { ahead.index } else { usize::MAX };
    let mut sums = [[s.splat(0.0); P]; R];
    for group in 0..groups {
        let rows = group * R;
        if fetches {
            if turn == 0 {
                fetch_group::<S, W, P>(s, panels, group, groups);
                turn = sharers;
            }
            turn -= 1;
        }
        // SAFETY: all offsets lie within group `group < groups`, see the layouts in `packed` and `quantize`.
        unsafe {
            let mut dots = [[s.splat_i(BIASED_ZERO); P]; R];
            if let Some(shift) = W::ZERO_SHIFT {
                for (row, dots) in dots.iter_mut().enumerate() {
                    *dots = [s.splat_i(BIASED_ZERO + (*tile.offsets.add(rows + row) << shift)); P];
                }
            }
            let first = tile.quants.add(rows * GROUP);
            for register in 0..W::REGISTERS {
                let at = (group * W::REGISTERS + register) * 64;
                let mut operands = [None; P];
                for (operand, panel) in operands.iter_mut().zip(panels) {
                    *operand = Some(W::steps(s, s.load_bytes(panel.quants.add(at))));
                }
                for half in 0..W::STEPS {
                    let step = register + half * W::REGISTERS;
                    for (row, dots) in dots.iter_mut().enumerate() {
                        let activations = s.activations(first.add((step * R + row) * 4));
                        for (dot, operand) in dots.iter_mut().zip(operands) {
                            if let Some((low, high)) = operand {
                                *dot = s.dot(*dot, if half == 0 { low } else { high }, activations);
                            }
                        }
                    }
                }
            }
            for (p, panel) in panels.iter().enumerate() {
                let scale = s.load_f16(panel.scales.add(group * LANES));
                let unbias = s.mul(scale, s.splat(-BIAS));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let scaled = s.fma(s.reinterpret(dots[row][p]), scale, unbias);
                    sums[p] = s.fma(scaled, s.splat(*tile.scales.add(rows + row)), sums[p]);
                }
                if W::ZERO_SHIFT.is_none() {
                    let min = s.load_f16(panel.mins.add(group * LANES));
                    for (row, sums) in sums.iter_mut().enumerate() {
                        sums[p] = s.fma(min, s.splat(*tile.sums.add(rows + row)), sums[p]);
                    }
                }
            }
        }
    }
    sums
}

/// Starts fetching a group of the `P` panels that follow `panels`.
#[inline(always)]
fn fetch_group<S: Simd, W: Weights, const P: usize>(s: S, panels: &[Panel; P], group: usize, groups: usize) {
    let bytes = groups * W::REGISTERS * 64;
    for panel in panels {
        let next = panel.quants.wrapping_add(P * bytes + group * W::REGISTERS * 64);
        for register in 0..W::REGISTERS {
            s.prefetch(next.wrapping_add(register * 64));
        }
        // A line holds two groups' scales, or minima.
        if W::ZERO_SHIFT.is_none() && group % 2 == 1 {
            s.prefetch(panel.mins.wrapping_add((P * groups + group - 1) * LANES).cast());
        } else {
            s.prefetch(panel.scales.wrapping_add((P * groups + group) * LANES).cast());
        }
    }
}
