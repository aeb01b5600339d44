//! Models of other types than floats, made from the one in floats.

use crate::common::fixture;
use duet_model::gguf::writer::GgufWriter;
use duet_model::gguf::{GgufFile, TensorType};
use duet_model::{LoadOptions, Model};
use std::path::Path;

/// Makes blocks of a type of some weights.
pub(crate) type Blocks = fn(&[f32]) -> Vec<u8>;

/// The tiny model with its matrices in another type.
pub(crate) fn requantised(kind: TensorType, blocks: Blocks, folder: &Path) -> Model {
    let file = GgufFile::open(Path::new(fixture())).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        writer.metadata(key, value.clone()).unwrap();
    }
    for tensor in file.tensors().iter().filter_map(|info| file.tensor(&info.name)) {
        let info = tensor.info;
        if info.rows() == 1 {
            writer.tensor(&info.name, &info.shape, info.kind, tensor.data()).unwrap();
            continue;
        }
        let mut floats = vec![0.0; info.elements()];
        for (row, floats) in floats.chunks_exact_mut(info.row_len()).enumerate() {
            tensor.dequantize_row(row, floats);
        }
        writer.tensor(&info.name, &info.shape, kind, blocks(&floats)).unwrap();
    }
    let path = folder.join("model.gguf");
    std::fs::write(&path, writer.to_bytes()).unwrap();
    Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap()
}
