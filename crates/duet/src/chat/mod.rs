//! A conversation in the terminal, or over a pipe.
//!
//! What the model says goes to stdout, all else to stderr. At a terminal an error is told and the chat goes on; in a
//! pipe nobody would see it, so it ends the program.

mod answer;
mod composer;
mod conversation;
mod input;
mod slash;

use crate::failure::{BadInput, StdoutClosed, print, tell};
use crate::logging::colors;
use crate::progress::eprintln_quiet;
use crate::{prompt, speed};
use answer::{Answer, Interrupt};
use composer::{Composed, Composer};
use conversation::Conversation;
use duet_engine::{Engine, GenerateRequest, SamplingParams, StopConditions, TaskName};
use duet_types::{Class, FinishReason, TokenId};
use input::{Input, Line};
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

impl Chat {
    /// A chat with the model that `engine` runs.
    pub(crate) fn new(
        engine: Engine,
        system: Option<String>,
        sampling: SamplingParams,
        stop: StopConditions,
    ) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let conversation = Conversation::new(system);
        Ok(Self { engine, sampling, stop, conversation, input: Input::open()?, runtime })
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
            Composed::Message(question) => self.ask(question)?,
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
            Slash::Retry => match self.conversation.take_back() {
                Some(question) => self.ask(question)?,
                None => self.remark("Nothing was asked yet."),
            },
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

    fn ask(&mut self, question: String) -> anyhow::Result<()> {
        self.conversation.ask(question);
        match self.answer() {
            Ok(answer) => {
                self.finish_line(&answer)?;
                self.conversation.answer(answer.text);
                Ok(())
            }
            Err(error) => {
                // What could not be answered would only stand in the way of the next question.
                self.conversation.answer(String::new());
                Err(error)
            }
        }
    }

    fn answer(&mut self) -> anyhow::Result<Answer> {
        let request = GenerateRequest {
            prompt: self.fitting_prompt()?,
            sampling: self.sampling.clone(),
            stop: self.stop.clone(),
            class: Class::Reactive,
            task: self.conversation.system().map(TaskName::of_instructions).unwrap_or_default(),
            ..GenerateRequest::default()
        };
        let interrupt = if self.input.is_terminal() { Interrupt::Answer } else { Interrupt::Program };
        let generation = self.engine.submit(request)?;
        self.runtime.block_on(answer::stream(generation, interrupt, print))
    }

    /// The conversation as tokens, its oldest turns forgotten until there is room for an answer. Nothing is forgotten
    /// for a question that does not fit even alone.
    fn fitting_prompt(&mut self) -> anyhow::Result<Vec<TokenId>> {
        let context = self.engine.context().as_usize();
        let wanted = self.stop.max_tokens.map_or(ANSWER_ROOM, |max| max.as_usize().min(ANSWER_ROOM));
        let room = context.saturating_sub(wanted.min(context / 4));
        let mut shorter = self.conversation.clone();
        let mut forgotten = 0;
        loop {
            let tokens = prompt::encode_chat(self.engine.model(), &shorter.messages())?;
            if tokens.len() > room && shorter.forget_oldest() {
                forgotten += 1;
                continue;
            }
            // A prompt that is too long is for the engine to refuse: it knows the exact limit.
            if forgotten > 0 && tokens.len() <= context {
                self.conversation = shorter;
                self.remark(&format!("The context is full; the oldest {forgotten} turns are forgotten."));
            }
            return Ok(tokens);
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
