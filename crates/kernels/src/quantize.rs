//! Activations as signed bytes, laid out for the matrix products.
//!
//! Each row is cut into groups of [`GROUP`] values; a group has one scale, `max |x| / 127`. A group whose largest value
//! is too small for `127 / max |x|` to be finite (below 3.7e-37) is zero: scale and quants. A group that holds an infinity
//! or NaN has the scale NaN and zero quants, so that all products with its row are NaN. Both are the same bits on every
//! instruction set. Rows lie in tiles of [`TILE`], so that a product reads one stream, the bytes of a group in the order of
//! [`byte_at`]. The last tile is as high as there are rows left, and no higher: a line that a core writes is one that another
//! must fetch. The bytes of two whole tiles lie side by side, group by group, so that a matrix unit reads 16 rows at once.
//! A row's bytes and scales depend on that row alone; where they lie, on the number of rows.
//!
//! Beside matrices of floats rows are kept as they came as well ([`Operands::BytesAndFloats`]).

use crate::crew::Worker;
use crate::isa::Isa;
use crate::memory::{Aligned, Plain, Shared};
use crate::packed::Form;
use crate::simd::{Kernel, LANES, Simd};
use std::ops::Range;

/// Values that share a scale, in activations and in weights: the block of the file formats.
pub const GROUP: usize = 32;

/// Rows that a matrix product takes together: their dot products with two panels, the operands and a few constants are
/// what 32 AVX-512 registers hold. The float sums, touched once a group, may lie in memory.
pub const TILE: usize = 8;

/// Where the four bytes of a step of a group's inputs lie for a row of a tile of `height` rows: 32 bytes a row, as AMX's tiles
/// take them and all the same to others of x86; on ARM, whose products take four rows at a time from one register, the rows
/// of a step side by side.
#[inline(always)]
pub(crate) const fn byte_at(step: usize, row: usize, height: usize) -> usize {
    if cfg!(target_arch = "aarch64") { (step * height + row) * 4 } else { row * GROUP + step * 4 }
}

/// Where integer sums of products start whose weights have a zero point: at [`BIASED_ZERO`], less what the zero point takes
/// from the sum over a group, which is the zero point × the sum of the activations' quants. As many kinds as are wanted
/// without any computing; the others are found from these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Offsets {
    /// For weights of eight bits.
    pub(crate) eight_bits: i32,
    /// For weights of five.
    pub(crate) five_bits: i32,
    /// For each half of a group, of weights of six.
    pub(crate) six_bits: [i32; 2],
}

// SAFETY: four numbers of 32 bits, one behind the other.
unsafe impl Plain for Offsets {}

impl Offsets {
    /// Of activations whose halves add up to these.
    fn new(halves: [i32; 2]) -> Self {
        let below = |zero: u8, sum: i32| BIASED_ZERO - i32::from(zero) * sum;
        let whole = halves[0] + halves[1];
        Self {
            eight_bits: below(Form::Q8_0.zero(), whole),
            five_bits: below(Form::Q5_0.zero(), whole),
            six_bits: halves.map(|half| below(Form::Q6K.zero(), half)),
        }
    }

    /// For weights of a form that has a zero point, and a part of a group that has a scale of its own.
    #[inline(always)]
    pub(crate) fn of(&self, form: Form, part: usize) -> i32 {
        let from = |of: i32, zero: u8| BIASED_ZERO + (of - BIASED_ZERO) / i32::from(zero / form.zero());
        match form {
            Form::Q8_0 | Form::IQ4NL | Form::IQ4XS | Form::MXFP4 => self.eight_bits,
            Form::Q5_0 => self.five_bits,
            Form::Q6K => self.six_bits[part],
            Form::Q3K => from(self.six_bits[part], Form::Q6K.zero()),
            _ => from(self.five_bits, Form::Q5_0.zero()),
        }
    }

    /// The sum of a half's quants.
    #[inline(always)]
    pub(crate) fn half(&self, half: usize) -> i32 {
        (BIASED_ZERO - self.six_bits[half]) / i32::from(Form::Q6K.zero())
    }
}

/// Integer sums start at the bits of this float, so that their bits are always those of `BIAS + sum`: from there one
/// fused multiply-add gives `scale × sum`, rounded once. (A sum stays within ±2^21, and `scale × BIAS` is exact: 11 bits, or
/// 19 with a small scale, times 2.)
pub(crate) const BIAS: f32 = 12_582_912.0;

/// The sum zero.
pub(crate) const BIASED_ZERO: i32 = BIAS.to_bits() as i32;

