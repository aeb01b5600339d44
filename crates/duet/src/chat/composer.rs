//! Lines become messages: one each, unless a line ends in a backslash or `"""` opens a block.

use super::slash::{Slash, SlashError};

/// Collects the lines of one message.
#[derive(Debug, Default)]
pub(crate) struct Composer {
    lines: Vec<String>,
    open: Option<Open>,
}

/// What a line led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Composed {
    /// Nothing was said.
    Nothing,
    /// The message goes on.
    More,
    /// A whole message.
    Message(String),
    /// A command to the program.
    Command(Result<Slash, SlashError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Backslash,
    Quotes,
}

const QUOTES: &str = "\"\"\"";

impl Composer {
    /// Takes one line, without its newline.
    pub(crate) fn push(&mut self, line: &str) -> Composed {
        match self.open {
            Some(Open::Quotes) => self.quoted(line),
            Some(Open::Backslash) => self.continued(line),
            None => match line.trim_start() {
                "" => Composed::Nothing,
                start if start.starts_with(QUOTES) => self.quoted(&start[QUOTES.len()..]),
                // A doubled slash is a message that begins with one.
                start if start.starts_with("//") => self.continued(&start[1..]),
                start if start.starts_with('/') => Composed::Command(Slash::parse(start)),
                _ => self.continued(line),
            },
        }
    }

    /// Whether a message has begun.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Ends the input: what was begun is a message, if anything was.
    pub(crate) fn finish(&mut self) -> Option<String> {
        let message = self.take();
        (!message.trim().is_empty()).then_some(message)
    }

    /// Forgets what was begun.
    pub(crate) fn clear(&mut self) {
        self.take();
    }

    fn quoted(&mut self, line: &str) -> Composed {
        self.open = Some(Open::Quotes);
        let Some(last) = line.trim_end().strip_suffix(QUOTES) else {
            // Nothing beside the opening quotes: the block begins on the next line.
            if !(self.lines.is_empty() && line.trim().is_empty()) {
                self.lines.push(line.to_owned());
            }
            return Composed::More;
        };
        if !last.trim().is_empty() {
            self.lines.push(last.to_owned());
        }
        self.finish().map_or(Composed::Nothing, Composed::Message)
    }

    fn continued(&mut self, line: &str) -> Composed {
        if let Some(line) = line.strip_suffix('\\') {
            self.open = Some(Open::Backslash);
            self.lines.push(line.to_owned());
            return Composed::More;
        }
        self.lines.push(line.to_owned());
        self.finish().map_or(Composed::Nothing, Composed::Message)
    }

    fn take(&mut self) -> String {
        self.open = None;
        std::mem::take(&mut self.lines).join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each line leads to; `Nothing` and `More` are `.` and `+`.
    fn compose(lines: &[&str]) -> Vec<String> {
        let mut composer = Composer::default();
        let mut shown: Vec<_> = lines
            .iter()
            .map(|line| match composer.push(line) {
                Composed::Nothing => ".".to_owned(),
                Composed::More => "+".to_owned(),
                Composed::Message(message) => message,
                Composed::Command(command) => format!("{command:?}"),
            })
            .collect();
        shown.extend(composer.finish().map(|rest| format!("end: {rest}")));
        shown
    }

    #[test]
    fn a_line_is_a_message() {
        assert_eq!(compose(&["", "  ", " hi "]), [".", ".", " hi "]);
    }

    #[test]
    fn a_backslash_continues() {
        assert_eq!(compose(&["one\\", "two\\", "three", "next"]), ["+", "+", "one\ntwo\nthree", "next"]);
    }

    #[test]
    fn quotes_hold_empty_lines_and_slashes() {
        assert_eq!(compose(&["\"\"\"", "a", "", "/exit", "\"\"\""]), ["+", "+", "+", "+", "a\n\n/exit"]);
        assert_eq!(compose(&["\"\"\"a", "b\"\"\"  "]), ["+", "a\nb"]);
        assert_eq!(compose(&["\"\"\"one line\"\"\"", "\"\"\"\"\"\""]), ["one line", "."]);
    }

    #[test]
    fn slashes_are_commands_unless_doubled() {
        assert_eq!(compose(&["/exit", "//etc is a path"]), ["Ok(Exit)", "/etc is a path"]);
    }

    #[test]
    fn the_end_of_input_ends_the_message() {
        assert_eq!(compose(&["one\\"]), ["+", "end: one"]);
        assert_eq!(compose(&["\"\"\"", "one"]), ["+", "+", "end: one"]);
        assert_eq!(compose(&["\\"]), ["+"]);
    }
}
