//! Refusals in Anthropic's words. Every refusal of its routes passes here, whoever made it: their handlers, `auth`, `guard`.

use crate::error::{ApiError, Message};
use axum::Json;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Middleware: rewrites refusals of Anthropic's routes; their status and headers stay.
pub(crate) async fn in_its_words(request: Request, next: Next) -> Response {
    let is_its = request.uri().path().starts_with("/v1/messages");
    let response = next.run(request).await;
    if !is_its {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let Some(Message(message)) = head.extensions.remove::<Message>() else { return Response::from_parts(head, body) };
    head.headers.remove(header::CONTENT_LENGTH);
    let (_, body) = Json(object(head.status, &message)).into_response().into_parts();
    Response::from_parts(head, body)
}

/// The last event of a stream that failed.
pub(super) fn of(error: &ApiError) -> Value {
    object(error.status(), &error.to_string())
}

fn object(status: StatusCode, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind(status), "message": message}})
}

fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::REQUEST_TIMEOUT => "timeout_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}