/// What products read of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operands {
    /// Bytes and their scales.
    #[default]
    Bytes,
    /// Those, and the values before they were rounded, for matrices of floats.
    BytesAndFloats,
}

/// Quantised rows.
#[derive(Debug)]
pub struct QuantizedRows {
    rows: usize,
    columns: usize,
    quants: Aligned<i8>,
    /// Per tile and group: the scale of each row.
    scales: Aligned<f32>,
    /// Per tile and group: scale × sum of quants of each row, for weights with a minimum.
    sums: Aligned<f32>,
    /// Per tile and group: where each row's sums start, for weights with a zero point.
    offsets: Aligned<Offsets>,
    /// Per tile and group: the values of each row; or nothing.
    floats: Aligned<f32>,
}

impl QuantizedRows {
    /// Room for `rows` rows of `columns` values (rounded up to whole groups, the rest being zero).
    #[must_use]
    pub fn new(rows: usize, columns: usize, operands: Operands) -> Self {
        let tiles = rows.div_ceil(TILE);
        let groups = columns.div_ceil(GROUP);
        let per_group = tiles * groups * TILE;
        Self {
            rows,
            columns,
            quants: Aligned::zeroed(per_group * GROUP),
            scales: Aligned::zeroed(per_group),
            sums: Aligned::zeroed(per_group),
            offsets: Aligned::zeroed(per_group),
            floats: Aligned::zeroed(match operands {
                Operands::Bytes => 0,
                Operands::BytesAndFloats => per_group * GROUP,
            }),
        }
    }

    /// Rows it has room for.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let floats = self.scales.bytes() + self.sums.bytes() + self.floats.bytes();
        self.quants.bytes() + floats + self.offsets.bytes()
    }

    /// The same rows for a crew to fill and read, with rows `columns` wide (at most what [`Self::new`] was given).
    ///
    /// # Panics
    /// If `columns` is wider than the buffer.
    #[must_use]
    pub fn share(&mut self, columns: usize) -> SharedRows<'_> {
        assert!(columns <= self.columns);
        SharedRows {
            rows: self.rows,
            groups: columns.div_ceil(GROUP),
            quants: Shared::new(&mut self.quants),
            scales: Shared::new(&mut self.scales),
            sums: Shared::new(&mut self.sums),
            offsets: Shared::new(&mut self.offsets),
            floats: Shared::new(&mut self.floats),
        }
    }
}

/// [`QuantizedRows`] in the hands of a crew.
#[derive(Clone, Copy, Debug)]
pub struct SharedRows<'a> {
    rows: usize,
    groups: usize,
    quants: Shared<'a, i8>,
    scales: Shared<'a, f32>,
    sums: Shared<'a, f32>,
    offsets: Shared<'a, Offsets>,
    floats: Shared<'a, f32>,
}

/// One tile of quantised rows, as a product reads it.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// Groups, each as [`byte_at`] says, the tile being as high as it has rows.
    pub(crate) quants: *const i8,
    /// Bytes from a group to the next: there is another tile's between them where two are whole.
    pub(crate) group_bytes: usize,
    /// `[group][row of the tile]`, likewise.
    pub(crate) scales: *const f32,
    /// As `scales`.
    pub(crate) sums: *const f32,
    /// As `scales`.
    pub(crate) offsets: *const Offsets,
    /// `[group][row of the tile][column of the group]`; dangling without [`Operands::BytesAndFloats`].
    pub(crate) floats: *const f32,
}

impl<'a> SharedRows<'a> {
    /// The same memory for rows of another width (not at the same time: a sync lies between the uses).
    pub(crate) fn with_columns(self, columns: usize) -> SharedRows<'a> {
        let groups = columns.div_ceil(GROUP);
        assert!(self.rows.div_ceil(TILE) * groups * TILE <= self.scales.len());
        SharedRows { groups, ..self }
    }

    /// Rows in a part of the memory: `rows` rows of `columns` values behind the first `blocks` blocks, a block being
    /// a group of a whole tile. Parts for rows of different widths lie beside each other this way.
    pub(crate) fn narrow(self, blocks: usize, rows: usize, columns: usize) -> SharedRows<'a> {
        let groups = columns.div_ceil(GROUP);
        let all = blocks * TILE..(blocks + Self::blocks(rows, columns)) * TILE;
        SharedRows {
            rows,
            groups,
            quants: self.quants.narrow(all.start * GROUP..all.end * GROUP),
            scales: self.scales.narrow(all.clone()),
            sums: self.sums.narrow(all.clone()),
            floats: self.floats.narrow(self.floats_of(&all)),
            offsets: self.offsets.narrow(all),
        }
    }

    /// Where the floats of groups of rows lie that begin at these places; nowhere if there are none.
    fn floats_of(&self, groups: &Range<usize>) -> Range<usize> {
        if self.has_floats() { groups.start * GROUP..groups.end * GROUP } else { 0..0 }
    }

    /// Whether the values are there before they were rounded.
    pub(crate) fn has_floats(&self) -> bool {
        !self.floats.is_empty()
    }

    /// Blocks that `rows` rows of `columns` values take.
    pub(crate) fn blocks(rows: usize, columns: usize) -> usize {
        rows.div_ceil(TILE) * columns.div_ceil(GROUP)
    }

    /// The same memory for `rows` rows only.
    pub(crate) fn with_rows(self, rows: usize) -> SharedRows<'a> {
        assert!(rows <= self.rows);
        SharedRows { rows, ..self }
    }
}

