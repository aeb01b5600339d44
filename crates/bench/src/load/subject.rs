//! Where requests go: an engine in this process, or any OpenAI-compatible server.
//!
//! A subject is opened anew for every slice. An engine then starts with empty caches, so that neither of two compared
//! slices profits from what the other has read; a server over HTTP keeps its caches, which is why the order of slices
//! alternates.

use super::LoadError;
use super::http::{HttpTarget, Server};
use super::job::{Answer, Counts, Ending, Job, Message, Tier};
use super::target::{SendError, Target, TargetLane};
use duet_engine::{
    Engine, EngineConfig, EngineError, EngineSamples, GenerateRequest, GenerationEvent, SamplingParams, StopConditions,
};
use duet_model::Model;
use duet_model::template::{ChatMessage, TemplateError, Turn};
use duet_model::tokenizer::SpecialTokens;
use duet_types::{Class, TokenId, Tokens};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What is measured.
#[derive(Clone)]
pub enum Subject {
    /// An engine in this process, under a policy.
    Engine {
        /// The model.
        model: Arc<Model>,
        /// How it runs; the policy is in here.
        config: Box<EngineConfig>,
    },
    /// A server that runs already.
    Server(Server),
}

impl Subject {
    /// What tables and plots call it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Engine { config, .. } => config.policy.to_string(),
            Self::Server(server) => server.name.clone(),
        }
    }

    /// This subject with another engine configuration; a server stays as it is.
    pub(crate) fn with(&self, change: impl FnOnce(&mut EngineConfig)) -> Self {
        let mut changed = self.clone();
        if let Self::Engine { config, .. } = &mut changed {
            change(config);
        }
        changed
    }

    /// Ready to take requests.
    pub(crate) fn open(&self) -> Result<Box<dyn Target>, LoadError> {
        match self {
            Self::Engine { model, config } => {
                let engine = Engine::start(Arc::clone(model), EngineConfig::clone(config))?;
                warm_up(&engine)?;
                Ok(Box::new(EngineTarget { model: Arc::clone(model), engine: Mutex::new(Some(engine)) }))
            }
            Self::Server(server) => Ok(Box::new(HttpTarget::new(server))),
        }
    }

    /// How many tokens a text has; for a server, whose tokenizer is unknown, about as many as it is for English.
    pub(crate) fn tokens(&self, text: &str) -> Tokens {
        match self {
            Self::Engine { model, .. } => {
                Tokens(model.tokenizer().encode_prompt(text, SpecialTokens::Parse).len() as u32)
            }
            Self::Server(_) => Tokens((text.len() / 4) as u32),
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subject").field(&self.name()).finish()
    }
}

struct EngineTarget {
    model: Arc<Model>,
    /// Gone once closed: the last clone that is dropped stops the engine.
    engine: Mutex<Option<Engine>>,
}

impl EngineTarget {
    fn engine(&self) -> Option<Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Target for EngineTarget {
    fn send(&self, job: &Job, _deadline: Instant, answer: &mut Answer) -> Result<(), SendError> {
        let engine = self.engine().ok_or(SendError::Closed)?;
        let prompt = encode(&self.model, &job.messages)
            .map_err(|error| SendError::Failed(LoadError::from(error).to_string()))?;
        let mut generation = engine.submit(request(prompt, job))?;
        // Only the generation is waited for: it does not keep the engine from stopping.
        drop(engine);
        while let Some(event) = generation.next_blocking() {
            let now = Instant::now();
            match event {
                GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_) => {}
                GenerationEvent::Token { text, .. } => answer.token(&text, now),
                GenerationEvent::Finished { text, usage, .. } => {
                    answer.text += &text;
                    answer.end = Some(now);
                    answer.counts =
                        Some(Counts { prompt: usage.prompt, cached: Some(usage.cached), output: usage.generated });
                    return Ok(());
                }
                GenerationEvent::Failed(error) => return Err(error.into()),
            }
        }
        Err(SendError::Failed("the engine stopped before the answer was complete".to_owned()))
    }

    fn close(&self) {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn take_samples(&self) -> Option<EngineSamples> {
        self.engine().map(|engine| engine.take_samples())
    }

    fn lanes(&self) -> Vec<TargetLane> {
        let shown = |engine: Engine| {
            let lanes = engine.machine().0.lanes.iter();
            lanes.map(|lane| TargetLane { name: lane.name.clone(), watts: lane.capabilities.watts }).collect()
        };
        self.engine().map(shown).unwrap_or_default()
    }
}

impl From<EngineError> for SendError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::ShuttingDown => Self::Closed,
            error => Self::Failed(error.to_string()),
        }
    }
}

/// The tokens that ask for the next turn of a conversation.
pub(crate) fn encode(model: &Model, messages: &[Message]) -> Result<Vec<TokenId>, TemplateError> {
    let messages: Vec<_> =
        messages.iter().map(|message| ChatMessage::new(message.role.name(), message.content.as_str())).collect();
    let text = model.template().render(&messages, None, Turn::Generate)?;
    Ok(model.tokenizer().encode_prompt(&text, SpecialTokens::Parse))
}

/// Greedy, as `tools` over HTTP ask for it. A request that does not say its class has the server's default.
fn request(prompt: Vec<TokenId>, job: &Job) -> GenerateRequest {
    GenerateRequest {
        prompt,
        sampling: SamplingParams::default(),
        stop: StopConditions {
            max_tokens: Some(job.output),
            ignore_eos: job.ending == Ending::AllTokens,
            ..StopConditions::default()
        },
        class: match job.tier {
            Tier::Declared => job.class,
            Tier::Unsaid => Class::default(),
        },
        ..GenerateRequest::default()
    }
}

/// The first passes of a new engine touch new memory; no slice should pay for that.
fn warm_up(engine: &Engine) -> Result<(), LoadError> {
    let prompt = engine.model().tokenizer().encode_prompt(WARM_UP_TEXT, SpecialTokens::Parse);
    let stop = StopConditions { max_tokens: Some(Tokens(4)), ignore_eos: true, ..StopConditions::default() };
    let mut generation = engine.submit(GenerateRequest {
        prompt,
        sampling: SamplingParams::default(),
        stop,
        class: Class::Reactive,
        ..GenerateRequest::default()
    })?;
    while let Some(event) = generation.next_blocking() {
        if let GenerationEvent::Failed(error) = event {
            return Err(error.into());
        }
    }
    let _ = engine.take_samples();
    Ok(())
}

/// Nothing that a prompt begins with.
const WARM_UP_TEXT: &str = "0 1 1 2 3 5 8 13 21 34 55 89";
