//! Calls as Python writes them: `[f(a=1, b="x"), g()]`.
//!
//! Keyword arguments of literals only, and JSON's `true`, `false` and `null` as well, which grammars write.

use super::called::Called;
use crate::format::{NAME_MAX, is_key, is_name_char};
use serde_json::{Map, Number, Value};

/// The calls of a whole list; absent if `text` is none.
pub(super) fn calls(text: &str) -> Option<Vec<Called>> {
    let mut reader = Reader { rest: text.trim_end() };
    reader.expect('[')?;
    let mut calls = Vec::new();
    while !reader.take(']') {
        let name = reader.name()?.to_owned();
        reader.expect('(')?;
        let mut arguments = Map::new();
        while !reader.take(')') {
            let key = reader.key()?.to_owned();
            arguments.insert(key, reader.value(0)?);
            reader.separated(')')?;
        }
        calls.push(Called { name, arguments: Value::Object(arguments).to_string() });
        reader.separated(']')?;
    }
    (reader.rest.is_empty() && !calls.is_empty()).then_some(calls)
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_spaces();
        match self.rest.chars().next()? {
            '"' | '\'' => self.string().map(Value::String),
            '[' => self.list('[', ']', depth).map(Value::Array),
            '(' => self.list('(', ')', depth).map(Value::Array),
            '{' => self.object(depth).map(Value::Object),
            '0'..='9' | '-' | '+' | '.' => self.number().map(Value::Number),
            _ => match self.name()? {
                "True" | "true" => Some(Value::Bool(true)),
                "False" | "false" => Some(Value::Bool(false)),
                "None" | "null" => Some(Value::Null),
                _ => None,
            },
        }
    }

    fn list(&mut self, opening: char, closing: char, depth: usize) -> Option<Vec<Value>> {
        self.expect(opening)?;
        let mut values = Vec::new();
        while !self.take(closing) {
            values.push(self.value(depth + 1)?);
            self.separated(closing)?;
        }
        Some(values)
    }

    fn object(&mut self, depth: usize) -> Option<Map<String, Value>> {
        self.expect('{')?;
        let mut object = Map::new();
        while !self.take('}') {
            self.skip_spaces();
            let key = self.string()?;
            self.expect(':')?;
            object.insert(key, self.value(depth + 1)?);
            self.separated('}')?;
        }
        Some(object)
    }

    fn number(&mut self) -> Option<Number> {
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c)));
        let (text, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let text = text.strip_prefix('+').unwrap_or(text).replace('_', "");
        if let Ok(number) = serde_json::from_str(&text) {
            return Some(number);
        }
        // Python's `1.` and `.5`; not its words for what JSON has no number for.
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        Number::from_f64(text.parse().ok().filter(|_| is_number)?)
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let mut chars = self.rest[1..].char_indices();
        let mut text = String::new();
        // Halves of a pair of UTF-16, which JSON's escapes may be.
        let mut high = None;
        while let Some((at, c)) = chars.next() {
            let unit = match c {
                _ if c == quote => {
                    self.rest = &self.rest[at + 2..];
                    return high.is_none().then_some(text);
                }
                '\\' => match chars.next()?.1 {
                    'n' => Escaped::Char('\n'),
                    't' => Escaped::Char('\t'),
                    'r' => Escaped::Char('\r'),
                    'b' => Escaped::Char('\u{8}'),
                    'f' => Escaped::Char('\u{c}'),
                    '0' => Escaped::Char('\0'),
                    'x' => Escaped::Unit(hexadecimal(&mut chars, 2)?),
                    'u' => Escaped::Unit(hexadecimal(&mut chars, 4)?),
                    'U' => Escaped::Unit(hexadecimal(&mut chars, 8)?),
                    '\n' => continue,
                    c @ ('\\' | '\'' | '"' | '/') => Escaped::Char(c),
                    // Python keeps the backslash of what is no escape.
                    c => {
                        text.push('\\');
                        Escaped::Char(c)
                    }
                },
                c => Escaped::Char(c),
            };
            match (high.take(), unit) {
                (None, Escaped::Char(c)) => text.push(c),
                (None, Escaped::Unit(unit @ 0xD800..=0xDBFF)) => high = Some(unit),
                (None, Escaped::Unit(unit)) => text.push(char::from_u32(unit)?),
                (Some(high), Escaped::Unit(low @ 0xDC00..=0xDFFF)) => {
                    text.push(char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))?);
                }
                (Some(_), _) => return None,
            }
        }
        None
    }

    fn name(&mut self) -> Option<&'a str> {
        self.skip_spaces();
        let end = self.rest.find(|c| !is_name_char(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty() && name.len() <= NAME_MAX).then_some(name)
    }

    /// A parameter's name and the sign behind it. Models write down whatever name a schema has.
    fn key(&mut self) -> Option<&'a str> {
        let (key, rest) = self.rest.trim_start().split_once('=')?;
        self.rest = rest;
        Some(key.trim_end()).filter(|key| is_key(key))
    }

    /// After a comma, or before what closes.
    fn separated(&mut self, closing: char) -> Option<()> {
        self.skip_spaces();
        (self.take(',') || self.rest.starts_with(closing)).then_some(())
    }

    fn expect(&mut self, c: char) -> Option<()> {
        self.take(c).then_some(())
    }

    fn take(&mut self, c: char) -> bool {
        self.skip_spaces();
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

enum Escaped {
    Char(char),
    /// Of UTF-16, or a whole character.
    Unit(u32),
}

fn hexadecimal(chars: &mut std::str::CharIndices<'_>, digits: usize) -> Option<u32> {
    (0..digits).try_fold(0, |value: u32, _| Some(value.checked_mul(16)? + chars.next()?.1.to_digit(16)?))
}

/// Nesting of values, as `serde_json` has it.
const DEPTH_MAX: usize = 127;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_whatever_names_a_schema_has() {
        for (key, argument) in
            [("$filter", "$filter"), ("user id", "user id"), ("größe", " größe "), ("@type", "@type")]
        {
            let called = calls(&format!("[f({argument}=1, b=2)]")).unwrap();
            let arguments: Value = serde_json::from_str(&called[0].arguments).unwrap();
            assert_eq!((&arguments[key], &arguments["b"]), (&1.into(), &2.into()), "{key}");
        }
        for wrong in ["[f(=1)]", "[f(a(=1)]", "[f(\"a\"=1)]", "[f(a,b=1)]", "[f(a)]"] {
            assert!(calls(wrong).is_none(), "{wrong}");
        }
    }

    fn check(text: &str, expected: &[(&str, &str)]) {
        let calls = calls(text).unwrap_or_default();
        let found: Vec<_> = calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn literals_become_json() {
        check(
            r#"[f(a=1, b="x", c='it\'s', d=[True, None, -1.5e3], e={"k": (1, 2)}), g()]"#,
            &[("f", r#"{"a":1,"b":"x","c":"it's","d":[true,null,-1500.0],"e":{"k":[1,2]}}"#), ("g", "{}")],
        );
        check(r#"[ f ( a = "\u00e9\ud83d\ude00\n" , ) ]"#, &[("f", r#"{"a":"é😀\n"}"#)]);
        check("[f(a=true,b=.5,c=1_000)]", &[("f", r#"{"a":true,"b":0.5,"c":1000}"#)]);
    }

    #[test]
    fn what_is_no_call_is_none() {
        let nested = format!("[f(a={})]", "[".repeat(100_000));
        for text in
            ["[]", "[f]", "[f(1)]", "[f(a=g())]", "[f(a=1", "[f(a=nan)]", "[f(a='\\ud800')]", "[f()] x", &nested]
        {
            check(text, &[]);
        }
    }
}
