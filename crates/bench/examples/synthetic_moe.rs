//! A mixture of experts of random weights, shaped like Qwen3-30B-A3B with fewer layers: for speed, which does not depend
//! on what a model has learned. Other engines read the file as well.
//!
//! `cargo run --release -p duet-bench --example synthetic_moe -- TOKENIZER.gguf OUT.gguf [LAYERS]`
//!
//! The tokenizer is that of any model, padded out to the vocabulary. Weights are as large as those that models begin
//! their training with, and embeddings so much larger that what a token is decides which experts it goes to. Tensors are
//! parts of one stretch of random blocks, so that nothing is held in memory but that. Layers take 350 MB each.

use duet_model::gguf::writer::{GgufWriter, quantise};
use duet_model::gguf::{Array, GgufError, GgufFile, TensorType, Value};
use duet_sim::Random;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

const LAYERS: u32 = 12;
const HIDDEN: u64 = 2048;
const HEADS: u64 = 32;
const KV_HEADS: u64 = 4;
const HEAD_DIM: u64 = 128;
const EXPERTS: u64 = 128;
const CHOSEN: u32 = 8;
const EXPERT_WIDTH: u64 = 768;
const VOCABULARY: u64 = 151_936;

/// Standard deviations.
const WEIGHT: f32 = 0.02;
const EMBEDDING: f32 = 1.0;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (tokenizer, out, layers) = match arguments.as_slice() {
        [tokenizer, out] => (tokenizer, out, LAYERS),
        [tokenizer, out, layers] => (tokenizer, out, layers.parse()?),
        _ => return Err("usage: synthetic_moe TOKENIZER.gguf OUT.gguf [LAYERS]".into()),
    };
    let tokenizer = GgufFile::open(Path::new(tokenizer))?;
    let mut random = Random::new(1);
    let largest = HIDDEN * VOCABULARY.max(EXPERTS * EXPERT_WIDTH);
    let stretch = Stretch { blocks: blocks(largest + SPARE, WEIGHT, &mut random) };
    let embeddings = blocks(HIDDEN * VOCABULARY, EMBEDDING, &mut random);
    let mut writer = GgufWriter::new();
    settings(&mut writer, layers)?;
    vocabulary(&mut writer, &tokenizer)?;
    writer.tensor("token_embd.weight", &[HIDDEN, VOCABULARY], TensorType::Q4_0, embeddings)?;
    let mut tensors = Tensors { writer: &mut writer, stretch: &stretch, random: &mut random };
    tensors.ones("output_norm.weight", HIDDEN)?;
    tensors.matrix("output.weight", &[HIDDEN, VOCABULARY])?;
    for layer in 0..layers {
        tensors.layer(layer)?;
    }
    Ok(writer.write_to(&mut BufWriter::new(File::create(out)?))?)
}

fn settings(writer: &mut GgufWriter<'_>, layers: u32) -> Result<(), GgufError> {
    let numbers = [
        ("block_count", layers),
        ("context_length", 40_960),
        ("embedding_length", HIDDEN as u32),
        ("feed_forward_length", 6144),
        ("attention.head_count", HEADS as u32),
        ("attention.head_count_kv", KV_HEADS as u32),
        ("attention.key_length", HEAD_DIM as u32),
        ("attention.value_length", HEAD_DIM as u32),
        ("expert_count", EXPERTS as u32),
        ("expert_used_count", CHOSEN),
        ("expert_feed_forward_length", EXPERT_WIDTH as u32),
    ];
    writer.metadata("general.architecture", "qwen3moe")?;
    writer.metadata("general.name", format!("Random weights shaped like Qwen3-30B-A3B, {layers} layers"))?;
    for (key, number) in numbers {
        writer.metadata(&format!("qwen3moe.{key}"), number)?;
    }
    writer.metadata("qwen3moe.rope.freq_base", 1e6_f32)?;
    writer.metadata("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6_f32)?;
    Ok(())
}

/// The tokenizer of `from`, with tokens that stand for nothing behind its own.
fn vocabulary(writer: &mut GgufWriter<'_>, from: &GgufFile) -> Result<(), Box<dyn Error>> {
    /// How files mark such tokens.
    const UNUSED: i32 = 5;
    for (key, value) in from.metadata().iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
        let value = match (key, value.clone()) {
            ("tokenizer.ggml.tokens", Value::Array(Array::String(mut tokens))) => {
                tokens.extend((tokens.len() as u64..VOCABULARY).map(|token| format!("<|unused_{token}|>")));
                Value::Array(Array::String(tokens))
            }
            ("tokenizer.ggml.token_type", Value::Array(Array::I32(mut types))) => {
                types.resize(types.len().max(VOCABULARY as usize), UNUSED);
                Value::Array(Array::I32(types))
            }
            ("tokenizer.ggml.scores", _) => return Err("a tokenizer with scores: give one of byte pairs".into()),
            (_, value) => value,
        };
        writer.metadata(key, value)?;
    }
    Ok(())
}

