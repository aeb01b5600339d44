//! The engine on real lanes with the fake model: the same runtime that serves, with a model that tests can foresee.

mod cancelling;
mod ending;
mod failing;
mod flows;
mod queueing;
mod streaming;

use crate::fake_model::{FakeModel, Hold, SPELL};
use crate::handle::{EngineStats, Generation};
use crate::request::{EngineError, GenerateRequest, GenerationEvent, SamplingParams, StopConditions, Usage};
use crate::runtime::{Runtime, RuntimeConfig};
use duet_device::{CpuConfig, Pinning};
use duet_types::{Class, FinishReason, TokenId, Tokens};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A runtime under test.
struct Bench {
    runtime: Runtime<FakeModel>,
    hold: Arc<Hold>,
}

/// All that came of a generation.
#[derive(Debug)]
struct Answer {
    tokens: Vec<TokenId>,
    /// One per token, and the end's.
    texts: Vec<String>,
    end: Result<(FinishReason, Usage), EngineError>,
}

/// Two lanes of one thread, chunks of 8 tokens, spans of 2 of the model's 5 nodes: everything is cut.
fn config() -> RuntimeConfig {
    RuntimeConfig {
        cpu: CpuConfig { lanes: vec![1, 1], pinning: Pinning::Floating },
        chunk: Tokens(8),
        span_nodes: Some(2),
        queue_max: 1000,
    }
}

impl Bench {
    fn new(model: FakeModel) -> Self {
        Self::with(model, &config())
    }

    /// A model that spells `script` after every `SPELL`.
    fn spelling(script: &[TokenId]) -> Self {
        Self::new(FakeModel { script: script.to_vec(), ..FakeModel::new(1000, 100) })
    }

    fn with(model: FakeModel, config: &RuntimeConfig) -> Self {
        let hold = Arc::clone(&model.hold);
        Self { runtime: Runtime::start(model, config).unwrap(), hold }
    }

    fn submit(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        let (id, events) = self.runtime.submit(request)?;
        Ok(Generation { id, events, engine: self.runtime.canceller() })
    }

    fn start(&self, request: GenerateRequest) -> Generation {
        self.submit(request).unwrap()
    }

    fn answer(&self, request: GenerateRequest) -> Answer {
        answer(self.start(request))
    }

    fn stats(&self) -> EngineStats {
        self.runtime.stats()
    }

    /// Rows that passes which came to their end have computed.
    fn rows(&self) -> usize {
        self.runtime.backend().rows.load(Ordering::Relaxed)
    }
}

impl Answer {
    fn text(&self) -> String {
        self.texts.concat()
    }

    fn reason(&self) -> FinishReason {
        self.end.as_ref().unwrap().0
    }

    fn usage(&self) -> Usage {
        self.end.as_ref().unwrap().1
    }

    fn error(&self) -> &EngineError {
        self.end.as_ref().unwrap_err()
    }
}

/// Waits for the end, and checks that it is the end.
fn answer(mut generation: Generation) -> Answer {
    let (mut tokens, mut texts) = (Vec::new(), Vec::new());
    let end = loop {
        match generation.next_blocking().expect("a generation has an end") {
            GenerationEvent::Token { token, text, .. } => {
                tokens.push(token);
                texts.push(text);
            }
            GenerationEvent::Finished { text, reason, usage } => {
                texts.push(text);
                break Ok((reason, usage));
            }
            GenerationEvent::Failed(error) => break Err(error),
        }
    };
    assert_eq!(generation.next_blocking(), None, "nothing follows the end");
    Answer { tokens, texts, end }
}

fn letters(text: &str) -> Vec<TokenId> {
    text.bytes().map(|byte| TokenId(u32::from(byte - b'a'))).collect()
}

fn request(prompt: &[TokenId]) -> GenerateRequest {
    GenerateRequest {
        prompt: prompt.to_vec(),
        sampling: SamplingParams::default(),
        stop: StopConditions::default(),
        class: Class::Reactive,
        logprobs: None,
    }
}

/// Asks for the script.
fn spell() -> GenerateRequest {
    request(&[TokenId(0), SPELL])
}

/// Asks for `max_tokens` letters that depend on all of `prompt`.
fn hashed(prompt: &[TokenId], max_tokens: u32) -> GenerateRequest {
    let mut request = request(prompt);
    request.stop.max_tokens = Some(Tokens(max_tokens));
    request
}
