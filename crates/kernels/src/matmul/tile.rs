//! The inner loop: a few rows times a few panels, all sums in registers.
//!
//! Vectors are never touched in a closure: it would be compiled without the instruction set and, where it is not inlined,
//! call a function for each instruction.

use super::Epilogue;
use super::fetching::{Ahead, Fetching};
use super::unpacked::{Room, Unpacked};
use super::weights::{Eight, Four, PAIRS, Quantized, Quants, Scales};
use crate::packed::{BLOCK, PANELS_TOGETHER, Panel, UNIT};
use crate::quantize::{BIAS, BIASED_ZERO, SharedRows, TILE, Tile, byte_at};
use crate::read_ahead::{Panels, ReadAhead};
use crate::simd::{Simd, WeightBytes};
use std::ops::Range;

/// Rows of a product that one call computes for some panels: `count` tiles from row `row` on.
#[derive(Clone, Copy, Debug)]
pub struct RowTiles<'a> {
    pub(super) activations: &'a SharedRows<'a>,
    pub(super) row: usize,
    pub(super) count: usize,
    pub(super) panel: usize,
    /// Panels that there are: one where the last one stands alone and is computed twice.
    pub(super) panels: usize,
    /// Room for the panels' quants as bytes, where there are enough tiles for that to pay.
    pub(super) room: Option<Room<'a>>,
    pub(super) epilogue: &'a Epilogue<'a>,
}

impl RowTiles<'_> {
    /// The values of the tile that begins at a row.
    pub(super) fn values(&self, row: usize) -> *const f32 {
        self.activations.tile(row / TILE).floats
    }

    /// Panels that there are.
    pub(super) fn panels_there(&self) -> Range<usize> {
        self.panel..self.panel + self.panels
    }
}

/// Tiles of `R` rows times `P` panels.
///
/// # Safety
/// The tiles exist and have `R` rows, the panels are of form `W` and valid for the rows' groups, and no other call of the
/// product computes the same rows and panels.
#[inline(always)]
pub(super) unsafe fn rows_by_panels<S: Simd, W: Quantized, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    tiles: &RowTiles<'_>,
) {
    let groups = tiles.activations.groups();
    // SAFETY: the caller's.
    unsafe {
        match tiles.room {
            Some(room) if R == TILE && P == PANELS_TOGETHER => {
                let unpacked = room.unpack::<S, W, P>(s, panels, groups);
                if !s.by_matrix_unit::<Unpacked<W>, P>(&unpacked, panels, tiles) {
                    each_tile::<S, Unpacked<W>, R, P>(s, &unpacked, panels, tiles);
                }
            }
            _ if R == TILE
                && W::Quants::REGISTERS == Eight::REGISTERS
                && s.by_matrix_unit::<W, P>(panels, panels, tiles) => {}
            _ => each_tile::<S, W, R, P>(s, panels, panels, tiles),
        }
    }
}

/// Tiles of `R` rows times `P` panels, which `packed` has as they lie in the matrix.
///
/// # Safety
/// As [`rows_by_panels`].
#[inline(always)]
unsafe fn each_tile<S: Simd, W: Quantized, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    packed: &[Panel; P],
    tiles: &RowTiles<'_>,
) {
    for index in 0..tiles.count {
        let row = tiles.row + index * TILE;
        let part = TilePart { tile: tiles.activations.tile(row / TILE), height: R, first: 0 };
        let ahead = Ahead { index: row / TILE, count: tiles.count, packed, next: P };
        // SAFETY: the caller's.
        unsafe {
            let waits = || tiles.row == 0 && R <= ROWS_THAT_WAIT && ReadAhead::current().panels == Panels::OneByOne;
            let sums = if R * P > S::SUMS || tiles.count == 1 && waits() {
                panel_after_panel::<S, W, R, P>(s, panels, part, tiles.activations.groups(), ahead)
            } else {
                part_by_panels::<S, W, R, P>(s, panels, part, tiles.activations.groups(), ahead)
            };
            tiles.epilogue.take(s, row, tiles.panels_there(), &sums);
        }
    }
}

