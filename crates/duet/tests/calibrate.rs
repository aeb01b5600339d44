//! `duet calibrate`: a model with experts reads prompts, and a file says where they went.

mod support;

use std::path::Path;
use support::{Run, duet, run};

fn fixture(name: &str) -> String {
    format!("{}/../model/tests/fixtures/golden_{name}.gguf", env!("CARGO_MANIFEST_DIR"))
}

fn calibrate(cache: &Path, model: &str, arguments: &[&str]) -> Run {
    run(&mut duet(cache, &[&["calibrate", model, "--tokens", "1000"], arguments].concat()))
}

#[test]
fn routes_are_counted_compared_and_written_beside_the_model() {
    let cache = tempfile::tempdir().unwrap();
    let model = cache.path().join("moe.gguf");
    std::fs::copy(fixture("mixtral"), &model).unwrap();
    let model = model.to_str().unwrap();
    let data = cache.path().join("data.jsonl");
    let line = |text: &str| {
        serde_json::json!({ "kind": "reactive", "messages": [{ "role": "user", "content": text }] }).to_string() + "\n"
    };
    std::fs::write(&data, line("What is a mixture of experts?") + &line("Name three birds.")).unwrap();
    let data = data.to_str().unwrap();

    let counted = calibrate(cache.path(), model, &["--json", "--data", data, "--against", data]);
    assert_eq!(counted.status, 0, "{counted:#?}");
    let report: serde_json::Value = serde_json::from_str(&counted.stdout).unwrap();
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let experts = number(&report["experts"]) as usize;
    for layer in report["layers"].as_array().unwrap() {
        assert!((1.0..=experts as f64).contains(&number(&layer["imbalance"])), "{layer}");
        assert_eq!(layer["popularity"].as_array().unwrap().len(), experts);
    }
    assert_eq!(report["against"]["tokens"], report["tokens"]);
    if experts > 4 {
        assert_eq!(report["against"]["overlap_4"]["mean"], 1.0, "the same prompts go to the same experts");
    }
    let written = cache.path().join("moe.experts.json");
    assert_eq!(report["file"], written.to_str().unwrap());
    let text = std::fs::read_to_string(&written).unwrap();
    let again = calibrate(cache.path(), model, &["--threads", "1", "--data", data]);
    assert!(again.stdout.contains("experts, ") && again.stdout.contains("imbalance"), "{again:#?}");
    assert_eq!(std::fs::read_to_string(&written).unwrap(), text, "threads change nothing");

    // Of eight experts and two layers a few at a time.
    let on_disk = calibrate(cache.path(), model, &["--data", data, "--expert-memory", "100K"]);
    assert_eq!(on_disk.status, 0, "{on_disk:#?}");
    assert_eq!(std::fs::read_to_string(&written).unwrap(), text, "nor does where experts lie");
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let cache = tempfile::tempdir().unwrap();
    calibrate(cache.path(), &fixture("llama"), &[]).assert_refused(&["dense model", "duet moefy"]);
    let moe = fixture("mixtral");
    let none = ["--data", "none.jsonl"];
    calibrate(cache.path(), &moe, &none).assert_refused(&["--data none.jsonl", "No such file"]);
    let out = cache.path().join("counts.json");
    let out = out.to_str().unwrap();
    let against = ["--against", "none.jsonl", "-o", out];
    calibrate(cache.path(), &moe, &against).assert_refused(&["--against none.jsonl", "No such file"]);
    let empty = cache.path().join("empty.jsonl");
    std::fs::write(&empty, "").unwrap();
    let empty = ["--data", empty.to_str().unwrap(), "-o", out];
    calibrate(cache.path(), &moe, &empty).assert_refused(&["--data", "no prompt"]);
    calibrate(cache.path(), &moe, &["-o", &moe]).assert_refused(&["--output", "the model itself"]);
    assert!(!cache.path().join("counts.json").exists());
}
