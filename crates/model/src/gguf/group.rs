//! Groups of 32 weights, the common form of the integer types: what kernels pack from.
//!
//! `scale * q + min` is computed in `f32` and rounds once at most, in the sum: a scale has 11 significant bits with
//! quants of up to 8 (17 with up to 5 in the K-quants), so the product is exact. Hence a group holds the values of the
//! file, not an approximation.

use duet_kernels::packed::WeightGroup;

/// 32 consecutive weights of a row: `w[i] = scale * quants[i] + min`.
///
/// Equal to [`Tensor::dequantize_row`](super::Tensor::dequantize_row) bit for bit, with one exception: a `Q8_0`
/// weight stored as -128 is given as -127, so that the signed value always has a negative.
/// (The reference quantiser never stores it.)
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    /// What one step of `quants` is worth. May be negative or, in a damaged file, not finite.
    pub scale: f32,
    /// The value of `quants[i] == 0`.
    pub min: f32,
    /// The unsigned steps.
    pub quants: [u8; 32],
}

/// The range of a type's quants, and whether its minimum follows from its scale.
///
/// `zero` is `Some(z)` when `min == -z * scale` for every group of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupForm {
    /// Quants are 0 to 15.
    Nibble {
        /// The quant whose weight is zero, if it is the same for every group.
        zero: Option<u8>,
    },
    /// Quants are 0 to 255.
    Byte {
        /// The quant whose weight is zero, if it is the same for every group.
        zero: Option<u8>,
    },
}

impl Group {
    /// The weights.
    pub fn weights(&self, out: &mut [f32; 32]) {
        for (weight, &quant) in out.iter_mut().zip(&self.quants) {
            *weight = self.scale * f32::from(quant) + self.min;
        }
    }

    /// With a scale and a minimum that are no products.
    pub(super) fn stored(&self) -> WeightGroup {
        WeightGroup { scale: self.scale, min: self.min, small: [0; 2], quants: self.quants }
    }

    /// A group of a type whose zero is fixed. `zero * scale` is exact: at most 11 and 8 significant bits.
    pub(super) fn around(zero: u8, scale: f32, quants: [u8; 32]) -> Self {
        Self { scale, min: -(f32::from(zero) * scale), quants }
    }
}

/// As a group, where small scales are for the whole of it.
pub(super) fn multiplied(stored: &WeightGroup) -> Group {
    let [scale, min] = stored.small.map(f32::from);
    Group { scale: stored.scale * scale, min: stored.min * min, quants: stored.quants }
}

/// The weights, where each half has a scale and a minimum of four bits.
pub(super) fn halves_with_minima(stored: &WeightGroup, out: &mut [f32; 32]) {
    for (i, (weight, &quant)) in out.iter_mut().zip(&stored.quants).enumerate() {
        let small = stored.small[i / 16];
        *weight = stored.scale * f32::from(small & 15) * f32::from(quant) + stored.min * f32::from(small >> 4);
    }
}

/// The weights, where each half has a signed scale and quants are around `zero`.
pub(super) fn halves_around(stored: &WeightGroup, zero: u8, out: &mut [f32; 32]) {
    for (i, (weight, &quant)) in out.iter_mut().zip(&stored.quants).enumerate() {
        let small = f32::from(stored.small[i / 16] as i8);
        *weight = stored.scale * small * (f32::from(quant) - f32::from(zero));
    }
}
