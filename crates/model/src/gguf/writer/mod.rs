//! Writing a GGUF file: for tools that make models, and for tests.
//!
//! Whatever a writer accepts, [`GgufFile`](super::GgufFile) reads back the same: the same limits are checked when an
//! entry or a tensor is added, so that writing itself can fail only for want of disk.

pub mod quantise;

use super::{
    Array, GgufError, TensorInfo, TensorType, Value,
    parse::{self, ALIGNMENT_DEFAULT, ALIGNMENT_KEY, ARRAY_DEPTH_MAX, NAME_LEN_MAX, STRING_LEN_MAX},
};
use std::{
    borrow::Cow,
    io::{self, Write},
};

/// A file in the making: version 3, entries and tensors in the order in which they are added.
///
/// Tensors may borrow their bytes, so that a tool can copy most of a large file without holding it in memory.
#[derive(Clone, Debug)]
pub struct GgufWriter<'a> {
    entries: Vec<(String, Value)>,
    tensors: Vec<(TensorInfo, Cow<'a, [u8]>)>,
    alignment: u32,
}

impl<'a> GgufWriter<'a> {
    /// An empty file.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: Vec::new(), tensors: Vec::new(), alignment: ALIGNMENT_DEFAULT }
    }

    /// Adds a metadata entry. `general.alignment` moves all tensors, also those added before.
    ///
    /// # Errors
    /// When the key is taken, or key or value are beyond what is read back.
    pub fn metadata(&mut self, key: &str, value: impl Into<Value>) -> Result<&mut Self, GgufError> {
        let value = value.into();
        if self.entries.iter().any(|(other, _)| other == key) {
            return Err(GgufError::DuplicateKey(key.into()));
        }
        check_len("the length of a key", key.len(), NAME_LEN_MAX)?;
        check_value(key, &value)?;
        if key == ALIGNMENT_KEY {
            let wrong = || GgufError::WrongType { key: key.into(), expected: "u32", actual: value.type_name() };
            let Value::U32(alignment) = value else { return Err(wrong()) };
            parse::check_alignment(alignment)?;
            self.alignment = alignment;
        }
        self.entries.push((key.into(), value));
        Ok(self)
    }

    /// Adds a tensor. `shape[0]` is the length of a row; `data` are its blocks as `kind` defines them.
    ///
    /// # Errors
    /// When the name is taken, or shape, type and data do not belong together.
    pub fn tensor(
        &mut self,
        name: &str,
        shape: &[u64],
        kind: TensorType,
        data: impl Into<Cow<'a, [u8]>>,
    ) -> Result<&mut Self, GgufError> {
        let data = data.into();
        if self.tensors.iter().any(|(other, _)| other.name == name) {
            return Err(GgufError::DuplicateTensor(name.into()));
        }
        check_len("the length of a tensor name", name.len(), NAME_LEN_MAX)?;
        let info = TensorInfo::new(name, shape.into(), kind, 0)?;
        if info.bytes() != data.len() {
            return Err(GgufError::TensorBytes { tensor: name.into(), expected: info.bytes(), actual: data.len() });
        }
        self.tensors.push((info, data));
        Ok(self)
    }

    /// The whole file in memory.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.header();
        for (_, data) in &self.tensors {
            bytes.extend_from_slice(data);
            pad(&mut bytes, self.alignment);
        }
        bytes
    }

    /// Writes the file piece by piece.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.header())?;
        for (_, data) in &self.tensors {
            out.write_all(data)?;
            out.write_all(&vec![0; data.len().next_multiple_of(self.alignment as usize) - data.len()])?;
        }
        out.flush()
    }

    /// Everything before the data, padded so that the data can follow.
    fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.entries.len() as u64).to_le_bytes());
        for (key, value) in &self.entries {
            put_string(&mut out, key);
            out.extend(value.number().to_le_bytes());
            put_value(&mut out, value);
        }
        let mut offset = 0u64;
        for (info, data) in &self.tensors {
            put_string(&mut out, &info.name);
            out.extend((info.shape.len() as u32).to_le_bytes());
            info.shape.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(info.kind.number().to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += (data.len() as u64).next_multiple_of(self.alignment.into());
        }
        pad(&mut out, self.alignment);
        out
    }
}

impl Default for GgufWriter<'_> {
    fn default() -> Self {
        Self::new()
    }
}

fn check_value(key: &str, value: &Value) -> Result<(), GgufError> {
    match value {
        Value::String(string) => check_len("the length of a string", string.len(), STRING_LEN_MAX),
        Value::Array(array) => check_array(key, array, 1),
        _ => Ok(()),
    }
}

