//! Rules as they are written: names, marks, text that is free until a mark, and parts.

use super::{Grammar, Part, Source};
use crate::refused::Refused;
use duet_types::TokenId;
use serde_json::Value;
use std::fmt::Write;

/// A grammar in the making.
pub(super) struct Rules<'a> {
    special: &'a dyn Fn(&str) -> Option<TokenId>,
    text: String,
    parts: Vec<Part>,
    /// Of all schemas among the parts.
    bytes: usize,
}

impl<'a> Rules<'a> {
    pub(super) fn new(special: &'a dyn Fn(&str) -> Option<TokenId>) -> Self {
        Self { special, text: String::new(), parts: Vec::new(), bytes: 0 }
    }

    pub(super) fn into_grammar(self) -> Grammar {
        Grammar { main: self.text, parts: self.parts }
    }

    /// A rule, or a terminal if the name is in capitals.
    pub(super) fn rule(&mut self, name: &str, body: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{name}: {body}");
    }

    /// A schema as a part; returns what refers to it. Parts bring along what they refer to, so together they may be much
    /// longer than what the client sent.
    pub(super) fn schema(&mut self, of: &str, schema: Value) -> Result<String, Refused> {
        self.bytes += schema.to_string().len();
        if self.bytes > ALL_BYTES_MAX {
            let (bytes, limit) = (self.bytes, ALL_BYTES_MAX);
            return Err(Refused::Schemas { of: of.to_owned(), bytes, limit });
        }
        Ok(self.part(of, Source::Schema(schema)))
    }

    /// A grammar as a part; returns what refers to it.
    pub(super) fn lark(&mut self, of: &str, text: String) -> String {
        self.part(of, Source::Lark(text))
    }

    fn part(&mut self, of: &str, source: Source) -> String {
        let name = format!("part-{}", self.parts.len());
        let reference = format!("@{name}");
        self.parts.push(Part { name, of: of.to_owned(), source });
        reference
    }

    /// A mark: a special token where it is one, or each part of it that is, and text.
    pub(super) fn mark(&self, mark: &str) -> String {
        let segments = self.segments(mark);
        segments.iter().map(Segment::lark).collect::<Vec<_>>().join(" ")
    }

    /// A rule of any text until the first `mark`, which is part of it.
    pub(super) fn until(&mut self, name: &str, mark: &str) {
        self.until_but(name, mark, &[]);
    }

    /// The same of text that matches none of these patterns, with all that may follow.
    pub(super) fn until_but(&mut self, name: &str, mark: &str, others: &[&str]) {
        let segments = self.segments(mark);
        let Some((first, rest)) = segments.split_first() else { return };
        let rest: Vec<String> = rest.iter().map(Segment::lark).collect();
        let terminal = name.to_uppercase();
        match first {
            // Text that spells the mark would look like it to whoever reads the text.
            Segment::Token(_) => {
                let marked = format!("{}(?s:.*)", anywhere(mark));
                self.rule(&terminal, &without(&[&[marked.as_str()], others].concat()));
                self.rule(name, &format!("{terminal}? {} {}", first.lark(), rest.join(" ")));
            }
            Segment::Text(text) if !others.is_empty() => {
                let again = format!("{}(?s:.+)", anywhere(text));
                let excluded: String =
                    [&[again.as_str()], others].concat().iter().map(|p| format!(" & ~/{p}/")).collect();
                self.rule(&terminal, &format!("/{}/{excluded}", anywhere(text)));
                self.rule(name, &format!("{terminal} {}", rest.join(" ")));
            }
            Segment::Text(text) => {
                self.rule(&format!("{name}_head[lazy]"), &format!("{ANY} {}", quoted(text)));
                self.rule(name, &format!("{name}_head {}", rest.join(" ")));
            }
        }
    }

    /// Whether a mark is one special token.
    pub(super) fn is_token(&self, mark: &str) -> bool {
        (self.special)(mark).is_some()
    }

    fn segments<'m>(&self, mark: &'m str) -> Vec<Segment<'m>> {
        if let Some(token) = (self.special)(mark) {
            return vec![Segment::Token(token)];
        }
        let mut segments = Vec::new();
        let (mut text, mut at) = (0, 0);
        while let Some(begin) = mark[at..].find(['<', '[']).map(|found| at + found) {
            let Some(end) = mark[begin..].find(['>', ']']).map(|found| begin + found + 1) else { break };
            if let Some(token) = (self.special)(&mark[begin..end]) {
                segments.extend((text < begin).then(|| Segment::Text(&mark[text..begin])));
                segments.push(Segment::Token(token));
                text = end;
            }
            at = end;
        }
        segments.extend((text < mark.len()).then(|| Segment::Text(&mark[text..])));
        segments
    }
}

enum Segment<'m> {
    Token(TokenId),
    Text(&'m str),
}

impl Segment<'_> {
    fn lark(&self) -> String {
        match self {
            Self::Token(token) => format!("<[{token}]>"),
            Self::Text(text) => quoted(text),
        }
    }
}

/// Bytes of all schemas of a turn.
const ALL_BYTES_MAX: usize = 8 << 20;

/// Any text.
pub(super) const ANY: &str = "/(?s:.*)/";

/// Any text that matches none of these as a whole.
pub(super) fn without(patterns: &[&str]) -> String {
    patterns.iter().fold(ANY.to_owned(), |body, pattern| format!("{body} & ~/{pattern}/"))
}

/// A pattern of text that has `text` somewhere, up to its end.
pub(super) fn anywhere(text: &str) -> String {
    format!("(?s:.*){}", escaped(text))
}

/// A text as a literal.
pub(super) fn quoted(text: &str) -> String {
    // The lexer of grammars takes no delete character as it is.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A text as a pattern between slashes.
pub(super) fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => pattern.push_str("\\n"),
            '\r' => pattern.push_str("\\r"),
            // Escaped, these two are the beginning and the end of a word.
            '<' | '>' => pattern.push(c),
            _ if c.is_ascii_punctuation() => pattern.extend(['\\', c]),
            _ if c.is_control() => pattern.push_str(&format!("\\x{{{:x}}}", u32::from(c))),
            _ => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_schemas_together_are_bounded() {
        let mut rules = Rules::new(&|_| None);
        let half = Value::from("x".repeat(ALL_BYTES_MAX / 2));
        assert!(rules.schema("first", half.clone()).is_ok());
        let refused = rules.schema("second", half);
        assert!(matches!(refused, Err(Refused::Schemas { of, limit: ALL_BYTES_MAX, .. }) if of == "second"));
    }
}
