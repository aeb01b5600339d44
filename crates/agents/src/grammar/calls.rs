//! Calls, in each family's notation, as rules.
//!
//! The rule `rest` is what follows the mark that begins calls, to the end of the last one; `calls` is all of it.

use super::Calls;
use super::rules::{Rules, anywhere, escaped, quoted, without};
use super::schema::arguments;
use super::{pythonic, xml};
use crate::channels::{CHANNEL, FUNCTIONS, MESSAGE};
use crate::format::{
    ARGS, LIST_END, LIST_START, NAME_MAX, PYTHON_START, PYTHON_TAG, TOOL_CALL, TOOL_CALL_END, TOOL_CALLS, ToolFormat,
    is_name_char,
};
use crate::refused::Refused;
use crate::tool::{Parallel, Tool, ToolChoice};
use serde_json::Value;

/// What may be written instead of calls. The longest terminal wins, so where text may come calls begin with one
/// terminal that goes on until it cannot be text; where JSON may come they begin with the bracket that it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nothing, or text.
    Text,
    /// An answer of a form.
    Form,
}

/// The rule `calls`: nothing but calls.
pub(super) fn write_required(rules: &mut Rules<'_>, calls: &Calls<'_>, beside: Beside) -> Result<(), Refused> {
    write_rest(rules, calls, beside)?;
    let begin = match calls.format {
        ToolFormat::Hermes | ToolFormat::QwenXml | ToolFormat::GlmXml | ToolFormat::Generic => rules.mark(TOOL_CALL),
        ToolFormat::LfmPythonic => rules.mark(LIST_START),
        ToolFormat::MistralList | ToolFormat::MistralArgs => rules.mark(TOOL_CALLS),
        ToolFormat::LlamaJson | ToolFormat::LlamaPythonic => optional_mark(rules, calls.format),
        ToolFormat::Harmony => String::new(),
    };
    rules.rule("calls", &format!("{begin} rest"));
    Ok(())
}

