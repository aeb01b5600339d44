//! Messages as Anthropic writes them: blocks of text, reasoning and calls, whole or as named events.

use super::refusal;
use crate::error::ApiError;
use crate::logprobs::ScoredToken;
use crate::reply::{About, Call, Choice, Ended, Frame, Said, Writer};
use duet_engine::Usage;
use serde_json::{Value, json};

/// Writes one message.
pub(super) struct Messages {
    /// The stop strings, to name the one that ended the answer.
    stop: Vec<String>,
    /// The block that is being streamed.
    open: Option<Block>,
    /// Blocks that have begun.
    blocks: usize,
}

/// A block that grows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Text,
    Thinking,
    Call,
}

impl Block {
    fn delta(self, text: &str) -> Value {
        match self {
            Self::Text => json!({"type": "text_delta", "text": text}),
            Self::Thinking => json!({"type": "thinking_delta", "thinking": text}),
            Self::Call => json!({"type": "input_json_delta", "partial_json": text}),
        }
    }
}

impl Messages {
    pub(super) fn new(stop: Vec<String>) -> Self {
        Self { stop, open: None, blocks: 0 }
    }

    /// Adds to the open block if it is of this kind, and to a new one, which begins as `empty`, if not.
    fn grow(&mut self, block: Block, empty: &Value, text: &str) -> Vec<Frame> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut frames = if self.open == Some(block) { Vec::new() } else { self.open(block, empty) };
        frames.push(self.delta(&block.delta(text)));
        frames
    }

    fn begin_call(&mut self, call: &Call) -> Vec<Frame> {
        let begun =
            json!({"type": "tool_use", "id": id(call), "name": call.name, "input": {}, "caller": {"type": "direct"}});
        self.open(Block::Call, &begun)
    }

    /// Begins a block, and ends the one before.
    fn open(&mut self, block: Block, begun: &Value) -> Vec<Frame> {
        let mut frames: Vec<Frame> = self.close().into_iter().collect();
        frames.push(self.begin(begun));
        self.open = Some(block);
        frames
    }

    fn begin(&mut self, block: &Value) -> Frame {
        self.blocks += 1;
        let event = json!({"type": "content_block_start", "index": self.blocks - 1, "content_block": block});
        Frame::named("content_block_start", &event)
    }

    fn delta(&self, delta: &Value) -> Frame {
        let index = self.blocks.saturating_sub(1);
        Frame::named("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}))
    }

    fn stop(&self) -> Frame {
        let index = self.blocks.saturating_sub(1);
        Frame::named("content_block_stop", &json!({"type": "content_block_stop", "index": index}))
    }

    /// Ends the open block, if there is one.
    fn close(&mut self) -> Option<Frame> {
        self.open.take().map(|_| self.stop())
    }

    /// `stop_reason` and `stop_sequence`.
    fn end(&self, ended: Option<Ended>, usage: Usage) -> (Value, Value) {
        let sequence = usage.stopped_by.and_then(|which| self.stop.get(which));
        match (ended, sequence) {
            (None, _) => (Value::Null, Value::Null),
            (Some(Ended::Length), _) => ("max_tokens".into(), Value::Null),
            (Some(Ended::Calls), _) => ("tool_use".into(), Value::Null),
            (Some(Ended::Stop), Some(sequence)) => ("stop_sequence".into(), sequence.as_str().into()),
            (Some(Ended::Stop), None) => ("end_turn".into(), Value::Null),
        }
    }
}

impl Writer for Messages {
    const ID_PREFIX: &'static str = "msg_";
    const PROMPT: &'static str = "messages";

    fn whole(&mut self, about: &About, choices: Vec<Choice>, usage: Usage) -> Value {
        let choice = choices.into_iter().next().unwrap_or_default();
        let mut content = Vec::new();
        if !choice.reasoning.is_empty() {
            content.push(json!({"type": "thinking", "thinking": choice.reasoning, "signature": ""}));
        }
        if !choice.text.is_empty() {
            content.push(json!({"type": "text", "text": choice.text, "citations": null}));
        }
        for call in &choice.calls {
            let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            content.push(json!({"type": "tool_use", "id": id(call), "name": call.name, "input": input, "caller": {"type": "direct"}}));
        }
        let (reason, sequence) = self.end(choice.ended, usage);
        message(about, content.into(), [reason, sequence], usage)
    }

    fn opening(&mut self, about: &About, _: usize) -> Vec<Frame> {
        // What of the prompt was cached is known at the end.
        let usage = Usage { prompt: about.prompt, ..Usage::default() };
        let message = message(about, json!([]), [Value::Null, Value::Null], usage);
        vec![
            Frame::named("message_start", &json!({"type": "message_start", "message": message})),
            Frame::named("ping", &json!({"type": "ping"})),
        ]
    }

    fn piece(&mut self, _: &About, _: usize, said: Said, _: Option<&[ScoredToken]>) -> Vec<Frame> {
        match said {
            Said::Text(text) => self.grow(Block::Text, &json!({"type": "text", "text": "", "citations": null}), &text),
            Said::Reasoning(text) => {
                self.grow(Block::Thinking, &json!({"type": "thinking", "thinking": "", "signature": ""}), &text)
            }
            Said::CallBegun(call) => self.begin_call(&call),
            Said::Arguments { fragment, .. } => vec![self.delta(&Block::Call.delta(&fragment))],
            Said::CallEnded { .. } => self.close().into_iter().collect(),
        }
    }

    fn ended(&mut self, about: &About, _: usize, ended: Ended, usage: Usage) -> Vec<Frame> {
        let mut frames: Vec<Frame> = self.close().into_iter().collect();
        let (reason, sequence) = self.end(Some(ended), usage);
        let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
        let event = json!({"type": "message_delta", "delta": delta, "usage": usage_json(about, usage)});
        frames.push(Frame::named("message_delta", &event));
        frames
    }

    fn last(&mut self, _: &About, _: Usage) -> Vec<Frame> {
        vec![Frame::named("message_stop", &json!({"type": "message_stop"}))]
    }

    fn failed(&mut self, _: &About, error: &ApiError) -> Vec<Frame> {
        vec![Frame::named("error", &refusal::of(error))]
    }
}

fn message(about: &About, content: Value, [reason, sequence]: [Value; 2], usage: Usage) -> Value {
    json!({
        "id": about.id,
        "type": "message",
        "role": "assistant",
        "model": about.app.backend.model_name(),
        "content": content,
        "stop_reason": reason,
        "stop_sequence": sequence,
        "stop_details": null,
        "container": null,
        "usage": usage_json(about, usage),
    })
}

/// A prompt's tokens are those that were computed and those that were found.
fn usage_json(about: &About, usage: Usage) -> Value {
    let tier = match about.service_tier {
        "flex" => "batch",
        "priority" => "priority",
        _ => "standard",
    };
    json!({
        "input_tokens": usage.prompt.0.saturating_sub(usage.cached.0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached.0,
        "output_tokens": usage.generated.0,
        "service_tier": tier,
        "cache_creation": null,
        "inference_geo": null,
        "output_tokens_details": null,
        "server_tool_use": null,
    })
}

/// The call's id with the beginning that clients know.
fn id(call: &Call) -> String {
    format!("toolu_{}", call.id.trim_start_matches("call_"))
}
