//! What a file's weights add up to, by type: the data of `duet inspect`.

use super::{GgufFile, TensorType};
use duet_types::Bytes;
use std::cmp::Reverse;

/// All tensors of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How many tensors there are.
    pub tensors: usize,
    /// Their elements: the parameters of the model.
    pub elements: u64,
    /// Their bytes, without padding and header.
    pub bytes: Bytes,
    /// The same by type, most bytes first. Types that the file does not use are left out.
    pub kinds: Vec<KindSummary>,
}

/// The tensors of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindSummary {
    /// The type.
    pub kind: TensorType,
    /// How many tensors have it.
    pub tensors: usize,
    /// Their elements.
    pub elements: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// Adds up the tensors of `file`. Reads no weights.
#[must_use]
pub fn summary(file: &GgufFile) -> Summary {
    let mut kinds: Vec<KindSummary> = TensorType::ALL
        .into_iter()
        .map(|kind| {
            let of_kind = || file.tensors().iter().filter(move |tensor| tensor.kind == kind);
            KindSummary {
                kind,
                tensors: of_kind().count(),
                elements: of_kind().map(|tensor| tensor.elements() as u64).sum(),
                bytes: Bytes(of_kind().map(|tensor| tensor.bytes() as u64).sum()),
            }
        })
        .filter(|kind| kind.tensors > 0)
        .collect();
    kinds.sort_by_key(|kind| Reverse(kind.bytes));
    Summary {
        tensors: kinds.iter().map(|kind| kind.tensors).sum(),
        elements: kinds.iter().map(|kind| kind.elements).sum(),
        bytes: Bytes(kinds.iter().map(|kind| kind.bytes.0).sum()),
        kinds,
    }
}
