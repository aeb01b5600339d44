//! A model's text to text, reasoning and calls, as it comes.
//!
//! Text goes through character by character, so how it is cut into pushes changes no piece. What may still become a
//! call is held; a call comes at once when it is whole, in three pieces, because before that it may still turn out to
//! be none. What is no call after all is text, exactly as written: the marks, the whitespace around them, all of it.
//! Whoever knows that calls are certain once they begin may have them by pieces ([`CallParser::by_pieces`]).
//!
//! Between calls, and between text and a call, whitespace is dropped. The end of the turn stands for a closing mark
//! that is missing. What is held is at most [`HELD_MAX`] long; what grows beyond that is text.
//!
//! Cost: each character once, and each call parsed a few times, with at most [`SPACES_MAX`] repetitions at its end.

mod balance;
mod called;
mod glm;
mod pythonic;
mod read;
mod telling;
mod written;
mod xml;

use crate::format::{TOOL_CALL_END, ToolFormat};
use crate::grammar::Certain;
use crate::part::Part;
use crate::reasoning::{Begins, ReasoningFormat};
use crate::split::ReasoningSplit;
use crate::tool::Tool;
use balance::Balance;
use called::{Called, Reading};
use std::sync::Arc;
use telling::Telling;

/// What a part of a model's text means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// What the turn says.
    Text(String),
    /// What the model thought before.
    Reasoning(String),
    /// A call begins.
    CallBegun {
        /// Its place among the turn's calls, from 0.
        index: u32,
        /// The tool's name.
        name: String,
    },
    /// The next part of a call's arguments.
    Arguments {
        /// The call.
        index: u32,
        /// A part of a JSON object; all of them together are a whole one.
        fragment: String,
    },
    /// A call is whole.
    CallEnded {
        /// The call.
        index: u32,
    },
    /// The turn was cut within a call that came by pieces: its arguments are not whole.
    CallCut {
        /// The call.
        index: u32,
    },
}

/// Reads one turn of a model as it comes.
#[derive(Clone, Debug)]
pub struct CallParser {
    format: ToolFormat,
    /// Without any, no text is a call.
    tools: Arc<[Tool]>,
    /// Which calls come by pieces.
    certain: Certain,
    split: ReasoningSplit,
    calls: u32,
    place: Place,
    state: State,
}

/// What came before, which says whether a call may begin without a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Beginning,
    AfterText,
    AfterCall,
}

#[derive(Clone, Debug)]
enum State {
    /// Whitespace, and what may become a mark: dropped if a call follows.
    Text { spaces: String, mark: String },
    /// In what may be a call, or is one of which some was told. `held` is all of it, of which `before` bytes are whitespace
    /// and the mark.
    Call { held: String, before: usize, balance: Balance, telling: Option<Telling> },
}

impl State {
    fn text() -> Self {
        Self::Text { spaces: String::new(), mark: String::new() }
    }
}

impl CallParser {
    /// A parser of a new turn of a model that was told these tools. Calls with a mark may name any tool, so that a
    /// client can say that it has none such; calls that could be text must name one of these.
    #[must_use]
    pub fn new(format: ToolFormat, tools: &[Tool], reasoning: Option<ReasoningFormat>, begins: Begins) -> Self {
        Self {
            format,
            tools: tools.into(),
            certain: Certain::None,
            split: ReasoningSplit::new(reasoning, begins),
            calls: 0,
            place: Place::Beginning,
            state: State::text(),
        }
    }

    /// Calls that are certain once they have begun come by pieces, as they are written.
    #[must_use]
    pub fn by_pieces(self, certain: Certain) -> Self {
        Self { certain, ..self }
    }

