//! With what the kernels round, the reader's logits are the kernels', but for the order of additions.
//!
//! That order is worth a ten-millionth, until it turns one rounded value of a row: then that row and those that attend to
//! it are off by a hundredth. So texts are short and several, and the row in the middle is one in which nothing turned.

use super::random_blocks;
use super::rewritten::{floats, rewritten};
use super::{Difference, Golden, Rounding, by_kernels, by_reader, difference, load, model};
use crate::Model;
use crate::gguf::TensorType;
use crate::gguf::writer::quantise;
use crate::kv::KvFormat;
use duet_kernels::quantize::Operands;
use duet_types::TokenId;
use std::path::Path;
use tempfile::NamedTempFile;

/// What is tolerated.
#[derive(Clone, Copy)]
struct Tolerance {
    /// Of the error of the row in the middle.
    median: f64,
    /// Of the root mean square of all rows' errors.
    rms: f64,
    /// Of the share of rows whose best token differs.
    parted: f64,
}

/// Measured: the middle row 8e-8 (Q2_K) to 1.8e-7 (Q5_1), the mean 1e-7, where nothing turned, to 4.9e-3 (olmoe), and 1 of
/// 160 best tokens (olmoe), else none.
const IN_HALVES: Tolerance = Tolerance { median: 4e-7, rms: 1e-2, parted: 0.02 };

/// Where weights are floats the order of additions is in all that is computed with them, and turns the half precision of
/// some key or value in nearly every row. Measured: the middle row 1e-6 (llama) to 9e-5 (gemma3), the mean 6e-6 (llama) to
/// 2.5e-3 (mixtral, of which a part is in eight bits).
const OF_FLOATS: Tolerance = Tolerance { median: 2e-4, rms: 1e-2, parted: 0.02 };

/// Beside eight bits, queries and weights have sixteen, which the reader does not imitate: that is worth a
/// hundred-thousandth, and so turns something in nearly every row. Measured: the middle row 8e-6 (floats) to 1.9e-2
/// (gemma3), the mean 7e-3 (floats) to 3.4e-2 (phimoe), 5 % of best tokens (gemma3).
const IN_BYTES: Tolerance = Tolerance { median: 4e-2, rms: 5e-2, parted: 0.08 };

/// How many times what is tolerated a difference is; up to one is well.
pub(super) fn excess(found: &Difference, model: &Model, kv: KvFormat) -> f64 {
    let tolerance = match (kv, model.weights().operands()) {
        (KvFormat::F16, Operands::Bytes) => IN_HALVES,
        (KvFormat::F16, Operands::BytesAndFloats) => OF_FLOATS,
        (KvFormat::Int8 | KvFormat::Int4, _) => IN_BYTES,
    };
    (found.rms / tolerance.rms).max(found.median / tolerance.median).max(found.parted / tolerance.parted)
}

/// The kernels of `model` against a reading of `path`, over several texts.
pub(super) fn compare(model: &Model, path: &Path, kv: KvFormat) -> Difference {
    let (mut kernels, mut reader) = (Vec::new(), Vec::new());
    for text in texts() {
        kernels.extend(by_kernels(model, &text, kv));
        reader.extend(by_reader(path, &text, Rounding::AsKernels { kv }));
    }
    difference(&kernels, &reader, model.blueprint().vocabulary)
}

/// Longer than the tiny models' windows, short so that what turns in one row reaches few.
fn texts() -> Vec<Vec<TokenId>> {
    const LEN: usize = 40;
    let tokens = Golden::of("llama").tokens();
    (0..tokens.len())
        .step_by(LEN / 2)
        .map(|start| tokens.iter().copied().cycle().skip(start).take(LEN).collect())
        .collect()
}

/// A tiny model as it is, in floats, and in eight bits.
fn check(name: &str) {
    check_file(name, &model(name));
    check_file(&format!("{name} in eight bits"), quantised(name, TensorType::Q8_0, quantise::q8_0).path());
}

fn check_file(what: &str, path: &Path) {
    let model = load(path);
    for kv in KvFormat::ALL {
        let found = compare(&model, path, kv);
        eprintln!("{what} {kv:?}: {found}");
        assert!(excess(&found, &model, kv) <= 1.0, "{what} {kv:?}: {found}");
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
fn gpt_oss_with_experts_in_four_bits() {
    check_file("gptoss_mxfp4", &model("gptoss_mxfp4"));
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
fn phi3_in_one_tensor_each_and_a_window() {
    check("phi3");
}

#[test]
fn phi3_with_two_key_heads() {
    check("phi3_long");
}

#[test]
fn every_tensor_type() {
    for (name, kind) in random_blocks::models() {
        check_file(name, random_blocks::model_of(kind).path());
    }
}

#[test]
fn quantised_experts() {
    for (name, kind, quantiser) in [
        ("olmoe", TensorType::Q4_0, quantise::q4_0 as fn(&[f32]) -> Vec<u8>),
        ("qwen2moe", TensorType::Q4_1, quantise::q4_1),
    ] {
        check_file(&format!("{name} {}", kind.name()), quantised(name, kind, quantiser).path());
    }
}

/// A tiny model with its matrices quantised where rows are whole blocks, but for routers and gates of experts.
fn quantised(name: &str, kind: TensorType, quantiser: fn(&[f32]) -> Vec<u8>) -> NamedTempFile {
    rewritten(&model(name), |name, shape, weights| {
        let is_matrix = shape.len() > 1 && !name.contains("gate_inp") && shape[0].is_multiple_of(32);
        if is_matrix { (kind, quantiser(&weights)) } else { floats(&weights) }
    })
}
