//! What is sent, and what comes back.

use duet_types::{Class, Tokens};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Message {
    /// Who says it.
    pub(crate) role: Role,
    /// What is said.
    pub(crate) content: String,
}

/// Who speaks, as chat templates and OpenAI call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// `content`, said by `role`.
    pub(crate) fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into() }
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

/// One request to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Who waits for it: under what it is counted.
    pub(crate) class: Class,
    /// Its place in its stream: two slices' jobs of one class and index are the same request.
    pub(crate) index: usize,
    /// Whether the server is told the class.
    pub(crate) tier: Tier,
    /// The conversation.
    pub(crate) messages: Arc<[Message]>,
    /// Most tokens of the answer.
    pub(crate) output: Tokens,
    /// When the answer ends.
    pub(crate) ending: Ending,
}

/// Whether a request says who waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// It says its class.
    Declared,
    /// It says nothing, as a stock client does: the server takes it for its default.
    Unsaid,
}

/// When an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// After all its tokens, so that every server does the same work.
    AllTokens,
    /// When the model ends its turn: what a conversation can go on from.
    EndOfTurn,
}

/// What came back, as the client saw it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// The text.
    pub(crate) text: String,
    /// When its first text came.
    pub(crate) first_text: Option<Instant>,
    /// When each token came.
    pub(crate) tokens: Vec<Instant>,
    /// When it ended.
    pub(crate) end: Option<Instant>,
    /// What the server counted.
    pub(crate) counts: Option<Counts>,
}

/// A server's count of a request's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Prompt tokens.
    pub(crate) prompt: Tokens,
    /// Of these, not computed; absent where the server does not say.
    pub(crate) cached: Option<Tokens>,
    /// Generated tokens.
    pub(crate) output: Tokens,
}

impl Answer {
    /// A token came, and `text` with it.
    pub(crate) fn token(&mut self, text: &str, now: Instant) {
        if !text.is_empty() {
            self.first_text.get_or_insert(now);
        }
        self.text += text;
        self.tokens.push(now);
    }

    /// The longest time between two tokens.
    pub(crate) fn gap_max(&self) -> Option<Duration> {
        self.tokens.windows(2).map(|pair| pair[1] - pair[0]).max()
    }
}
