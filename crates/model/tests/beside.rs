//! A node whose rows a device and the crew share: each row is, to the bit, what the one that computed it makes of it.

mod float_device;

use duet_kernels::crew::{Scoped, Solo};
use duet_model::forward::{Activations, Node, NotRun, Pass, Segment, TokenWise};
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use float_device::FloatDevice;
use std::path::Path;

const ROWS: usize = 17;

fn model() -> Model {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/golden_llama.gguf");
    Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap()
}

/// The logits of each row after some nodes, the first `theirs` rows of which were on a device.
fn logits(model: &Model, nodes: &[Node], device: &dyn TokenWise, theirs: usize) -> (Vec<Vec<f32>>, Result<(), NotRun>) {
    let table = model.kv_pool(KvFormat::F16, Tokens(64)).table();
    let tokens = (3..3 + ROWS as u32).map(TokenId).collect();
    let mut pass = Pass::new(model, Activations::new(model, ROWS), vec![Segment::new(table, tokens)]).unwrap();
    let crew = Scoped { threads: 2 };
    let run = nodes.iter().try_for_each(|&node| {
        if !node.is_token_wise() {
            model.run_node(&mut pass, node, 0..ROWS, &crew);
            return Ok(());
        }
        let begun = model.begin_node_on(device, &mut pass, node, 0..theirs);
        model.run_node(&mut pass, node, theirs..ROWS, &crew);
        model.end_node_on(begun?, &mut pass, node, 0..theirs, &crew)
    });
    let mut logits = Vec::new();
    model.logits(&mut pass, &(0..ROWS).collect::<Vec<_>>(), &mut logits, &Solo);
    (logits.chunks_exact(model.config().vocabulary).map(<[f32]>::to_vec).collect(), run)
}

#[test]
fn each_row_is_what_the_one_that_computed_it_makes_of_it() {
    let model = model();
    let device = FloatDevice::new(&model);
    let nodes = [Node::Embed, Node::Ffn { layer: 0 }];
    let of = |theirs| logits(&model, &nodes, &device, theirs).0;
    let (crew, alone) = (of(0), of(ROWS));
    assert_ne!(crew, alone, "the device rounds otherwise: else this says nothing");
    for theirs in 1..ROWS {
        let shared = of(theirs);
        assert_eq!((&shared[..theirs], &shared[theirs..]), (&alone[..theirs], &crew[theirs..]), "{theirs}");
    }
}

#[test]
fn keys_and_values_of_both_are_in_the_cache() {
    let model = model();
    let device = FloatDevice::new(&model);
    let of = |theirs| logits(&model, &model.nodes(), &device, theirs).0;
    let (crew, alone) = (of(0), of(ROWS));
    let largest = crew.iter().flatten().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
    for theirs in [1, 5, 16] {
        let shared = of(theirs);
        // What comes before sees nothing of what comes after.
        assert_eq!(shared[..theirs], alone[..theirs], "{theirs}");
        let worst = shared.iter().flatten().zip(crew.iter().flatten()).map(|(a, b)| (a - b).abs());
        assert!(worst.fold(0.0, f32::max) < 0.05 * largest, "{theirs}");
    }
}

/// Begins, and fails when it is waited for.
#[derive(Debug)]
struct Failing;

impl TokenWise for Failing {
    fn qkv(&self, _: usize, _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Failed("gone".to_owned()))
    }

    fn feed_forward(&self, _: usize, _: &[f32], _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Failed("gone".to_owned()))
    }

    fn head(&self, _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Failed("gone".to_owned()))
    }
}

#[test]
fn after_a_failure_only_the_devices_rows_are_to_be_done() {
    let model = model();
    let node = Node::Ffn { layer: 0 };
    let (before, _) = logits(&model, &[Node::Embed], &Failing, 5);
    let (done, _) = logits(&model, &[Node::Embed, node], &Failing, 0);
    let (failed, run) = logits(&model, &[Node::Embed, node], &Failing, 5);
    assert!(matches!(run, Err(NotRun::Failed(_))));
    assert_eq!((&failed[..5], &failed[5..]), (&before[..5], &done[5..]));
}

/// The same logits where the pass is elsewhere while the device computes: its rows are copied out before the crew has the
/// others, in two pieces, and joined after.
fn logits_apart(model: &Model, device: &dyn TokenWise, theirs: usize) -> Vec<Vec<f32>> {
    let table = model.kv_pool(KvFormat::F16, Tokens(64)).table();
    let tokens = (3..3 + ROWS as u32).map(TokenId).collect();
    let mut pass = Pass::new(model, Activations::new(model, ROWS), vec![Segment::new(table, tokens)]).unwrap();
    for node in model.nodes() {
        let Some(inputs) = model.inputs_of(&mut pass, node) else {
            model.run_node(&mut pass, node, 0..ROWS, &Solo);
            continue;
        };
        model.run_node(&mut pass, node, theirs..ROWS, &Scoped { threads: 2 });
        for rows in [0..theirs / 2, theirs / 2..theirs] {
            let outputs = inputs.run_on(device, rows.clone()).unwrap();
            assert_eq!(outputs.rows(), rows);
            model.take_outputs(&mut pass, &outputs, &Solo).unwrap();
        }
    }
    let mut logits = Vec::new();
    model.logits(&mut pass, &(0..ROWS).collect::<Vec<_>>(), &mut logits, &Solo);
    logits.chunks_exact(model.config().vocabulary).map(<[f32]>::to_vec).collect()
}

#[test]
fn a_device_needs_no_more_of_a_pass_than_what_rows_read() {
    let model = model();
    let device = FloatDevice::new(&model);
    for theirs in [1, 5, 16] {
        assert_eq!(
            logits_apart(&model, &device, theirs),
            logits(&model, &model.nodes(), &device, theirs).0,
            "{theirs}"
        );
    }
}

#[test]
fn rows_of_another_pass_are_refused() {
    let model = model();
    let device = FloatDevice::new(&model);
    let pass = |rows: usize| {
        let segment = Segment::new(model.kv_pool(KvFormat::F16, Tokens(64)).table(), vec![TokenId(3); rows]);
        Pass::new(&model, Activations::new(&model, rows), vec![segment]).unwrap()
    };
    let (mut long, mut short) = (pass(ROWS), pass(4));
    let inputs = model.inputs_of(&mut long, Node::Ffn { layer: 0 }).unwrap();
    let outputs = inputs.run_on(&device, 0..ROWS).unwrap();
    assert!(matches!(model.take_outputs(&mut short, &outputs, &Solo), Err(NotRun::Unsupported(_))));
    assert!(model.inputs_of(&mut long, Node::Attention { layer: 0 }).is_none());
}
