//! A generation that a response is waiting for, and the line that is logged of it.
//!
//! Whoever holds a [`Running`] keeps the work going; dropping it ends the work. Exactly one log line is written for
//! each, when it is dropped.

use crate::backend::Events;
use crate::error::ApiError;
use crate::logprobs::ScoredToken;
use crate::serve::Phase;
use duet_engine::{EngineError, GenerationEvent, PromptToken, Usage};
use duet_types::{FinishReason, Tokens};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tracing::Span;

pub(crate) struct Running {
    events: Box<dyn Events>,
    phase: watch::Receiver<Phase>,
    /// What the request calls its prompt, for errors about it.
    prompt: &'static str,
    record: Record,
}

/// What came of waiting.
#[derive(Debug)]
pub(crate) enum Step {
    /// The prompt was read so far; of that, so much was there.
    Reading { read: Tokens, cached: Tokens },
    /// The next tokens of the prompt, and how likely they are.
    Prompt(Vec<PromptToken>),
    /// What the prompt is as a vector.
    Embedding(Vec<f32>),
    /// Text, perhaps empty, and the token's score if asked for.
    Piece { text: String, scored: Option<ScoredToken> },
    /// The last text and why there is no more.
    End { text: String, reason: FinishReason, usage: Usage },
}

impl Running {
    pub(crate) fn new(
        events: Box<dyn Events>,
        phase: watch::Receiver<Phase>,
        prompt: &'static str,
        id: String,
        prompt_tokens: Tokens,
    ) -> Self {
        Self { events, phase, prompt, record: Record::new(id, prompt_tokens) }
    }

    /// The next step. Not to be called again after `End` or an error.
    pub(crate) async fn next(&mut self) -> Result<Step, ApiError> {
        let stopped = async { drop(self.phase.wait_for(|phase| *phase == Phase::Stopped).await) };
        let event = tokio::select! {
            biased;
            event = self.events.next() => Some(event),
            () = stopped => None,
        };
        let Some(event) = event else { return Err(self.failed(ApiError::ShuttingDown)) };
        match event {
            Some(GenerationEvent::Reading { read, cached }) => Ok(Step::Reading { read, cached }),
            Some(GenerationEvent::Prompt(tokens)) => Ok(Step::Prompt(tokens)),
            Some(GenerationEvent::Embedding(values)) => Ok(Step::Embedding(values)),
            Some(GenerationEvent::Token { token, text, logprobs }) => {
                self.record.generated += Tokens(1);
                Ok(Step::Piece { text, scored: logprobs.map(|logprobs| ScoredToken { token, logprobs }) })
            }
            // Nothing here cancels a generation that it still waits for, so the engine did.
            Some(GenerationEvent::Finished { reason: FinishReason::Cancelled, .. }) => {
                Err(self.failed(ApiError::ShuttingDown))
            }
            Some(GenerationEvent::Finished { text, reason, usage }) => {
                self.record.outcome = Outcome::Finished(reason, usage);
                Ok(Step::End { text, reason, usage })
            }
            Some(GenerationEvent::Failed(error)) => Err(self.failed(ApiError::Engine { error, prompt: self.prompt })),
            None => {
                let error = EngineError::Internal("the generation ended without an end".to_owned());
                Err(self.failed(ApiError::Engine { error, prompt: self.prompt }))
            }
        }
    }

    fn failed(&mut self, error: ApiError) -> ApiError {
        self.record.outcome = Outcome::Failed(error.to_string());
        error
    }
}

/// What the log line will say.
struct Record {
    span: Span,
    id: String,
    started: Instant,
    prompt: Tokens,
    generated: Tokens,
    outcome: Outcome,
}

enum Outcome {
    /// Until anything else is known: dropped by a client that went away.
    Disconnected,
    Finished(FinishReason, Usage),
    Failed(String),
}

impl Record {
    fn new(id: String, prompt: Tokens) -> Self {
        let (span, started) = (Span::current(), Instant::now());
        Self { span, id, started, prompt, generated: Tokens::ZERO, outcome: Outcome::Disconnected }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Self { id, prompt, generated, .. } = self;
        let _entered = self.span.enter();
        let milliseconds = milliseconds(self.started.elapsed());
        match &self.outcome {
            Outcome::Finished(reason, usage) => tracing::info!(
                id,
                prompt_tokens = usage.prompt.0,
                cached_tokens = usage.cached.0,
                completion_tokens = usage.generated.0,
                first_token_ms = self::milliseconds(usage.time_to_first_token),
                total_ms = milliseconds,
                ?reason,
                "generated"
            ),
            Outcome::Failed(error) => tracing::warn!(
                id,
                prompt_tokens = prompt.0,
                completion_tokens = generated.0,
                total_ms = milliseconds,
                error,
                "failed"
            ),
            Outcome::Disconnected => tracing::info!(
                id,
                prompt_tokens = prompt.0,
                completion_tokens = generated.0,
                total_ms = milliseconds,
                "client went away"
            ),
        }
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
