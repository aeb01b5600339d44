//! A small model on OpenVINO's CPU device, beside the CPU's own kernels. Skipped, with a word, where there is no runtime.

use duet_kernels::crew::Solo;
use duet_model::forward::{Activations, NotRun, Pass, Segment, TokenWise};
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_offload::PlacedModel;
use duet_openvino::Runtime;
use duet_runtimes::{BlobCache, FaultPlan, FaultyDevice};
use duet_types::{Bytes, TokenId, Tokens};
use std::path::Path;

/// Relative to the largest logit: activations of eight bits, rounded in other groups.
const TOLERANCE: f32 = 0.05;

fn model() -> Model {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap()
}

fn runtime() -> Option<Runtime> {
    let runtime = Runtime::load();
    if let Err(error) = &runtime {
        assert!(std::env::var_os("DUET_RT").is_none(), "DUET_RT names a folder whose runtime does not work: {error}");
        eprintln!("SKIPPED: {error}");
    }
    runtime.ok()
}

/// Logits of the last of some tokens, with the linear work on the device if there is one.
fn logits(model: &Model, device: Option<&dyn TokenWise>) -> Result<Vec<f32>, NotRun> {
    let tokens: Vec<TokenId> = (3..20).map(TokenId).collect();
    let last = tokens.len() - 1;
    let table = model.kv_pool(KvFormat::F16, Tokens(64)).table();
    let mut pass = Pass::new(model, Activations::new(model, 32), vec![Segment::new(table, tokens)]).unwrap();
    let mut logits = Vec::new();
    for node in model.nodes() {
        match device {
            Some(device) => model.run_node_on(device, &mut pass, node, 0..last + 1, &Solo)?,
            None => model.run_node(&mut pass, node, 0..last + 1, &Solo),
        }
    }
    match device {
        Some(device) => model.logits_on(device, &mut pass, &[last], &mut logits)?,
        None => model.logits(&mut pass, &[last], &mut logits, &Solo),
    }
    logits.truncate(model.config().vocabulary);
    Ok(logits)
}

#[test]
fn logits_are_nearly_those_of_the_kernels_and_graphs_come_from_the_cache() {
    let Some(runtime) = runtime() else { return };
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
    let expected = logits(&model, None).unwrap();
    let largest = expected.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
    let mut all = Vec::new();
    for _ in ["compiled", "imported"] {
        let device = runtime.device("CPU").unwrap().with_options(duet_offload::compile_options(1));
        let placed = PlacedModel::ready_on(&model, &device, Some(&cache), &mut |_| {}).unwrap();
        let found = logits(&model, Some(&placed)).unwrap();
        let worst = found.iter().zip(&expected).fold(0.0_f32, |worst, (a, b)| worst.max((a - b).abs()));
        assert!(worst < TOLERANCE * largest, "off by {worst} of {largest}");
        all.push(found);
    }
    assert_eq!(all[0], all[1], "an imported graph computes what the compiled one did");
    assert!(std::fs::read_dir(folder.path()).unwrap().count() > 2 * model.config().layers);
}

/// Inferences before the first of a prompt: each graph is tried when it is made ready.
fn trials(model: &Model) -> u32 {
    2 * model.config().layers as u32 + 1
}

#[test]
fn a_device_that_fails_says_so_and_changes_nothing() {
    let Some(runtime) = runtime() else { return };
    let model = model();
    let faults = FaultPlan::default().vanishes_before(trials(&model) + 3);
    let device = FaultyDevice::new(runtime.device("CPU").unwrap(), faults);
    let placed = PlacedModel::ready_on(&model, &device, None, &mut |_| {}).unwrap();
    assert!(matches!(logits(&model, Some(&placed)), Err(NotRun::Failed(_))));
}

#[test]
fn a_device_that_runs_no_graph_is_not_ready() {
    let Some(runtime) = runtime() else { return };
    let model = model();
    let device = FaultyDevice::new(runtime.device("CPU").unwrap(), FaultPlan::default().inference_fails(2));
    assert!(PlacedModel::ready_on(&model, &device, None, &mut |_| {}).is_err());
}

/// It is left after a time that follows from how long its graphs take: these take microseconds, and a test that takes as
/// long as a limit for any model would fail here.
#[test]
fn a_device_that_hangs_is_left_soon() {
    let Some(runtime) = runtime() else { return };
    let model = model();
    let faults = FaultPlan::default().inference_hangs(trials(&model) + 1);
    let device = FaultyDevice::new(runtime.device("CPU").unwrap(), faults);
    let placed = PlacedModel::ready_on(&model, &device, None, &mut |_| {}).unwrap();
    let start = std::time::Instant::now();
    assert!(matches!(logits(&model, Some(&placed)), Err(NotRun::Failed(_))));
    assert!(start.elapsed().as_secs() < 10, "it was waited for {:?}", start.elapsed());
}
