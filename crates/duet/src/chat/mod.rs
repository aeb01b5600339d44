//! A conversation in the terminal, or over a pipe.
//!
//! What the model says goes to stdout, all else to stderr. At a terminal an error is told and the chat goes on; in a
//! pipe nobody would see it, so it ends the program.

mod answer;
mod composer;
mod conversation;
mod input;
mod slash;

use crate::bad_input::BadInput;
use crate::failure::{StdoutClosed, print, tell};
use crate::logging::colors;
use crate::progress::eprintln_quiet;
use crate::prompt::{self, Prompt};
use crate::speed;
use crate::spoken::Spoken;
use answer::{Answer, Interrupt};
use composer::{Composed, Composer};
use conversation::Conversation;
use duet_engine::{Engine, GenerateRequest, SamplingParams, StopConditions, TaskName};
use duet_types::{Class, FinishReason};
use input::{Input, Line};
pub(crate) use input::{Lines, forget_lines};
use slash::Slash;
use tokio::runtime::Runtime;

/// A running chat.
pub(crate) struct Chat {
    engine: Engine,
    sampling: SamplingParams,
    stop: StopConditions,
    conversation: Conversation,
    input: Input,
    runtime: Runtime,
}

/// Whether the chat goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Continue,
    Leave,
}

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Something,
    Nothing,
}

