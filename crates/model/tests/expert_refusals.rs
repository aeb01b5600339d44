//! Files whose experts do not fit together: refused when they are loaded, with a message that says what is wrong.
//!
//! Each is a tiny model that loads, with one thing changed.

use duet_model::gguf::{Array, GgufFile, TensorType, Value, writer::GgufWriter};
use duet_model::{LoadOptions, Model};
use std::path::Path;

/// What is changed.
enum Change<'a> {
    Key(&'a str, Value),
    NoKey(&'a str),
    NoTensor(&'a str),
    /// Another shape, with zeros.
    Shape(&'a str, &'a [u64]),
    /// Another first value.
    First(&'a str, f32),
}
use Change::{First, Key, NoKey, NoTensor, Shape};

fn changed(name: &str, change: &Change<'_>) -> Vec<u8> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    changed_file(&fixtures.join(format!("golden_{name}.gguf")), change)
}

fn changed_file(path: &Path, change: &Change<'_>) -> Vec<u8> {
    let file = GgufFile::open(path).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        match change {
            NoKey(gone) if *gone == key => continue,
            Key(changed, other) if *changed == key => writer.metadata(key, other.clone()),
            _ => writer.metadata(key, value.clone()),
        }
        .unwrap();
    }
    for info in file.tensors() {
        let tensor = file.tensor(&info.name).unwrap();
        let mut floats: Vec<f32> = (0..info.rows())
            .flat_map(|row| {
                let mut values = vec![0.0; info.row_len()];
                tensor.dequantize_row(row, &mut values);
                values
            })
            .collect();
        let mut shape = info.shape.clone();
        match change {
            NoTensor(gone) if *gone == info.name => continue,
            Shape(changed, other) if *changed == info.name => {
                shape = other.to_vec();
                floats = vec![0.0; other.iter().product::<u64>() as usize];
            }
            First(changed, value) if *changed == info.name => floats[0] = *value,
            _ => {}
        }
        let bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
        writer.tensor(&info.name, &shape, TensorType::F32, bytes).unwrap();
    }
    writer.to_bytes()
}

fn load(bytes: &[u8]) -> Result<Model, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, bytes).unwrap();
    Model::load(file.path(), &LoadOptions::default(), &mut |_| {}).map_err(|error| error.to_string())
}

fn check(name: &str, change: Change<'_>, message: &str) {
    assert_eq!(load(&changed(name, &change)).map(|_| ()).unwrap_err(), message);
}

#[test]
fn an_unchanged_copy_is_loaded() {
    for name in ["mixtral", "olmoe", "qwen2moe", "qwen3moe", "phimoe"] {
        load(&changed(name, &NoTensor("none"))).unwrap();
    }
}

#[test]
fn numbers_of_experts_that_make_no_sense() {
    check("olmoe", Key("olmoe.expert_count", Value::U32(0)), "`olmoe.expert_count`: 0 is not within 1..=16777216");
    check("olmoe", Key("olmoe.expert_count", Value::U32(5000)), "`olmoe.expert_count`: 5000 experts, more than 4096");
    check(
        "olmoe",
        Key("olmoe.expert_used_count", Value::U32(9)),
        "`olmoe.expert_used_count`: each token goes to 9 experts, but there are 8",
    );
    check(
        "qwen3moe",
        Key("qwen3moe.expert_used_count", Value::U32(0)),
        "`qwen3moe.expert_used_count`: 0 is not within 1..=16777216",
    );
    check("phimoe", NoKey("phimoe.expert_count"), "the metadata key `phimoe.expert_count` is missing");
    check("mixtral", NoKey("llama.expert_used_count"), "the metadata key `llama.expert_used_count` is missing");
}

#[test]
fn experts_of_another_number_or_shape_than_the_settings_say() {
    check(
        "olmoe",
        Key("olmoe.expert_count", Value::U32(7)),
        "tensor `blk.0.ffn_gate_inp.weight` has shape [64, 8] where [64, 7] is expected",
    );
    check(
        "olmoe",
        Shape("blk.1.ffn_up_exps.weight", &[64, 32, 4]),
        "tensor `blk.1.ffn_up_exps.weight` has shape [64, 32, 4] where [64, 32, 8] is expected",
    );
    // As many rows, but of other experts.
    check(
        "olmoe",
        Shape("blk.0.ffn_down_exps.weight", &[32, 8, 64]),
        "tensor `blk.0.ffn_down_exps.weight` has shape [32, 8, 64] where [32, 64, 8] is expected",
    );
    check(
        "mixtral",
        Shape("blk.0.ffn_gate_exps.weight", &[64, 240]),
        "tensor `blk.0.ffn_gate_exps.weight` has shape [64, 240] where [64, 48, 5] is expected",
    );
    check(
        "qwen3moe",
        Key("qwen3moe.expert_feed_forward_length", Value::U32(64)),
        "tensor `blk.0.ffn_gate_exps.weight` has shape [64, 32, 9] where [64, 64, 9] is expected",
    );
    check(
        "qwen2moe",
        Key("qwen2moe.expert_shared_feed_forward_length", Value::U32(32)),
        "tensor `blk.0.ffn_gate_shexp.weight` has shape [64, 64] where [64, 32] is expected",
    );
}

