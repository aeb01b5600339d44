//! Tensor types: how a row of weights is cut into blocks, and how large a block is.

use super::GroupForm;

/// How a tensor's elements are stored. All of these can be read as `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TensorType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single.
    BF16,
    /// 4 bits around 8, one scale per 32.
    Q4_0,
    /// 4 bits, one scale and minimum per 32.
    Q4_1,
    /// 5 bits around 16, one scale per 32.
    Q5_0,
    /// 5 bits, one scale and minimum per 32.
    Q5_1,
    /// Signed 8 bits, one scale per 32.
    Q8_0,
    /// 2 bits, 4-bit scale and minimum per 16, in blocks of 256.
    Q2K,
    /// 3 bits around 4, 6-bit scale per 16, in blocks of 256.
    Q3K,
    /// 4 bits, 6-bit scale and minimum per 32, in blocks of 256.
    Q4K,
    /// 5 bits, 6-bit scale and minimum per 32, in blocks of 256.
    Q5K,
    /// 6 bits around 32, 8-bit scale per 16, in blocks of 256.
    Q6K,
    /// 4 bits that number 16 values, one scale per 32.
    IQ4NL,
    /// The same, 6-bit scale around 32 per 32, in blocks of 256.
    IQ4XS,
    /// Floats of 4 bits, a power of two per 32.
    MXFP4,
}

impl TensorType {
    /// Every type, from the most exact to the smallest.
    pub const ALL: [Self; 16] = [
        Self::F32,
        Self::BF16,
        Self::F16,
        Self::Q8_0,
        Self::Q6K,
        Self::Q5K,
        Self::Q5_1,
        Self::Q5_0,
        Self::Q4K,
        Self::Q4_1,
        Self::Q4_0,
        Self::IQ4NL,
        Self::IQ4XS,
        Self::MXFP4,
        Self::Q3K,
        Self::Q2K,
    ];

    /// Elements of one block; rows are whole blocks.
    #[must_use]
    pub const fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::IQ4NL | Self::MXFP4 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K | Self::IQ4XS => 256,
        }
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::MXFP4 => 17,
            Self::Q4_0 | Self::IQ4NL => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
            Self::IQ4XS => 136,
        }
    }

    /// The name that ggml gives the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
            Self::IQ4NL => "IQ4_NL",
            Self::IQ4XS => "IQ4_XS",
            Self::MXFP4 => "MXFP4",
        }
    }

    /// How a row reads as [`Group`](super::Group)s of 32; `None` for floats and for types with 16-wide scales.
    #[must_use]
    pub const fn group_form(self) -> Option<GroupForm> {
        match self {
            Self::Q4_0 => Some(GroupForm::Nibble { zero: Some(8) }),
            Self::Q4_1 | Self::Q4K => Some(GroupForm::Nibble { zero: None }),
            Self::Q5_0 => Some(GroupForm::Byte { zero: Some(16) }),
            Self::Q5_1 | Self::Q5K => Some(GroupForm::Byte { zero: None }),
            Self::Q8_0 | Self::IQ4NL | Self::IQ4XS | Self::MXFP4 => Some(GroupForm::Byte { zero: Some(128) }),
            Self::F32 | Self::F16 | Self::BF16 | Self::Q2K | Self::Q3K | Self::Q6K => None,
        }
    }

    /// The type's number in a file.
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q2K => 10,
            Self::Q3K => 11,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::IQ4NL => 20,
            Self::IQ4XS => 23,
            Self::MXFP4 => 39,
            Self::BF16 => 30,
        }
    }

    pub(super) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// A type number in words, whether it can be read or not: `IQ2_XXS`, `number 99 (unknown)`.
    pub(super) fn describe(number: u32) -> String {
        let named = |&&(other, _): &&(u32, &str)| other == number;
        match (Self::from_number(number), UNSUPPORTED.iter().find(named)) {
            (Some(kind), _) => kind.name().into(),
            (None, Some((_, name))) => (*name).into(),
            (None, None) => format!("number {number} (unknown)"),
        }
    }

    /// The names of all types, for a message.
    pub(super) fn supported() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

/// Types that files may have and duet cannot compute with, so that the refusal can name them.
const UNSUPPORTED: [(u32, &str); 26] = [
    (4, "Q4_2 (withdrawn)"),
    (5, "Q4_3 (withdrawn)"),
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (31, "Q4_0_4_4 (withdrawn)"),
    (32, "Q4_0_4_8 (withdrawn)"),
    (33, "Q4_0_8_8 (withdrawn)"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (36, "IQ4_NL_4_4 (withdrawn)"),
    (37, "IQ4_NL_4_8 (withdrawn)"),
    (38, "IQ4_NL_8_8 (withdrawn)"),
    (40, "NVFP4"),
    (41, "Q1_0"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_one_type_each() {
        for kind in TensorType::ALL {
            assert_eq!(TensorType::from_number(kind.number()), Some(kind));
            assert!(UNSUPPORTED.iter().all(|&(number, _)| number != kind.number()));
        }
        assert_eq!(TensorType::describe(16), "IQ2_XXS");
        assert_eq!(TensorType::describe(14), "Q6_K");
        assert_eq!(TensorType::describe(99), "number 99 (unknown)");
    }
}
