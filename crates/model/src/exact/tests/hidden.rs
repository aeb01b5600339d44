//! The sums of final hidden states, of which embeddings are made: the kernels' against the reader's, for every architecture,
//! and the kernels' own however a text is cut.

use super::{ExactReader, Golden, Model, Rounding, all_rows, load, model, relative};
use crate::forward::{Activations, Pass, Segment};
use crate::kv::KvFormat;
use duet_kernels::crew::Scoped;
use duet_types::{TokenId, Tokens};

/// Of the kernels against the reader that rounds nothing: what eight bits cost. Measured: 9.1e-3 (qwen2) to 5.6e-2
/// (mixtral).
const QUANTISED: f64 = 0.08;
/// Against the one that rounds as they do. Measured: 5e-8, where nothing turned, to 5.6e-4.
const AS_KERNELS: f64 = 1e-2;

const ALL: [&str; 23] = [
    "llama",
    "llama_rope_linear",
    "llama_rope_llama3",
    "qwen2",
    "qwen3",
    "qwen3_rope_yarn",
    "smollm3",
    "gemma3",
    "mixtral",
    "olmoe",
    "qwen2moe",
    "qwen3moe",
    "phimoe",
    "phimoe_longrope",
    "phi3",
    "phi3_long",
    "gptoss",
    "gptoss_mxfp4",
    "glm4moe",
    "glm4moe_air",
    "lfm2",
    "lfm2moe",
    "gemma4_experts",
];

/// In passes of so many tokens.
fn by_kernels(model: &Model, tokens: &[TokenId], chunk: usize, threads: usize) -> Vec<f64> {
    let mut kv = model.kv_pool(KvFormat::F16, Tokens(512)).table();
    let mut activations = Activations::new(model, chunk);
    let mut sum = vec![0.0; model.blueprint().hidden];
    for tokens in tokens.chunks(chunk) {
        let mut pass = Pass::new(model, activations, vec![Segment::new(kv, tokens.to_vec())]).unwrap();
        model.run_span(&mut pass, 0..model.node_count(), &Scoped { threads });
        model.add_hidden(&pass, 0..tokens.len(), &mut sum);
        let (buffers, mut tables) = pass.finish();
        (activations, kv) = (buffers, tables.remove(0));
    }
    sum
}

fn by_reader(name: &str, tokens: &[TokenId], rounding: Rounding) -> Vec<f64> {
    let reader = ExactReader::open(&model(name), rounding).unwrap();
    let hidden = reader.hidden(tokens, &all_rows(tokens)).unwrap();
    let mut sum = vec![0.0; reader.blueprint().hidden];
    for row in hidden.chunks_exact(sum.len()) {
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
    }
    sum
}

fn difference(sum: &[f64], expected: &[f64]) -> f64 {
    let floats = |values: &[f64]| values.iter().map(|x| *x as f32).collect::<Vec<_>>();
    relative(&floats(sum), &floats(expected))
}

#[test]
fn sums_are_those_of_the_reader() {
    for name in ALL {
        let (model, tokens) = (load(&model(name)), Golden::of("llama").tokens());
        let tokens = &tokens[..40];
        let sum = by_kernels(&model, tokens, 40, 2);
        let exact = difference(&sum, &by_reader(name, tokens, Rounding::None));
        let rounded = difference(&sum, &by_reader(name, tokens, Rounding::AsKernels { kv: KvFormat::F16 }));
        eprintln!("{name}: {exact:.1e} of the exact sum, {rounded:.1e} of the rounded one");
        assert!(exact < QUANTISED && rounded < AS_KERNELS, "{name}: {exact}, {rounded}");
    }
}

#[test]
fn a_sum_is_the_same_to_the_bit_however_it_is_cut() {
    for name in ["llama", "gemma3", "olmoe", "phimoe"] {
        let (model, tokens) = (load(&model(name)), Golden::of("llama").tokens());
        let whole = by_kernels(&model, &tokens, tokens.len(), 1);
        for (chunk, threads) in [(1, 1), (7, 3), (64, 2)] {
            assert_eq!(by_kernels(&model, &tokens, chunk, threads), whole, "{name} in chunks of {chunk}");
        }
    }
}
