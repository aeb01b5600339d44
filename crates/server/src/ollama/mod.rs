//! Ollama's API, for the clients that speak no other.
//!
//! What its clients ask before and beside a chat (`/api/tags`, `/api/show`, `/api/ps`, `/api/version`, `/`) is answered for
//! the one model that is served, which is never loaded, unloaded or replaced by a request. Where a request leaves a
//! parameter out, the default is Ollama's (`asked`), since that is what its clients are written for.
//!
//! **Invariant:** every error of these routes is `{"error": "…"}` (`errors`), whoever raised it.

mod asked;
pub(crate) mod chat;
pub(crate) mod embed;
pub(crate) mod errors;
pub(crate) mod generate;
mod message;
pub(crate) mod models;
mod names;
pub(crate) mod others;
mod probe;
mod time;
mod writer;

use crate::serve::App;
use crate::{auth, serve};
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};
use std::sync::Arc;

/// All of them.
pub(crate) fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    Router::new()
        .route("/api/chat", post(chat::create))
        .route("/api/generate", post(generate::create))
        .route("/api/embed", post(embed::create))
        .route("/api/embeddings", post(embed::legacy))
        .route("/api/tags", get(models::tags))
        .route("/api/ps", get(models::running))
        .route("/api/show", post(models::show))
        .route("/api/version", get(others::version))
        .route("/api/pull", post(others::pull))
        .route("/api/create", post(others::one_model))
        .route("/api/copy", post(others::one_model))
        .route("/api/push", post(others::one_model))
        .route("/api/delete", delete(others::one_model))
        .route("/api/blobs/{digest}", post(others::one_model).head(others::one_model))
        .route_layer(from_fn_with_state(Arc::clone(app), auth::identify))
        // Says only that somebody is there; clients ask it before they have a key to send.
        .route("/", get(others::here))
        .method_not_allowed_fallback(serve::method_not_allowed)
}
