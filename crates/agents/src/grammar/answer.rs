//! The form of an answer, as rules.

use super::gbnf;
use super::rules::{Rules, quoted};
use super::schema::{Spacing, prepared};
use crate::refused::Refused;
use crate::tool::Strictness;
use llguidance::regex_to_lark;
use serde_json::{Value, json};

/// The form of an answer that is no call.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResponseFormat {
    /// Any text.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema {
        /// The schema.
        schema: Value,
        /// What becomes of keywords that cannot be enforced.
        strict: Strictness,
    },
    /// Text that matches a regular expression as a whole, in the syntax of Rust's `regex` without anchors inside.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A grammar in `llguidance`'s dialect of Lark, with a rule `start`.
    Lark(String),
    /// A grammar in llama.cpp's dialect of BNF, with a rule `root`.
    Gbnf(String),
}

impl ResponseFormat {
    /// The rule `answer`.
    pub(super) fn write(&self, rules: &mut Rules<'_>) -> Result<(), Refused> {
        let body = match self {
            Self::Text => super::rules::ANY.to_owned(),
            Self::JsonObject => {
                rules.schema(ANSWER, prepared(ANSWER, json!({"type": "object"}), Strictness::Strict, Spacing::Free)?)?
            }
            Self::JsonSchema { schema, strict } => {
                rules.schema(ANSWER, prepared(ANSWER, schema.clone(), *strict, Spacing::Free)?)?
            }
            Self::Regex(pattern) => regex(pattern)?,
            Self::Choice(texts) if texts.is_empty() => {
                return Refused::grammar("a choice needs something to choose from");
            }
            Self::Choice(texts) => {
                bounded(texts.iter().map(String::len).sum())?;
                texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" | ")
            }
            Self::Lark(source) => {
                bounded(source.len())?;
                unnested(source)?;
                rules.lark(ANSWER, source.clone())
            }
            Self::Gbnf(source) => {
                bounded(source.len())?;
                rules.lark(ANSWER, gbnf::to_lark(source)?)
            }
        };
        rules.rule("answer", &body);
        Ok(())
    }
}

fn regex(pattern: &str) -> Result<String, Refused> {
    bounded(pattern.len())?;
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let escaped = pattern.chars().rev().skip(1).take_while(|c| *c == '\\').count() % 2 == 1;
    let pattern = if escaped { pattern } else { pattern.strip_suffix('$').unwrap_or(pattern) };
    // Nothing between slashes is a comment.
    Ok(if pattern.is_empty() { "\"\"".to_owned() } else { format!("/{}/", regex_to_lark(pattern, "")) })
}

fn bounded(bytes: usize) -> Result<(), Refused> {
    if bytes <= SOURCE_MAX {
        Ok(())
    } else {
        Refused::grammar(&format!("it has {bytes} bytes; the limit is {SOURCE_MAX}"))
    }
}

/// Each bracket and each rule can be a level of the compiler's stack.
fn unnested(source: &str) -> Result<(), Refused> {
    let levels = source.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'\n' | b'~')).count();
    if levels <= LEVELS_MAX {
        Ok(())
    } else {
        Refused::grammar(&format!("it has more than {LEVELS_MAX} brackets and lines"))
    }
}

/// Whose schema it is, in messages.
const ANSWER: &str = "the answer";

/// Bytes of a grammar, an expression or all choices. A grammar of a programming language is under it.
const SOURCE_MAX: usize = 64 << 10;

/// Brackets and lines of a grammar. The compiler's stack has room for that many of its levels.
const LEVELS_MAX: usize = 4096;
