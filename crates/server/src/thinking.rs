//! Whether the model is to reason before it answers, and for how long, in the words of OpenAI, OpenRouter, vLLM, llama.cpp
//! and Qwen.
//!
//! Templates know it as `enable_thinking`, and some `reasoning_effort`; both are told to all of them, and what a template
//! does not know changes nothing. A bound in tokens is the engine's to keep.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::serve::App;
use duet_types::Tokens;
use serde_json::{Map, Value};

pub(crate) const KNOWN: [&str; 5] =
    ["reasoning", "reasoning_effort", "chat_template_kwargs", "enable_thinking", "thinking_budget"];

/// What the template is told beside messages and tools.
pub(crate) type Told = Map<String, Value>;

/// What a request says of reasoning.
#[derive(Debug, Default)]
pub(crate) struct Reasoning {
    pub(crate) told: Told,
    /// Tokens of it; absent if there may be any number.
    pub(crate) max: Option<Tokens>,
}

/// Takes what is said of reasoning. To a model that does not reason it says nothing, and is listed in `ignored`.
pub(crate) fn take(fields: &mut Fields, app: &App, ignored: &mut Vec<String>) -> Result<Reasoning, ApiError> {
    let mut told = told(fields, app, ignored)?;
    let mut within = None;
    if let Some(reasoning) = fields.take("reasoning") {
        let mut reasoning = Fields::nested(fields.path_of("reasoning"), reasoning)?;
        effort(&mut reasoning, "effort", &mut told, app, ignored)?;
        if let Some(enabled) = reasoning.boolean("enabled")? {
            honoured(reasoning.path_of("enabled"), app, ignored);
            told.insert("enable_thinking".to_owned(), enabled.into());
        }
        within = bound(&mut reasoning, "max_tokens", 0, app, ignored)?;
        ignored.extend(reasoning.rest());
    }
    // -1 is no bound, as with llama.cpp.
    let beside = bound(fields, "thinking_budget", -1, app, ignored)?;
    if within.is_some() && beside.is_some() && within != beside {
        return Err(ApiError::Contradiction { param: "thinking_budget", with: "reasoning.max_tokens" });
    }
    let max = within.or(beside);
    if let Some(max) = max {
        told.entry("enable_thinking").or_insert((max > Tokens::ZERO).into());
    }
    Ok(Reasoning { told, max })
}

fn told(fields: &mut Fields, app: &App, ignored: &mut Vec<String>) -> Result<Told, ApiError> {
    let mut told = match fields.take("chat_template_kwargs") {
        None => Told::new(),
        Some(Value::Object(told)) => told,
        Some(other) => return Err(fields.wrong_type("chat_template_kwargs", "an object", &other)),
    };
    if let Some(name) = told.keys().find(|name| RESERVED.contains(&name.as_str())) {
        let param = fields.path_of(&format!("chat_template_kwargs.{name}"));
        return Err(ApiError::Unsupported { param, why: "the request's other fields say it" });
    }
    if let Some(enabled) = fields.boolean("enable_thinking")? {
        honoured("enable_thinking".to_owned(), app, ignored);
        told.insert("enable_thinking".to_owned(), enabled.into());
    }
    effort(fields, "reasoning_effort", &mut told, app, ignored)?;
    Ok(told)
}

/// Takes an effort, and tells it.
fn effort(
    fields: &mut Fields,
    name: &str,
    told: &mut Told,
    app: &App,
    ignored: &mut Vec<String>,
) -> Result<(), ApiError> {
    let Some(effort) = fields.string(name)? else { return Ok(()) };
    honoured(fields.path_of(name), app, ignored);
    tell_effort(told, &effort).map_err(|expected| fields.out_of_range(name, expected, &Value::String(effort)))
}

/// Takes a bound of the reasoning, of at least so many tokens. One below zero is none.
pub(crate) fn bound(
    fields: &mut Fields,
    name: &str,
    least: i64,
    app: &App,
    ignored: &mut Vec<String>,
) -> Result<Option<Tokens>, ApiError> {
    let Some(max) = fields.integer(name, least..=i64::MAX)? else { return Ok(None) };
    honoured(fields.path_of(name), app, ignored);
    Ok((max >= 0).then(|| Tokens(u32::try_from(max).unwrap_or(u32::MAX))))
}

/// Lists a field that means nothing to a model that does not reason.
fn honoured(path: String, app: &App, ignored: &mut Vec<String>) {
    if app.backend.families().reasoning.is_none() {
        ignored.push(path);
    }
}

/// Tells an effort; what was expected, if it is none.
pub(crate) fn tell_effort(told: &mut Told, effort: &str) -> Result<(), &'static str> {
    if !EFFORTS.contains(&effort) {
        return Err("one of none, minimal, low, medium, high, xhigh");
    }
    told.entry("enable_thinking").or_insert_with(|| (effort != "none").into());
    told.insert("reasoning_effort".to_owned(), effort.into());
    Ok(())
}

const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];
/// What the template is told in any case.
const RESERVED: [&str; 6] = ["messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"];