impl SharedRows<'_> {
    /// Groups in a row.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// How many there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Rows in tile `index`.
    fn height(&self, index: usize) -> usize {
        TILE.min(self.rows - index * TILE)
    }

    /// Where the bytes of tile `index` are, with those of the other tile of a pair, where they begin there, and how many there
    /// are from a group to the next.
    #[inline(always)]
    fn quants_of(&self, index: usize) -> (Range<usize>, usize, usize) {
        let pair = index / 2 * 2;
        let (first, rows, begin) = if (pair + 2) * TILE <= self.rows {
            (pair, 2 * TILE, index % 2 * TILE)
        } else {
            (index, self.height(index), 0)
        };
        let start = first * self.groups * TILE * GROUP;
        (start..start + self.groups * rows * GROUP, begin * GROUP, rows * GROUP)
    }

    /// Tile `index`. The pointers are valid for `groups` groups.
    pub(crate) fn tile(&self, index: usize) -> Tile {
        let first = index * self.groups * TILE;
        let range = first..first + self.groups * self.height(index);
        let (bytes, begin, group_bytes) = self.quants_of(index);
        // SAFETY: products read tiles after the step that quantised them (a sync in between).
        unsafe {
            Tile {
                quants: self.quants.part(bytes).as_ptr().wrapping_add(begin),
                group_bytes,
                scales: self.scales.part(range.clone()).as_ptr(),
                sums: self.sums.part(range.clone()).as_ptr(),
                floats: self.floats.part(self.floats_of(&range)).as_ptr(),
                offsets: self.offsets.part(range).as_ptr(),
            }
        }
    }

    /// Quantises `values` as row `row`. Values beyond the last whole group count as followed by zeros.
    ///
    /// # Safety
    /// No other worker touches this row between the surrounding syncs.
    ///
    /// # Panics
    /// If the row or the number of values does not fit.
    pub unsafe fn set_row(&self, isa: Isa, row: usize, values: &[f32]) {
        assert!(row < self.rows && values.len().div_ceil(GROUP) == self.groups);
        isa.run(SetGroups { rows: self, row, first: 0, values });
    }

    /// Copies row `from` of `source`, which is as wide, to row `row`.
    ///
    /// # Safety
    /// No other worker touches this row, or writes that of the source, between the surrounding syncs.
    ///
    /// # Panics
    /// If there is no such row, or the widths differ.
    pub(crate) unsafe fn copy_row(&self, row: usize, source: &SharedRows<'_>, from: usize) {
        assert!(self.groups == source.groups && self.has_floats() == source.has_floats());
        let ((to, to_height), (from, from_height)) = (self.place(row), source.place(from));
        let (to_bytes, from_bytes) = (to.group_bytes, from.group_bytes);
        for group in 0..self.groups {
            let (at, from_at) = (group * to_height, group * from_height);
            // SAFETY: groups below `groups` of both rows' places; the rest is the caller's.
            unsafe {
                to.scales.add(at).write(from.scales.add(from_at).read());
                to.sums.add(at).write(from.sums.add(from_at).read());
                to.offsets.add(at).write(from.offsets.add(from_at).read());
                let (bytes, source) = (to.quants.add(group * to_bytes), from.quants.add(group * from_bytes));
                for step in 0..GROUP / 4 {
                    let four = source.add(byte_at(step, 0, from_height)).cast::<u32>().read_unaligned();
                    bytes.add(byte_at(step, 0, to_height)).cast::<u32>().write_unaligned(four);
                }
                if self.has_floats() {
                    let (floats, from_floats) = (to.floats.add(at * GROUP), from.floats.add(from_at * GROUP));
                    floats.copy_from_nonoverlapping(from_floats, GROUP);
                }
            }
        }
    }

    /// Where a row begins, and how many rows its tile has: from one of the row's groups to the next.
    #[inline(always)]
    fn place(&self, row: usize) -> (Place, usize) {
        assert!(row < self.rows);
        let (tile, lane) = (row / TILE, row % TILE);
        let height = self.height(tile);
        let first = tile * self.groups * TILE;
        let all = first..first + self.groups * height;
        let (bytes, begin, group_bytes) = self.quants_of(tile);
        let place = Place {
            quants: self.quants.narrow(bytes).as_mut_ptr().wrapping_add(begin + byte_at(0, lane, height)),
            group_bytes,
            scales: self.scales.narrow(all.clone()).as_mut_ptr().wrapping_add(lane),
            sums: self.sums.narrow(all.clone()).as_mut_ptr().wrapping_add(lane),
            floats: self.floats.narrow(self.floats_of(&all)).as_mut_ptr().wrapping_add(lane * GROUP),
            offsets: self.offsets.narrow(all).as_mut_ptr().wrapping_add(lane),
        };
        (place, height)
    }

    /// The rows and groups that this worker quantises. Workers never write to one tile's lines in turns, which costs
    /// more than all the rest: many rows are divided by tiles, few by columns, in whole lines of scales where tiles are
    /// full.
    pub(crate) fn part(&self, worker: &Worker<'_>) -> (Range<usize>, Range<usize>) {
        let tiles = self.rows.div_ceil(TILE);
        if tiles >= TILES_PER_WORKER * worker.size() {
            let tiles = worker.share(tiles);
            (tiles.start * TILE..(tiles.end * TILE).min(self.rows), 0..self.groups)
        } else {
            let pairs = worker.share(self.groups.div_ceil(2));
            (0..self.rows, pairs.start * 2..(pairs.end * 2).min(self.groups))
        }
    }

    /// Quantises rows of `source`, as many as there are here, on all workers.
    ///
    /// # Safety
    /// No one else touches these rows between the surrounding syncs.
    pub unsafe fn set_rows(&self, isa: Isa, source: Rows<'_>, worker: &Worker<'_>) {
        let (rows, groups) = self.part(worker);
        let columns = groups.start * GROUP..(groups.end * GROUP).min(source.columns);
        for row in rows {
            let start = (source.first + row) * source.stride;
            // SAFETY: nobody writes the source between the surrounding syncs.
            let values = unsafe { source.values.part(start + columns.start..start + columns.end) };
            // SAFETY: the rows and groups are this worker's.
            unsafe { self.set_groups(isa, row, groups.start, values) };
        }
    }

    /// Quantises `values` as row `row` from group `first` on.
    ///
    /// # Safety
    /// No other worker touches these groups of the row between the surrounding syncs.
    ///
    /// # Panics
    /// If there is no such row or group.
    pub(crate) unsafe fn set_groups(&self, isa: Isa, row: usize, first: usize, values: &[f32]) {
        assert!(row < self.rows && first + values.len().div_ceil(GROUP) <= self.groups);
        isa.run(SetGroups { rows: self, row, first, values });
    }
}