impl Chat {
    /// A chat with the model that `engine` runs.
    pub(crate) fn new(
        engine: Engine,
        system: Option<String>,
        sampling: SamplingParams,
        stop: StopConditions,
        lines: Lines,
    ) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let conversation = Conversation::new(system);
        Ok(Self { engine, sampling, stop, conversation, input: Input::open(lines)?, runtime })
    }

    /// Talks until the person leaves or the input ends.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        if self.input.is_terminal() {
            let name = self.engine.model().config().name.clone();
            self.remark(&format!("{name}. /help shows commands, Ctrl-D leaves."));
        }
        let mut composer = Composer::default();
        loop {
            let prompt = if composer.is_open() { "... " } else { ">>> " };
            let next = match self.input.read(prompt)? {
                Line::Text(line) => self.act(composer.push(&line)),
                Line::Interrupted if composer.is_open() => {
                    composer.clear();
                    Ok(Next::Continue)
                }
                Line::Interrupted => {
                    self.remark("Ctrl-D or /exit leaves.");
                    Ok(Next::Continue)
                }
                Line::End => {
                    let rest = composer.finish().map_or(Composed::Nothing, Composed::Message);
                    self.act(rest).map(|_| Next::Leave)
                }
            };
            match next {
                Ok(Next::Continue) => {}
                Ok(Next::Leave) => return Ok(()),
                Err(error) if self.input.is_terminal() && !error.is::<StdoutClosed>() => {
                    tell(&error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn act(&mut self, composed: Composed) -> anyhow::Result<Next> {
        match composed {
            Composed::Nothing | Composed::More => {}
            Composed::Message(question) => self.ask(question).map(|_| ())?,
            Composed::Command(command) => {
                return self.obey(command.map_err(|error| BadInput(error.to_string()))?);
            }
        }
        Ok(Next::Continue)
    }

    fn obey(&mut self, command: Slash) -> anyhow::Result<Next> {
        match command {
            Slash::Help => eprintln_quiet(slash::HELP),
            Slash::Reset => {
                self.conversation.reset();
                self.remark("A new conversation.");
            }
            Slash::System(None) => match self.conversation.system() {
                Some(system) => eprintln_quiet(system),
                None => self.remark("No instructions; /system TEXT sets them."),
            },
            Slash::System(system) => {
                self.conversation = Conversation::new(system);
                self.remark("A new conversation with these instructions.");
            }
            Slash::Retry => self.retry()?,
            Slash::Save(path) => {
                self.conversation.save(&path).map_err(|error| {
                    let error = match error.kind() {
                        std::io::ErrorKind::AlreadyExists => "the file exists; choose another name".to_owned(),
                        _ => error.to_string(),
                    };
                    BadInput(format!("{}: {error}", path.display()))
                })?;
                self.remark(&format!("Saved to {}.", path.display()));
            }
            Slash::Exit => return Ok(Next::Leave),
        }
        Ok(Next::Continue)
    }

    fn retry(&mut self) -> anyhow::Result<()> {
        let before = self.conversation.clone();
        let Some(question) = self.conversation.take_back() else {
            self.remark("Nothing was asked yet.");
            return Ok(());
        };
        let said = self.ask(question);
        // The answer that there was is better than none.
        if !matches!(said, Ok(Said::Something)) {
            self.conversation = before;
        }
        said.map(|_| ())
    }

    fn ask(&mut self, question: String) -> anyhow::Result<Said> {
        self.conversation.ask(question);
        match self.answer() {
            Ok(answer) => {
                self.finish_line(&answer)?;
                let said = if answer.text.is_empty() { Said::Nothing } else { Said::Something };
                self.conversation.answer(answer.text);
                Ok(said)
            }
            Err(error) => {
                // What could not be answered would only stand in the way of the next question.
                self.conversation.answer(String::new());
                Err(error)
            }
        }
    }

    fn answer(&mut self) -> anyhow::Result<Answer> {
        let Prompt { tokens, marks, split } = self.fitting_prompt()?;
        let request = GenerateRequest {
            prompt: tokens,
            marks,
            sampling: self.sampling.clone(),
            stop: self.stop.clone(),
            class: Class::Reactive,
            task: self.conversation.system().map(TaskName::of_instructions).unwrap_or_default(),
            ..GenerateRequest::default()
        };
        let interrupt = if self.input.is_terminal() { Interrupt::Answer } else { Interrupt::Program };
        let generation = self.engine.submit(request)?;
        self.runtime.block_on(answer::stream(generation, interrupt, Spoken::new(split)))
    }

    /// The conversation as tokens, its oldest turns forgotten until there is room for an answer. Nothing is forgotten
    /// for a question that does not fit even alone.
    fn fitting_prompt(&mut self) -> anyhow::Result<Prompt> {
        let context = self.engine.context().as_usize();
        let wanted = self.stop.max_tokens.map_or(ANSWER_ROOM, |max| max.as_usize().min(ANSWER_ROOM));
        let room = context.saturating_sub(wanted.min(context / 4));
        let mut shorter = self.conversation.clone();
        let mut forgotten = 0;
        loop {
            let prompt = prompt::encode_chat(self.engine.model(), &shorter.messages())?;
            if prompt.tokens.len() > room && shorter.forget_oldest() {
                forgotten += 1;
                continue;
            }
            // A prompt that is too long is for the engine to refuse: it knows the exact limit.
            if forgotten > 0 && prompt.tokens.len() <= context {
                self.conversation = shorter;
                self.remark(&format!("The context is full; the oldest {forgotten} turns are forgotten."));
            }
            return Ok(prompt);
        }
    }

    fn finish_line(&self, answer: &Answer) -> anyhow::Result<()> {
        if !answer.text.ends_with('\n') {
            print("\n")?;
        }
        if self.input.is_terminal() {
            let ended = match answer.reason {
                FinishReason::Stop => "",
                FinishReason::Length => "; cut off at the limit",
                FinishReason::Cancelled => "; stopped",
            };
            self.remark(&format!("{}{ended}", speed::line(&answer.usage)));
        }
        Ok(())
    }

    /// Something the program says, dim so that it is not taken for the model's words.
    fn remark(&self, text: &str) {
        if colors() {
            eprintln_quiet(&format!("\x1b[2m{text}\x1b[0m"));
        } else {
            eprintln_quiet(text);
        }
    }
}

/// An answer of this many tokens should still fit when a conversation is cut to the context.
const ANSWER_ROOM: usize = 512;
