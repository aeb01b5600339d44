//! What a request is for: the client says it in `metadata.task`, or its instructions do.
//!
//! Answers to requests of one task are alike, so drafts come from these. (CoordGen §3.1)

use crate::error::ApiError;
use crate::fields::Fields;
use crate::messages::{ChatMessage, Role};
use duet_engine::TaskName;
use serde_json::Value;

/// Takes `metadata`. Paths of what has no effect are appended to `ignored`.
pub(crate) fn take(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Option<TaskName>, ApiError> {
    let Some(metadata) = fields.take("metadata") else { return Ok(None) };
    let mut metadata = Fields::nested(fields.path_of("metadata"), metadata)?;
    let task = metadata.string("task")?;
    if let Some(task) = task.as_ref().filter(|task| task.is_empty() || task.len() > TASK_BYTES_MAX) {
        let expected = format!("of 1 to {TASK_BYTES_MAX} bytes");
        return Err(metadata.out_of_range("task", expected, &Value::String(task.clone())));
    }
    ignored.extend(metadata.rest());
    Ok(task.map(|task| TaskName::named(&task)))
}

/// The task of a conversation that does not name it.
pub(crate) fn of_messages(messages: &[ChatMessage]) -> TaskName {
    let instructions = messages.iter().filter(|message| message.role == Role::System);
    let instructions: Vec<_> = instructions.map(|message| message.content.as_str()).collect();
    TaskName::of_instructions(&instructions.join("\n"))
}

/// OpenAI's bound, in characters there.
const TASK_BYTES_MAX: usize = 512;
