//! A model of which a GPU holds some layers: the bits are those of a GPU that holds all, whichever layers they are, and
//! whatever became of the device before.

mod common;

use common::{adapter, fixture, loaded};
use duet_gpu::{Adapter, Fault, GpuError, GpuModel};
use duet_kernels::crew::Scoped;
use duet_model::Model;
use duet_model::forward::{Activations, HoldsLayers, Node, NotRun, Pass, Segment, SpanWise, TokenWise};
use duet_model::kv::KvFormat;
use duet_types::{Bytes, TokenId, Tokens};
use std::ops::Range;
use std::sync::Arc;

const CREW: Scoped = Scoped { threads: 2 };

/// The least memory that has room for a layer.
fn with_little_room(model: &Arc<Model>, adapter: &Adapter) -> GpuModel {
    let mut memory = 1 << 10;
    loop {
        match GpuModel::within(Arc::clone(model), adapter, Some(Bytes(memory))) {
            Err(GpuError::NoRoom { layer, room }) => assert!(layer > room),
            placed => break placed.unwrap(),
        }
        memory += memory / 16;
    }
}

/// Logits of a prompt whose nodes of some layers run on a GPU, and all others here.
fn logits(model: &Model, gpu: &dyn SpanWise, layers: &Range<usize>) -> Result<Vec<f32>, NotRun> {
    let rows = 70;
    let tokens: Vec<_> = (0..rows as u32).map(|i| TokenId((i * 37) % 250 + 3)).collect();
    let table = model.kv_pool(KvFormat::F16, Tokens(512)).table();
    let mut pass = Pass::new(model, Activations::new(model, rows), vec![Segment::new(table, tokens)]).unwrap();
    let is_there = |node: &Node| match *node {
        Node::Qkv { layer } | Node::Attention { layer } | Node::Ffn { layer } => layers.contains(&layer),
        _ => false,
    };
    let nodes = model.nodes();
    let first = nodes.iter().position(is_there).unwrap();
    let there: Vec<Node> = nodes.iter().copied().filter(is_there).collect();
    model.run_span(&mut pass, 0..first, &CREW);
    model.run_span_on(gpu, &mut pass, &there, &CREW)?;
    model.run_span(&mut pass, first + there.len()..nodes.len(), &CREW);
    let mut logits = Vec::new();
    model.logits(&mut pass, &(0..rows).collect::<Vec<_>>(), &mut logits, &CREW);
    Ok(logits[..rows * model.config().vocabulary].to_vec())
}

#[test]
fn some_layers_have_the_bits_of_all() {
    let Some(adapter) = adapter() else { return };
    let model = loaded(&fixture("golden_llama.gguf"));
    let all = model.blueprint().layers.len();
    let (whole, part) = (GpuModel::new(Arc::clone(&model), &adapter).unwrap(), with_little_room(&model, &adapter));
    assert!(whole.holds_all() && !part.holds_all());
    let held = part.held();
    assert!(held.end == all && held.start > 0, "{held:?} of {all}");
    assert_eq!(logits(&model, &part, &held), logits(&model, &whole, &held));
    // Other layers are not there, and nothing happens.
    assert!(matches!(logits(&model, &part, &(0..1)), Err(NotRun::Unsupported(_))));
    // What the first one takes fits as well: it has no head.
    assert!(part.bytes_of(0) <= part.room());
    part.hold(0..1).unwrap();
    assert_eq!(part.held(), 0..1);
    assert_eq!(logits(&model, &part, &(0..1)), logits(&model, &whole, &(0..1)));
    for wrong in [0..all, 1..1, all..all + 1] {
        assert!(part.hold(wrong).is_err());
    }
    assert_eq!(part.held(), 0..1);
}

/// Lost, it is opened again with the same layers by a probe, also one that it has no head for.
#[test]
fn a_device_that_comes_back_holds_what_it_held() {
    let Some(adapter) = adapter() else { return };
    let model = loaded(&fixture("golden_llama.gguf"));
    let part = with_little_room(&model, &adapter);
    let probe = |part: &GpuModel| {
        let mut logits = vec![0.0; model.config().vocabulary];
        part.head(&vec![0.0; model.blueprint().hidden], &mut logits)
    };
    for layers in [part.held(), 0..1] {
        part.hold(layers.clone()).unwrap();
        let before = logits(&model, &part, &layers).unwrap();
        part.provoke(Fault::Lost);
        assert!(matches!(logits(&model, &part, &layers), Err(NotRun::Failed(_))));
        assert!(matches!(logits(&model, &part, &layers), Err(NotRun::Failed(_))), "nobody has probed it");
        let probed = probe(&part);
        assert!(matches!(probed, Ok(()) | Err(NotRun::Unsupported(_))), "{probed:?}");
        assert_eq!(logits(&model, &part, &layers).unwrap(), before);
    }
}
