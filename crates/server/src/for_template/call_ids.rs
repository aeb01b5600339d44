//! Ids of calls for templates that take only those that their own models write.
//!
//! Mistral's refuse an id that is not nine letters and digits. Ids of other makers' forms get one of their own, always the
//! same, so that a conversation's prompt goes on where it ended; and so do calls and results that have none, as Ollama's: a
//! result is then that of the first call that has none yet.

use duet_model::template::ChatMessage;
use serde_json::Value;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Letters and digits of an id.
const LENGTH: usize = 9;

/// Gives all calls and results in `messages` ids that the template takes.
pub(super) fn make_fit(messages: &mut [ChatMessage]) {
    let mut unanswered = VecDeque::new();
    for (at, message) in messages.iter_mut().enumerate() {
        let calls = message.tool_calls.as_mut().and_then(Value::as_array_mut);
        for (index, call) in calls.into_iter().flatten().enumerate() {
            let id = match call["id"].as_str() {
                Some(id) => fit(id),
                None => fit(&format!("{at}.{index}")),
            };
            unanswered.push_back(id.clone());
            call["id"] = id.into();
        }
        if message.role == "tool" {
            let id = message.tool_call_id.as_ref().and_then(Value::as_str).map(fit);
            let id = id.or_else(|| unanswered.front().cloned());
            unanswered.retain(|open| Some(open) != id.as_ref());
            message.tool_call_id = id.map(Value::String);
        }
    }
}

/// The id itself, if the template takes it.
fn fit(id: &str) -> String {
    if id.len() == LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let mut rest = hasher.finish();
    let digits = (0..LENGTH).map(|_| {
        let digit = DIGITS[(rest % DIGITS.len() as u64) as usize];
        rest /= DIGITS.len() as u64;
        char::from(digit)
    });
    digits.collect()
}

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn calls(calls: Value) -> ChatMessage {
        ChatMessage { tool_calls: Some(calls), ..ChatMessage::new("assistant", "") }
    }

    fn result(id: Option<&str>) -> ChatMessage {
        ChatMessage { tool_call_id: id.map(Value::from), ..ChatMessage::new("tool", "7") }
    }

    fn ids(messages: &[ChatMessage]) -> Vec<&str> {
        let ids = messages.iter().flat_map(|message| {
            let calls = message.tool_calls.iter().flat_map(|calls| calls.as_array().unwrap()).map(|call| &call["id"]);
            calls.chain(&message.tool_call_id)
        });
        ids.map(|id| id.as_str().unwrap()).collect()
    }

    #[test]
    fn results_keep_belonging_to_their_calls() {
        let ours = "call_0123456789abcdef0123456789abcdef";
        let made = json!([{"id": ours, "function": {}}, {"id": "Abc123xyz", "function": {}}]);
        let mut messages = [calls(made), result(Some("Abc123xyz")), result(Some(ours))];
        make_fit(&mut messages);
        let ids = ids(&messages);
        assert_eq!((ids[1], ids[2]), ("Abc123xyz", "Abc123xyz"));
        assert_eq!(ids[0], ids[3]);
        assert!(ids[0].len() == LENGTH && ids[0].bytes().all(|byte| byte.is_ascii_alphanumeric()), "{}", ids[0]);
    }

    #[test]
    fn calls_without_ids_get_some_and_are_answered_in_their_order() {
        let made = || calls(json!([{"function": {}}, {"function": {}}]));
        let mut messages = [made(), result(None), result(None), made(), result(None)];
        make_fit(&mut messages);
        let ids = ids(&messages);
        assert_eq!((ids[2], ids[3], ids[6]), (ids[0], ids[1], ids[4]));
        assert!(ids[0] != ids[1] && ids[0] != ids[4]);
    }
}
