//! An engine with a tiny model and OpenVINO's CPU device, asked for answers and for what became of its graphs.

use duet_engine::{Engine, GenerateRequest, Generation, GenerationEvent, StopConditions};
use duet_model::{LoadOptions, Model};
use duet_openvino::{Activations, CompileOptions, Device, Runtime};
use duet_types::{Class, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tokens of every answer.
pub(crate) const ANSWER: usize = 6;

pub(crate) fn model() -> Arc<Model> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    Arc::new(Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap())
}

/// The device, or a word that there is no runtime.
pub(crate) fn device() -> Option<Device> {
    let runtime = duet_testing::loaded(Runtime::load())?;
    Some(runtime.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Activations::ROUNDED)))
}

/// A prompt of `rows` rows, which shares no beginning with those of other lengths.
pub(crate) fn start(engine: &Engine, rows: u32, class: Class) -> Generation {
    let vocabulary = engine.model().config().vocabulary as u32;
    let max_tokens = Some(Tokens(ANSWER as u32));
    let request = GenerateRequest {
        prompt: (0..rows).map(|index| TokenId(3 + (index * 7 + rows * 11) % (vocabulary - 3))).collect(),
        stop: StopConditions { max_tokens, ignore_eos: true, ..StopConditions::default() },
        class,
        ..GenerateRequest::default()
    };
    engine.submit(request).unwrap()
}

pub(crate) fn answer(mut generation: Generation) -> Vec<TokenId> {
    let mut tokens = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_) => {}
            GenerationEvent::Token { token, .. } => tokens.push(token),
            GenerationEvent::Finished { .. } => {}
            GenerationEvent::Failed(error) => panic!("{error}"),
        }
    }
    tokens
}

/// Waits until the engine has come so far.
pub(crate) fn until(engine: &Engine, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", engine.metrics_text());
        std::thread::yield_now();
    }
}

/// The value of a metric.
pub(crate) fn metric(engine: &Engine, name: &str) -> u64 {
    let text = engine.metrics_text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.trim().parse().unwrap()
}
