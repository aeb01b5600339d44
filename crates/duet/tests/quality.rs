//! `duet bench perplexity` and `duet bench quality` on a tiny model with biases of keys, and the speed of an engine.

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use support::{duet, run};

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

/// What a measurement of this model and text prints.
fn measured(cache: &Path, command: &str, more: &[&str]) -> Value {
    measured_of("golden_qwen2.gguf", cache, command, more)
}

fn measured_of(model: &str, cache: &Path, command: &str, more: &[&str]) -> Value {
    let (model, text) = (fixture(model), fixture("wonderland.txt"));
    let given = ["bench", command, &model, "--text", &text, "--context", "96", "--chunks", "3", "--json"];
    let run = run(&mut duet(cache, &[&given, more].concat()));
    assert_eq!(run.status, 0, "{run:?}");
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

fn number(object: &Value, key: &str) -> f64 {
    object[key].as_f64().unwrap_or_else(|| panic!("no {key} in {object}"))
}

#[test]
fn answers_are_as_good_as_the_weights_allow() {
    let cache = tempfile::tempdir().unwrap();
    let base = cache.path().join("base");
    let base = base.to_str().unwrap();
    let perplexity = measured(cache.path(), "perplexity", &[]);
    assert_eq!((perplexity["n"].as_u64(), perplexity["chunks"].as_u64()), (Some(3 * 47), Some(3)));
    let exact = measured(cache.path(), "quality", &["--write-base", base]);
    assert_eq!(number(&exact, "perplexity"), number(&perplexity, "perplexity"));
    let kld = number(&exact, "kld_mean");
    // Its weights are floats: only keys and values are rounded.
    assert!(kld > 0.0 && kld < 0.0005 && number(&exact, "kld_p99") <= number(&exact, "kld_max"), "{exact}");
    assert!((number(&exact, "base_perplexity") / number(&exact, "perplexity") - 1.0).abs() < 0.02, "{exact}");
    // The file has 16 bits of each chance.
    let again = measured(cache.path(), "quality", &["--base", base]);
    assert!((number(&again, "kld_mean") - kld).abs() < 1e-5, "{again} beside {exact}");
    assert_eq!(number(&again, "same_top"), number(&exact, "same_top"));
    let halves = measured(cache.path(), "quality", &["--base", base, "--kv", "f16"]);
    assert!(number(&halves, "kld_mean") < kld / 4.0, "{halves} beside {exact}");
}

#[test]
fn one_reading_is_held_against_another() {
    let cache = tempfile::tempdir().unwrap();
    let base = cache.path().join("base");
    let base = base.to_str().unwrap();
    measured(cache.path(), "perplexity", &["--write-base", base]);
    // To what the file rounds.
    let same = measured(cache.path(), "quality", &["--base", base]);
    assert!(number(&same, "kld_mean") < 1e-6 && number(&same, "same_top") == 1.0, "{same}");
    let halves = measured(cache.path(), "quality", &["--base", base, "--kv", "f16"]);
    assert!((1e-6..0.01).contains(&number(&halves, "kld_mean")), "{halves}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let cache = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = cache.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (model, text) = (fixture("golden_qwen2.gguf"), fixture("wonderland.txt"));
    let short = write("short", b"Once upon a time");
    let foreign = write("foreign", b"nothing that llama-perplexity writes");
    let refused = |arguments: &[&str], words: &[&str]| {
        run(&mut duet(cache.path(), &[&["bench"], arguments].concat())).assert_refused(words);
    };
    refused(&["perplexity", &model, "--text", &short, "--context", "96"], &["the text has", "longer text"]);
    refused(&["perplexity", &model, "--text", "no-such-file"], &["--text no-such-file"]);
    refused(&["perplexity", &model, "--text", &text, "--context", "999999"], &["--context 999999", "context of"]);
    refused(&["perplexity", &model, "--text", &text, "--context", "2"], &["--context 2"]);
    refused(&["quality", &model], &["--text"]);
    refused(&["quality", &model, "--base", &foreign], &["foreign", "no reference file"]);
    refused(&["quality", &model, "--base", "no-such-base"], &["no-such-base"]);
    refused(&["quality", &model, "--text", &text, "--base", "a", "--write-base", "b"], &["--write-base"]);
    let nowhere = cache.path().join("none/base");
    let nowhere = nowhere.to_str().unwrap();
    refused(&["quality", &model, "--text", &text, "--context", "96", "--write-base", nowhere], &["--write-base"]);
    refused(&["perplexity", &model, "--text", &text, "--context", "96", "--write-base", nowhere], &["--write-base"]);

    // A reference of another text, or with chunks of another length.
    let base = cache.path().join("base");
    let base = base.to_str().unwrap();
    measured(cache.path(), "quality", &["--write-base", base]);
    let other = write("other", "Another text, and a long one. ".repeat(200).as_bytes());
    refused(&["quality", &model, "--base", base, "--text", &other], &["another text"]);
    refused(&["quality", &model, "--base", base, "--context", "64"], &["--context 64", "chunks of 96"]);
    let whole = std::fs::read(base).unwrap();
    let cut = write("cut", &whole[..whole.len() - 1]);
    refused(&["quality", &model, "--base", &cut], &["bytes"]);
}

#[test]
fn experts_on_disk_read_as_those_in_memory() {
    let cache = tempfile::tempdir().unwrap();
    let perplexity = |more: &[&str]| measured_of("golden_mixtral.gguf", cache.path(), "perplexity", more);
    assert_eq!(perplexity(&["--expert-memory", "100K"])["perplexity"], perplexity(&[])["perplexity"]);
}

/// Speed as an engine serves, where devices are named, be it the cores alone.
#[test]
fn throughput_of_an_engine_says_who_computed() {
    let cache = tempfile::tempdir().unwrap();
    let model = fixture("golden_llama.gguf");
    let few = ["--prompt", "16", "--gen", "4", "--batch", "1,2", "--samples", "1", "--device", "cpu", "--json"];
    let run = run(&mut duet(cache.path(), &[&["bench", "throughput", &model], &few[..]].concat()));
    let measured: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    assert!(number(&measured, "prefill_tok_s") > 0.0, "{measured}");
    let all_by_cores = serde_json::json!([{"of": "cpu", "share": 1.0}]);
    for (decode, batch) in measured["decode"].as_array().unwrap().iter().zip([1, 2]) {
        assert!(decode["batch"] == batch && number(decode, "tok_s") > 0.0, "{decode}");
        assert_eq!(decode["shares"], all_by_cores);
    }
}
