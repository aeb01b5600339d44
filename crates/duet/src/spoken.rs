//! What a model says, shown as it comes: the answer on stdout and, where a person watches, what it thinks before that on
//! stderr.
//!
//! **Invariant:** stdout gets the answer and nothing else.

use crate::failure::print;
use crate::logging::colors;
use duet_agents::{Part, ReasoningSplit};
use std::io::{IsTerminal, Write, stderr};

/// A turn of the model's.
#[derive(Debug)]
pub(crate) struct Spoken {
    split: ReasoningSplit,
    answer: String,
    thoughts: Thoughts,
}

/// Whether thoughts were shown, and what follows stands on a new line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thoughts {
    None,
    Open,
    Closed,
}

impl Spoken {
    /// A turn that begins.
    pub(crate) fn new(split: ReasoningSplit) -> Self {
        Self { split, answer: String::new(), thoughts: Thoughts::None }
    }

    /// Shows what `text` adds.
    pub(crate) fn say(&mut self, text: &str) -> anyhow::Result<()> {
        let parts = self.split.push(text);
        self.show(parts)
    }

    /// Shows what was held: nothing more comes.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        let parts = self.split.finish();
        self.show(parts)?;
        self.end_thoughts();
        Ok(())
    }

    /// The answer so far.
    pub(crate) fn answer(&self) -> &str {
        &self.answer
    }

    /// Whether the model thought and did not get to an answer.
    pub(crate) fn is_thought_alone(&self) -> bool {
        self.thoughts != Thoughts::None && self.answer.is_empty()
    }

    fn show(&mut self, parts: Vec<Part>) -> anyhow::Result<()> {
        for part in parts {
            match part {
                // Nobody offered a tool, so what looks like a call is what was said.
                Part::Text(text) | Part::Call { written: text, .. } => {
                    self.end_thoughts();
                    self.answer += &text;
                    print(&text)?;
                }
                Part::Reasoning(text) => self.think(&text),
            }
        }
        Ok(())
    }

    fn think(&mut self, text: &str) {
        self.thoughts = Thoughts::Open;
        if stderr().is_terminal() {
            let (begin, end) = if colors() { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
            // A closed stderr is nothing that an answer should fail with.
            let _ = write!(stderr(), "{begin}{text}{end}").and_then(|()| stderr().flush());
        }
    }

    fn end_thoughts(&mut self) {
        if self.thoughts == Thoughts::Open {
            self.thoughts = Thoughts::Closed;
            if stderr().is_terminal() {
                let _ = writeln!(stderr());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_agents::{Begins, ReasoningFormat};

    fn spoken(begins: Begins, texts: &[&str]) -> Spoken {
        let format = ReasoningFormat::of_template("<think>");
        let mut spoken = Spoken::new(ReasoningSplit::new(format, begins));
        for text in texts {
            spoken.say(text).unwrap();
        }
        spoken.end().unwrap();
        spoken
    }

    #[test]
    fn thoughts_are_no_part_of_the_answer() {
        let whole = spoken(Begins::Outside, &["<thi", "nk>\nHm", "m.\n</think>\n\nPa", "ris."]);
        assert_eq!((whole.answer(), whole.is_thought_alone()), ("Paris.", false));
        let cut = spoken(Begins::Inside, &["Hm", "m."]);
        assert_eq!((cut.answer(), cut.is_thought_alone()), ("", true));
        let plain = spoken(Begins::Outside, &["Par", "is."]);
        assert_eq!((plain.answer(), plain.is_thought_alone()), ("Paris.", false));
    }
}
