//! What one answer says: text, reasoning and calls, as its text comes.

use super::calling::Calling;
use super::writer::{Call, Ended, Reading};
use crate::error::ApiError;
use crate::logprobs::{ScoredToken, Scores};
use crate::running::{Running, Step};
use crate::serve::App;
use duet_agents::{CallParser, Piece};
use duet_engine::{PromptToken, Usage};
use duet_types::FinishReason;
use std::sync::Arc;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Text(String),
    Reasoning(String),
    /// Its arguments follow.
    CallBegun(Call),
    /// A part of a call's arguments.
    Arguments {
        index: usize,
        fragment: String,
    },
    CallEnded {
        index: usize,
        whole: Whole,
    },
}

/// Whether a call came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    Yes,
    /// The answer was cut.
    No,
}

/// An answer that is being given. It owns the work: dropping it cancels.
pub(crate) struct Saying {
    app: Arc<App>,
    running: Running,
    /// Absent where all is text.
    parser: Option<Box<CallParser>>,
    calls: Calling,
    /// Absent if no log probabilities were asked for.
    scores: Option<Scores>,
}

/// What came.
#[derive(Debug, Default)]
pub(crate) struct Came {
    /// How far the prompt was read, if that is told.
    pub(crate) reading: Option<Reading>,
    /// The next tokens of the prompt, if their log probabilities are told.
    pub(crate) prompt: Vec<PromptToken>,
    pub(crate) said: Vec<Said>,
    /// Tokens that came with it; absent if no log probabilities were asked for.
    pub(crate) scored: Option<Vec<ScoredToken>>,
    pub(crate) end: Option<(Ended, Usage)>,
}

impl Saying {
    pub(crate) fn new(
        app: Arc<App>,
        running: Running,
        parser: Option<Box<CallParser>>,
        scores: Option<Scores>,
    ) -> Self {
        Self { app, running, parser, calls: Calling::default(), scores }
    }

    /// What comes next. Not to be called again after the end or an error. If this is dropped, nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<Came, ApiError> {
        let (text, end) = match self.running.next().await? {
            Step::Reading { read, cached } => {
                return Ok(Came { reading: Some(Reading { read, cached }), ..Came::default() });
            }
            Step::Prompt(prompt) => return Ok(Came { prompt, ..Came::default() }),
            // Not where an answer is asked for.
            Step::Embedding(_) => (String::new(), None),
            Step::Piece { text, scored } => {
                if let (Some(scores), Some(token)) = (&mut self.scores, scored) {
                    scores.push(token);
                }
                (text, None)
            }
            Step::End { text, reason, usage } => (text, Some((reason, usage))),
        };
        let scored = self.scored(&text, end.map(|(reason, _)| reason));
        let mut said = self.said(text);
        let Some((reason, usage)) = end else { return Ok(Came { said, scored, ..Came::default() }) };
        if let Some(parser) = &mut self.parser {
            let rest = parser.finish();
            rest.into_iter().for_each(|piece| self.piece(piece, &mut said));
        }
        let ended = match reason {
            FinishReason::Length => Ended::Length,
            FinishReason::Stop | FinishReason::Cancelled if self.calls.are_made() => Ended::Calls,
            FinishReason::Stop | FinishReason::Cancelled => Ended::Stop,
        };
        Ok(Came { said, scored, end: Some((ended, usage)), ..Came::default() })
    }

    fn said(&mut self, text: String) -> Vec<Said> {
        match &mut self.parser {
            None if text.is_empty() => Vec::new(),
            None => vec![Said::Text(text)],
            Some(parser) => {
                let (pieces, mut said) = (parser.push(&text), Vec::new());
                pieces.into_iter().for_each(|piece| self.piece(piece, &mut said));
                said
            }
        }
    }

    fn piece(&mut self, piece: Piece, said: &mut Vec<Said>) {
        match piece {
            Piece::Text(text) => said.push(Said::Text(text)),
            Piece::Reasoning(text) => said.push(Said::Reasoning(text)),
            Piece::CallBegun { name, .. } => self.calls.begin(self.app.ids.next("call_"), name, said),
            Piece::Arguments { fragment, .. } => self.calls.goes_on(&fragment, said),
            Piece::CallEnded { .. } => self.calls.end(Whole::Yes, said),
            Piece::CallCut { .. } => self.calls.end(Whole::No, said),
        }
    }

    /// The tokens to report with `text`, if any are to be reported; `end` is given with the last text.
    fn scored(&mut self, text: &str, end: Option<FinishReason>) -> Option<Vec<ScoredToken>> {
        let scores = self.scores.as_mut()?;
        let mut tokens = scores.take_for(&*self.app.backend, text);
        if end == Some(FinishReason::Length) {
            tokens.append(&mut scores.take_rest());
        }
        Some(tokens)
    }
}
