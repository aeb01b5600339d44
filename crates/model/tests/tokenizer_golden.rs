//! The tokens are those of llama.cpp. The fixtures and their maker: `scripts/golden/tokenizer.py`.
//!
//! The small vocabularies travel with the fixtures. The tests of a real model need `DUET_TEST_MODEL` (a GGUF of
//! SmolLM2-135M-Instruct) and `DUET_WORKLOADS` (the folder of `corpus.txt`); without them they are skipped.

use std::path::PathBuf;
use std::time::Instant;

use duet_model::gguf::GgufFile;
use duet_model::tokenizer::{SpecialTokens, Tokenizer, TokenizerKind, TokenizerSpec};
use duet_testing::Need;
use duet_types::TokenId;
use serde_json::Value;

fn fixture(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("fixtures are JSON")
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().expect("a string").to_owned()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

fn spec(value: &Value, kind: TokenizerKind, pre: Option<&str>) -> TokenizerSpec {
    let numbers = |key: &str| value[key].as_array().into_iter().flatten();
    let special = |key: &str| value[key].as_u64().map(|id| TokenId(id as u32));
    TokenizerSpec {
        kind,
        pre: pre.map(str::to_owned),
        tokens: strings(&value["tokens"]).into_iter().collect(),
        scores: numbers("scores").map(|score| score.as_f64().expect("a score") as f32).collect(),
        types: numbers("types").map(|number| number.as_i64().expect("a type") as i32).collect(),
        merges: strings(&value["merges"]).into_iter().collect(),
        bos: special("bos"),
        eos: special("eos"),
        eot: None,
        eom: None,
        unknown: special("unknown"),
        add_bos: true,
        add_eos: false,
        add_space_prefix: false,
        strip_after_special: false,
    }
}

fn numbers(tokens: &[TokenId]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

fn fnv(ids: &[u32]) -> String {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
    let hash =
        bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    format!("{hash:016x}")
}

/// Every difference between the tokens and the fixture, as lines.
fn differences(tokenizer: &Tokenizer, name: &str, cases: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for case in cases.as_array().into_iter().flatten() {
        let text = case["text"].as_str().expect("a text");
        let parsed = if case["parsed"].is_array() { &case["parsed"] } else { &case["ids"] };
        for (special, expected) in [(SpecialTokens::AsText, &case["ids"]), (SpecialTokens::Parse, parsed)] {
            let (actual, expected) = (numbers(&tokenizer.encode(text, special)), ids(expected));
            if actual != expected {
                lines.push(format!("{name} {special:?} {text:?}\n  expected {expected:?}\n  actual   {actual:?}"));
            }
        }
    }
    lines
}

fn check_summary(tokenizer: &Tokenizer, name: &str, text: &str, summary: &Value) -> Option<String> {
    let actual = numbers(&tokenizer.encode(text, SpecialTokens::AsText));
    let (count, hash) = (summary["count"].as_u64(), summary["fnv"].as_str());
    let same = count == Some(actual.len() as u64) && hash == Some(fnv(&actual).as_str());
    (!same).then(|| format!("{name}: {} tokens, expected {count:?}", actual.len()))
}

fn check_round_trip(tokenizer: &Tokenizer, name: &str, text: &str) -> Option<String> {
    let decoded = tokenizer.decode(&tokenizer.encode(text, SpecialTokens::AsText));
    let mut pairs = decoded.char_indices().zip(text.chars());
    let at = pairs.find(|((_, decoded), text)| decoded != text).map_or(0, |((at, _), _)| at);
    let around = |text: &str| text.chars().skip(decoded[..at].chars().count()).take(20).collect::<String>();
    (decoded != text).then(|| format!("{name}: at {at} {:?} became {:?}", around(text), around(&decoded)))
}

#[test]
fn tokenizer_byte_pairs_split_as_llama_cpp_does() {
    let fixture = fixture("tokenizer_byte_pairs.json");
    let fuzz = fixture["fuzz"].as_str().expect("a text");
    let mut wrong = Vec::new();
    for (pre, expected) in fixture["pre"].as_object().expect("splittings") {
        let tokenizer = Tokenizer::new(spec(&fixture["spec"], TokenizerKind::BytePairs, Some(pre))).expect(pre);
        wrong.extend(differences(&tokenizer, pre, &expected["cases"]));
        wrong.extend(check_summary(&tokenizer, pre, fuzz, &expected["fuzz"]));
        wrong.extend(check_round_trip(&tokenizer, pre, fuzz));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tokenizer_sentence_piece_joins_as_llama_cpp_does() {
    let fixture = fixture("tokenizer_sentence_piece.json");
    let fuzz = fixture["fuzz"].as_str().expect("a text");
    let mut wrong = Vec::new();
    for (name, add_space_prefix) in [("prefixed", true), ("plain", false)] {
        let spec = spec(&fixture["spec"], TokenizerKind::SentencePiece, None);
        let tokenizer = Tokenizer::new(TokenizerSpec { add_space_prefix, ..spec }).expect(name);
        wrong.extend(differences(&tokenizer, name, &fixture[name]["cases"]));
        wrong.extend(check_summary(&tokenizer, name, fuzz, &fixture[name]["fuzz"]));
        // With the prefix, a space also comes in after each user-defined token (as in llama.cpp), so only one way is exact.
        if !add_space_prefix {
            wrong.extend(check_round_trip(&tokenizer, name, &fuzz.replace('▁', " ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tokenizer_sentence_piece_joins_by_merges_as_llama_cpp_does() {
    let fixture = fixture("tokenizer_merges.json");
    let fuzz = fixture["fuzz"].as_str().expect("a text");
    let spec = spec(&fixture["spec"], TokenizerKind::SentencePieceByMerges, None);
    let tokenizer = Tokenizer::new(spec).expect("a tokenizer");
    let mut wrong = differences(&tokenizer, "merges", &fixture["plain"]["cases"]);
    wrong.extend(check_summary(&tokenizer, "merges", fuzz, &fixture["plain"]["fuzz"]));
    wrong.extend(check_round_trip(&tokenizer, "merges", &fuzz.replace('▁', " ")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tokenizer_prompts_begin_and_end_as_the_file_says() {
    for (name, kind, add_eos) in [
        ("tokenizer_byte_pairs.json", TokenizerKind::BytePairs, true),
        ("tokenizer_sentence_piece.json", TokenizerKind::SentencePiece, false),
        ("tokenizer_merges.json", TokenizerKind::SentencePieceByMerges, false),
    ] {
        let fixture = fixture(name);
        let spec = spec(&fixture["spec"], kind, Some("llama-bpe"));
        let (bos, eos) = (spec.bos.expect("bos"), spec.eos.expect("eos"));
        let begin = spec.tokens[bos.0 as usize].to_owned();
        let tokenizer = Tokenizer::new(TokenizerSpec { add_eos, ..spec }).expect(name);
        let prompt = &fixture["prompt"];
        let text = prompt["text"].as_str().expect("a text");
        let tokens = tokenizer.encode_prompt(text, SpecialTokens::Parse);
        assert_eq!(numbers(&tokens), ids(&prompt["ids"]), "{name}");
        // A template that writes bos itself does not get another.
        assert_eq!(tokenizer.encode_prompt(&format!("{begin}{text}"), SpecialTokens::Parse), tokens);
        assert!(tokenizer.is_end_of_generation(eos));
        assert_eq!(tokenizer.bytes(bos), b"");
        assert_eq!(tokenizer.text_of_special(bos), Some(begin.as_str()));
    }
}

#[test]
fn tokenizer_of_a_real_model_is_exact() {
    let Some(model) = duet_testing::path(Need::Model) else { return };
    let file = GgufFile::open(&model).expect("a GGUF file");
    let begun = Instant::now();
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("a tokenizer");
    eprintln!("built {} tokens in {:?}", tokenizer.vocabulary(), begun.elapsed());

    let fixture = fixture("tokenizer_smollm.json");
    let wrong = differences(&tokenizer, "smollm", &fixture["cases"]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let fuzz = fixture["fuzz"]["text"].as_str().expect("a text");
    assert_eq!(check_summary(&tokenizer, "fuzz", fuzz, &fixture["fuzz"]), None);
    assert_eq!(tokenizer.bos(), Some(TokenId(1)));
    assert_eq!(tokenizer.eos(), Some(TokenId(2)));
    assert!(tokenizer.is_end_of_generation(TokenId(0)));
    assert!(tokenizer.is_end_of_generation(TokenId(2)));
    assert!(!tokenizer.is_end_of_generation(TokenId(1)));
}

#[test]
fn tokenizer_of_a_real_model_is_exact_on_the_corpus() {
    let Some(model) = duet_testing::path(Need::Model) else { return };
    let Some(workloads) = duet_testing::path(Need::Workloads) else { return };
    let file = GgufFile::open(&model).expect("a GGUF file");
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("a tokenizer");
    let corpus = std::fs::read_to_string(workloads.join("corpus.txt")).expect("corpus.txt");
    let expected = &fixture("tokenizer_smollm.json")["corpus"];
    assert_eq!(expected["bytes"].as_u64(), Some(corpus.len() as u64), "another corpus.txt than the fixture's");

    let begun = Instant::now();
    let tokens = tokenizer.encode(&corpus, SpecialTokens::AsText);
    eprintln!("{} tokens in {:?}", tokens.len(), begun.elapsed());
    assert_eq!(check_summary(&tokenizer, "corpus", &corpus, expected), None);

    let begun = Instant::now();
    assert_eq!(tokenizer.decode(&tokens), corpus);
    eprintln!("decoded in {:?}", begun.elapsed());
}
