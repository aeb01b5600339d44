//! A client's schema to one that the grammar takes.
//!
//! What comes out admits nothing that the client's schema does not, but for what [`Strictness::Loose`] lets go.
//!
//! - Formats that the grammar has no pattern for are left out: to JSON Schema a format is a remark.
//! - An object that names its properties gets no others, where that contradicts nothing. Models that may write any key
//!   do, and clients rarely mean it.
//! - Expressions are JavaScript's, and are told in Rust's words.
//! - Where exactly one of several may fit, references are told in full: the grammar sees that they exclude each other.
//! - Whitespace between lexemes is bounded, so that no model writes nothing for ever.

use super::ecmascript;
use super::finite::may_end;
use super::reference::{bring_along, target};
use super::walk::walk;
use crate::refused::Refused;
use crate::tool::{Strictness, Tool};
use serde_json::{Map, Value, json};

/// The schema of a tool's arguments.
pub(super) fn arguments(tool: &Tool) -> Result<Value, Refused> {
    let mut parameters = match &tool.parameters {
        Value::Null | Value::Bool(true) => json!({}),
        parameters => parameters.clone(),
    };
    if let Value::Object(object) = &mut parameters
        && !object.contains_key("type")
    {
        object.insert("type".to_owned(), "object".into());
    }
    prepared(&tool.name, parameters, tool.strict, Spacing::AsTrained)
}

/// A schema, checked and made ready.
pub(super) fn prepared(of: &str, mut schema: Value, strict: Strictness, spacing: Spacing) -> Result<Value, Refused> {
    let bytes = schema.to_string().len();
    if bytes > BYTES_MAX {
        return Err(Refused::SchemaSize { of: of.to_owned(), bytes, limit: BYTES_MAX });
    }
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    let root = schema.clone();
    let mut references = 0;
    let mut composed = Composed::No;
    let mut alternatives = Vec::new();
    walk::<Refused>(&mut schema, &mut String::new(), &mut |schema, _| {
        if let Value::Object(object) = schema {
            object.retain(|keyword, value| !says_nothing(keyword, value));
        }
        Ok(())
    })?;
    walk(&mut schema, &mut String::new(), &mut |schema, path| {
        let Value::Object(object) = schema else { return Ok(()) };
        check_reference(of, &root, object, path, &mut references)?;
        let keyword = UNSUPPORTED.iter().find(|keyword| object.contains_key(**keyword));
        if let (Some(keyword), Strictness::Strict) = (keyword, strict) {
            return Err(Refused::Keyword { of: of.to_owned(), path: path.to_owned(), keyword: (*keyword).to_owned() });
        }
        in_grammars_words(object);
        alternatives.extend(references_of_one(object, path));
        if composes(object) {
            composed = Composed::Yes;
        }
        Ok(())
    })?;
    if !may_end(&root) {
        return Err(Refused::Schema { of: of.to_owned(), reason: "nothing finite fits it".to_owned() });
    }
    tell_in_full(&root, &mut schema, alternatives);
    if composed == Composed::No {
        walk::<Refused>(&mut schema, &mut String::new(), &mut |schema, _| {
            close(schema);
            Ok(())
        })?;
    }
    if let Value::Object(object) = &mut schema {
        object.insert(OPTIONS.to_owned(), options(strict, spacing));
    }
    Ok(schema)
}

/// A schema inside a schema that is ready, with all that it refers to.
pub(super) fn part_of(whole: &Value, part: &Value) -> Value {
    let mut part = match part {
        Value::Object(part) => part.clone(),
        _ => Map::new(),
    };
    bring_along(whole, &mut part);
    for key in ["$schema", OPTIONS] {
        if let Some(value) = whole.get(key) {
            part.entry(key).or_insert_with(|| value.clone());
        }
    }
    Value::Object(part)
}

/// Whitespace between the parts of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spacing {
    /// As the model likes.
    Free,
    /// As calls are written in what models were trained on: a space after colons and commas. What is certain is not
    /// chosen token by token.
    AsTrained,
}

fn options(strict: Strictness, spacing: Spacing) -> Value {
    let mut options = match spacing {
        Spacing::Free => json!({"whitespace_pattern": WHITESPACE}),
        Spacing::AsTrained => {
            json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "})
        }
    };
    if strict == Strictness::Loose {
        options["lenient"] = true.into();
        options["coerce_one_of"] = true.into();
    }
    options
}

fn check_reference(
    of: &str,
    root: &Value,
    object: &Map<String, Value>,
    path: &str,
    references: &mut usize,
) -> Result<(), Refused> {
    let Some(Value::String(reference)) = object.get("$ref") else { return Ok(()) };
    *references += 1;
    if *references > REFERENCES_MAX {
        let reason = format!("it has more than {REFERENCES_MAX} references");
        return Err(Refused::Schema { of: of.to_owned(), reason });
    }
    if target(root, reference).is_some() {
        return Ok(());
    }
    Err(Refused::Reference { of: of.to_owned(), path: path.to_owned(), reference: reference.clone() })
}

/// What is left out. What is behind it stays in its order, in which the grammar's compiler puts properties together.
fn says_nothing(keyword: &str, value: &Value) -> bool {
    match keyword {
        // What clients may not set: whitespace, and what is let go.
        OPTIONS => true,
        "format" => value.as_str().is_some_and(|format| !FORMATS.contains(&format)),
        // An object under such a name is a definition among others.
        _ => REMARKS.contains(&keyword) && value.is_string(),
    }
}

