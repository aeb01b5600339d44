//! A tiny model in any tensor type: its blocks are random bytes with scales of a sane size, the same as
//! `scripts/golden/quant_models.py` makes of a tensor's name.

use super::model;
use super::rewritten::{Blocks, floats, metadata, saved};
use crate::gguf::{GgufFile, TensorType, Value};
use tempfile::NamedTempFile;

const HIDDEN: u64 = 256;
const FFN: u64 = 256;
const QUERIES: u64 = 256;
const KEYS: u64 = 32;
const VOCABULARY: u64 = 260;

/// Which type a matrix has, by its name.
pub(super) type Kinds = Box<dyn Fn(&str) -> TensorType>;

/// One model of each type, and one of mixed types, by the names that the reference has for them.
pub(super) fn models() -> Vec<(&'static str, Kinds)> {
    let mut models: Vec<(&'static str, Kinds)> = Vec::new();
    for kind in TensorType::ALL {
        models.push((kind.name(), Box::new(move |_| kind)));
    }
    models.push(("mixed", Box::new(mixed)));
    models
}

/// What files of mixed types are like: tensors that are packed together differ.
fn mixed(name: &str) -> TensorType {
    match name {
        "attn_v" | "ffn_down" | "output" => TensorType::Q6K,
        "ffn_up" => TensorType::Q5K,
        _ => TensorType::Q4K,
    }
}

/// One layer of Qwen 2's architecture; `kind` says the type of each matrix by its name.
pub(super) fn model_of(kind: Kinds) -> NamedTempFile {
    let template = GgufFile::open(&model("qwen2")).unwrap();
    let number = |key: &'static str, number: u64| (key, Value::U32(number as u32));
    let mut writer = metadata(
        &template,
        &[
            number("qwen2.block_count", 1),
            number("qwen2.embedding_length", HIDDEN),
            number("qwen2.feed_forward_length", FFN),
            number("qwen2.attention.head_count", QUERIES / KEYS),
            number("qwen2.attention.head_count_kv", 1),
        ],
    );
    for (name, inputs, outputs) in [
        ("token_embd", HIDDEN, VOCABULARY),
        ("output", HIDDEN, VOCABULARY),
        ("blk.0.attn_q", HIDDEN, QUERIES),
        ("blk.0.attn_k", HIDDEN, KEYS),
        ("blk.0.attn_v", HIDDEN, KEYS),
        ("blk.0.attn_output", QUERIES, HIDDEN),
        ("blk.0.ffn_gate", HIDDEN, FFN),
        ("blk.0.ffn_up", HIDDEN, FFN),
        ("blk.0.ffn_down", FFN, HIDDEN),
    ] {
        let short = name.trim_start_matches("blk.0.");
        let name = format!("{name}.weight");
        let (kind, blocks) = matrix(&name, kind(short), (inputs * outputs) as usize);
        writer.tensor(&name, &[inputs, outputs], kind, blocks).unwrap();
    }
    for name in ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"] {
        let name = format!("{name}.weight");
        let (kind, blocks) = floats(&steps(&name, HIDDEN as usize, 0, 17).map(|step| 1.0 + step).collect::<Vec<_>>());
        writer.tensor(&name, &[HIDDEN], kind, blocks).unwrap();
    }
    for (name, len) in [("attn_q", QUERIES), ("attn_k", KEYS), ("attn_v", KEYS)] {
        let name = format!("blk.0.{name}.bias");
        let (kind, blocks) = floats(&steps(&name, len as usize, 0, 16).collect::<Vec<_>>());
        writer.tensor(&name, &[len], kind, blocks).unwrap();
    }
    saved(&writer)
}

fn matrix(name: &str, kind: TensorType, elements: usize) -> Blocks {
    // Where a block has half-precision numbers, and the bits that their sign and exponent become.
    let halves: &[(usize, u16)] = match kind {
        TensorType::F32 => return floats(&steps(name, elements, 0, 18).collect::<Vec<_>>()),
        TensorType::F16 => {
            let halves = steps(name, elements, 5, 13).map(half::f16::from_f32);
            return (kind, halves.flat_map(half::f16::to_le_bytes).collect());
        }
        TensorType::BF16 => {
            let halves = steps(name, elements, 8, 10).map(half::bf16::from_f32);
            return (kind, halves.flat_map(half::bf16::to_le_bytes).collect());
        }
        TensorType::Q4_0 => &[(0, 0x2400)],
        TensorType::Q4_1 => &[(0, 0x2400), (2, 0xB000)],
        TensorType::Q5_0 => &[(0, 0x2000)],
        TensorType::Q5_1 => &[(0, 0x2000), (2, 0xB000)],
        TensorType::Q8_0 => &[(0, 0x1400)],
        TensorType::Q2K => &[(80, 0x2000), (82, 0x2400)],
        TensorType::Q3K => &[(108, 0x1800)],
        TensorType::Q4K => &[(0, 0x1000), (2, 0x1C00)],
        TensorType::Q5K => &[(0, 0x0C00), (2, 0x1C00)],
        TensorType::Q6K => &[(208, 0x0400)],
        TensorType::IQ4NL => &[(0, 0x1400)],
        TensorType::IQ4XS => &[(0, 0x0400)],
        TensorType::MXFP4 => &[],
    };
    let mut blocks = random_bytes(name, elements / kind.block_elements() * kind.block_bytes());
    for block in blocks.chunks_exact_mut(kind.block_bytes()) {
        for &(at, bits) in halves {
            let mantissa = u16::from_le_bytes([block[at], block[at + 1]]) & 0x03FF;
            block[at..at + 2].copy_from_slice(&(mantissa | bits).to_le_bytes());
        }
        if kind == TensorType::MXFP4 {
            block[0] = block[0] & 3 | 120;
        }
    }
    (kind, blocks)
}

/// Signed steps of 16 bits less the last `drop`, in units of 2^-`shift`.
fn steps(name: &str, count: usize, drop: u32, shift: i32) -> impl Iterator<Item = f32> {
    let zero = 32768 >> drop;
    let bytes = random_bytes(name, count * 2);
    let drawn: Vec<i32> = bytes.as_chunks().0.iter().map(|two| i32::from(u16::from_le_bytes(*two) >> drop)).collect();
    drawn.into_iter().map(move |drawn| (drawn - zero) as f32 / 2.0_f32.powi(shift))
}

/// Splitmix64 from a seed that is the name's FNV-1a hash.
fn random_bytes(name: &str, count: usize) -> Vec<u8> {
    let hash = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    let seed = name.bytes().fold(0xCBF2_9CE4_8422_2325, hash);
    let word = |index: u64| {
        let word = index.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed);
        let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    };
    (1..).flat_map(|index| word(index).to_le_bytes()).take(count).collect()
}
