//! What the emulator of AMX's tiles computes, by cases from the manual's definitions; and the same instructions as they are
//! executed, by the emulator or by the processor.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod tiles;

use duet_kernels::isa::Isa;
use std::arch::asm;
use tiles::decode::{Instruction, Registers, Rows, decode};
use tiles::trap::dots;
use tiles::unit::{Fault, Unit};

/// What `ldtilecfg` reads: palette 1, and rows and bytes of a row of the first tiles.
fn shapes(of: &[(u8, u16)]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    for (tile, (rows, row_bytes)) in of.iter().enumerate() {
        bytes[16 + 2 * tile..18 + 2 * tile].copy_from_slice(&row_bytes.to_le_bytes());
        bytes[48 + tile] = *rows;
    }
    bytes
}

/// Two by two sums, two rows of four bytes, two columns of four bytes.
const SMALL: [(u8, u16); 3] = [(2, 8), (2, 4), (1, 8)];
const FIRST: [[u8; 4]; 2] = [[1, 2, 3, 4], [255, 0, 0, 127]];
const SECOND: [[u8; 4]; 2] = [[5, 6, 7, 8], [255, 0, 1, 2]];

fn load(unit: &mut Unit, instruction: Instruction) -> Result<(), Fault> {
    // SAFETY: tests name memory of their own.
    unsafe { unit.execute(instruction) }
}

fn shaped(of: &[(u8, u16)]) -> Result<Unit, Fault> {
    let mut unit = Unit::new();
    let bytes = shapes(of);
    load(&mut unit, Instruction::LoadShapes(bytes.as_ptr().expose_provenance() as u64)).map(|()| unit)
}

fn rows<T>(values: &[T], stride: u64) -> Rows {
    Rows { first: values.as_ptr().expose_provenance() as u64, stride }
}

/// What a tile of two by two sums has.
fn sums(unit: &mut Unit, tile: usize) -> [i32; 4] {
    let mut out = [0_i32; 4];
    let to = Rows { first: out.as_mut_ptr().expose_provenance() as u64, stride: 8 };
    load(unit, Instruction::Store { tile, to }).unwrap();
    out
}

#[test]
fn bytes_are_multiplied_with_the_signs_that_the_instruction_says() {
    for (signed, expected) in [
        // 1·5 + 2·6 + 3·7 + 4·8; 1·-1 + 3·1 + 4·2; -1·5 + 127·8; -1·-1 + 127·2.
        ([true, true], [70, 10, 1011, 255]),
        // 1·255 + 3·1 + 4·2 for the second, -255 + 254 for the last.
        ([true, false], [70, 266, 1011, -1]),
        // 255·5 + 127·8 for the third, 255·-1 + 254 for the last.
        ([false, true], [70, 10, 2291, -1]),
        // 255·255 + 254 for the last.
        ([false, false], [70, 266, 2291, 65279]),
    ] {
        let mut unit = shaped(&SMALL).unwrap();
        load(&mut unit, Instruction::Load { tile: 1, from: rows(&FIRST, 4) }).unwrap();
        load(&mut unit, Instruction::Load { tile: 2, from: rows(&SECOND, 0) }).unwrap();
        let dot = Instruction::Dot { sums: 0, operands: [1, 2], signed };
        load(&mut unit, dot).unwrap();
        assert_eq!(sums(&mut unit, 0), expected, "{signed:?}");
        load(&mut unit, dot).unwrap();
        assert_eq!(sums(&mut unit, 0), expected.map(|sum| 2 * sum), "{signed:?}: added to what is there");
        load(&mut unit, Instruction::Zero(0)).unwrap();
        assert_eq!(sums(&mut unit, 0), [0; 4]);
    }
}

/// Steps of the first operand's row meet rows of the second.
#[test]
fn steps_of_a_row_are_summed() {
    let mut unit = shaped(&[(1, 4), (1, 8), (2, 4)]).unwrap();
    load(&mut unit, Instruction::Load { tile: 1, from: rows(&[1_u8, 2, 3, 4, 5, 6, 7, 8], 0) }).unwrap();
    load(&mut unit, Instruction::Load { tile: 2, from: rows(&[[1_u8, 1, 1, 1], [10, 10, 10, 10]], 4) }).unwrap();
    load(&mut unit, Instruction::Dot { sums: 0, operands: [1, 2], signed: [true, false] }).unwrap();
    let mut out = 0_i32;
    let to = Rows { first: (&raw mut out).expose_provenance() as u64, stride: 0 };
    load(&mut unit, Instruction::Store { tile: 0, to }).unwrap();
    assert_eq!(out, 10 + 260);
}

