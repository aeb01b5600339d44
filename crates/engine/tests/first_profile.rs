//! A first answer on a machine that nobody has measured: it comes by an estimate, and says the same.

use duet_engine::profile::{FirstProfile, Profiler};
use duet_engine::{Engine, EngineConfig, GenerateRequest, GenerationEvent, StopConditions};
use duet_model::Model;
use duet_types::{TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

fn model() -> Arc<Model> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures/golden_llama.gguf");
    Arc::new(Model::load(&path, &duet_model::LoadOptions::default(), &mut |_| {}).unwrap())
}

fn start(model: &Arc<Model>, folder: &Path, threads: usize, first_profile: FirstProfile) -> Engine {
    let config = EngineConfig {
        threads: Some(threads),
        profile_folder: Some(folder.to_owned()),
        first_profile,
        ..EngineConfig::default()
    };
    Engine::start(Arc::clone(model), config).unwrap()
}

fn answer(engine: &Engine) -> Vec<TokenId> {
    let request = GenerateRequest {
        prompt: (0..100).map(|at| TokenId(at * 31 % 250)).collect(),
        stop: StopConditions { max_tokens: Some(Tokens(30)), ignore_eos: true, ..StopConditions::default() },
        ..GenerateRequest::default()
    };
    let (mut generation, mut tokens) = (engine.submit(request).unwrap(), Vec::new());
    loop {
        match generation.next_blocking() {
            Some(GenerationEvent::Token { token, .. }) => tokens.push(token),
            Some(GenerationEvent::Finished { .. }) => return tokens,
            Some(GenerationEvent::Reading { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_estimate_answers_as_a_measurement_does_and_is_not_kept() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    for threads in [1, 2] {
        let estimated = start(&model, folder.path(), threads, FirstProfile::Estimated);
        assert!(estimated.is_estimated());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was measured");
        let other = tempfile::tempdir().unwrap();
        let measured = start(&model, other.path(), threads, FirstProfile::Measured);
        assert!(!measured.is_estimated());
        assert_eq!(answer(&estimated), answer(&measured), "{threads}");
    }
}

#[test]
fn what_was_measured_after_the_answer_is_what_the_next_start_finds() {
    let (folder, model) = (tempfile::tempdir().unwrap(), model());
    let engine = start(&model, folder.path(), 1, FirstProfile::Estimated);
    answer(&engine);
    drop(engine);
    assert_eq!(Arc::strong_count(&model), 1, "nothing of it lies beside what is measured");
    let one = EngineConfig { threads: Some(1), ..EngineConfig::default() };
    Profiler::start(Arc::clone(&model), &one).unwrap().measure_first(folder.path()).unwrap();
    duet_testing::settle(folder.path());
    assert!(!start(&model, folder.path(), 1, FirstProfile::Estimated).is_estimated());
}
