//! From a body that has arrived to what it asks for.
//!
//! Small bodies are taken apart at once. For a large one that takes milliseconds, in which the threads of HTTP could not
//! send anybody's tokens, so it is done elsewhere, one body at a time.

use crate::body::Received;
use crate::class;
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::intake::{Hold, SMALL_BYTES};
use crate::serve::App;
use axum::http::HeaderMap;
use std::sync::Arc;

/// What is left of a body when it was taken apart.
#[derive(Debug)]
pub(crate) struct Arrived {
    /// How long it was.
    pub(crate) bytes: usize,
    /// Held until its prompt is tokens.
    _hold: Hold,
}

/// Takes a body apart with a route's `take`.
pub(crate) async fn taken_apart<T: Send + 'static>(
    app: &Arc<App>,
    received: Received,
    known: Known,
    take: fn(Fields, &HeaderMap, &App) -> Result<T, ApiError>,
) -> Result<(T, Arrived), ApiError> {
    let Received { headers, bytes, hold } = received;
    let arrived = Arrived { bytes: bytes.len(), _hold: hold };
    if arrived.bytes <= SMALL_BYTES {
        let fields = Fields::parse(&bytes, known, values_max(app))?;
        return Ok((take(fields, &headers, app)?, arrived));
    }
    // What the body says of its class is not known yet.
    let class = class::from_header(&headers)?.unwrap_or(app.config.class_default);
    let turn = app.intake.turn(class, arrived.bytes).await;
    let there = Arc::clone(app);
    let taking = tokio::task::spawn_blocking(move || {
        let fields = Fields::parse(&bytes, known, values_max(&there))?;
        drop(bytes);
        let taken = take(fields, &headers, &there);
        drop(turn);
        taken
    });
    let taken = taking.await.map_err(|_| ApiError::Internal("the request could not be taken apart"))??;
    Ok((taken, arrived))
}

/// A prompt of token ids has a value for each token; all else has few.
fn values_max(app: &App) -> usize {
    VALUES_MAX + 2 * app.backend.context().as_usize()
}

/// Five megabytes in memory. Conversations of agents with many tools have some thousand values.
const VALUES_MAX: usize = 65_536;