/// The only tile of so few rows waits for its weights from memory, which may give them faster as one stream than as several. More
/// rows compute for as long, and panels side by side share their activations, unless their sums do not fit in registers: then one
/// panel follows another whatever the rows, since what is side by side would only be compiled twice.
const ROWS_THAT_WAIT: usize = 4;

/// A tile times one panel after another.
///
/// # Safety
/// As [`part_by_panels`].
#[inline(always)]
unsafe fn panel_after_panel<S: Simd, W: Quantized, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    rows: TilePart,
    groups: usize,
    ahead: Ahead<'_, P>,
) -> [[S::F; P]; R] {
    let mut sums = [[s.splat(0.0); P]; R];
    for (p, (panel, packed)) in panels.iter().zip(ahead.packed).enumerate() {
        // A tile alone goes on with the panel behind this one; several go on with what comes after all of these.
        let next = if ahead.count == 1 { 1 } else { ahead.next };
        let ahead = Ahead { index: ahead.index, count: ahead.count, packed: std::array::from_ref(packed), next };
        // SAFETY: the caller's.
        let of_panel = unsafe { part_by_panels::<S, W, R, 1>(s, std::array::from_ref(panel), rows, groups, ahead) };
        for ([of_panel], sums) in of_panel.into_iter().zip(&mut sums) {
            sums[p] = of_panel;
        }
    }
    sums
}

/// [`rows_by_panels`] of tiles of `height` rows, one row and two panels at a time: for instruction sets where there are not the
/// registers for more. Not inlined, so that one function serves all numbers of rows.
///
/// # Safety
/// As [`rows_by_panels`].
#[inline(never)]
pub(super) unsafe fn row_by_row<S: Simd, W: Quantized>(s: S, panels: &[Panel], height: usize, tiles: &RowTiles<'_>) {
    for index in 0..tiles.count {
        let row = tiles.row + index * TILE;
        let tile = tiles.activations.tile(row / TILE);
        for (pair, panels) in panels.as_chunks::<2>().0.iter().enumerate() {
            let panel = tiles.panel + 2 * pair;
            for first in 0..height {
                let (part, ahead) =
                    (TilePart { tile, height, first }, Ahead { index: 1, count: 1, packed: panels, next: 2 });
                let panels_there = panel..(panel + 2).min(tiles.panel + tiles.panels);
                // SAFETY: the caller's.
                unsafe {
                    let sums = part_by_panels::<S, W, 1, 2>(s, panels, part, tiles.activations.groups(), ahead);
                    tiles.epilogue.take(s, row + first, panels_there, &sums);
                }
            }
        }
    }
}

/// Some rows of a tile.
#[derive(Clone, Copy)]
pub(super) struct TilePart {
    pub(super) tile: Tile,
    /// Rows of the tile.
    pub(super) height: usize,
    /// The first of them.
    pub(super) first: usize,
}

/// `R` rows of a tile times `P` panels.
///
/// # Safety
/// The tile has these rows, it and the panels are valid for `groups` groups, and the panels are of form `W`.
#[inline(always)]
unsafe fn part_by_panels<S: Simd, W: Quantized, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    rows: TilePart,
    groups: usize,
    ahead: Ahead<'_, P>,
) -> [[S::F; P]; R] {
    let mut fetching = Fetching::of::<W>(ahead, groups);
    let whole_blocks = by_panel::<S, W>(R * P) && (R < TILE || ahead.count > 1 && !W::FORM.has_min());
    let mut sums = [[s.splat(0.0); P]; R];
    for first in (0..groups).step_by(BLOCK) {
        let mut shared = [[s.splat(0.0); 2]; P];
        for (shared, panel) in shared.iter_mut().zip(panels) {
            // SAFETY: within the panels' scales.
            *shared = unsafe { W::Scales::shared(s, panel.scales.add(W::FORM.block_at(first))) };
        }
        let block = first..groups.min(first + BLOCK);
        // SAFETY: the caller's; the groups are below `groups`.
        unsafe {
            if whole_blocks {
                add_block_by_panel::<S, W, R, P>(s, panels, &shared, rows, block, &mut fetching, &mut sums);
            } else {
                for group in block {
                    fetching.at::<W>(group);
                    add_group::<S, W, R, P>(s, panels, &shared, rows, group, &mut sums);
                }
            }
        }
    }
    for sum in sums.as_flattened_mut() {
        *sum = s.mul(*sum, s.splat(UNIT));
    }
    sums
}

