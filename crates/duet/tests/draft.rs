//! `--draft`: a model that drafts for another, which must have the same tokens.

mod support;

use support::{duet, run};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
const DRAFT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_qwen3.gguf");

#[test]
fn an_answer_is_the_same_with_a_draft_model() {
    let cache = tempfile::tempdir().unwrap();
    let answer = |arguments: &[&str]| {
        let run = run(&mut duet(
            cache.path(),
            &[&["run", MODEL, "Once upon a time", "--raw", "--max-tokens", "40", "--threads", "2"], arguments].concat(),
        ));
        assert_eq!(run.status, 0, "{run:#?}");
        run.stdout
    };
    let plain = answer(&["--speculate", "off"]);
    assert_eq!(answer(&["--draft", DRAFT]), plain);
    assert_eq!(answer(&["--draft", MODEL, "--speculate", "draft-model"]), plain);
}

#[test]
fn a_draft_model_that_cannot_draft_is_refused() {
    let cache = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], words: &[&str]| {
        let all = [&["run", MODEL, "hi", "--raw", "--max-tokens", "4", "--threads", "1"], arguments].concat();
        run(&mut duet(cache.path(), &all)).assert_refused(words);
    };
    refused(&["--speculate", "draft-model"], &["draft-model", "--draft MODEL"]);
    refused(&["--speculate", "off", "--draft", DRAFT], &["--draft", "--speculate off"]);
    refused(&["--speculate", "pld", "--draft", DRAFT], &["--draft", "--speculate pld"]);
    refused(&["--draft", "no/such/model.gguf"], &["no/such/model.gguf"]);
    let other = cache.path().join("other.gguf");
    let mut bytes = std::fs::read(MODEL).unwrap();
    let at = bytes.windows(7).position(|bytes| bytes == b"<|eos|>").unwrap();
    bytes[at..at + 7].copy_from_slice(b"<|end|>");
    std::fs::write(&other, bytes).unwrap();
    refused(&["--draft", other.to_str().unwrap()], &["cannot draft for golden_llama", "same tokenizer"]);
}

#[test]
fn it_is_measured_beside_the_other_methods_and_only_where_there_is_one() {
    let cache = tempfile::tempdir().unwrap();
    let prompts = cache.path().join("prompts.jsonl");
    let line = serde_json::json!({ "kind": "reactive", "messages": [{ "role": "user", "content": "a b a b a b" }] });
    std::fs::write(&prompts, line.to_string() + "\n").unwrap();
    let prompts = prompts.to_str().unwrap();
    let measure =
        ["bench", "speculate", MODEL, "--workload", prompts, "--max-tokens", "24", "--threads", "1", "--json"];
    let methods = ["--method", "duet,draft-model,duet+draft", "--verify", "all"];
    run(&mut duet(cache.path(), &[&measure[..], &methods].concat())).assert_refused(&["--draft MODEL"]);
    let measured = run(&mut duet(cache.path(), &[&measure[..], &methods, &["--draft", DRAFT]].concat()));
    assert_eq!(measured.status, 0, "{measured:#?}");
    let lines: Vec<serde_json::Value> =
        measured.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        assert_eq!(line["identical"], true, "{line}");
        let has_model = line["method"] != "duet";
        assert_eq!(line["draft_model_ms_per_step"].is_number(), has_model, "{line}");
    }
    assert_eq!(lines.len(), 5, "cold and warm, but for the model alone");
}
