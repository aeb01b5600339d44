//! An engine with OpenVINO's CPU device in the paper's role of an NPU: prompts that wait get graphs of their own, and the
//! answers stay. Skipped, with a word, where there is no runtime.

mod staged;

use duet_engine::{
    DeviceUse, Engine, EngineConfig, ExactCounts, Fallback, GenerateRequest, Generation, GenerationEvent, Mechanism,
    Mechanisms, Method, Offload, PolicyName, StopConditions,
};
use duet_model::{LoadOptions, Model};
use duet_offload::ExactModel;
use duet_openvino::{Activations, CompileOptions, Runtime};
use duet_runtimes::GraphDevice;
use duet_types::{Bytes, Class, TokenId, Tokens};
use staged::{OwnGraphs, Stage, Staged};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn model() -> Arc<Model> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    Arc::new(Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn device(stage: &Arc<Stage>, own_graphs: OwnGraphs) -> Option<Arc<dyn GraphDevice>> {
    let runtime = Runtime::load().map_err(|error| eprintln!("SKIPPED: {error}")).ok()?;
    let device =
        Arc::new(runtime.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Activations::ROUNDED)));
    Some(Arc::new(Staged { device, stage: Arc::clone(stage), own_graphs, rows: Mutex::default() }))
}

/// An engine with the device as a static lane, and some mechanisms. Profiles are kept in the folder: measuring takes longest.
fn engine(device: Arc<dyn GraphDevice>, mechanisms: Mechanisms, profiles: &Path) -> Engine {
    let model = model();
    let placed = ExactModel::ready_on(Arc::clone(&model), device, None, &mut |_| {}).unwrap();
    let offload = Offload {
        name: "openvino:CPU".to_owned(),
        device: Arc::new(placed),
        fallback: Fallback::Crew,
        device_use: DeviceUse::Static,
        exchange: None,
    };
    let config = EngineConfig {
        threads: Some(1),
        offload: Some(offload),
        mechanisms,
        speculate: Method::None,
        // duet's own policy has no graph made that takes longer than reading a small model's prompt.
        policy: PolicyName::AgentXpu,
        profile_folder: Some(profiles.to_owned()),
        graph_bytes: Some(Bytes(1 << 30)),
        chunk: Tokens(32),
        ..EngineConfig::default()
    };
    Engine::start(model, config).unwrap()
}

/// All but elastic splits: chunks go to the device, however slow a small model's are there.
fn mechanisms() -> Mechanisms {
    Mechanisms::ALL.without(Mechanism::Elastic)
}

/// Prompts that share no beginning with each other.
fn start(engine: &Engine, rows: u32) -> Generation {
    let vocabulary = engine.model().config().vocabulary as u32;
    let request = GenerateRequest {
        prompt: (0..rows).map(|index| TokenId(3 + (index * 7 + rows * 11) % (vocabulary - 3))).collect(),
        stop: StopConditions { max_tokens: Some(Tokens(4)), ignore_eos: true, ..StopConditions::default() },
        class: Class::Reactive,
        ..GenerateRequest::default()
    };
    engine.submit(request).unwrap()
}

fn answer(mut generation: Generation) -> Vec<TokenId> {
    let mut tokens = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Token { token, .. } => tokens.push(token),
            GenerationEvent::Finished { .. } => {}
            GenerationEvent::Failed(error) => panic!("{error}"),
        }
    }
    tokens
}

/// Waits until the engine has come so far.
fn until(engine: &Engine, holds: impl Fn(&ExactCounts) -> bool) {
    let start = Instant::now();
    while !holds(&engine.exact_graphs()) {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", engine.exact_graphs());
        std::thread::yield_now();
    }
}

/// The value of a metric.
fn metric(engine: &Engine, name: &str) -> u64 {
    let text = engine.metrics_text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.trim().parse().unwrap()
}

#[test]
fn graphs_are_made_while_a_prompt_before_is_read() {
    let stage = Arc::default();
    let Some(device) = device(&stage, OwnGraphs::Work) else { return };
    let profiles = tempfile::tempdir().unwrap();
    let cold = engine(Arc::clone(&device), mechanisms().without(Mechanism::WarmUp), profiles.path());
    let expected = [40, 90].map(|rows| answer(start(&cold, rows)));
    assert_eq!(cold.exact_graphs(), ExactCounts::default());
    drop(cold);
    let warm = engine(device, mechanisms(), profiles.path());
    stage.hold();
    let (first, second, gone) = (start(&warm, 40), start(&warm, 90), start(&warm, 77));
    until(&warm, |counts| counts.ready >= 2);
    let held = warm.exact_graphs();
    assert!(held.resident_bytes > Bytes(0) && held.used == 0, "{held:?}");
    gone.cancel();
    stage.open();
    assert_eq!([first, second].map(answer), expected);
    drop(answer(gone));
    until(&warm, |counts| counts.resident == 0);
    let counts = warm.exact_graphs();
    assert_eq!((counts.asked, counts.used, counts.failed, counts.resident_bytes), (3, 2, 0, Bytes(0)));
    assert_eq!((counts.ready, counts.ready + counts.called_off), (counts.reclaimed, 3));
    assert_eq!(metric(&warm, "duet_exact_graphs_total{fate=\"used\"}"), 2);
    assert_eq!(metric(&warm, "duet_exact_graphs_total{fate=\"reclaimed\"}"), counts.reclaimed);
    let work = warm.linear_work();
    assert!(work.on_device > 0 && work.refused == 0, "{work:?}");
}

#[test]
fn a_graph_that_fails_loses_its_kernel_and_the_request_completes() {
    let stage = Arc::default();
    let Some(device) = device(&stage, OwnGraphs::WorkOnce) else { return };
    let profiles = tempfile::tempdir().unwrap();
    let engine = engine(device, mechanisms(), profiles.path());
    stage.hold();
    let (first, second) = (start(&engine, 40), start(&engine, 90));
    until(&engine, |counts| counts.ready == 2);
    stage.open();
    assert_eq!([first, second].map(|generation| answer(generation).len()), [4, 4]);
    assert!(engine.linear_work().refused > 0, "{:?}", engine.linear_work());
    assert!(engine.is_running());
}
