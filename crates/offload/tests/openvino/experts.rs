//! Experts in launches, beside the CPU's own kernels.

use crate::common::{furthest, runtime};
use duet_kernels::crew::Solo;
use duet_model::forward::{Activations, ExpertStats, ExpertWise, FateCounts, Node, NodeOrder, NotRun, Pass, Segment};
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_moe::Overflow;
use duet_offload::{ExpertScheme, ExpertSettings, PlacedExperts, calibrate_experts};
use duet_openvino::{Activations as Rounding, CompileOptions, Device, Runtime};
use duet_runtimes::{BlobCache, FaultPlan, FaultyDevice, GraphDevice};
use duet_types::{Bytes, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

/// As for dense models, and a router may send a row elsewhere for a small difference.
const TOLERANCE: f32 = 0.15;
const ROWS: u32 = 60;

fn load(name: &str) -> Arc<Model> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
    let path = folder.join(format!("golden_{name}.gguf"));
    Arc::new(Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn tokens() -> Vec<TokenId> {
    (0..ROWS).map(|row| TokenId(3 + row * 7 % 50)).collect()
}

fn pass(model: &Model) -> Pass {
    let table = model.kv_pool(KvFormat::F16, Tokens(ROWS)).table();
    Pass::new(model, Activations::new(model, ROWS as usize), vec![Segment::new(table, tokens())]).unwrap()
}

/// Logits of the last row by the kernels.
fn expected(model: &Model) -> Vec<f32> {
    let (mut pass, mut logits) = (pass(model), Vec::new());
    model.run_span(&mut pass, 0..model.node_count(), &Solo);
    model.logits(&mut pass, &[ROWS as usize - 1], &mut logits, &Solo);
    logits[..model.config().vocabulary].to_vec()
}

/// The same with experts in launches, what became of places, and launches that did not run.
fn launched(model: &Model, device: &PlacedExperts) -> (Vec<f32>, FateCounts, usize) {
    let (mut pass, mut logits, mut refused) = (pass(model), Vec::new(), 0);
    let order = NodeOrder::with_launches(model.config().layers, device.launches());
    for node in order.nodes() {
        let run = match node {
            Node::Route { layer } => model.route_on(device, &mut pass, layer, &Solo).map(|_| ()),
            Node::Experts { layer, launch } => model.launch_on(device, &mut pass, (layer, launch), &Solo),
            _ => model.run_node_on(device, &mut pass, node, 0..ROWS as usize, &Solo),
        };
        if let Err(NotRun::Unsupported(_) | NotRun::Failed(_)) = run {
            refused += 1;
            if !matches!(node, Node::Experts { .. }) {
                model.run_node(&mut pass, node, 0..ROWS as usize, &Solo);
            }
        }
    }
    model.logits(&mut pass, &[ROWS as usize - 1], &mut logits, &Solo);
    (logits[..model.config().vocabulary].to_vec(), pass.fates(0..ROWS as usize), refused)
}

fn cpu(runtime: &Runtime) -> Device {
    runtime.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Rounding::ROUNDED))
}

fn device(runtime: &Runtime) -> Arc<dyn GraphDevice> {
    Arc::new(cpu(runtime))
}

fn settings(scheme: ExpertScheme) -> ExpertSettings {
    ExpertSettings { scheme, chunk: Tokens(ROWS), group_max: 2, ..ExpertSettings::default() }
}

fn places(model: &Model) -> u64 {
    let plan = model.blueprint().experts.unwrap();
    let places = plan.chosen + usize::from(plan.shared.is_some());
    model.config().layers as u64 * u64::from(ROWS) * places as u64
}

