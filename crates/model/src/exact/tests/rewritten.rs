//! Copies of a file with something changed.

use crate::gguf::writer::GgufWriter;
use crate::gguf::{GgufFile, TensorType, Value};
use std::path::Path;
use tempfile::NamedTempFile;

/// A tensor's type and blocks.
pub(super) type Blocks = (TensorType, Vec<u8>);

/// A writer that has a file's metadata, with some entries changed or added.
pub(super) fn metadata(from: &GgufFile, entries: &[(&str, Value)]) -> GgufWriter<'static> {
    let mut writer = GgufWriter::new();
    for (key, value) in from.metadata().iter().filter(|(key, _)| entries.iter().all(|(changed, _)| changed != key)) {
        writer.metadata(key, value.clone()).unwrap();
    }
    for (key, value) in entries {
        writer.metadata(key, value.clone()).unwrap();
    }
    writer
}

/// A copy whose tensors are written anew: by their names, whether they are matrices, and their weights.
pub(super) fn rewritten(path: &Path, write: impl Fn(&str, &[u64], Vec<f32>) -> Blocks) -> NamedTempFile {
    let file = GgufFile::open(path).unwrap();
    let mut writer = metadata(&file, &[]);
    for info in file.tensors() {
        let tensor = file.tensor(&info.name).unwrap();
        let mut weights = vec![0.0; info.elements()];
        let rows = weights.chunks_exact_mut(info.row_len()).enumerate();
        rows.for_each(|(row, weights)| tensor.dequantize_row(row, weights));
        let (kind, blocks) = write(&info.name, &info.shape, weights);
        writer.tensor(&info.name, &info.shape, kind, blocks).unwrap();
    }
    saved(&writer)
}

pub(super) fn saved(writer: &GgufWriter<'_>) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, writer.to_bytes()).unwrap();
    file
}

pub(super) fn floats(weights: &[f32]) -> Blocks {
    (TensorType::F32, weights.iter().flat_map(|weight| weight.to_le_bytes()).collect())
}