#[test]
fn shapes_that_there_cannot_be_are_refused() {
    let refused = |bytes: [u8; 64]| {
        let at = bytes.as_ptr().expose_provenance() as u64;
        load(&mut Unit::new(), Instruction::LoadShapes(at)) == Err(Fault::Protection)
    };
    assert!(!refused(shapes(&[(16, 64); 8])));
    assert!(!refused([0; 64]), "palette 0 is no tiles");
    assert!(refused(shapes(&[(17, 64)])), "too many rows");
    assert!(refused(shapes(&[(16, 65)])), "too many bytes");
    assert!(refused(shapes(&[(1, 0)])) && refused(shapes(&[(0, 4)])), "rows without bytes, bytes without rows");
    assert!(refused(shapes(&[(1, 4); 9])), "a ninth tile");
    for (at, value) in [(0, 2), (2, 1), (15, 1), (63, 1)] {
        let mut bytes = shapes(&SMALL);
        bytes[at] = value;
        assert!(refused(bytes), "byte {at} is {value}");
    }
}

#[test]
fn tiles_that_do_not_fit_together_are_undefined() {
    let dot = |of: &[(u8, u16)], sums, operands| {
        load(&mut shaped(of).unwrap(), Instruction::Dot { sums, operands, signed: [true; 2] })
    };
    assert_eq!(dot(&SMALL, 0, [1, 2]), Ok(()));
    for (of, why) in [
        ([(1, 8), (2, 4), (1, 8)], "rows of sums and of the first operand"),
        ([(2, 8), (2, 8), (1, 8)], "bytes of the first operand and rows of the second"),
        ([(2, 4), (2, 4), (1, 8)], "columns of sums and of the second operand"),
        ([(2, 8), (2, 6), (1, 8)], "half a step"),
        ([(2, 8), (2, 4), (0, 0)], "a tile without a shape"),
    ] {
        assert_eq!(dot(&of, 0, [1, 2]), Err(Fault::Undefined), "{why}");
    }
    for (sums, operands) in [(0, [0, 2]), (0, [1, 1]), (0, [1, 0])] {
        assert_eq!(dot(&[(1, 4); 3], sums, operands), Err(Fault::Undefined), "one tile twice");
    }
    let mut bare = Unit::new();
    assert_eq!(load(&mut bare, Instruction::Zero(0)), Err(Fault::Undefined));
    let mut released = shaped(&SMALL).unwrap();
    load(&mut released, Instruction::Release).unwrap();
    assert_eq!(load(&mut released, Instruction::Zero(0)), Err(Fault::Undefined));
}

