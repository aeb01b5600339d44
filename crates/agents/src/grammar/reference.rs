//! References inside a schema.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What a reference leads to.
pub(super) fn target<'v>(root: &'v Value, reference: &str) -> Option<&'v Value> {
    match reference.strip_prefix("#/") {
        None => (reference == "#").then_some(root),
        Some(pointer) => pointer.split('/').try_fold(root, found),
    }
}

/// As the grammar's compiler looks things up: without any escapes.
fn found<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    match value {
        Value::Array(values) => values.get(key.parse::<usize>().ok()?),
        value => value.get(key),
    }
}

/// Copies to `part` the definitions of `whole` that it refers to, and those that they refer to.
pub(super) fn bring_along(whole: &Value, part: &mut Map<String, Value>) {
    for ((group, name), definition) in referred_to(whole, part) {
        let named = part.entry(group).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(named) = named {
            named.entry(name).or_insert_with(|| definition.clone());
        }
    }
}

/// Definitions by the keyword that they stand under and their names.
type Definitions<'v> = BTreeMap<(String, String), &'v Value>;

fn referred_to<'v>(whole: &'v Value, part: &Map<String, Value>) -> Definitions<'v> {
    let (mut references, mut definitions) = (Vec::new(), Definitions::new());
    collect_of(part, &mut references);
    while let Some(reference) = references.pop() {
        let Some(place) = definition(reference).filter(|place| !definitions.contains_key(place)) else { continue };
        if let Some(definition) = whole.get(&place.0).and_then(|named| named.get(&place.1)) {
            collect(definition, &mut references);
            definitions.insert(place, definition);
        }
    }
    definitions
}

/// Where the definition that a reference leads to, or into, stands.
fn definition(reference: &str) -> Option<(String, String)> {
    let (group, name) = reference.strip_prefix("#/")?.split_once('/')?;
    let name = name.split_once('/').map_or(name, |(name, _)| name);
    DEFINITIONS.contains(&group).then(|| (group.to_owned(), name.to_owned()))
}

/// Every reference in a schema. A JSON document has 128 levels at most.
fn collect<'v>(value: &'v Value, references: &mut Vec<&'v str>) {
    match value {
        Value::Object(object) => collect_of(object, references),
        Value::Array(values) => values.iter().for_each(|value| collect(value, references)),
        _ => {}
    }
}

fn collect_of<'v>(object: &'v Map<String, Value>, references: &mut Vec<&'v str>) {
    references.extend(object.get("$ref").and_then(Value::as_str));
    object.values().for_each(|value| collect(value, references));
}

const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_part_brings_what_it_refers_to_and_no_more() {
        let whole = json!({
            "$defs": {"a": {"items": {"$ref": "#/$defs/b/anyOf/0"}}, "b": {"anyOf": [{"$ref": "#/definitions/c"}]}, "d": {}},
            "definitions": {"c": {"$ref": "#/$defs/a"}, "e": {"$ref": "#/$defs/d"}},
        });
        let mut part = json!({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#"}]}).as_object().unwrap().clone();
        bring_along(&whole, &mut part);
        assert_eq!(part["$defs"], json!({"a": whole["$defs"]["a"], "b": whole["$defs"]["b"]}));
        assert_eq!(part["definitions"], json!({"c": whole["definitions"]["c"]}));
        let mut part = json!({"$ref": "#/$defs/d"}).as_object().unwrap().clone();
        bring_along(&whole, &mut part);
        assert_eq!(Value::Object(part), json!({"$ref": "#/$defs/d", "$defs": {"d": {}}}));
    }
}
