//! JSON as the model wrote it: the parts of objects and lists, uncopied, and arguments without the whitespace in between.

use super::balance::Balance;
use crate::format::ToolFormat;
use serde_json::{Deserializer, Value};

/// Takes out the whitespace between the parts of JSON, character by character.
#[derive(Clone, Debug)]
pub(super) struct Compact(Balance);

impl Compact {
    pub(super) fn new() -> Self {
        Self(Balance::of(ToolFormat::Hermes, ""))
    }

    /// The next character, unless it is such whitespace.
    pub(super) fn push(&mut self, c: char) -> Option<char> {
        let is_said = self.0.is_quoted() || !c.is_whitespace();
        self.0.push(c);
        is_said.then_some(c)
    }

    /// Whether brackets are open.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_open()
    }
}

/// An object or a list without the whitespace between its parts.
pub(super) fn compact(json: &str) -> String {
    let mut compact = Compact::new();
    json.chars().filter_map(|c| compact.push(c)).collect()
}

/// The members of an object that is JSON, each value as it is written.
pub(super) fn members(object: &str) -> Vec<(String, &str)> {
    let mut rest = inside(object);
    let mut members = Vec::new();
    while let Some((Value::String(key), _)) = next(&mut rest) {
        rest = rest.trim_start().trim_start_matches(':');
        let Some((_, value)) = next(&mut rest) else { break };
        members.push((key, value));
        rest = rest.trim_start().trim_start_matches(',');
    }
    members
}

/// The elements of a list that is JSON, each as it is written.
pub(super) fn elements(list: &str) -> Vec<&str> {
    let mut rest = inside(list);
    let mut elements = Vec::new();
    while let Some((_, element)) = next(&mut rest) {
        elements.push(element);
        rest = rest.trim_start().trim_start_matches(',');
    }
    elements
}

/// What is between the brackets.
fn inside(json: &str) -> &str {
    let json = json.trim();
    json.get(1..json.len().saturating_sub(1)).unwrap_or_default()
}

/// Takes the value that `rest` begins with.
fn next<'a>(rest: &mut &'a str) -> Option<(Value, &'a str)> {
    let text = rest.trim_start();
    let mut stream = Deserializer::from_str(text).into_iter::<Value>();
    let value = stream.next()?.ok()?;
    let (written, after) = text.split_at(stream.byte_offset());
    *rest = after;
    Some((value, written))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_are_as_written() {
        let object = r#" { "a" : 1.50 , "b":[ 1, {"c": "x y"} ],"d":"\u00e9", "e": null } "#;
        let expected = [("a", "1.50"), ("b", r#"[ 1, {"c": "x y"} ]"#), ("d", r#""\u00e9""#), ("e", "null")];
        assert_eq!(members(object), expected.map(|(key, value)| (key.to_owned(), value)));
        assert_eq!(elements(r#"[ {"c": "x y"} , 2,[] ]"#), [r#"{"c": "x y"}"#, "2", "[]"]);
        assert_eq!(compact(expected[1].1), r#"[1,{"c":"x y"}]"#);
        assert!(members("{}").is_empty() && elements("[ ]").is_empty());
    }

    proptest! {
        #[test]
        fn compact_json_means_the_same(text in "[\\PC\\n\"\\\\]{0,12}", number in any::<f64>()) {
            let value = serde_json::json!({"a": [text, number], "b": {"c": [], "d": {}}});
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(compact(&pretty), value.to_string());
        }
    }
}
