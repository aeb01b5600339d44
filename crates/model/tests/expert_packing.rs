//! Packing a mixture for the disk: however large it is, memory is that of a few matrices.

#![cfg(target_os = "linux")]

use duet_model::gguf::writer::GgufWriter;
use duet_model::gguf::{GgufFile, TensorType};
use duet_model::{LoadError, LoadOptions, Model};
use duet_types::Bytes;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const HIDDEN: u64 = 256;
const HEADS: u64 = 4;
const HEAD: u64 = 64;
const EXPERTS: u64 = 64;
const WIDTH: u64 = 512;
const LAYERS: u32 = 4;

/// A mixture of 57 MB of experts, with the tokenizer of a fixture.
fn write_mixture(path: &Path) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden_qwen3moe.gguf");
    let tokenizer = GgufFile::open(&fixture).unwrap();
    let vocabulary = tokenizer.tensor("token_embd.weight").unwrap().info.rows() as u64;
    let mut writer = GgufWriter::new();
    writer.metadata("general.architecture", "qwen3moe").unwrap();
    for (key, number) in [
        ("block_count", LAYERS),
        ("context_length", 64),
        ("embedding_length", HIDDEN as u32),
        ("feed_forward_length", WIDTH as u32),
        ("attention.head_count", HEADS as u32),
        ("attention.head_count_kv", HEADS as u32),
        ("attention.key_length", HEAD as u32),
        ("attention.value_length", HEAD as u32),
        ("expert_count", EXPERTS as u32),
        ("expert_used_count", 2),
        ("expert_feed_forward_length", WIDTH as u32),
    ] {
        writer.metadata(&format!("qwen3moe.{key}"), number).unwrap();
    }
    writer.metadata("qwen3moe.rope.freq_base", 1e6_f32).unwrap();
    writer.metadata("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6_f32).unwrap();
    for (key, value) in tokenizer.metadata().iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
        writer.metadata(key, value.clone()).unwrap();
    }
    // A block of 32 weights of four bits begins with its scale, 0.01 in half precision.
    let block: Vec<u8> = [0x1f, 0x21].into_iter().chain((0..16).map(|byte| byte * 15)).collect();
    let all = block.repeat((HIDDEN * WIDTH * EXPERTS / 32) as usize);
    let ones: Vec<u8> = (0..HIDDEN * EXPERTS).flat_map(|_| 1.0_f32.to_le_bytes()).collect();
    let mut matrix = |name: &str, shape: &[u64]| {
        let bytes = (shape.iter().product::<u64>() / 32 * 18) as usize;
        writer.tensor(name, shape, TensorType::Q4_0, &all[..bytes]).unwrap();
    };
    matrix("token_embd.weight", &[HIDDEN, vocabulary]);
    for layer in 0..LAYERS {
        for part in ["attn_q", "attn_k", "attn_v", "attn_output"] {
            matrix(&format!("blk.{layer}.{part}.weight"), &[HIDDEN, HEADS * HEAD]);
        }
        matrix(&format!("blk.{layer}.ffn_gate_exps.weight"), &[HIDDEN, WIDTH, EXPERTS]);
        matrix(&format!("blk.{layer}.ffn_up_exps.weight"), &[HIDDEN, WIDTH, EXPERTS]);
        matrix(&format!("blk.{layer}.ffn_down_exps.weight"), &[WIDTH, HIDDEN, EXPERTS]);
    }
    let mut floats = |name: &str, shape: &[u64]| {
        let bytes = (shape.iter().product::<u64>() * 4) as usize;
        writer.tensor(name, shape, TensorType::F32, &ones[..bytes]).unwrap();
    };
    floats("output_norm.weight", &[HIDDEN]);
    for layer in 0..LAYERS {
        for (norm, width) in [("attn_norm", HIDDEN), ("ffn_norm", HIDDEN), ("attn_q_norm", HEAD), ("attn_k_norm", HEAD)]
        {
            floats(&format!("blk.{layer}.{norm}.weight"), &[width]);
        }
        floats(&format!("blk.{layer}.ffn_gate_inp.weight"), &[HIDDEN, EXPERTS]);
    }
    writer.write_to(&mut BufWriter::new(File::create(path).unwrap())).unwrap();
}

/// What of this process's memory no file is behind.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// The most that it grows by while something is done.
fn growth<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let (before, most, done) = (anonymous(), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(anonymous().saturating_sub(before), Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        (result, most.load(Ordering::Relaxed))
    })
}

#[test]
fn a_mixture_is_packed_and_run_in_less_memory_than_its_experts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixture.gguf");
    write_mixture(&path);
    let memory = Bytes(6 << 20);
    let options = LoadOptions {
        packed: Some(folder.path().to_owned()),
        expert_memory: Some(memory),
        threads: 2,
        ..LoadOptions::default()
    };
    let Err(LoadError::NotPacked { path: packed, .. }) = Model::load(&path, &options, &mut |_| {}) else { panic!() };
    let (source, file) = (GgufFile::open(&path).unwrap(), File::create(&packed).unwrap());
    let (result, packing) = growth(|| Model::pack_into(&source, &file, &options, &mut |_| {}));
    result.unwrap();
    let experts = std::fs::metadata(&packed).unwrap().len();
    assert!(experts > 50 << 20, "{experts}");
    assert!(packing < 8 << 20, "packing took {packing} of memory, and the file has {experts} bytes");
    let (model, loading) = growth(|| Model::load(&path, &options, &mut |_| {}).unwrap());
    assert!(loading < 8 << 20, "loading took {loading} of memory");
    assert!(model.expert_memory().unwrap() <= memory);
}
