//! `POST /v1/messages` and `POST /v1/messages/count_tokens`, as Anthropic's API has them.
//!
//! **Invariant:** whatever refuses a request of these routes, its refusal has Anthropic's shape ([`refusal`]).
//! Marks for a cache (`cache_control`) say nothing new: what a prompt begins with is found again without them.

pub(crate) mod asked;
mod conversation;
pub(crate) mod refusal;
mod tools;
mod writer;

use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::body;
use crate::error::ApiError;
use crate::reply::{Writer, reply};
use crate::serve::App;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::{Extension, Json};
use duet_types::Tokens;
use serde_json::{Value, json};
use std::sync::Arc;
use writer::Messages;

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let ((job, asked), arrived) = taken_apart(&app, received, asked::KNOWN, asked::take).await?;
    reply(app, caller.tenant, job, arrived, move |backend, most| {
        Ok(vec![asked.prepare(backend, most, Messages::PROMPT)?])
    })
    .await
}

/// How many tokens a conversation has. Nothing is generated, and no more is counted than [`COUNTED_CONTEXTS`] contexts.
pub(crate) async fn count_tokens(State(app): State<Arc<App>>, request: Request) -> Result<Json<Value>, ApiError> {
    let received = body::read(&app, request).await?;
    let (counted, arrived) = taken_apart(&app, received, asked::KNOWN, asked::take_to_count).await?;
    app.check_model(counted.model.as_deref())?;
    let turn = app.intake.turn(counted.class, arrived.bytes).await;
    let backend = Arc::clone(&app.backend);
    let count = move || {
        let most = Tokens(backend.context().0.saturating_mul(COUNTED_CONTEXTS));
        let prompt = counted.asked.encode(&*backend, most, Messages::PROMPT)?;
        drop((turn, arrived));
        Ok::<_, ApiError>(prompt.tokens.len())
    };
    let count = tokio::task::spawn_blocking(count).await;
    let count = count.map_err(|_| ApiError::Internal("the prompt could not be encoded"))??;
    Ok(Json(json!({"input_tokens": count})))
}

/// Clients count to learn how much is too much, so what is too long is counted as well, within reason.
const COUNTED_CONTEXTS: u32 = 4;
