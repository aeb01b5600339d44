//! Calls as GLM 4.5 and later write them: the tool's name, then each argument's key and value in tags. Values are text with
//! nothing escaped, and are what their parameters' schemas say.

use super::called::{Called, Reading};
use super::xml::value;
use crate::format::{ARG_KEY, ARG_KEY_END, ARG_VALUE, ARG_VALUE_END, NAME_MAX, TOOL_CALL_END, is_name_char};
use crate::parameter::{self, Kinds};
use crate::tool::Tool;
use serde_json::{Map, Value};

/// The call that a text begins with, and what follows: the mark that closes it, or its beginning.
pub(super) fn call<'a>(text: &'a str, tools: &[Tool]) -> Result<(Called, &'a str), Reading> {
    let end = text.find(|c| !is_name_char(c)).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    if name.is_empty() || name.len() > NAME_MAX || !(rest.is_empty() || rest.starts_with(['\n', '<', ' ', '\r'])) {
        return Err(Reading::Broken);
    }
    let nothing = Value::Null;
    let schema = tools.iter().find(|tool| tool.name == name).map_or(&nothing, |tool| &tool.parameters);
    let mut arguments = Map::new();
    loop {
        let start = rest.trim_start();
        let Some(after) = start.strip_prefix(ARG_KEY) else {
            return match () {
                () if TOOL_CALL_END.starts_with(start) || start.starts_with(TOOL_CALL_END) => {
                    let arguments = Value::Object(arguments).to_string();
                    Ok((Called { name: name.to_owned(), arguments }, start))
                }
                () if ARG_KEY.starts_with(start) => Err(Reading::More),
                () => Err(Reading::Broken),
            };
        };
        let (key, after) = key(after)?;
        let start = after.trim_start();
        let Some(after) = start.strip_prefix(ARG_VALUE) else {
            return Err(if ARG_VALUE.starts_with(start) { Reading::More } else { Reading::Broken });
        };
        let property = &schema["properties"][key];
        let (value, after) = value(after, ARG_VALUE_END, &Kinds::of(schema, property)).ok_or(Reading::More)?;
        arguments.insert(key.to_owned(), parameter::read(schema, property, value));
        rest = after;
    }
}

/// A parameter's name up to its mark; it may be any text on a line.
fn key(text: &str) -> Result<(&str, &str), Reading> {
    match text.split_once(ARG_KEY_END) {
        Some((key, rest)) if !key.is_empty() && !key.contains('\n') => Ok((key, rest)),
        None if !text.contains('\n') => Err(Reading::More),
        _ => Err(Reading::Broken),
    }
}
