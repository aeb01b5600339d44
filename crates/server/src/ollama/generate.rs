//! `POST /api/generate`: one prompt, put into the model's chat template unless it is `raw`.

use super::asked::{self, Shared};
use super::message::refuse_images;
use super::probe::{KeepAlive, Probe};
use super::writer::{Lines, Shape};
use crate::answer_form::AnswerForm;
use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::messages::{ChatMessage, Role};
use crate::options::unsupported;
use crate::reply::{Choice, Job, Writer, reply};
use crate::serve::App;
use crate::turn::{Asked, Prepared, constraint_of};
use crate::{behind, body, task};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use duet_types::Tokens;
use serde_json::Value;
use std::sync::Arc;

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let (wanted, arrived) = taken_apart(&app, received, KNOWN, take).await?;
    let (job, prompt) = match wanted {
        Wanted::Nothing(probe) => return Ok(probe.answer("response", "".into())),
        Wanted::Text(text) => *text,
    };
    let prepare = move |backend: &dyn Backend, most| Ok(vec![prompt.prepare(backend, most)?]);
    reply(app, caller.tenant, job, arrived, prepare).await
}

/// What a body asks for.
enum Wanted {
    /// That the model be there, or not.
    Nothing(Probe),
    Text(Box<(Job<Lines<Text>>, Prompt)>),
}

/// What to go on from.
enum Prompt {
    /// The model's turn in a conversation of one message.
    Chat(Asked),
    /// The text as it is.
    Raw(String, AnswerForm),
}

impl Prompt {
    fn prepare(&self, backend: &dyn Backend, most: Tokens) -> Result<Prepared, ApiError> {
        match self {
            Self::Chat(asked) => asked.prepare(backend, most, Lines::<Text>::PROMPT),
            Self::Raw(text, form) => {
                let exceeded = ApiError::ContextExceeded { prompt: Lines::<Text>::PROMPT, context: backend.context() };
                let prompt = backend.encode_text(text, most).map_err(|_| exceeded)?;
                Ok(Prepared::text(prompt, constraint_of(backend, form)?))
            }
        }
    }
}

fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<Wanted, ApiError> {
    let mut ignored = Vec::new();
    refuse_unsupported(&mut fields)?;
    let shared = Shared::take(&mut fields, headers, app, &mut ignored)?;
    let Shared { model, mut options, keep_alive, form, reasoning, logprobs } = shared;
    let prompt = fields.string("prompt")?.unwrap_or_default();
    let system = fields.string("system")?.filter(|system| !system.is_empty());
    let raw = fields.boolean("raw")?.unwrap_or(false);
    if prompt.is_empty() {
        ignored.extend(fields.rest());
        return Ok(Wanted::Nothing(Probe { keep_alive, model, ignored }));
    }
    let prompt = if raw {
        if system.is_some() {
            ignored.push("system".to_owned());
        }
        Prompt::Raw(prompt, form)
    } else {
        let system = system.map(|text| ChatMessage::said(Role::System, text));
        let messages: Vec<ChatMessage> = system.into_iter().chain([ChatMessage::said(Role::User, prompt)]).collect();
        behind::demote(&mut options.service, &messages, app.config.behind_answers);
        options.task = Some(task::of_messages(&messages));
        Prompt::Chat(Asked { messages, form, reasoning, ..Asked::default() })
    };
    if keep_alive == KeepAlive::Unloaded {
        ignored.push("keep_alive".to_owned());
    }
    ignored.extend(fields.rest());
    let job = Job {
        options,
        logprobs,
        prompt_logprobs: None,
        predicted: None,
        choices: 1,
        writer: Lines::new(model),
        ignored,
    };
    Ok(Wanted::Text(Box::new((job, prompt))))
}

pub(crate) const KNOWN: Known =
    Known(&[&asked::KNOWN, &["context", "images", "prompt", "raw", "suffix", "system", "template"]]);

/// What would change the answer and cannot be honoured. Empty values of it pass.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    refuse_images("images".to_owned(), fields.take("images"))?;
    for (name, why) in UNSUPPORTED {
        let is_empty = |value: &Value| value == "" || value.as_array().is_some_and(Vec::is_empty);
        if fields.take(name).is_some_and(|value| !is_empty(&value)) {
            return Err(unsupported(name, why));
        }
    }
    Ok(())
}

const UNSUPPORTED: [(&str, &str); 3] = [
    ("suffix", "filling in the middle is not implemented"),
    ("template", "the model's own template is used; `raw` takes a prompt that needs none"),
    ("context", "send the conversation to /api/chat; what was computed of it is found again"),
];

/// An answer is a text. No tools were offered, so nothing in it is a call.
struct Text;

impl Shape for Text {
    const PROMPT: &'static str = "prompt";

    fn write(part: &mut Value, choice: &Choice) {
        part["response"] = choice.text.as_str().into();
        if !choice.reasoning.is_empty() {
            part["thinking"] = choice.reasoning.as_str().into();
        }
    }
}
