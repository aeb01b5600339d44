//! A call that is told by pieces: its name when its arguments begin, and then the arguments as they are written.
//!
//! That is for calls which cannot turn out to be none, because a grammar holds the model to them from there on
//! ([`Certain`]); so they are recognised only where they are spelled as grammars spell them. All pieces together are what the
//! whole call would have been.

use super::written::Compact;
use crate::format::{ARGS, ToolFormat, is_name_char};
use crate::grammar::Certain;
use crate::tool::Tool;

/// A call that has begun.
#[derive(Clone, Debug)]
pub(super) struct Telling {
    pub(super) index: u32,
    arguments: Compact,
    /// Its arguments so far.
    pub(super) told: String,
}

impl Telling {
    /// Of a call whose arguments begin now.
    pub(super) fn new(index: u32) -> Self {
        Self { index, arguments: Compact::new(), told: String::new() }
    }

    /// What of the next character belongs to the arguments.
    pub(super) fn push(&mut self, c: char) -> Option<char> {
        let goes_on = self.told.is_empty() || self.arguments.is_open();
        let said = self.arguments.push(c).filter(|_| goes_on);
        self.told.extend(said);
        said
    }
}

/// The tool whose arguments begin with the last character of `held`, if it is certain to be called; `before` bytes are
/// whitespace and the mark.
pub(super) fn begun<'a>(
    format: ToolFormat,
    certain: Certain,
    (held, before): (&'a str, usize),
    tools: &[Tool],
) -> Option<&'a str> {
    let is_certain = match certain {
        Certain::None => false,
        _ if !held[..before].trim_matches([';', ' ', '\n']).is_empty() => true,
        Certain::Marked => false,
        // Behind whitespace the other families may write text.
        Certain::Spelled => format == ToolFormat::LlamaJson || before == 0,
    };
    let body = held[before..].trim_start().strip_suffix('{').filter(|_| is_certain)?;
    let name = match format {
        ToolFormat::LlamaPythonic | ToolFormat::LfmPythonic | ToolFormat::QwenXml | ToolFormat::GlmXml => None,
        ToolFormat::MistralArgs => body.strip_suffix(ARGS),
        _ => {
            let object = body.strip_prefix('[').unwrap_or(body);
            let named = object.strip_prefix(r#"{"name": ""#)?;
            [r#"", "arguments": "#, r#"", "parameters": "#].iter().find_map(|key| named.strip_suffix(key))
        }
    };
    name.filter(|name| name.chars().all(is_name_char) && tools.iter().any(|tool| tool.name == *name))
}
