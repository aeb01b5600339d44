//! What the kernels round, and how: their documented rules, written a second time.
//!
//! Activations become signed bytes in groups of 32, in steps of a 127th of the group's largest, and weights keep the quants
//! and scales of their type; where they are floats neither is rounded. Tensors of several types whose rows alternate become
//! signed bytes in the same way; their scales then are half precision in units of 1/1024. Keys and values are
//! half precision, or signed bytes (values also four bits) in groups of 32 that were multiplied by Hadamard's matrix, keys
//! without the bias that the model adds to them (`attention`). Everything else is floats: the 16 bits that queries and
//! attention's weights have beside keys and values of eight or four are not imitated, being many times as fine.

use crate::gguf::{Group, Tensor, TensorType};
use crate::weights::stored_form;
use duet_kernels::attention::KvFormat;
use half::f16;

/// What is rounded on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Nothing.
    None,
    /// What the kernels round, as they do.
    AsKernels {
        /// How they store keys and values.
        kv: KvFormat,
    },
}

/// How a matrix's weights are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WeightRounding {
    /// Not at all.
    None,
    /// The file's quants and scales are kept; -128 of eight bits becomes -127.
    Kept,
    /// Floats are kept, and so are activations.
    Floats,
    /// To eight bits.
    EightBits,
}

/// Weights or activations that share a scale.
const GROUP: usize = 32;

/// What packed scales count in.
const UNIT: f32 = 1.0 / 1024.0;

impl Rounding {
    /// How the weights of tensors are rounded that must be of one form.
    pub(super) fn of_weights(self, together: &[Tensor<'_>]) -> WeightRounding {
        let Self::AsKernels { .. } = self else { return WeightRounding::None };
        let mut kinds = together.iter().map(|tensor| tensor.info.kind);
        match kinds.next() {
            Some(kind) if kinds.all(|other| other == kind) => {
                if stored_form(kind).is_float() {
                    WeightRounding::Floats
                } else {
                    WeightRounding::Kept
                }
            }
            _ => WeightRounding::EightBits,
        }
    }

    /// Rounds the key of a head.
    pub(super) fn cached_key(self, head: &mut [f32]) {
        match self {
            Self::None => {}
            Self::AsKernels { kv: KvFormat::F16 } => to_halves(head),
            Self::AsKernels { kv: KvFormat::Int8 | KvFormat::Int4 } => turned(head, to_cached_bytes),
        }
    }

    /// Rounds the value of a head.
    pub(super) fn cached_value(self, head: &mut [f32]) {
        match self {
            Self::None => {}
            Self::AsKernels { kv: KvFormat::F16 } => to_halves(head),
            Self::AsKernels { kv: KvFormat::Int8 } => turned(head, to_cached_bytes),
            Self::AsKernels { kv: KvFormat::Int4 } => turned(head, to_cached_nibbles),
        }
    }

    /// Whether keys are cached without their bias.
    pub(super) fn keeps_key_bias_apart(self) -> bool {
        matches!(self, Self::AsKernels { kv } if kv.keeps_key_bias_apart())
    }
}

fn to_halves(head: &mut [f32]) {
    let bound = f16::MAX.to_f32();
    head.iter_mut().for_each(|x| *x = f16::from_f32(x.clamp(-bound, bound)).to_f32());
}

/// Rounds each group of a head that is turned meanwhile.
fn turned(head: &mut [f32], round: impl Fn(&mut [f32])) {
    for group in head.chunks_mut(GROUP) {
        hadamard(group);
        round(group);
        hadamard(group);
    }
}

/// Multiplies by the orthonormal matrix of Hadamard, which is its own inverse: the sign of an entry is that of the number of
/// bits that its row and column have in common.
fn hadamard(group: &mut [f32]) {
    let inverse_root = 1.0 / (group.len() as f64).sqrt();
    let sign = |row: usize, column: usize| if (row & column).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let entry = |row: usize| {
        let terms = group.iter().enumerate().map(|(column, x)| sign(row, column) * f64::from(*x));
        (terms.sum::<f64>() * inverse_root) as f32
    };
    let turned: Vec<f32> = (0..group.len()).map(entry).collect();
    group.copy_from_slice(&turned);
}

/// What scales of keys and values count in.
const CACHED_UNIT: f32 = 1.0 / 64.0;

/// Signed bytes, their scale in half precision.
fn to_cached_bytes(group: &mut [f32]) {
    let scale = f16::from_f32(largest(group).min(f16::MAX.to_f32()) / (127.0 * CACHED_UNIT)).to_f32() * CACHED_UNIT;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    group.iter_mut().for_each(|x| *x = (*x * inverse).round_ties_even().clamp(-127.0, 127.0) * scale);
}

/// Four bits around a centre, for which 8 stands; scale and centre in half precision.
fn to_cached_nibbles(group: &mut [f32]) {
    let (least, most) = group.iter().fold((f32::MAX, f32::MIN), |(least, most), x| (least.min(*x), most.max(*x)));
    let scale = f16::from_f32((most - least) / (15.0 * CACHED_UNIT)).to_f32() * CACHED_UNIT;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let centre = f16::from_f32(least + 8.0 * scale).to_f32();
    let quant = |x: f32| ((x - centre) * inverse).round_ties_even().clamp(-8.0, 7.0);
    group.iter_mut().for_each(|x| *x = quant(*x) * scale + centre);
}

impl WeightRounding {
    /// Rounds what goes into a product with the weights.
    pub(super) fn activations(self, row: &mut [f32]) {
        if let Self::Kept | Self::EightBits = self {
            row.chunks_mut(GROUP).for_each(|group| {
                let largest = largest(group);
                let (scale, inverse) = (largest / 127.0, if largest > 0.0 { 127.0 / largest } else { 0.0 });
                group.iter_mut().for_each(|x| *x = (*x * inverse).round_ties_even() * scale);
            });
        }
    }

    /// Reads a row of a tensor.
    pub(super) fn read(self, tensor: Tensor<'_>, row: usize, out: &mut [f32]) {
        match self {
            Self::None | Self::Floats => tensor.dequantize_row(row, out),
            Self::Kept if tensor.info.kind == TensorType::Q8_0 => {
                let mut groups = vec![Group::default(); out.len() / GROUP];
                tensor.groups_row(row, &mut groups);
                for (group, out) in groups.iter().zip(out.as_chunks_mut().0) {
                    group.weights(out);
                }
            }
            Self::Kept => tensor.dequantize_row(row, out),
            Self::EightBits => {
                tensor.dequantize_row(row, out);
                out.chunks_mut(GROUP).for_each(to_eight_bits);
            }
        }
    }
}

fn to_eight_bits(group: &mut [f32]) {
    let scale = largest(group) / 127.0;
    let (inverse, half) = (if scale > 0.0 { 1.0 / scale } else { 0.0 }, to_half(scale));
    group.iter_mut().for_each(|x| *x = (*x * inverse).round_ties_even().clamp(-127.0, 127.0) * half);
}

fn to_half(scale: f32) -> f32 {
    f16::from_f32(scale / UNIT).to_f32() * UNIT
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()))
}
