//! What a template is given.

use serde::Serialize;
use serde_json::Value;

/// One message of a conversation, with the fields that templates know.
/// A field that is `None` is absent for the template, not null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// Who speaks: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// What is said.
    pub content: String,
    /// What the assistant thought before it, by the name that most templates know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The same by the name that gpt-oss's template knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// The calls that the assistant makes, as in the OpenAI API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Value>,
    /// The call that a tool answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<Value>,
    /// The name of the speaker or of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Value>,
}

impl ChatMessage {
    /// A message that only says something.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
            reasoning_content: None,
            thinking: None,
            tool_calls: None,
            tool_call_id: None,
            name: None,
        }
    }

    /// Whether it calls a tool or answers for one.
    pub(super) fn is_of_tools(&self) -> bool {
        self.tool_calls.is_some() || self.tool_call_id.is_some() || self.role == "tool"
    }
}

/// Whether the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The model speaks next: the prompt ends with the beginning of its turn (`add_generation_prompt`).
    Generate,
    /// The messages are all there is.
    Complete,
}
