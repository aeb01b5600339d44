//! An engine with OpenVINO's CPU device in the paper's role of an NPU: prompts that wait get graphs of their own, and the
//! answers stay. Skipped, with a word, where there is no runtime.

#[path = "../serving/mod.rs"]
mod serving;
mod staged;

use duet_engine::{Device, Engine, EngineConfig, ExactCounts, Generation, Mechanism, Mechanisms, Method, PolicyName};
use duet_offload::ExactModel;
use duet_runtimes::GraphDevice;
use duet_scheduler::machine::RowsTaken;
use duet_types::{Bytes, Class, Tokens};
use serving::{ANSWER, answer, metric, model, until};
use staged::{OwnGraphs, Stage, Staged};
use std::path::Path;
use std::sync::{Arc, Mutex};

fn device(stage: &Arc<Stage>, own_graphs: OwnGraphs) -> Option<Arc<dyn GraphDevice>> {
    let device = Arc::new(serving::device()?);
    Some(Arc::new(Staged { device, stage: Arc::clone(stage), own_graphs, rows: Mutex::default() }))
}

/// An engine with the device as a static lane, and some mechanisms. Profiles are kept in the folder: measuring takes longest.
fn engine(device: Arc<dyn GraphDevice>, mechanisms: Mechanisms, profiles: &Path) -> Engine {
    let model = model();
    let placed = Arc::new(ExactModel::ready_on(Arc::clone(&model), device, None, &mut |_| {}).unwrap());
    let prepares = Some(Arc::clone(&placed) as _);
    let device = Device { rows: RowsTaken::Chunk, prepares, ..Device::new("openvino:CPU", "", placed) };
    let config = EngineConfig {
        threads: Some(1),
        devices: vec![device],
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

/// A person's prompt of `rows` rows.
fn start(engine: &Engine, rows: u32) -> Generation {
    serving::start(engine, rows, Class::Reactive)
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
    until(&warm, || warm.exact_graphs().ready >= 2);
    let held = warm.exact_graphs();
    assert!(held.resident_bytes > Bytes(0) && held.used == 0, "{held:?}");
    gone.cancel();
    stage.open();
    assert_eq!([first, second].map(answer), expected);
    drop(answer(gone));
    until(&warm, || warm.exact_graphs().resident == 0);
    let counts = warm.exact_graphs();
    assert_eq!((counts.asked, counts.used, counts.failed, counts.resident_bytes), (3, 2, 0, Bytes(0)));
    assert_eq!((counts.ready, counts.ready + counts.called_off), (counts.reclaimed, 3));
    assert_eq!(metric(&warm, "duet_exact_graphs_total{fate=\"used\"}"), 2);
    assert_eq!(metric(&warm, "duet_exact_graphs_total{fate=\"reclaimed\"}"), counts.reclaimed);
    let work = warm.linear_work();
    assert!(work.on_devices() > 0 && work.refused() == 0, "{work:?}");
}

#[test]
fn a_graph_that_fails_loses_its_kernel_and_the_request_completes() {
    let stage = Arc::default();
    let Some(device) = device(&stage, OwnGraphs::WorkOnce) else { return };
    let profiles = tempfile::tempdir().unwrap();
    let engine = engine(device, mechanisms(), profiles.path());
    stage.hold();
    let (first, second) = (start(&engine, 40), start(&engine, 90));
    until(&engine, || engine.exact_graphs().ready == 2);
    stage.open();
    assert_eq!([first, second].map(|generation| answer(generation).len()), [ANSWER; 2]);
    let (work, graphs) = (engine.linear_work(), engine.exact_graphs());
    assert!(work.refused() > 0, "{work:?}, {graphs:?}");
    assert!(engine.is_running());
}