/// Encodings by hand from the manual's tables.
#[test]
fn instructions_are_decoded_from_their_bytes() {
    let registers = Registers { general: std::array::from_fn(|number| 1 << number << 8), instruction: 0x40_0000 };
    let at = |number: u32| 1_u64 << number << 8;
    for (bytes, expected) in [
        // ldtilecfg [rax]; [r9 + 16]
        (&[0xC4, 0xE2, 0x78, 0x49, 0x00][..], Instruction::LoadShapes(at(0))),
        (&[0xC4, 0xC2, 0x78, 0x49, 0x41, 0x10], Instruction::LoadShapes(at(9) + 16)),
        // tilerelease; tilezero tmm5
        (&[0xC4, 0xE2, 0x78, 0x49, 0xC0], Instruction::Release),
        (&[0xC4, 0xE2, 0x7B, 0x49, 0xE8], Instruction::Zero(5)),
        // tileloadd tmm4, [rax + rcx*1]; tmm1, [r10 + r11*4 - 8]; tileloaddt1 tmm6, [rdx + rbx*1]
        (
            &[0xC4, 0xE2, 0x7B, 0x4B, 0x24, 0x08],
            Instruction::Load { tile: 4, from: Rows { first: at(0), stride: at(1) } },
        ),
        (
            &[0xC4, 0x82, 0x7B, 0x4B, 0x4C, 0x9A, 0xF8],
            Instruction::Load { tile: 1, from: Rows { first: at(10) - 8, stride: 4 * at(11) } },
        ),
        (
            &[0xC4, 0xE2, 0x79, 0x4B, 0x34, 0x1A],
            Instruction::Load { tile: 6, from: Rows { first: at(2), stride: at(3) } },
        ),
        // tilestored [rax + rcx*1 + 0x1000], tmm0
        (
            &[0xC4, 0xE2, 0x7A, 0x4B, 0x84, 0x08, 0x00, 0x10, 0x00, 0x00],
            Instruction::Store { tile: 0, to: Rows { first: at(0) + 0x1000, stride: at(1) } },
        ),
        // tdpbssd tmm1, tmm2, tmm3; tdpbsud, tdpbusd, tdpbuud tmm0, tmm4, tmm6
        (&[0xC4, 0xE2, 0x63, 0x5E, 0xCA], Instruction::Dot { sums: 1, operands: [2, 3], signed: [true, true] }),
        (&[0xC4, 0xE2, 0x4A, 0x5E, 0xC4], Instruction::Dot { sums: 0, operands: [4, 6], signed: [true, false] }),
        (&[0xC4, 0xE2, 0x49, 0x5E, 0xC4], Instruction::Dot { sums: 0, operands: [4, 6], signed: [false, true] }),
        (&[0xC4, 0xE2, 0x48, 0x5E, 0xC4], Instruction::Dot { sums: 0, operands: [4, 6], signed: [false, false] }),
    ] {
        let followed = [bytes, &[0x90; 8]].concat();
        assert_eq!(decode(&followed, &registers), Some((expected, bytes.len())), "{bytes:x?}");
    }
    for (bytes, why) in [
        (&[0x62, 0xE2, 0x78, 0x49, 0xC0][..], "another prefix"),
        (&[0xC4, 0xE1, 0x78, 0x49, 0xC0], "another map"),
        (&[0xC4, 0xE2, 0xF8, 0x49, 0xC0], "W"),
        (&[0xC4, 0xE2, 0x7C, 0x49, 0xC0], "L"),
        (&[0xC4, 0xE2, 0x70, 0x49, 0xC0], "an operand too many"),
        (&[0xC4, 0x62, 0x7B, 0x49, 0xE8], "tile 13"),
        (&[0xC4, 0xE2, 0x7B, 0x4B, 0x20], "rows without an index byte"),
        (&[0xC4, 0xE2, 0x4A, 0x5E, 0x04, 0x08], "an operand in memory"),
        (&[0xC4, 0xE2, 0x4A], "not all of it"),
    ] {
        assert_eq!(decode(bytes, &registers), None, "{why}");
    }
}

/// The same by the instructions themselves, here and in another thread, whose tiles are its own.
#[test]
fn instructions_are_executed_where_they_are() {
    if !Isa::available().contains(&Isa::AmxInt8) {
        // Without AVX-512 the kernels do not come to them.
        return;
    }
    let compute = |times: i32| {
        let shapes = shapes(&SMALL);
        let mut out = [0_i32; 4];
        for _ in 0..times {
            // SAFETY: operands are arrays as large as the shapes say; the compiler uses no tiles.
            unsafe {
                asm!(
                    "ldtilecfg [{shapes}]",
                    "tileloadd tmm0, [{out} + {eight}*1]",
                    "tileloadd tmm1, [{first} + {four}*1]",
                    "tileloaddt1 tmm2, [{second} + {four}*2]",
                    "tdpbsud tmm0, tmm1, tmm2",
                    "tilestored [{out} + {eight}*1], tmm0",
                    "tilerelease",
                    shapes = in(reg) shapes.as_ptr(),
                    first = in(reg) FIRST.as_ptr(),
                    second = in(reg) SECOND.as_ptr(),
                    out = in(reg) out.as_mut_ptr(),
                    four = in(reg) 4_usize,
                    eight = in(reg) 8_usize,
                    options(nostack, preserves_flags),
                );
            }
        }
        (out, dots())
    };
    let before = dots();
    let (out, counted) = compute(3);
    assert_eq!(out, [3 * 70, 3 * 266, 3 * 1011, -3]);
    let (other, counted_there) = std::thread::scope(|scope| scope.spawn(|| compute(1)).join().unwrap());
    assert_eq!(other, [70, 266, 1011, -1]);
    // Where the processor does it, the emulator has nothing to count.
    let natively = counted == before;
    assert_eq!((counted - before, counted_there), if natively { (0, 0) } else { (3, 1) });
}
