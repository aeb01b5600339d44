//! `POST /api/chat`.

use super::asked::{self, Shared};
use super::message;
use super::probe::{KeepAlive, Probe};
use super::writer::{Lines, Shape};
use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::reply::{Call, Choice, Job, Writer, reply};
use crate::serve::App;
use crate::tools::{self, Nesting, Tools};
use crate::turn::{Asked, CallsCome};
use crate::{behind, body, task, volatile};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
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
        Ok(vec![asked.prepare(backend, most, Lines::<Message>::PROMPT)?])
    })
    .await
}

/// What a body asks for.
enum Wanted {
    /// That the model be there, or not.
    Nothing(Probe),
    Turn(Box<(Job<Lines<Message>>, Asked)>),
}

fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<Wanted, ApiError> {
    let mut ignored = Vec::new();
    let shared = Shared::take(&mut fields, headers, app, &mut ignored)?;
    let Shared { model, mut options, keep_alive, form, reasoning, logprobs } = shared;
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
    let writer = Lines::new(model);
    let job = Job { options, logprobs, prompt_logprobs: None, predicted: None, choices: 1, writer, ignored };
    Ok(Wanted::Turn(Box::new((job, Asked { messages, tools, form, reasoning, calls: CallsCome::Whole }))))
}

pub(crate) const KNOWN: Known = Known(&[&asked::KNOWN, &tools::KNOWN, &["messages"]]);

/// An answer is a message.
struct Message;

impl Shape for Message {
    const PROMPT: &'static str = "messages";

    fn write(part: &mut Value, choice: &Choice) {
        let mut message = json!({"role": "assistant", "content": choice.text});
        if !choice.reasoning.is_empty() {
            message["thinking"] = choice.reasoning.as_str().into();
        }
        if !choice.calls.is_empty() {
            message["tool_calls"] = calls(&choice.calls);
        }
        part["message"] = message;
    }
}

/// Calls with their arguments as an object.
fn calls(calls: &[Call]) -> Value {
    let call = |call: &Call| {
        let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        let function = json!({"index": call.index, "name": call.name, "arguments": arguments});
        json!({"id": call.id, "function": function})
    };
    calls.iter().map(call).collect()
}
