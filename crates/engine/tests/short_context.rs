//! A model whose context is shorter than what a profile is usually measured with: the engine starts and answers.

use duet_engine::{Engine, EngineConfig, GenerateRequest, GenerationEvent, SamplingParams, StopConditions};
use duet_model::{LoadOptions, Model};
use duet_types::{Class, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

#[test]
fn a_model_with_a_short_context_is_profiled_and_served() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    let model = Arc::new(Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap());
    assert!(model.config().context < Tokens(1280), "it is to be a short one");
    let engine = Engine::start(model, EngineConfig { profile_folder: None, ..EngineConfig::default() }).unwrap();
    let request = GenerateRequest {
        prompt: (1..9).map(TokenId).collect(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_tokens: Some(Tokens(4)), ignore_eos: true, ..StopConditions::default() },
        class: Class::Reactive,
        ..GenerateRequest::default()
    };
    let mut generation = engine.submit(request).unwrap();
    let mut tokens = 0;
    while let Some(event) = generation.next_blocking() {
        assert!(!matches!(event, GenerationEvent::Failed(_)), "{event:?}");
        tokens += usize::from(matches!(event, GenerationEvent::Token { .. }));
    }
    assert_eq!(tokens, 4);
}
