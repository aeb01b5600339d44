//! `POST /tokenize` and `POST /detokenize`: texts as the model's tokens, and back, as llama.cpp and vLLM offer it; and
//! `GET /tokenizer_info`, vLLM's, by which evaluation harnesses know that they need no tokenizer of their own.

use crate::arrived::{Arrived, taken_apart};
use crate::backend::Backend;
use crate::body;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::reply::tell_ignored;
use crate::serve::App;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use duet_types::{TokenId, Tokens};
use serde_json::{Value, json};
use std::sync::Arc;

/// `{"content": …}` (or `prompt`) → `{"tokens": […], "count": …}`
pub(crate) async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let ((text, ignored), arrived) = taken_apart(&app, received, TEXT, text).await?;
    let encode = move |backend: &dyn Backend| {
        let most = Tokens(TOKENS_MAX);
        let tokens = match text {
            Text::Prompt(text) => backend.encode_text(&text, most),
            Text::Part(text) => backend.encode_answer(&text, most),
        };
        let tokens = tokens.map_err(|_| too_many("content"))?;
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        Ok(json!({"count": ids.len(), "tokens": ids}))
    };
    off_the_threads_of_http(app, arrived, encode).await.map(|json| answer(&json, &ignored))
}

/// `{"tokens": […]}` → `{"content": …}`; `prompt` is vLLM's name of it.
pub(crate) async fn detokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let ((tokens, ignored), arrived) = taken_apart(&app, received, IDS, ids).await?;
    let decode = move |backend: &dyn Backend| {
        let mut bytes = Vec::new();
        for token in tokens {
            match backend.special_name(token) {
                Some(name) => bytes.extend_from_slice(name.as_bytes()),
                None => bytes.extend_from_slice(backend.token_bytes(token)),
            }
        }
        // Tokens that are no whole characters together are shown with replacement characters.
        let text = String::from_utf8_lossy(&bytes);
        Ok(json!({"content": text, "prompt": text}))
    };
    off_the_threads_of_http(app, arrived, decode).await.map(|json| answer(&json, &ignored))
}

/// What every prompt begins with, what ends a turn, and how a conversation becomes a prompt.
pub(crate) async fn info(State(app): State<Arc<App>>) -> Json<Value> {
    let backend = &*app.backend;
    let about = backend.about();
    let name = |token: Option<TokenId>| token.and_then(|token| backend.special_name(token));
    Json(json!({
        "bos_token": name(about.bos),
        "eos_token": name(about.eos),
        "chat_template": about.template,
        "model_max_length": backend.context().0,
    }))
}

/// A text to count.
enum Text {
    /// A whole prompt: with what the model has before one, and names of special tokens are these tokens.
    Prompt(String),
    /// Text and nothing else.
    Part(String),
}

pub(crate) const TEXT: Known = Known(&[&["add_special", "add_special_tokens", "content", "model", "prompt"]]);
pub(crate) const IDS: Known = Known(&[&["model", "tokens"]]);

fn text(mut fields: Fields, _: &HeaderMap, app: &App) -> Result<(Text, Vec<String>), ApiError> {
    app.check_model(fields.string("model")?.as_deref())?;
    let content = match (fields.string("content")?, fields.string("prompt")?) {
        (Some(_), Some(_)) => return Err(ApiError::Contradiction { param: "prompt", with: "content" }),
        (content, prompt) => content.or(prompt),
    };
    let content = content.ok_or_else(|| ApiError::Missing { param: "content".to_owned() })?;
    let special = fields.boolean("add_special")?.or(fields.boolean("add_special_tokens")?);
    let text = if special.unwrap_or(false) { Text::Prompt(content) } else { Text::Part(content) };
    Ok((text, fields.rest().collect()))
}

fn ids(mut fields: Fields, _: &HeaderMap, app: &App) -> Result<(Vec<TokenId>, Vec<String>), ApiError> {
    app.check_model(fields.string("model")?.as_deref())?;
    let listed = match fields.take("tokens") {
        None => return Err(ApiError::Missing { param: "tokens".to_owned() }),
        Some(Value::Array(listed)) => listed,
        Some(other) => return Err(fields.wrong_type("tokens", "an array of token ids", &other)),
    };
    if listed.len() > TOKENS_MAX as usize {
        return Err(too_many("tokens"));
    }
    let vocabulary = app.backend.vocabulary();
    let token = |(index, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < vocabulary);
        let expected = || format!("a token id below {vocabulary}");
        id.map(TokenId).ok_or_else(|| fields.out_of_range(&format!("tokens[{index}]"), expected(), value))
    };
    let tokens = listed.iter().enumerate().map(token).collect::<Result<_, _>>()?;
    Ok((tokens, fields.rest().collect()))
}

fn answer(json: &Value, ignored: &[String]) -> Response {
    let mut response = Json(json).into_response();
    tell_ignored(&mut response, ignored);
    response
}

/// Takes a turn among those that take in large requests, and works where no stream has to wait for it.
async fn off_the_threads_of_http<T: Send + 'static>(
    app: Arc<App>,
    arrived: Arrived,
    work: impl FnOnce(&dyn Backend) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let turn = app.intake.turn(app.config.class_default, arrived.bytes).await;
    let working = tokio::task::spawn_blocking(move || {
        let done = work(&*app.backend);
        drop((turn, arrived));
        done
    });
    working.await.map_err(|_| ApiError::Internal("the text could not be converted"))?
}

fn too_many(param: &str) -> ApiError {
    let expected = format!("of at most {TOKENS_MAX} tokens");
    ApiError::OutOfRange { param: param.to_owned(), expected, got: "more".to_owned() }
}

/// More than any context here; a body of ten megabytes may hold more.
const TOKENS_MAX: u32 = 1 << 20;
