//! With nothing rounded, the reader's logits are those of Hugging Face `transformers` in single precision.

use super::{Golden, QuantModels, all_rows, best, model, random_blocks, relative};
use crate::arch::Blueprint;
use std::path::Path;

/// Of the root mean square. Measured: 2e-7 (granite) to 2.2e-6 (qwen3next, whose reference goes through a delta net in chunks),
/// which is the references' own single precision.
pub(super) const TOLERANCE: f64 = 4e-6;

/// How far the logits of some rows are from the expected.
fn error(path: &Path, golden: &Golden, bug: impl Fn(&mut Blueprint)) -> f64 {
    let mut reader = golden.reader(path);
    bug(&mut reader.blueprint);
    let found = reader.logits(&golden.tokens(), &golden.rows).unwrap();
    relative(&found, &golden.logits.concat())
}

/// How far the reader is from `transformers` when it has a bug.
pub(super) fn error_with(name: &str, bug: impl Fn(&mut Blueprint)) -> f64 {
    error(&model(name), &Golden::of(name), bug)
}

fn check(name: &str) {
    let golden = Golden::of(name);
    let error = error_with(name, |_| ());
    eprintln!("{name}: {error:.1e}");
    assert!(error < TOLERANCE, "{name}: relative error {error:.1e}");
    let reader = golden.reader(&model(name));
    let logits = reader.logits(&golden.tokens(), &all_rows(&golden.tokens())).unwrap();
    let argmax: Vec<usize> = logits.chunks_exact(reader.blueprint().vocabulary).map(best).collect();
    assert_eq!(argmax, golden.argmax, "{name}");
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
fn gpt_oss_with_experts_in_four_bits() {
    check("gptoss_mxfp4");
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

#[test]
fn every_tensor_type() {
    let golden = QuantModels::read();
    assert_eq!(golden.models.len(), random_blocks::models().len());
    for (name, kind) in random_blocks::models() {
        let file = random_blocks::model_of(kind);
        let error = error(file.path(), &golden.of(&name.to_lowercase()), |_| ());
        eprintln!("{name}: {error:.1e}");
        assert!(error < TOLERANCE, "{name}: relative error {error:.1e}");
    }
}
