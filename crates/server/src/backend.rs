//! What the server needs of an engine. The real one is [`EngineBackend`](crate::EngineBackend); tests bring a fake.

use crate::messages::ChatMessage;
use duet_agents::{Begins, ReasoningFormat, Refused, Tool, ToolFormat, Turn};
use duet_engine::{Constraint, EncodeRequest, EngineError, FlowView, GenerateRequest, Generation, GenerationEvent};
use duet_model::encoder::Encoder;
use duet_model::tokenizer::TooManyTokens;
use duet_types::{Bytes, Class, TokenId, Tokens};
use serde_json::{Map, Value};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A loaded model that can be asked to generate.
pub trait Backend: Send + Sync + 'static {
    /// The model's name, as clients see it.
    fn model_name(&self) -> &str;

    /// What can be told of the model beside its name.
    fn about(&self) -> About<'_> {
        About::default()
    }

    /// How many token ids exist; all smaller ids are valid.
    fn vocabulary(&self) -> usize;

    /// Floats of a prompt's embedding.
    fn embedding_width(&self) -> usize;

    /// The longest prompt and answer together.
    fn context(&self) -> Tokens;

    /// Whether a request of this class would be queued now.
    ///
    /// # Errors
    /// [`EngineError`], as [`Self::submit`] would refuse it.
    fn has_room(&self, class: Class) -> Result<(), EngineError>;

    /// The prompt that asks the model for the next turn of a conversation, of at most `most` tokens. May take milliseconds
    /// per 10 000 tokens; what is too long takes no longer than what is not.
    ///
    /// # Errors
    /// [`PromptError`] if the model's chat template refuses the messages, or if they are too long.
    fn encode_chat(&self, chat: &Chat<'_>, most: Tokens) -> Result<ChatPrompt, PromptError>;

    /// How the model marks calls and reasoning.
    fn families(&self) -> Families;

    /// What a turn is held to; nothing if every answer is right. Takes from a fraction of a millisecond to some hundred for
    /// the largest schemas.
    ///
    /// # Errors
    /// [`Refused`], in words for the client.
    fn constrain(&self, turn: &Turn<'_>) -> Result<Option<Constraint>, Refused>;

    /// The special token of this name.
    fn special(&self, name: &str) -> Option<TokenId>;

    /// The tokens of one of the model's marks, special ones where it names such.
    fn encode_mark(&self, mark: &str) -> Vec<TokenId>;

    /// The prompt that asks the model to go on with `text`, of at most `most` tokens. Takes as long as
    /// [`Self::encode_chat`].
    ///
    /// # Errors
    /// [`TooManyTokens`] if it has more.
    fn encode_text(&self, text: &str, most: Tokens) -> Result<Vec<TokenId>, TooManyTokens>;

    /// The tokens that an answer of this text might have, at most `most`.
    ///
    /// # Errors
    /// [`TooManyTokens`] if it has more.
    fn encode_answer(&self, text: &str, most: Tokens) -> Result<Vec<TokenId>, TooManyTokens>;

    /// The bytes a token adds to an answer; they need not be whole characters. None for special tokens and for ids
    /// outside the vocabulary.
    fn token_bytes(&self, token: TokenId) -> &[u8];

    /// What to call a token that stands for no text, such as the end of a turn: `<|im_end|>`.
    fn special_name(&self, token: TokenId) -> Option<&str>;

    /// Checks and queues a request. Dropping what it returns cancels the work.
    ///
    /// # Errors
    /// [`EngineError`], before any work is done.
    fn submit(&self, request: GenerateRequest) -> Result<Box<dyn Events>, EngineError>;

    /// The model beside it for vectors or scores of texts, if there is one.
    fn encoder(&self) -> Option<&Arc<Encoder>> {
        None
    }

    /// Checks and queues texts for the encoder. Dropping what it returns cancels the work.
    ///
    /// # Errors
    /// [`EngineError`], before any work is done.
    fn encode(&self, request: EncodeRequest) -> Result<Box<dyn Events>, EngineError> {
        let _ = request;
        Err(EngineError::Configuration("there is no encoder".to_owned()))
    }

    /// The flows of all tenants, with their open requests and what is kept of them.
    fn flows(&self) -> Vec<FlowView>;

    /// Metrics in OpenMetrics' text format.
    fn metrics(&self) -> String;

    /// Whether it can still answer requests.
    fn is_running(&self) -> bool;
}

/// What can be told of a model. What is empty is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About<'a> {
    /// GGUF's `general.architecture`.
    pub architecture: &'a str,
    /// The source of its chat template.
    pub template: &'a str,
    /// The longest sequence that it was made for; what is served may be less.
    pub context: Tokens,
    /// What its weights take in memory.
    pub weights: Bytes,
    /// What begins every prompt.
    pub bos: Option<TokenId>,
    /// What ends a text.
    pub eos: Option<TokenId>,
}

/// A conversation, as a template is to be given it.
#[derive(Clone, Copy, Debug)]
pub struct Chat<'a> {
    /// What was said.
    pub messages: &'a [ChatMessage],
    /// What may be called.
    pub tools: &'a [Tool],
    /// What the template is told beside that: `enable_thinking`, for example.
    pub told: &'a Map<String, Value>,
}

/// A conversation as a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatPrompt {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// Whether it ends within the model's reasoning.
    pub begins: Begins,
}

/// How a model marks calls and reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    /// Calls.
    pub tools: ToolFormat,
    /// Reasoning, if it knows of any.
    pub reasoning: Option<ReasoningFormat>,
}

impl Families {
    /// Marks that may be special tokens: of reasoning, and of calls where there are tools.
    pub(crate) fn marks(self, tools: bool) -> impl Iterator<Item = &'static str> {
        let calls = if tools { self.tools.marks() } else { &[] };
        self.reasoning.map_or(&[][..], ReasoningFormat::marks).iter().chain(calls).copied()
    }
}

/// A generation under way, as the server sees it.
pub trait Events: Send {
    /// The next event; `None` after the last.
    fn next(&mut self) -> EventFuture<'_>;
}

/// The wait for the next event.
pub type EventFuture<'a> = Pin<Box<dyn Future<Output = Option<GenerationEvent>> + Send + 'a>>;

/// Why messages could not become a prompt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// The template refused the messages or failed; the text is its own.
    #[error("the messages do not fit the model's chat template: {0}")]
    Template(String),
    /// They do not fit.
    #[error(transparent)]
    TooLong(#[from] TooManyTokens),
}

impl Events for Generation {
    fn next(&mut self) -> EventFuture<'_> {
        Box::pin(Generation::next(self))
    }
}
