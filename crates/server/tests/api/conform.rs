//! Replies against the document that the server gives of itself: every whole reply that a test gets is held against it.
//!
//! Of JSON schema it knows what the document uses, and panics at what it does not know.

use crate::http::Response;
use serde_json::{Map, Value};
use std::sync::LazyLock;

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(duet_server::openapi()).expect("the document is JSON"));

/// Panics unless the response is one of those that are described of what was asked, `POST /v1/models`. What is asked of no
/// route is not looked at.
pub(crate) fn check(asked: &str, response: &Response) {
    let (method, path) = asked.split_once(' ').expect("a method and a path");
    let path = path.split('?').next().unwrap_or(path);
    let paths = DOCUMENT["paths"].as_object().expect("paths");
    // Of templates that fit, the longest says most.
    let fitting = paths.iter().filter(|(template, _)| *template == path || is_of(path, template));
    let route = fitting.max_by_key(|(template, _)| template.len()).map(|(_, route)| route);
    let Some(operation) = route.and_then(|route| route.get(method.to_lowercase())) else { return };
    let described = &operation["responses"][response.status.to_string()];
    assert!(described.is_object(), "{asked}: {} is not described: {}", response.status, response.body);
    let kind = response.header("content-type").unwrap_or_default();
    let content = &described["content"][kind];
    assert!(content.is_object(), "{asked}: {kind} is not described");
    if kind == "application/json"
        && let Err(wrong) = conforms(&response.json(), &content["schema"], "reply")
    {
        panic!("{asked}: {wrong}: {}", response.body);
    }
}

/// Whether a path is one of a template's, whose last parameter may go over slashes.
fn is_of(path: &str, template: &str) -> bool {
    let Some((before, rest)) = template.split_once('{') else { return false };
    let (_, after) = rest.split_once('}').expect("parameters end");
    let middle = path.strip_prefix(before).and_then(|path| path.strip_suffix(after));
    middle.is_some_and(|name| !name.is_empty())
}

fn conforms(value: &Value, schema: &Value, at: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{at} is not {what}: {value}"));
    for (keyword, said) in schema.as_object().expect("a schema is an object") {
        match keyword.as_str() {
            "$ref" => {
                let pointer = said.as_str().and_then(|name| name.strip_prefix('#')).expect("within the document");
                conforms(value, DOCUMENT.pointer(pointer).expect("it is there"), at)?;
            }
            "type" if !is_a(value, said.as_str().expect("one type")) => return wrong(&said.to_string()),
            "const" if value != said => return wrong(&said.to_string()),
            "enum" if !said.as_array().expect("words").contains(value) => return wrong(&format!("one of {said}")),
            "minimum" if value.as_f64() < said.as_f64() => return wrong(&format!("at least {said}")),
            "anyOf" => {
                let each = said.as_array().expect("schemas").iter().map(|schema| conforms(value, schema, at));
                let failures: Vec<String> = each.map(Result::err).collect::<Option<_>>().unwrap_or_default();
                if !failures.is_empty() {
                    return Err(failures.join(", and "));
                }
            }
            "items" => {
                let mut items = value.as_array().into_iter().flatten().enumerate();
                items.try_for_each(|(index, item)| conforms(item, said, &format!("{at}[{index}]")))?;
            }
            "required" => {
                let names = said.as_array().expect("names").iter().filter_map(Value::as_str);
                if let Some(missing) = names.into_iter().find(|name| value.get(name).is_none()) {
                    return Err(format!("{at}.{missing} is missing"));
                }
            }
            "additionalProperties" => others(value, schema, said, at)?,
            "properties" => {
                for (name, schema) in said.as_object().expect("properties") {
                    value.get(name).map_or(Ok(()), |value| conforms(value, schema, &format!("{at}.{name}")))?;
                }
            }
            "type" | "const" | "enum" | "minimum" => {}
            other => panic!("{other} is a keyword that is not known here"),
        }
    }
    Ok(())
}

fn others(value: &Value, schema: &Value, said: &Value, at: &str) -> Result<(), String> {
    let none = Map::new();
    let known = schema["properties"].as_object().unwrap_or(&none);
    let others = value.as_object().unwrap_or(&none).iter().filter(|(name, _)| !known.contains_key(*name));
    for (name, value) in others {
        match said {
            Value::Bool(false) => return Err(format!("{at}.{name} is not described")),
            said => conforms(value, said, &format!("{at}.{name}"))?,
        }
    }
    Ok(())
}

fn is_a(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

#[test]
fn what_is_not_described_is_found() {
    let response = |status, body: &str| Response::of(status, "application/json", body);
    check("GET /health", &response(200, r#"{"status": "ok"}"#));
    for body in [r#"{"status": "fine"}"#, "{}", r#"{"status": "ok", "more": 1}"#, "[]"] {
        let checked = std::panic::catch_unwind(|| check("GET /health", &response(200, body)));
        assert!(checked.is_err(), "{body}");
    }
    assert!(std::panic::catch_unwind(|| check("GET /health", &response(418, "{}"))).is_err());
}
