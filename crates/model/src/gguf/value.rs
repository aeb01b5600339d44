//! Metadata values: what the file can store under a key.

use super::Texts;

/// One metadata value, in the type that the file gives it.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are the types they hold")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// An array value. All elements have one type; that of an empty array is kept too.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are the types they hold")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(Texts),
    /// Arrays of arrays, whose element types may differ.
    Array(Vec<Array>),
}

impl Value {
    /// The type in words: `u32`, `an array of string`.
    #[must_use]
    pub fn type_name(&self) -> String {
        match self {
            Self::Array(array) => format!("an array of {}", array.element_name()),
            scalar => NAMES[scalar.number() as usize].into(),
        }
    }

    /// The value of any integer type.
    pub(crate) fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(value) => value.into(),
            Self::I8(value) => value.into(),
            Self::U16(value) => value.into(),
            Self::I16(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::I32(value) => value.into(),
            Self::U64(value) => value.into(),
            Self::I64(value) => value.into(),
            _ => return None,
        })
    }

    /// The number that the file format gives this type.
    pub(super) fn number(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => 8,
            Self::Array(_) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }
}

impl Array {
    /// How many elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U8(values) => values.len(),
            Self::I8(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::I16(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::String(values) => values.len(),
            Self::Array(values) => values.len(),
        }
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the elements in words: `i32`.
    #[must_use]
    pub fn element_name(&self) -> &'static str {
        NAMES[self.number() as usize]
    }

    /// The elements of any integer type.
    pub(super) fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        fn widen<T: Copy + Into<i128>>(values: &[T]) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
            Some(Box::new(values.iter().map(|&value| value.into())))
        }
        match self {
            Self::U8(values) => widen(values),
            Self::I8(values) => widen(values),
            Self::U16(values) => widen(values),
            Self::I16(values) => widen(values),
            Self::U32(values) => widen(values),
            Self::I32(values) => widen(values),
            Self::U64(values) => widen(values),
            Self::I64(values) => widen(values),
            _ => None,
        }
    }

    /// The number that the file format gives the type of the elements.
    pub(super) fn number(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => 8,
            Self::Array(_) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),*) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}
from!(u32 => U32, i32 => I32, u64 => U64, f32 => F32, bool => Bool, &str => String, String => String, Array => Array);

/// The names of the types, by their number in the file.
const NAMES: [&str; 13] =
    ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"];
