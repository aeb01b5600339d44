//! Reading a request's body within bounds of size, memory and time.
//!
//! No more than the limit is ever held, and nothing that [`Intake`](crate::intake) has no room for. A body that is refused
//! is refused as soon as that is known (at once where its length is declared), and what still comes is read and thrown
//! away for a while: closing a connection with unread data resets it, and the client would see a broken pipe instead of
//! the answer.

use crate::connections::Arrival;
use crate::error::ApiError;
use crate::intake::{Hold, Pace, SMALL_BYTES};
use crate::serve::App;
use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A body that has arrived.
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
    /// Its share of memory.
    pub(crate) hold: Hold,
}

/// The body of a request, whole.
///
/// # Errors
/// If it is longer than the server takes, has no room beside others, comes too slowly, or breaks off.
pub(crate) async fn read(app: &App, request: Request) -> Result<Received, ApiError> {
    let (head, body) = request.into_parts();
    let headers = head.headers;
    let mut data = body.into_data_stream();
    let mut hold = app.intake.hold();
    match collect(app, &headers, &mut data, &mut hold).await {
        Ok(bytes) => {
            if let Some(arrival) = head.extensions.get::<Arrival>() {
                arrival.is_whole();
            }
            Ok(Received { headers, bytes, hold })
        }
        Err(error) => {
            drop(hold);
            discard_rest(app, &headers, data);
            Err(error)
        }
    }
}

async fn collect(
    app: &App,
    headers: &HeaderMap,
    data: &mut BodyDataStream,
    hold: &mut Hold,
) -> Result<Vec<u8>, ApiError> {
    let limit = app.config.body_bytes_max;
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|declared| declared > limit as u64) {
        return Err(ApiError::BodyTooLarge { limit });
    }
    let declared = declared.unwrap_or(0) as usize;
    hold.grow(declared)?;
    let mut bytes = Vec::with_capacity(declared);
    let times = &app.config.times;
    let end = Instant::now() + times.body;
    loop {
        let next = timeout_at(end.min(Instant::now() + times.body_pause), data.next());
        let Some(chunk) = next.await.map_err(|_| ApiError::BodySlow)? else { return Ok(bytes) };
        let chunk = chunk.map_err(|_| ApiError::BodyBroken)?;
        let len = bytes.len() + chunk.len();
        if len > limit {
            return Err(ApiError::BodyTooLarge { limit });
        }
        hold.grow(len)?;
        bytes.extend_from_slice(&chunk);
        if len > SMALL_BYTES {
            app.intake.pace().let_through(chunk.len()).await;
        }
    }
}

/// Lets a refused client finish sending, so that it gets to see why.
pub(crate) fn discard_unread(app: &App, headers: &HeaderMap, body: Body) {
    discard_rest(app, headers, body.into_data_stream());
}

fn discard_rest(app: &App, headers: &HeaderMap, data: BodyDataStream) {
    // A client that waits for `100 Continue` sends nothing after a refusal; reading would invite it to.
    if !headers.contains_key(header::EXPECT) {
        tokio::spawn(discard(data, Arc::clone(app.intake.pace())));
    }
}

/// Reads on, keeping nothing, within bounds.
async fn discard(mut data: BodyDataStream, pace: Arc<Pace>) {
    let reading = async {
        let mut discarded = 0;
        while let Some(Ok(chunk)) = data.next().await {
            discarded += chunk.len();
            if discarded > SMALL_BYTES {
                pace.let_through(chunk.len()).await;
            }
            if discarded > DISCARD_BYTES_MAX {
                break;
            }
        }
    };
    // Out of time is as good as done: the connection closes either way.
    let _ = tokio::time::timeout(DISCARD_TIME_MAX, reading).await;
}

/// A client that sends more than this after the refusal gets its connection reset.
const DISCARD_BYTES_MAX: usize = 256 << 20;
/// As does one that takes longer than this.
const DISCARD_TIME_MAX: Duration = Duration::from_secs(10);
