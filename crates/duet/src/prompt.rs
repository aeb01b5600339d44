//! From what people write to what a model reads.

use crate::bad_input::BadInput;
use duet_agents::{Begins, ReasoningFormat, ReasoningSplit};
use duet_model::Model;
use duet_model::template::{ChatMessage, Turn};
use duet_model::tokenizer::SpecialTokens;
use duet_types::TokenId;
use serde::Serialize;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Message {
    /// Who says it.
    pub(crate) role: Role,
    /// What is said.
    pub(crate) content: String,
}

/// Who speaks, as chat templates and OpenAI call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// The rules of the conversation.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl Message {
    /// Instructions for the whole conversation.
    pub(crate) fn system(content: String) -> Self {
        Self { role: Role::System, content }
    }

    /// Something the person says.
    pub(crate) fn user(content: String) -> Self {
        Self { role: Role::User, content }
    }

    /// Something the model said.
    pub(crate) fn assistant(content: String) -> Self {
        Self { role: Role::Assistant, content }
    }
}

impl Role {
    /// Its name in chat templates.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// What asks a model for a turn, and how to read what comes.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    /// What the model reads.
    pub(crate) tokens: Vec<TokenId>,
    /// Special tokens whose text shows where thoughts begin and end.
    pub(crate) marks: Vec<TokenId>,
    /// Tells thoughts from the answer.
    pub(crate) split: ReasoningSplit,
}

/// Asks for the next turn of a conversation.
pub(crate) fn encode_chat(model: &Model, messages: &[Message]) -> anyhow::Result<Prompt> {
    let messages: Vec<_> =
        messages.iter().map(|message| ChatMessage::new(message.role.name(), message.content.as_str())).collect();
    let text = model
        .template()
        .render(&messages, None, Turn::Generate)
        .map_err(|error| BadInput(format!("the model's chat template refused the messages: {error}")))?;
    let reasoning = ReasoningFormat::of_template(model.template().source());
    let begins = reasoning.map_or(Begins::Outside, |format| format.begins(&text));
    let marks = reasoning.map_or(&[][..], ReasoningFormat::marks).iter();
    Ok(Prompt {
        tokens: model.tokenizer().encode_prompt(&text, SpecialTokens::Parse),
        marks: marks.filter_map(|mark| model.tokenizer().special(mark)).collect(),
        split: ReasoningSplit::new(reasoning, begins),
    })
}

/// A text to be continued. Special tokens in it count: whoever writes raw prompts means them.
pub(crate) fn encode_text(model: &Model, text: &str) -> Prompt {
    let tokens = model.tokenizer().encode_prompt(text, SpecialTokens::Parse);
    Prompt { tokens, marks: Vec::new(), split: ReasoningSplit::new(None, Begins::Outside) }
}
