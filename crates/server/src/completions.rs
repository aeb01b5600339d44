//! `POST /v1/completions`.

use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::logprobs::{self, ScoredToken};
use crate::options::{self, Options, unsupported};
use crate::reply::{Job, Shape, reply};
use crate::serve::App;
use crate::{body, prediction};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use duet_types::{TokenId, Tokens};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let ((job, prompt), arrived) = taken_apart(&app, received, KNOWN, take).await?;
    let encode = move |backend: &dyn Backend, most| prompt.encode(backend, most);
    reply(app, caller.tenant, job, arrived, encode).await
}

/// What a body asks for.
fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<(Job<Completion>, Prompt), ApiError> {
    let mut ignored = Vec::new();
    if fields.string("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(unsupported("suffix", "filling in the middle is not implemented"));
    }
    if fields.take("response_format").is_some() {
        return Err(unsupported("response_format", "constrained output is not implemented"));
    }
    let mut options = Options::take(&mut fields, headers, app, &mut ignored)?;
    options.stop.max_tokens.get_or_insert(MAX_TOKENS_DEFAULT);
    let logprobs = fields.integer("logprobs", 0..=LOGPROBS_MAX)?.map(|top| u8::try_from(top).unwrap_or(u8::MAX));
    let prompt = Prompt::take(&mut fields, app.backend.vocabulary())?;
    let echo = match fields.boolean("echo")?.unwrap_or(false) {
        true if logprobs.is_some() => {
            return Err(unsupported("echo", "log probabilities of the prompt are not implemented"));
        }
        true => prompt.text(&*app.backend),
        false => String::new(),
    };
    let predicted = prediction::take(&mut fields, &mut ignored)?;
    ignored.extend(fields.rest());
    let shape = Completion { echo, text_offset: 0 };
    Ok((Job { options, logprobs, predicted, shape, ignored }, prompt))
}

const KNOWN: Known = Known(&[&options::KNOWN, &["echo", "prompt", "suffix"]]);

/// What to go on from.
enum Prompt {
    Text(String),
    Tokens(Vec<TokenId>),
}

impl Prompt {
    /// A text, token ids, or a list of exactly one of these.
    fn take(fields: &mut Fields, vocabulary: usize) -> Result<Self, ApiError> {
        let Some(value) = fields.take("prompt") else {
            return Err(ApiError::Missing { param: "prompt".to_owned() });
        };
        match value {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Array(mut items) => match items.first() {
                Some(Value::String(_) | Value::Array(_)) if items.len() > 1 => {
                    Err(unsupported("prompt", "one prompt a request; send several requests for more"))
                }
                Some(Value::String(_)) => match items.swap_remove(0) {
                    Value::String(text) => Ok(Self::Text(text)),
                    other => Err(fields.wrong_type("prompt", EXPECTED, &other)),
                },
                Some(Value::Array(tokens)) => Self::from_tokens(fields, tokens, vocabulary),
                _ => Self::from_tokens(fields, &items, vocabulary),
            },
            other => Err(fields.wrong_type("prompt", EXPECTED, &other)),
        }
    }

    fn from_tokens(fields: &Fields, tokens: &[Value], vocabulary: usize) -> Result<Self, ApiError> {
        let token = |(index, value): (usize, &Value)| {
            let path = format!("prompt[{index}]");
            if !value.is_i64() && !value.is_u64() {
                return Err(fields.wrong_type(&path, "a token id", value));
            }
            let token = value.as_u64().and_then(|token| u32::try_from(token).ok());
            let token = token.filter(|token| usize::try_from(*token).is_ok_and(|token| token < vocabulary));
            token
                .map(TokenId)
                .ok_or_else(|| fields.out_of_range(&path, format!("a token id below {vocabulary}"), value))
        };
        Ok(Self::Tokens(tokens.iter().enumerate().map(token).collect::<Result<_, _>>()?))
    }

    /// As it is echoed. Tokens that are no whole characters together are shown with replacement characters.
    fn text(&self, backend: &dyn Backend) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Tokens(tokens) => {
                let bytes: Vec<u8> = tokens.iter().flat_map(|token| backend.token_bytes(*token)).copied().collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
        }
    }

    fn encode(self, backend: &dyn Backend, most: Tokens) -> Result<Vec<TokenId>, ApiError> {
        let exceeded = ApiError::ContextExceeded { prompt: Completion::PROMPT, context: backend.context() };
        match self {
            Self::Text(text) => backend.encode_text(&text, most).map_err(|_| exceeded),
            Self::Tokens(tokens) if tokens.len() > most.as_usize() => Err(exceeded),
            Self::Tokens(tokens) => Ok(tokens),
        }
    }
}

struct Completion {
    /// Goes before the generated text.
    echo: String,
    /// Where the next token begins in the text, in characters.
    text_offset: usize,
}

impl Shape for Completion {
    const ID_PREFIX: &'static str = "cmpl-";
    const OBJECT: &'static str = "text_completion";
    const CHUNK_OBJECT: &'static str = "text_completion";
    const PROMPT: &'static str = "prompt";

    fn whole(&mut self, backend: &dyn Backend, text: String, scored: Option<&[ScoredToken]>, reason: &str) -> Value {
        let logprobs = scored.map(|tokens| logprobs::completion(backend, tokens, &mut self.text_offset));
        json!({
            "text": std::mem::take(&mut self.echo) + &text,
            "index": 0,
            "logprobs": logprobs,
            "finish_reason": reason,
        })
    }

    fn opening(&mut self) -> Option<Value> {
        let echo = std::mem::take(&mut self.echo);
        (!echo.is_empty()).then(|| json!({"text": echo, "index": 0, "logprobs": null, "finish_reason": null}))
    }

    fn piece(&mut self, backend: &dyn Backend, text: String, scored: Option<&[ScoredToken]>) -> Value {
        let logprobs = scored.map(|tokens| logprobs::completion(backend, tokens, &mut self.text_offset));
        json!({"text": text, "index": 0, "logprobs": logprobs, "finish_reason": null})
    }

    fn end(&mut self, reason: &str) -> Value {
        json!({"text": "", "index": 0, "logprobs": null, "finish_reason": reason})
    }
}

const EXPECTED: &str = "a string, an array of token ids, or an array of one of these";
/// OpenAI's default for this route.
const MAX_TOKENS_DEFAULT: Tokens = Tokens(16);
/// OpenAI's bound for this route.
const LOGPROBS_MAX: i64 = 5;
