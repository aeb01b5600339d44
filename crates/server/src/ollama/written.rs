//! What the answers of both routes have in common.

use super::time;
use crate::backend::Backend;
use crate::error::ApiError;
use crate::logprobs::{self, ScoredToken};
use crate::reply::{Call, Ended, Frame};
use duet_engine::Usage;
use serde_json::{Value, json};
use std::time::Duration;

/// A part of an answer to a request for this model; the answer itself is still to be added.
pub(super) fn part(model: &str) -> Value {
    json!({"model": model, "created_at": time::now(), "done": false})
}

/// Makes the last part of `part`.
pub(super) fn end(part: &mut Value, ended: Ended, usage: Usage) {
    let reason = match ended {
        Ended::Length => "length",
        // Clients see the calls themselves.
        Ended::Stop | Ended::Calls => "stop",
    };
    part["done"] = true.into();
    part["done_reason"] = reason.into();
    part["total_duration"] = nanoseconds(usage.total).into();
    // It was loaded before there was anybody to ask.
    part["load_duration"] = 0.into();
    part["prompt_eval_count"] = usage.prompt.0.into();
    part["prompt_eval_duration"] = nanoseconds(usage.time_to_first_token).into();
    part["eval_count"] = usage.generated.0.into();
    part["eval_duration"] = nanoseconds(usage.total.saturating_sub(usage.time_to_first_token)).into();
}

/// Calls with their arguments as an object.
pub(super) fn calls(calls: &[Call]) -> Value {
    let call = |call: &Call| {
        let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        let function = json!({"index": call.index, "name": call.name, "arguments": arguments});
        json!({"id": call.id, "function": function})
    };
    calls.iter().map(call).collect()
}

/// Adds log probabilities, if there are any.
pub(super) fn score(part: &mut Value, backend: &dyn Backend, scored: Option<&[ScoredToken]>) {
    if let Some(tokens) = scored.filter(|tokens| !tokens.is_empty()) {
        part["logprobs"] = logprobs::chat(backend, tokens)["content"].take();
    }
}

/// The last line of a stream that failed.
pub(super) fn failure(error: &ApiError) -> Vec<Frame> {
    vec![Frame::data(&json!({"error": error.to_string()}))]
}

/// Durations as these routes write them.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
