//! From items to the messages of a chat.
//!
//! **Invariant:** each result in it belongs to a call before it.
//!
//! Instructions and what the system or the developer says at the beginning are one message, since many templates take only
//! one, and only there. What they say later stays where it is. What a model thought goes before what it then said or called.

use super::items::What;
use crate::error::ApiError;
use crate::fields::brief;
use crate::messages::{ChatMessage, Role, assistants, think, without_mere_thoughts};
use serde_json::{Value, json};
use std::collections::HashMap;

/// A conversation in the making.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    messages: Vec<ChatMessage>,
    /// Names of functions, by the ids of their calls.
    called: HashMap<String, String>,
}

impl Conversation {
    pub(crate) fn with_instructions(instructions: Option<String>) -> Self {
        let first = instructions.filter(|text| !text.is_empty()).map(|text| ChatMessage::said(Role::System, text));
        Self { messages: first.into_iter().collect(), called: HashMap::new() }
    }

    /// Adds an item that stands at `path`.
    pub(crate) fn add(&mut self, path: &str, what: What) -> Result<(), ApiError> {
        match what {
            What::Said(message) => self.say(message),
            What::Call { call_id, name, arguments } => self.call(call_id, name, &arguments),
            What::Result { call_id, content } => {
                let Some(name) = self.called.get(&call_id) else {
                    let (param, got) = (format!("{path}.call_id"), brief(&Value::String(call_id)));
                    let expected = "the id of a function_call before it".to_owned();
                    return Err(ApiError::OutOfRange { param, expected, got });
                };
                let name = Some(name.clone());
                let tool_call_id = Some(call_id);
                self.messages.push(ChatMessage { tool_call_id, name, ..ChatMessage::said(Role::Tool, content) });
            }
            What::Thought(text) => think(&mut self.messages, &text),
            What::Reference | What::Skipped => {}
        }
        Ok(())
    }

    /// The messages.
    pub(crate) fn into_messages(self) -> Vec<ChatMessage> {
        without_mere_thoughts(self.messages)
    }

    fn say(&mut self, message: ChatMessage) {
        match self.messages.as_mut_slice() {
            [first] if first.role == Role::System && message.role == Role::System => {
                first.content.push_str("\n\n");
                first.content.push_str(&message.content);
            }
            // It was only thought so far.
            [.., last] if last.role == Role::Assistant && message.role == Role::Assistant && last.says_nothing() => {
                last.content = message.content;
            }
            _ => self.messages.push(message),
        }
    }

    /// Calls of one turn are in one message, with what was said before them.
    fn call(&mut self, call_id: String, name: String, arguments: &str) {
        let call = json!({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}});
        self.called.insert(call_id, name);
        assistants(&mut self.messages).call(call);
    }
}
