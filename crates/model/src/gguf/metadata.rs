//! The key-value part of a file, and getters that explain themselves when the answer is no.
//!
//! Entries keep the order of the file; keys are unique.

use super::{Array, GgufError, Texts, Value};
use std::borrow::Cow;

/// The metadata of a file.
///
/// `u32("llama.block_count")` fails when the key is absent, `opt_u32` answers `None` then;
/// both fail when the key is there with another type.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    /// Indices of `entries` in the order of their keys.
    sorted: Vec<usize>,
}

/// The required and the optional getter of one type.
macro_rules! getters {
    ($($(#[$doc:meta])* $required:ident, $optional:ident -> $type:ty = |$key:ident, $value:ident| $read:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// [`GgufError::MissingKey`], and [`GgufError::WrongType`] or [`GgufError::OutOfRange`].
            pub fn $required(&self, $key: &str) -> Result<$type, GgufError> {
                self.$optional($key)?.ok_or_else(|| GgufError::MissingKey($key.into()))
            }

            $(#[$doc])*
            /// `None` when the key is absent.
            ///
            /// # Errors
            /// [`GgufError::WrongType`] or [`GgufError::OutOfRange`].
            pub fn $optional(&self, $key: &str) -> Result<Option<$type>, GgufError> {
                self.get($key).map(|$value| $read).transpose()
            }
        )*
    };
}

impl Metadata {
    /// Fails when two entries have one key.
    pub(super) fn new(entries: Vec<(String, Value)>) -> Result<Self, GgufError> {
        let mut sorted: Vec<usize> = (0..entries.len()).collect();
        sorted.sort_unstable_by_key(|&index| entries[index].0.as_str());
        match sorted.windows(2).find(|pair| entries[pair[0]].0 == entries[pair[1]].0) {
            Some(pair) => Err(GgufError::DuplicateKey(entries[pair[0]].0.clone())),
            None => Ok(Self { entries, sorted }),
        }
    }

    /// Without the keys that begin so.
    pub(super) fn without(self, prefix: &str) -> Result<Self, GgufError> {
        Self::new(self.entries.into_iter().filter(|(key, _)| !key.starts_with(prefix)).collect())
    }

    /// The value of `key`. O(log keys).
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        let place = self.sorted.binary_search_by_key(&key, |&index| self.entries[index].0.as_str()).ok()?;
        Some(&self.entries[self.sorted[place]].1)
    }

    /// All entries in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    getters! {
        /// An unsigned number, stored as any integer type that fits.
        u32, opt_u32 -> u32 = |key, value| match value.integer() {
            Some(integer) => u32::try_from(integer).map_err(|_| out_of_range(key, integer, "u32")),
            None => Err(wrong_type(key, "u32", value)),
        };
        /// A number with a fraction, stored as `f32` or (rounded to the nearest) `f64`.
        f32, opt_f32 -> f32 = |key, value| match value {
            Value::F32(number) => Ok(*number),
            Value::F64(number) => Ok(*number as f32),
            _ => Err(wrong_type(key, "f32", value)),
        };
        /// A truth value.
        bool, opt_bool -> bool = |key, value| match value {
            Value::Bool(flag) => Ok(*flag),
            _ => Err(wrong_type(key, "bool", value)),
        };
        /// A string.
        str, opt_str -> &str = |key, value| match value {
            Value::String(string) => Ok(string.as_str()),
            _ => Err(wrong_type(key, "string", value)),
        };
        /// An array of strings.
        strings, opt_strings -> &Texts = |key, value| match value {
            Value::Array(Array::String(strings)) => Ok(strings),
            _ => Err(wrong_type(key, "an array of string", value)),
        };
        /// An array of `f32`.
        f32s, opt_f32s -> &[f32] = |key, value| match value {
            Value::Array(Array::F32(numbers)) => Ok(numbers.as_slice()),
            _ => Err(wrong_type(key, "an array of f32", value)),
        };
        /// An array of truth values.
        bools, opt_bools -> &[bool] = |key, value| match value {
            Value::Array(Array::Bool(flags)) => Ok(flags.as_slice()),
            _ => Err(wrong_type(key, "an array of bool", value)),
        };
        /// An array of signed numbers: borrowed when stored as `i32`, converted from any other integers that fit.
        i32s, opt_i32s -> Cow<'_, [i32]> = |key, value| match value {
            Value::Array(Array::I32(numbers)) => Ok(Cow::Borrowed(numbers.as_slice())),
            _ => converted(key, "i32", "an array of i32", value).map(Cow::Owned),
        };
        /// An array of unsigned numbers: borrowed when stored as `u32`, converted from any other integers that fit.
        u32s, opt_u32s -> Cow<'_, [u32]> = |key, value| match value {
            Value::Array(Array::U32(numbers)) => Ok(Cow::Borrowed(numbers.as_slice())),
            _ => converted(key, "u32", "an array of u32", value).map(Cow::Owned),
        };
    }
}

