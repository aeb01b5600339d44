//! Whether brackets and quotes are closed, character by character, so that a call is parsed only when it can be whole.

use crate::format::ToolFormat;

/// Brackets and quotes that are open.
#[derive(Clone, Debug)]
pub(super) struct Balance {
    quotes: &'static [char],
    depth: usize,
    quote: Option<char>,
    escape: Escape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    No,
    Next,
}

impl Balance {
    /// The balance of calls in this format, after `text`.
    pub(super) fn of(format: ToolFormat, text: &str) -> Self {
        let is_pythonic = matches!(format, ToolFormat::LlamaPythonic | ToolFormat::LfmPythonic);
        let quotes: &[char] = if is_pythonic { &['"', '\''] } else { &['"'] };
        let mut balance = Self { quotes, depth: 0, quote: None, escape: Escape::No };
        text.chars().for_each(|c| balance.push(c));
        balance
    }

    pub(super) fn push(&mut self, c: char) {
        match (self.quote, self.escape, c) {
            (Some(_), Escape::Next, _) => self.escape = Escape::No,
            (Some(_), Escape::No, '\\') => self.escape = Escape::Next,
            (Some(quote), Escape::No, _) if c == quote => self.quote = None,
            (Some(_), Escape::No, _) => {}
            // Outside brackets a quote belongs to no call.
            (None, _, _) if self.depth > 0 && self.quotes.contains(&c) => self.quote = Some(c),
            (None, _, '{' | '[' | '(') => self.depth += 1,
            (None, _, '}' | ']' | ')') => self.depth = self.depth.saturating_sub(1),
            (None, _, _) => {}
        }
    }

    /// Whether the next character is a text's.
    pub(super) fn is_quoted(&self) -> bool {
        self.quote.is_some()
    }

    pub(super) fn is_open(&self) -> bool {
        self.depth > 0
    }
}
