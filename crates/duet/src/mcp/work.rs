//! One question to the model, as background work.
//!
//! **Invariant:** whoever drops [`Worker::answer`] before it is done cancels the generation.

use super::arguments::Refusal;
use duet_agents::{Begins, Part, ReasoningFormat, ReasoningSplit, ResponseFormat, Thinking, Turn};
use duet_engine::{GenerateRequest, GenerationEvent, SamplingParams, StopConditions, ThoughtBound};
use duet_server::{Backend, Chat, ChatMessage, EngineBackend, PromptError, Role};
use duet_types::{Class, FinishReason, Tokens};
use serde_json::{Map, Value};
use std::sync::Arc;

/// What the model is asked.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// What it is about, after the name of its argument.
    pub(super) text: (&'static str, String),
    /// What comes before.
    pub(super) instructions: Option<String>,
    /// What the answer is held to.
    pub(super) form: ResponseFormat,
    /// Where the answer ends at the latest, after the argument that says so.
    pub(super) answer_max: (&'static str, Tokens),
    /// 0 always takes the likeliest token.
    pub(super) temperature: f32,
}

/// What the model said.
#[derive(Debug)]
pub(super) struct Answer {
    /// Without what it thought before.
    pub(super) text: String,
    /// Why it ended: never [`FinishReason::Cancelled`].
    pub(super) reason: FinishReason,
    /// Of all its tokens, if it was held to a choice; else 0.
    pub(super) log_probability: f64,
}

/// Asks the model.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    backend: Arc<EngineBackend>,
}

/// A request, and what to make of what comes.
struct Prepared {
    request: GenerateRequest,
    split: ReasoningSplit,
}

impl Worker {
    pub(super) fn new(backend: Arc<EngineBackend>) -> Self {
        Self { backend }
    }

    /// The whole answer.
    pub(super) async fn answer(&self, question: Question) -> Result<Answer, Refusal> {
        let worker = self.clone();
        // Templates, tokens and grammars take up to some hundred milliseconds.
        let prepared = tokio::task::spawn_blocking(move || worker.prepare(question)).await;
        let Prepared { request, mut split } =
            prepared.map_err(|error| Refusal(format!("internal error: {error}")))??;
        let mut events = self.backend.submit(request).map_err(|error| Refusal(error.to_string()))?;
        let (mut parts, mut log_probability) = (Vec::new(), 0.0);
        while let Some(event) = events.next().await {
            match event {
                GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_) => {}
                GenerationEvent::Token { text, logprobs, .. } => {
                    parts.extend(split.push(&text));
                    log_probability += logprobs.map_or(0.0, |logprobs| f64::from(logprobs.chosen));
                }
                GenerationEvent::Finished { reason: FinishReason::Cancelled, .. } => break,
                GenerationEvent::Finished { text, reason, .. } => {
                    parts.extend(split.push(&text));
                    parts.extend(split.finish());
                    return Ok(Answer { text: said(parts), reason, log_probability });
                }
                GenerationEvent::Failed(error) => return Err(Refusal(error.to_string())),
            }
        }
        Err(Refusal("the engine is shutting down".to_owned()))
    }

    fn prepare(&self, question: Question) -> Result<Prepared, Refusal> {
        let backend = &*self.backend;
        let Question { text: (field, text), instructions, form, answer_max, temperature } = question;
        let reasoning = backend.families().reasoning;
        // What a model that cannot do without may think before, and its closing mark.
        let closing = reasoning.map_or_else(Vec::new, |format| backend.encode_mark(format.closing()));
        let thoughts = if reasoning.is_some() { REASONING_MAX.0 + closing.len() as u32 } else { 0 };
        let (field_of_max, answer_max) = answer_max;
        let answer_and_thoughts = Tokens(answer_max.0.saturating_add(thoughts));
        let most = room(backend.context(), (field_of_max, answer_and_thoughts))?;
        let characters = text.chars().count();
        let system = instructions.map(|instructions| ChatMessage::said(Role::System, instructions));
        let messages: Vec<_> = system.into_iter().chain([ChatMessage::said(Role::User, text)]).collect();
        let chat = Chat { messages: &messages, tools: &[], told: &without_reasoning() };
        let prompt = backend.encode_chat(&chat, most).map_err(|error| match error {
            PromptError::TooLong(_) => Refusal(format!(
                "{field}: its {characters} characters, with the instructions, are more than the {most} tokens that the \
                 context of {context} has beside an answer of {answer_and_thoughts}",
                context = backend.context(),
            )),
            error => Refusal(format!("{field}: {error}")),
        })?;
        let thinking = match (reasoning, prompt.begins) {
            (Some(format), Begins::Inside) => Thinking::On(format, Begins::Inside),
            // Its answers have a header, too.
            (Some(format @ ReasoningFormat::Channel), begins) => Thinking::On(format, begins),
            _ => Thinking::Off,
        };
        let constraint = backend
            .constrain(&Turn { calls: None, answer: &form, thinking })
            .map_err(|refused| Refusal(format!("{}: {refused}", field_of(&form))))?;
        let marks = reasoning.map_or(&[][..], ReasoningFormat::marks).iter();
        let thought = match thinking {
            Thinking::On(format, begins) => Some(ThoughtBound { format, begins, max: REASONING_MAX, closing }),
            Thinking::Off => None,
        };
        let max_tokens = Some(if thought.is_some() { answer_and_thoughts } else { answer_max });
        let request = GenerateRequest {
            prompt: prompt.tokens,
            sampling: SamplingParams { temperature, ..SamplingParams::default() },
            stop: StopConditions { max_tokens, ..StopConditions::default() },
            class: Class::Proactive,
            logprobs: matches!(form, ResponseFormat::Choice(_)).then_some(0),
            constraint,
            thought,
            marks: marks.filter_map(|mark| backend.special(mark)).collect(),
            ..GenerateRequest::default()
        };
        Ok(Prepared { request, split: ReasoningSplit::new(reasoning, prompt.begins) })
    }
}

/// What the prompt may have beside the answer.
fn room(context: Tokens, (field, answer): (&str, Tokens)) -> Result<Tokens, Refusal> {
    match context.0.checked_sub(answer.0) {
        None | Some(0) => Err(Refusal(format!(
            "{field}: an answer of up to {answer} tokens leaves no room for a prompt in the context of {context}"
        ))),
        Some(room) => Ok(Tokens(room)),
    }
}

/// What templates are told: background work is short, and nobody sees what is thought before it.
fn without_reasoning() -> Map<String, Value> {
    [("enable_thinking".to_owned(), Value::Bool(false))].into_iter().collect()
}

/// The argument that the form of an answer came by.
fn field_of(form: &ResponseFormat) -> &'static str {
    match form {
        ResponseFormat::Choice(_) => "labels",
        _ => "schema",
    }
}

fn said(parts: Vec<Part>) -> String {
    let texts = parts.into_iter().filter_map(|part| match part {
        // Of a tool that nobody offered: what the model wrote is all that it said.
        Part::Text(text) | Part::Call { written: text, .. } => Some(text),
        Part::Reasoning(_) => None,
    });
    texts.collect::<String>().trim().to_owned()
}

/// What a model may think before an answer, if it cannot do without.
const REASONING_MAX: Tokens = Tokens(1024);
