//! The header of a file: version, metadata, tensor descriptions.
//!
//! Everything read here is checked here; see the limits at the end for what counts as too large.

use super::{
    Array, GgufError, Metadata, TensorInfo, TensorType, Texts, Value,
    cursor::{Cursor, Field},
};

/// What stands before the tensors' bytes.
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) metadata: Metadata,
    /// In the order of the file; names are unique.
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) alignment: u32,
    /// Where the header ends. The data start at the next multiple of the alignment.
    pub(super) len: usize,
}

/// Reads the header of `file`. Tensors' places are not compared with the file's size yet.
pub(super) fn header(file: &[u8]) -> Result<Header, GgufError> {
    let version = version(file)?;
    let cursor = &mut Cursor::new(file);
    cursor.take(8, Field::Header("version"))?;
    // Read before the entries, as the file has it; both counts are checked against the file before they are used.
    let tensor_count = cursor.count(TENSOR_BYTES_MIN, TENSORS_MAX, Field::Header("tensor count"))?;
    let entry_count = cursor.count(ENTRY_BYTES_MIN, ENTRIES_MAX, Field::Header("metadata count"))?;

    let mut entries = Vec::with_capacity(entry_count);
    for index in 0..entry_count as u64 {
        let key = cursor.string(NAME_LEN_MAX, Field::Key(index))?;
        let number = cursor.u32(Field::Value(key))?;
        entries.push((key.to_owned(), value(cursor, number, key)?));
    }
    let metadata = Metadata::new(entries)?;
    let alignment = metadata.opt_u32(ALIGNMENT_KEY)?.unwrap_or(ALIGNMENT_DEFAULT);
    check_alignment(alignment)?;

    let mut tensors = Vec::with_capacity(tensor_count);
    for index in 0..tensor_count as u64 {
        tensors.push(tensor(cursor, index)?);
    }
    Ok(Header { version, metadata, tensors, alignment, len: cursor.position() })
}

/// The tensors that the beginning of a file describes.
///
/// # Errors
/// If all of their descriptions are not in it, or it is not of a GGUF file.
pub fn described(beginning: &[u8]) -> Result<Vec<TensorInfo>, GgufError> {
    header(beginning).map(|header| header.tensors)
}

/// Whether `alignment` can be a file's.
pub(super) fn check_alignment(alignment: u32) -> Result<(), GgufError> {
    let allowed = alignment.is_power_of_two() && (8..=65536).contains(&alignment);
    if allowed { Ok(()) } else { Err(GgufError::Alignment(alignment)) }
}

/// Checks the magic and the version, which say whether the rest can be understood at all.
fn version(file: &[u8]) -> Result<u32, GgufError> {
    let magic = &file[..file.len().min(4)];
    if magic == b"FUGG" {
        return Err(GgufError::BigEndian);
    }
    if magic != b"GGUF" {
        return Err(GgufError::NotGguf { magic: magic.to_vec() });
    }
    let mut cursor = Cursor::new(file);
    cursor.take(4, Field::Header("magic"))?;
    match cursor.u32(Field::Header("version"))? {
        version @ (2 | 3) => Ok(version),
        // Most big-endian files keep the magic in reading order; a small version then appears in the upper half.
        swapped if swapped != 0 && swapped & 0xffff == 0 => Err(GgufError::BigEndian),
        other => Err(GgufError::UnsupportedVersion(other)),
    }
}

fn value(cursor: &mut Cursor<'_>, number: u32, key: &str) -> Result<Value, GgufError> {
    let field = Field::Value(key);
    Ok(match number {
        0 => Value::U8(u8::from_le_bytes(cursor.array(field)?)),
        1 => Value::I8(i8::from_le_bytes(cursor.array(field)?)),
        2 => Value::U16(u16::from_le_bytes(cursor.array(field)?)),
        3 => Value::I16(i16::from_le_bytes(cursor.array(field)?)),
        4 => Value::U32(u32::from_le_bytes(cursor.array(field)?)),
        5 => Value::I32(i32::from_le_bytes(cursor.array(field)?)),
        6 => Value::F32(f32::from_le_bytes(cursor.array(field)?)),
        7 => Value::Bool(boolean(cursor.array(field)?, field)?),
        8 => Value::String(cursor.string(STRING_LEN_MAX, field)?.to_owned()),
        9 => Value::Array(array(cursor, key, 1)?),
        10 => Value::U64(u64::from_le_bytes(cursor.array(field)?)),
        11 => Value::I64(i64::from_le_bytes(cursor.array(field)?)),
        12 => Value::F64(f64::from_le_bytes(cursor.array(field)?)),
        _ => return Err(GgufError::UnknownValueType { field: field.to_string(), number }),
    })
}

