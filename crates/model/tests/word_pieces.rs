//! WordPiece ids are those of the `tokenizers` library (`scripts/golden/word_pieces.py` made the fixture).

use duet_model::gguf::writer::GgufWriter;
use duet_model::gguf::{Array, GgufFile, Value};
use duet_model::tokenizer::WordPiece;
use duet_types::{TokenId, Tokens};
use proptest::prelude::*;
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Golden {
    vocabulary: Vec<String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
}

fn golden() -> Golden {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer_word_pieces.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];

/// A file with these tokens, spelled as llama.cpp's converter spells them.
fn word_piece(vocabulary: &[String]) -> Result<WordPiece, String> {
    let spelled = |token: &String| match token.strip_prefix("##") {
        _ if SPECIAL.contains(&token.as_str()) => token.clone(),
        Some(rest) => rest.to_owned(),
        None => format!("▁{token}"),
    };
    let types = vocabulary.iter().map(|token| if SPECIAL.contains(&token.as_str()) { 3 } else { 1 });
    let mut writer = GgufWriter::new();
    for (key, value) in [
        ("model", Value::String("bert".to_owned())),
        ("tokens", Value::Array(Array::String(vocabulary.iter().map(spelled).collect()))),
        ("token_type", Value::Array(Array::I32(types.collect()))),
    ] {
        writer.metadata(&format!("tokenizer.ggml.{key}"), value).unwrap();
    }
    let file = GgufFile::from_bytes(writer.to_bytes()).unwrap();
    WordPiece::from_metadata(file.metadata()).map_err(|error| error.to_string())
}

fn ids(tokens: &[TokenId]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

#[test]
fn texts_have_the_tokens_of_the_library() {
    let Golden { vocabulary, cases } = golden();
    let tokenizer = word_piece(&vocabulary).unwrap();
    let mut wrong = Vec::new();
    for Case { text, ids: expected } in &cases {
        let found = ids(&tokenizer.beginning(text, usize::MAX));
        if found != *expected {
            let spelled = |ids: &[u32]| ids.iter().map(|&id| vocabulary[id as usize].clone()).collect::<Vec<_>>();
            wrong.push(format!("{text:?}: {:?}, not {:?}", spelled(&found), spelled(expected)));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn a_text_is_cut_or_refused_at_a_number_of_tokens() {
    let Golden { vocabulary, cases } = golden();
    let tokenizer = word_piece(&vocabulary).unwrap();
    for Case { text, ids: all } in &cases {
        for most in [0, 1, 3, all.len(), all.len() + 1] {
            let beginning = ids(&tokenizer.beginning(text, most));
            assert_eq!(beginning, all[..most.min(all.len())], "{text:?} within {most}");
            let within = tokenizer.encode_within(text, Tokens(most as u32));
            assert_eq!(within.is_ok(), all.len() <= most, "{text:?} within {most}");
        }
    }
}

#[test]
fn a_vocabulary_with_capitals_keeps_them() {
    let vocabulary = ["[UNK]", "[CLS]", "[SEP]", "Paris", "paris", "é", "e"].map(str::to_owned);
    let tokenizer = word_piece(&vocabulary).unwrap();
    assert_eq!(ids(&tokenizer.beginning("Paris paris é e E", 9)), [3, 4, 5, 6, 0]);
}

#[test]
fn a_vocabulary_without_its_special_tokens_is_refused() {
    let error = word_piece(&["[UNK]", "[CLS]", "a"].map(str::to_owned)).unwrap_err();
    assert!(error.contains("seperator_token_id"), "{error}");
}

#[test]
fn a_megabyte_of_one_word_is_read_in_no_time() {
    let tokenizer = word_piece(&golden().vocabulary).unwrap();
    let begun = std::time::Instant::now();
    assert_eq!(tokenizer.beginning(&"a".repeat(1 << 20), usize::MAX).len(), 1);
    assert_eq!(tokenizer.beginning(&"\u{301}".repeat(1 << 20), usize::MAX).len(), 0);
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

proptest! {
    #[test]
    fn any_text_has_tokens(text in ".{0,80}") {
        let tokenizer = word_piece(&golden().vocabulary).unwrap();
        let known = tokenizer.vocabulary() as u32;
        prop_assert!(tokenizer.beginning(&text, usize::MAX).iter().all(|token| token.0 < known));
    }
}