#[test]
fn routers_that_are_not_there_or_not_whole() {
    check("olmoe", NoTensor("blk.1.ffn_gate_inp.weight"), "tensor `blk.1.ffn_gate_inp.weight` is missing");
    check("mixtral", NoTensor("blk.0.ffn_gate_exps.weight"), "tensor `blk.0.ffn_gate_exps.weight` is missing");
    check(
        "qwen2moe",
        NoTensor("blk.0.ffn_gate_inp_shexp.weight"),
        "tensor `blk.0.ffn_gate_inp_shexp.weight` is missing",
    );
    check("phimoe", NoTensor("output.bias"), "tensor `output.bias` is missing");
    check(
        "olmoe",
        Shape("blk.0.ffn_gate_inp.weight", &[64, 6]),
        "tensor `blk.0.ffn_gate_inp.weight` has shape [64, 6] where [64, 8] is expected",
    );
    check(
        "olmoe",
        First("blk.0.ffn_gate_inp.weight", f32::NAN),
        "tensor `blk.0.ffn_gate_inp.weight`: it holds infinities or NaN",
    );
    check(
        "olmoe",
        Shape("blk.0.attn_q_norm.weight", &[32]),
        "tensor `blk.0.attn_q_norm.weight` has shape [32] where [64] is expected",
    );
}

/// A file that does not say how wide an expert is means that those of a token together are as wide as it says.
#[test]
fn widths_that_are_not_said() {
    let gone = changed("qwen3moe", &NoKey("qwen3moe.expert_feed_forward_length"));
    load(&gone).unwrap();
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&path, gone).unwrap();
    let message = load(&changed_file(path.path(), &Key("qwen3moe.expert_used_count", Value::U32(5)))).map(|_| ());
    let expected =
        "`qwen3moe.expert_feed_forward_length`: it is missing, and 96 does not divide by the 5 chosen experts";
    assert_eq!(message.unwrap_err(), expected);
}

#[test]
fn experts_beside_a_block_that_are_not_whole() {
    let check = |change, message: &str| check("gemma4_experts", change, message);
    check(
        NoKey("gemma4.expert_feed_forward_length"),
        "the metadata key `gemma4.expert_feed_forward_length` is missing",
    );
    check(
        Key("gemma4.feed_forward_length", Value::Array(Array::U32(vec![64, 64, 32]))),
        "`gemma4.feed_forward_length`: blocks of 64 and 32 beside experts, which are to be of one width",
    );
    check(NoTensor("blk.1.ffn_down_exps.scale"), "tensor `blk.1.ffn_down_exps.scale` is missing");
    check(
        Shape("blk.2.ffn_gate_inp.scale", &[5]),
        "tensor `blk.2.ffn_gate_inp.scale` has shape [5] where [32] is expected",
    );
    check(NoTensor("blk.0.ffn_gate_up_exps.weight"), "tensor `blk.0.ffn_gate_up_exps.weight` is missing");
    check(
        Shape("blk.0.ffn_gate_up_exps.weight", &[32, 32, 5]),
        "tensor `blk.0.ffn_gate_up_exps.weight` has shape [32, 32, 5] where [32, 64, 5] is expected",
    );
    check(
        First("blk.0.post_ffw_norm_2.weight", f32::INFINITY),
        "tensor `blk.0.post_ffw_norm_2.weight`: it holds infinities or NaN",
    );
}

#[test]
fn devices_say_what_they_do_not_take() {
    let model = load(&changed("gemma4_experts", &NoTensor("none"))).unwrap();
    let refusal = model.read_experts(1, |_| ()).unwrap_err().to_string();
    let expected = "layer 1 has experts beside a dense block, which devices do not take yet: run this model on the CPU";
    assert_eq!(refusal, expected);
}
