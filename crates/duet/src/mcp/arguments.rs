//! The arguments of a call, taken one by one; a refusal names the argument. `null` is as good as nothing.

use serde_json::{Map, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Why a call has no answer, in words for the client's model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) String);

/// The argument `name` has to be something else.
pub(super) fn expected(name: &str, expected: impl Display) -> Refusal {
    Refusal(format!("{name}: expected {expected}"))
}

/// What nobody has taken yet.
#[derive(Debug)]
pub(super) struct Arguments(Map<String, Value>);

impl Arguments {
    pub(super) fn new(mut given: Map<String, Value>) -> Self {
        given.retain(|_, value| !value.is_null());
        Self(given)
    }

    /// A text that has to be there, and not to be blank.
    pub(super) fn text(&mut self, name: &str) -> Result<String, Refusal> {
        let text = self.optional_text(name)?.filter(|text| !text.trim().is_empty());
        text.ok_or_else(|| expected(name, "a text, which is not to be empty"))
    }

    pub(super) fn optional_text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(expected(name, "a text")),
        }
    }

    /// Texts that have to be there, so many, none of them empty and none twice.
    pub(super) fn texts(&mut self, name: &str, count: RangeInclusive<usize>) -> Result<Vec<String>, Refusal> {
        let wanted = format!("an array of {} to {} different texts, none of them empty", count.start(), count.end());
        let refuse = || expected(name, &wanted);
        let Some(Value::Array(items)) = self.0.remove(name) else { return Err(refuse()) };
        if !count.contains(&items.len()) {
            return Err(refuse());
        }
        let mut texts: Vec<String> = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Value::String(text) if !text.trim().is_empty() && !texts.contains(&text) => texts.push(text),
                _ => return Err(expected(&format!("{name}[{index}]"), "a text that is neither empty nor there twice")),
            }
        }
        Ok(texts)
    }

    /// An integer; models also write `80.0`.
    pub(super) fn integer(&mut self, name: &str, range: RangeInclusive<u32>, default: u32) -> Result<u32, Refusal> {
        let refuse = || expected(name, format_args!("an integer from {} to {}", range.start(), range.end()));
        let Some(value) = self.0.remove(name) else { return Ok(default) };
        let number = value.as_f64().filter(|number| number.fract() == 0.0).ok_or_else(refuse)?;
        let within = (f64::from(*range.start())..=f64::from(*range.end())).contains(&number);
        // What is within the range of a u32 is one.
        if within { Ok(number as u32) } else { Err(refuse()) }
    }

    pub(super) fn number(&mut self, name: &str, range: RangeInclusive<f64>, default: f64) -> Result<f64, Refusal> {
        let Some(value) = self.0.remove(name) else { return Ok(default) };
        let number = value.as_f64().filter(|number| range.contains(number));
        number.ok_or_else(|| expected(name, format_args!("a number from {} to {}", range.start(), range.end())))
    }

    pub(super) fn optional_object(&mut self, name: &str) -> Result<Option<Value>, Refusal> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(object @ Value::Object(_)) => Ok(Some(object)),
            Some(_) => Err(expected(name, "an object")),
        }
    }

    /// Refuses what nobody took.
    pub(super) fn finish(self, tool: &str) -> Result<(), Refusal> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => {
                let name: String = name.chars().take(NAME_CHARS_MAX).collect();
                Err(Refusal(format!("{name}: {tool} has no such argument")))
            }
        }
    }
}

/// Longer names are cut in messages.
const NAME_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn arguments(given: Value) -> Arguments {
        Arguments::new(given.as_object().unwrap().clone())
    }

    #[test]
    fn refusals_name_the_argument() {
        let refused = |result: Result<(), Refusal>, words: &str| {
            let Refusal(said) = result.unwrap_err();
            assert!(said.starts_with(words), "{said}");
        };
        let given = || {
            arguments(json!({
                "number": 5, "blank": " ", "null": null, "text": "x", "half": 0.5, "negative": -1, "huge": 1e300,
                "twice": ["a", "a"], "mixed": ["a", 1], "one": ["a"],
            }))
        };
        for name in ["number", "blank", "null", "missing"] {
            refused(given().text(name).map(drop), name);
        }
        refused(given().optional_text("number").map(drop), "number: expected a text");
        for name in ["text", "half", "negative", "huge"] {
            refused(given().integer(name, 1..=10, 1).map(drop), name);
            refused(given().number(name, 1.0..=10.0, 1.0).map(drop), name);
        }
        refused(given().texts("twice", 2..=3).map(drop), "twice[1]");
        refused(given().texts("mixed", 2..=3).map(drop), "mixed[1]");
        refused(given().texts("one", 2..=3).map(drop), "one: expected an array of 2 to 3");
        refused(given().optional_object("text").map(drop), "text: expected an object");
        refused(given().finish("generate"), "number: generate has no such argument");
    }

    #[test]
    fn nothing_and_null_are_the_default() {
        let mut given = arguments(json!({"null": null, "whole": 80.0}));
        assert_eq!(given.integer("null", 1..=100, 7), Ok(7));
        assert_eq!(given.integer("whole", 1..=100, 7), Ok(80));
        assert_eq!(given.number("missing", 0.0..=2.0, 0.5), Ok(0.5));
        assert_eq!(given.optional_text("null"), Ok(None));
        assert_eq!(given.finish("generate"), Ok(()));
    }
}
