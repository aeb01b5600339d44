//! Packed weights in a file, from which the next start maps them, or reads them for a device, instead of packing them again.
//!
//! ```text
//! 8 bytes   "duetpack"
//! u32       version of the form
//! u32       CRC-32 of the table
//! u64       bytes of the table
//! 32 bytes  digest of the file that the weights are of
//! table     JSON: each matrix by its name, with its sections: form, outputs, where quants and scales begin, and their CRC-32
//! panels    each section's quants and scales, at multiples of 64 bytes, as they were done
//! ```
//!
//! Numbers are little-endian, and panels are as the kernels read them on every machine that duet runs on (`kernels::packed`).
//! Whoever changes a panel's layout changes [`VERSION`].
//!
//! **Invariants:** every byte that is used was checked when the file was opened, or written by the same process before; a file that is not just what is expected is
//! not used at all, and never an error. Checksums are for damage, not for malice: whoever can write to the folder can do
//! worse.

mod own_memory;
mod read;
mod stream;

pub(crate) use read::{Check, PackedFile};
pub use read::{PackedFileUse, Unusable, WeightsIn};
pub(crate) use stream::StreamWriter;

use duet_kernels::packed::Form;
use serde::{Deserialize, Serialize};

const MAGIC: [u8; 8] = *b"duetpack";

/// Of the file's form and of the panels'.
const VERSION: u32 = 1;

/// Bytes before the table.
const HEADER: usize = 56;

/// Where panels begin: a cache line, and one register.
const ALIGNMENT: usize = 64;

/// What the weights in a file are of.
pub(crate) type Digest = [u8; 32];

#[derive(Debug, Serialize, Deserialize)]
struct Table {
    matrices: Vec<Entry>,
}

/// A matrix.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    name: String,
    inputs: usize,
    sections: Vec<SectionEntry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SectionEntry {
    /// [`Form`], by its name.
    form: String,
    outputs: usize,
    /// Where they begin in the file.
    quants: usize,
    scales: usize,
    /// Of quants and scales, one behind the other.
    crc: u32,
}

fn name_of(form: Form) -> String {
    format!("{form:?}")
}

#[cfg(test)]
mod tests;
