//! `POST /v1/chat/completions`.

use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::backend::{Backend, PromptError};
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::logprobs::{self, ScoredToken};
use crate::messages::ChatMessage;
use crate::options::{self, Options, unsupported};
use crate::reply::{Job, Shape, reply};
use crate::serve::App;
use crate::{body, messages, prediction, task};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let ((job, messages), arrived) = taken_apart(&app, received, KNOWN, take).await?;
    let encode = move |backend: &dyn Backend, most| match backend.encode_chat(&messages, most) {
        Err(PromptError::TooLong(_)) => {
            Err(ApiError::ContextExceeded { prompt: Chat::PROMPT, context: backend.context() })
        }
        prompt => prompt.map_err(ApiError::Prompt),
    };
    reply(app, caller.tenant, job, arrived, encode).await
}

/// What a body asks for.
fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<(Job<Chat>, Vec<ChatMessage>), ApiError> {
    let mut ignored = Vec::new();
    refuse_unsupported(&mut fields, &mut ignored)?;
    let mut options = Options::take(&mut fields, headers, app, &mut ignored)?;
    let logprobs = logprobs_wanted(&mut fields)?;
    let messages = messages::take(&mut fields, &mut ignored)?;
    options.task.get_or_insert_with(|| task::of_messages(&messages));
    let predicted = prediction::take(&mut fields, &mut ignored)?;
    ignored.extend(fields.rest());
    Ok((Job { options, logprobs, predicted, shape: Chat, ignored }, messages))
}

const KNOWN: Known = Known(&[&options::KNOWN, &["messages", "modalities", "tool_choice", "tools", "top_logprobs"]]);

/// How many alternatives to report, if log probabilities are wanted at all.
fn logprobs_wanted(fields: &mut Fields) -> Result<Option<u8>, ApiError> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", 0..=TOP_LOGPROBS_MAX)?.unwrap_or(0);
    match (wanted, top) {
        (false, 0) => Ok(None),
        (false, _) => Err(ApiError::Needs { param: "top_logprobs", needs: "logprobs" }),
        (true, top) => Ok(Some(u8::try_from(top).unwrap_or(u8::MAX))),
    }
}

fn refuse_unsupported(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<(), ApiError> {
    let tools = match fields.take("tools") {
        None => false,
        Some(Value::Array(tools)) => !tools.is_empty(),
        Some(other) => return Err(fields.wrong_type("tools", "an array", &other)),
    };
    let choice = fields.take("tool_choice");
    let choice = choice.as_ref().map(|choice| choice.as_str().unwrap_or("one function"));
    match (choice, tools) {
        (Some("none"), true) => ignored.push("tools".to_owned()),
        (_, true) => return Err(unsupported("tools", "tool calling is not implemented; send tool_choice \"none\"")),
        (None | Some("none" | "auto"), false) => {}
        (Some(_), false) => return Err(unsupported("tool_choice", "tool calling is not implemented")),
    }
    if let Some(format) = fields.take("response_format") {
        let mut format = Fields::nested(fields.path_of("response_format"), format)?;
        match format.string("type")?.as_deref() {
            Some("text") => ignored.extend(format.rest()),
            None => return Err(ApiError::Missing { param: format.path_of("type") }),
            Some(_) => return Err(unsupported("response_format", "only {\"type\": \"text\"} is implemented")),
        }
    }
    if fields.take("modalities").is_some_and(|modalities| modalities != json!(["text"])) {
        return Err(unsupported("modalities", "this server answers with text only"));
    }
    Ok(())
}

struct Chat;

impl Shape for Chat {
    const ID_PREFIX: &'static str = "chatcmpl-";
    const OBJECT: &'static str = "chat.completion";
    const CHUNK_OBJECT: &'static str = "chat.completion.chunk";
    const PROMPT: &'static str = "messages";

    fn whole(&mut self, backend: &dyn Backend, text: String, scored: Option<&[ScoredToken]>, reason: &str) -> Value {
        json!({
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": null},
            "logprobs": scored.map(|tokens| logprobs::chat(backend, tokens)),
            "finish_reason": reason,
        })
    }

    fn opening(&mut self) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": "", "refusal": null});
        Some(json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}))
    }

    fn piece(&mut self, backend: &dyn Backend, text: String, scored: Option<&[ScoredToken]>) -> Value {
        json!({
            "index": 0,
            "delta": {"content": text},
            "logprobs": scored.map(|tokens| logprobs::chat(backend, tokens)),
            "finish_reason": null,
        })
    }

    fn end(&mut self, reason: &str) -> Value {
        json!({"index": 0, "delta": {}, "logprobs": null, "finish_reason": reason})
    }
}

/// OpenAI's bound.
const TOP_LOGPROBS_MAX: i64 = 20;
