//! Reading the header: bytes in file order, each step checked against what is left.
//!
//! A cursor never moves past the end and never reserves memory; a count that it returns is at most the number of
//! elements that the rest of the file can hold.

use super::GgufError;
use std::fmt;

/// A position in a file's bytes.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// What is being read, for the message when it cannot be. Formatted only then.
#[derive(Clone, Copy)]
pub(super) enum Field<'a> {
    /// A part of the fixed header.
    Header(&'static str),
    /// The key of the metadata entry with this index.
    Key(u64),
    /// The value of this key.
    Value(&'a str),
    /// The name of the tensor with this index.
    TensorName(u64),
    /// A part of this tensor's description.
    Tensor(&'a str, &'static str),
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Takes the next `len` bytes.
    pub(super) fn take(&mut self, len: u64, field: Field<'_>) -> Result<&'a [u8], GgufError> {
        let rest = &self.bytes[self.at..];
        match usize::try_from(len).ok().and_then(|len| rest.get(..len)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => Err(GgufError::Truncated {
                field: field.to_string(),
                offset: self.at as u64,
                needed: len,
                available: rest.len() as u64,
            }),
        }
    }

    /// Takes exactly `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, field: Field<'_>) -> Result<[u8; N], GgufError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, field)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, field: Field<'_>) -> Result<u32, GgufError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: Field<'_>) -> Result<u64, GgufError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// Reads a count of things that take at least `bytes_min` each, and refuses it when the file cannot hold them.
    pub(super) fn count(&mut self, bytes_min: u64, limit: u64, field: Field<'_>) -> Result<usize, GgufError> {
        let count = self.u64(field)?;
        if count > limit {
            return Err(GgufError::TooLarge { field: field.to_string(), count, limit });
        }
        let available = (self.bytes.len() - self.at) as u64;
        match usize::try_from(count) {
            Ok(fits) if count <= available / bytes_min => Ok(fits),
            _ => Err(GgufError::Truncated {
                field: field.to_string(),
                offset: self.at as u64,
                needed: count.saturating_mul(bytes_min),
                available,
            }),
        }
    }

    /// Reads a string of at most `limit` bytes.
    pub(super) fn string(&mut self, limit: u64, field: Field<'_>) -> Result<&'a str, GgufError> {
        let len = self.u64(field)?;
        if len > limit {
            // A length beyond the file is far more often a cut or damaged file than a string that long.
            let available = (self.bytes.len() - self.at) as u64;
            return Err(if len > available {
                GgufError::Truncated { field: field.to_string(), offset: self.at as u64, needed: len, available }
            } else {
                GgufError::TooLarge { field: format!("the length of {field}"), count: len, limit }
            });
        }
        let bytes = self.take(len, field)?;
        std::str::from_utf8(bytes).map_err(|_| GgufError::NotUtf8 { field: field.to_string() })
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(part) => write!(f, "the {part}"),
            Self::Key(index) => write!(f, "the key of metadata entry {index}"),
            Self::Value(key) => write!(f, "the metadata value `{key}`"),
            Self::TensorName(index) => write!(f, "the name of tensor {index}"),
            Self::Tensor(name, part) => write!(f, "the {part} of tensor `{name}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: Field<'_> = Field::Header("test");

    #[test]
    fn a_failed_read_does_not_move() {
        let mut cursor = Cursor::new(&[1, 2, 3]);
        assert!(cursor.u32(FIELD).is_err());
        assert_eq!(cursor.position(), 0);
        assert_eq!(cursor.array::<3>(FIELD).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn a_count_is_bounded_by_what_is_left() {
        let mut bytes = 3u64.to_le_bytes().to_vec();
        bytes.extend([0; 24]);
        assert_eq!(Cursor::new(&bytes).count(8, u64::MAX, FIELD).unwrap(), 3);
        assert!(Cursor::new(&bytes).count(9, u64::MAX, FIELD).is_err());
        assert!(matches!(Cursor::new(&bytes).count(8, 2, FIELD), Err(GgufError::TooLarge { count: 3, .. })));
        bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(matches!(Cursor::new(&bytes).count(8, u64::MAX, FIELD), Err(GgufError::Truncated { .. })));
    }
}
