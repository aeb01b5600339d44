//! Answers of both routes that answer: the same lines, of which each route says what of an answer is where.

use super::time;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::logprobs::{self, ScoredToken};
use crate::reply::{About, Choice, Ended, Frame, Framing, Said, Writer};
use duet_engine::Usage;
use serde_json::{Value, json};
use std::marker::PhantomData;
use std::time::Duration;

/// Where a route has what was said.
pub(super) trait Shape: Send + 'static {
    /// The field of the prompt.
    const PROMPT: &'static str;

    /// Writes what was said, or a piece of it.
    fn write(part: &mut Value, choice: &Choice);
}

/// Writes answers of a shape.
pub(super) struct Lines<S> {
    /// By the name that the client knows.
    model: String,
    /// A call whose end has not come: its line has all of it.
    call: Choice,
    shape: PhantomData<S>,
}

impl<S: Shape> Lines<S> {
    pub(super) fn new(model: String) -> Self {
        Self { model, call: Choice::default(), shape: PhantomData }
    }

    fn part(&self, choice: &Choice) -> Value {
        let mut part = part(&self.model);
        S::write(&mut part, choice);
        part
    }
}

impl<S: Shape> Writer for Lines<S> {
    const ID_PREFIX: &'static str = "ollama-";
    const PROMPT: &'static str = S::PROMPT;
    const FRAMING: Framing = Framing::Lines;

    fn whole(&mut self, about: &About, choices: Vec<Choice>, usage: Usage) -> Value {
        let choice = choices.into_iter().next().unwrap_or_default();
        let mut answer = self.part(&choice);
        score(&mut answer, &*about.app.backend, choice.scored.as_deref());
        end(&mut answer, choice.ended.unwrap_or(Ended::Stop), usage);
        answer
    }

    fn opening(&mut self, _: &About, _: usize) -> Vec<Frame> {
        Vec::new()
    }

    fn piece(&mut self, about: &About, _: usize, said: Said, scored: Option<&[ScoredToken]>) -> Vec<Frame> {
        if matches!(said, Said::CallBegun(_) | Said::Arguments { .. }) {
            self.call.add(said);
            return Vec::new();
        }
        let mut choice = std::mem::take(&mut self.call);
        choice.add(said);
        let mut part = self.part(&choice);
        score(&mut part, &*about.app.backend, scored);
        vec![Frame::data(&part)]
    }

    fn ended(&mut self, _: &About, _: usize, ended: Ended, usage: Usage) -> Vec<Frame> {
        let mut part = self.part(&Choice::default());
        end(&mut part, ended, usage);
        vec![Frame::data(&part)]
    }

    fn last(&mut self, _: &About, _: Usage) -> Vec<Frame> {
        Vec::new()
    }

    /// A line of its own.
    fn failed(&mut self, _: &About, error: &ApiError) -> Vec<Frame> {
        vec![Frame::data(&json!({"error": error.to_string()}))]
    }
}

/// A part of an answer to a request for this model; the answer itself is still to be added.
pub(super) fn part(model: &str) -> Value {
    json!({"model": model, "created_at": time::now(), "done": false})
}

/// Makes the last part of `part`.
fn end(part: &mut Value, ended: Ended, usage: Usage) {
    let reason = match ended {
        Ended::Length => "length",
        // Clients see the calls themselves.
        Ended::Stop | Ended::Calls => "stop",
    };
    part["done"] = true.into();
    part["done_reason"] = reason.into();
    part["total_duration"] = nanoseconds(usage.total).into();
    // It was loaded before there was anybody to ask.
    part["load_duration"] = 0.into();
    part["prompt_eval_count"] = usage.prompt.0.into();
    part["prompt_eval_duration"] = nanoseconds(usage.time_to_first_token).into();
    part["eval_count"] = usage.generated.0.into();
    part["eval_duration"] = nanoseconds(usage.total.saturating_sub(usage.time_to_first_token)).into();
}

/// Adds log probabilities, if there are any.
fn score(part: &mut Value, backend: &dyn Backend, scored: Option<&[ScoredToken]>) {
    if let Some(tokens) = scored.filter(|tokens| !tokens.is_empty()) {
        part["logprobs"] = logprobs::chat(backend, tokens)["content"].take();
    }
}

/// Durations as these routes write them.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
