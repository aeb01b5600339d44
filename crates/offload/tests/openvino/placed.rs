//! Models on a device and graphs from the cache.

use crate::common::{fixture, furthest, logits, runtime};
use duet_model::forward::NotRun;
use duet_model::{LoadOptions, Model};
use duet_offload::PlacedModel;
use duet_openvino::{Activations, CompileOptions, Device, Precision, Runtime};
use duet_runtimes::{BlobCache, FaultPlan, FaultyDevice};
use duet_types::Bytes;
use std::path::Path;

/// Relative to the largest logit. Weights that come as floats are rounded for both, but the CPU's scales to half precision
/// besides, which tips some activations to other steps: `precision.rs` has weights that are the same.
const TOLERANCE: f32 = 0.05;

/// The same of weights of eight bits with one scale for each output.
const TOLERANCE_PER_OUTPUT: f32 = 0.1;

/// The same of a device that computes in halves and rounds no activations, of which the kernels' eight bits are the larger
/// part: 0.03 is what they cost in `precision.rs`, and a half costs a tenth of it.
const TOLERANCE_F16: f32 = 0.05;

fn model() -> Model {
    Model::load(Path::new(fixture()), &LoadOptions::default(), &mut |_| {}).unwrap()
}

fn device(runtime: &Runtime) -> Device {
    runtime.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Activations::ROUNDED))
}

#[test]
fn logits_are_nearly_those_of_the_kernels_and_graphs_come_from_the_cache() {
    let Some(runtime) = runtime() else { return };
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
    let expected = logits(&model, None).unwrap();
    let mut all = Vec::new();
    for _ in ["compiled", "imported"] {
        let device = device(&runtime);
        let placed = PlacedModel::ready_on(&model, &device, Some(&cache), &mut |_| {}).unwrap();
        let found = logits(&model, Some(&placed)).unwrap();
        let worst = furthest(&found, &expected);
        assert!(worst < TOLERANCE, "off by {worst}");
        all.push(found);
    }
    assert_eq!(all[0], all[1], "an imported graph computes what the compiled one did");
    assert!(std::fs::read_dir(folder.path()).unwrap().count() > 2 * model.config().layers);
}

/// As an NPU or a GPU computes. Not the bits of single precision, and near them.
#[test]
fn a_device_that_computes_in_halves_is_nearly_exact_too() {
    let Some(runtime) = runtime() else { return };
    let model = model();
    let floats = CompileOptions::of_blocks(1, Activations::Floats);
    let found = |precision| {
        let options = CompileOptions { precision: Some(precision), ..floats };
        let device = runtime.device("CPU").unwrap().with_options(options);
        assert_eq!(device.precision(), precision);
        let placed = PlacedModel::ready_on(&model, &device, None, &mut |_| {}).unwrap();
        logits(&model, Some(&placed)).unwrap()
    };
    let (half, single) = (found(Precision::F16), found(Precision::F32));
    let worst = furthest(&half, &logits(&model, None).unwrap());
    assert!(worst < TOLERANCE_F16, "off by {worst}");
    let rounding = furthest(&half, &single);
    assert!(rounding < TOLERANCE_F16 / 5.0, "halves cost {rounding}");
}

/// The NPU's plugin and its front end, with the CPU in the NPU's place: static graphs with one scale for each output, and
/// the options of serving as far as an NPU takes them.
#[test]
fn the_front_end_of_an_npu_takes_a_whole_model() {
    let Some(runtime) = runtime() else { return };
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
    let expected = logits(&model, None).unwrap();
    let mut all = Vec::new();
    for _ in ["compiled", "imported"] {
        let wanted = CompileOptions::of_blocks(2, Activations::ROUNDED);
        let device = runtime.npu_front_end_on_cpu().with_options(wanted);
        let placed = PlacedModel::ready_on(&model, &device, Some(&cache), &mut |_| {}).unwrap();
        let found = logits(&model, Some(&placed)).unwrap();
        let worst = furthest(&found, &expected);
        assert!(worst < TOLERANCE_PER_OUTPUT, "off by {worst}");
        all.push(found);
    }
    assert_eq!(all[0], all[1], "an imported graph computes what the compiled one did");
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
    let device = FaultyDevice::new(device(&runtime), faults);
    let placed = PlacedModel::ready_on(&model, &device, None, &mut |_| {}).unwrap();
    assert!(matches!(logits(&model, Some(&placed)), Err(NotRun::Failed(_))));
}

#[test]
fn a_device_that_runs_no_graph_is_not_ready() {
    let Some(runtime) = runtime() else { return };
    let model = model();
    let device = FaultyDevice::new(device(&runtime), FaultPlan::default().inference_fails(2));
    assert!(PlacedModel::ready_on(&model, &device, None, &mut |_| {}).is_err());
}

/// It is left after a time that follows from how long its graphs take: these take microseconds, and a test that takes as
/// long as a limit for any model would fail here.
#[test]
fn a_device_that_hangs_is_left_soon() {
    let Some(runtime) = runtime() else { return };
    let model = model();
    let faults = FaultPlan::default().inference_hangs(trials(&model) + 1);
    let device = FaultyDevice::new(device(&runtime), faults);
    let placed = PlacedModel::ready_on(&model, &device, None, &mut |_| {}).unwrap();
    let start = std::time::Instant::now();
    assert!(matches!(logits(&model, Some(&placed)), Err(NotRun::Failed(_))));
    assert!(start.elapsed().as_secs() < 10, "it was waited for {:?}", start.elapsed());
}
