//! One block of calls, in each family's notation, from its text.
//!
//! [`read`] looks at the text after the mark. Its answer depends on that text alone, and once it is not
//! [`Reading::More`] it is final: nothing after the text is looked at.

use super::SPACES_MAX;
use super::called::{Called, Reading};
use super::written::{compact, elements, members};
use super::{glm, pythonic, xml};
use crate::format::{ARGS, CALL_ID, FUNCTION, LIST_END, NAME_MAX, TOOL_CALL_END, ToolFormat, is_name_char};
use crate::tool::Tool;
use serde_json::{Map, Value};

/// Reads a block whose brackets are closed.
pub(super) fn read(format: ToolFormat, text: &str, tools: &[Tool]) -> Reading {
    let body = text.trim_start();
    if text.len() - body.len() > SPACES_MAX {
        return Reading::Broken;
    }
    if body.is_empty() {
        return Reading::More;
    }
    match format {
        ToolFormat::Hermes | ToolFormat::Generic => closed(values(body), TOOL_CALL_END),
        ToolFormat::QwenXml => match xml::calls(body, tools) {
            Ok((calls, rest)) if rest.trim_start() == TOOL_CALL_END => Reading::Calls(calls),
            Ok(_) => Reading::Broken,
            Err(reading) => reading,
        },
        ToolFormat::GlmXml => match glm::call(body, tools) {
            Ok((call, rest)) if rest.trim_start() == TOOL_CALL_END => Reading::Calls(vec![call]),
            Ok((_, rest)) if TOOL_CALL_END.starts_with(rest.trim_start()) => Reading::More,
            Ok(_) => Reading::Broken,
            Err(reading) => reading,
        },
        ToolFormat::LfmPythonic => listed(body),
        ToolFormat::MistralList => values(body).map_or_else(|no| no, |(values, rest)| ended(values, rest)),
        ToolFormat::MistralArgs if body.starts_with(['[', '{']) => read(ToolFormat::MistralList, text, tools),
        ToolFormat::MistralArgs => named(body),
        ToolFormat::LlamaJson => match values(body).map_or_else(|no| no, |(values, rest)| ended(values, rest)) {
            Reading::Calls(calls) if !calls.iter().all(|call| is_known(&call.name, tools)) => Reading::Broken,
            reading => reading,
        },
        // Headers tell.
        ToolFormat::Harmony => Reading::Broken,
        ToolFormat::LlamaPythonic => match pythonic::calls(body) {
            Some(calls) if calls.iter().all(|call| is_known(&call.name, tools)) => Reading::Calls(calls),
            _ => Reading::Broken,
        },
    }
}

/// The call of a function that a header names, if its arguments are an object.
pub(super) fn told(name: String, arguments: &str) -> Option<Called> {
    let body = arguments.trim();
    let fits = !name.is_empty() && name.chars().count() <= NAME_MAX;
    let arguments = if body.is_empty() { "{}" } else { body };
    let is_object = fits && serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
    is_object.then(|| Called { name, arguments: compact(arguments) })
}

/// Reads a block after which nothing comes: a closing mark may be missing.
pub(super) fn at_end(format: ToolFormat, text: &str, tools: &[Tool]) -> Reading {
    let closing = match format {
        ToolFormat::Hermes | ToolFormat::Generic => TOOL_CALL_END,
        ToolFormat::QwenXml => {
            return match xml::calls(text.trim(), tools) {
                Ok((calls, rest)) if TOOL_CALL_END.starts_with(rest.trim_start()) => Reading::Calls(calls),
                _ => Reading::Broken,
            };
        }
        ToolFormat::GlmXml => {
            return match glm::call(text.trim(), tools) {
                Ok((call, rest)) if TOOL_CALL_END.starts_with(rest.trim_start()) => Reading::Calls(vec![call]),
                _ => Reading::Broken,
            };
        }
        ToolFormat::LfmPythonic => {
            let (list, rest) = text.split_at(text.rfind(']').map_or(0, |at| at + 1));
            return if LIST_END.starts_with(rest.trim()) { list_of(list.trim()) } else { Reading::Broken };
        }
        _ => return read(format, text, tools),
    };
    match values(text.trim()) {
        Ok((values, rest)) if closing.starts_with(rest.trim_start()) => ended(values, ""),
        _ => Reading::Broken,
    }
}

/// Whether a block that is still open can be told to be no call: only where text could look like one.
pub(super) fn unlikely(format: ToolFormat, text: &str, tools: &[Tool]) -> Reading {
    let text = text.trim_start();
    let likely = match format {
        ToolFormat::LlamaJson if text.len() <= KEY_MAX => {
            let key = text.trim_start_matches('{').trim_start();
            KEYS.iter().any(|known| known.starts_with(key) || key.starts_with(known))
        }
        ToolFormat::LlamaPythonic if !text.contains('(') => {
            let name = text.trim_start_matches('[').trim_start();
            tools.iter().any(|tool| tool.name.starts_with(name))
        }
        ToolFormat::QwenXml => FUNCTION.starts_with(text) || text.starts_with(FUNCTION),
        ToolFormat::GlmXml => text.is_empty() || text.starts_with(is_name_char),
        _ => true,
    };
    if likely { Reading::More } else { Reading::Broken }
}