/// Whether sums are added panel after panel, because those of all panels, integers and floats, do not fit in registers. Where
/// halves of groups have scales, float sums are changed twice a group, and to read them from memory and write them each time
/// costs more than to read the activations again for each panel. Seven rows, and tiles that share weights without minima, take
/// a panel's whole block ([`add_block_by_panel`]). Others take a part of a group ([`add_by_panel`]): eight rows alone wait for
/// weights from memory, and what minima are multiplied with would be computed again for each panel. Measured with
/// `examples/gemm`.
const fn by_panel<S: Simd, W: Quantized>(sums: usize) -> bool {
    W::Scales::PARTS == 2 && S::PANEL_ROWS == TILE && 2 * sums > S::SUMS
}

/// Rows of one panel whose products are summed at once, where those of several panels are not.
const fn panel_rows<S: Simd, W: Quantized>() -> usize {
    let planes = W::Quants::REGISTERS != Eight::REGISTERS && W::Quants::REGISTERS != Four::REGISTERS;
    if planes { S::PLANE_ROWS } else { S::PANEL_ROWS }
}

/// Adds what the groups of a block give to the sums, one panel after another: its sums are in registers meanwhile.
///
/// # Safety
/// As [`part_by_panels`], and the groups are of the panels' and the tile's.
#[inline(always)]
unsafe fn add_block_by_panel<S: Simd, W: Quantized, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    shared: &[[S::F; 2]; P],
    rows: TilePart,
    block: Range<usize>,
    fetching: &mut Fetching<'_, P>,
    sums: &mut [[S::F; P]; R],
) {
    for p in 0..P {
        let mut of_panel = [[s.splat(0.0)]; R];
        for (of_panel, sums) in of_panel.iter_mut().zip(&*sums) {
            *of_panel = [sums[p]];
        }
        for group in block.clone() {
            if p == 0 {
                fetching.at::<W>(group);
            }
            // SAFETY: the caller's.
            unsafe { add_group::<S, W, R, 1>(s, &[panels[p]], &[shared[p]], rows, group, &mut of_panel) };
        }
        for ([of_panel], sums) in of_panel.iter().zip(&mut *sums) {
            sums[p] = *of_panel;
        }
    }
}

/// Adds what a group of inputs gives to the sums.
///
/// Where quants are planes of bits, its parts are named one by one: with a part that is no constant to the compiler, planes are
/// shifted by what registers say. Bytes have no planes, and there two parts at once would not stay in registers.
///
/// # Safety
/// As [`part_by_panels`], and the group is one of the panels' and the tile's.
#[inline(always)]
unsafe fn add_group<S: Simd, W: Quantized, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    shared: &[[S::F; 2]; P],
    rows: TilePart,
    group: usize,
    sums: &mut [[S::F; P]; R],
) {
    const { assert!(W::Scales::PARTS <= 2) };
    // SAFETY: the caller's.
    unsafe {
        if W::Scales::PARTS == 1 || W::Quants::REGISTERS == Eight::REGISTERS {
            for part in 0..W::Scales::PARTS {
                add_part::<S, W, R, P>(s, panels, shared, rows, (group, part), sums);
            }
        } else {
            add_part::<S, W, R, P>(s, panels, shared, rows, (group, 0), sums);
            add_part::<S, W, R, P>(s, panels, shared, rows, (group, 1), sums);
        }
    }
}

