//! Tiles and what instructions do to them, by the manual's operation sections (SDM volume 2, palette 1).

use super::decode::{Instruction, Rows};
use std::ptr::with_exposed_provenance;
use std::ptr::with_exposed_provenance_mut;

/// Tiles of palette 1, and their largest shape.
const TILES: usize = 8;
const ROWS_MAX: usize = 16;
const BYTES_MAX: usize = 64;

/// Why an instruction is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An invalid opcode (#UD): tiles that have no shape, or shapes that do not fit together.
    Undefined,
    /// A general protection fault (#GP): shapes that there cannot be.
    Protection,
}

/// A thread's tiles.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Rows and bytes of a row of each tile; nothing without a palette. A tile without rows is not valid.
    shapes: Option<[(usize, usize); TILES]>,
    tiles: [[[u8; BYTES_MAX]; ROWS_MAX]; TILES],
}

impl Unit {
    /// As a thread begins.
    pub(crate) const fn new() -> Self {
        Self { shapes: None, tiles: [[[0; BYTES_MAX]; ROWS_MAX]; TILES] }
    }

    /// Executes an instruction.
    ///
    /// # Safety
    /// Its memory operand may be read, or written.
    ///
    /// # Errors
    /// The fault that it raises; nothing has changed then.
    pub(crate) unsafe fn execute(&mut self, instruction: Instruction) -> Result<(), Fault> {
        match instruction {
            Instruction::LoadShapes(from) => {
                // SAFETY: the caller's.
                let shapes = unsafe { with_exposed_provenance::<[u8; 64]>(from as usize).read_unaligned() };
                self.shapes = shapes_of(&shapes)?;
                self.tiles = Self::new().tiles;
            }
            Instruction::Release => *self = Self::new(),
            Instruction::Zero(tile) => {
                self.shape(tile)?;
                self.tiles[tile] = [[0; BYTES_MAX]; ROWS_MAX];
            }
            Instruction::Load { tile, from } => {
                let (rows, bytes) = self.shape(tile)?;
                self.tiles[tile] = [[0; BYTES_MAX]; ROWS_MAX];
                for (row, to) in self.tiles[tile][..rows].iter_mut().enumerate() {
                    let from = with_exposed_provenance::<u8>(place(from, row));
                    // SAFETY: the caller's; a row of a tile has at least so many bytes.
                    unsafe { from.copy_to(to.as_mut_ptr(), bytes) };
                }
            }
            Instruction::Store { tile, to } => {
                let (rows, bytes) = self.shape(tile)?;
                for (row, from) in self.tiles[tile][..rows].iter().enumerate() {
                    let to = with_exposed_provenance_mut::<u8>(place(to, row));
                    // SAFETY: as above.
                    unsafe { to.copy_from(from.as_ptr(), bytes) };
                }
            }
            Instruction::Dot { sums, operands: [first, second], signed } => self.dot(sums, [first, second], signed)?,
        }
        Ok(())
    }

    fn shape(&self, tile: usize) -> Result<(usize, usize), Fault> {
        let shape = self.shapes.ok_or(Fault::Undefined)?[tile];
        if shape.0 == 0 { Err(Fault::Undefined) } else { Ok(shape) }
    }

    fn dot(&mut self, sums: usize, [first, second]: [usize; 2], signed: [bool; 2]) -> Result<(), Fault> {
        let different = sums != first && sums != second && first != second;
        let ((rows, bytes), (first_rows, first_bytes), (second_rows, second_bytes)) =
            (self.shape(sums)?, self.shape(first)?, self.shape(second)?);
        let whole = [bytes, first_bytes, second_bytes].iter().all(|bytes| bytes % 4 == 0);
        let fit = rows == first_rows && first_bytes / 4 == second_rows && bytes == second_bytes;
        if !different || !whole || !fit {
            return Err(Fault::Undefined);
        }
        let number = |byte: u8, signed: bool| if signed { i32::from(byte as i8) } else { i32::from(byte) };
        let mut result = [[0; BYTES_MAX]; ROWS_MAX];
        for (row, result) in result[..rows].iter_mut().enumerate() {
            for (column, result) in result.as_chunks_mut::<4>().0[..bytes / 4].iter_mut().enumerate() {
                let four = |tile: usize, row: usize, column: usize| self.tiles[tile][row].as_chunks::<4>().0[column];
                let mut sum = i32::from_le_bytes(four(sums, row, column));
                for step in 0..first_bytes / 4 {
                    let pairs = four(first, row, step).into_iter().zip(four(second, step, column));
                    for (a, b) in pairs {
                        sum = sum.wrapping_add(number(a, signed[0]) * number(b, signed[1]));
                    }
                }
                *result = sum.to_le_bytes();
            }
        }
        self.tiles[sums] = result;
        Ok(())
    }
}

/// Where a row lies.
fn place(rows: Rows, row: usize) -> usize {
    rows.first.wrapping_add(rows.stride.wrapping_mul(row as u64)) as usize
}

/// The shapes that 64 bytes say; none for palette 0.
fn shapes_of(bytes: &[u8; 64]) -> Result<Option<[(usize, usize); TILES]>, Fault> {
    if bytes[0] > 1 {
        return Err(Fault::Protection);
    }
    if bytes[0] == 0 {
        return Ok(None);
    }
    // Behind the palette and the first row; of tiles that there are not.
    let reserved = [&bytes[2..16], &bytes[16 + 2 * TILES..48], &bytes[48 + TILES..]];
    if reserved.iter().any(|bytes| bytes.iter().any(|&byte| byte != 0)) {
        return Err(Fault::Protection);
    }
    let mut shapes = [(0, 0); TILES];
    for (tile, shape) in shapes.iter_mut().enumerate() {
        let row_bytes = usize::from(u16::from_le_bytes([bytes[16 + 2 * tile], bytes[17 + 2 * tile]]));
        let rows = usize::from(bytes[48 + tile]);
        if row_bytes > BYTES_MAX || rows > ROWS_MAX || (row_bytes == 0) != (rows == 0) {
            return Err(Fault::Protection);
        }
        *shape = (rows, row_bytes);
    }
    Ok(Some(shapes))
}
