//! Models on the device: a layer of a real one, and a small one from end to end.
//!
//! `DUET_TEST_MODEL` is the path of a GGUF file; without it the layer is skipped.

use crate::blocks::Case;
use crate::conforms;
use crate::device::device;
use duet_graphs::{Block, LayoutRules, reference};
use duet_kernels::crew::Solo;
use duet_model::forward::{Activations, ExpertWise, Node, NodeOrder, NotRun, Pass, Segment, TokenWise};
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_offload::{
    ExpertScheme, ExpertSettings, LayerBlocks, PlacedExperts, PlacedModel, Seen, head_block, layer_blocks,
};
use duet_runtimes::{BlobCache, GraphDevice};
use duet_types::{Bytes, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

fn load(path: &Path) -> Model {
    Model::load(path, &LoadOptions::default(), &mut |_| {}).unwrap()
}

/// In root mean squares of the output. A few columns of the residual stream are hundreds of times as large as the rest,
/// and the grid has to hold them.
const LAYER_TOLERANCE: f64 = 5e-3;

/// Calibrated on one text, run on another.
#[test]
fn a_layer_of_a_real_model_conforms() {
    let Some(path) = duet_testing::path(duet_testing::Need::Model) else { return };
    if device("HTP").is_none() {
        return;
    }
    let model = load(&path);
    let calibration = Seen::of(&model).unwrap();
    let blocks = layer_blocks(&model, LAYER, LayoutRules::HTP.weights).unwrap();
    let qkv_ranges = calibration.qkv(LAYER, &blocks.qkv).unwrap();
    let feed_forward_ranges = calibration.feed_forward(LAYER, &blocks.feed_forward).unwrap();
    for rows in [Tokens(32), Tokens(128)] {
        let seen = Seen::while_reading(&model, include_str!("reading.txt"), rows).unwrap();
        assert_eq!(seen.rows(), rows);
        let case = |block: &Block, inputs: &[&[f32]], ranges| {
            Case::calibrated(block.clone(), rows, inputs.iter().map(|input| input.to_vec()).collect(), ranges)
        };
        conforms(&case(&blocks.qkv, &seen.qkv_inputs(LAYER), qkv_ranges.clone()), LAYER_TOLERANCE);
        let inputs = seen.feed_forward_inputs(LAYER);
        conforms(&case(&blocks.feed_forward, &inputs, feed_forward_ranges.clone()), LAYER_TOLERANCE);
    }
}

/// Neither the first nor the last, which differ most from the others.
const LAYER: usize = 7;

/// Of the blocks' integers, relative to the largest logit.
const LOGITS_TOLERANCE: f32 = 0.005;

/// Of the file's own weights, which the blocks have rounded to eight bits with one scale for each output.
const NATIVE_TOLERANCE: f32 = 0.1;

/// Attention, rope and the cache are the CPU's, all products the device's. The model's weights are random, so that its
/// likeliest tokens are often near each other: the device has to choose the same where they are not.
#[test]
fn a_small_model_answers_as_its_blocks_say() {
    let Some(device) = device("HTP.v75") else { return };
    let model = load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf")));
    let placed = PlacedModel::ready_on(&model, &device, None, &mut |_| {}).unwrap();
    let expected = answer(&model, Some(&Interpreted::new(&model)), |_, logits| likeliest(logits));
    let same_tokens = |step: usize, _: &[f32]| likeliest(&expected[step]);
    let (found, native) = (answer(&model, Some(&placed), same_tokens), answer(&model, None, same_tokens));
    let mut certain = 0;
    for (step, expected) in expected.iter().enumerate() {
        let off = |logits: &[f32]| logits.iter().zip(expected).fold(0.0_f32, |worst, (a, b)| worst.max((a - b).abs()));
        let largest = expected.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
        let (worst, of_native) = (off(&found[step]), off(&native[step]));
        println!("step {step}: {:.4} off, native {:.4}, of the largest", worst / largest, of_native / largest);
        assert!(worst < LOGITS_TOLERANCE * largest, "step {step}: off by {worst} of {largest}");
        assert!(of_native < NATIVE_TOLERANCE * largest, "step {step}: off by {of_native} of {largest}");
        if lead(expected) > 2.0 * worst {
            certain += 1;
            assert_eq!(likeliest(&found[step]), likeliest(expected), "step {step}");
        }
    }
    assert!(certain > STEPS / 2, "only {certain} choices were certain");
}

/// Projections, the head, and experts in groups, whose grids are those of each expert's own rows.
#[test]
fn a_small_model_with_experts_answers_nearly_as_on_the_cpu() {
    let Some(device) = device("HTP.v75") else { return };
    for name in ["mixtral", "qwen2moe"] {
        let path = format!("{}/../model/tests/fixtures/golden_{name}.gguf", env!("CARGO_MANIFEST_DIR"));
        let (model, folder) = (Arc::new(load(Path::new(&path))), tempfile::tempdir().unwrap());
        let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
        let settings = ExpertSettings {
            scheme: ExpertScheme::Groups,
            chunk: EXPERT_ROWS,
            group_max: 2,
            ..ExpertSettings::default()
        };
        let target: (Arc<dyn GraphDevice>, _) = (Arc::new(device.clone()), cache);
        let placed = PlacedExperts::ready_on(&model, target, None, settings, &mut |_| {}).unwrap();
        let (found, native) = (experts_logits(&model, Some(&placed)), experts_logits(&model, None));
        let largest = native.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
        let worst = found.iter().zip(&native).fold(0.0_f32, |worst, (a, b)| worst.max((a - b).abs()));
        let places = placed.stats().places;
        println!("{name}: {:.4} of the largest off, {places:?}", worst / largest);
        assert!(worst < EXPERTS_TOLERANCE * largest, "{name}: off by {worst} of {largest}");
        assert!(places.launched > places.all() / 2 && places.dropped == 0, "{name}: {places:?}");
    }
}

/// As [`NATIVE_TOLERANCE`], and a router may send a row elsewhere for a small difference.
const EXPERTS_TOLERANCE: f32 = 0.15;

const EXPERT_ROWS: Tokens = Tokens(48);

/// Logits of the last of some rows, all linear work on the device if there is one.
fn experts_logits(model: &Model, device: Option<&PlacedExperts>) -> Vec<f32> {
    let rows = EXPERT_ROWS.as_usize();
    let tokens = (0..EXPERT_ROWS.0).map(|row| TokenId(3 + row * 7 % 50)).collect();
    let table = model.kv_pool(KvFormat::F16, EXPERT_ROWS).table();
    let mut pass = Pass::new(model, Activations::new(model, rows), vec![Segment::new(table, tokens)]).unwrap();
    let Some(device) = device else { return run(model, &mut pass, rows, None) };
    let mut logits = Vec::new();
    for node in NodeOrder::with_launches(model.config().layers, device.launches()).nodes() {
        match node {
            Node::Route { layer } => drop(model.route_on(device, &mut pass, layer, &Solo).unwrap()),
            Node::Experts { layer, launch } => model.launch_on(device, &mut pass, (layer, launch), &Solo).unwrap(),
            _ => model.run_node_on(device, &mut pass, node, 0..rows, &Solo).unwrap(),
        }
    }
    model.logits_on(device, &mut pass, &[rows - 1], &mut logits).unwrap();
    logits.truncate(model.config().vocabulary);
    logits
}

/// A model whose blocks the reference interpreter runs.
#[derive(Debug)]
struct Interpreted {
    layers: Vec<LayerBlocks>,
    head: Block,
}

impl Interpreted {
    fn new(model: &Model) -> Self {
        let layers = (0..model.config().layers)
            .map(|layer| layer_blocks(model, layer, LayoutRules::HTP.weights).unwrap())
            .collect();
        Self { layers, head: head_block(model, LayoutRules::HTP.weights).unwrap() }
    }
}

fn interpret(block: &Block, inputs: &[&[f32]], output: &mut [f32]) -> Result<(), NotRun> {
    let rows = Tokens((inputs[0].len() / block.inputs()[0].width) as u32);
    output.copy_from_slice(&reference::run(block, rows, inputs).unwrap()[0]);
    Ok(())
}

impl TokenWise for Interpreted {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        interpret(&self.layers[layer].qkv, &[residual], qkv)
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        interpret(&self.layers[layer].feed_forward, &[attended, residual], fed)
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        interpret(&self.head, &[residual], logits)
    }
}

