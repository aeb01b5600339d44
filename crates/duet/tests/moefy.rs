//! `duet moefy`: a dense model goes in, a file with experts comes out, and answers.

mod support;

use std::path::Path;
use support::{Run, duet, run};

fn moefy(cache: &Path, arguments: &[&str]) -> Run {
    run(&mut duet(cache, &[&["moefy", MODEL], arguments].concat()))
}

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");

#[test]
fn a_model_is_carved_measured_and_answers() {
    let cache = tempfile::tempdir().unwrap();
    let out = cache.path().join("moe.gguf");
    let out = out.to_str().unwrap();
    let carved = moefy(cache.path(), &["--experts", "2", "--top-k", "1", "-o", out, "--tokens", "2000", "--json"]);
    assert_eq!(carved.status, 0, "{carved:#?}");
    let report: serde_json::Value = serde_json::from_str(&carved.stdout).unwrap();
    assert_eq!(report["shared_expert_ffn"], 32);
    assert_eq!(report["expert_ffn"], 32);
    assert_eq!(report["layers"].as_array().unwrap().len(), 2);
    let number = |name: &str| report[name].as_f64().unwrap();
    assert!((number("active") - 2.0 / 3.0).abs() < 1e-9);
    assert!((number("ratio") - number("perplexity") / number("perplexity_dense")).abs() < 1e-9);
    assert!(number("held_out_tokens") > 100.0 && number("tokens") <= 2600.0, "{report}");

    let shown = run(&mut duet(cache.path(), &["inspect", out]));
    assert!(shown.stdout.contains("2 experts of 32, 1 a token; 32 for all"), "{shown:#?}");
    let answered = run(&mut duet(cache.path(), &["run", out, "once", "--raw", "--max-tokens", "4"]));
    assert_eq!(answered.status, 0, "{answered:#?}");
    // What is carved once is not carved again.
    let again = run(&mut duet(cache.path(), &["moefy", out, "-o", "never.gguf"]));
    again.assert_refused(&["it has experts already"]);
}

#[test]
fn what_does_not_fit_is_refused_with_the_flag() {
    let cache = tempfile::tempdir().unwrap();
    let out = cache.path().join("moe.gguf");
    let refused = |arguments: &[&str], words: &[&str]| {
        moefy(cache.path(), &[arguments, &["-o", out.to_str().unwrap()]].concat()).assert_refused(words);
    };
    refused(&["--experts", "5"], &["96 neurons", "5 experts", "--experts or --shared"]);
    refused(&["--experts", "2", "--shared", "33"], &["--experts or --shared"]);
    refused(&["--experts", "3", "--top-k", "4"], &["--top-k", "1 to 3"]);
    refused(&["--experts", "2", "--top-k", "1", "--data", "none.jsonl"], &["--data none.jsonl", "No such file"]);
    refused(&["--experts", "0"], &["--experts"]);
    moefy(cache.path(), &["--experts", "3", "--top-k", "1"]).assert_refused(&["--output"]);
    assert!(!out.exists());
    let itself = moefy(cache.path(), &["--experts", "3", "--top-k", "1", "--tokens", "256", "-o", MODEL]);
    itself.assert_refused(&["--output", "the model itself"]);
}