/// A list whose brackets are closed, and the mark behind it.
fn listed(body: &str) -> Reading {
    if !body.starts_with('[') {
        return Reading::Broken;
    }
    let (list, rest) = body.split_at(body.rfind(']').map_or(0, |at| at + 1));
    let mark = rest.trim_start();
    match () {
        () if mark == LIST_END => list_of(list),
        () if LIST_END.starts_with(mark) && rest.len() - mark.len() <= SPACES_MAX => Reading::More,
        () => Reading::Broken,
    }
}

/// The calls of a list, as Python writes them, or JSON.
fn list_of(list: &str) -> Reading {
    let json = || values(list).map_or_else(|_| Reading::Broken, |(values, rest)| ended(values, rest));
    pythonic::calls(list).map_or_else(json, Reading::Calls)
}

/// Whether there is such a tool.
fn is_known(name: &str, tools: &[Tool]) -> bool {
    tools.iter().any(|tool| tool.name == name)
}

/// A JSON object of a call, or a list of some, and what follows.
fn values(text: &str) -> Result<(Vec<&str>, &str), Reading> {
    if !text.starts_with(['{', '[']) {
        return Err(Reading::Broken);
    }
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    match stream.next() {
        Some(Ok(value)) => {
            let (written, rest) = text.split_at(stream.byte_offset());
            let values = if value.is_array() { elements(written) } else { vec![written] };
            Ok((values, rest))
        }
        Some(Err(error)) if error.is_eof() => Err(Reading::More),
        _ => Err(Reading::Broken),
    }
}

/// Calls that a mark ends.
fn closed(read: Result<(Vec<&str>, &str), Reading>, closing: &str) -> Reading {
    let (values, rest) = match read {
        Ok(read) => read,
        Err(reading) => return reading,
    };
    let mark = rest.trim_start();
    if mark == closing {
        ended(values, "")
    } else if closing.starts_with(mark) && rest.len() - mark.len() <= SPACES_MAX {
        Reading::More
    } else {
        Reading::Broken
    }
}

fn ended(values: Vec<&str>, rest: &str) -> Reading {
    let calls: Option<Vec<Called>> = values.into_iter().map(called).collect();
    match calls {
        Some(calls) if rest.is_empty() && !calls.is_empty() => Reading::Calls(calls),
        _ => Reading::Broken,
    }
}

/// `name[ARGS]{..}`; some write an id between, or no mark.
fn named(text: &str) -> Reading {
    let end = text.find(|c| !is_name_char(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() || name.len() > NAME_MAX {
        return Reading::Broken;
    }
    let mut rest = rest.trim_start();
    if let Some(id) = rest.strip_prefix(CALL_ID) {
        rest = id.trim_start_matches(is_name_char);
        if id.len() - rest.len() > NAME_MAX {
            return Reading::Broken;
        }
    }
    let arguments = rest.strip_prefix(ARGS).unwrap_or(rest).trim_start();
    if [ARGS, CALL_ID].iter().any(|mark| mark.starts_with(rest)) || arguments.is_empty() {
        // Each of these is held for at most as long as whitespace is.
        return if text.len() > end + SPACES_MAX + 2 * NAME_MAX { Reading::Broken } else { Reading::More };
    }
    match serde_json::from_str::<Map<String, Value>>(arguments) {
        Ok(_) => Reading::Calls(vec![Called { name: name.to_owned(), arguments: compact(arguments) }]),
        Err(error) if error.is_eof() => Reading::More,
        Err(_) => Reading::Broken,
    }
}

/// The call that an object is, if it is one.
fn called(object: &str) -> Option<Called> {
    let outer = parts(object)?;
    let inner = find(&outer, "function").and_then(parts);
    let call = inner.as_deref().unwrap_or(&outer);
    let Ok(Value::String(name)) = serde_json::from_str(find(call, "name")?) else { return None };
    let arguments = find(call, "arguments").or_else(|| find(call, "parameters")).unwrap_or("null");
    let arguments = match arguments.as_bytes().first()? {
        b'n' => "{}".to_owned(),
        b'{' => compact(arguments),
        // As in the OpenAI API, which some models have seen more of than of their own format.
        b'"' => {
            let text: String = serde_json::from_str(arguments).ok()?;
            serde_json::from_str::<Map<String, Value>>(&text).ok().map(|_| text)?
        }
        _ => return None,
    };
    let fits = !name.is_empty() && name.chars().count() <= NAME_MAX;
    fits.then_some(Called { name, arguments })
}

/// The members of an object.
fn parts(object: &str) -> Option<Vec<(String, &str)>> {
    object.starts_with('{').then(|| members(object))
}

/// The last value of this key.
fn find<'a>(members: &[(String, &'a str)], key: &str) -> Option<&'a str> {
    members.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
}

/// First keys of a call.
const KEYS: [&str; 5] = ["\"name\"", "\"parameters\"", "\"arguments\"", "\"type\"", "\"function\""];

/// Within this many bytes the first key stands, or it is taken on trust.
const KEY_MAX: usize = 32;