/// By how much the likeliest token leads.
fn lead(logits: &[f32]) -> f32 {
    let best = likeliest(logits).0 as usize;
    let others = logits.iter().enumerate().filter(|(token, _)| *token != best);
    others.fold(f32::INFINITY, |lead, (_, logit)| lead.min(logits[best] - logit))
}

/// Tokens of an answer.
const STEPS: usize = 8;

fn likeliest(logits: &[f32]) -> TokenId {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    TokenId(best.unwrap_or_default() as u32)
}

/// The logits of each step of an answer, whose tokens `choose` chooses.
fn answer(model: &Model, device: Option<&dyn TokenWise>, choose: impl Fn(usize, &[f32]) -> TokenId) -> Vec<Vec<f32>> {
    let mut table = model.kv_pool(KvFormat::F16, Tokens(64)).table();
    let mut next: Vec<TokenId> = (3..20).map(TokenId).collect();
    let mut all = Vec::new();
    for step in 0..STEPS {
        let rows = next.len();
        let segments = vec![Segment::new(table, next)];
        let mut pass = Pass::new(model, Activations::new(model, rows), segments).unwrap();
        let logits = run(model, &mut pass, rows, device);
        next = vec![choose(step, &logits)];
        all.push(logits);
        table = pass.finish().1.remove(0);
    }
    all
}

/// Logits of the last row.
fn run(model: &Model, pass: &mut Pass, rows: usize, device: Option<&dyn TokenWise>) -> Vec<f32> {
    let mut logits = Vec::new();
    for node in model.nodes() {
        match device {
            Some(device) => model.run_node_on(device, pass, node, 0..rows, &Solo).unwrap(),
            None => model.run_node(pass, node, 0..rows, &Solo),
        }
    }
    match device {
        Some(device) => model.logits_on(device, pass, &[rows - 1], &mut logits).unwrap(),
        None => model.logits(pass, &[rows - 1], &mut logits, &Solo),
    }
    logits.truncate(model.config().vocabulary);
    logits
}
