//! The types with 256 weights in a block ("K-quants"): small scales, themselves scaled by one half-precision number.
//!
//! Layouts as ggml defines them. `Q4_K` and `Q5_K` have a scale and a minimum for every 32 weights and so also read as
//! groups; the others have one for every 16.
//! Products of a scale, a small scale and a quant have at most 23 significant bits: exact in `f32`, in any order.

use super::StoredGroup;
use super::blocks::{half_at, part};
use std::array;

/// Scale, scale of the minima, 12 bytes of 6-bit scales and minima, nibbles.
pub(super) fn q4_k(block: &[u8; 144]) -> [StoredGroup; 8] {
    let nibbles = part::<16, 128, 144>(block);
    groups(half_at::<0, 144>(block), half_at::<2, 144>(block), part::<4, 12, 144>(block), |group, i| {
        nibble(&nibbles, group, i)
    })
}

/// As [`q4_k`], with 32 bytes of fifth bits before the nibbles: bit `g` of byte `i` is for weight `i` of group `g`.
pub(super) fn q5_k(block: &[u8; 176]) -> [StoredGroup; 8] {
    let fifth = part::<16, 32, 176>(block);
    let nibbles = part::<48, 128, 176>(block);
    groups(half_at::<0, 176>(block), half_at::<2, 176>(block), part::<4, 12, 176>(block), |group, i| {
        nibble(&nibbles, group, i) | (fifth[i] >> group & 1) << 4
    })
}

/// 16 bytes of 4-bit scales (low) and minima (high), 64 bytes of 2-bit quants, scale, scale of the minima.
pub(super) fn q2_k(block: &[u8; 84]) -> [StoredGroup; 8] {
    array::from_fn(|group| StoredGroup {
        scale: half_at::<80, 84>(block),
        min: -half_at::<82, 84>(block),
        small: [block[2 * group], block[2 * group + 1]],
        quants: array::from_fn(|i| two_bits(&block[16..80], group, i)),
    })
}

/// 32 bytes of third bits, 64 bytes of 2-bit quants, 12 bytes of 6-bit scales around 32, scale. Quants are around 4.
pub(super) fn q3_k(block: &[u8; 110]) -> [StoredGroup; 8] {
    let packed = part::<96, 12, 110>(block);
    let small = |i: usize| {
        let low = if i < 8 { packed[i] & 15 } else { packed[i - 8] >> 4 };
        let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        (low | high << 4).wrapping_sub(32)
    };
    array::from_fn(|group| StoredGroup {
        scale: half_at::<108, 110>(block),
        min: 0.0,
        small: [small(2 * group), small(2 * group + 1)],
        quants: array::from_fn(|i| two_bits(&block[32..96], group, i) | (block[i] >> group & 1) << 2),
    })
}

/// 128 bytes of low nibbles, 64 bytes of upper 2 bits, 16 signed scales, scale. Quants are around 32.
pub(super) fn q6_k(block: &[u8; 210]) -> [StoredGroup; 8] {
    array::from_fn(|group| {
        // Each half of the block has four runs of 32: the low nibbles of 64 bytes, then their high nibbles.
        let (half, run) = (group / 4, group % 4);
        let low = |i: usize| block[half * 64 + run % 2 * 32 + i] >> (run / 2 * 4) & 15;
        StoredGroup {
            scale: half_at::<208, 210>(block),
            min: 0.0,
            small: [block[192 + 2 * group], block[193 + 2 * group]],
            quants: array::from_fn(|i| low(i) | two_bits(&block[128..192], group, i) << 4),
        }
    })
}

/// The eight groups of a block from its scales and `quant(group, i)`.
fn groups(scale: f32, min_scale: f32, packed: [u8; 12], quant: impl Fn(usize, usize) -> u8) -> [StoredGroup; 8] {
    array::from_fn(|group| {
        let (small, small_min) = scale_and_min(&packed, group);
        StoredGroup { scale, min: -min_scale, small: [small, small_min], quants: array::from_fn(|i| quant(group, i)) }
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

/// Two bits: in each half of 64 bytes, four groups share 32 bytes.
fn two_bits(bytes: &[u8], group: usize, i: usize) -> u8 {
    bytes[group / 4 * 32 + i] >> (group % 4 * 2) & 3
}
