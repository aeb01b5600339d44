//! Tiny models carved into experts and loaded again.
//!
//! When every token goes to all experts nothing is left out, so a carved model is the dense one but for rounding: that
//! shows every convention of the file (order of rows, scales, biases, rope). Fewer experts a token then change it.

use duet_kernels::crew::Solo;
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::gguf::GgufFile;
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_moefy::{Kept, Moefied, MoefyError, Shape, perplexity};
use duet_types::{TokenId, Tokens};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../model/tests/fixtures/golden_{name}.gguf"))
}

fn load(path: &Path) -> Model {
    Model::load(path, &LoadOptions::default(), &mut |_| {}).unwrap()
}

fn texts(count: usize) -> Vec<Vec<TokenId>> {
    let token = |text: usize, at: usize| TokenId(((at * at * 31 + at * 7 + text * 101) % 250) as u32);
    (0..count).map(|text| (0..60 + text).map(|at| token(text, at)).collect()).collect()
}

/// The file of a carved model, and what its layers keep.
fn carve(name: &str, shape: Shape, threads: usize) -> Result<(Vec<u8>, Vec<Kept>), MoefyError> {
    let (path, mut kept, mut bytes) = (fixture(name), Vec::new(), Vec::new());
    let model = load(&path);
    let moefied = Moefied::of(&model, &texts(12), shape, threads, &mut |layer, of| {
        assert_eq!(layer, kept.len());
        kept.push(of);
    })?;
    moefied.write(&model, &GgufFile::open(&path).unwrap(), &mut bytes)?;
    Ok((bytes, kept))
}

fn loaded(bytes: &[u8]) -> Model {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, bytes).unwrap();
    load(file.path())
}

fn logits(model: &Model) -> Vec<f32> {
    let tokens = texts(30).pop().unwrap();
    let rows: Vec<usize> = (0..tokens.len()).collect();
    let kv = model.kv_pool(KvFormat::F16, Tokens(128)).table();
    let mut pass = Pass::new(model, Activations::new(model, 128), vec![Segment::new(kv, tokens)]).unwrap();
    model.run_span(&mut pass, 0..model.node_count(), &Solo);
    let mut logits = Vec::new();
    model.logits(&mut pass, &rows, &mut logits, &Solo);
    logits
}

/// Root mean square of the difference over that of the dense model's logits.
fn distance(dense: &[f32], carved: &[f32]) -> f32 {
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>();
    (square(&mut dense.iter().zip(carved).map(|(a, b)| a - b)) / square(&mut dense.iter().copied())).sqrt()
}

#[test]
fn with_all_experts_it_is_the_dense_model() {
    for (name, shape) in [
        ("llama", Shape::new(96, 2, 2, 32).unwrap()),
        ("llama", Shape::new(96, 3, 3, 0).unwrap()),
        ("llama_rope_llama3", Shape::new(96, 3, 3, 0).unwrap()),
        ("qwen2", Shape::new(128, 2, 2, 64).unwrap()),
    ] {
        let (bytes, kept) = carve(name, shape, 2).unwrap();
        assert!(kept.iter().all(|kept| (kept.all - 1.0).abs() < 1e-6 && (kept.routed - 1.0).abs() < 1e-6));
        let far = distance(&logits(&load(&fixture(name))), &logits(&loaded(&bytes)));
        assert!(far < 0.06, "{name} {shape:?}: {far}");
    }
}

#[test]
fn with_some_experts_it_is_another_whose_loss_is_bounded_by_what_is_left_out() {
    let dense = logits(&load(&fixture("llama")));
    let far = |chosen: usize| {
        let (bytes, kept) = carve("llama", Shape::new(96, 3, chosen, 0).unwrap(), 2).unwrap();
        assert!(kept.iter().all(|kept| (0.2..=1.0).contains(&kept.routed) && kept.all == kept.routed));
        distance(&dense, &logits(&loaded(&bytes)))
    };
    let [one, two, all] = [1, 2, 3].map(far);
    assert!(all < two && two < one, "{one} {two} {all}");
}

#[test]
fn the_same_model_and_texts_give_the_same_file_on_any_number_of_threads() {
    let shape = Shape::new(96, 2, 1, 32).unwrap();
    let (one, two) = (carve("llama", shape, 1).unwrap(), carve("llama", shape, 3).unwrap());
    assert!(one.0 == two.0);
    assert_eq!(one.1, two.1);
}

#[test]
fn what_cannot_be_carved_is_refused_with_the_reason() {
    let refused = |name: &str, shape: Shape| carve(name, shape, 1).map(|_| ()).unwrap_err().to_string();
    let shape = Shape::new(64, 1, 1, 32).unwrap();
    assert_eq!(
        refused("gemma3", shape),
        "a model of architecture `gemma3` cannot be made into experts: only `llama` and `qwen2` can"
    );
    assert_eq!(
        refused("mixtral", shape),
        "a model of architecture `llama` cannot be made into experts: it has experts already"
    );
    assert!(refused("llama_rope_llama3", Shape::new(96, 2, 1, 32).unwrap()).contains("heads are not as wide"));
    assert!(refused("qwen2", Shape::new(128, 4, 1, 0).unwrap()).contains("give --shared"));
    let split = |ffn, experts, chosen, shared| Shape::new(ffn, experts, chosen, shared).map(|_| ()).unwrap_err();
    assert_eq!(
        split(1536, 16, 4, 768).to_string(),
        "1536 neurons a layer cannot be a shared expert of 768 and 16 experts of a multiple of 32"
    );
    assert_eq!(split(1536, 16, 17, 1024).to_string(), "each token can go to 1 to 16 experts, not to 17");
    assert!(matches!(split(1536, 0, 1, 0), MoefyError::Split { .. }));
    assert!(matches!(split(64, 2, 1, 128), MoefyError::Split { .. }));
}

#[test]
fn perplexity_is_that_of_the_logits() {
    let model = load(&fixture("llama"));
    let text = texts(1).pop().unwrap();
    let vocabulary = model.config().vocabulary;
    let of = |tokens: &[TokenId]| {
        let kv = model.kv_pool(KvFormat::F16, Tokens(128)).table();
        let mut pass =
            Pass::new(&model, Activations::new(&model, 128), vec![Segment::new(kv, tokens.to_vec())]).unwrap();
        model.run_span(&mut pass, 0..model.node_count(), &Solo);
        let mut logits = Vec::new();
        model.logits(&mut pass, &(0..tokens.len()).collect::<Vec<_>>(), &mut logits, &Solo);
        let chance = |row: usize| {
            let logits = &logits[row * vocabulary..][..vocabulary];
            f64::from(logits[tokens[row + 1].0 as usize]).exp()
                / logits.iter().map(|x| f64::from(*x).exp()).sum::<f64>()
        };
        (0..tokens.len() - 1).map(|row| -chance(row).ln()).sum::<f64>()
    };
    let expected = (of(&text) / (text.len() - 1) as f64).exp();
    let found = perplexity(&model, std::slice::from_ref(&text), 2).unwrap();
    assert!((found / expected - 1.0).abs() < 1e-5, "{found} {expected}");
    assert!(matches!(perplexity(&model, &[vec![TokenId(1)]], 1), Err(MoefyError::NoText)));
}
