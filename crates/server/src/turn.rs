//! What the model's turn is to be: the conversation before it, and what it is held to.

use crate::answer_form::AnswerForm;
use crate::backend::{Backend, Chat, ChatPrompt, PromptError};
use crate::error::ApiError;
use crate::messages::ChatMessage;
use crate::thinking::Reasoning;
use crate::tools::Tools;
use duet_agents::{Begins, CallParser, Calls, Certain, Refused, ResponseFormat, Thinking, ToolChoice, Turn};
use duet_engine::{Constraint, ThoughtBound};
use duet_types::{TokenId, Tokens};

/// A conversation, and the turn that is asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) messages: Vec<ChatMessage>,
    pub(crate) tools: Tools,
    pub(crate) form: AnswerForm,
    pub(crate) reasoning: Reasoning,
    pub(crate) calls: CallsCome,
}

/// How calls come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallsCome {
    /// When they are whole; one that is cut is text.
    #[default]
    Whole,
    /// As they are written, where they are certain to be calls.
    ByPieces,
}

/// A prompt, and what to make of what comes.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) prompt: Vec<TokenId>,
    /// Absent where every answer is right.
    pub(crate) constraint: Option<Constraint>,
    /// Absent where the model may reason for as long as it likes.
    pub(crate) thought: Option<ThoughtBound>,
    /// Absent where every answer is text.
    pub(crate) parser: Option<Box<CallParser>>,
    /// Special tokens whose text the parser is to see.
    pub(crate) marks: Vec<TokenId>,
}

impl Prepared {
    /// A text to go on from.
    pub(crate) fn text(prompt: Vec<TokenId>, constraint: Option<Constraint>) -> Self {
        Self { prompt, constraint, thought: None, parser: None, marks: Vec::new() }
    }
}

impl Asked {
    /// The prompt alone. Takes milliseconds.
    pub(crate) fn encode(
        &self,
        backend: &dyn Backend,
        most: Tokens,
        prompt: &'static str,
    ) -> Result<ChatPrompt, ApiError> {
        let chat = Chat { messages: &self.messages, tools: &self.tools.tools, told: &self.reasoning.told };
        backend.encode_chat(&chat, most).map_err(|error| match error {
            PromptError::TooLong(_) => ApiError::ContextExceeded { prompt, context: backend.context() },
            error => ApiError::Prompt(error),
        })
    }

    /// The prompt, and what the answer is held to. Takes milliseconds.
    pub(crate) fn prepare(
        &self,
        backend: &dyn Backend,
        most: Tokens,
        prompt: &'static str,
    ) -> Result<Prepared, ApiError> {
        let ChatPrompt { tokens, begins } = self.encode(backend, most, prompt)?;
        let families = backend.families();
        let thinking = families.reasoning.map_or(Thinking::Off, |format| Thinking::On(format, begins));
        let Tools { tools, choice, parallel } = &self.tools;
        let calls = Calls { format: families.tools, tools, choice, parallel: *parallel };
        let calls = (!tools.is_empty() || *choice != ToolChoice::Auto).then_some(calls);
        let turn = Turn { calls, answer: &self.form.format, thinking };
        let constraint = backend.constrain(&turn).map_err(|error| refused(error, &self.form))?;
        let thought = self.reasoning.max.zip(families.reasoning).map(|(max, format)| {
            let closing = backend.encode_mark(format.closing());
            ThoughtBound { format, begins, max, closing }
        });
        let marks = families.marks(!tools.is_empty());
        // Without anything that holds the model to it, no call is certain.
        let pieces = self.calls == CallsCome::ByPieces && constraint.is_some();
        let certain = if pieces { turn.certain() } else { Certain::None };
        let parser = CallParser::new(families.tools, tools, families.reasoning, begins).by_pieces(certain);
        let parses = !tools.is_empty() || families.reasoning.is_some() || begins == Begins::Inside;
        Ok(Prepared {
            prompt: tokens,
            constraint,
            thought,
            parser: parses.then(|| Box::new(parser)),
            marks: marks.filter_map(|mark| backend.special(mark)).collect(),
        })
    }
}

/// What the answer to a text is held to.
pub(crate) fn constraint_of(backend: &dyn Backend, form: &AnswerForm) -> Result<Option<Constraint>, ApiError> {
    let turn = Turn { calls: None, answer: &form.format, thinking: Thinking::Off };
    backend.constrain(&turn).map_err(|error| refused(error, form))
}

/// The field that a refusal is about.
fn refused(error: Refused, form: &AnswerForm) -> ApiError {
    let of_answer = |of: &String| of == "the answer";
    let param = match &error {
        Refused::SchemaSize { of, .. }
        | Refused::Schemas { of, .. }
        | Refused::Keyword { of, .. }
        | Refused::Reference { of, .. }
        | Refused::Schema { of, .. }
            if of_answer(of) =>
        {
            form.field
        }
        Refused::Grammar { .. } if form.format != ResponseFormat::Text => form.field,
        Refused::UnknownTool { .. } | Refused::NoTools => "tool_choice",
        _ => "tools",
    };
    ApiError::Refused { param, error }
}
