//! The real [`Backend`]: a running engine and its model.

use crate::backend::{Backend, Events, PromptError};
use crate::messages::{ChatMessage, Role};
use duet_engine::{Engine, EngineError, FlowView, GenerateRequest};
use duet_model::template::{self, Turn};
use duet_model::tokenizer::{SpecialTokens, TooManyTokens};
use duet_types::{Class, TokenId, Tokens};
use serde_json::Value;

/// Serves what an engine runs.
#[derive(Clone, Debug)]
pub struct EngineBackend {
    engine: Engine,
}

impl EngineBackend {
    /// Keeps `engine` running for as long as it lives.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

impl Backend for EngineBackend {
    fn model_name(&self) -> &str {
        &self.engine.model().config().name
    }

    fn vocabulary(&self) -> usize {
        self.engine.model().tokenizer().vocabulary()
    }

    fn context(&self) -> Tokens {
        self.engine.context()
    }

    fn has_room(&self, class: Class) -> Result<(), EngineError> {
        self.engine.has_room(class)
    }

    fn encode_chat(&self, messages: &[ChatMessage], most: Tokens) -> Result<Vec<TokenId>, PromptError> {
        let model = self.engine.model();
        // Before the template takes copies of it. Templates may trim texts, and shorten what assistants said.
        let kept = messages.iter().filter(|message| message.role != Role::Assistant);
        if model.tokenizer().certainly_exceeds(kept.map(|message| message.content.trim()), most) {
            return Err(TooManyTokens { most }.into());
        }
        let messages: Vec<_> = messages.iter().map(for_template).collect();
        let text = model
            .template()
            .render(&messages, None, Turn::Generate)
            .map_err(|error| PromptError::Template(error.to_string()))?;
        Ok(model.tokenizer().encode_prompt_within(&text, SpecialTokens::Parse, most)?)
    }

    /// What looks like a special token in a text that is expected is text.
    fn encode_answer(&self, text: &str, most: Tokens) -> Result<Vec<TokenId>, TooManyTokens> {
        self.engine.model().tokenizer().encode_within(text, SpecialTokens::AsText, most)
    }

    /// Special tokens in the text count: whoever writes raw prompts means them.
    fn encode_text(&self, text: &str, most: Tokens) -> Result<Vec<TokenId>, TooManyTokens> {
        self.engine.model().tokenizer().encode_prompt_within(text, SpecialTokens::Parse, most)
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        self.engine.model().tokenizer().bytes(token)
    }

    fn special_name(&self, token: TokenId) -> Option<&str> {
        self.engine.model().tokenizer().text_of_special(token)
    }

    fn submit(&self, request: GenerateRequest) -> Result<Box<dyn Events>, EngineError> {
        Ok(Box::new(self.engine.submit(request)?))
    }

    fn flows(&self) -> Vec<FlowView> {
        self.engine.flows()
    }

    fn is_running(&self) -> bool {
        self.engine.is_running()
    }

    fn metrics(&self) -> String {
        self.engine.metrics_text()
    }
}

fn for_template(message: &ChatMessage) -> template::ChatMessage {
    template::ChatMessage {
        role: message.role.name().to_owned(),
        content: message.content.clone(),
        tool_calls: message.tool_calls.clone(),
        tool_call_id: message.tool_call_id.clone().map(Value::String),
        name: message.name.clone().map(Value::String),
    }
}
