//! AMX's instructions for tiles and bytes, from their encoding (SDM volume 2, chapters 2.3 and 3 to 5, "AMX").
//!
//! All have the three-byte VEX prefix, the opcode map 0F38 and one of three opcodes; the prefix's `pp` and the form of ModRM
//! say which instruction it is. `L` and `W` are zero.

/// An instruction. Tiles are numbers below eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// `ldtilecfg`.
    LoadShapes(u64),
    /// `tilerelease`.
    Release,
    /// `tilezero`.
    Zero(usize),
    /// `tileloadd`, `tileloaddt1`.
    Load { tile: usize, from: Rows },
    /// `tilestored`.
    Store { tile: usize, to: Rows },
    /// `tdpbssd`, `tdpbsud`, `tdpbusd`, `tdpbuud`: whether bytes of the operands are signed.
    Dot { sums: usize, operands: [usize; 2], signed: [bool; 2] },
}

/// Rows of a tile in memory: the first, and from each to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) first: u64,
    pub(crate) stride: u64,
}

/// What addresses are made of: general registers by the numbers that instructions have for them, and where the instruction
/// is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    pub(crate) general: [u64; 16],
    pub(crate) instruction: u64,
}

/// The instruction that begins with these bytes, and its length; nothing if it is none of these.
pub(crate) fn decode(bytes: &[u8], registers: &Registers) -> Option<(Instruction, usize)> {
    let [0xC4, second, third, opcode, modrm, rest @ ..] = bytes else { return None };
    // R, X and B are inverted, as are the bits of `vvvv`.
    let extension = |bit: u8| usize::from(second >> bit & 1 == 0) * 8;
    let (r, x, b) = (extension(7), extension(6), extension(5));
    let (map, wide, vvvv, long, pp) = (second & 31, third >> 7, !third >> 3 & 15, third >> 2 & 1, third & 3);
    if map != 2 || wide != 0 || long != 0 {
        return None;
    }
    let (mode, reg, rm) = (modrm >> 6, usize::from(modrm >> 3 & 7) + r, usize::from(modrm & 7) + b);
    let tile = |number: usize| (number < 8).then_some(number);
    let without_operand = vvvv == 0;
    let instruction = match (opcode, pp, mode) {
        (0x49, 0, 3) if without_operand && reg == 0 && rm == 0 => (Instruction::Release, 5),
        (0x49, 3, 3) if without_operand && rm == 0 => (Instruction::Zero(tile(reg)?), 5),
        (0x49, 0, 0..=2) if without_operand && reg == 0 => {
            let (address, length) = address(mode, rm, x, rest, registers)?;
            (Instruction::LoadShapes(address.all()), 5 + length)
        }
        (0x4B, 1..=3, 0..=2) if without_operand && modrm & 7 == 4 => {
            let (address, length) = address(mode, rm, x, rest, registers)?;
            let (tile, rows) = (tile(reg)?, Rows { first: address.first, stride: address.indexed });
            let load = pp != 2;
            (
                if load { Instruction::Load { tile, from: rows } } else { Instruction::Store { tile, to: rows } },
                5 + length,
            )
        }
        (0x5E, _, 3) => {
            let signed = [pp & 2 != 0, matches!(pp, 1 | 3)];
            let operands = [tile(rm)?, tile(usize::from(vvvv))?];
            (Instruction::Dot { sums: tile(reg)?, operands, signed }, 5)
        }
        _ => return None,
    };
    Some(instruction)
}

/// A memory operand, its index apart: of tiles that is a stride.
#[derive(Clone, Copy)]
struct Address {
    first: u64,
    indexed: u64,
}

impl Address {
    fn all(self) -> u64 {
        self.first.wrapping_add(self.indexed)
    }
}

/// The memory operand behind ModRM, and how many bytes it has there.
fn address(mode: u8, rm: usize, x: usize, rest: &[u8], registers: &Registers) -> Option<(Address, usize)> {
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let text = rest.get(at..at + bytes)?;
        Some(match bytes {
            1 => i64::from(text[0] as i8) as u64,
            _ => i64::from(i32::from_le_bytes(text.try_into().ok()?)) as u64,
        })
    };
    let displaced = |at: usize| match mode {
        1 => Some((number(at, 1)?, 1)),
        2 => Some((number(at, 4)?, 4)),
        _ => Some((0, 0)),
    };
    if rm % 8 != 4 {
        if mode == 0 && rm % 8 == 5 {
            // From the instruction's end.
            return Some((
                Address { first: registers.instruction.wrapping_add(9).wrapping_add(number(0, 4)?), indexed: 0 },
                4,
            ));
        }
        let (displacement, length) = displaced(0)?;
        return Some((Address { first: registers.general[rm].wrapping_add(displacement), indexed: 0 }, length));
    }
    let sib = *rest.first()?;
    let (scale, index, base) = (sib >> 6, usize::from(sib >> 3 & 7) + x, usize::from(sib & 7) + rm / 8 * 8);
    let indexed = if index == 4 { 0 } else { registers.general[index] << scale };
    let (from, (displacement, length)) =
        if mode == 0 && base % 8 == 5 { (0, (number(1, 4)?, 4)) } else { (registers.general[base], displaced(1)?) };
    Some((Address { first: from.wrapping_add(displacement), indexed }, 1 + length))
}
