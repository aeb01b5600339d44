//! `POST /api/chat`.

use super::asked::{self, Shared, renamed};
use super::probe::{KeepAlive, Probe};
use super::{message, written};
use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::logprobs::ScoredToken;
use crate::reply::{About, Choice, Ended, Frame, Framing, Job, Said, Writer, reply};
use crate::serve::App;
use crate::tools::{self, Nesting, Tools};
use crate::turn::Asked;
use crate::{behind, body, task, volatile};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use duet_engine::Usage;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let (wanted, arrived) = taken_apart(&app, received, KNOWN, take).await?;
    let (job, asked) = match wanted {
        Wanted::Nothing(probe) => {
            return Ok(probe.answer("message", json!({"role": "assistant", "content": ""})));
        }
        Wanted::Turn(turn) => *turn,
    };
    reply(app, caller.tenant, job, arrived, move |backend, most| {
        Ok(vec![asked.prepare(backend, most, Chat::PROMPT).map_err(renamed)?])
    })
    .await
}

/// What a body asks for.
enum Wanted {
    /// That the model be there, or not.
    Nothing(Probe),
    Turn(Box<(Job<Chat>, Asked)>),
}

fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<Wanted, ApiError> {
    let mut ignored = Vec::new();
    let shared = Shared::take(&mut fields, headers, app, &mut ignored)?;
    let Shared { model, mut options, keep_alive, form, told, logprobs } = shared;
    let mut messages = message::take(&mut fields, &mut ignored)?;
    if messages.is_empty() {
        ignored.extend(fields.rest());
        return Ok(Wanted::Nothing(Probe { keep_alive, model, ignored }));
    }
    let tools = Tools::take(&mut fields, Nesting::Function, &mut ignored)?;
    volatile::settle(&mut messages, app.config.prefix);
    behind::demote(&mut options.service, &messages, app.config.behind_answers);
    options.task.get_or_insert_with(|| task::of_messages(&messages));
    if keep_alive == KeepAlive::Unloaded {
        ignored.push("keep_alive".to_owned());
    }
    ignored.extend(fields.rest());
    let writer = Chat { model };
    let job = Job { options, logprobs, prompt_logprobs: None, predicted: None, choices: 1, writer, ignored };
    Ok(Wanted::Turn(Box::new((job, Asked { messages, tools, form, told }))))
}

pub(crate) const KNOWN: Known = Known(&[&asked::KNOWN, &tools::KNOWN, &["messages"]]);

/// Writes messages.
struct Chat {
    model: String,
}

impl Chat {
    fn part(&self, message: Value) -> Value {
        let mut part = written::part(&self.model);
        part["message"] = message;
        part
    }
}

impl Writer for Chat {
    const ID_PREFIX: &'static str = "ollama-";
    const PROMPT: &'static str = "messages";
    const FRAMING: Framing = Framing::Lines;

    fn whole(&mut self, about: &About, choices: Vec<Choice>, usage: Usage) -> Value {
        let choice = choices.into_iter().next().unwrap_or_default();
        let mut message = json!({"role": "assistant", "content": choice.text});
        if !choice.reasoning.is_empty() {
            message["thinking"] = choice.reasoning.into();
        }
        if !choice.calls.is_empty() {
            message["tool_calls"] = written::calls(&choice.calls);
        }
        let mut answer = self.part(message);
        written::score(&mut answer, &*about.app.backend, choice.scored.as_deref());
        written::end(&mut answer, choice.ended.unwrap_or(Ended::Stop), usage);
        answer
    }

    fn opening(&mut self, _: &About, _: usize) -> Vec<Frame> {
        Vec::new()
    }

    fn piece(&mut self, about: &About, _: usize, said: Said, scored: Option<&[ScoredToken]>) -> Vec<Frame> {
        let message = match said {
            Said::Text(text) => json!({"role": "assistant", "content": text}),
            Said::Reasoning(text) => json!({"role": "assistant", "content": "", "thinking": text}),
            Said::Call(call) => json!({"role": "assistant", "content": "", "tool_calls": written::calls(&[call])}),
        };
        let mut part = self.part(message);
        written::score(&mut part, &*about.app.backend, scored);
        vec![Frame::data(&part)]
    }

    fn ended(&mut self, _: &About, _: usize, ended: Ended, usage: Usage) -> Vec<Frame> {
        let mut part = self.part(json!({"role": "assistant", "content": ""}));
        written::end(&mut part, ended, usage);
        vec![Frame::data(&part)]
    }

    fn last(&mut self, _: &About, _: Usage) -> Vec<Frame> {
        Vec::new()
    }

    fn failed(&mut self, _: &About, error: &ApiError) -> Vec<Frame> {
        written::failure(error)
    }
}
