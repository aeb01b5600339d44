//! A JSON object taken apart field by field.
//!
//! Of a body, only the fields that its route knows are built; the others are skipped, and their names noted. What is built
//! has at most so many values, so that no body takes many times its own size in memory.
//!
//! Each getter removes its field, so what is left at the end is what nobody knows. `null` is the same as absent, as
//! with OpenAI. Errors carry the field's path: `messages[2].content`.

use crate::error::ApiError;
use crate::values::{Body, Room};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

#[derive(Debug)]
pub(crate) struct Fields {
    path: String,
    map: Map<String, Value>,
    /// Fields of the body that its route does not know.
    skipped: Vec<String>,
    known: Option<Known>,
}

/// The fields of the body that a route looks at, in one or several lists. One that is missing here could not be taken:
/// every test that sends it would fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known(pub(crate) &'static [&'static [&'static str]]);

impl Known {
    /// All of them.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        self.0.iter().flat_map(|names| names.iter().copied())
    }

    fn has(self, name: &str) -> bool {
        self.0.iter().any(|names| names.contains(&name))
    }
}

impl Fields {
    /// The body of a request: those of its fields that are `known`, with at most `most` values in all.
    pub(crate) fn parse(body: &[u8], known: Known, most: usize) -> Result<Self, ApiError> {
        let room = Room::new(most);
        match Body::parse(body, &|name| known.has(name), &room) {
            Ok(Body::Object { map, skipped }) => Ok(Self { path: String::new(), map, skipped, known: Some(known) }),
            Ok(Body::Other(got)) => Err(ApiError::NotAnObject { got }),
            Err(_) if room.is_exceeded() => Err(ApiError::TooManyValues { most }),
            Err(error) => Err(error.into()),
        }
    }

    /// An object within the body; `path` is where it stands.
    pub(crate) fn nested(path: String, value: Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { path: path + ".", map, skipped: Vec::new(), known: None }),
            other => Err(ApiError::WrongType { param: path, expected: "an object", got: type_name(&other) }),
        }
    }

    /// Somebody looks for a field.
    fn asked(&self, name: &str) {
        debug_assert!(self.known.is_none_or(|known| known.has(name)), "{name} would have been skipped");
        #[cfg(test)]
        if self.known.is_some() {
            tests::ASKED.with_borrow_mut(|asked| asked.insert(name.to_owned()));
        }
    }

    /// The full path of one of its fields.
    pub(crate) fn path_of(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// Whether the field is there to be taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.asked(name);
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// The field, whatever it is.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.asked(name);
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// The field, left where it is.
    pub(crate) fn peek(&self, name: &str) -> Option<&Value> {
        self.asked(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Whether the field is this text; it stays.
    pub(crate) fn is(&self, name: &str, text: &str) -> bool {
        self.asked(name);
        self.map.get(name).is_some_and(|value| value == text)
    }

    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.take(name)
            .map(|value| value.as_bool().ok_or_else(|| self.wrong_type(name, "a boolean", &value)))
            .transpose()
    }

    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(name, "a string", &other)),
        }
    }

    /// A number within `range`.
    pub(crate) fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| self.wrong_type(name, "a number", &value))?;
        if !range.contains(&number) {
            let expected = format!("from {} to {}", range.start(), range.end());
            return Err(self.out_of_range(name, expected, &value));
        }
        Ok(Some(number as f32))
    }

    /// An integer within `range`.
    pub(crate) fn integer(&mut self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = match value.as_i64() {
            Some(number) => number,
            // Above `i64` is above every range here but that of seeds, which wrap.
            None if value.is_u64() => i64::MAX,
            None if let Some(number) = whole(&value) => number,
            None => return Err(self.wrong_type(name, "an integer", &value)),
        };
        if !range.contains(&number) {
            let expected = match *range.end() {
                i64::MAX => format!("at least {}", range.start()),
                end => format!("from {} to {end}", range.start()),
            };
            return Err(self.out_of_range(name, expected, &value));
        }
        Ok(Some(number))
    }

    /// The field was `expected`, but something else came.
    pub(crate) fn wrong_type(&self, name: &str, expected: &'static str, got: &Value) -> ApiError {
        ApiError::WrongType { param: self.path_of(name), expected, got: type_name(got) }
    }

    /// The field has the right type and a value that is not allowed.
    pub(crate) fn out_of_range(&self, name: &str, expected: impl Into<String>, got: &Value) -> ApiError {
        ApiError::OutOfRange { param: self.path_of(name), expected: expected.into(), got: brief(got) }
    }

    /// The paths of the fields that nobody took, `null`s left out.
    pub(crate) fn rest(self) -> impl Iterator<Item = String> {
        let path = self.path;
        let left = self.map.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name);
        left.chain(self.skipped).map(move |name| format!("{path}{name}"))
    }
}

/// The integer that a number with a point is, as clients write it that have no integers: `8192.0`.
pub(crate) fn whole(value: &Value) -> Option<i64> {
    /// Beyond these not every integer is a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT).map(|number| number as i64)
}

/// A JSON type in words.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a fractional number",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A value short enough to be quoted in a message.
pub(crate) fn brief(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(map) => format!("an object of {} fields", map.len()),
        Value::String(text) if text.chars().count() > QUOTE_CHARS_MAX => {
            format!("\"{}…\"", text.chars().take(QUOTE_CHARS_MAX).collect::<String>())
        }
        other => other.to_string(),
    }
}

/// Longer strings are cut in messages: a client may have sent megabytes.
const QUOTE_CHARS_MAX: usize = 64;

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    thread_local! {
        /// Fields of bodies that were looked for on this thread, whether they were there or not.
        pub(crate) static ASKED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    }
}
