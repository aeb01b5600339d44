//! A function that is called as in Python: `name(a=1, b="x")`.
//!
//! Arguments come in the order of the schema's properties. Values are JSON, which differs from Python in three words;
//! a value that is a truth value alone is written as in Python. Keyword arguments cannot express a schema that is
//! composed of others, so such a schema is refused, or taken as any arguments where it need not be kept.

use super::rules::{Rules, quoted};
use super::schema::{arguments, part_of};
use crate::format::is_key;
use crate::refused::Refused;
use crate::tool::{Strictness, Tool};
use serde_json::{Map, Value};

/// Writes the rules of a call of `tool`, number `at`, after its first bracket; returns what refers to them.
pub(super) fn write(rules: &mut Rules<'_>, at: usize, tool: &Tool) -> Result<String, Refused> {
    let schema = arguments(tool)?;
    let name = &tool.name;
    let composed = COMPOSED.iter().find(|keyword| schema.get(*keyword).is_some());
    let properties = match (composed, tool.strict, schema.get("properties")) {
        (None, _, Some(Value::Object(properties))) => properties.clone(),
        (None, Strictness::Loose, None) if takes_any(tool) => return any(rules, name),
        (None, _, _) => Map::new(),
        (Some(_), Strictness::Loose, _) => return any(rules, name),
        (Some(keyword), Strictness::Strict, _) => {
            return Err(Refused::Keyword { of: name.clone(), path: String::new(), keyword: (*keyword).to_owned() });
        }
    };
    let required = |key: &str| {
        let required = schema.get("required").and_then(Value::as_array);
        required.is_some_and(|keys| keys.iter().any(|required| required == key))
    };
    // `first` is what may follow before any argument was written, `next` after one: a comma comes between.
    let (mut first, mut next) = (String::from("\"\""), String::from("\"\""));
    for (number, (key, property)) in properties.iter().enumerate().rev() {
        if !is_key(key) || key.trim() != key {
            let reason = format!("the parameter {key:?} has no name that can be written");
            return Err(Refused::Schema { of: name.clone(), reason });
        }
        let value = value(rules, tool, &schema, property)?;
        let argument = format!("{} {value}", quoted(&format!("{key}=")));
        let (first_name, next_name) = (format!("first_{at}_{number}"), format!("next_{at}_{number}"));
        let (first_rest, next_rest) =
            if required(key) { (String::new(), String::new()) } else { (format!(" | {first}"), format!(" | {next}")) };
        rules.rule(&first_name, &format!("{argument} {next}{first_rest}"));
        rules.rule(&next_name, &format!("\", \" {argument} {next}{next_rest}"));
        (first, next) = (first_name, next_name);
    }
    Ok(format!("{first} \")\""))
}

/// Whether a schema that names no properties says that there are some: key and value as they come.
fn takes_any(tool: &Tool) -> bool {
    tool.parameters.get("additionalProperties").is_some_and(|others| *others != Value::Bool(false))
}

fn value(rules: &mut Rules<'_>, tool: &Tool, schema: &Value, property: &Value) -> Result<String, Refused> {
    if property.get("type").is_some_and(|kind| kind == "boolean") && property.get("enum").is_none() {
        return Ok("(\"True\" | \"False\")".to_owned());
    }
    rules.schema(&tool.name, part_of(schema, property))
}

/// A call with whatever arguments.
fn any(rules: &mut Rules<'_>, name: &str) -> Result<String, Refused> {
    let value = rules.schema(name, Value::Object(Map::new()))?;
    let argument = format!("/[a-zA-Z_][a-zA-Z0-9_]{{0,63}}=/ {value}");
    Ok(format!("({argument} (\", \" {argument})*)? \")\""))
}

/// Keywords that say of an argument object what named arguments do not.
pub(super) const COMPOSED: [&str; 6] = ["$ref", "allOf", "anyOf", "oneOf", "enum", "const"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tool_of_keys_and_values_takes_any() {
        let of = |parameters: Value| takes_any(&Tool { parameters, ..tool() });
        assert!(of(json!({"type": "object", "additionalProperties": {"type": "string"}})));
        assert!(of(json!({"type": "object", "additionalProperties": true})));
        assert!(!of(json!({"type": "object"})));
        assert!(!of(json!({"type": "object", "additionalProperties": false})));
        assert!(!of(Value::Null));
    }

    fn tool() -> Tool {
        Tool { name: "f".to_owned(), description: String::new(), parameters: Value::Null, strict: Strictness::Loose }
    }
}
