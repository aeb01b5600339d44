//! The forms of packed weights: those of the file formats, by ggml's names, and how much memory each takes.

use crate::quantize::GROUP;
use crate::simd::LANES;

/// How weights are stored: with the file's own quants and scales, so that nothing is rounded twice. `q` is a quant, `d` and
/// `m` are of half precision, small letters `s` and `n` are the small scales and minima of the types with 256 weights in a
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Eight bits, `d (q - 128)`. Also what is made of rows of several types that cannot be sections.
    Q8_0,
    /// Four bits, `d (q - 8)`.
    Q4_0,
    /// Four bits, `d q + m`.
    Q4_1,
    /// Five bits, `d (q - 16)`.
    Q5_0,
    /// Five bits, `d q + m`.
    Q5_1,
    /// Two bits, `d s q + m n`, `s` and `n` of four bits for every 16 weights.
    Q2K,
    /// Three bits, `d s (q - 4)`, `s` signed, for every 16 weights.
    Q3K,
    /// Four bits, `d s q + m n`.
    Q4K,
    /// Five bits, `d s q + m n`.
    Q5K,
    /// Six bits, `d s (q - 32)`, `s` signed, for every 16 weights.
    Q6K,
    /// Four bits that number one of sixteen values, `d t[q]`.
    IQ4NL,
    /// The same, `d s t[q]`, `s` signed.
    IQ4XS,
    /// Floats of four bits, `d t[q]`, `d` a power of two.
    MXFP4,
    /// Floats of 32 bits; they have no quants, and are multiplied with activations that are not rounded.
    F32,
    /// Floats of half precision, likewise.
    F16,
    /// The upper halves of floats of 32 bits, likewise.
    BF16,
}

/// Groups that share `d` and `m` in the types with 256 weights in a block.
pub(crate) const BLOCK: usize = 8;

/// Bytes of sixteen numbers in half precision, one of each output of a panel.
pub(crate) const HALVES: usize = 2 * LANES;

impl Form {
    /// Every form.
    pub const ALL: [Self; 16] = [
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::IQ4NL,
        Self::IQ4XS,
        Self::MXFP4,
        Self::F32,
        Self::F16,
        Self::BF16,
    ];

    /// Bits of a quant, or of a float.
    #[must_use]
    pub const fn bits(self) -> usize {
        match self {
            Self::Q2K => 2,
            Self::Q3K => 3,
            Self::Q4_0 | Self::Q4_1 | Self::Q4K | Self::IQ4NL | Self::IQ4XS | Self::MXFP4 => 4,
            Self::Q5_0 | Self::Q5_1 | Self::Q5K => 5,
            Self::Q6K => 6,
            Self::Q8_0 => 8,
            Self::F16 | Self::BF16 => 16,
            Self::F32 => 32,
        }
    }

    /// Whether weights are floats, without quants and scales.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// Whether weights have a minimum; where they have none, quants are around [`Self::zero`].
    #[must_use]
    pub const fn has_min(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K)
    }

    /// What a quant stands for, where quants only number values: products are with these, as bytes around 128.
    #[must_use]
    pub const fn table(self) -> Option<&'static [i8; 16]> {
        match self {
            Self::IQ4NL | Self::IQ4XS => {
                Some(&[-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
            }
            // Twice the floats of four bits.
            Self::MXFP4 => Some(&[0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]),
            _ => None,
        }
    }

    /// What is taken from a quant, or from the byte it stands for, where there is no minimum: half of what the bits can say.
    #[must_use]
    pub const fn zero(self) -> u8 {
        if self.is_float() {
            0
        } else if self.table().is_some() {
            128
        } else {
            1 << (self.bits() - 1)
        }
    }

    /// Whether a number for 256 weights scales small scales of fewer.
    #[must_use]
    pub const fn has_small_scales(self) -> bool {
        self.small_scales() > 0
    }

    /// Bytes of small scales that a group has.
    #[must_use]
    pub(crate) const fn small_scales(self) -> usize {
        match self {
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 2,
            Self::IQ4XS => 1,
            _ => 0,
        }
    }

    /// 64-byte registers that hold the quants, or floats, of a group of a panel.
    #[must_use]
    pub const fn registers(self) -> usize {
        GROUP * self.bits() * LANES / 8 / 64
    }

    /// Bytes of the scales of a panel of `groups` groups.
    #[must_use]
    pub(crate) const fn scale_bytes(self, groups: usize) -> usize {
        if self.is_float() {
            0
        } else if self.has_small_scales() {
            groups.div_ceil(BLOCK) * self.scales_of_block()
        } else {
            groups * self.head()
        }
    }

    /// Where the scales of a group begin in those of its panel: `d` and `m` where they are the group's own, else the small
    /// ones.
    pub(crate) const fn scales_at(self, group: usize) -> usize {
        if self.has_small_scales() {
            self.block_at(group) + self.head() + group % BLOCK * self.small_scales() * LANES
        } else {
            group * self.head()
        }
    }

    /// Where `d` and `m` of a group begin in the scales of its panel.
    pub(crate) const fn block_at(self, group: usize) -> usize {
        if self.has_small_scales() { group / BLOCK * self.scales_of_block() } else { group * self.head() }
    }

    /// Bytes of `d` and `m`.
    const fn head(self) -> usize {
        if self.has_min() { 2 * HALVES } else { HALVES }
    }

    /// Bytes of `d` and `m` and the small scales of eight groups: whole bytes, however few bits they have.
    const fn scales_of_block(self) -> usize {
        self.head() + BLOCK * self.small_scales() * LANES
    }
}
