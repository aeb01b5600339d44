//! An engine whose model has experts, on OpenVINO's CPU device: they are launched in groups between which others go, and
//! answers say where they were computed. Skipped, with a word, where there is no runtime.

#[path = "serving/preferring.rs"]
mod preferring;
#[allow(dead_code, reason = "tests of dense models need more of it")]
mod serving;

use duet_engine::{Device, Engine, EngineConfig, GenerationEvent, Method};
use duet_model::forward::FateCounts;
use duet_model::{LoadOptions, Model};
use duet_moe::Overflow;
use duet_offload::{ExpertScheme, ExpertSettings, PlacedAttention, PlacedExperts};
use duet_runtimes::{BlobCache, FaultPlan, FaultyDevice, GraphDevice};
use duet_types::{Bytes, Class, Tokens};
use serving::{ANSWER, metric, start};
use std::path::Path;
use std::sync::Arc;

const CHUNK: Tokens = Tokens(64);

fn model() -> Arc<Model> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_qwen2moe.gguf");
    Arc::new(Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn engine(settings: ExpertSettings, faults: FaultPlan) -> Option<Engine> {
    engine_with(settings, faults, false)
}

/// The same; the device attends, or does not.
fn engine_with(settings: ExpertSettings, faults: FaultPlan, attends: bool) -> Option<Engine> {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let device: Arc<dyn GraphDevice> = Arc::new(FaultyDevice::new(serving::device()?, faults));
    let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
    let on = (Arc::clone(&device), cache);
    let placed = Arc::new(PlacedExperts::ready_on(&model, on, None, settings, &mut |_| {}).unwrap());
    let experts = Some(Arc::clone(&placed) as _);
    let attention = attends.then(|| Arc::new(PlacedAttention::ready_on(&model, &*device, CHUNK).unwrap()) as _);
    let device = Device { experts, attention, ..Device::new("openvino:CPU", "", placed) };
    // Rows that were drafted in vain would be counted, too.
    let speculate = Method::None;
    let config =
        EngineConfig { devices: vec![device], chunk: CHUNK, threads: Some(1), speculate, ..EngineConfig::default() };
    Some(preferring::preferring_devices(&model, &config))
}

fn settings() -> ExpertSettings {
    ExpertSettings { scheme: ExpertScheme::Groups, group_max: 2, chunk: CHUNK, ..ExpertSettings::default() }
}

/// Where the experts of a prompt of `rows` rows and its answer were computed.
fn experts(engine: &Engine, rows: u32, class: Class) -> FateCounts {
    let mut generation = start(engine, rows, class);
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Finished { usage, .. } => return usage.experts,
            GenerationEvent::Failed(error) => panic!("{error}"),
            GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_) => {}
            GenerationEvent::Token { .. } => {}
        }
    }
    panic!("it did not end")
}

/// Places of a prompt and of the tokens that were computed for its answer: all but the last.
fn places(engine: &Engine, rows: u32) -> u64 {
    let plan = engine.model().blueprint().experts.unwrap();
    let each = plan.chosen + usize::from(plan.shared.is_some());
    (u64::from(rows) + ANSWER as u64 - 1) * engine.model().config().layers as u64 * each as u64
}

#[test]
fn every_expert_of_every_token_is_accounted_for() {
    let Some(engine) = engine(settings(), FaultPlan::default()) else { return };
    std::thread::scope(|scope| {
        let background = scope.spawn(|| experts(&engine, 200, Class::Proactive));
        let person = experts(&engine, 90, Class::Reactive);
        assert_eq!((person.all(), person.dropped), (places(&engine, 90), 0));
        assert!(person.launched > person.all() / 2, "{person:?}");
        let background = background.join().unwrap();
        assert_eq!((background.all(), background.dropped), (places(&engine, 200), 0));
    });
    let of = |fate: &str| metric(&engine, &format!("duet_expert_places_total{{fate=\"{fate}\"}}"));
    let all = ["launched", "cpu", "spilled", "dropped"].map(of);
    assert_eq!(all.iter().sum::<u64>(), places(&engine, 90) + places(&engine, 200));
    assert!(
        metric(&engine, "duet_expert_launches_total") > 0 && metric(&engine, "duet_expert_slots_total") >= all[0] / 2
    );
    assert!(metric(&engine, "duet_expert_graphs_memory_bytes") > 0);
}

#[test]
fn what_is_pruned_is_said() {
    // Room for sixteen rows where sixty-four come.
    let small =
        ExpertSettings { scheme: ExpertScheme::Base, chunk: Tokens(16), overflow: Overflow::Prune, ..settings() };
    let Some(engine) = engine(small, FaultPlan::default()) else { return };
    let experts = experts(&engine, 128, Class::Reactive);
    assert!(experts.dropped > 0 && experts.all() == places(&engine, 128), "{experts:?}");
    assert_eq!(metric(&engine, "duet_expert_places_total{fate=\"dropped\"}"), experts.dropped);
}

#[test]
fn attention_may_be_the_devices_too() {
    let Some(engine) = engine_with(settings(), FaultPlan::default(), true) else { return };
    experts(&engine, 130, Class::Reactive);
    // Two whole chunks; the two rows that are left are too few.
    assert_eq!(engine.attention_work().launches, 2 * engine.model().config().layers as u64);
}

#[test]
fn a_device_that_is_gone_loses_no_request() {
    // It is placed by then.
    let Some(engine) = engine(settings(), FaultPlan::default().vanishes_before(60)) else { return };
    for rows in [100, 40] {
        let experts = experts(&engine, rows, Class::Reactive);
        assert_eq!((experts.all(), experts.dropped), (places(&engine, rows), 0));
    }
    assert!(engine.linear_work().refused() > 0);
}
