//! Reading a request's body within a bound.
//!
//! No more than the limit is ever held. A body that is too long is refused as soon as that is known (at once where its
//! length is declared), and what still comes is read and thrown away for a while: closing a connection with unread
//! data resets it, and the client would see a broken pipe instead of the answer.

use crate::error::ApiError;
use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, header};
use futures_util::StreamExt;
use std::time::Duration;

/// The body, whole.
///
/// # Errors
/// If it is longer than `limit` bytes or breaks off.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let mut data = body.into_data_stream();
    if declared.is_some_and(|declared| declared > limit as u64) {
        discard_rest(headers, data);
        return Err(ApiError::BodyTooLarge { limit });
    }
    let mut bytes = Vec::with_capacity(declared.unwrap_or(0) as usize);
    while let Some(chunk) = data.next().await {
        let chunk = chunk.map_err(|_| ApiError::BodyBroken)?;
        if bytes.len() + chunk.len() > limit {
            tokio::spawn(discard(data));
            return Err(ApiError::BodyTooLarge { limit });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Lets a refused client finish sending, so that it gets to see why.
pub(crate) fn discard_unread(headers: &HeaderMap, body: Body) {
    discard_rest(headers, body.into_data_stream());
}

fn discard_rest(headers: &HeaderMap, data: BodyDataStream) {
    // A client that waits for `100 Continue` sends nothing after a refusal; reading would invite it to.
    if !headers.contains_key(header::EXPECT) {
        tokio::spawn(discard(data));
    }
}

/// Reads on, keeping nothing, within bounds.
async fn discard(mut data: BodyDataStream) {
    let reading = async {
        let mut discarded = 0;
        while let Some(Ok(chunk)) = data.next().await {
            discarded += chunk.len();
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
