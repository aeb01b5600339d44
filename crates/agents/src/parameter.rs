//! Values of parameters that are written as text, and are what the parameter's schema says they are.
//!
//! The grammar and the reader of such calls agree by [`Kinds`]: a value that may only be text is written as it is, one that
//! may be no text is JSON, and of one that may be both, what reads as another of its types is that.

use serde_json::Value;

/// What a value may be, by its schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds(Vec<String>);

impl Kinds {
    /// By the schema of a property, within the whole schema.
    pub(crate) fn of(whole: &Value, property: &Value) -> Self {
        let mut kinds = Self::default();
        kinds.add(whole, property, DEPTH_MAX);
        kinds
    }

    /// Whether it may be no text.
    pub(crate) fn are_json(&self) -> bool {
        !self.0.is_empty() && !self.are("string")
    }

    /// Whether it may be text only. Of what nothing is known, it is.
    pub(crate) fn are_text(&self) -> bool {
        self.0.iter().all(|kind| kind == "string")
    }

    fn are(&self, kind: &str) -> bool {
        self.0.iter().any(|known| known == kind)
    }

    fn add(&mut self, whole: &Value, schema: &Value, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        match &schema["type"] {
            Value::String(kind) => self.0.push(kind.clone()),
            Value::Array(kinds) => self.0.extend(kinds.iter().filter_map(Value::as_str).map(str::to_owned)),
            _ => {
                let alternatives = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema[*key].as_array());
                alternatives.flatten().for_each(|schema| self.add(whole, schema, depth));
                referred(whole, schema).into_iter().for_each(|schema| self.add(whole, schema, depth));
            }
        }
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
}
