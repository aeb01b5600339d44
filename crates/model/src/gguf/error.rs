//! Why a GGUF file was refused, in words that help the person who has the file.

use super::TensorType;
use std::{io, path::PathBuf};

/// What is wrong with a GGUF file, or with a question asked of it.
///
/// [`GgufFile::open`](super::GgufFile::open) wraps all of these in [`GgufError::File`], which adds the path.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The error of one file: names the path in front of the problem.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file that was opened.
        path: PathBuf,
        /// What is wrong with it. Part of the message, therefore not also its source.
        problem: Box<GgufError>,
    },
    /// The operating system refused.
    #[error("cannot {action}: {error}")]
    Io {
        /// What was tried: `open the file`.
        action: &'static str,
        /// Its answer. Part of the message, therefore not also its source.
        error: io::Error,
    },
    /// A directory, a pipe or a device: only files can be mapped.
    #[error("not a regular file")]
    NotRegularFile,
    /// The first four bytes are not `GGUF`.
    #[error("not a GGUF file: it begins with {}, a GGUF file begins with \"GGUF\"", shown(.magic))]
    NotGguf {
        /// The bytes found; fewer than four when the file is shorter.
        magic: Vec<u8>,
    },
    /// The file was made for a big-endian machine.
    #[error("a big-endian GGUF file, which duet does not read; convert it to little-endian")]
    BigEndian,
    /// A version whose layout differs from the one known here.
    #[error(
        "GGUF version {0} is not supported, duet reads versions 2 and 3; convert the model again with a current tool"
    )]
    UnsupportedVersion(u32),
    /// The file ends before something that it says it holds.
    #[error(
        "truncated: {field} needs {needed} bytes at offset {offset}, where the file has {available} left; is the download complete?"
    )]
    Truncated {
        /// The field or tensor that does not fit.
        field: String,
        /// Where it starts.
        offset: u64,
        /// The bytes it needs at least.
        needed: u64,
        /// The bytes that are there.
        available: u64,
    },
    /// A count or length beyond what any model has.
    #[error("{field} is {count}, more than the {limit} that duet allows")]
    TooLarge {
        /// What was counted.
        field: String,
        /// The number in the file.
        count: u64,
        /// The bound.
        limit: u64,
    },
    /// A string with bytes that are not UTF-8.
    #[error("{field} is not valid UTF-8")]
    NotUtf8 {
        /// The string.
        field: String,
    },
    /// A value type number that GGUF does not define.
    #[error("{field} has value type {number}, which GGUF does not define")]
    UnknownValueType {
        /// The metadata entry.
        field: String,
        /// The number found.
        number: u32,
    },
    /// A boolean that is neither 0 nor 1.
    #[error("{field} is a boolean with the byte {byte}, only 0 and 1 are allowed")]
    NotBoolean {
        /// The metadata entry.
        field: String,
        /// The byte found.
        byte: u8,
    },
    /// Arrays of arrays of arrays: nothing real needs them, and each level costs stack.
    #[error("{field} nests arrays more than {limit} deep")]
    NestedTooDeep {
        /// The metadata entry.
        field: String,
        /// The bound.
        limit: u32,
    },
    /// A part of a split model that is not the one that is wanted, or whose others are missing.
    #[error("a part of a split model: {0}")]
    Split(String),
    /// Two metadata entries have one key.
    #[error("the metadata key `{0}` appears twice")]
    DuplicateKey(String),
    /// Two tensors have one name.
    #[error("the tensor `{0}` appears twice")]
    DuplicateTensor(String),
    /// `general.alignment` cannot be used.
    #[error("general.alignment is {0}, it must be a power of two from 8 to 65536")]
    Alignment(u32),
    /// A tensor with no dimensions, or more than four.
    #[error("tensor `{tensor}` has {count} dimensions, 1 to 4 are allowed")]
    Dimensions {
        /// Its name.
        tensor: String,
        /// The number found.
        count: u32,
    },
    /// A shape with a zero in it, or with more elements than can be addressed.
    #[error("tensor `{tensor}` has the impossible shape {shape:?}")]
    Shape {
        /// Its name.
        tensor: String,
        /// The shape found.
        shape: Vec<u64>,
    },
    /// A row that does not end at the end of a block.
    #[error("tensor `{tensor}` has rows of {row_len} elements, {} needs a multiple of {}", kind.name(), kind.block_elements())]
    PartialBlock {
        /// Its name.
        tensor: String,
        /// Elements in a row.
        row_len: u64,
        /// Its type.
        kind: TensorType,
    },
    /// A tensor type that duet cannot compute with.
    #[error(
        "tensor `{tensor}` has type {}, which duet does not support; use a file quantised as one of {}",
        TensorType::describe(*.number),
        TensorType::supported()
    )]
    UnsupportedType {
        /// Its name.
        tensor: String,
        /// The number of its type in the file.
        number: u32,
    },
    /// A tensor that does not start at a multiple of the alignment.
    #[error("tensor `{tensor}` starts at data offset {offset}, which is not a multiple of the alignment {alignment}")]
    Misaligned {
        /// Its name.
        tensor: String,
        /// Where it starts within the data.
        offset: u64,
        /// The file's alignment.
        alignment: u32,
    },
    /// Two tensors share bytes.
    #[error("the tensors `{first}` and `{second}` overlap in the file")]
    Overlap {
        /// The one that starts first.
        first: String,
        /// The one that starts inside it.
        second: String,
    },
    /// A metadata key that is needed is absent.
    #[error("the metadata key `{0}` is missing")]
    MissingKey(String),
    /// A metadata value of another type than the one asked for.
    #[error("the metadata key `{key}` is {actual}, expected {expected}")]
    WrongType {
        /// The key asked for.
        key: String,
        /// What the caller needs.
        expected: &'static str,
        /// What the file has.
        actual: String,
    },
    /// An integer that the wanted type cannot hold.
    #[error("the metadata key `{key}` holds {value}, which does not fit {expected}")]
    OutOfRange {
        /// The key asked for.
        key: String,
        /// The number in the file.
        value: i128,
        /// What the caller needs.
        expected: &'static str,
    },
    /// The writer was given bytes that do not make up the tensor.
    #[error("tensor `{tensor}` needs {expected} bytes for its shape and type, {actual} were given")]
    TensorBytes {
        /// Its name.
        tensor: String,
        /// What shape and type need.
        expected: usize,
        /// What was given.
        actual: usize,
    },
}

/// The first bytes of a file as a reader can recognise them: `"PK\x03\x04"`.
fn shown(magic: &[u8]) -> String {
    if magic.is_empty() { "nothing (it is empty)".into() } else { format!("\"{}\"", magic.escape_ascii()) }
}
