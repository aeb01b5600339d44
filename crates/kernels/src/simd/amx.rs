//! AMX: integer products of small matrices by the processor's matrix unit, `tdpbsud` on tiles of bytes.
//!
//! A product has 16 rows of activations (signed, a row of a tile each), or eight, a group of 32 inputs and 16
//! outputs. What a panel has as bytes, four inputs of each output in a register, is a tile of the second operand as it
//! lies in memory (SDM volume 1, 18.3).
//!
//! On Emerald Rapids a product of 16 rows takes 16 cycles, of eight twelve; storing sums takes 31, whether there are 16 rows or
//! eight, so rows are taken by 16 where there are as many. Sums are loaded and not zeroed, since they can begin at what makes
//! floats of integers. A store keeps what follows it waiting for its product, so it is given behind the next one.
//!
//! Rust's names for these instructions are not stable, so they are written here, and only here, as assembly. The
//! compiler keeps nothing in tiles, so what one block of assembly leaves there is there for the next.

use crate::quantize::GROUP;
use crate::simd::LANES;
use std::arch::asm;
use std::marker::PhantomData;

/// The unit, as a right to use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatrixUnit(());

impl MatrixUnit {
    /// The right to use it.
    ///
    /// # Safety
    /// The machine has it, and the operating system lets this process use it.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }

    /// The tiles of this thread, shaped for products of so many rows.
    ///
    /// # Panics
    /// If these are more rows than a tile has.
    #[inline(always)]
    pub(crate) fn tiles(self, rows: usize) -> Tiles {
        assert!(rows > 0 && rows <= ROWS);
        let shapes = Shapes::of(rows);
        // SAFETY: the unit is there, see `self`. The shapes are 64 bytes of palette 1: no tile has more than 16 rows or 64
        // bytes a row, none has rows without bytes, and what is reserved is zero.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack, preserves_flags, readonly)) };
        Tiles(PhantomData)
    }
}

/// Rows of a tile.
pub(crate) const ROWS: usize = 16;

/// The tiles of a thread while they have a shape. They are the thread's, so this cannot leave it.
#[derive(Debug)]
pub(crate) struct Tiles(PhantomData<*const ()>);

/// Sums of products of rows with a panel: a row each.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Sums(pub(crate) [[i32; LANES]; ROWS]);

impl Sums {
    pub(crate) const ZERO: Self = Self([[0; LANES]; ROWS]);
}

/// A row of sums to begin with.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Start(pub(crate) [i32; LANES]);

/// A product, in tiles of its own.
macro_rules! multiply {
    ($sums:literal, $rows:literal, $panel:literal, $activations:expr, $weights:expr, $start:expr) => {
        asm!(
            // One row of sums for all.
            concat!("tileloadd ", $sums, ", [{start} + {none}*1]"),
            concat!("tileloadd ", $rows, ", [{activations} + {group}*1]"),
            concat!("tileloadd ", $panel, ", [{weights} + {line}*1]"),
            concat!("tdpbsud ", $sums, ", ", $rows, ", ", $panel),
            start = in(reg) &raw const $start.0,
            none = in(reg) 0_usize,
            activations = in(reg) $activations,
            group = in(reg) GROUP,
            weights = in(reg) $weights,
            line = in(reg) LINE,
            options(nostack, preserves_flags, readonly),
        )
    };
}

/// Stores a tile of sums.
macro_rules! store {
    ($sums:literal, $to:expr) => {
        asm!(
            concat!("tilestored [{to} + {line}*1], ", $sums),
            to = in(reg) &raw mut $to.0,
            line = in(reg) LINE,
            options(nostack, preserves_flags),
        )
    };
}

impl Tiles {
    /// Product `turn` of a sequence, of rows 32 bytes apart with a panel, added to `start`. Its sums are there until the next but
    /// one.
    ///
    /// # Safety
    /// There are as many rows as the tiles' shape says, of a group's 32 bytes, and 16 times as many of the panel.
    #[inline(always)]
    pub(crate) unsafe fn multiply(&self, turn: usize, activations: *const i8, weights: *const u8, start: &Start) {
        // SAFETY: the unit is there and its tiles have the shapes that these instructions ask for, see `MatrixUnit::tiles`;
        // operands are the caller's promise, and every row of sums is loaded from the 64 bytes of `start`.
        unsafe {
            if turn.is_multiple_of(2) {
                multiply!("tmm0", "tmm4", "tmm6", activations, weights, start);
            } else {
                multiply!("tmm1", "tmm5", "tmm7", activations, weights, start);
            }
        }
    }

    /// Stores the sums of product `turn`: as many rows as the tiles' shape says.
    #[inline(always)]
    pub(crate) fn store(&self, turn: usize, to: &mut Sums) {
        // SAFETY: as above; there is room for 16 rows of 64 bytes.
        unsafe {
            if turn.is_multiple_of(2) {
                store!("tmm0", to);
            } else {
                store!("tmm1", to);
            }
        }
    }
}

impl Drop for Tiles {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the unit is there, or there were no tiles.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }
}

/// Bytes of a row of sums, and of a step of a panel.
const LINE: usize = LANES * 4;

/// What `ldtilecfg` reads: which shape each tile has.
#[derive(Debug)]
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    first_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

const _: () = assert!(size_of::<Shapes>() == 64);

impl Shapes {
    const fn of(height: usize) -> Self {
        let mut shapes = Self { palette: 1, first_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut tile = 0;
        while tile < 8 {
            let (rows, bytes) = match tile {
                // Sums.
                0..4 => (height, LINE),
                // Activations.
                4..6 => (height, GROUP),
                // Weights.
                _ => (GROUP / 4, LINE),
            };
            (shapes.rows[tile], shapes.row_bytes[tile]) = (rows as u8, bytes as u16);
            tile += 1;
        }
        shapes
    }
}
