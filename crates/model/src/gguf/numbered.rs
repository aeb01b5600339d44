//! The types whose four bits number one of sixteen values.
//!
//! Layouts as ggml defines them: byte `i` of a group has weight `i` in its low and weight `i + 16` in its high nibble.
//! Products of a scale and a value have at most 18 significant bits, and with a small scale 23: exact in `f32`, in any order.

use super::Group;
use super::blocks::{half_at, nibbles, part};
use duet_kernels::packed::WeightGroup;
use std::array;

/// The values of `IQ4_NL` and `IQ4_XS`.
const NON_LINEAR: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the floats of four bits: one bit of sign, two of exponent, one of mantissa.
const FOUR_BIT_FLOATS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// A group whose quants number values, and these.
pub(super) struct Numbered {
    group: WeightGroup,
    values: &'static [i8; 16],
}

/// Scale, nibbles.
pub(super) fn iq4_nl(block: &[u8; 18]) -> Numbered {
    let (scale, quants) = (half_at::<0, 18>(block), nibbles(part::<2, 16, 18>(block)));
    Numbered { group: WeightGroup { scale, quants, ..WeightGroup::default() }, values: &NON_LINEAR }
}

/// Scale, upper 2 bits of the small scales, their lower 4 bits, nibbles.
pub(super) fn iq4_xs(block: &[u8; 136]) -> [Numbered; 8] {
    let upper = u16::from_le_bytes(part::<2, 2, 136>(block));
    array::from_fn(|group| {
        let low = block[4 + group / 2] >> (group % 2 * 4) & 15;
        let small = (low | ((upper >> (2 * group) & 3) as u8) << 4).wrapping_sub(32);
        let quants = nibbles(array::from_fn(|i| block[8 + group * 16 + i]));
        let scale = half_at::<0, 136>(block);
        Numbered { group: WeightGroup { scale, min: 0.0, small: [small, 0], quants }, values: &NON_LINEAR }
    })
}

/// Exponent, nibbles.
pub(super) fn mxfp4(block: &[u8; 17]) -> Numbered {
    // Half of what the exponent says, since values are twice the floats.
    let scale = 2.0_f32.powi(i32::from(block[0]) - 128);
    let quants = nibbles(part::<1, 16, 17>(block));
    Numbered { group: WeightGroup { scale, quants, ..WeightGroup::default() }, values: &FOUR_BIT_FLOATS }
}

impl Numbered {
    /// As the file has it.
    pub(super) fn stored(self) -> WeightGroup {
        self.group
    }

    /// With the values as quants, around 128.
    pub(super) fn group(self) -> Group {
        let quants = self.group.quants.map(|number| (self.values[usize::from(number)] as u8) ^ 128);
        Group::around(128, self.group.scale, quants)
    }

    /// The same where there is a small scale.
    pub(super) fn multiplied(self) -> Group {
        let scale = self.group.scale * f32::from(self.group.small[0] as i8);
        Self { group: WeightGroup { scale, ..self.group }, ..self }.group()
    }
}
