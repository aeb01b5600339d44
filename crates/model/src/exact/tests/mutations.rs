//! Wrong settings are noticed: with each of these bugs the kernels fail the comparison that they pass without it, and the
//! reader fails its own with `transformers`. What is tolerated is exceeded by the factors that the tests print.

use super::against_kernels::{compare, excess};
use super::against_transformers::{TOLERANCE, error_with};
use super::rewritten::{floats, rewritten};
use super::{load, model};
use crate::Model;
use crate::arch::{Blueprint, ExpertPlan, Extra, Rope};
use crate::gguf::TensorType;
use crate::kv::KvFormat;
use duet_kernels::fused::Routing;
use duet_kernels::matmul::Gating;
use half::f16;
use tempfile::NamedTempFile;

fn check(what: &str, name: &str, bug: impl Fn(&mut Blueprint)) {
    let path = model(name);
    let model = load(&path).with_blueprint(&bug);
    let found = compare(&model, &path, KvFormat::F16);
    let (kernels, reader) = (excess(&found, &model, KvFormat::F16), error_with(name, &bug) / TOLERANCE);
    eprintln!("{what}, {name}: {found}: {kernels:.0} times what is tolerated; the reader {reader:.0}");
    assert!(kernels > 1.0, "{what} passes: {found}");
    assert!(reader > 1.0, "{what} passes in the reader");
}

fn with_base(theta: f64, scale: f64) -> impl Fn(&mut Rope) {
    move |rope| {
        let dims = 2.0 * rope.frequencies.len() as f64;
        let frequency = |pair: usize| (theta.powf(-2.0 * pair as f64 / dims) / scale) as f32;
        rope.frequencies = (0..rope.frequencies.len()).map(frequency).collect();
    }
}

#[test]
fn the_base_of_global_layers() {
    check("a base of 10^4 for 10^6", "gemma3", |b| with_base(1e4, 8.0)(&mut b.ropes[0]));
}

#[test]
fn how_far_positions_are_stretched() {
    check("stretched by 4 for 8", "gemma3", |b| with_base(1e6, 4.0)(&mut b.ropes[0]));
    check("stretched by 3 for 4", "llama_rope_linear", |b| with_base(1e4, 3.0)(&mut b.ropes[0]));
}

#[test]
fn the_scale_of_embeddings() {
    check("embeddings × 1.03", "gemma3", |b| b.embedding_scale *= 1.03);
}

#[test]
fn the_scale_of_scores() {
    for name in ["llama", "qwen2", "qwen3", "gemma3"] {
        check("scores × 1.05", name, |b| b.attention_scale *= 1.05);
    }
}

#[test]
fn what_norms_add() {
    for name in ["llama", "qwen2", "qwen3", "phimoe"] {
        check("epsilon 10^-3", name, |b| b.epsilon = 1e-3);
    }
}

#[test]
fn the_length_of_windows() {
    check("a window of 17 for 16", "gemma3", |b| {
        b.layers.iter_mut().for_each(|layer| layer.window = layer.window.map(|window| window + 1));
    });
}

/// What the kernels have in their weights, so that only the reader can be given another setting.
#[test]
fn what_only_some_architectures_have() {
    let check = |what: &str, name: &str, bug: &dyn Fn(&mut Blueprint)| {
        let excess = error_with(name, bug) / TOLERANCE;
        eprintln!("{what}, {name}: the reader {excess:.0} times what is tolerated");
        assert!(excess > 1.0, "{what} passes in the reader");
    };
    check("no sinks", "gptoss", &|b| b.extras = &[Extra::QkvBias, Extra::OutputBias, NORM, Extra::ExpertBiases]);
    check("no biases of experts", "gptoss", &|b| b.extras = &[Extra::QkvBias, Extra::OutputBias, NORM, Extra::Sinks]);
    check("SiLU for the clamped gate", "gptoss", &|b| b.gating = Gating::Silu);
    check("no bias that chooses", "glm4moe_air", &|b| b.extras = &[Extra::QkvBias, NORM]);
    let routing = |b: &mut Blueprint, routing| b.experts = b.experts.map(|plan| ExpertPlan { routing, ..plan });
    check("a scale of 1.4 for 1.5", "glm4moe", &|b| {
        routing(b, Routing::Sigmoid { divided: Some(1e-20), scale: 1.4 });
    });
    check("weights that do not sum to one", "glm4moe", &|b| {
        routing(b, Routing::Sigmoid { divided: None, scale: 1.5 });
    });
    check("one expert for two", "gemma4_experts", &|b| {
        b.experts = b.experts.map(|plan| ExpertPlan { chosen: 1, ..plan })
    });
    check("rope over a quarter of a head for half", "glm4moe", &|b| b.ropes[0].frequencies.truncate(4));
    check("values as they are", "gemma4", &|b| b.extras = &[Extra::HeadNorms, Extra::PostNorms, Extra::LayerScales]);
    check("no factors of layers", "gemma4", &|b| b.extras = &[Extra::HeadNorms, Extra::PostNorms, Extra::ValueNorms]);
    check("logits that nothing bounds", "gemma4", &|b| b.logit_cap = None);
    check("keys of the layer before the last", "gemma4", &|b| b.layers[5].cache_of = Some(1));
}

const NORM: Extra = Extra::NormBehindAttention;

#[test]
fn the_activation() {
    check("SiLU for GELU", "gemma3", |b| b.gating = Gating::Silu);
    check("GELU for SiLU", "llama", |b| b.gating = Gating::GeluTanh);
}

/// `x σ(1.702 x)` in place of GELU is SiLU of gates that are 1.702 times as large: that the result is as many times as large
/// the norm after it takes back. Gates have one scale for all, so that they round the same at another one.
#[test]
fn the_approximation_of_the_activation() {
    const SLOPE: f32 = 1.702;
    let (right, quick) = (with_scales(1.0, 1.0), with_scales(SLOPE, 1.0));
    let excess = |model: Model| {
        let found = compare(&model, right.path(), KvFormat::F16);
        let excess = excess(&found, &model, KvFormat::F16);
        eprintln!("gemma3: {found}: {excess:.2} times what is tolerated");
        excess
    };
    assert!(excess(load(quick.path()).with_blueprint(|b| b.gating = Gating::Silu)) > 1.0, "quick GELU passes");
    for same in [load(right.path()), load(with_scales(1.0, SLOPE).path())] {
        assert!(excess(same) <= 1.0, "it is not the scales that are noticed");
    }
}

/// Gemma, with gates and values in eight bits, both of so many 128ths.
fn with_scales(gates: f32, values: f32) -> NamedTempFile {
    rewritten(&model("gemma3"), |name, _, weights| {
        let scale = match name {
            _ if name.contains("ffn_gate") => gates,
            _ if name.contains("ffn_up") => values,
            _ => return floats(&weights),
        };
        let scale = f16::from_f32(scale / 128.0).to_le_bytes();
        let quant = |weight: &f32| ((weight * 128.0).round().clamp(-127.0, 127.0) as i8).to_le_bytes();
        let block = |block: &[f32]| scale.into_iter().chain(block.iter().flat_map(quant)).collect::<Vec<u8>>();
        (TensorType::Q8_0, weights.chunks_exact(32).flat_map(block).collect())
    })
}