    /// The pieces that `text` completes.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        let parts = self.split.push(text);
        let mut pieces = Vec::new();
        self.take(parts, &mut pieces);
        pieces
    }

    /// The rest, when nothing more comes.
    pub fn finish(&mut self) -> Vec<Piece> {
        let parts = self.split.finish();
        let mut pieces = Vec::new();
        self.take(parts, &mut pieces);
        match std::mem::replace(&mut self.state, State::text()) {
            State::Text { spaces, mark } => self.say(&spaces, &mark, &mut pieces),
            State::Call { held, before, telling, .. } => {
                match (read::at_end(as_read(self.format, &held, before), &held[before..], &self.tools), telling) {
                    (Reading::Calls(calls), telling) => self.call(calls, telling, &mut pieces),
                    (_, Some(Telling { index, .. })) => pieces.push(Piece::CallCut { index }),
                    (_, None) => emit(&mut pieces, Piece::Text(held)),
                }
            }
        }
        pieces
    }

    /// How many calls there were.
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.calls
    }

    fn take(&mut self, parts: Vec<Part>, pieces: &mut Vec<Piece>) {
        for part in parts {
            match part {
                Part::Reasoning(text) => emit(pieces, Piece::Reasoning(text)),
                Part::Call { name, arguments, written } => match read::told(name, &arguments) {
                    Some(called) if !self.tools.is_empty() => self.call(vec![called], None, pieces),
                    _ => emit(pieces, Piece::Text(written)),
                },
                Part::Text(text) if self.tools.is_empty() => emit(pieces, Piece::Text(text)),
                Part::Text(text) => text.chars().for_each(|c| self.step(c, pieces)),
            }
        }
    }

    fn step(&mut self, c: char, pieces: &mut Vec<Piece>) {
        match &mut self.state {
            State::Text { spaces, mark } if mark.is_empty() && self.place.holds(self.format, spaces, c) => {
                spaces.push(c)
            }
            State::Text { mark, .. } => {
                mark.push(c);
                self.step_mark(pieces);
            }
            State::Call { .. } => self.step_call(c, pieces),
        }
    }

    /// The next character of what may be a call.
    fn step_call(&mut self, c: char, pieces: &mut Vec<Piece>) {
        let State::Call { held, before, balance, telling } = &mut self.state else { return };
        held.push(c);
        balance.push(c);
        if telling.is_none()
            && c == '{'
            && let Some(name) = telling::begun(self.format, self.certain, (held, *before), &self.tools)
        {
            let index = self.calls;
            self.calls += 1;
            pieces.push(Piece::CallBegun { index, name: name.to_owned() });
            *telling = Some(Telling::new(index));
        }
        if let Some(telling) = telling
            && let Some(c) = telling.push(c)
        {
            emit(pieces, Piece::Arguments { index: telling.index, fragment: c.into() });
        }
        let reading = if held.len() > HELD_MAX {
            Reading::Broken
        } else if is_open(self.format, held, balance) {
            read::unlikely(as_read(self.format, held, *before), &held[*before..], &self.tools)
        } else {
            read::read(as_read(self.format, held, *before), &held[*before..], &self.tools)
        };
        match reading {
            Reading::More => {}
            Reading::Calls(calls) => {
                let telling = telling.take();
                self.state = State::text();
                self.call(calls, telling, pieces);
            }
            Reading::Broken => self.give_up(c, pieces),
        }
    }

    /// The mark has grown: it is one, may become one, or its first characters are text.
    fn step_mark(&mut self, pieces: &mut Vec<Piece>) {
        while let State::Text { spaces, mark } = &mut self.state {
            let Some(first) = mark.chars().next() else { return };
            let marked = self.format.opening().is_some_and(|opening| opening == mark.as_str());
            if marked || (self.place != Place::AfterText && self.format.unmarked() == Some(first)) {
                let before = spaces.len() + if marked { mark.len() } else { 0 };
                let held = std::mem::take(spaces) + mark.as_str();
                let balance = Balance::of(self.format, &held[before..]);
                self.state = State::Call { held, before, balance, telling: None };
                return;
            }
            if self.format.opening().is_some_and(|opening| opening.starts_with(mark.as_str())) {
                return;
            }
            mark.remove(0);
            if first.is_whitespace() {
                spaces.push(first);
            } else {
                let spaces = std::mem::take(spaces);
                self.say(&spaces, first.encode_utf8(&mut [0; 4]), pieces);
            }
        }
    }

    /// What was held is no call. `last` showed that, and may itself begin one. What was told as a call stays one.
    fn give_up(&mut self, last: char, pieces: &mut Vec<Piece>) {
        if let State::Call { mut held, telling, .. } = std::mem::replace(&mut self.state, State::text()) {
            held.truncate(held.len() - last.len_utf8());
            self.place = Place::AfterText;
            emit(pieces, telling.map_or(Piece::Text(held), |Telling { index, .. }| Piece::CallCut { index }));
            self.step(last, pieces);
        }
    }

    fn say(&mut self, spaces: &str, text: &str, pieces: &mut Vec<Piece>) {
        let spaces = if self.place == Place::AfterCall { spaces.trim_start() } else { spaces };
        if !text.is_empty() {
            self.place = Place::AfterText;
        }
        emit(pieces, Piece::Text(spaces.to_owned() + text));
    }

    /// Calls that are whole; of the first one some may have been told.
    fn call(&mut self, calls: Vec<Called>, mut told: Option<Telling>, pieces: &mut Vec<Piece>) {
        for Called { name, arguments } in calls {
            let index = match told.take() {
                Some(Telling { index, .. }) => index,
                None => {
                    let index = self.calls;
                    self.calls += 1;
                    pieces.push(Piece::CallBegun { index, name });
                    pieces.push(Piece::Arguments { index, fragment: arguments });
                    index
                }
            };
            pieces.push(Piece::CallEnded { index });
        }
        self.place = Place::AfterCall;
    }
}

