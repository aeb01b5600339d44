//! How a route writes its responses: what the answer says comes in, JSON goes out.

use super::said::Said;
use crate::error::ApiError;
use crate::logprobs::ScoredToken;
use crate::serve::App;
use duet_engine::{PromptToken, Usage};
use duet_types::Tokens;
use serde_json::Value;
use std::sync::Arc;

/// How a route writes the answers to one request. Of several choices, each has its index.
pub(crate) trait Writer: Send + 'static {
    /// Begins the ids.
    const ID_PREFIX: &'static str;
    /// What the route calls its prompt.
    const PROMPT: &'static str;
    /// How frames are sent.
    const FRAMING: Framing = Framing::Events;

    /// The whole response.
    fn whole(&mut self, about: &About, choices: Vec<Choice>, usage: Usage) -> Value;

    /// What is sent before there is anything of a choice.
    fn opening(&mut self, about: &About, index: usize) -> Vec<Frame>;

    /// What is sent when a part of a choice's prompt was read, for clients that ask.
    fn reading(&mut self, _about: &About, _index: usize, _reading: Reading) -> Vec<Frame> {
        Vec::new()
    }

    /// What is sent for the next tokens of a choice's prompt, where their log probabilities are told.
    fn prompt(&mut self, _about: &About, _index: usize, _tokens: &[PromptToken]) -> Vec<Frame> {
        Vec::new()
    }

    /// What is sent for a piece of a choice; `scored` is absent if no log probabilities were asked for.
    fn piece(&mut self, about: &About, index: usize, said: Said, scored: Option<&[ScoredToken]>) -> Vec<Frame>;

    /// What is sent when a choice has ended.
    fn ended(&mut self, about: &About, index: usize, ended: Ended, usage: Usage) -> Vec<Frame>;

    /// What is sent when all have ended.
    fn last(&mut self, about: &About, usage: Usage) -> Vec<Frame>;

    /// What is sent, and nothing after it, when a choice has failed.
    fn failed(&mut self, _about: &About, error: &ApiError) -> Vec<Frame> {
        vec![Frame::data(&error.body())]
    }
}

/// What responses say of themselves.
pub(crate) struct About {
    pub(crate) app: Arc<App>,
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) service_tier: &'static str,
    pub(crate) prompt: Tokens,
}

/// How far a prompt was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) read: Tokens,
    /// Of these, positions that were there.
    pub(crate) cached: Tokens,
}

/// One piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The name of the event, where the route's events have names.
    pub(crate) event: Option<&'static str>,
    pub(crate) data: String,
}

/// How frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events.
    Events,
    /// A JSON object a line.
    Lines,
}

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The model, or a stop string, ended it.
    Stop,
    /// It was cut.
    Length,
    /// The model waits for the results of its calls.
    Calls,
}

/// A whole choice.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// Empty if no log probabilities of it were asked for.
    pub(crate) prompt: Vec<PromptToken>,
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<Call>,
    /// Absent if no log probabilities were asked for.
    pub(crate) scored: Option<Vec<ScoredToken>>,
    pub(crate) ended: Option<Ended>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Its place among the choice's calls, from 0.
    pub(crate) index: usize,
    pub(crate) id: String,
    pub(crate) name: String,
    /// A JSON object, or what there is of it.
    pub(crate) arguments: String,
}

impl Frame {
    /// One without a name.
    pub(crate) fn data(data: &Value) -> Self {
        Self { event: None, data: data.to_string() }
    }

    /// One with a name.
    pub(crate) fn named(event: &'static str, data: &Value) -> Self {
        Self { event: Some(event), data: data.to_string() }
    }

    /// What ends OpenAI's streams.
    pub(crate) fn done() -> Self {
        Self { event: None, data: "[DONE]".to_owned() }
    }
}

impl Ended {
    /// OpenAI's word in chat completions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Calls => "tool_calls",
        }
    }
}

impl Choice {
    /// Adds a piece.
    pub(crate) fn add(&mut self, said: Said) {
        match said {
            Said::Text(text) => self.text += &text,
            Said::Reasoning(text) => self.reasoning += &text,
            Said::CallBegun(call) => self.calls.push(call),
            Said::Arguments { fragment, .. } => {
                self.calls.last_mut().into_iter().for_each(|c| c.arguments += &fragment)
            }
            Said::CallEnded { .. } => {}
        }
    }
}