/// Where a row lies in its tile: its first group.
#[derive(Clone, Copy)]
struct Place {
    quants: *mut i8,
    /// From a group's quants to the next's.
    group_bytes: usize,
    scales: *mut f32,
    sums: *mut f32,
    offsets: *mut Offsets,
    /// Dangling where there are none.
    floats: *mut f32,
}

/// With fewer tiles, shares of whole tiles would be uneven.
const TILES_PER_WORKER: usize = 4;

/// Some rows of a matrix of floats that a crew shares.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    /// The matrix.
    pub values: Shared<'a, f32>,
    /// From one row to the next.
    pub stride: usize,
    /// Values in a row.
    pub columns: usize,
    /// The first row.
    pub first: usize,
}

struct SetGroups<'a> {
    rows: &'a SharedRows<'a>,
    row: usize,
    first: usize,
    values: &'a [f32],
}

/// Groups whose scales are found at once, in the lanes of a register.
const TOGETHER: usize = LANES;

impl Kernel for SetGroups<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Checked once for all groups; the loop is too short to check each.
        let (place, height) = self.rows.place(self.row);
        let (mut index, mut padded) = (self.first, [0.0; GROUP]);
        for values in self.values.chunks(TOGETHER * GROUP) {
            let (whole, rest) = values.as_chunks::<GROUP>();
            // Only the row's last group has fewer values.
            padded[..rest.len()].copy_from_slice(rest);
            let groups = || whole.iter().chain((!rest.is_empty()).then_some(&padded));
            let mut largest = [0.0; TOGETHER];
            for (largest, group) in largest.iter_mut().zip(groups()) {
                *largest = largest_in(s, group);
            }
            let (scales, inverses) = scales_and_inverses(s, &largest);
            for ((group, scale), inverse) in groups().zip(scales).zip(inverses) {
                let rounded = Rounded::new(s, group, scale, inverse);
                // SAFETY: a group that there is (checked by the callers) of this row, which is this worker's by their promise.
                unsafe {
                    if self.rows.has_floats() {
                        place.floats.add(index * height * GROUP).copy_from_nonoverlapping(group.as_ptr(), GROUP);
                    }
                    rounded.write(&place, height, index);
                }
                index += 1;
            }
        }
    }
}