fn converted<T: TryFrom<i128>>(
    key: &str,
    element: &'static str,
    expected: &'static str,
    value: &Value,
) -> Result<Vec<T>, GgufError> {
    let Value::Array(array) = value else { return Err(wrong_type(key, expected, value)) };
    array
        .integers()
        .ok_or_else(|| wrong_type(key, expected, value))?
        .map(|integer| T::try_from(integer).map_err(|_| out_of_range(key, integer, element)))
        .collect()
}

fn wrong_type(key: &str, expected: &'static str, value: &Value) -> GgufError {
    GgufError::WrongType { key: key.into(), expected, actual: value.type_name() }
}

fn out_of_range(key: &str, value: i128, expected: &'static str) -> GgufError {
    GgufError::OutOfRange { key: key.into(), value, expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Metadata {
        let entries = [
            ("z", Value::U64(7)),
            ("big", Value::U64(u64::MAX)),
            ("negative", Value::I8(-1)),
            ("pi", Value::F64(3.25)),
            ("on", Value::Bool(true)),
            ("name", Value::String("duet".into())),
            ("words", Value::Array(Array::String(["a", "b"].into_iter().collect()))),
            ("types", Value::Array(Array::I32(vec![1, -2]))),
            ("bytes", Value::Array(Array::U8(vec![1, 255]))),
        ];
        Metadata::new(entries.map(|(key, value)| (key.to_owned(), value)).into()).unwrap()
    }

    #[test]
    fn any_integer_that_fits_is_a_u32() {
        assert_eq!(metadata().u32("z").unwrap(), 7);
        assert_eq!(
            metadata().u32("big").unwrap_err().to_string(),
            "the metadata key `big` holds 18446744073709551615, which does not fit u32"
        );
        assert!(matches!(metadata().u32("negative"), Err(GgufError::OutOfRange { value: -1, .. })));
    }

    #[test]
    fn an_absent_key_is_none_or_an_error_and_a_wrong_type_is_always_an_error() {
        assert_eq!(metadata().opt_u32("absent").unwrap(), None);
        assert_eq!(metadata().u32("absent").unwrap_err().to_string(), "the metadata key `absent` is missing");
        assert_eq!(
            metadata().opt_u32("words").unwrap_err().to_string(),
            "the metadata key `words` is an array of string, expected u32"
        );
        assert_eq!(metadata().str("on").unwrap_err().to_string(), "the metadata key `on` is bool, expected string");
    }

    #[test]
    fn scalars_and_arrays_are_read() {
        let metadata = metadata();
        assert_eq!(metadata.f32("pi").unwrap(), 3.25);
        assert!(metadata.bool("on").unwrap());
        assert_eq!(metadata.str("name").unwrap(), "duet");
        assert!(metadata.strings("words").unwrap().iter().eq(["a", "b"]));
        assert!(matches!(metadata.i32s("types").unwrap(), Cow::Borrowed(&[1, -2])));
        assert_eq!(*metadata.u32s("bytes").unwrap(), [1, 255]);
        assert!(matches!(metadata.u32s("types"), Err(GgufError::OutOfRange { value: -2, .. })));
        assert!(metadata.f32s("types").is_err());
    }

    #[test]
    fn order_is_the_files_and_keys_are_unique() {
        assert_eq!(metadata().iter().next(), Some(("z", &Value::U64(7))));
        let twice =
            vec![("a".to_owned(), Value::U8(1)), ("b".to_owned(), Value::U8(1)), ("a".to_owned(), Value::U8(2))];
        assert!(matches!(Metadata::new(twice), Err(GgufError::DuplicateKey(key)) if key == "a"));
    }
}