fn check_array(key: &str, array: &Array, depth: u32) -> Result<(), GgufError> {
    if depth > ARRAY_DEPTH_MAX {
        return Err(GgufError::NestedTooDeep { field: format!("the metadata value `{key}`"), limit: ARRAY_DEPTH_MAX });
    }
    match array {
        Array::String(strings) => {
            strings.iter().try_for_each(|string| check_len("the length of a string", string.len(), STRING_LEN_MAX))
        }
        Array::Array(arrays) => arrays.iter().try_for_each(|array| check_array(key, array, depth + 1)),
        _ => Ok(()),
    }
}

fn check_len(field: &str, len: usize, limit: u64) -> Result<(), GgufError> {
    match len as u64 {
        count if count > limit => Err(GgufError::TooLarge { field: field.into(), count, limit }),
        _ => Ok(()),
    }
}

fn put_string(out: &mut Vec<u8>, string: &str) {
    out.extend((string.len() as u64).to_le_bytes());
    out.extend(string.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(number) => out.extend(number.to_le_bytes()),
        Value::I8(number) => out.extend(number.to_le_bytes()),
        Value::U16(number) => out.extend(number.to_le_bytes()),
        Value::I16(number) => out.extend(number.to_le_bytes()),
        Value::U32(number) => out.extend(number.to_le_bytes()),
        Value::I32(number) => out.extend(number.to_le_bytes()),
        Value::U64(number) => out.extend(number.to_le_bytes()),
        Value::I64(number) => out.extend(number.to_le_bytes()),
        Value::F32(number) => out.extend(number.to_le_bytes()),
        Value::F64(number) => out.extend(number.to_le_bytes()),
        Value::Bool(flag) => out.push((*flag).into()),
        Value::String(string) => put_string(out, string),
        Value::Array(array) => put_array(out, array),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    out.extend(array.number().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(numbers) => out.extend(numbers),
        Array::I8(numbers) => numbers.iter().for_each(|number| out.extend(number.to_le_bytes())),
        Array::U16(numbers) => numbers.iter().for_each(|number| out.extend(number.to_le_bytes())),
        Array::I16(numbers) => numbers.iter().for_each(|number| out.extend(number.to_le_bytes())),
        Array::U32(numbers) => numbers.iter().for_each(|number| out.extend(number.to_le_bytes())),
        Array::I32(numbers) => numbers.iter().for_each(|number| out.extend(number.to_le_bytes())),
        Array::U64(numbers) => numbers.iter().for_each(|number| out.extend(number.to_le_bytes())),
        Array::I64(numbers) => numbers.iter().for_each(|number| out.extend(number.to_le_bytes())),
        Array::F32(numbers) => numbers.iter().for_each(|number| out.extend(number.to_le_bytes())),
        Array::F64(numbers) => numbers.iter().for_each(|number| out.extend(number.to_le_bytes())),
        Array::Bool(flags) => out.extend(flags.iter().map(|&flag| u8::from(flag))),
        Array::String(strings) => strings.iter().for_each(|string| put_string(out, string)),
        Array::Array(arrays) => arrays.iter().for_each(|array| put_array(out, array)),
    }
}

fn pad(out: &mut Vec<u8>, alignment: u32) {
    out.resize(out.len().next_multiple_of(alignment as usize), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_back_is_refused() {
        let mut writer = GgufWriter::new();
        writer.metadata("a", 1u32).unwrap();
        assert!(matches!(writer.metadata("a", 2u32), Err(GgufError::DuplicateKey(_))));
        assert!(matches!(writer.metadata(ALIGNMENT_KEY, 24u32), Err(GgufError::Alignment(24))));
        assert!(matches!(writer.metadata(ALIGNMENT_KEY, "32"), Err(GgufError::WrongType { .. })));
        assert!(matches!(writer.metadata(&"k".repeat(70_000), true), Err(GgufError::TooLarge { .. })));
        let deep = (0..ARRAY_DEPTH_MAX).fold(Array::U8(vec![1]), |array, _| Array::Array(vec![array]));
        assert!(matches!(writer.metadata("deep", deep), Err(GgufError::NestedTooDeep { .. })));
        assert!(matches!(
            writer.tensor("t", &[32], TensorType::Q8_0, vec![0; 33]),
            Err(GgufError::TensorBytes { expected: 34, actual: 33, .. })
        ));
    }

    #[test]
    fn both_ways_of_writing_give_the_same_bytes() {
        let mut writer = GgufWriter::new();
        writer.metadata("general.name", "duet").unwrap();
        writer.tensor("a", &[3], TensorType::F16, vec![1; 6]).unwrap();
        writer.tensor("b", &[2, 2], TensorType::F32, &[2; 16]).unwrap();
        writer.metadata(ALIGNMENT_KEY, 64u32).unwrap();
        let mut written = Vec::new();
        writer.write_to(&mut written).unwrap();
        assert_eq!(written, writer.to_bytes());
        assert_eq!(written.len() % 64, 0);
    }
}
