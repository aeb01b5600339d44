//! Turns in channels, as gpt-oss writes them (OpenAI's harmony): several messages, each with a header that says what it is.
//!
//! A header is `<|start|>assistant`, the channel and whom the message is for, up to `<|message|>`; of a turn's first one the
//! prompt has the beginning. `analysis` is reasoning, what is for a function is a call of it, and everything else is said.
//! Where no header begins, text is what the model says. Text goes through character by character.

use crate::part::{Part, Place, emit};

pub(crate) const CHANNEL: &str = "<|channel|>";
pub(crate) const MESSAGE: &str = "<|message|>";
pub(crate) const START: &str = "<|start|>";
pub(crate) const END: &str = "<|end|>";
/// Functions of a request are in this namespace.
pub(crate) const FUNCTIONS: &str = "functions.";

/// Marks that end a message; the last one begins the next one's header.
const ENDS: [&str; 4] = [END, "<|call|>", "<|return|>", START];

/// Whom a message is for.
const RECIPIENT: &str = "to=";

/// Bytes of a header. What is longer is none.
const HEADER_MAX: usize = 512;

/// A turn on its way.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    state: State,
    /// Whether a message has ended.
    is_behind: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// What came of a header.
    Header(String),
    /// In a message; `mark` may become the mark that ends it.
    Message { kind: Kind, mark: String },
}

#[derive(Clone, Debug)]
enum Kind {
    Reasoning,
    Said,
    /// A call of `name`. `written` is the header and all that follows, of which `arguments` begins at a byte.
    Call {
        name: String,
        written: String,
        arguments: usize,
    },
}

impl Channels {
    pub(crate) fn outside() -> Self {
        Self { state: State::Header(String::new()), is_behind: false }
    }

    pub(crate) fn inside() -> Self {
        Self { state: State::Message { kind: Kind::Reasoning, mark: String::new() }, is_behind: false }
    }

    pub(crate) fn place(&self) -> Place {
        match &self.state {
            State::Header(_) if !self.is_behind => Place::Beginning,
            State::Message { kind: Kind::Reasoning, mark } if mark.is_empty() => Place::Reasoning,
            State::Message { kind: Kind::Reasoning, .. } | State::Header(_) => Place::Closing,
            State::Message { .. } => Place::Answer,
        }
    }

    pub(crate) fn step(&mut self, c: char, parts: &mut Vec<Part>) {
        match &mut self.state {
            State::Header(header) => {
                header.push(c);
                if header.ends_with(MESSAGE) {
                    self.state = State::Message { kind: kind_of(header), mark: String::new() };
                } else if !may_be_header(header) {
                    emit(parts, Part::Text(std::mem::take(header)));
                    self.state = State::Message { kind: Kind::Said, mark: String::new() };
                }
            }
            State::Message { kind, mark } => {
                mark.push(c);
                if !ENDS.contains(&mark.as_str()) {
                    return kind.take(mark, parts);
                }
                let begun = if mark == START { START } else { "" };
                let ended = std::mem::replace(&mut self.state, State::Header(begun.to_owned()));
                self.is_behind = true;
                ended.end(parts);
            }
        }
    }

    /// What was held, when nothing more comes.
    pub(crate) fn finish(&mut self, parts: &mut Vec<Part>) {
        match std::mem::replace(&mut self.state, State::Header(String::new())) {
            // A header that was begun says nothing.
            State::Header(header) if header.trim_start().starts_with('<') => {}
            State::Header(header) => emit(parts, Part::Text(header)),
            State::Message { mut kind, mark } => {
                kind.say(&mark, parts);
                State::Message { kind, mark: String::new() }.end(parts);
            }
        }
    }
}

impl State {
    /// The end of a message.
    fn end(self, parts: &mut Vec<Part>) {
        if let Self::Message { kind: Kind::Call { name, written, arguments }, .. } = self {
            parts.push(Part::Call { name, arguments: written[arguments..].to_owned(), written });
        }
    }
}

impl Kind {
    /// Takes what cannot become a mark out of `mark`.
    fn take(&mut self, mark: &mut String, parts: &mut Vec<Part>) {
        let mut sure = String::new();
        while !ENDS.iter().any(|end| end.starts_with(mark.as_str())) {
            sure.push(mark.remove(0));
        }
        self.say(&sure, parts);
    }

    fn say(&mut self, text: &str, parts: &mut Vec<Part>) {
        match self {
            Self::Reasoning => emit(parts, Part::Reasoning(text.to_owned())),
            Self::Said => emit(parts, Part::Text(text.to_owned())),
            Self::Call { written, .. } => written.push_str(text),
        }
    }
}

/// What the message behind a whole header is.
fn kind_of(header: &str) -> Kind {
    let channel = header.split_once(CHANNEL).map_or("", |(_, channel)| channel);
    let is_end = |c: char| c.is_whitespace() || c == '<';
    let recipient = header.split_once(RECIPIENT).map(|(_, to)| to.split(is_end).next().unwrap_or_default());
    match recipient.filter(|to| !to.is_empty()) {
        Some(to) => {
            let name = to.strip_prefix(FUNCTIONS).unwrap_or(to).to_owned();
            Kind::Call { name, written: header.to_owned(), arguments: header.len() }
        }
        None if channel.starts_with("analysis") => Kind::Reasoning,
        None => Kind::Said,
    }
}

/// Whether this may become a header.
fn may_be_header(text: &str) -> bool {
    let begun = text.trim_start();
    let may_begin = |with: &str| with.starts_with(begun) || begun.starts_with(with);
    text.len() <= HEADER_MAX && [CHANNEL, START, RECIPIENT].into_iter().any(may_begin)
}
