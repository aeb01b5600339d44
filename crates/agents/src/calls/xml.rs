//! Calls as Qwen3-Coder writes them, in tags that look like XML and are none: values are text between newlines, with nothing
//! escaped, and are what their parameters' schemas say.

use super::called::{Called, Reading};
use crate::format::{FUNCTION, FUNCTION_END, NAME_MAX, PARAMETER, PARAMETER_END, is_name_char};
use crate::parameter::{self, Kinds};
use crate::tool::Tool;
use serde_json::{Map, Value};

/// The calls that a text begins with, and what follows.
pub(super) fn calls<'a>(text: &'a str, tools: &[Tool]) -> Result<(Vec<Called>, &'a str), Reading> {
    let mut calls = Vec::new();
    let mut rest = text;
    loop {
        let start = rest.trim_start();
        let Some(after) = start.strip_prefix(FUNCTION) else {
            return match () {
                () if FUNCTION.starts_with(start) && calls.is_empty() => Err(Reading::More),
                () if calls.is_empty() => Err(Reading::Broken),
                () => Ok((calls, rest)),
            };
        };
        let (call, after) = call(after, tools)?;
        calls.push(call);
        rest = after;
    }
}

/// The call after its first mark.
fn call<'a>(text: &'a str, tools: &[Tool]) -> Result<(Called, &'a str), Reading> {
    let (name, mut rest) = named(text)?;
    let nothing = Value::Null;
    let schema = tools.iter().find(|tool| tool.name == name).map_or(&nothing, |tool| &tool.parameters);
    let mut arguments = Map::new();
    loop {
        let start = rest.trim_start();
        if let Some(after) = start.strip_prefix(FUNCTION_END) {
            return Ok((Called { name: name.to_owned(), arguments: Value::Object(arguments).to_string() }, after));
        }
        let Some(after) = start.strip_prefix(PARAMETER) else {
            let may_come = PARAMETER.starts_with(start) || FUNCTION_END.starts_with(start);
            return Err(if may_come { Reading::More } else { Reading::Broken });
        };
        let (key, after) = key(after)?;
        let property = &schema["properties"][key];
        let (value, after) = value(after, PARAMETER_END, &Kinds::of(schema, property)).ok_or(Reading::More)?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.to_owned(), parameter::read(schema, property, value));
        rest = after;
    }
}

/// A parameter's name up to the end of its mark; it may be any text on a line.
fn key(text: &str) -> Result<(&str, &str), Reading> {
    match text.split_once('>') {
        Some((key, rest)) if !key.is_empty() && !key.contains('\n') => Ok((key, rest)),
        None if !text.contains('\n') => Err(Reading::More),
        _ => Err(Reading::Broken),
    }
}

/// A value up to its closing mark. Within JSON a text may hold that mark.
pub(super) fn value<'a>(text: &'a str, closing: &str, kinds: &Kinds) -> Option<(&'a str, &'a str)> {
    let mut ends = text.match_indices(closing).map(|(at, _)| at);
    let end = ends.find(|&at| !kinds.are_json() || parameter::json(&text[..at]).is_some())?;
    Some((&text[..end], &text[end + closing.len()..]))
}

/// A name up to the end of its mark.
fn named(text: &str) -> Result<(&str, &str), Reading> {
    let end = text.find(|c| !is_name_char(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match rest.strip_prefix('>') {
        Some(rest) if !name.is_empty() && name.len() <= NAME_MAX => Ok((name, rest)),
        None if rest.is_empty() && name.len() <= NAME_MAX => Err(Reading::More),
        _ => Err(Reading::Broken),
    }
}