/// Adds what a group of inputs, or a part of one with scales of its own, gives to the sums.
///
/// # Safety
/// As [`add_group`].
#[inline(always)]
unsafe fn add_part<S: Simd, W: Quantized, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    shared: &[[S::F; 2]; P],
    rows: TilePart,
    part: (usize, usize),
    sums: &mut [[S::F; P]; R],
) {
    // SAFETY: the caller's.
    unsafe {
        if R * P > S::SUMS || by_panel::<S, W>(R * P) {
            return add_by_panel::<S, W, R, P>(s, panels, shared, rows, part, sums);
        }
        let mut dots = [[s.splat_i(BIASED_ZERO); P]; R];
        add_products::<S, W, R, P>(s, panels, rows, part, &mut dots);
        add_scaled::<S, W, R, P>(s, panels, shared, rows, part, &dots, sums);
    }
}

/// The same as [`add_part`], some rows of one panel after another: their integer sums are in registers, all others in memory.
///
/// # Safety
/// As [`add_part`].
#[inline(always)]
unsafe fn add_by_panel<S: Simd, W: Quantized, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    shared: &[[S::F; 2]; P],
    rows: TilePart,
    part: (usize, usize),
    sums: &mut [[S::F; P]; R],
) {
    for p in 0..P {
        let (panel, shared) = ([panels[p]], [shared[p]]);
        macro_rules! add {
            ($count:tt from $row:expr) => {{
                let rows = TilePart { first: rows.first + $row, ..rows };
                let mut dots = [[s.splat_i(BIASED_ZERO)]; $count];
                // SAFETY: the caller's; these rows are some of its own.
                unsafe { add_products::<S, W, $count, 1>(s, &panel, rows, part, &mut dots) };
                let mut few = [[s.splat(0.0)]; $count];
                for (few, sums) in few.iter_mut().zip(&sums[$row..]) {
                    *few = [sums[p]];
                }
                // SAFETY: as above.
                unsafe { add_scaled::<S, W, $count, 1>(s, &panel, &shared, rows, part, &dots, &mut few) };
                for (few, sums) in few.iter().zip(&mut sums[$row..]) {
                    sums[p] = few[0];
                }
            }};
        }
        if R <= const { panel_rows::<S, W>() } {
            add!(R from 0);
            continue;
        }
        let whole = R / 4 * 4;
        if whole > 0 {
            add!(4 from 0);
        }
        if whole > 4 {
            add!(4 from 4);
        }
        match R - whole {
            1 => add!(1 from whole),
            2 => add!(2 from whole),
            3 => add!(3 from whole),
            _ => {}
        }
    }
}

const _: () = assert!(TILE <= 8, "a tile is two quarters of rows at most");

/// Adds the integer sums of a group of inputs, or of a part of one, to `dots`, which are at [`BIASED_ZERO`].
///
/// # Safety
/// As [`add_part`].
#[inline(always)]
unsafe fn add_products<S: Simd, W: Quantized, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    TilePart { tile, height, first }: TilePart,
    (group, part): (usize, usize),
    dots: &mut [[S::I; P]; R],
) {
    let rows = group * height + first;
    // SAFETY: all offsets lie within group `group`, see the layouts in `packed` and `quantize`.
    unsafe {
        if !W::FORM.has_min() && !moved_to_zero::<S, W>() {
            for (row, dots) in dots.iter_mut().enumerate() {
                *dots = [s.splat_i((*tile.offsets.add(rows + row)).of(W::FORM, part)); P];
            }
        }
        let activations = tile.quants.add(group * tile.group_bytes + byte_at(0, first, height));
        s.products::<W, R, P>(dots, GroupPart { panels, group, part, activations, height });
    }
}

