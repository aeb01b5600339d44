//! The messages of a conversation, as Ollama writes them.
//!
//! They differ from OpenAI's: `content` may be missing, arguments of calls are objects, calls and results may have no ids,
//! and pictures stand beside the text.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::messages::{ChatMessage, message_from};
use serde_json::{Map, Value};

/// Takes `messages`; none is the same as an empty list.
pub(super) fn take(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Vec<ChatMessage>, ApiError> {
    let listed = match fields.take("messages") {
        None => return Ok(Vec::new()),
        Some(Value::Array(listed)) => listed,
        Some(other) => return Err(fields.wrong_type("messages", "an array", &other)),
    };
    let read = |(index, message): (usize, Value)| {
        let path = fields.path_of(&format!("messages[{index}]"));
        let message = match message {
            Value::Object(message) => Value::Object(as_openai(&path, message)?),
            other => other,
        };
        message_from(path, message, ignored)
    };
    listed.into_iter().enumerate().map(read).collect()
}

/// Pictures are refused, since an answer without them would be about something else.
pub(super) fn refuse_images(path: String, images: Option<Value>) -> Result<(), ApiError> {
    match images {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(images)) if images.is_empty() => Ok(()),
        Some(_) => Err(ApiError::Unsupported { param: path, why: "this model reads text only" }),
    }
}

fn as_openai(path: &str, mut message: Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    refuse_images(format!("{path}.images"), message.remove("images"))?;
    if let Some(thinking) = message.remove("thinking") {
        message.insert("reasoning_content".to_owned(), thinking);
    }
    if let Some(name) = message.remove("tool_name") {
        message.insert("name".to_owned(), name);
    }
    if message.get("content").is_none_or(Value::is_null) {
        message.insert("content".to_owned(), "".into());
    }
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(call) = call {
            call.entry("type").or_insert_with(|| "function".into());
        }
    }
    Ok(message)
}
