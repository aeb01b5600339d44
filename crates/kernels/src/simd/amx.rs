//! AMX: integer products of small matrices by the processor's matrix unit, `tdpbsud` on tiles of bytes.
//!
//! A product has eight rows of activations (signed, a row of a tile each), a group of 32 inputs or half of one, and 16
//! outputs. What a panel has as bytes, four inputs of each output in a register, is a tile of the second operand as it
//! lies in memory (SDM volume 1, 18.3).
//!
//! Rust's names for these instructions are not stable, so they are written here, and only here, as assembly. The
//! compiler keeps nothing in tiles, so what one block of assembly leaves there is there for the next.

use crate::quantize::{GROUP, TILE};
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

    /// The tiles of this thread, shaped for products of so many inputs: a group, or half of one.
    ///
    /// # Panics
    /// If these are not whole steps of four inputs of one group.
    #[inline(always)]
    pub(crate) fn tiles(self, inputs: usize) -> Tiles {
        assert!(inputs > 0 && inputs <= GROUP && inputs.is_multiple_of(4));
        let shapes = Shapes::of(inputs);
        // SAFETY: the unit is there, see `self`. The shapes are 64 bytes of palette 1: no tile has more than 16 rows or 64
        // bytes a row, none has rows without bytes, and what is reserved is zero.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack, preserves_flags, readonly)) };
        Tiles(PhantomData)
    }
}

/// The tiles of a thread while they have a shape. They are the thread's, so this cannot leave it.
#[derive(Debug)]
pub(crate) struct Tiles(PhantomData<*const ()>);

/// Sums of products of a tile of rows with two panels.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Products(pub(crate) [[[i32; LANES]; TILE]; 2]);

impl Products {
    pub(crate) const ZERO: Self = Self([[[0; LANES]; TILE]; 2]);
}

/// The tiles that a product uses. Two that follow each other use different ones, but for those of weights, so that the next
/// need not wait until the sums of the last have been stored.
macro_rules! products {
    ($sums0:literal, $sums1:literal, $rows:literal, $activations:expr, $weights:expr, $to:expr) => {
        asm!(
            concat!("tilezero ", $sums0),
            concat!("tilezero ", $sums1),
            concat!("tileloadd ", $rows, ", [{activations} + {group}*1]"),
            "tileloadd tmm6, [{first} + {line}*1]",
            concat!("tdpbsud ", $sums0, ", ", $rows, ", tmm6"),
            "tileloadd tmm7, [{second} + {line}*1]",
            concat!("tdpbsud ", $sums1, ", ", $rows, ", tmm7"),
            concat!("tilestored [{to} + {line}*1], ", $sums0),
            concat!("tilestored [{behind} + {line}*1], ", $sums1),
            activations = in(reg) $activations,
            group = in(reg) GROUP,
            first = in(reg) $weights[0],
            second = in(reg) $weights[1],
            line = in(reg) LINE,
            to = in(reg) &raw mut $to.0[0],
            behind = in(reg) &raw mut $to.0[1],
            options(nostack, preserves_flags),
        )
    };
}

impl Tiles {
    /// Product `turn` of a sequence: of eight rows, 32 bytes apart, with two panels.
    ///
    /// # Safety
    /// Rows have as many bytes as the tiles' shape says, panels 16 for each.
    #[inline(always)]
    pub(crate) unsafe fn products(
        &self,
        turn: usize,
        activations: *const i8,
        weights: [*const u8; 2],
        to: &mut Products,
    ) {
        // SAFETY: the unit is there and its tiles have the shapes that these instructions ask for, see `MatrixUnit::tiles`;
        // operands are the caller's promise, and results have room for two times eight rows of 64 bytes.
        unsafe {
            if turn.is_multiple_of(2) {
                products!("tmm0", "tmm1", "tmm4", activations, weights, to);
            } else {
                products!("tmm2", "tmm3", "tmm5", activations, weights, to);
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
    const fn of(inputs: usize) -> Self {
        let mut shapes = Self { palette: 1, first_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut tile = 0;
        while tile < 8 {
            let (rows, bytes) = match tile {
                // Sums.
                0..4 => (TILE, LINE),
                // Activations.
                4..6 => (TILE, inputs),
                // Weights.
                _ => (inputs / 4, LINE),
            };
            (shapes.rows[tile], shapes.row_bytes[tile]) = (rows as u8, bytes as u16);
            tile += 1;
        }
        shapes
    }
}