/// Counts as whole numbers, and expressions as the grammar's compiler reads them.
fn in_grammars_words(object: &mut Map<String, Value>) {
    for keyword in COUNTS {
        if let Some(count) = object.get_mut(keyword)
            && let Some(number) = count.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=1e15).contains(number))
        {
            *count = (number as u64).into();
        }
    }
    if let Some(Value::String(pattern)) = object.get_mut("pattern") {
        *pattern = ecmascript::translated(pattern);
    }
    if let Some(Value::Object(patterns)) = object.get_mut("patternProperties") {
        let named = std::mem::take(patterns).into_iter();
        patterns.extend(named.map(|(pattern, schema)| (ecmascript::translated(&pattern), schema)));
    }
}

/// Where the alternatives of a `oneOf` are nothing but references, and to what.
fn references_of_one(object: &Map<String, Value>, path: &str) -> Vec<(String, String)> {
    let alternatives = object.get("oneOf").and_then(Value::as_array).into_iter().flatten().enumerate();
    let references = alternatives.filter_map(|(index, schema)| {
        let reference = schema.as_object().filter(|schema| schema.len() == 1)?.get("$ref")?.as_str()?;
        Some((format!("{path}/oneOf/{index}"), reference.to_owned()))
    });
    references.collect()
}

/// Puts what is referred to in the place of these references, unless the whole would be too long.
fn tell_in_full(root: &Value, schema: &mut Value, references: Vec<(String, String)>) {
    let mut prepared = Vec::new();
    let mut bytes = 0;
    for (path, reference) in references {
        // What was made ready, not what the client sent; a reference to the whole would be its own part.
        let Some(target) =
            target(schema, &reference).filter(|_| reference != "#" && target(root, &reference).is_some())
        else {
            continue;
        };
        bytes += target.to_string().len();
        if bytes > IN_FULL_MAX {
            return;
        }
        prepared.push((path, target.clone()));
    }
    for (path, target) in prepared {
        if let Some(place) = schema.pointer_mut(&path) {
            *place = target;
        }
    }
}

/// Whether some schema of the document is made of others, whose properties would exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Composed {
    No,
    Yes,
}

fn composes(object: &Map<String, Value>) -> bool {
    let has = |keyword: &str| object.contains_key(keyword);
    let several = object.get("allOf").and_then(Value::as_array).is_some_and(|schemas| schemas.len() > 1);
    let beside = has("properties") || has("required");
    several || (beside && ["$ref", "allOf", "anyOf", "oneOf"].into_iter().any(has))
}

/// Gives an object no other properties than those it names.
fn close(schema: &mut Value) {
    let Value::Object(object) = schema else { return };
    let open = ["additionalProperties", "patternProperties", "unevaluatedProperties", "minProperties"];
    let Some(Value::Object(properties)) = object.get("properties") else { return };
    let required = object.get("required").and_then(Value::as_array).into_iter().flatten();
    let all_named = required.filter_map(Value::as_str).all(|key| properties.contains_key(key));
    if all_named && !open.into_iter().any(|keyword| object.contains_key(keyword)) {
        object.insert("additionalProperties".to_owned(), false.into());
    }
}

/// Bytes of a schema. Larger ones than any that a person wrote are under it, and it compiles in seconds.
const BYTES_MAX: usize = 1 << 20;

/// Bytes of what is told in full where alternatives refer to it.
const IN_FULL_MAX: usize = 64 << 10;

/// Keywords that count. JSON has no whole numbers of its own: 2.0 is one.
const COUNTS: [&str; 6] = ["maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"];

/// References of a schema. They can lead one into another, each a level of the compiler's stack.
const REFERENCES_MAX: usize = 2000;

/// Keywords that bind nothing, and may be long. They stay in the prompt.
const REMARKS: [&str; 3] = ["$comment", "description", "title"];

/// What the compiler of grammars reads its options from.
const OPTIONS: &str = "x-guidance";

/// A line break and the indentation of some levels, once between two lexemes.
const WHITESPACE: &str = r"[\x20\x0A\x0D\x09]{1,40}";

/// What is in some draft of JSON Schema and not in the grammar's compiler.
const UNSUPPORTED: [&str; 19] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "contentSchema",
];

/// What the grammar's compiler has a pattern for.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(schema: Value) -> Value {
        prepared("it", schema, Strictness::Strict, Spacing::Free).unwrap()
    }

    #[test]
    fn what_says_nothing_goes_and_the_rest_stays_in_order() {
        let said = json!({
            "description": "first", "format": "path", "properties": {"title": {"title": "t", "type": "string"}},
            "allOf": [{"properties": {"b": {}}}], "$comment": "c", "required": ["title"],
        });
        let ready = ready(said);
        let keywords: Vec<&str> = ready.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keywords, ["properties", "allOf", "required", OPTIONS]);
        assert_eq!(ready["properties"]["title"], json!({"type": "string"}));
    }

    #[test]
    fn definitions_in_groups_may_have_any_name() {
        let group = json!({"title": {"type": "string"}});
        let ready = ready(json!({"$ref": "#/$defs/group/title", "$defs": {"group": group}}));
        assert_eq!(ready["$defs"]["group"]["title"], json!({"type": "string"}));
    }
}
