//! Tools as Anthropic writes them: flat, with an `input_schema`.
//!
//! Tools of a kind that only Anthropic's servers can run or its models know (`web_search_…`, `bash_…`) are left out and
//! listed in the header of ignored fields.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::tools::{Nesting, Tools, described, listed};
use duet_agents::{Parallel, Tool, ToolChoice};
use serde_json::Value;

pub(super) const KNOWN: [&str; 2] = ["tools", "tool_choice"];

/// Takes `tools` and `tool_choice`.
pub(super) fn take(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Tools, ApiError> {
    let mut tools = listed(fields, Nesting::Flat, |path, tool| one(path, tool, ignored))?;
    let (choice, parallel) = choice(fields, ignored)?;
    if choice == ToolChoice::None && !tools.is_empty() {
        ignored.push("tools".to_owned());
        tools.clear();
    }
    // Without tools, what may not be called needs no word.
    let choice = if choice == ToolChoice::None { ToolChoice::Auto } else { choice };
    Ok(Tools { tools, choice, parallel })
}

/// One tool; nothing if it is none of the client's own.
fn one(path: String, tool: Value, ignored: &mut Vec<String>) -> Result<Option<Tool>, ApiError> {
    let mut fields = Fields::nested(path.clone(), tool)?;
    if fields.string("type")?.is_some_and(|kind| kind != "custom") {
        ignored.push(path);
        return Ok(None);
    }
    drop(fields.take("cache_control"));
    let tool = described(&mut fields, "input_schema")?;
    ignored.extend(fields.rest());
    Ok(Some(tool))
}

fn choice(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<(ToolChoice, Parallel), ApiError> {
    let Some(chosen) = fields.take("tool_choice") else { return Ok((ToolChoice::Auto, Parallel::Many)) };
    let mut chosen = Fields::nested(fields.path_of("tool_choice"), chosen)?;
    let Some(kind) = chosen.string("type")? else { return Err(ApiError::Missing { param: chosen.path_of("type") }) };
    let choice = match kind.as_str() {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => match chosen.string("name")? {
            Some(name) => ToolChoice::Named(name),
            None => return Err(ApiError::Missing { param: chosen.path_of("name") }),
        },
        _ => return Err(chosen.out_of_range("type", "one of auto, any, tool, none", &Value::String(kind))),
    };
    let one = chosen.boolean("disable_parallel_tool_use")?.unwrap_or(false);
    ignored.extend(chosen.rest());
    Ok((choice, if one { Parallel::One } else { Parallel::Many }))
}
