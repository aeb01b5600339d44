//! What cannot be read is refused with a message, and nothing panics.

use super::rewritten::{metadata, saved};
use super::{ExactReader, Rounding, model};
use crate::gguf::{GgufFile, TensorType};
use duet_types::TokenId;
use std::path::Path;

fn refusal(path: &Path, tokens: &[u32], rows: &[usize]) -> String {
    let reader = ExactReader::open(path, Rounding::None).unwrap();
    let tokens: Vec<TokenId> = tokens.iter().map(|&token| TokenId(token)).collect();
    reader.logits(&tokens, rows).unwrap_err().to_string()
}

#[test]
fn texts_that_the_model_does_not_take() {
    let path = model("llama");
    assert_eq!(refusal(&path, &[1, 260], &[0]), "token 260 is not in the vocabulary of 260");
    assert_eq!(refusal(&path, &[1; 257], &[0]), "257 tokens are more than the model's context of 256");
    assert_eq!(refusal(&path, &[1, 2], &[2]), "logits of row 2 are asked for, but there are 2");
    let reader = ExactReader::open(&path, Rounding::None).unwrap();
    assert!(reader.logits(&[], &[]).unwrap().is_empty());
}

#[test]
fn files_whose_tensors_do_not_fit() {
    let file = GgufFile::open(&model("llama")).unwrap();
    let copy = |change: &dyn Fn(&str) -> Option<u64>| {
        let mut writer = metadata(&file, &[]);
        for info in file.tensors() {
            let tensor = file.tensor(&info.name).unwrap();
            match change(&info.name) {
                None => writer.tensor(&info.name, &info.shape, info.kind, tensor.data()),
                Some(0) => continue,
                Some(len) => writer.tensor(&info.name, &[len], TensorType::F32, vec![0; len as usize * 4]),
            }
            .unwrap();
        }
        saved(&writer)
    };
    let missing = copy(&|name| (name == "blk.1.ffn_up.weight").then_some(0));
    assert_eq!(refusal(missing.path(), &[1], &[0]), "tensor `blk.1.ffn_up.weight` is missing");
    let short = copy(&|name| (name == "blk.0.attn_norm.weight").then_some(63));
    let expected = "tensor `blk.0.attn_norm.weight` has shape [63] where [64] is expected";
    assert_eq!(refusal(short.path(), &[1], &[0]), expected);
}
