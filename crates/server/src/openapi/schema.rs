//! JSON schemas, shortly.

use serde_json::{Map, Value, json};

/// The schema of this name.
pub(super) fn named(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

pub(super) fn string() -> Value {
    json!({"type": "string"})
}

pub(super) fn boolean() -> Value {
    json!({"type": "boolean"})
}

pub(super) fn object() -> Value {
    json!({"type": "object"})
}

pub(super) fn any() -> Value {
    json!({})
}

pub(super) fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

pub(super) fn float() -> Value {
    json!({"type": "number"})
}

/// An integer of at least `least`. What has more than 64 bits is no integer to JSON's readers.
pub(super) fn at_least(least: i64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": u64::MAX})
}

pub(super) fn integer(least: i64, most: i64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

pub(super) fn number(least: f64, most: f64) -> Value {
    json!({"type": "number", "minimum": least, "maximum": most})
}

pub(super) fn one_of(words: &[&str]) -> Value {
    json!({"enum": words})
}

/// A field of the original that says nothing here.
pub(super) fn null() -> Value {
    json!({"type": "null"})
}

pub(super) fn is(word: &str) -> Value {
    json!({"const": word})
}

pub(super) fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

pub(super) fn map(values: Value) -> Value {
    json!({"type": "object", "additionalProperties": values})
}

pub(super) fn either(schemas: &[Value]) -> Value {
    json!({"anyOf": schemas})
}

pub(super) fn or_null(schema: Value) -> Value {
    match schema {
        Value::Object(schema) if schema.is_empty() => Value::Object(schema),
        schema => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

/// A field that is refused whatever it is.
pub(super) fn refused(why: &str) -> Value {
    json!({"type": "null", "description": why})
}

/// An object of these fields, the first of which are always there, and no others.
pub(super) fn closed<const N: usize, const M: usize>(always: [(&str, Value); N], perhaps: [(&str, Value); M]) -> Value {
    let required: Vec<&str> = always.iter().map(|(name, _)| *name).collect();
    let all = always.iter().chain(&perhaps).map(|(name, schema)| ((*name).to_owned(), schema.clone()));
    let properties: Map<String, Value> = all.collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
