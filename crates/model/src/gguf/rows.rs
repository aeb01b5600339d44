//! From the bytes of a row to numbers: the decoder of each type, applied block by block.
//!
//! The caller has checked that the bytes are whole blocks and that `out` has room for exactly their elements.

use super::group::{halves_around, halves_with_minima, multiplied};
use super::numbered::{self, Numbered};
use super::superblocks::Groups;
use super::{Group, TensorType, blocks, superblocks};
use duet_kernels::packed::WeightGroup;
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
        TensorType::Q4K => through_stored(row, out, superblocks::q4_k, |group, out| multiplied(group).weights(out)),
        TensorType::Q5K => through_stored(row, out, superblocks::q5_k, |group, out| multiplied(group).weights(out)),
        TensorType::IQ4NL => through_groups(row, out, |block| [numbered::iq4_nl(block).group()]),
        TensorType::IQ4XS => through_groups(row, out, |block| numbered::iq4_xs(block).map(Numbered::multiplied)),
        TensorType::MXFP4 => through_groups(row, out, |block| [numbered::mxfp4(block).group()]),
        TensorType::Q2K => through_stored(row, out, superblocks::q2_k, halves_with_minima),
        TensorType::Q3K => through_stored(row, out, superblocks::q3_k, |group, out| halves_around(group, 4, out)),
        TensorType::Q6K => through_stored(row, out, superblocks::q6_k, |group, out| halves_around(group, 32, out)),
    }
}

/// Writes what the file has for a row's groups. Writes nothing for floats.
pub(super) fn stored(kind: TensorType, row: &[u8], out: &mut [WeightGroup]) {
    match kind {
        TensorType::Q2K => each_block(row, out, superblocks::q2_k),
        TensorType::Q3K => each_block(row, out, superblocks::q3_k),
        TensorType::Q4K => each_block(row, out, superblocks::q4_k),
        TensorType::Q5K => each_block(row, out, superblocks::q5_k),
        TensorType::Q6K => each_block(row, out, superblocks::q6_k),
        TensorType::Q4_0 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q4_0(block).stored()]),
        TensorType::Q4_1 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q4_1(block).stored()]),
        TensorType::Q5_0 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q5_0(block).stored()]),
        TensorType::Q5_1 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q5_1(block).stored()]),
        TensorType::Q8_0 => each_block(row, out, |block, out: &mut [_; 1]| *out = [negatable(block).stored()]),
        TensorType::IQ4NL => each_block(row, out, |block, out: &mut [_; 1]| *out = [numbered::iq4_nl(block).stored()]),
        TensorType::MXFP4 => each_block(row, out, |block, out: &mut [_; 1]| *out = [numbered::mxfp4(block).stored()]),
        TensorType::IQ4XS => each_block(row, out, |block, out: &mut [_; 8]| {
            *out = numbered::iq4_xs(block).map(Numbered::stored);
        }),
        TensorType::F32 | TensorType::F16 | TensorType::BF16 => {}
    }
}

/// A block whose -128 becomes -127: kernels may negate, or fold the sign of one operand into the other.
fn negatable(block: &[u8; 34]) -> Group {
    let group = blocks::q8_0(block);
    Group { quants: group.quants.map(|quant| quant.max(1)), ..group }
}

/// Writes the groups of a row. Writes nothing for a type without groups.
pub(super) fn groups(kind: TensorType, row: &[u8], out: &mut [Group]) {
    match kind {
        TensorType::Q4_0 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q4_0(block)]),
        TensorType::Q4_1 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q4_1(block)]),
        TensorType::Q5_0 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q5_0(block)]),
        TensorType::Q5_1 => each_block(row, out, |block, out: &mut [_; 1]| *out = [blocks::q5_1(block)]),
        TensorType::Q8_0 => each_block(row, out, |block, out: &mut [_; 1]| *out = [negatable(block)]),
        TensorType::Q4K => each_block(row, out, |block, out: &mut [_; 8]| {
            *out = decoded(block, superblocks::q4_k).each_ref().map(multiplied);
        }),
        TensorType::Q5K => each_block(row, out, |block, out: &mut [_; 8]| {
            *out = decoded(block, superblocks::q5_k).each_ref().map(multiplied);
        }),
        TensorType::IQ4NL => each_block(row, out, |block, out: &mut [_; 1]| *out = [numbered::iq4_nl(block).group()]),
        TensorType::MXFP4 => each_block(row, out, |block, out: &mut [_; 1]| *out = [numbered::mxfp4(block).group()]),
        TensorType::IQ4XS => each_block(row, out, |block, out: &mut [_; 8]| {
            *out = numbered::iq4_xs(block).map(Numbered::multiplied);
        }),
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

fn through_stored<const BYTES: usize>(
    row: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut Groups),
    weights: impl Fn(&WeightGroup, &mut [f32; 32]),
) {
    let groups = row.as_chunks().0.iter().flat_map(|block| decoded(block, &decode));
    for (group, out) in groups.zip(out.as_chunks_mut().0) {
        weights(&group, out);
    }
}

/// The groups of one block.
fn decoded<const BYTES: usize>(block: &[u8; BYTES], decode: impl Fn(&[u8; BYTES], &mut Groups)) -> Groups {
    let mut groups = Groups::default();
    decode(block, &mut groups);
    groups
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
