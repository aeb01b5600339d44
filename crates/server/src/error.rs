//! Everything that can be answered instead of a generation, and OpenAI's shape for it.

use crate::backend::PromptError;
use axum::Json;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use duet_agents::Refused;
use duet_engine::EngineError;
use duet_types::Tokens;
use serde_json::{Value, json};

/// Why a request was not answered with a generation. The text is for the client's developer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the body is not valid JSON: {0}")]
    MalformedJson(#[from] serde_json::Error),
    #[error("the body must be a JSON object, not {got}")]
    NotAnObject { got: &'static str },
    #[error("the body could not be read to its end")]
    BodyBroken,
    #[error("the body is larger than {limit} bytes")]
    BodyTooLarge { limit: usize },
    #[error("the body came too slowly: send it without a pause of more than some seconds")]
    BodySlow,
    #[error("the body holds more than {most} values; the largest prompt here needs fewer")]
    TooManyValues { most: usize },
    #[error("other large requests are being read; try again in a moment")]
    IntakeFull,
    #[error("all connections that this server takes are at work; try again in a moment")]
    TooManyConnections,
    #[error(
        "this model's maximum context length is {context} tokens, and the prompt does not leave room for an answer"
    )]
    ContextExceeded { prompt: &'static str, context: Tokens },
    #[error("'{param}' has more than the {most} tokens that the model reads at once; `truncate` cuts it")]
    TextTooLong { param: String, most: Tokens },
    #[error("'{param}' is required")]
    Missing { param: String },
    #[error("'{param}' must be {expected}, not {got}")]
    WrongType { param: String, expected: &'static str, got: &'static str },
    #[error("'{param}' must be {expected}, got {got}")]
    OutOfRange { param: String, expected: String, got: String },
    #[error("'{param}' is not supported: {why}")]
    Unsupported { param: String, why: &'static str },
    #[error("'{param}' contradicts '{with}'")]
    Contradiction { param: &'static str, with: &'static str },
    #[error("'{param}' has no meaning without '{needs}'")]
    Needs { param: &'static str, needs: &'static str },
    #[error("'{param}': {error}")]
    Refused { param: &'static str, error: Refused },
    #[error(transparent)]
    Prompt(PromptError),
    #[error("'{param}': {error}")]
    PromptOf { param: &'static str, error: PromptError },
    #[error("there is no response '{id}': it was not stored, was deleted, or made room for later ones")]
    ResponseNotFound { id: String, param: Option<String> },
    #[error("'{param}': there is no item '{id}' in any stored response")]
    ItemNotFound { id: String, param: String },
    #[error("the response '{id}' {why}")]
    ResponseState { id: String, param: Option<&'static str>, why: &'static str },
    #[error("the model '{model}' is not loaded; this server serves '{loaded}'")]
    ModelNotFound { model: String, loaded: String },
    #[error("there is nothing at {method} {path}")]
    NoRoute { method: Method, path: String },
    #[error("{path} does not take {method}")]
    MethodNotAllowed { method: Method, path: String },
    #[error("this server does not answer as '{name}'; `duet serve --allow-host {name}` lets it")]
    HostUnknown { name: String },
    #[error("an API key is needed: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`")]
    KeyMissing,
    #[error("the API key is none of this server's")]
    KeyUnknown,
    #[error("flows are shown to holders of API keys; this server has no keys, and others than this machine may ask")]
    FlowsHidden,
    #[error("{error}")]
    Engine { error: EngineError, prompt: &'static str },
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("internal error: {0}")]
    Internal(&'static str),
}

impl ApiError {
    /// OpenAI's error object: the whole body of a refused request, and the last event of a stream that failed.
    pub(crate) fn body(&self) -> Value {
        let (status, code) = self.class();
        let kind = match status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {"message": self.to_string(), "type": kind, "param": self.param(), "code": code}})
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.class().0
    }

    fn class(&self) -> (StatusCode, Option<&'static str>) {
        match self {
            Self::MalformedJson(_) | Self::NotAnObject { .. } | Self::BodyBroken => (StatusCode::BAD_REQUEST, None),
            Self::BodyTooLarge { .. } | Self::TooManyValues { .. } => {
                (StatusCode::PAYLOAD_TOO_LARGE, Some("request_too_large"))
            }
            Self::BodySlow => (StatusCode::REQUEST_TIMEOUT, Some("request_timeout")),
            Self::IntakeFull => (StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_exceeded")),
            Self::TooManyConnections => (StatusCode::SERVICE_UNAVAILABLE, Some("too_many_connections")),
            Self::ContextExceeded { .. } | Self::TextTooLong { .. } => {
                (StatusCode::BAD_REQUEST, Some("context_length_exceeded"))
            }
            Self::Missing { .. } => (StatusCode::BAD_REQUEST, Some("missing_required_parameter")),
            Self::WrongType { .. } => (StatusCode::BAD_REQUEST, Some("invalid_type")),
            Self::OutOfRange { .. }
            | Self::Contradiction { .. }
            | Self::Needs { .. }
            | Self::Prompt(_)
            | Self::PromptOf { .. }
            | Self::ResponseState { .. }
            | Self::Refused { .. } => (StatusCode::BAD_REQUEST, Some("invalid_value")),
            Self::Unsupported { .. } => (StatusCode::BAD_REQUEST, Some("unsupported_parameter")),
            Self::ModelNotFound { .. } => (StatusCode::NOT_FOUND, Some("model_not_found")),
            Self::ItemNotFound { .. } => (StatusCode::NOT_FOUND, Some("item_not_found")),
            Self::ResponseNotFound { .. } => (StatusCode::NOT_FOUND, Some("response_not_found")),
            Self::NoRoute { .. } => (StatusCode::NOT_FOUND, Some("unknown_url")),
            Self::MethodNotAllowed { .. } => (StatusCode::METHOD_NOT_ALLOWED, Some("method_not_allowed")),
            Self::HostUnknown { .. } => (StatusCode::FORBIDDEN, Some("host_not_allowed")),
            Self::KeyMissing | Self::KeyUnknown => (StatusCode::UNAUTHORIZED, Some("invalid_api_key")),
            Self::FlowsHidden => (StatusCode::FORBIDDEN, Some("keys_needed")),
            Self::Engine { error, .. } => match error {
                EngineError::EmptyPrompt | EngineError::Parameter { .. } => {
                    (StatusCode::BAD_REQUEST, Some("invalid_value"))
                }
                EngineError::PromptTooLong { .. } => (StatusCode::BAD_REQUEST, Some("context_length_exceeded")),
                // Not the server's fault: who asks again gets the same.
                EngineError::FormLost => (StatusCode::UNPROCESSABLE_ENTITY, Some("form_lost")),
                EngineError::Busy { .. } => (StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_exceeded")),
                EngineError::OutOfMemory(_) => (StatusCode::SERVICE_UNAVAILABLE, Some("out_of_memory")),
                EngineError::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, Some("shutting_down")),
                EngineError::File { .. }
                | EngineError::Configuration(_)
                | EngineError::Device { .. }
                | EngineError::Weights(_)
                | EngineError::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, None),
            },
            Self::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, Some("shutting_down")),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, None),
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            Self::Missing { param }
            | Self::TextTooLong { param, .. }
            | Self::WrongType { param, .. }
            | Self::OutOfRange { param, .. }
            | Self::ItemNotFound { param, .. }
            | Self::Unsupported { param, .. } => Some(param),
            Self::Contradiction { param, .. } | Self::Needs { param, .. } | Self::Refused { param, .. } => Some(param),
            Self::ResponseNotFound { param, .. } => param.as_deref(),
            Self::ResponseState { param, .. } => *param,
            Self::PromptOf { param, .. } => Some(param),
            Self::Prompt(_) => Some("messages"),
            Self::ContextExceeded { prompt, .. } => Some(prompt),
            Self::ModelNotFound { .. } => Some("model"),
            Self::Engine { error: EngineError::Parameter { name, .. }, .. } => Some(name),
            Self::Engine { error: EngineError::EmptyPrompt | EngineError::PromptTooLong { .. }, prompt } => {
                Some(prompt)
            }
            _ => None,
        }
    }
}

/// What a refusal says, among its response's extensions: for routes that say it in another shape.
#[derive(Clone, Debug)]
pub(crate) struct Message(pub(crate) String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, _) = self.class();
        let mut response = (status, Json(self.body())).into_response();
        response.extensions_mut().insert(Message(self.to_string()));
        let headers = response.headers_mut();
        match self {
            Self::IntakeFull | Self::Engine { error: EngineError::Busy { .. } | EngineError::OutOfMemory(_), .. } => {
                headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS);
            }
            Self::KeyMissing | Self::KeyUnknown => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

/// Asks a refused client to wait this long. A slot frees with every finished generation, usually within seconds;
/// a longer wait would leave the machine idle, a shorter one would have clients poll.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");