/// The rules `calls`, with text before where the family has that, and `answer`: text in which no call begins.
pub(super) fn write_offered(rules: &mut Rules<'_>, calls: &Calls<'_>) -> Result<(), Refused> {
    let Some(mark) = calls.format.opening() else { return write_required(rules, calls, Beside::Text) };
    let marked = anywhere(mark) + "(?s:.*)";
    let other = match calls.format {
        ToolFormat::Hermes | ToolFormat::Generic => {
            write_rest(rules, calls, Beside::Text)?;
            // Small models leave the mark out; only what begins to the letter as the template has it is a call.
            let names: Vec<String> = calls.tools.iter().map(|tool| escaped(&tool.name)).collect();
            let bare = format!(r#"\{{"name": "({})", "arguments": (?s:.*)"#, names.join("|"));
            rules.until_but("text_until_call", mark, &[&bare]);
            rules.rule("calls", "text_until_call rest | object");
            rules.rule("ANSWER", &without(&[&marked, &bare]));
            rules.rule("answer", "ANSWER");
            return Ok(());
        }
        ToolFormat::QwenXml
        | ToolFormat::GlmXml
        | ToolFormat::LfmPythonic
        | ToolFormat::MistralList
        | ToolFormat::MistralArgs => {
            write_rest(rules, calls, Beside::Text)?;
            rules.until("text_until_call", mark);
            rules.rule("calls", "text_until_call rest");
            rules.rule("ANSWER", &without(&[&marked]));
            rules.rule("answer", "ANSWER");
            return Ok(());
        }
        // Its answers have a header of their own.
        ToolFormat::Harmony => return write_required(rules, calls, Beside::Text),
        ToolFormat::LlamaJson => {
            r#"\s*\{\s*("(name|function|parameters|arguments)"|"type"\s*:\s*"function")(?s:.*)"#.to_owned()
        }
        ToolFormat::LlamaPythonic => {
            let names: Vec<String> = calls.tools.iter().map(|tool| escaped(&tool.name)).collect();
            format!(r"\s*\[\s*({})\s*\((?s:.*)", names.join("|"))
        }
    };
    write_required(rules, calls, Beside::Text)?;
    rules.rule("ANSWER", &without(&[&marked, &other]));
    rules.rule("answer", "ANSWER");
    Ok(())
}

/// A mark that the family may leave out; it is offered where the vocabulary has it as a token.
fn optional_mark(rules: &Rules<'_>, format: ToolFormat) -> String {
    let mark = rules.mark(if format == ToolFormat::LlamaJson { PYTHON_TAG } else { PYTHON_START });
    if mark.starts_with('<') { format!("{mark}?") } else { String::new() }
}

fn write_rest(rules: &mut Rules<'_>, calls: &Calls<'_>, beside: Beside) -> Result<(), Refused> {
    let tools = callable(calls)?;
    let many = calls.parallel == Parallel::Many && !matches!(calls.choice, ToolChoice::Named(_));
    let repeated = |first: &str, next: &str| {
        if many { format!("{first} ({next}){{0,{}}}", CALLS_MAX - 1) } else { first.to_owned() }
    };
    let rest = match calls.format {
        ToolFormat::Hermes | ToolFormat::Generic => {
            write_objects(rules, &tools, "arguments", Beside::Text)?;
            let (begin, end) = (rules.mark(TOOL_CALL), rules.mark(TOOL_CALL_END));
            rules.rule("body", &format!("\"\\n\" object \"\\n\" {end}"));
            repeated("body", &format!("\"\\n\" {begin} body"))
        }
        ToolFormat::QwenXml | ToolFormat::GlmXml => {
            let is_glm = calls.format == ToolFormat::GlmXml;
            let (tags, line) = if is_glm { (xml::GLM, "") } else { (xml::QWEN, "\"\\n\"") };
            let functions: Result<Vec<String>, Refused> =
                tools.iter().enumerate().map(|(at, tool)| xml::write(rules, &tags, at, tool)).collect();
            rules.rule("function", &functions?.join(" | "));
            let (begin, end) = (rules.mark(TOOL_CALL), rules.mark(TOOL_CALL_END));
            rules.rule("body", &format!("{line} function {line} {end}"));
            repeated("body", &format!("\"\\n\" {begin} body"))
        }
        ToolFormat::MistralList => {
            write_objects(rules, &tools, "arguments", Beside::Text)?;
            let list = repeated("object", "\", \" object");
            format!("(\"[\" | \" [\") {list} \"]\"")
        }
        ToolFormat::MistralArgs => {
            let mark = rules.mark(ARGS);
            let named = tools.iter().map(|tool| {
                let schema = arguments(tool)?;
                Ok(format!("{} {mark} {}", quoted(&tool.name), rules.schema(&tool.name, schema)?))
            });
            let named = named.collect::<Result<Vec<String>, Refused>>()?.join(" | ");
            rules.rule("named", &named);
            repeated("named", &format!("{} named", rules.mark(TOOL_CALLS)))
        }
        ToolFormat::Harmony => {
            let named = tools.iter().map(|tool| {
                let begun = [
                    format!("{CHANNEL}commentary to={FUNCTIONS}{} <|constrain|>json{MESSAGE}", tool.name),
                    format!(" to={FUNCTIONS}{}{CHANNEL}commentary json{MESSAGE}", tool.name),
                ];
                let [spoken, told] = begun.map(|header| rules.mark(&header));
                Ok(format!("({spoken} | {told}) {}", rules.schema(&tool.name, arguments(tool)?)?))
            });
            named.collect::<Result<Vec<String>, Refused>>()?.join(" | ")
        }
        ToolFormat::LlamaJson => {
            write_objects(rules, &tools, "parameters", beside)?;
            repeated("object", "\"; \" object")
        }
        ToolFormat::LlamaPythonic | ToolFormat::LfmPythonic => {
            let mut functions = Vec::with_capacity(tools.len());
            for (at, tool) in tools.iter().enumerate() {
                functions.push((&tool.name, pythonic::write(rules, at, tool)?));
            }
            let begun = |begin: &str| {
                let calls =
                    functions.iter().map(|(name, rest)| format!("{} {rest}", quoted(&format!("{begin}{name}("))));
                calls.collect::<Vec<_>>().join(" | ")
            };
            rules.rule("first", &begun("["));
            rules.rule("next", &begun(", "));
            let closing = if calls.format == ToolFormat::LfmPythonic { rules.mark(LIST_END) } else { String::new() };
            format!("{} \"]\" {closing}", repeated("first", "next"))
        }
    };
    rules.rule("rest", &rest);
    Ok(())
}

/// The rule `object`: `{"name": .., key: ..}`.
fn write_objects(rules: &mut Rules<'_>, tools: &[&Tool], key: &str, beside: Beside) -> Result<(), Refused> {
    let mut objects = Vec::with_capacity(tools.len());
    for tool in tools {
        let schema = rules.schema(&tool.name, arguments(tool)?)?;
        let begin = format!("\"name\": {}, \"{key}\": ", Value::from(tool.name.as_str()));
        let begin = match beside {
            Beside::Text => quoted(&format!("{{{begin}")),
            Beside::Form => format!("\"{{\" {}", quoted(&begin)),
        };
        objects.push(format!("{begin} {schema} \"}}\""));
    }
    rules.rule("object", &objects.join(" | "));
    Ok(())
}

/// The tools that may be called.
fn callable<'a>(calls: &Calls<'a>) -> Result<Vec<&'a Tool>, Refused> {
    let fits = |name: &str| !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(is_name_char);
    if let Some(tool) = calls.tools.iter().find(|tool| !fits(&tool.name)) {
        return Err(Refused::ToolName { name: tool.name.clone() });
    }
    match calls.choice {
        ToolChoice::Named(name) => {
            let tool = calls.tools.iter().find(|tool| tool.name == *name);
            Ok(vec![tool.ok_or_else(|| Refused::UnknownTool { name: name.clone() })?])
        }
        _ if calls.tools.is_empty() => Err(Refused::NoTools),
        _ => Ok(calls.tools.iter().collect()),
    }
}

/// Calls of one turn: a small model that must call goes on calling for ever.
const CALLS_MAX: usize = 8;
