//! Errors as Ollama's clients read them: one text, without a type or a field of its own.

use axum::Json;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Middleware: makes `{"error": "…"}` of OpenAI's error object in refusals of Ollama's routes, whoever made them. Status and
/// headers stay.
pub(crate) async fn in_its_shape(request: Request, next: Next) -> Response {
    let is_its = request.uri().path().starts_with("/api/");
    let response = next.run(request).await;
    if !is_its || !is_error(response.status()) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let bytes = to_bytes(body, ERROR_BYTES_MAX).await.unwrap_or_default();
    let message = serde_json::from_slice(&bytes).ok().and_then(|body: Value| {
        let message = body.pointer("/error/message")?;
        message.as_str().map(str::to_owned)
    });
    let message = message.unwrap_or_else(|| head.status.to_string());
    let body = Json(json!({"error": message})).into_response();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.extend(body.headers().clone());
    Response::from_parts(head, body.into_body())
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// The server's own messages quote little of a request; none is near this.
const ERROR_BYTES_MAX: usize = 1 << 20;