impl Place {
    /// Whether `c` after these spaces may still stand between a call and what is around it.
    fn holds(self, format: ToolFormat, spaces: &str, c: char) -> bool {
        // Llama separates calls so.
        let separates = c == ';' && self == Self::AfterCall && format == ToolFormat::LlamaJson && !spaces.contains(';');
        c.is_whitespace() || separates
    }
}

/// How what is held is read: without its family's mark it could be text, and is a call only if it names a tool.
fn as_read(format: ToolFormat, held: &str, before: usize) -> ToolFormat {
    let is_marked = !held[..before].trim().is_empty();
    match format {
        ToolFormat::Hermes | ToolFormat::Generic if !is_marked => ToolFormat::LlamaJson,
        format => format,
    }
}

/// Whether what is held cannot be whole.
fn is_open(format: ToolFormat, held: &str, balance: &Balance) -> bool {
    match format {
        // What is between its marks is text, in which brackets need not close.
        ToolFormat::QwenXml | ToolFormat::GlmXml => !held.ends_with(TOOL_CALL_END),
        _ => balance.is_open(),
    }
}

/// Adds a piece, to the last one where both are text, both reasoning, or both arguments of a call.
fn emit(pieces: &mut Vec<Piece>, piece: Piece) {
    match (pieces.last_mut(), piece) {
        (Some(Piece::Text(last)), Piece::Text(text)) | (Some(Piece::Reasoning(last)), Piece::Reasoning(text)) => {
            last.push_str(&text);
        }
        (Some(Piece::Arguments { index: of, fragment: last }), Piece::Arguments { index, fragment })
            if *of == index =>
        {
            last.push_str(&fragment);
        }
        (_, Piece::Text(text)) if text.is_empty() => {}
        (_, piece) => pieces.push(piece),
    }
}

/// Bytes of one call. A file that is written by a call fits; a model in a loop does not fill the memory.
const HELD_MAX: usize = 1 << 20;

/// Whitespace in a row around a call's parts. Models write one or two; more would be parsed over and over.
const SPACES_MAX: usize = 64;

#[cfg(test)]
mod tests;
