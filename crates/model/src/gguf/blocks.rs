//! The types with 32 weights in a block: one block is one group.
//!
//! Layouts as ggml defines them. Scales are half-precision; in the 4- and 5-bit types byte `i` holds weight `i` in its
//! low and weight `i + 16` in its high nibble; the fifth bits are one little-endian word, bit `i` for weight `i`.

use super::Group;
use half::f16;
use std::array;

/// Scale, nibbles.
pub(super) fn q4_0(block: &[u8; 18]) -> Group {
    Group::around(8, half_at::<0, 18>(block), nibbles(part::<2, 16, 18>(block)))
}

/// Scale, minimum, nibbles.
pub(super) fn q4_1(block: &[u8; 20]) -> Group {
    let quants = nibbles(part::<4, 16, 20>(block));
    Group { scale: half_at::<0, 20>(block), min: half_at::<2, 20>(block), quants }
}

/// Scale, fifth bits, nibbles.
pub(super) fn q5_0(block: &[u8; 22]) -> Group {
    let quants = with_fifth_bits(nibbles(part::<6, 16, 22>(block)), part::<2, 4, 22>(block));
    Group::around(16, half_at::<0, 22>(block), quants)
}

/// Scale, minimum, fifth bits, nibbles.
pub(super) fn q5_1(block: &[u8; 24]) -> Group {
    let quants = with_fifth_bits(nibbles(part::<8, 16, 24>(block)), part::<4, 4, 24>(block));
    Group { scale: half_at::<0, 24>(block), min: half_at::<2, 24>(block), quants }
}

/// Scale, signed bytes.
pub(super) fn q8_0(block: &[u8; 34]) -> Group {
    // Flipping the highest bit of a two's complement byte adds 128.
    Group::around(128, half_at::<0, 34>(block), part::<2, 32, 34>(block).map(|byte| byte ^ 0x80))
}

/// The `LEN` bytes from `AT`. Out of bounds does not compile.
pub(super) fn part<const AT: usize, const LEN: usize, const N: usize>(block: &[u8; N]) -> [u8; LEN] {
    const { assert!(AT + LEN <= N) };
    array::from_fn(|i| block[AT + i])
}

/// The half-precision number at `AT`.
pub(super) fn half_at<const AT: usize, const N: usize>(block: &[u8; N]) -> f32 {
    f16::from_le_bytes(part::<AT, 2, N>(block)).to_f32()
}

/// Byte `i` has number `i` in its low and number `i + 16` in its high nibble.
pub(super) fn nibbles(bytes: [u8; 16]) -> [u8; 32] {
    array::from_fn(|i| if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 })
}

fn with_fifth_bits(nibbles: [u8; 32], bits: [u8; 4]) -> [u8; 32] {
    let bits = u32::from_le_bytes(bits);
    array::from_fn(|i| nibbles[i] | ((bits >> i & 1) as u8) << 4)
}
