//! Simple quantisers: rows of `f32` to the blocks of a type, as the reference quantisers of ggml define them.
//!
//! Each rounds every weight to the nearest step of its block and looks for nothing better.
//! They are for tests and for tools that make new weights; models are quantised elsewhere.

use half::f16;

/// Blocks of [`TensorType::Q8_0`](crate::gguf::TensorType::Q8_0): the largest weight becomes 127 or -127.
///
/// # Panics
/// When `weights` is not a multiple of 32 long.
#[must_use]
pub fn q8_0(weights: &[f32]) -> Vec<u8> {
    blocks(weights, |block, out| {
        let scale = block.iter().fold(0.0, |max: f32, weight| max.max(weight.abs())) / 127.0;
        let inverse = inverse(scale);
        out.extend(f16::from_f32(scale).to_le_bytes());
        out.extend(block.map(|weight| (weight * inverse).round() as i8 as u8));
    })
}

/// Blocks of [`TensorType::Q4_0`](crate::gguf::TensorType::Q4_0): the weight farthest from zero becomes 0, that is -8.
///
/// # Panics
/// When `weights` is not a multiple of 32 long.
#[must_use]
pub fn q4_0(weights: &[f32]) -> Vec<u8> {
    blocks(weights, |block, out| {
        let farthest = block.iter().fold(0.0, |max: f32, &weight| if weight.abs() > max.abs() { weight } else { max });
        let scale = farthest / -8.0;
        let inverse = inverse(scale);
        out.extend(f16::from_f32(scale).to_le_bytes());
        out.extend(nibbles(block, |weight| weight * inverse + 8.5));
    })
}

/// Blocks of [`TensorType::Q4_1`](crate::gguf::TensorType::Q4_1): the smallest weight becomes 0, the largest 15.
///
/// # Panics
/// When `weights` is not a multiple of 32 long.
#[must_use]
pub fn q4_1(weights: &[f32]) -> Vec<u8> {
    blocks(weights, |block, out| {
        let min = block.iter().copied().fold(f32::INFINITY, f32::min);
        let max = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let scale = (max - min) / 15.0;
        let inverse = inverse(scale);
        out.extend(f16::from_f32(scale).to_le_bytes());
        out.extend(f16::from_f32(min).to_le_bytes());
        out.extend(nibbles(block, |weight| (weight - min) * inverse + 0.5));
    })
}

fn blocks(weights: &[f32], mut block: impl FnMut(&[f32; 32], &mut Vec<u8>)) -> Vec<u8> {
    let (whole, rest) = weights.as_chunks::<32>();
    assert!(rest.is_empty(), "{} weights are not whole blocks of 32", weights.len());
    let mut out = Vec::with_capacity(whole.len() * 34);
    whole.iter().for_each(|weights| block(weights, &mut out));
    out
}

/// Packs `step(weight)`, cut down to an integer from 0 to 15, two to a byte.
fn nibbles(block: &[f32; 32], step: impl Fn(f32) -> f32) -> [u8; 16] {
    let quant = |i: usize| (step(block[i]) as u8).min(15);
    std::array::from_fn(|i| quant(i) | quant(i + 16) << 4)
}

/// A block of zeros has no scale; its quants are then the zero of the type.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}