/// A group of a row in eight bits.
struct Rounded {
    quants: [i8; GROUP],
    scale: f32,
    /// The sums of the halves' quants.
    halves: [f32; 2],
}

impl Rounded {
    /// Zeros with the scale NaN if a value is infinite or no number.
    #[inline(always)]
    fn new<S: Simd>(s: S, group: &[f32; GROUP], scale: f32, inverse: f32) -> Self {
        let (values, inverse, mut quants) = (group.as_ptr(), s.splat(inverse), [0; GROUP]);
        // SAFETY: a group is two registers of floats, and of bytes.
        unsafe {
            let (low, high) = (s.load(values), s.load(values.add(LANES)));
            let (low, high) = (s.round(s.mul(low, inverse)), s.round(s.mul(high, inverse)));
            // Small integers: exact in any order. Values that are no numbers stay so through product and sum.
            let halves = [s.sum(low), s.sum(high)];
            if (halves[0] + halves[1]).is_nan() {
                return Self { quants, scale: f32::NAN, halves: [0.0; 2] };
            }
            s.store_i8(quants.as_mut_ptr(), low);
            s.store_i8(quants.as_mut_ptr().add(LANES), high);
            Self { quants, scale, halves }
        }
    }

    /// Writes it as group `index` of the row at `place`, in a tile of `height` rows.
    ///
    /// # Safety
    /// There is such a group, and nobody else touches it.
    #[inline(always)]
    unsafe fn write(&self, place: &Place, height: usize, index: usize) {
        let at = index * height;
        // SAFETY: the caller's.
        unsafe {
            place.scales.add(at).write(self.scale);
            place.sums.add(at).write(self.scale * (self.halves[0] + self.halves[1]));
            place.offsets.add(at).write(Offsets::new(self.halves.map(small_integer)));
            let to = place.quants.add(index * place.group_bytes);
            for (step, four) in self.quants.as_chunks::<4>().0.iter().enumerate() {
                to.add(byte_at(step, 0, height)).cast::<[i8; 4]>().write(*four);
            }
        }
    }
}

/// The largest magnitude in a group.
#[inline(always)]
fn largest_in<S: Simd>(s: S, group: &[f32; GROUP]) -> f32 {
    // SAFETY: a group is two registers.
    let (low, high) = unsafe { (s.load(group.as_ptr()), s.load(group.as_ptr().add(LANES))) };
    s.max_lane(s.max(s.abs(low), s.abs(high)))
}

/// Of groups with these largest magnitudes: what quants are multiplied with, and what values are, to be rounded. Both are zero
/// where the latter would not be finite, and where the largest magnitude is not.
#[inline(always)]
fn scales_and_inverses<S: Simd>(s: S, largest: &[f32; TOGETHER]) -> ([f32; TOGETHER], [f32; TOGETHER]) {
    let (mut scales, mut inverses) = ([0.0; TOGETHER], [0.0; TOGETHER]);
    let (zero, most, quant_max) = (s.splat(0.0), s.splat(f32::INFINITY), s.splat(127.0));
    // SAFETY: these are registers' lanes.
    unsafe {
        let largest = s.load(largest.as_ptr());
        let inverse = s.div(quant_max, largest);
        // Infinite for what is too small, zero for what is infinite, NaN for what is none.
        let scale = s.select_lt(inverse, most, s.div(largest, quant_max), zero);
        s.store(scales.as_mut_ptr(), s.select_lt(zero, inverse, scale, zero));
        let finite = s.select_lt(inverse, most, inverse, zero);
        s.store(inverses.as_mut_ptr(), s.select_lt(zero, inverse, finite, zero));
    }
    (scales, inverses)
}

/// An integral float that is small, as an integer: without what `as` does about those that are not.
#[inline(always)]
fn small_integer(integral: f32) -> i32 {
    (integral + BIAS).to_bits() as i32 - BIASED_ZERO
}

#[cfg(test)]
mod tests;
