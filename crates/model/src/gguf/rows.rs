//! From the bytes of a row to numbers: the decoder of each type, applied block by block.
//!
//! The caller has checked that the bytes are whole blocks and that `out` has room for exactly their elements.

use super::{Group, TensorType, blocks, superblocks};
use half::{bf16, f16, slice::HalfFloatSliceExt};

/// Writes the weights of a row.
pub(super) fn dequantize(kind: TensorType, row: &[u8], out: &mut [f32]) {
    match kind {
        TensorType::F32 => singles(row, out),
        TensorType::F16 => halves(row, out),
        TensorType::BF16 => brain_halves(row, out),
        TensorType::Q4_0 => through_groups(row, out, |block| [blocks::q4_0(block)]),
        TensorType::Q4_1 => through_groups(row, out, |block| [blocks::q4_1(block)]),
        TensorType::Q5_0 => through_groups(row, out, |block| [blocks::q5_0(block)]),
        TensorType::Q5_1 => through_groups(row, out, |block| [blocks::q5_1(block)]),
        TensorType::Q8_0 => through_groups(row, out, |block| [blocks::q8_0(block)]),
        TensorType::Q4K => through_groups(row, out, superblocks::q4_k),
        TensorType::Q5K => through_groups(row, out, superblocks::q5_k),
        TensorType::Q2K => each_block(row, out, superblocks::q2_k),
        TensorType::Q3K => each_block(row, out, superblocks::q3_k),
        TensorType::Q6K => each_block(row, out, superblocks::q6_k),
    }
}

/// Writes the groups of a row. Writes nothing for a type without groups.
pub(super) fn groups(kind: TensorType, row: &[u8], out: &mut [Group]) {
    match kind {
        TensorType::Q4_0 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q4_0(block)]),
        TensorType::Q4_1 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q4_1(block)]),
        TensorType::Q5_0 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q5_0(block)]),
        TensorType::Q5_1 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q5_1(block)]),
        TensorType::Q8_0 => each_block(row, out, |block, [group]: &mut [Group; 1]| {
            *group = blocks::q8_0(block);
            // -128 becomes -127: kernels may negate, or fold the sign of one operand into the other.
            group.quants = group.quants.map(|quant| quant.max(1));
        }),
        TensorType::Q4K => each_block(row, out, |block, out: &mut [_; 8]| *out = superblocks::q4_k(block)),
        TensorType::Q5K => each_block(row, out, |block, out: &mut [_; 8]| *out = superblocks::q5_k(block)),
        TensorType::F32 | TensorType::F16 | TensorType::BF16 | TensorType::Q2K | TensorType::Q3K | TensorType::Q6K => {}
    }
}

fn each_block<const BYTES: usize, const N: usize, T>(
    row: &[u8],
    out: &mut [T],
    mut decode: impl FnMut(&[u8; BYTES], &mut [T; N]),
) {
    for (block, out) in row.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        decode(block, out);
    }
}

fn through_groups<const BYTES: usize, const N: usize>(
    row: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES]) -> [Group; N],
) {
    let groups = row.as_chunks().0.iter().flat_map(decode);
    for (group, out) in groups.zip(out.as_chunks_mut().0) {
        group.weights(out);
    }
}

fn singles(row: &[u8], out: &mut [f32]) {
    each_block(row, out, |bytes, [number]: &mut [f32; 1]| *number = f32::from_le_bytes(*bytes));
}

fn brain_halves(row: &[u8], out: &mut [f32]) {
    each_block(row, out, |bytes, [number]: &mut [f32; 1]| *number = bf16::from_le_bytes(*bytes).to_f32());
}

fn halves(row: &[u8], out: &mut [f32]) {
    // The slice conversion uses the CPU's instruction, but wants aligned numbers, which a file does not promise.
    let mut aligned = [f16::ZERO; 64];
    for (bytes, out) in row.chunks(2 * aligned.len()).zip(out.chunks_mut(aligned.len())) {
        let aligned = &mut aligned[..out.len()];
        each_block(bytes, aligned, |bytes, [number]: &mut [f16; 1]| *number = f16::from_le_bytes(*bytes));
        aligned.convert_to_f32_slice(out);
    }
}