/// Adds integer sums, scaled, and what minima give.
///
/// # Safety
/// As [`add_part`].
#[inline(always)]
pub(super) unsafe fn add_scaled<S: Simd, W: Quantized, const R: usize, const P: usize>(
    s: S,
    panels: &[Panel; P],
    shared: &[[S::F; 2]; P],
    TilePart { tile, height, first }: TilePart,
    (group, part): (usize, usize),
    dots: &[[S::I; P]; R],
    sums: &mut [[S::F; P]; R],
) {
    let rows = group * height + first;
    // SAFETY: as in `add_products`.
    unsafe {
        for (p, panel) in panels.iter().enumerate() {
            let scales = panel.scales.add(W::FORM.scales_at(group));
            let scale = W::Scales::scale(s, shared[p], scales, part);
            let unbias = s.mul(scale, s.splat(-BIAS));
            for (row, sums) in sums.iter_mut().enumerate() {
                let scaled = s.fma(s.reinterpret(dots[row][p]), scale, unbias);
                sums[p] = s.fma(scaled, s.splat(*tile.scales.add(rows + row)), sums[p]);
            }
            if let Some(min) = W::Scales::min(s, shared[p], scales, part) {
                for (row, sums) in sums.iter_mut().enumerate() {
                    let sum = if W::Scales::PARTS == 1 {
                        *tile.sums.add(rows + row)
                    } else {
                        (*tile.offsets.add(rows + row)).half(part) as f32 * *tile.scales.add(rows + row)
                    };
                    sums[p] = s.fma(min, s.splat(sum), sums[p]);
                }
            }
        }
    }
}

/// What the integer products of a group, or of a part of one, read.
#[derive(Clone, Copy, Debug)]
pub struct GroupPart<'a, const P: usize> {
    pub(crate) panels: &'a [Panel; P],
    group: usize,
    /// Which part of the group.
    part: usize,
    /// Those of the first of the rows in the group's first step.
    activations: *const i8,
    /// Rows of the tile.
    height: usize,
}

impl<const P: usize> GroupPart<'_, P> {
    /// The part's steps, two by two.
    #[inline(always)]
    pub(crate) fn pairs<W: Quantized>(&self) -> Range<usize> {
        let pairs = PAIRS / W::Scales::PARTS;
        self.part * pairs..(self.part + 1) * pairs
    }

    /// The weights of a panel as operands: of the one step of a pair, and of the other.
    ///
    /// # Safety
    /// It is a pair of the group's, and one of the panels, which are of form `W`.
    #[inline(always)]
    pub(crate) unsafe fn weights<S: Simd, W: Quantized>(&self, s: S, panel: &Panel, pair: usize) -> (S::B, S::B) {
        // SAFETY: the caller's.
        let (one, other) =
            unsafe { W::Quants::pair(s, panel.quants.add(self.group * (W::Quants::REGISTERS * 64)), pair) };
        if moved_to_zero::<S, W>() { (s.less_128(one), s.less_128(other)) } else { (one, other) }
    }

    /// The activations of a row in a step: four bytes.
    ///
    /// # Safety
    /// There are such a step of the group and such a row.
    #[inline(always)]
    pub(crate) unsafe fn activations(&self, step: usize, row: usize) -> *const i8 {
        // SAFETY: the caller's.
        unsafe { self.activations.add(byte_at(step, row, self.height)) }
    }
}

/// [`Simd::products`] of one row after another.
///
/// # Safety
/// As [`Simd::products`].
#[inline(always)]
pub(crate) unsafe fn products_by_row<S: Simd, W: Quantized, const R: usize, const P: usize>(
    s: S,
    sums: &mut [[S::I; P]; R],
    part: GroupPart<'_, P>,
) {
    for pair in part.pairs::<W>() {
        let mut operands = [None; P];
        for (operands, panel) in operands.iter_mut().zip(part.panels) {
            // SAFETY: the caller's.
            *operands = Some(unsafe { part.weights::<S, W>(s, panel, pair) });
        }
        for half in 0..2 {
            let step = 2 * pair + half;
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the caller's.
                let four = unsafe { s.activations(part.activations(step, row)) };
                for (sum, operands) in sums.iter_mut().zip(operands) {
                    if let Some((low, high)) = operands {
                        *sum = s.dot(*sum, if half == 0 { low } else { high }, four);
                    }
                }
            }
        }
    }
}

/// Whether weights of the form reach [`Simd::dot`] without their zero point.
const fn moved_to_zero<S: Simd, W: Quantized>() -> bool {
    W::FORM.zero() == 128 && matches!(S::WEIGHT_BYTES, WeightBytes::Signed)
}
