//! `system` and `messages` as Anthropic writes them.
//!
//! Consecutive messages of one role are one turn, as there. Results of tools become messages of their own, since that is
//! what templates know.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::messages::{ChatMessage, Role, assistants, think, without_mere_thoughts};
use serde_json::{Value, json};

pub(super) const KNOWN: [&str; 2] = ["system", "messages"];

/// Takes `system` and `messages`. Paths of what has no effect are appended to `ignored`.
pub(super) fn take(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Vec<ChatMessage>, ApiError> {
    let mut turns = Turns::default();
    if let Some(system) = fields.take("system") {
        let text = texts(fields, "system", system, ignored)?;
        turns.add(Role::System, text);
    }
    let messages = match fields.take("messages") {
        None => return Err(ApiError::Missing { param: "messages".to_owned() }),
        Some(Value::Array(messages)) => messages,
        Some(other) => return Err(fields.wrong_type("messages", "an array", &other)),
    };
    if messages.is_empty() {
        return Err(fields.out_of_range("messages", "at least one message", &Value::Array(messages)));
    }
    let last = messages.len() - 1;
    for (index, message) in messages.into_iter().enumerate() {
        let role = turns.message(format!("messages[{index}]"), message, ignored)?;
        if index == last && role == Role::Assistant {
            let why = "an answer cannot be begun for the model; end with a message of the user";
            return Err(ApiError::Unsupported { param: format!("messages[{index}]"), why });
        }
    }
    Ok(without_mere_thoughts(turns.messages))
}

/// A conversation that grows.
#[derive(Default)]
struct Turns {
    messages: Vec<ChatMessage>,
}

impl Turns {
    /// Adds text to the turn of `role`, which may have begun.
    fn add(&mut self, role: Role, text: String) {
        match self.messages.last_mut().filter(|last| last.role == role) {
            None => self.messages.push(ChatMessage::said(role, text)),
            Some(last) if last.content.is_empty() => last.content = text,
            Some(_) if text.is_empty() => {}
            Some(last) => {
                last.content.push('\n');
                last.content.push_str(&text);
            }
        }
    }

    fn message(&mut self, path: String, message: Value, ignored: &mut Vec<String>) -> Result<Role, ApiError> {
        let mut fields = Fields::nested(path, message)?;
        let Some(role) = fields.string("role")? else {
            return Err(ApiError::Missing { param: fields.path_of("role") });
        };
        let role = match role.as_str() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            _ => return Err(fields.out_of_range("role", "one of user, assistant, system", &Value::String(role))),
        };
        match fields.take("content") {
            None => return Err(ApiError::Missing { param: fields.path_of("content") }),
            Some(Value::String(text)) => self.add(role, text),
            Some(Value::Array(blocks)) if blocks.is_empty() => self.add(role, String::new()),
            Some(Value::Array(blocks)) => {
                for (index, block) in blocks.into_iter().enumerate() {
                    let block = Fields::nested(fields.path_of(&format!("content[{index}]")), block)?;
                    self.block(role, block, ignored)?;
                }
            }
            Some(other) => return Err(fields.wrong_type("content", "a string or an array of blocks", &other)),
        }
        ignored.extend(fields.rest());
        Ok(role)
    }

    fn block(&mut self, role: Role, mut block: Fields, ignored: &mut Vec<String>) -> Result<(), ApiError> {
        match (kind(&mut block)?.as_str(), role) {
            ("text", _) => self.add(role, needed(&mut block, "text")?),
            ("thinking", Role::Assistant) => {
                think(&mut self.messages, &needed(&mut block, "thinking")?);
                block.take("signature");
            }
            // Nobody but its maker can read it.
            ("redacted_thinking", Role::Assistant) => return Ok(()),
            ("tool_use", Role::Assistant) => {
                let id = needed(&mut block, "id")?;
                let name = needed(&mut block, "name")?;
                let input = block.take("input").unwrap_or_else(|| json!({}));
                if !input.is_object() {
                    return Err(block.wrong_type("input", "an object", &input));
                }
                self.call(json!({"id": id, "type": "function", "function": {"name": name, "arguments": input}}));
            }
            ("tool_result", Role::User) => {
                let id = needed(&mut block, "tool_use_id")?;
                let content = result(&mut block, ignored)?;
                self.messages.push(ChatMessage { tool_call_id: Some(id), ..ChatMessage::said(Role::Tool, content) });
            }
            // What Anthropic's servers did once, in a conversation that came from there.
            (other, _) if other.ends_with("_tool_use") || other.ends_with("_tool_result") => {
                ignored.push(block.path_of("type"));
                return Ok(());
            }
            (other, _) => return Err(unreadable(&block, other)),
        }
        let _ = (block.take("cache_control"), block.take("citations"));
        ignored.extend(block.rest());
        Ok(())
    }

    /// Adds a call to the assistant's turn.
    fn call(&mut self, call: Value) {
        assistants(&mut self.messages).call(call);
    }
}

/// What a tool gave, in words.
fn result(block: &mut Fields, ignored: &mut Vec<String>) -> Result<String, ApiError> {
    let content = match block.take("content") {
        None => String::new(),
        Some(content) => texts(block, "content", content, ignored)?,
    };
    let failed = block.boolean("is_error")?.unwrap_or(false);
    Ok(if failed { format!("Error: {content}") } else { content })
}

/// A text, or blocks of text, joined by newlines.
fn texts(within: &Fields, name: &str, value: Value, ignored: &mut Vec<String>) -> Result<String, ApiError> {
    let blocks = match value {
        Value::String(text) => return Ok(text),
        Value::Array(blocks) => blocks,
        other => return Err(within.wrong_type(name, "a string or an array of blocks", &other)),
    };
    let mut texts = Vec::with_capacity(blocks.len());
    for (index, block) in blocks.into_iter().enumerate() {
        let mut block = Fields::nested(within.path_of(&format!("{name}[{index}]")), block)?;
        let kind = kind(&mut block)?;
        if kind != "text" {
            return Err(unreadable(&block, &kind));
        }
        texts.push(needed(&mut block, "text")?);
        let _ = (block.take("cache_control"), block.take("citations"));
        ignored.extend(block.rest());
    }
    Ok(texts.join("\n"))
}

fn kind(block: &mut Fields) -> Result<String, ApiError> {
    needed(block, "type")
}

fn needed(block: &mut Fields, name: &str) -> Result<String, ApiError> {
    block.string(name)?.ok_or_else(|| ApiError::Missing { param: block.path_of(name) })
}

/// A block that is no text, or of no kind that may stand here.
fn unreadable(block: &Fields, kind: &str) -> ApiError {
    match kind {
        "image" | "document" | "search_result" | "container_upload" | "file" => {
            ApiError::Unsupported { param: block.path_of(kind), why: "this model reads text only" }
        }
        _ => block.out_of_range("type", "a kind of block that may stand here", &Value::String(kind.to_owned())),
    }
}
