//! `POST /api/embed`, and `POST /api/embeddings`, which it replaced: texts as vectors (`embeddings`).
//!
//! Inputs that are too long are cut at the end, as Ollama does it, unless `truncate` is false.

use super::names;
use super::probe::KeepAlive;
use super::writer::nanoseconds;
use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::body;
use crate::embeddings::{self, Embedded, Overlong, Wanted};
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::raw_prompt::RawPrompt;
use crate::reply::tell_ignored;
use crate::serve::App;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let (asked, arrived) = taken_apart(&app, received, KNOWN, take).await?;
    let Embedded { vectors, tokens, took } = embeddings::read(&app, caller.tenant, asked.wanted, arrived).await?;
    let answer = Answer {
        model: asked.model,
        embeddings: vectors,
        total_duration: nanoseconds(took),
        load_duration: 0,
        prompt_eval_count: tokens,
    };
    let mut response = Json(answer).into_response();
    tell_ignored(&mut response, &asked.ignored);
    Ok(response)
}

pub(super) async fn legacy(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let (asked, arrived) = taken_apart(&app, received, LEGACY, take_legacy).await?;
    let embedded = embeddings::read(&app, caller.tenant, asked.wanted, arrived).await?;
    let embedding = embedded.vectors.into_iter().next().unwrap_or_default();
    let mut response = Json(LegacyAnswer { embedding }).into_response();
    tell_ignored(&mut response, &asked.ignored);
    Ok(response)
}

/// What a body asks for.
struct Asked {
    /// The name by which the client knows the model; the answer repeats it.
    model: String,
    wanted: Wanted,
    /// Paths of fields that have no effect.
    ignored: Vec<String>,
}

fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<Asked, ApiError> {
    let inputs = match fields.take("input") {
        // That the model be loaded is all that is asked.
        None => Vec::new(),
        Some(Value::String(text)) => vec![RawPrompt::Text(text)],
        Some(Value::Array(listed)) => {
            let text = |(index, value): (usize, Value)| match value {
                Value::String(text) => Ok(RawPrompt::Text(text)),
                other => Err(fields.wrong_type(&format!("input[{index}]"), "a string", &other)),
            };
            listed.into_iter().enumerate().map(text).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(fields.wrong_type("input", "a string or an array of strings", &other)),
    };
    let (model, via) = names::take_for_vectors(&mut fields, app)?;
    let wanted = Wanted {
        class: embeddings::class(&mut fields, headers, app, inputs.len())?,
        width: embeddings::width(&mut fields, via.width(app))?,
        inputs: embeddings::checked(inputs, &fields, "input")?,
        overlong: Overlong::cut_if(fields.boolean("truncate")?.unwrap_or(true)),
        name: "input",
        via,
    };
    asked(fields, model, wanted)
}

pub(crate) const KNOWN: Known = Known(&[&SHARED, &["dimensions", "input", "truncate"]]);

/// One text, and what is too long is always cut.
fn take_legacy(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<Asked, ApiError> {
    let prompt = fields.string("prompt")?.filter(|prompt| !prompt.is_empty());
    let (model, via) = names::take_for_vectors(&mut fields, app)?;
    let wanted = Wanted {
        class: embeddings::class(&mut fields, headers, app, 1)?,
        width: via.width(app),
        inputs: prompt.into_iter().map(RawPrompt::Text).collect(),
        overlong: Overlong::Cut,
        name: "prompt",
        via,
    };
    asked(fields, model, wanted)
}

pub(crate) const LEGACY: Known = Known(&[&SHARED, &["prompt"]]);

/// Takes what both routes have beside their inputs.
fn asked(mut fields: Fields, model: String, wanted: Wanted) -> Result<Asked, ApiError> {
    let mut ignored = Vec::new();
    // The model is kept whatever is said.
    let _ = KeepAlive::take(&mut fields, &mut ignored);
    if let Some(options) = fields.take("options") {
        // They steer how Ollama loads and computes; nothing is drawn here.
        ignored.extend(Fields::nested(fields.path_of("options"), options)?.rest());
    }
    ignored.extend(fields.rest());
    Ok(Asked { model, wanted, ignored })
}

const SHARED: [&str; 7] = ["background", "keep_alive", "model", "name", "options", "priority", "service_tier"];

#[derive(Serialize)]
struct Answer {
    model: String,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: u64,
}

#[derive(Serialize)]
struct LegacyAnswer {
    embedding: Vec<f32>,
}
