//! GGUF: the file that holds a model's settings, its tokenizer and its weights.
//!
//! Once [`GgufFile::open`] has succeeded, everything it promises stays true and nothing is checked again:
//! every key and tensor name is unique, every string is UTF-8, every tensor is made of whole blocks of a type that
//! duet can read, and lies inside the file without overlapping another. So no content of a file can cause a panic,
//! and memory is bounded by a small multiple of the file's size: a count is compared with the bytes that are left
//! before anything is reserved for it.
//!
//! Weight values are data: NaN and infinities are read as they are. What the keys and tensor names *mean* is not
//! known here; architectures and tokenizers decide that.
//!
//! Read: versions 2 and 3, little-endian. The layout follows the public GGUF specification and block definitions of
//! ggml; `tests/gguf_reference.rs` compares every tensor type with the reference Python package.

mod blocks;
mod cursor;
mod error;
mod file;
mod group;
mod kind;
mod metadata;
mod numbered;
mod parse;
mod rows;
mod split;
mod summary;
mod superblocks;
mod tensor;
mod texts;
mod value;
pub mod writer;

pub use error::GgufError;
pub use file::GgufFile;
pub(crate) use file::map as map_file;
pub use group::{Group, GroupForm};
pub use kind::TensorType;
pub use metadata::Metadata;
pub use parse::described as tensors_described;
pub use split::names as names_of_parts;
pub use summary::{KindSummary, Summary, summary};
pub use tensor::{Tensor, TensorInfo};
pub use texts::Texts;
pub use value::{Array, Value};
