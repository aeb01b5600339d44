//! A device that fails loses its work to the crew, and no answer ends; without a stand-in the request fails.

use duet_engine::{
    DeviceUse, Engine, EngineConfig, EngineError, Fallback, GenerateRequest, GenerationEvent, LinearWork, Offload,
    SamplingParams, StopConditions,
};
use duet_model::forward::{NotRun, TokenWise};
use duet_model::{LoadOptions, Model};
use duet_types::{Class, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

/// A device that has gone.
#[derive(Debug)]
struct Gone;

impl TokenWise for Gone {
    fn qkv(&self, _: usize, _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Failed("it has gone".to_owned()))
    }

    fn feed_forward(&self, _: usize, _: &[f32], _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Failed("it has gone".to_owned()))
    }

    fn head(&self, _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Failed("it has gone".to_owned()))
    }
}

fn model() -> Arc<Model> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    Arc::new(Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn gone(fallback: Fallback, device_use: DeviceUse) -> Offload {
    Offload { name: "gone".to_owned(), device: Arc::new(Gone), fallback, device_use, exchange: None }
}

/// The tokens of an answer, or why there is none, and where its linear work was done.
fn answer(model: Arc<Model>, offload: Option<Offload>) -> (Result<Vec<TokenId>, EngineError>, LinearWork) {
    let engine = Engine::start(model, EngineConfig { offload, ..EngineConfig::default() }).unwrap();
    let request = GenerateRequest {
        prompt: (1..9).map(TokenId).collect(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_tokens: Some(Tokens(6)), ignore_eos: true, ..StopConditions::default() },
        class: Class::Reactive,
        ..GenerateRequest::default()
    };
    let mut generation = engine.submit(request).unwrap();
    let mut tokens = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Token { token, .. } => tokens.push(token),
            GenerationEvent::Failed(error) => return (Err(error), engine.linear_work()),
            GenerationEvent::Finished { .. } => {}
        }
    }
    (Ok(tokens), engine.linear_work())
}

#[test]
fn the_crew_stands_in_for_a_device_that_has_gone() {
    let (expected, _) = answer(model(), None);
    let (found, work) = answer(model(), Some(gone(Fallback::Crew, DeviceUse::Alone)));
    assert_eq!(found, expected);
    assert!(work.on_device == 0 && work.on_crew > 0, "{work:?}");
    // It is left alone after the first failure, not asked again for every kernel.
    assert_eq!(work.refused, 1);
}

#[test]
fn without_a_stand_in_the_request_fails() {
    let (found, work) = answer(model(), Some(gone(Fallback::Never, DeviceUse::Alone)));
    let error = found.unwrap_err();
    assert!(matches!(&error, EngineError::Device { device, .. } if device == "gone"), "{error:?}");
    assert_eq!(work.on_crew, 0);
}

#[test]
fn a_lane_whose_device_has_gone_goes_on_with_the_crew() {
    let (expected, _) = answer(model(), None);
    let (found, work) = answer(model(), Some(gone(Fallback::Crew, DeviceUse::Lane)));
    assert_eq!(found, expected);
    assert!(work.on_device == 0 && work.on_crew > 0, "{work:?}");
}
