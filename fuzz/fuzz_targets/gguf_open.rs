//! Any bytes at all: opening them answers and never panics, and what is accepted can be read to the last weight.

#![no_main]

use duet_model::gguf::{GgufFile, Group, summary};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = GgufFile::from_bytes(bytes.to_vec()) else { return };
    let metadata = file.metadata();
    for (key, _) in metadata.iter() {
        let _ = (metadata.u32(key), metadata.f32(key), metadata.bool(key), metadata.str(key));
        let _ = (metadata.strings(key), metadata.f32s(key), metadata.i32s(key), metadata.u32s(key));
    }
    assert!(summary(&file).bytes.0 <= bytes.len() as u64);
    for info in file.tensors() {
        let tensor = file.tensor(&info.name).expect("a listed tensor is found by its name");
        let mut row = vec![0.0; info.row_len()];
        let mut groups = vec![Group::default(); info.row_len() / 32];
        for index in 0..info.rows() {
            tensor.dequantize_row(index, &mut row);
            if info.kind.group_form().is_some() {
                tensor.groups_row(index, &mut groups);
            }
        }
    }
});
