//! Models on a device and graphs from the cache.

use crate::common::{fixture, furthest, logits, runtime};
use duet_model::forward::NotRun;
use duet_model::{LoadOptions, Model};
use duet_offload::PlacedModel;
use duet_openvino::{BlobCache, FaultPlan, FaultyDevice};
use duet_types::Bytes;
use std::path::Path;

/// Relative to the largest logit. Weights that come as floats are rounded for both, but the CPU's scales to half precision
/// besides, which tips some activations to other steps: `precision.rs` has weights that are the same.
const TOLERANCE: f32 = 0.05;

fn model() -> Model {
    Model::load(Path::new(fixture()), &LoadOptions::default(), &mut |_| {}).unwrap()
}

#[test]
fn logits_are_nearly_those_of_the_kernels_and_graphs_come_from_the_cache() {
    let Some(runtime) = runtime() else { return };
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
    let expected = logits(&model, None).unwrap();
    let mut all = Vec::new();
    for _ in ["compiled", "imported"] {
        let device = runtime.device("CPU").unwrap();
        let placed =
            PlacedModel::ready_on(&model, &device, 1, PlacedModel::ROUNDED, Some(&cache), &mut |_| {}).unwrap();
        let found = logits(&model, Some(&placed)).unwrap();
        let worst = furthest(&found, &expected);
        assert!(worst < TOLERANCE, "off by {worst}");
        all.push(found);
    }
    assert_eq!(all[0], all[1], "an imported graph computes what the compiled one did");
    assert!(std::fs::read_dir(folder.path()).unwrap().count() > 2 * model.config().layers);
}

#[test]
fn a_device_that_fails_says_so_and_changes_nothing() {
    let Some(runtime) = runtime() else { return };
    let model = model();
    let device = FaultyDevice::new(runtime.device("CPU").unwrap(), FaultPlan::default().vanishes_before(3));
    let placed = PlacedModel::ready_on(&model, &device, 1, PlacedModel::ROUNDED, None, &mut |_| {}).unwrap();
    assert!(matches!(logits(&model, Some(&placed)), Err(NotRun::Failed(_))));
}
