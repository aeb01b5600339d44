//! Several answers to one prompt: it is read once and kept, and each answer begins from what is kept.
//!
//! The reading is a request of its own, which checks what the answers ask for. The first answer owns it and tells of it;
//! the others wait until it is over, whichever way it ends. What it keeps may be given up before they begin, where memory
//! is short: then they read for themselves, and say the same.
//!
//! Of the answers' usage, the first one's tells what was there before the reading; the others tell what they found.

use crate::backend::{Backend, EventFuture, Events};
use duet_engine::{EngineError, GenerateRequest, GenerationEvent, Output, PromptToken, Usage};
use duet_types::Tokens;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Submits the answers to one prompt.
pub(super) fn submit(
    backend: &Arc<dyn Backend>,
    answers: Vec<GenerateRequest>,
) -> Result<Vec<Box<dyn Events>>, EngineError> {
    let Some(reading) = reading_for(&answers) else {
        return answers.into_iter().map(|answer| backend.submit(answer)).collect();
    };
    let reading = backend.submit(reading)?;
    let (told, over) = watch::channel(Vec::new());
    let mut first = Some(State::Reads { reading, told });
    let begun = Instant::now();
    let answers = answers.into_iter().map(|request| {
        let state = first.take().unwrap_or_else(|| State::Waits { over: over.clone() });
        let request = GenerateRequest { prompt_logprobs: None, ..request };
        let backend = Arc::clone(backend);
        Box::new(Answer { backend, request, state, begun, before: Before::default() }) as Box<dyn Events>
    });
    Ok(answers.collect())
}

/// What reads the prompt for all of them; nothing if each is to read it, since nothing is gained.
fn reading_for(answers: &[GenerateRequest]) -> Option<GenerateRequest> {
    let [first, _, ..] = answers else { return None };
    // The last token is read for each answer. An answer without a token is over when its prompt is read.
    let gains = first.prompt.len() > 1 && first.stop.max_tokens != Some(Tokens::ZERO);
    gains.then(|| GenerateRequest { output: Output::KeptPrompt, constraint: None, ..first.clone() })
}

/// One of several answers.
struct Answer {
    backend: Arc<dyn Backend>,
    /// Until it is submitted.
    request: GenerateRequest,
    state: State,
    begun: Instant,
    before: Before,
}

enum State {
    /// It reads the prompt for all, and has told so much of it. That it is over is known by the end of the channel.
    Reads { reading: Box<dyn Events>, told: watch::Sender<Vec<PromptToken>> },
    /// Another one reads the prompt.
    Waits { over: watch::Receiver<Vec<PromptToken>> },
    /// The prompt was read.
    Answers(Box<dyn Events>),
}

/// What was before it was submitted.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    waited: Duration,
    /// Of the prompt, if this one read it.
    cached: Option<Tokens>,
}

impl Events for Answer {
    fn next(&mut self) -> EventFuture<'_> {
        Box::pin(async move {
            loop {
                let told = match &mut self.state {
                    State::Answers(events) => {
                        let before = self.before;
                        return events.next().await.map(|event| before.added_to(event));
                    }
                    State::Reads { reading, told } => match reading.next().await {
                        Some(GenerationEvent::Finished { usage, .. }) => {
                            self.before.cached = Some(usage.cached);
                            Vec::new()
                        }
                        Some(GenerationEvent::Prompt(tokens)) => {
                            told.send_modify(|all| all.extend_from_slice(&tokens));
                            return Some(GenerationEvent::Prompt(tokens));
                        }
                        event => return event,
                    },
                    State::Waits { over } => {
                        while over.changed().await.is_ok() {}
                        over.borrow().clone()
                    }
                };
                if let Err(error) = self.submit() {
                    return Some(GenerationEvent::Failed(error));
                }
                if !told.is_empty() {
                    return Some(GenerationEvent::Prompt(told));
                }
            }
        })
    }
}

impl Answer {
    fn submit(&mut self) -> Result<(), EngineError> {
        self.before.waited = self.begun.elapsed();
        let events = self.backend.submit(std::mem::take(&mut self.request))?;
        self.state = State::Answers(events);
        Ok(())
    }
}

impl Before {
    fn added_to(self, event: GenerationEvent) -> GenerationEvent {
        let GenerationEvent::Finished { text, reason, usage } = event else { return event };
        let usage = Usage {
            cached: self.cached.unwrap_or(usage.cached),
            time_to_first_token: self.waited + usage.time_to_first_token,
            total: self.waited + usage.total,
            ..usage
        };
        GenerationEvent::Finished { text, reason, usage }
    }
}
