//! `POST /v1/chat/completions`.

use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::logprobs::{self, ScoredToken};
use crate::options::{self, Delivery, Options, unsupported};
use crate::reply::{About, Call, Choice, Ended, FINGERPRINT, Frame, Job, Reading, Said, Writer, reply, usage_json};
use crate::serve::App;
use crate::tools::{Nesting, Tools};
use crate::turn::Asked;
use crate::{answer_form, behind, body, messages, prediction, task, thinking, tools, volatile};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use duet_engine::Usage;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let ((job, asked), arrived) = taken_apart(&app, received, KNOWN, take).await?;
    reply(app, caller.tenant, job, arrived, move |backend, most| {
        Ok(vec![asked.prepare(backend, most, Chat::PROMPT)?])
    })
    .await
}

/// What a body asks for.
fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<(Job<Chat>, Asked), ApiError> {
    let mut ignored = Vec::new();
    if fields.take("modalities").is_some_and(|modalities| modalities != json!(["text"])) {
        return Err(unsupported("modalities", "this server answers with text only"));
    }
    if fields.boolean("echo")? == Some(true) {
        return Err(unsupported("echo", "only completions repeat their prompt"));
    }
    let mut options = Options::take(&mut fields, headers, app, &mut ignored)?;
    let logprobs = logprobs::wanted(&mut fields)?;
    let choices = options::choices(&mut fields)?;
    let tools = Tools::take(&mut fields, Nesting::Function, &mut ignored)?;
    let form = answer_form::take(&mut fields, &mut ignored)?;
    let reasoning = thinking::take(&mut fields, app, &mut ignored)?;
    let mut messages = messages::take(&mut fields, &mut ignored)?;
    volatile::settle(&mut messages, app.config.prefix);
    behind::demote(&mut options.service, &messages, app.config.behind_answers);
    options.task.get_or_insert_with(|| task::of_messages(&messages));
    let predicted = prediction::take(&mut fields, &mut ignored)?;
    ignored.extend(fields.rest());
    let calls = options.delivery.calls();
    let usage = options.delivery == Delivery::Streamed { usage: true };
    let writer = Chat { usage: if usage { ShowsUsage::AtEnd } else { ShowsUsage::No } };
    Ok((
        Job { options, logprobs, prompt_logprobs: None, predicted, choices, writer, ignored },
        Asked { messages, tools, form, reasoning, calls },
    ))
}

pub(crate) const KNOWN: Known = Known(&[
    &options::KNOWN,
    &tools::KNOWN,
    &answer_form::KNOWN,
    &thinking::KNOWN,
    &["echo", "messages", "modalities", "top_logprobs"],
]);

/// Writes chat completions.
struct Chat {
    usage: ShowsUsage,
}

/// Whether a stream ends with its usage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShowsUsage {
    No,
    AtEnd,
}

impl Chat {
    fn chunk(&self, about: &About, choices: Value) -> Frame {
        let mut chunk = envelope(about, "chat.completion.chunk", choices);
        if self.usage == ShowsUsage::AtEnd {
            chunk["usage"] = Value::Null;
        }
        Frame::data(&chunk)
    }

    fn delta(&self, about: &About, index: usize, delta: Value, logprobs: Value, reason: Option<&str>) -> Frame {
        let choice = json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason});
        self.chunk(about, json!([choice]))
    }
}

impl Writer for Chat {
    const ID_PREFIX: &'static str = "chatcmpl-";
    const PROMPT: &'static str = "messages";

    fn whole(&mut self, about: &About, choices: Vec<Choice>, usage: Usage) -> Value {
        let backend = &*about.app.backend;
        let choices = choices.into_iter().enumerate().map(|(index, choice)| {
            let content =
                if choice.text.is_empty() && !choice.calls.is_empty() { Value::Null } else { choice.text.into() };
            let mut message = json!({"role": "assistant", "content": content, "refusal": null, "annotations": []});
            if !choice.reasoning.is_empty() {
                message["reasoning_content"] = choice.reasoning.into();
            }
            if !choice.calls.is_empty() {
                message["tool_calls"] = choice.calls.iter().map(call_json).collect();
            }
            json!({
                "index": index,
                "message": message,
                "logprobs": choice.scored.map(|tokens| logprobs::chat(backend, &tokens)),
                "finish_reason": choice.ended.map(Ended::name),
            })
        });
        let mut response = envelope(about, "chat.completion", choices.collect());
        response["usage"] = usage_json(usage);
        response
    }

    fn opening(&mut self, about: &About, index: usize) -> Vec<Frame> {
        let delta = json!({"role": "assistant", "content": "", "refusal": null});
        vec![self.delta(about, index, delta, Value::Null, None)]
    }

    fn reading(&mut self, about: &About, index: usize, Reading { read, cached }: Reading) -> Vec<Frame> {
        let choice = json!({"index": index, "delta": {}, "logprobs": null, "finish_reason": null});
        let mut chunk = envelope(about, "chat.completion.chunk", json!([choice]));
        chunk["prompt_progress"] = json!({"total": about.prompt.0, "cache": cached.0, "processed": read.0});
        vec![Frame::data(&chunk)]
    }

    fn piece(&mut self, about: &About, index: usize, said: Said, scored: Option<&[ScoredToken]>) -> Vec<Frame> {
        let logprobs = scored.map_or(Value::Null, |tokens| logprobs::chat(&*about.app.backend, tokens));
        let deltas = match said {
            Said::Text(text) => vec![json!({"content": text})],
            Said::Reasoning(text) => vec![json!({"reasoning_content": text})],
            Said::CallBegun(call) => vec![json!({"tool_calls": [call_begun(&call)]})],
            Said::Arguments { index, fragment } => {
                vec![json!({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]})]
            }
            Said::CallEnded { .. } => Vec::new(),
        };
        let mut logprobs = Some(logprobs);
        let frame = |delta| self.delta(about, index, delta, logprobs.take().unwrap_or_default(), None);
        deltas.into_iter().map(frame).collect()
    }

    fn ended(&mut self, about: &About, index: usize, ended: Ended, _: Usage) -> Vec<Frame> {
        vec![self.delta(about, index, json!({}), Value::Null, Some(ended.name()))]
    }

    fn last(&mut self, about: &About, usage: Usage) -> Vec<Frame> {
        let mut frames = Vec::new();
        if self.usage == ShowsUsage::AtEnd {
            let mut last = envelope(about, "chat.completion.chunk", json!([]));
            last["usage"] = usage_json(usage);
            frames.push(Frame::data(&last));
        }
        frames.push(Frame::done());
        frames
    }
}

fn call_json(call: &Call) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
}

/// A call as clients put it together: who is called, then with what.
fn call_begun(call: &Call) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"index": call.index, "id": call.id, "type": "function", "function": function})
}

/// What chat and text completions say of themselves.
pub(crate) fn envelope(about: &About, object: &str, choices: Value) -> Value {
    json!({
        "id": about.id,
        "object": object,
        "created": about.created,
        "model": about.app.backend.model_name(),
        "system_fingerprint": FINGERPRINT,
        "service_tier": about.service_tier,
        "choices": choices,
    })
}