#[test]
fn experts_in_launches_compute_what_the_kernels_do() {
    let Some(runtime) = runtime() else { return };
    for name in ["mixtral", "qwen2moe", "qwen3moe", "olmoe", "phimoe"] {
        let (model, folder) = (load(name), tempfile::tempdir().unwrap());
        let expected = expected(&model);
        let counts = calibrate_experts(&model, &[tokens()], 1, &mut |_| {}).unwrap();
        for scheme in [ExpertScheme::Naive, ExpertScheme::Groups, ExpertScheme::DenseOnly] {
            let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
            let target = (device(&runtime), cache);
            let placed = PlacedExperts::ready_on(&model, target, Some(&counts), settings(scheme), &mut |_| {}).unwrap();
            let (found, fates, refused) = launched(&model, &placed);
            let worst = furthest(&found, &expected);
            assert!(worst < TOLERANCE, "{name}, {scheme}: off by {worst}");
            assert_eq!((fates.all(), fates.dropped), (places(&model), 0), "{name}, {scheme}");
            // Norms with biases are the CPU's, and so is what follows them.
            let biased = if name == "phimoe" { model.config().layers } else { 0 };
            assert_eq!(refused, biased, "{name}, {scheme}");
            if scheme == ExpertScheme::DenseOnly {
                assert_eq!(fates.spilled, 0);
            } else {
                assert!(fates.launched > fates.all() / 2, "{name}, {scheme}: {fates:?}");
            }
            let ExpertStats { places, launches, .. } = placed.stats();
            assert_eq!((places, launches > 0), (fates, fates.launched > 0), "{name}, {scheme}");
        }
    }
}

#[test]
fn without_room_rows_spill_or_are_dropped_and_both_are_counted() {
    let Some(runtime) = runtime() else { return };
    let (model, folder) = (load("mixtral"), tempfile::tempdir().unwrap());
    let expected = expected(&model);
    let of = |overflow| {
        let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
        // Capacities for a chunk of sixteen rows hold less than sixty need.
        let settings = ExpertSettings { chunk: Tokens(16), overflow, ..settings(ExpertScheme::Base) };
        let placed = PlacedExperts::ready_on(&model, (device(&runtime), cache), None, settings, &mut |_| {}).unwrap();
        launched(&model, &placed)
    };
    let (found, spilled, _) = of(Overflow::Spill);
    assert!(furthest(&found, &expected) < TOLERANCE && spilled.spilled > 0 && spilled.dropped == 0, "{spilled:?}");
    let (found, dropped, _) = of(Overflow::Prune);
    assert_eq!((dropped.spilled, dropped.crew, dropped.all()), (0, 0, places(&model)));
    assert!(dropped.dropped > 0 && furthest(&found, &expected) > 0.0, "{dropped:?}");
}

#[test]
fn a_launch_that_fails_is_the_crews() {
    let Some(runtime) = runtime() else { return };
    let (model, folder) = (load("qwen3moe"), tempfile::tempdir().unwrap());
    // Placing is over by the fortieth inference.
    let faults = (40..400).step_by(2).fold(FaultPlan::default(), FaultPlan::inference_fails);
    let device: Arc<dyn GraphDevice> = Arc::new(FaultyDevice::new(cpu(&runtime), faults));
    let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
    let placed =
        PlacedExperts::ready_on(&model, (device, cache), None, settings(ExpertScheme::Groups), &mut |_| {}).unwrap();
    let (found, fates, refused) = launched(&model, &placed);
    assert!(furthest(&found, &expected(&model)) < TOLERANCE && refused > 0);
    assert!(fates.crew > 0 && fates.all() == places(&model), "{fates:?}");
}

/// A cache that holds no group, and one that holds some: each group that is wanted is on the device all the same, whichever
/// the cache has lost.
#[test]
fn a_cache_that_is_too_small_keeps_no_group_from_the_device() {
    let Some(runtime) = runtime() else { return };
    let (model, folder) = (load("mixtral"), tempfile::tempdir().unwrap());
    let counts = calibrate_experts(&model, &[tokens()], 1, &mut |_| {}).unwrap();
    let of = |room| {
        let cache = BlobCache::new(folder.path().join(format!("{room}")), Bytes(room));
        let target = (device(&runtime), cache);
        let settings = settings(ExpertScheme::Groups);
        let placed = PlacedExperts::ready_on(&model, target, Some(&counts), settings, &mut |_| {}).unwrap();
        launched(&model, &placed)
    };
    let (expected, roomy, _) = of(1 << 30);
    assert!(roomy.launched > roomy.all() / 2, "{roomy:?}");
    for room in [100, 40_000] {
        let (found, fates, _) = of(room);
        assert_eq!((fates, found == expected), (roomy, true), "room for {room} bytes");
    }
}
