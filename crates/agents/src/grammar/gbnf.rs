//! Grammars in llama.cpp's notation (GBNF) to Lark.
//!
//! Lark's terminals match the longest text, GBNF knows no terminals; so each character becomes a terminal of its own,
//! and what is a sequence of them stays one. That is slower than terminals of whole words and exact.
//!
//! Rules are `name ::= alternatives`, up to the end of the line; inside parentheses and after `|` and `::=` lines may
//! break. Elements are `"literals"`, `[classes]`, `.`, names and groups, each perhaps with `*`, `+`, `?` or `{m,n}`.

use crate::refused::Refused;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The same language in Lark.
pub(super) fn to_lark(source: &str) -> Result<String, Refused> {
    let mut reader = Reader { rest: source, whole: source, names: BTreeMap::new(), depth: 0 };
    let mut lark = String::new();
    reader.skip(Lines::Break);
    while !reader.rest.is_empty() {
        let name = reader.name()?;
        reader.skip(Lines::Break);
        if !reader.take("::=") {
            return reader.wrong("'::=' is missing");
        }
        let number = reader.number(&name, Use::Definition)?;
        let body = reader.alternatives(Lines::End)?;
        let _ = writeln!(lark, "r{number}: {body}");
        reader.skip(Lines::Break);
    }
    if let Some((name, _)) = reader.names.iter().find(|(_, (_, uses))| *uses == Use::Reference) {
        return Refused::grammar(&format!("the rule '{name}' is not defined"));
    }
    match reader.names.get("root") {
        Some((root, _)) => Ok(format!("start: r{root}\n{lark}")),
        None => Refused::grammar("the rule 'root' is not defined"),
    }
}

struct Reader<'a> {
    rest: &'a str,
    whole: &'a str,
    /// Numbers of rules, and whether they were defined.
    names: BTreeMap<String, (usize, Use)>,
    depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Reference,
    Definition,
}

/// What the end of a line does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    /// It ends the rule.
    End,
    /// It is white space.
    Break,
}

