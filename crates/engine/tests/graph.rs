//! What the scheduler is told of a model whose layers differ: each part of a pass by its own mean.

use duet_engine::profile::heg;
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_scheduler::heg::{LayerNodes, Windowed};
use duet_types::Node;
use std::ops::Range;

fn model(name: &str) -> Model {
    let path = format!("{}/../model/tests/fixtures/golden_{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::load(path.as_ref(), &LoadOptions::default(), &mut |_| {}).unwrap()
}

/// Multiplications of a row in the nodes of a span: as the model counts them, and by the means of these nodes.
fn macs(model: &Model, span: Range<usize>, of: &LayerNodes) -> [f64; 2] {
    let nodes = span.map(|index| model.order().node(index));
    nodes.fold([0.0; 2], |[counted, told], node| {
        let mean = match node {
            Node::Qkv { .. } => of.qkv.macs_per_row,
            Node::Ffn { .. } => of.ffn.macs_per_row,
            _ => 0.0,
        };
        [counted + model.linear_of(node).macs as f64, told + mean]
    })
}

#[test]
fn the_means_of_a_part_add_up_to_what_is_in_it() {
    for name in ["llama", "gemma3", "gemma4", "glm4moe_air", "lfm2", "qwen3next"] {
        let model = model(name);
        let (heg, count) = (heg(&model, KvFormat::F16), model.node_count());
        let part = heg.for_head.unwrap();
        for (span, of) in [(0..part.from, part.before), (part.from..count, part.behind), (0..count, heg.mean())] {
            let [counted, told] = macs(&model, span.clone(), &of);
            // Means are whole numbers.
            assert!((counted - told).abs() <= span.len() as f64, "{name} {span:?}: {counted} {told}");
        }
    }
}

#[test]
fn wide_layers_behind_a_prompt_s_are_told_apart() {
    // Blocks of 64 but in the last two of six layers, where they are twice as wide.
    let part = heg(&model("gemma4"), KvFormat::F16).for_head.unwrap();
    assert!(part.behind.ffn.macs_per_row > 1.3 * part.before.ffn.macs_per_row, "{part:?}");
}

#[test]
fn a_window_has_the_share_of_attention_that_its_layers_have() {
    let windowed = |name| heg(&model(name), KvFormat::F16).attention.windowed;
    // Every other layer, whose heads are half as wide as the others', with as many key heads.
    let share = 1.0 / 3.0;
    assert_eq!(windowed("gemma4"), Some(Windowed { window: 16.0, share, share_of_bytes: share }));
    assert_eq!(windowed("llama"), None);
}
