//! The types with 256 weights in a block ("K-quants"): small scales, themselves scaled by one half-precision number.
//!
//! Layouts as ggml defines them. `Q4_K` and `Q5_K` have a scale and a minimum for every 32 weights and so read as
//! groups; the others have one for every 16 and read as weights only.
//! Products of a scale, a small scale and a quant have at most 23 significant bits: exact in `f32`, in any order.

use super::{
    Group,
    blocks::{half_at, part},
};
use std::array;

/// Scale, scale of the minima, 12 bytes of 6-bit scales and minima, nibbles.
pub(super) fn q4_k(block: &[u8; 144]) -> [Group; 8] {
    let nibbles = part::<16, 128, 144>(block);
    groups(half_at::<0, 144>(block), half_at::<2, 144>(block), part::<4, 12, 144>(block), |group, i| {
        nibble(&nibbles, group, i)
    })
}

/// As [`q4_k`], with 32 bytes of fifth bits before the nibbles: bit `g` of byte `i` is for weight `i` of group `g`.
pub(super) fn q5_k(block: &[u8; 176]) -> [Group; 8] {
    let fifth = part::<16, 32, 176>(block);
    let nibbles = part::<48, 128, 176>(block);
    groups(half_at::<0, 176>(block), half_at::<2, 176>(block), part::<4, 12, 176>(block), |group, i| {
        nibble(&nibbles, group, i) | (fifth[i] >> group & 1) << 4
    })
}

/// 16 bytes of 4-bit scales (low) and minima (high), 64 bytes of 2-bit quants, scale, scale of the minima.
pub(super) fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (scale, min_scale) = (half_at::<80, 84>(block), half_at::<82, 84>(block));
    for (index, weight) in out.iter_mut().enumerate() {
        let small = block[index / 16];
        let quant = block[16 + index / 128 * 32 + index % 32] >> (index / 32 % 4 * 2) & 3;
        *weight = scale * f32::from(small & 15) * f32::from(quant) - min_scale * f32::from(small >> 4);
    }
}

/// 32 bytes of third bits, 64 bytes of 2-bit quants, 12 bytes of 6-bit scales around 32, scale.
pub(super) fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let scale = half_at::<108, 110>(block);
    let packed = part::<96, 12, 110>(block);
    let small: [f32; 16] = array::from_fn(|i| {
        let low = if i < 8 { packed[i] & 15 } else { packed[i - 8] >> 4 };
        let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        f32::from((low | high << 4) as i8 - 32)
    });
    for (index, weight) in out.iter_mut().enumerate() {
        let low = block[32 + index / 128 * 32 + index % 32] >> (index / 32 % 4 * 2) & 3;
        let third = block[index % 32] >> (index / 32) & 1;
        // The third bit is stored inverted: where it is absent, 4 is taken away.
        let quant = (low | third << 2) as i8 - 4;
        *weight = scale * small[index / 16] * f32::from(quant);
    }
}

/// 128 bytes of low nibbles, 64 bytes of upper 2 bits, 16 signed scales, scale. Quants are around 32.
pub(super) fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let scale = half_at::<208, 210>(block);
    for (index, weight) in out.iter_mut().enumerate() {
        // Each half of the block has four runs of 32: the low nibbles of 64 bytes, then their high nibbles.
        let (half, run, i) = (index / 128, index / 32 % 4, index % 32);
        let low = block[half * 64 + run % 2 * 32 + i] >> (run / 2 * 4) & 15;
        let high = block[128 + half * 32 + i] >> (run * 2) & 3;
        let small = block[192 + index / 16] as i8;
        *weight = scale * f32::from(small) * f32::from((low | high << 4) as i8 - 32);
    }
}

/// The eight groups of a block from its scales and `quant(group, i)`.
fn groups(scale: f32, min_scale: f32, packed: [u8; 12], quant: impl Fn(usize, usize) -> u8) -> [Group; 8] {
    array::from_fn(|group| {
        let (small, small_min) = scale_and_min(&packed, group);
        Group {
            scale: scale * f32::from(small),
            min: -(min_scale * f32::from(small_min)),
            quants: array::from_fn(|i| quant(group, i)),
        }
    })
}

/// The 6-bit scale and minimum of a group: the first four pairs lie in the low 6 bits of bytes 0-3 and 4-7,
/// the last four in the nibbles of bytes 8-11, with their upper bits in the spare ones of bytes 0-7.
fn scale_and_min(packed: &[u8; 12], group: usize) -> (u8, u8) {
    match group {
        0..4 => (packed[group] & 63, packed[group + 4] & 63),
        _ => (packed[group + 4] & 15 | packed[group - 4] >> 6 << 4, packed[group + 4] >> 4 | packed[group] >> 6 << 4),
    }
}

/// The nibbles of two consecutive groups share 32 bytes.
fn nibble(nibbles: &[u8; 128], group: usize, i: usize) -> u8 {
    nibbles[group / 2 * 32 + i] >> (group % 2 * 4) & 15
}