/// Random `Q4_0` blocks; the parts of it are tensors.
struct Stretch {
    blocks: Vec<u8>,
}

/// How many weights a tensor may begin behind the first at most.
const SPARE: u64 = 1 << 22;

/// Weights of a block, and its bytes.
const BLOCK: (u64, u64) = (32, 18);

fn blocks(weights: u64, deviation: f32, random: &mut Random) -> Vec<u8> {
    // Evenly distributed numbers in -1..1 deviate by 1/√3.
    let scale = f64::from(deviation) * 3.0_f64.sqrt();
    let row = |_| (0..HIDDEN).map(|_| ((random.share() * 2.0 - 1.0) * scale) as f32).collect::<Vec<f32>>();
    (0..weights.div_ceil(HIDDEN)).map(row).flat_map(|row| quantise::q4_0(&row)).collect()
}

struct Tensors<'w, 'a> {
    writer: &'w mut GgufWriter<'a>,
    stretch: &'a Stretch,
    random: &'w mut Random,
}

impl Tensors<'_, '_> {
    fn layer(&mut self, layer: u32) -> Result<(), GgufError> {
        let (queries, keys) = (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM);
        let matrices: [(&str, &[u64]); 7] = [
            ("attn_q", &[HIDDEN, queries]),
            ("attn_k", &[HIDDEN, keys]),
            ("attn_v", &[HIDDEN, keys]),
            ("attn_output", &[queries, HIDDEN]),
            ("ffn_gate_exps", &[HIDDEN, EXPERT_WIDTH, EXPERTS]),
            ("ffn_up_exps", &[HIDDEN, EXPERT_WIDTH, EXPERTS]),
            ("ffn_down_exps", &[EXPERT_WIDTH, HIDDEN, EXPERTS]),
        ];
        let norms = [("attn_norm", HIDDEN), ("attn_q_norm", HEAD_DIM), ("attn_k_norm", HEAD_DIM), ("ffn_norm", HIDDEN)];
        for (name, shape) in matrices {
            self.matrix(&format!("blk.{layer}.{name}.weight"), shape)?;
        }
        for (name, width) in norms {
            self.ones(&format!("blk.{layer}.{name}.weight"), width)?;
        }
        self.router(&format!("blk.{layer}.ffn_gate_inp.weight"))
    }

    fn matrix(&mut self, name: &str, shape: &[u64]) -> Result<(), GgufError> {
        let first = self.random.between(0, (SPARE / BLOCK.0) as u32) as usize * BLOCK.1 as usize;
        let bytes = (shape.iter().product::<u64>() / BLOCK.0 * BLOCK.1) as usize;
        self.writer.tensor(name, shape, TensorType::Q4_0, &self.stretch.blocks[first..first + bytes])?;
        Ok(())
    }

    fn ones(&mut self, name: &str, width: u64) -> Result<(), GgufError> {
        let ones: Vec<u8> = (0..width).flat_map(|_| 1.0_f32.to_le_bytes()).collect();
        self.writer.tensor(name, &[width], TensorType::F32, ones)?;
        Ok(())
    }

    /// Scores of normed rows that deviate by about one.
    fn router(&mut self, name: &str) -> Result<(), GgufError> {
        let scale = (3.0 / HIDDEN as f64).sqrt();
        let mut weight = || ((self.random.share() * 2.0 - 1.0) * scale) as f32;
        let weights: Vec<u8> = (0..HIDDEN * EXPERTS).flat_map(|_| weight().to_le_bytes()).collect();
        self.writer.tensor(name, &[HIDDEN, EXPERTS], TensorType::F32, weights)?;
        Ok(())
    }
}
