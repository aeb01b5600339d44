//! `POST /v1/embeddings`: texts as vectors, whose directions are near each other where texts are alike.
//!
//! They are made by the encoder, where there is one (`via`, `encoding`). Else a vector is the mean of what the loaded model's
//! last layer says of a text's tokens, behind the final norm, at a length of 1; then each input is a request to the engine like
//! any other (`read`). Either way people's answers go before it.
//!
//! **Invariant:** every input is checked before the first is read. **Invariant:** no more of an input's vectors is held than
//! they take as floats: they are written straight into the answer, without JSON values between.

pub(crate) mod encoding;
mod read;
mod via;

pub(crate) use read::{Embedded, Overlong, Wanted, read};
pub(crate) use via::Via;

use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::body;
use crate::class::{MANY, Service};
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::raw_prompt::RawPrompt;
use crate::reply::tell_ignored;
use crate::serve::App;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use duet_types::Class;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let ((wanted, format, ignored), arrived) = taken_apart(&app, received, KNOWN, take).await?;
    let via = wanted.via.clone();
    let Embedded { vectors, tokens, .. } = read(&app, caller.tenant, wanted, arrived).await?;
    let data = vectors.into_iter().enumerate().map(|(index, vector)| format.entry(index, vector)).collect();
    let model = via.name(&app);
    let usage = Usage { prompt_tokens: tokens, total_tokens: tokens };
    let mut response = Json(Listed { object: "list", data, model, usage }).into_response();
    tell_ignored(&mut response, &ignored);
    Ok(response)
}

fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<(Wanted, Format, Vec<String>), ApiError> {
    let via = Via::for_vectors(app, fields.string("model")?.as_deref())?;
    let inputs = RawPrompt::take_all(&mut fields, "input", via.vocabulary(app))?;
    let format = Format::take(&mut fields)?;
    let wanted = Wanted {
        class: class(&mut fields, headers, app, inputs.len())?,
        width: width(&mut fields, via.width(app))?,
        inputs: checked(inputs, &fields, "input")?,
        overlong: Overlong::cut_if(fields.boolean("truncate")?.unwrap_or(false)),
        name: "input",
        via,
    };
    Ok((wanted, format, fields.rest().collect()))
}

pub(crate) const KNOWN: Known = Known(&[&[
    "background",
    "dimensions",
    "encoding_format",
    "input",
    "model",
    "priority",
    "service_tier",
    "truncate",
]]);

/// Nobody waits for many; whoever does says so.
pub(crate) fn class(fields: &mut Fields, headers: &HeaderMap, app: &App, inputs: usize) -> Result<Class, ApiError> {
    let default = if inputs >= MANY { Class::Proactive } else { app.config.class_default };
    Ok(Service::take(fields, headers, default)?.class)
}

/// `dimensions`: the first of a vector's floats, at a length of 1 again.
pub(crate) fn width(fields: &mut Fields, all: usize) -> Result<usize, ApiError> {
    let most = i64::try_from(all).unwrap_or(i64::MAX);
    Ok(fields.integer("dimensions", 1..=most)?.and_then(|width| usize::try_from(width).ok()).unwrap_or(all))
}

/// Inputs of which there are not too many.
pub(crate) fn checked(inputs: Vec<RawPrompt>, fields: &Fields, name: &str) -> Result<Vec<RawPrompt>, ApiError> {
    if inputs.len() > INPUTS_MAX {
        let expected = format!("at most {INPUTS_MAX} inputs");
        return Err(fields.out_of_range(name, expected, &inputs.len().into()));
    }
    Ok(inputs)
}

/// How vectors are written.
#[derive(Clone, Copy, Debug)]
enum Format {
    Float,
    Base64,
}

impl Format {
    fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        match fields.string("encoding_format")?.as_deref() {
            None | Some("float") => Ok(Self::Float),
            Some("base64") => Ok(Self::Base64),
            Some(other) => Err(fields.out_of_range("encoding_format", "float or base64", &Value::from(other))),
        }
    }

    fn entry(self, index: usize, vector: Vec<f32>) -> Entry {
        let embedding = match self {
            Self::Float => Written::Floats(vector),
            Self::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
                Written::Base64(BASE64_STANDARD.encode(bytes))
            }
        };
        Entry { object: "embedding", index, embedding }
    }
}

#[derive(Serialize)]
struct Listed<'a> {
    object: &'static str,
    data: Vec<Entry>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Entry {
    object: &'static str,
    index: usize,
    embedding: Written,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Written {
    Floats(Vec<f32>),
    /// Of little-endian single precision.
    Base64(String),
}

#[derive(Serialize)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    pub(crate) total_tokens: u64,
}

/// OpenAI's.
const INPUTS_MAX: usize = 2048;
