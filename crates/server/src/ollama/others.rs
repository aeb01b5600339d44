//! What Ollama's clients ask beside chats and models.

use super::names;
use crate::arrived::taken_apart;
use crate::body;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::options::unsupported;
use crate::serve::App;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// `GET /`: by these words clients know that a server of this API is there.
pub(super) async fn here() -> &'static str {
    "Ollama is running"
}

pub(super) async fn version() -> Json<Value> {
    Json(json!({"version": VERSION}))
}

/// Clients compare it before they use a feature. It is the version that brought the newest one that these routes have:
/// typed questions (`/v1/systemone`). What came before it and is missing here is refused by name.
const VERSION: &str = "0.35.0";

/// `POST /api/pull`: the model that is served is there already, and no other will be.
pub(super) async fn pull(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let (streams, _) = taken_apart(&app, received, KNOWN, pulled).await?;
    let success = json!({"status": "success"});
    if !streams {
        return Ok(Json(success).into_response());
    }
    let lines = format!("{}\n{success}\n", json!({"status": "pulling manifest"}));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from(lines)).into_response())
}

fn pulled(mut fields: Fields, _: &HeaderMap, app: &App) -> Result<bool, ApiError> {
    names::take(&mut fields, app)?;
    Ok(fields.boolean("stream")?.unwrap_or(true))
}

pub(crate) const KNOWN: Known = Known(&[&["model", "name", "stream"]]);

/// What would make, copy, remove or publish models.
pub(super) async fn one_model(State(app): State<Arc<App>>, uri: Uri, request: Request) -> Result<Response, ApiError> {
    let (head, unread) = request.into_parts();
    body::discard_unread(&app, &head.headers, unread);
    Err(unsupported(uri.path(), "this server serves the one model that it was started with"))
}
