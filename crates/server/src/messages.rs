//! The messages of a conversation, as OpenAI writes them.

use crate::error::ApiError;
use crate::fields::{Fields, brief, type_name};
use serde_json::Value;
use std::collections::HashSet;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said; text parts are joined by newlines. Empty where an assistant only calls tools.
    pub content: String,
    /// What an assistant thought before it said or called this. Templates show it while a turn goes on, from call to call.
    pub reasoning: Option<String>,
    /// The calls an assistant made, as the client sent them: an array.
    pub tool_calls: Option<Value>,
    /// The call that a tool's message answers.
    pub tool_call_id: Option<String>,
    /// The name of the speaker or the tool; many templates have no place for it.
    pub name: Option<String>,
}

impl ChatMessage {
    /// A message that only says something.
    #[must_use]
    pub fn said(role: Role, content: String) -> Self {
        Self { role, content, reasoning: None, tool_calls: None, tool_call_id: None, name: None }
    }

    /// Its calls, if it makes any.
    pub(crate) fn calls(&self) -> &[Value] {
        self.tool_calls.as_ref().and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

impl ChatMessage {
    /// Adds a call.
    pub(crate) fn call(&mut self, call: Value) {
        if let Value::Array(calls) = self.tool_calls.get_or_insert_with(|| Value::Array(Vec::new())) {
            calls.push(call);
        }
    }

    /// Whether nothing was said and nothing called.
    pub(crate) fn says_nothing(&self) -> bool {
        self.content.is_empty() && self.tool_calls.is_none()
    }
}

/// The assistant's turn at the end of a conversation, which begins with this if it had not.
pub(crate) fn assistants(messages: &mut Vec<ChatMessage>) -> &mut ChatMessage {
    if messages.last().is_none_or(|last| last.role != Role::Assistant) {
        messages.push(ChatMessage::said(Role::Assistant, String::new()));
    }
    let last = messages.len() - 1;
    &mut messages[last]
}

/// Adds to what the assistant thinks in its turn at the end of a conversation.
pub(crate) fn think(messages: &mut Vec<ChatMessage>, thought: &str) {
    if thought.trim().is_empty() {
        return;
    }
    let reasoning = assistants(messages).reasoning.get_or_insert_default();
    if !reasoning.is_empty() {
        reasoning.push('\n');
    }
    reasoning.push_str(thought);
}

/// Leaves out turns that ended before anything was said.
pub(crate) fn without_mere_thoughts(mut messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    messages.retain(|message| message.reasoning.is_none() || !message.says_nothing());
    messages
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The rules of the conversation. OpenAI's newer name `developer` is read as this.
    System,
    /// The person or agent that asks.
    User,
    /// The model.
    Assistant,
    /// The result of a call.
    Tool,
}

impl Role {
    /// The name that chat templates use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// Takes `messages`. Paths of fields without effect are appended to `ignored`.
pub(crate) fn take(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Vec<ChatMessage>, ApiError> {
    let messages = match fields.take("messages") {
        None => return Err(ApiError::Missing { param: "messages".to_owned() }),
        Some(Value::Array(messages)) => messages,
        Some(other) => return Err(fields.wrong_type("messages", "an array", &other)),
    };
    if messages.is_empty() {
        return Err(fields.out_of_range("messages", "at least one message", &Value::Array(messages)));
    }
    let mut calls = Made::default();
    let mut read = Vec::with_capacity(messages.len());
    for (index, message) in messages.into_iter().enumerate() {
        let path = format!("messages[{index}]");
        let message = message_from(path.clone(), message, ignored)?;
        calls.check(&path, &message)?;
        read.push(message);
    }
    Ok(read)
}

/// The calls that were made so far: a result of any other would lead the model astray.
#[derive(Debug, Default)]
pub(crate) struct Made(HashSet<String>);

impl Made {
    /// Takes note of a message's calls, or refuses the result of one that was never made. `path` is where it stands.
    pub(crate) fn check(&mut self, path: &str, message: &ChatMessage) -> Result<(), ApiError> {
        self.0.extend(message.calls().iter().filter_map(|call| call["id"].as_str().map(str::to_owned)));
        match &message.tool_call_id {
            Some(id) if !self.0.contains(id) => {
                let (param, got) = (format!("{path}.tool_call_id"), brief(&Value::String(id.clone())));
                Err(ApiError::OutOfRange { param, expected: "the id of a call in a message before it".to_owned(), got })
            }
            _ => Ok(()),
        }
    }
}

/// Each of an assistant's calls names a function, and its arguments are an object or its text.
fn check_calls(fields: &Fields, calls: &[Value]) -> Result<(), ApiError> {
    for (index, call) in calls.iter().enumerate() {
        let mut call = Fields::nested(fields.path_of(&format!("tool_calls[{index}]")), call.clone())?;
        let Some(function) = call.take("function") else {
            return Err(ApiError::Missing { param: call.path_of("function") });
        };
        let mut function = Fields::nested(call.path_of("function"), function)?;
        if function.string("name")?.is_none() {
            return Err(ApiError::Missing { param: function.path_of("name") });
        }
        match function.take("arguments") {
            None | Some(Value::String(_) | Value::Object(_)) => {}
            Some(other) => return Err(function.wrong_type("arguments", "a text of JSON", &other)),
        }
    }
    Ok(())
}

/// One message; `path` is where it stands.
pub(crate) fn message_from(path: String, message: Value, ignored: &mut Vec<String>) -> Result<ChatMessage, ApiError> {
    let mut fields = Fields::nested(path, message)?;
    let role = role_from(&mut fields)?;
    let content = fields.take("content");
    let tool_calls = match (role, fields.take("tool_calls")) {
        (_, None) => None,
        // Clients that keep a list send it when it is empty as well; templates take any list for calls.
        (Role::Assistant, Some(Value::Array(calls))) if calls.is_empty() => None,
        (Role::Assistant, Some(Value::Array(calls))) => {
            check_calls(&fields, &calls)?;
            Some(Value::Array(calls))
        }
        (Role::Assistant, Some(other)) => return Err(fields.wrong_type("tool_calls", "an array", &other)),
        (_, Some(_)) => {
            let why = "only an assistant's message calls tools";
            return Err(ApiError::Unsupported { param: fields.path_of("tool_calls"), why });
        }
    };
    for (name, why) in [("function_call", "use tool_calls"), ("audio", "this server takes text only")] {
        if fields.take(name).is_some() {
            return Err(ApiError::Unsupported { param: fields.path_of(name), why });
        }
    }
    let content = match content {
        Some(content) => text_from(&fields, content, ignored)?,
        None if tool_calls.is_some() => String::new(),
        None => return Err(ApiError::Missing { param: fields.path_of("content") }),
    };
    let tool_call_id = if role == Role::Tool { fields.string("tool_call_id")? } else { None };
    let name = fields.string("name")?;
    let reasoning = if role == Role::Assistant { reasoning_from(&mut fields) } else { None };
    ignored.extend(fields.rest());
    Ok(ChatMessage { role, content, reasoning, tool_calls, tool_call_id, name })
}

/// What an assistant thought, by the names that servers give it; this one's is the first. What is no text is left, and so
/// listed as ignored.
fn reasoning_from(fields: &mut Fields) -> Option<String> {
    let name =
        ["reasoning_content", "reasoning"].into_iter().find(|name| fields.peek(name).is_some_and(Value::is_string))?;
    match fields.take(name)? {
        Value::String(text) if !text.trim().is_empty() => Some(text),
        _ => None,
    }
}

fn role_from(fields: &mut Fields) -> Result<Role, ApiError> {
    let Some(role) = fields.string("role")? else {
        return Err(ApiError::Missing { param: fields.path_of("role") });
    };
    match role.as_str() {
        "system" | "developer" => Ok(Role::System),
        "user" => Ok(Role::User),
        "assistant" => Ok(Role::Assistant),
        "tool" => Ok(Role::Tool),
        _ => {
            let expected = "one of system, developer, user, assistant, tool";
            Err(fields.out_of_range("role", expected, &Value::String(role)))
        }
    }
}

/// Content is a text or a list of parts, of which only texts are understood.
pub(crate) fn text_from(message: &Fields, content: Value, ignored: &mut Vec<String>) -> Result<String, ApiError> {
    let parts = match content {
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        other => return Err(message.wrong_type("content", "a string or an array of parts", &other)),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for (index, part) in parts.into_iter().enumerate() {
        let mut part = Fields::nested(message.path_of(&format!("content[{index}]")), part)?;
        let kind = part.take("type").ok_or_else(|| ApiError::Missing { param: part.path_of("type") })?;
        match kind {
            Value::String(kind) if kind == "text" => {
                let text = part.string("text")?;
                texts.push(text.ok_or_else(|| ApiError::Missing { param: part.path_of("text") })?);
                ignored.extend(part.rest());
            }
            Value::String(kind) if UNSUPPORTED_PARTS.contains(&kind.as_str()) => {
                let why = "this model reads text only";
                return Err(ApiError::Unsupported { param: part.path_of(&kind), why });
            }
            kind @ Value::String(_) => return Err(part.out_of_range("type", "text", &kind)),
            other => {
                let (param, got) = (part.path_of("type"), type_name(&other));
                return Err(ApiError::WrongType { param, expected: "a string", got });
            }
        }
    }
    Ok(texts.join("\n"))
}

/// Parts that OpenAI knows and a text model cannot read.
const UNSUPPORTED_PARTS: [&str; 4] = ["image_url", "input_audio", "file", "refusal"];