impl Reader<'_> {
    fn alternatives(&mut self, lines: Lines) -> Result<String, Refused> {
        self.skip(Lines::Break);
        let mut alternatives = vec![self.sequence(lines)?];
        while self.take("|") {
            self.skip(Lines::Break);
            alternatives.push(self.sequence(lines)?);
        }
        Ok(alternatives.join(" | "))
    }

    fn sequence(&mut self, lines: Lines) -> Result<String, Refused> {
        let mut elements = Vec::new();
        loop {
            self.skip(lines);
            let Some(first) = self.rest.chars().next() else { break };
            let element = match first {
                '"' => self.literal()?,
                '[' => self.class()?,
                '.' => {
                    self.take(".");
                    "/(?s:.)/".to_owned()
                }
                '(' => self.group()?,
                c if is_name_char(c) => {
                    let name = self.name()?;
                    format!("r{}", self.number(&name, Use::Reference)?)
                }
                '|' | ')' | '\n' | '\r' => break,
                _ => return self.wrong("this begins nothing"),
            };
            self.skip(lines);
            elements.push(element + &self.repetition()?);
        }
        Ok(if elements.is_empty() { "\"\"".to_owned() } else { elements.join(" ") })
    }

    fn group(&mut self) -> Result<String, Refused> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.wrong("groups are too deep");
        }
        self.take("(");
        let body = self.alternatives(Lines::Break)?;
        if !self.take(")") {
            return self.wrong("')' is missing");
        }
        self.depth -= 1;
        Ok(format!("({body})"))
    }

    fn literal(&mut self) -> Result<String, Refused> {
        self.take("\"");
        let mut characters = Vec::new();
        while !self.take("\"") {
            characters.push(format!("/{}/", character(self.char()?)));
        }
        match &characters[..] {
            [] => Ok("\"\"".to_owned()),
            [one] => Ok(one.clone()),
            _ => Ok(format!("({})", characters.join(" "))),
        }
    }

    fn class(&mut self) -> Result<String, Refused> {
        self.take("[");
        let mut class = String::from(if self.take("^") { "[^" } else { "[" });
        let empty = class.len();
        while !self.take("]") {
            let first = self.char()?;
            class.push_str(&character(first));
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.take("-");
                let last = self.char()?;
                if last < first {
                    return self.wrong("a range ends before it begins");
                }
                class.push('-');
                class.push_str(&character(last));
            }
        }
        if class.len() == empty {
            return self.wrong("a class needs a character");
        }
        Ok(format!("/{class}]/"))
    }

    /// One character of a literal or a class, which may be an escape.
    fn char(&mut self) -> Result<char, Refused> {
        let first = self.any()?;
        if first != '\\' {
            return Ok(first);
        }
        match self.any()? {
            'n' => Ok('\n'),
            't' => Ok('\t'),
            'r' => Ok('\r'),
            'x' => self.hexadecimal(2),
            'u' => self.hexadecimal(4),
            'U' => self.hexadecimal(8),
            c @ ('\\' | '"' | '[' | ']' | '-' | '^' | '/' | '\'') => Ok(c),
            _ => self.wrong("this escape is not known"),
        }
    }

    fn hexadecimal(&mut self, digits: usize) -> Result<char, Refused> {
        let value = self.rest.get(..digits).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match value.and_then(char::from_u32) {
            Some(c) => {
                self.rest = &self.rest[digits..];
                Ok(c)
            }
            None => self.wrong("this is no character"),
        }
    }

    fn any(&mut self) -> Result<char, Refused> {
        let mut chars = self.rest.chars();
        match chars.next() {
            Some(c) => {
                self.rest = chars.as_str();
                Ok(c)
            }
            None => self.wrong("it ends inside a literal or a class"),
        }
    }

    fn repetition(&mut self) -> Result<String, Refused> {
        for operator in ["*", "+", "?"] {
            if self.take(operator) {
                return Ok(operator.to_owned());
            }
        }
        if !self.rest.starts_with('{') {
            return Ok(String::new());
        }
        let Some((bounds, rest)) = self.rest[1..].split_once('}') else { return self.wrong("'}' is missing") };
        let (least, most) = bounds.split_once(',').unwrap_or((bounds, bounds));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number <= REPETITIONS_MAX);
        let most = if most.trim().is_empty() { Some(None) } else { number(most).map(Some) };
        let (Some(least), Some(most)) = (number(least), most) else { return self.wrong("these are no bounds") };
        if most.is_some_and(|most| most < least) {
            return self.wrong("these are no bounds");
        }
        self.rest = rest;
        Ok(format!("{{{least},{}}}", most.map(|most| most.to_string()).unwrap_or_default()))
    }

    fn name(&mut self) -> Result<String, Refused> {
        let end = self.rest.find(|c| !is_name_char(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return self.wrong("a name is missing");
        }
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(name.to_owned())
    }

    fn number(&mut self, name: &str, uses: Use) -> Result<usize, Refused> {
        let next = self.names.len();
        if next > RULES_MAX {
            return self.wrong("there are too many rules");
        }
        let (number, known) = self.names.entry(name.to_owned()).or_insert((next, uses));
        match (*known, uses) {
            // It was defined before if this is not the entry that was just made.
            (Use::Definition, Use::Definition) if *number != next => {
                Refused::grammar(&format!("the rule '{name}' is defined twice"))
            }
            _ => {
                if uses == Use::Definition {
                    *known = uses;
                }
                Ok(*number)
            }
        }
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// White space and comments.
    fn skip(&mut self, lines: Lines) {
        loop {
            let spaces: &[char] = if lines == Lines::Break { &[' ', '\t', '\n', '\r'] } else { &[' ', '\t'] };
            self.rest = self.rest.trim_start_matches(spaces);
            if !self.rest.starts_with('#') {
                return;
            }
            self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]);
        }
    }

    fn wrong<T>(&self, reason: &str) -> Result<T, Refused> {
        let line = self.whole[..self.whole.len() - self.rest.len()].matches('\n').count() + 1;
        Refused::grammar(&format!("line {line}: {reason}"))
    }
}

/// A character as a pattern, in a class or not.
fn character(c: char) -> String {
    if c.is_ascii_alphanumeric() || (c > '\u{7f}' && !c.is_control()) {
        c.into()
    } else {
        format!("\\x{{{:x}}}", u32::from(c))
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// Groups in groups. Each is a level of the stack, here and in the compiler.
const DEPTH_MAX: usize = 50;

/// As llama.cpp has it.
const REPETITIONS_MAX: u32 = 2000;

/// Each rule can be a level of the compiler's stack.
const RULES_MAX: usize = 2000;

#[cfg(test)]
mod tests;
