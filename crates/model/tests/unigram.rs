//! Unigram ids are those on which two of `sentencepiece`, `tokenizers` and llama.cpp agree (`scripts/golden/unigram.py` made the
//! fixture).

use duet_model::gguf::writer::GgufWriter;
use duet_model::gguf::{Array, GgufFile, Value};
use duet_model::tokenizer::Unigram;
use duet_types::{TokenId, Tokens};
use proptest::prelude::*;
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Clone, Deserialize)]
struct Golden {
    tokens: Vec<String>,
    scores: Vec<f32>,
    types: Vec<i32>,
    charsmap: String,
    cases: Vec<Case>,
}

#[derive(Clone, Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
}

fn golden() -> Golden {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer_unigram.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Of base 64, without padding's last bits.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> =
        text.bytes().filter_map(|byte| DIGITS.iter().position(|&digit| digit == byte)).map(|d| d as u32).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    });
    bytes.collect()
}

/// A file with this vocabulary, as llama.cpp's converter writes it.
fn unigram(of: &Golden) -> Result<Unigram, String> {
    let mut writer = GgufWriter::new();
    for (key, value) in [
        ("model", Value::String("t5".to_owned())),
        ("tokens", Value::Array(Array::String(of.tokens.iter().collect()))),
        ("scores", Value::Array(Array::F32(of.scores.clone()))),
        ("token_type", Value::Array(Array::I32(of.types.clone()))),
        ("precompiled_charsmap", Value::Array(Array::U8(decoded(&of.charsmap)))),
        ("add_space_prefix", Value::Bool(true)),
        ("remove_extra_whitespaces", Value::Bool(true)),
        ("bos_token_id", Value::U32(0)),
        ("eos_token_id", Value::U32(2)),
        ("unknown_token_id", Value::U32(3)),
    ] {
        writer.metadata(&format!("tokenizer.ggml.{key}"), value).unwrap();
    }
    let file = GgufFile::from_bytes(writer.to_bytes()).unwrap();
    Unigram::from_metadata(file.metadata()).map_err(|error| error.to_string())
}

fn ids(tokens: &[TokenId]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

#[test]
fn texts_have_the_tokens_of_the_references() {
    let golden = golden();
    let tokenizer = unigram(&golden).unwrap();
    let mut wrong = Vec::new();
    for Case { text, ids: expected } in &golden.cases {
        let found = ids(&tokenizer.beginning(text, usize::MAX));
        if found != *expected {
            let spelled = |ids: &[u32]| ids.iter().map(|&id| golden.tokens[id as usize].clone()).collect::<Vec<_>>();
            wrong.push(format!("{text:?}: {:?}, not {:?}", spelled(&found), spelled(expected)));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), golden.cases.len(), wrong.join("\n"));
}

#[test]
fn a_text_is_cut_or_refused_at_a_number_of_tokens() {
    let golden = golden();
    let tokenizer = unigram(&golden).unwrap();
    for Case { text, ids: all } in &golden.cases {
        for most in [0, 1, 3, all.len(), all.len() + 1] {
            let beginning = ids(&tokenizer.beginning(text, most));
            assert_eq!(beginning, all[..most.min(all.len())], "{text:?} within {most}");
            let within = tokenizer.encode_within(text, Tokens(most as u32));
            assert_eq!(within.is_ok(), all.len() <= most, "{text:?} within {most}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let golden = golden();
    let refused = |change: &dyn Fn(&mut Golden)| {
        let mut other = golden.clone();
        change(&mut other);
        unigram(&other).map(|_| ()).unwrap_err()
    };
    assert!(refused(&|golden| golden.scores.truncate(5)).contains("token scores"));
    assert!(refused(&|golden| golden.types.truncate(5)).contains("token types"));
    assert!(refused(&|golden| golden.scores[9] = f32::NAN).contains("has the score NaN"));
    assert!(refused(&|golden| golden.charsmap = "////".to_owned()).contains("precompiled_charsmap"));
    assert!(refused(&|golden| golden.charsmap = "/////wAA".to_owned()).contains("longer than it is"));
    assert!(
        refused(&|golden| {
            golden.tokens.truncate(3);
            golden.scores.truncate(3);
            golden.types.truncate(3);
        })
        .contains("unknown token is 3")
    );
}

#[test]
fn special_tokens_are_text() {
    let golden = golden();
    let tokenizer = unigram(&golden).unwrap();
    let tokens = ids(&tokenizer.beginning("</s><mask><s>", usize::MAX));
    assert!(tokens.iter().all(|&id| golden.types[id as usize] != 3), "{tokens:?}");
}

#[test]
fn a_megabyte_of_one_word_is_read_in_no_time() {
    let tokenizer = unigram(&golden()).unwrap();
    let begun = std::time::Instant::now();
    assert!(tokenizer.beginning(&"a".repeat(1 << 20), usize::MAX).len() > 1 << 10);
    assert_eq!(tokenizer.beginning(&"the ".repeat(1 << 18), 8).len(), 8);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

/// Words that are longer than what is kept of one, some with places that every way goes through, some of nothing known.
#[test]
fn a_long_word_is_cut_as_it_is_read() {
    let tokenizer = unigram(&golden()).unwrap();
    let beginnings = |part: &str| {
        let text = part.repeat(20_000);
        let whole = tokenizer.beginning(&text, usize::MAX);
        [1, 2, 7, 40].map(|most| (tokenizer.beginning(&text, most), whole[..most.min(whole.len())].to_vec()))
    };
    for part in ["the\u{10fffd}cat", "\u{10fffd}", "\u{10fffd}\u{10fffc}言語x"] {
        assert!(beginnings(part).iter().all(|(beginning, whole)| beginning == whole), "{part}");
    }
    // Which of several equal ways is the first depends on where the word ends.
    for part in ["a", "unbelievably", "㌖"] {
        assert!(beginnings(part).iter().all(|(beginning, whole)| beginning.len() == whole.len()), "{part}");
    }
}

proptest! {
    #[test]
    fn any_text_has_tokens(text in ".{0,80}") {
        let tokenizer = unigram(&golden()).unwrap();
        let known = tokenizer.vocabulary() as u32;
        prop_assert!(tokenizer.beginning(&text, usize::MAX).iter().all(|token| token.0 < known));
    }
}
