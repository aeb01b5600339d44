//! Tools: what a request says that the model may call, as OpenAI writes it.
//!
//! Tools of a kind that only OpenAI's servers can run (`web_search`, `namespace`, `custom`, …) are left out and listed in
//! the header of ignored fields: agents send them along with their own, and work without them.

use crate::error::ApiError;
use crate::fields::Fields;
use duet_agents::{Parallel, Strictness, Tool, ToolChoice};
use serde_json::Value;

/// What a turn may call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tools {
    pub(crate) tools: Vec<Tool>,
    pub(crate) choice: ToolChoice,
    pub(crate) parallel: Parallel,
}

/// Where a tool's own fields are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nesting {
    /// In `function`: chat completions, Ollama.
    Function,
    /// Beside `type`: responses.
    Flat,
}

pub(crate) const KNOWN: [&str; 3] = ["tools", "tool_choice", "parallel_tool_calls"];

impl Tools {
    /// Takes `tools`, `tool_choice` and `parallel_tool_calls`.
    pub(crate) fn take(fields: &mut Fields, nesting: Nesting, ignored: &mut Vec<String>) -> Result<Self, ApiError> {
        let mut tools = listed(fields, nesting, |path, tool| function(path, tool, nesting, ignored))?;
        let parallel = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
        let parallel = if parallel { Parallel::Many } else { Parallel::One };
        let choice = choice(fields, &mut tools, nesting)?;
        if choice == ToolChoice::None && !tools.is_empty() {
            ignored.push("tools".to_owned());
            tools.clear();
        }
        Ok(Self { tools, choice, parallel })
    }
}

/// Takes `tools`: of each, which has a path, what `take` makes of it, if anything.
pub(crate) fn listed(
    fields: &mut Fields,
    nesting: Nesting,
    mut take: impl FnMut(String, Value) -> Result<Option<Tool>, ApiError>,
) -> Result<Vec<Tool>, ApiError> {
    let listed = match fields.take("tools") {
        None => Vec::new(),
        Some(Value::Array(tools)) => tools,
        Some(other) => return Err(fields.wrong_type("tools", "an array", &other)),
    };
    let mut tools: Vec<Tool> = Vec::with_capacity(listed.len());
    for (index, tool) in listed.into_iter().enumerate() {
        let path = fields.path_of(&format!("tools[{index}]"));
        if let Some(tool) = take(path.clone(), tool)? {
            add(&mut tools, tool, &path, nesting)?;
        }
    }
    Ok(tools)
}

/// Adds a tool. Of two with one name nobody could say which is called.
fn add(tools: &mut Vec<Tool>, tool: Tool, path: &str, nesting: Nesting) -> Result<(), ApiError> {
    if tools.iter().any(|other| other.name == tool.name) {
        let param = match nesting {
            Nesting::Function => format!("{path}.function.name"),
            Nesting::Flat => format!("{path}.name"),
        };
        let got = crate::fields::brief(&Value::String(tool.name));
        return Err(ApiError::OutOfRange { param, expected: "a name of its own".to_owned(), got });
    }
    tools.push(tool);
    Ok(())
}

/// One tool; nothing if it is of a kind that this server cannot offer.
fn function(path: String, tool: Value, nesting: Nesting, ignored: &mut Vec<String>) -> Result<Option<Tool>, ApiError> {
    let mut fields = Fields::nested(path.clone(), tool)?;
    match fields.string("type")?.as_deref() {
        Some("function") => {}
        None if nesting == Nesting::Flat => return Err(ApiError::Missing { param: fields.path_of("type") }),
        // Ollama's clients and some agents leave it out.
        None => {}
        Some(_) => {
            ignored.push(path);
            return Ok(None);
        }
    }
    let mut function = match nesting {
        Nesting::Flat => fields,
        Nesting::Function => {
            let function = fields.take("function");
            let path = fields.path_of("function");
            let function = function.ok_or_else(|| ApiError::Missing { param: path.clone() })?;
            ignored.extend(fields.rest());
            Fields::nested(path, function)?
        }
    };
    let tool = described(&mut function, "parameters")?;
    ignored.extend(function.rest());
    Ok(Some(tool))
}

