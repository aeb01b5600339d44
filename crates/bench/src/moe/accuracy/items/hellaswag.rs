//! HellaSwag by likelihood: which of four endings continues a context best.
//!
//! The prompt lists endings by letters. A small model cannot be asked for letters, and endings that it has just read say
//! nothing. So the listed form is turned back: solved examples become their contexts with the right endings, and the last
//! context is left open.

use super::{Item, Problem, Question, Row, Scoring};

pub(super) fn item(row: &Row) -> Result<Item, Problem> {
    let text = row.text();
    let mut blocks = text.split(HEAD).skip(1).map(Block::parse).collect::<Result<Vec<_>, _>>()?;
    let last = blocks.pop().ok_or_else(|| format!("messages: there is no `{HEAD}…): …`"))?;
    let solved = blocks.iter().map(Block::solved).collect::<Result<String, _>>()?;
    let right = letter(row.reference()?)?;
    let options = last.endings.map(|ending| format!(" {ending}")).to_vec();
    let question = Question { options, right, scoring: Scoring::PerByte };
    Ok(Item { context: solved + &last.context(), question: Some(question) })
}

/// A context with its endings.
struct Block<'a> {
    activity: &'a str,
    context: &'a str,
    endings: [&'a str; 4],
    /// The right ending's letter, in a solved one.
    answer: &'a str,
}

impl<'a> Block<'a> {
    fn parse(text: &'a str) -> Result<Self, Problem> {
        let (activity, rest) = until(text, "): ")?;
        let (context, rest) = until(rest, "\nA. ")?;
        let (a, rest) = until(rest, "\nB. ")?;
        let (b, rest) = until(rest, "\nC. ")?;
        let (c, rest) = until(rest, "\nD. ")?;
        let (d, answer) = until(rest, "\nAnswer:")?;
        Ok(Self { activity, context, endings: [a, b, c, d], answer: answer.trim() })
    }

    fn context(&self) -> String {
        format!("{}: {}", self.activity, self.context)
    }

    fn solved(&self) -> Result<String, Problem> {
        Ok(format!("{} {}\n\n", self.context(), self.endings[letter(self.answer)?]))
    }
}

fn until<'a>(text: &'a str, end: &str) -> Result<(&'a str, &'a str), Problem> {
    text.split_once(end).ok_or_else(|| format!("messages: a context of HellaSwag without {end:?}"))
}

fn letter(text: &str) -> Result<usize, Problem> {
    let at = ["A", "B", "C", "D"].iter().position(|letter| *letter == text);
    at.ok_or_else(|| format!("an answer of HellaSwag is a letter from A to D, not `{text}`"))
}

const HEAD: &str = "Context (";
