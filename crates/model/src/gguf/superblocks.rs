//! The types with 256 weights in a block ("K-quants"): small scales, themselves scaled by one half-precision number.
//!
//! Layouts as ggml defines them. `Q4_K` and `Q5_K` have a scale and a minimum for every 32 weights and so also read as
//! groups; the others have one for every 16.
//! Products of a scale, a small scale and a quant have at most 23 significant bits: exact in `f32`, in any order.

use super::blocks::{half_at, part};
use duet_kernels::packed::WeightGroup;

/// The groups of a block. Decoders write them in place: moving a group takes as long as decoding it.
pub(super) type Groups = [WeightGroup; 8];

/// Scale, scale of the minima, 12 bytes of 6-bit scales and minima, nibbles.
pub(super) fn q4_k(block: &[u8; 144], out: &mut Groups) {
    let (scale, min_scale) = (half_at::<0, 144>(block), half_at::<2, 144>(block));
    scales(scale, min_scale, part::<4, 12, 144>(block), out);
    nibbles(&block[16..], out);
}

/// As [`q4_k`], with 32 bytes of fifth bits before the nibbles: bit `g` of byte `i` is for weight `i` of group `g`.
pub(super) fn q5_k(block: &[u8; 176], out: &mut Groups) {
    let (scale, min_scale) = (half_at::<0, 176>(block), half_at::<2, 176>(block));
    scales(scale, min_scale, part::<4, 12, 176>(block), out);
    nibbles(&block[48..], out);
    for (group, out) in out.iter_mut().enumerate() {
        for (quant, fifth) in out.quants.iter_mut().zip(&block[16..48]) {
            *quant |= (fifth >> group & 1) << 4;
        }
    }
}

/// 16 bytes of 4-bit scales (low) and minima (high), 64 bytes of 2-bit quants, scale, scale of the minima.
pub(super) fn q2_k(block: &[u8; 84], out: &mut Groups) {
    let (scale, min) = (half_at::<80, 84>(block), -half_at::<82, 84>(block));
    for (group, out) in out.iter_mut().enumerate() {
        (out.scale, out.min, out.small) = (scale, min, [block[2 * group], block[2 * group + 1]]);
        out.quants = [0; 32];
    }
    two_bits(&block[16..80], 0, out);
}

/// 32 bytes of third bits, 64 bytes of 2-bit quants, 12 bytes of 6-bit scales around 32, scale. Quants are around 4.
pub(super) fn q3_k(block: &[u8; 110], out: &mut Groups) {
    let packed = part::<96, 12, 110>(block);
    let small = |i: usize| {
        let low = if i < 8 { packed[i] & 15 } else { packed[i - 8] >> 4 };
        let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        (low | high << 4).wrapping_sub(32)
    };
    let scale = half_at::<108, 110>(block);
    for (group, out) in out.iter_mut().enumerate() {
        (out.scale, out.min, out.small) = (scale, 0.0, [small(2 * group), small(2 * group + 1)]);
        for (quant, third) in out.quants.iter_mut().zip(&block[..32]) {
            *quant = (third >> group & 1) << 2;
        }
    }
    two_bits(&block[32..96], 0, out);
}

/// 128 bytes of low nibbles, 64 bytes of upper 2 bits, 16 signed scales, scale. Quants are around 32.
pub(super) fn q6_k(block: &[u8; 210], out: &mut Groups) {
    let scale = half_at::<208, 210>(block);
    for (group, out) in out.iter_mut().enumerate() {
        (out.scale, out.min, out.small) = (scale, 0.0, [block[192 + 2 * group], block[193 + 2 * group]]);
    }
    // Each half of the block has four runs of 32: the low nibbles of 64 bytes, then their high nibbles.
    for (out, bytes) in out.as_chunks_mut::<4>().0.iter_mut().zip(block.chunks_exact(64)) {
        let (low, high) = out.split_at_mut(2);
        for (i, bytes) in bytes.chunks_exact(32).enumerate() {
            copy(bytes, &mut low[i].quants, |byte| byte & 15);
            copy(bytes, &mut high[i].quants, |byte| byte >> 4);
        }
    }
    two_bits(&block[128..192], 4, out);
}

/// What `of` makes of each byte.
fn copy(bytes: &[u8], out: &mut [u8; 32], of: impl Fn(u8) -> u8) {
    for (out, &byte) in out.iter_mut().zip(bytes) {
        *out = of(byte);
    }
}

/// The scales of the eight groups.
fn scales(scale: f32, min_scale: f32, packed: [u8; 12], out: &mut Groups) {
    for (group, out) in out.iter_mut().enumerate() {
        let (small, small_min) = scale_and_min(&packed, group);
        (out.scale, out.min, out.small) = (scale, -min_scale, [small, small_min]);
    }
}

/// The 6-bit scale and minimum of a group: the first four pairs lie in the low 6 bits of bytes 0-3 and 4-7,
/// the last four in the nibbles of bytes 8-11, with their upper bits in the spare ones of bytes 0-7.
fn scale_and_min(packed: &[u8; 12], group: usize) -> (u8, u8) {
    match group {
        0..4 => (packed[group] & 63, packed[group + 4] & 63),
        _ => (packed[group + 4] & 15 | packed[group - 4] >> 6 << 4, packed[group + 4] >> 4 | packed[group] >> 6 << 4),
    }
}

/// Writes nibbles, of which those of two consecutive groups share 32 bytes.
fn nibbles(nibbles: &[u8], out: &mut Groups) {
    for (bytes, [low, high]) in nibbles.chunks_exact(32).zip(out.as_chunks_mut::<2>().0) {
        copy(bytes, &mut low.quants, |byte| byte & 15);
        copy(bytes, &mut high.quants, |byte| byte >> 4);
    }
}

/// Adds two bits, to stand from bit `at` on: in each half of 64 bytes, four groups share 32 bytes.
fn two_bits(bytes: &[u8], at: usize, out: &mut Groups) {
    for (bytes, out) in bytes.chunks_exact(32).zip(out.as_chunks_mut::<4>().0) {
        for (i, out) in out.iter_mut().enumerate() {
            for (quant, byte) in out.quants.iter_mut().zip(bytes) {
                *quant |= (byte >> (2 * i) & 3) << at;
            }
        }
    }
}