/// A tool's name, description and schema, which is called so.
pub(crate) fn described(fields: &mut Fields, schema: &'static str) -> Result<Tool, ApiError> {
    let Some(name) = fields.string("name")? else { return Err(ApiError::Missing { param: fields.path_of("name") }) };
    let description = fields.string("description")?.unwrap_or_default();
    let parameters = match fields.take(schema) {
        None => Value::Null,
        Some(parameters @ Value::Object(_)) => parameters,
        Some(other) => return Err(fields.wrong_type(schema, "a JSON schema", &other)),
    };
    let strict = fields.boolean("strict")?.unwrap_or(false);
    let strict = if strict { Strictness::Strict } else { Strictness::Loose };
    Ok(Tool { name, description, parameters, strict })
}

/// `tool_choice`: a word, a function by name, or which of the tools are allowed.
fn choice(fields: &mut Fields, tools: &mut Vec<Tool>, nesting: Nesting) -> Result<ToolChoice, ApiError> {
    const EXPECTED: &str = "one of none, auto, required, or a function of the tools";
    let chosen = match fields.take("tool_choice") {
        None => return Ok(ToolChoice::Auto),
        Some(Value::String(word)) => {
            return of_word(&word).ok_or_else(|| unknown(fields, EXPECTED, &Value::String(word)));
        }
        Some(other) => other,
    };
    let mut object = Fields::nested(fields.path_of("tool_choice"), chosen)?;
    match object.string("type")?.as_deref() {
        Some("function") | None => Ok(ToolChoice::Named(named(object, nesting)?)),
        Some("allowed_tools") => allowed(object, tools, nesting),
        Some(other) => {
            let other = Value::String(other.to_owned());
            Err(object.out_of_range("type", "function or allowed_tools", &other))
        }
    }
}

fn of_word(word: &str) -> Option<ToolChoice> {
    match word {
        "none" => Some(ToolChoice::None),
        "auto" => Some(ToolChoice::Auto),
        "required" | "any" => Some(ToolChoice::Required),
        _ => None,
    }
}

fn unknown(fields: &Fields, expected: &str, got: &Value) -> ApiError {
    fields.out_of_range("tool_choice", expected, got)
}

/// The name in `{"type": "function", "function": {"name": …}}`, or beside the type.
fn named(mut object: Fields, nesting: Nesting) -> Result<String, ApiError> {
    let mut within = match (nesting, object.take("function")) {
        (Nesting::Function, Some(function)) => Fields::nested(object.path_of("function"), function)?,
        _ => object,
    };
    within.string("name")?.ok_or_else(|| ApiError::Missing { param: within.path_of("name") })
}

/// `{"type": "allowed_tools", "mode": …, "tools": […]}`, in chat completions one level deeper.
fn allowed(mut object: Fields, tools: &mut Vec<Tool>, nesting: Nesting) -> Result<ToolChoice, ApiError> {
    let mut object = match object.take("allowed_tools") {
        Some(within) => Fields::nested(object.path_of("allowed_tools"), within)?,
        None => object,
    };
    let mode = object.string("mode")?.unwrap_or_else(|| "auto".to_owned());
    let Some(choice) = of_word(&mode) else {
        return Err(object.out_of_range("mode", "auto or required", &Value::String(mode)));
    };
    let listed = match object.take("tools") {
        Some(Value::Array(listed)) => listed,
        Some(other) => return Err(object.wrong_type("tools", "an array", &other)),
        None => return Err(ApiError::Missing { param: object.path_of("tools") }),
    };
    let mut names = Vec::with_capacity(listed.len());
    for (index, one) in listed.into_iter().enumerate() {
        let path = object.path_of(&format!("tools[{index}]"));
        names.push(named(Fields::nested(path, one)?, nesting)?);
    }
    tools.retain(|tool| names.contains(&tool.name));
    Ok(choice)
}
