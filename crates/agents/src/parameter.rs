//! Values of parameters that are written as text, and are what the parameter's schema says they are.
//!
//! The grammar and the reader of such calls agree by [`Kinds`]: a value that may only be text is written as it is, one that
//! may be no text is JSON, and of one that may be both, what reads as another of its types is that.

use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};

/// What a value may be, by its schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds<'v>(BTreeSet<&'v str>);

impl<'v> Kinds<'v> {
    /// By the schema of a property, within the whole schema: of alternatives and references the nearest first, none twice,
    /// and not beyond [`DEPTH_MAX`] in each other or [`STEPS_MAX`] in all.
    pub(crate) fn of(whole: &'v Value, property: &'v Value) -> Self {
        let mut kinds = Self::default();
        let mut followed = BTreeSet::new();
        let mut ahead = VecDeque::from([(property, 1)]);
        for _ in 0..STEPS_MAX {
            let Some((schema, depth)) = ahead.pop_front() else { break };
            match &schema["type"] {
                Value::String(kind) => kinds.0.extend([kind.as_str()]),
                Value::Array(several) => kinds.0.extend(several.iter().filter_map(Value::as_str)),
                _ if depth < DEPTH_MAX => {
                    let alternatives = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema[*key].as_array());
                    let reference = schema["$ref"].as_str().filter(|reference| followed.insert(*reference));
                    let within =
                        alternatives.flatten().take(STEPS_MAX).chain(reference.and_then(|_| referred(whole, schema)));
                    ahead.extend(within.map(|schema| (schema, depth + 1)));
                }
                _ => {}
            }
        }
        kinds
    }

    /// Whether it may be no text.
    pub(crate) fn are_json(&self) -> bool {
        !self.0.is_empty() && !self.are("string")
    }

    /// Whether it may be text only. Of what nothing is known, it is.
    pub(crate) fn are_text(&self) -> bool {
        self.0.iter().all(|kind| *kind == "string")
    }

    fn are(&self, kind: &str) -> bool {
        self.0.contains(kind)
    }
}

/// The schema that a schema is by reference, at most a few of them away, or itself.
pub(crate) fn resolved<'a>(whole: &'a Value, schema: &'a Value) -> &'a Value {
    let next = |schema: &&'a Value| referred(whole, schema);
    std::iter::successors(Some(schema), next).take(DEPTH_MAX).last().unwrap_or(schema)
}

fn referred<'a>(whole: &'a Value, schema: &Value) -> Option<&'a Value> {
    whole.pointer(schema["$ref"].as_str()?.strip_prefix('#')?)
}

/// The values that a schema lists, if it lists them.
pub(crate) fn listed(schema: &Value) -> Option<&[Value]> {
    let only = schema.get("const").map(std::slice::from_ref);
    only.or_else(|| schema.get("enum").and_then(Value::as_array).map(Vec::as_slice))
}

/// How a value is written.
pub(crate) fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What a text is as the value of a property.
pub(crate) fn read(whole: &Value, property: &Value, text: &str) -> Value {
    let property = resolved(whole, property);
    if let Some(value) = listed(property).and_then(|values| values.iter().find(|value| written(value) == text)) {
        return value.clone();
    }
    let kinds = Kinds::of(whole, property);
    let fits = |value: &Value| kinds.are_json() || (!kinds.are_text() && kinds.are(kind(value)));
    json(text).filter(|value| fits(value)).unwrap_or_else(|| Value::from(text))
}

/// What is no text, in JSON or in Python's words.
pub(crate) fn json(text: &str) -> Option<Value> {
    match text.trim() {
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        "None" => Some(Value::Null),
        json => serde_json::from_str(json).ok(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Schemas that refer to others, one after the other: what is beyond is not looked at.
const DEPTH_MAX: usize = 8;

/// Schemas that are looked at for what a value may be: a hundred times what people write.
const STEPS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_what_their_schemas_say() {
        let whole = json!({"$defs": {"count": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}}});
        for (schema, text, expected) in [
            (json!({"type": "string"}), "12", json!("12")),
            (json!({}), "true", json!("true")),
            (json!({"$ref": "#/$defs/loop"}), "true", json!("true")),
            (json!({"type": "integer"}), " 12\n", json!(12)),
            (json!({"$ref": "#/$defs/count"}), "12", json!(12)),
            (json!({"type": "boolean"}), "False", json!(false)),
            (json!({"type": "array"}), "[1, {}]", json!([1, {}])),
            (json!({"type": "number"}), "many", json!("many")),
            (json!({"type": ["string", "null"]}), "null", json!(null)),
            (json!({"type": ["string", "null"]}), "12", json!("12")),
            (json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}), "12", json!(12)),
            (json!({"enum": ["1", 2]}), "1", json!("1")),
            (json!({"enum": ["1", 2]}), "2", json!(2)),
        ] {
            assert_eq!(read(&whole, &schema, text), expected, "{schema} {text:?}");
        }
    }

    #[test]
    fn references_in_each_other_are_followed_once() {
        // Each of them four times in each other, these would be 7.8 thousand million.
        let itself = vec![json!({"$ref": "#/$defs/a"}); 250];
        let whole =
            json!({"$defs": {"a": {"anyOf": itself}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}});
        let kinds = Kinds::of(&whole, &whole["$defs"]["b"]);
        assert_eq!(kinds, Kinds(BTreeSet::from(["null"])));
    }
}
