//! Log probabilities in OpenAI's two shapes.

use crate::backend::Backend;
use crate::echo::{Echo, characters_begun};
use crate::error::ApiError;
use crate::fields::Fields;
use duet_engine::{PromptToken, TokenLogprobs};
use duet_types::TokenId;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// A generated token and how likely it was.
#[derive(Clone, Debug)]
pub(crate) struct ScoredToken {
    pub(crate) token: TokenId,
    pub(crate) logprobs: TokenLogprobs,
}

/// Tokens on their way to the client. Each goes with the text that it begins in, however the engine held that back.
///
/// A token that begins where the answer ends is no part of it: the end of the turn, a stop string. It stays here.
#[derive(Debug)]
pub(crate) struct Scores {
    /// Special tokens that are written out in the text.
    marks: Vec<TokenId>,
    waiting: VecDeque<ScoredToken>,
    text_bytes: usize,
    token_bytes: usize,
}

impl Scores {
    /// Of an answer in which these special tokens are written out.
    pub(crate) fn new(marks: Vec<TokenId>) -> Self {
        Self { marks, waiting: VecDeque::new(), text_bytes: 0, token_bytes: 0 }
    }

    pub(crate) fn push(&mut self, token: ScoredToken) {
        self.waiting.push_back(token);
    }

    /// The tokens that go with this text, which goes on where the last one ended.
    pub(crate) fn take_for(&mut self, backend: &dyn Backend, text: &str) -> Vec<ScoredToken> {
        self.text_bytes += text.len();
        let mut tokens = Vec::new();
        while self.token_bytes < self.text_bytes {
            let Some(token) = self.waiting.pop_front() else { break };
            let mark = backend.special_name(token.token).filter(|_| self.marks.contains(&token.token));
            self.token_bytes += mark.map_or_else(|| backend.token_bytes(token.token).len(), str::len);
            tokens.push(token);
        }
        tokens
    }

    /// All that wait, for an answer that was cut off and not ended.
    pub(crate) fn take_rest(&mut self) -> Vec<ScoredToken> {
        self.waiting.drain(..).collect()
    }
}

/// Takes `logprobs` and `top_logprobs`: how many alternatives to report, if log probabilities are wanted at all.
pub(crate) fn wanted(fields: &mut Fields) -> Result<Option<u8>, ApiError> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", 0..=TOP_MAX)?.unwrap_or(0);
    match (wanted, top) {
        (false, 0) => Ok(None),
        (false, _) => Err(ApiError::Needs { param: "top_logprobs", needs: "logprobs" }),
        (true, top) => Ok(Some(u8::try_from(top).unwrap_or(u8::MAX))),
    }
}

/// OpenAI's bound of alternatives.
pub(crate) const TOP_MAX: i64 = 20;

/// `logprobs` of a chat choice.
pub(crate) fn chat(backend: &dyn Backend, tokens: &[ScoredToken]) -> Value {
    let entry = |token: TokenId, logprob: f32| {
        let bytes = backend.token_bytes(token);
        json!({"token": token_text(backend, token), "logprob": finite(logprob), "bytes": bytes})
    };
    let content = tokens.iter().map(|scored| {
        let mut chosen = entry(scored.token, scored.logprobs.chosen);
        let top = scored.logprobs.top.iter().map(|&(token, logprob)| entry(token, logprob));
        chosen["top_logprobs"] = top.collect();
        chosen
    });
    json!({"content": content.collect::<Value>(), "refusal": null})
}

/// `logprobs` of a completion choice, or of a piece of one.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    tokens: Vec<String>,
    token_logprobs: Vec<Value>,
    top_logprobs: Vec<Value>,
    text_offset: Vec<usize>,
}

impl Completion {
    /// Adds tokens of the prompt; `echo` is moved past them.
    pub(crate) fn prompt(mut self, backend: &dyn Backend, tokens: &[PromptToken], echo: &mut Echo) -> Self {
        for PromptToken { token, logprobs } in tokens {
            self.add(backend, *token, logprobs.as_ref(), echo.pass(backend, *token));
        }
        self
    }

    /// Adds tokens of the answer. `offset` is where the first of them begins in the text, in characters; it is moved past
    /// the last.
    pub(crate) fn answer(mut self, backend: &dyn Backend, tokens: &[ScoredToken], offset: &mut usize) -> Self {
        for ScoredToken { token, logprobs } in tokens {
            self.add(backend, *token, Some(logprobs), *offset);
            *offset += characters_begun(backend.token_bytes(*token));
        }
        self
    }

    fn add(&mut self, backend: &dyn Backend, token: TokenId, logprobs: Option<&TokenLogprobs>, offset: usize) {
        self.tokens.push(token_text(backend, token));
        self.token_logprobs.push(logprobs.map_or(Value::Null, |logprobs| finite(logprobs.chosen).into()));
        self.top_logprobs.push(logprobs.map_or(Value::Null, |logprobs| top_of(backend, token, logprobs)));
        self.text_offset.push(offset);
    }

    pub(crate) fn json(self) -> Value {
        let Self { tokens, token_logprobs, top_logprobs, text_offset } = self;
        json!({
            "tokens": tokens,
            "token_logprobs": token_logprobs,
            "top_logprobs": top_logprobs,
            "text_offset": text_offset,
        })
    }
}

/// The likeliest tokens by their texts, and the one that stands there. Of tokens of one text the likeliest counts.
fn top_of(backend: &dyn Backend, token: TokenId, logprobs: &TokenLogprobs) -> Value {
    let mut top = Map::new();
    for &(token, logprob) in logprobs.top.iter().chain([&(token, logprobs.chosen)]) {
        top.entry(token_text(backend, token)).or_insert_with(|| finite(logprob).into());
    }
    Value::Object(top)
}

fn token_text(backend: &dyn Backend, token: TokenId) -> String {
    backend.special_name(token).map_or_else(|| bytes_text(backend.token_bytes(token)), str::to_owned)
}

/// Bytes that are no whole characters are written as OpenAI does: `bytes:\xe2\x82`.
fn bytes_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |text, byte| text + &format!("\\x{byte:02x}")),
    }
}

/// JSON has no infinity; OpenAI writes -9999 for "impossible".
fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { -9999.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    /// A mark that is written out takes its place in the text, so what comes after it is not told early.
    #[test]
    fn tokens_come_with_the_text_that_they_begin_in() {
        let backend = fake::Fake::default();
        let mark = backend.special("<end>").expect("it has one");
        let mut scores = Scores::new(vec![mark]);
        for token in [mark, TokenId(u32::from(b'a')), TokenId(u32::from(b'b'))] {
            scores.push(ScoredToken { token, logprobs: TokenLogprobs { chosen: 0.0, top: Vec::new() } });
        }
        assert_eq!(["<end>", "a", ""].map(|text| scores.take_for(&backend, text).len()), [1, 1, 0]);
        assert_eq!(scores.take_rest().len(), 1);
    }

    #[test]
    fn tokens_within_a_character_are_shown_as_bytes() {
        assert_eq!(bytes_text("né".as_bytes()), "né");
        assert_eq!(bytes_text(&[0xe2, 0x82]), r"bytes:\xe2\x82");
    }

    #[test]
    fn impossible_tokens_stay_valid_json() {
        assert_eq!(finite(f32::NEG_INFINITY), -9999.0);
        assert_eq!(finite(-0.5), -0.5);
    }
}
