//! How Python writes values, because templates were written for it: `tojson` of Hugging Face, and printing.
//!
//! Both refuse values nested deeper than [`DEPTH_MAX`]: a template can build such a value step by step,
//! and writing it would use up the stack.

use std::io;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// Far deeper than any tool schema; each level takes a few hundred bytes of stack.
const DEPTH_MAX: usize = 128;

/// `json.dumps(value, ensure_ascii=False, indent=indent, sort_keys=…)`: a space after `,` and `:`, no HTML escapes,
/// keys in their order. Other arguments are taken and ignored.
pub(super) fn tojson(value: &Value, indent: Option<Value>, arguments: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => arguments.get("indent")?,
    };
    for ignored in ["ensure_ascii", "separators", "sort_keys"] {
        arguments.get::<Option<Value>>(ignored)?;
    }
    arguments.assert_all_used()?;
    check_depth(value, DEPTH_MAX)?;
    let indent = indent.filter(|indent| !indent.is_none() && !indent.is_undefined());
    let json = match indent {
        None => write_json(value, Spaced),
        Some(indent) => {
            let width = usize::try_from(indent)?.min(INDENT_MAX);
            write_json(value, PrettyFormatter::with_indent(" ".repeat(width).as_bytes()))
        }
    };
    match json {
        Ok(json) => Ok(Value::from(json)),
        Err(error) => Err(Error::new(ErrorKind::BadSerialization, "cannot be written as JSON").with_source(error)),
    }
}

/// Wider indentation is of no use and could fill the memory.
const INDENT_MAX: usize = 64;

fn write_json(value: &Value, formatter: impl Formatter) -> Result<String, serde_json::Error> {
    let mut json = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut json, formatter))?;
    // The serialiser writes UTF-8.
    Ok(String::from_utf8(json).unwrap_or_default())
}

/// JSON on one line, spaced as Python spaces it.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// `str(value)`: what `{{ value }}` prints.
pub(super) fn printed(value: &Value) -> Result<String, Error> {
    check_depth(value, DEPTH_MAX)?;
    let mut text = String::new();
    match value.as_str() {
        Some(string) => text.push_str(string),
        None if value.is_undefined() => {}
        None => represent(value, &mut text)?,
    }
    Ok(text)
}

/// `repr(value)`. The depth has been checked.
fn represent(value: &Value, text: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => text.push_str("Undefined"),
        ValueKind::None => text.push_str("None"),
        ValueKind::Bool => text.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::String => quote(value.as_str().unwrap_or_default(), text),
        ValueKind::Seq | ValueKind::Iterable => {
            let (begin, end) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            text.push(begin);
            let mut items = 0;
            for item in value.try_iter()? {
                if items > 0 {
                    text.push_str(", ");
                }
                represent(&item, text)?;
                items += 1;
            }
            if value.is_tuple() && items == 1 {
                text.push(',');
            }
            text.push(end);
        }
        ValueKind::Map => {
            text.push('{');
            for (key, place) in value.try_iter()?.zip(0..) {
                if place > 0 {
                    text.push_str(", ");
                }
                represent(&key, text)?;
                text.push_str(": ");
                represent(&value.get_item(&key)?, text)?;
            }
            text.push('}');
        }
        _ => text.push_str(&value.to_string()),
    }
    Ok(())
}

fn quote(string: &str, text: &mut String) {
    let mark = if string.contains('\'') && !string.contains('"') { '"' } else { '\'' };
    text.push(mark);
    for c in string.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c == mark => text.extend(['\\', c]),
            c if u32::from(c) < 0x20 || (0x7F..0xA0).contains(&u32::from(c)) || c == '\u{AD}' => {
                text.push_str(&format!("\\x{:02x}", u32::from(c)));
            }
            c => text.push(c),
        }
    }
    text.push(mark);
}

fn check_depth(value: &Value, left: usize) -> Result<(), Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map) {
        return Ok(());
    }
    let Some(left) = left.checked_sub(1) else {
        return Err(Error::new(ErrorKind::InvalidOperation, "the value is nested too deeply"));
    };
    let is_map = value.kind() == ValueKind::Map;
    for item in value.try_iter()? {
        check_depth(&item, left)?;
        if is_map {
            check_depth(&value.get_item(&item)?, left)?;
        }
    }
    Ok(())
}