fn array(cursor: &mut Cursor<'_>, key: &str, depth: u32) -> Result<Array, GgufError> {
    let field = Field::Value(key);
    if depth > ARRAY_DEPTH_MAX {
        return Err(GgufError::NestedTooDeep { field: field.to_string(), limit: ARRAY_DEPTH_MAX });
    }
    let number = cursor.u32(field)?;
    Ok(match number {
        0 => Array::U8(numbers(cursor, field, u8::from_le_bytes)?),
        1 => Array::I8(numbers(cursor, field, i8::from_le_bytes)?),
        2 => Array::U16(numbers(cursor, field, u16::from_le_bytes)?),
        3 => Array::I16(numbers(cursor, field, i16::from_le_bytes)?),
        4 => Array::U32(numbers(cursor, field, u32::from_le_bytes)?),
        5 => Array::I32(numbers(cursor, field, i32::from_le_bytes)?),
        6 => Array::F32(numbers(cursor, field, f32::from_le_bytes)?),
        7 => Array::Bool(elements(cursor, field, 1, |cursor| boolean(cursor.array(field)?, field))?),
        8 => Array::String(texts(cursor, field)?),
        // A nested array is at least its type and its count.
        9 => Array::Array(elements(cursor, field, 12, |cursor| array(cursor, key, depth + 1))?),
        10 => Array::U64(numbers(cursor, field, u64::from_le_bytes)?),
        11 => Array::I64(numbers(cursor, field, i64::from_le_bytes)?),
        12 => Array::F64(numbers(cursor, field, f64::from_le_bytes)?),
        _ => return Err(GgufError::UnknownValueType { field: field.to_string(), number }),
    })
}

/// An array of numbers of `N` bytes.
fn numbers<T, const N: usize>(
    cursor: &mut Cursor<'_>,
    field: Field<'_>,
    decode: fn([u8; N]) -> T,
) -> Result<Vec<T>, GgufError> {
    let count = cursor.count(N as u64, u64::MAX, field)?;
    let bytes = cursor.take((count * N) as u64, field)?;
    Ok(bytes.as_chunks().0.iter().map(|&bytes| decode(bytes)).collect())
}

/// An array whose elements take `bytes_min` or more each.
fn elements<T>(
    cursor: &mut Cursor<'_>,
    field: Field<'_>,
    bytes_min: u64,
    mut element: impl FnMut(&mut Cursor<'_>) -> Result<T, GgufError>,
) -> Result<Vec<T>, GgufError> {
    let count = cursor.count(bytes_min, u64::MAX, field)?;
    let mut elements = Vec::with_capacity(count.min(RESERVE_MAX));
    for _ in 0..count {
        elements.push(element(cursor)?);
    }
    Ok(elements)
}

/// An array of strings, each of which has its length before it.
fn texts(cursor: &mut Cursor<'_>, field: Field<'_>) -> Result<Texts, GgufError> {
    let count = cursor.count(8, u64::MAX, field)?;
    let mut texts = Texts::default();
    for _ in 0..count {
        texts.push(cursor.string(STRING_LEN_MAX, field)?);
    }
    Ok(texts)
}

fn boolean([byte]: [u8; 1], field: Field<'_>) -> Result<bool, GgufError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(GgufError::NotBoolean { field: field.to_string(), byte }),
    }
}

fn tensor(cursor: &mut Cursor<'_>, index: u64) -> Result<TensorInfo, GgufError> {
    let name = cursor.string(NAME_LEN_MAX, Field::TensorName(index))?;
    let count = cursor.u32(Field::Tensor(name, "dimension count"))?;
    if !(1..=4).contains(&count) {
        return Err(GgufError::Dimensions { tensor: name.into(), count });
    }
    let shape = (0..count).map(|_| cursor.u64(Field::Tensor(name, "shape"))).collect::<Result<_, _>>()?;
    let number = cursor.u32(Field::Tensor(name, "type"))?;
    let offset = cursor.u64(Field::Tensor(name, "offset"))?;
    let Some(kind) = TensorType::from_number(number) else {
        return Err(GgufError::UnsupportedType { tensor: name.into(), number });
    };
    TensorInfo::new(name, shape, kind, offset)
}

/// The key that moves tensors to multiples of another number than [`ALIGNMENT_DEFAULT`].
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";
/// The alignment of a file that does not say.
pub(super) const ALIGNMENT_DEFAULT: u32 = 32;
/// No array that means anything to a model is nested; a few levels are read so that `inspect` can show them.
/// Each level is a stack frame.
pub(super) const ARRAY_DEPTH_MAX: u32 = 4;
/// The specification's bound on a key; tensor names are far shorter.
pub(super) const NAME_LEN_MAX: u64 = 65_535;

/// The longest strings are chat templates and precompiled character maps, below 1 MiB.
pub(super) const STRING_LEN_MAX: u64 = 16 << 20;
/// Real files have fewer than 200 entries. More would cost a string each before anything is known to be wrong.
const ENTRIES_MAX: u64 = 65_536;
/// The largest models have a few thousand tensors.
const TENSORS_MAX: u64 = 262_144;
/// Reserved at once for an array whose elements allocate; more only grows as elements are really read.
const RESERVE_MAX: usize = 1 << 18;
/// The length of a key, the type of a value, one byte of value.
const ENTRY_BYTES_MIN: u64 = 8 + 4 + 1;
/// The length of a name, a dimension count, one dimension, a type, an offset.
const TENSOR_BYTES_MIN: u64 = 8 + 4 + 8 + 4 + 8;
