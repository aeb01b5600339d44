//! `GET /health` and `GET /v1/models`.

use crate::error::ApiError;
use crate::serve::App;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

/// The process is up and its model is loaded: the server does not listen before. Whoever watches it may restart one that
/// has failed.
pub(crate) async fn health(State(app): State<Arc<App>>) -> (StatusCode, Json<Value>) {
    if app.backend.is_running() {
        (StatusCode::OK, Json(json!({"status": "ok"})))
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "failed"})))
    }
}

/// The loaded model, under its own name and its aliases, and the encoder beside it.
///
/// Codex reads a list `models` instead, and fails without one. Each entry there would bring the instructions that Codex
/// gives its model; with none it takes its own, so the list is empty.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let names = std::iter::once(app.backend.model_name()).chain(app.config.aliases.iter().map(String::as_str));
    let names = names.chain(app.backend.encoder().map(|encoder| encoder.name()));
    Json(json!({"object": "list", "data": names.map(|name| model(&app, name)).collect::<Value>(), "models": []}))
}

/// One model by any name that requests may use.
pub(crate) async fn get(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    if app.backend.encoder().is_none_or(|encoder| encoder.name() != name) {
        app.check_model(Some(&name))?;
    }
    Ok(Json(model(&app, &name)))
}

fn model(app: &App, id: &str) -> Value {
    json!({"id": id, "object": "model", "created": app.started, "owned_by": "duet"})
}
