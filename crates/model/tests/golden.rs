//! Logits of every architecture against Hugging Face `transformers` in single precision, on tiny random models
//! (`scripts/golden/tiny_models.py` made the files).
//!
//! The files are of floats, with which nothing is rounded but keys and values, so in half precision logits agree within a
//! thousandth of their spread, or a little more. A wrong convention (rope pairs, windows, biases, norms) moves them by tens of per cent. What
//! moves them by less is found by way of the exact reader (`src/exact/tests`): it agrees with the same logits to a
//! millionth, and rounded as the kernels round, with the kernels.

use duet_kernels::crew::Scoped;
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Golden {
    tokens: Vec<u32>,
    argmax: Vec<usize>,
    rows: Vec<usize>,
    logits: Vec<Vec<f32>>,
    /// The context to ask for, where it matters.
    context: Option<u32>,
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Root mean square of the difference over that of the reference, and the share of rows with the same argmax.
fn compare(name: &str, format: KvFormat) -> (f64, f64) {
    let golden: Golden =
        serde_json::from_slice(&std::fs::read(fixture(&format!("golden_{name}.json"))).unwrap()).unwrap();
    let path = fixture(&format!("golden_{name}.gguf"));
    let options = LoadOptions { context: golden.context.map(Tokens), ..LoadOptions::default() };
    let model = Model::load(&path, &options, &mut |_| {}).unwrap();
    // GLM's last layer predicts a second token.
    let mut unread = model.unread().iter();
    assert!(unread.all(|tensor| name.starts_with("glm4moe") && is_beyond(&model, tensor)), "{:?}", model.unread());
    let crew = Scoped { threads: 2 };
    let kv = model.kv_pool(format, Tokens(256)).table();
    let tokens = golden.tokens.iter().map(|&token| TokenId(token)).collect();
    let mut pass = Pass::new(&model, Activations::new(&model, 128), vec![Segment::new(kv, tokens)]).unwrap();
    model.run_span(&mut pass, 0..model.node_count(), &crew);
    let all: Vec<usize> = (0..golden.tokens.len()).collect();
    let mut logits = Vec::new();
    model.logits(&mut pass, &all, &mut logits, &crew);
    let rows: Vec<&[f32]> = logits.chunks_exact(model.config().vocabulary).collect();
    let (mut error, mut total) = (0.0, 0.0);
    for (&row, expected) in golden.rows.iter().zip(&golden.logits) {
        for (a, b) in rows[row].iter().zip(expected) {
            error += f64::from(a - b).powi(2);
            total += f64::from(*b).powi(2);
        }
    }
    let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    let same = rows.iter().zip(&golden.argmax).filter(|(row, expected)| best(row) == **expected).count();
    ((error / total).sqrt(), same as f64 / rows.len() as f64)
}

/// Whether a tensor is of the layer behind the last.
fn is_beyond(model: &Model, tensor: &str) -> bool {
    tensor.starts_with(&format!("blk.{}.", model.config().layers))
}

fn check(name: &str) {
    // Random models hardly prefer a token: of 83 rows some turn with any rounding. What four bits lose of random values is
    // no measure of answers; that it is what they are meant to lose, the exact reader tells.
    for (format, tolerance, least) in
        [(KvFormat::F16, 0.0015, 0.94), (KvFormat::Int8, 0.03, 0.85), (KvFormat::Int4, 0.4, 0.6)]
    {
        let (error, agree) = compare(name, format);
        eprintln!("{name} {format:?}: relative error {error:.4}, argmax agrees on {agree:.2}");
        assert!(error < tolerance, "{name} {format:?}: relative error {error}");
        assert!(agree > least, "{name} {format:?}: argmax agrees on {agree}");
    }
}

#[test]
fn llama() {
    check("llama");
}

#[test]
fn llama_with_linear_rope_scaling() {
    check("llama_rope_linear");
}

#[test]
fn llama_with_llama3_rope_scaling() {
    check("llama_rope_llama3");
}

#[test]
fn qwen2() {
    check("qwen2");
}

#[test]
fn qwen3() {
    check("qwen3");
}

#[test]
fn qwen3_with_yarn() {
    check("qwen3_rope_yarn");
}

#[test]
fn smollm3() {
    check("smollm3");
}

#[test]
fn gemma3() {
    check("gemma3");
}

#[test]
fn gemma4_with_inputs_of_layers_and_shared_keys() {
    check("gemma4");
}

#[test]
fn gemma4_with_values_of_keys() {
    check("gemma4_dense");
}

#[test]
fn gemma4_with_experts_beside_blocks() {
    check("gemma4_experts");
}

#[test]
fn mixtral() {
    check("mixtral");
}

#[test]
fn olmoe() {
    check("olmoe");
}

#[test]
fn qwen2moe() {
    check("qwen2moe");
}

#[test]
fn qwen3moe() {
    check("qwen3moe");
}

#[test]
fn phimoe() {
    check("phimoe");
}

#[test]
fn phimoe_with_longrope_and_a_window() {
    check("phimoe_longrope");
}

#[test]
fn gpt_oss() {
    check("gptoss");
}

#[test]
fn glm4_moe_with_norms_of_heads() {
    check("glm4moe");
}

#[test]
fn glm4_moe_with_biases_of_keys() {
    check("glm4moe_air");
}

#[test]
fn lfm2() {
    check("lfm2");
}

#[test]
fn lfm2_with_experts() {
    check("lfm2moe");
}

#[test]
fn qwen3_next() {
    check("qwen3next");
}

#[test]
fn qwen3_next_with_queries_beside_gates() {
    check("qwen3next_old");
}

#[test]
fn qwen35() {
    check("qwen35");
}

#[test]
fn qwen35_with_experts() {
    check("qwen35moe");
}

#[test]
fn granite() {
    check("granite");
}

#[test]
fn granite_with_experts() {
    check("granitemoe");
}

#[test]
fn granite_hybrid() {
    check("granitehybrid");
}

#[test]
fn granite_hybrid_with_experts() {
    check("granitehybrid_experts");
}

#[test]
fn phi3_in_its_first_context_and_a_window() {
    check("phi3");
}

#[test]
fn phi3_beyond_its_first_context() {
    check("phi3_long");
}
