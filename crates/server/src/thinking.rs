//! Whether the model is to reason before it answers, in the words of OpenAI, vLLM and llama.cpp.
//!
//! Templates know it as `enable_thinking`, and some `reasoning_effort`; both are told to all of them, and what a template
//! does not know changes nothing.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::serve::App;
use serde_json::{Map, Value};

pub(crate) const KNOWN: [&str; 3] = ["reasoning_effort", "chat_template_kwargs", "enable_thinking"];

/// What the template is told beside messages and tools.
pub(crate) type Told = Map<String, Value>;

/// Takes what is said of reasoning. To a model that does not reason it says nothing, and is listed in `ignored`.
pub(crate) fn take(fields: &mut Fields, app: &App, ignored: &mut Vec<String>) -> Result<Told, ApiError> {
    let reasons = app.backend.families().reasoning.is_some();
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
        if !reasons {
            ignored.push("enable_thinking".to_owned());
        }
        told.insert("enable_thinking".to_owned(), enabled.into());
    }
    if let Some(effort) = fields.string("reasoning_effort")? {
        if !reasons {
            ignored.push("reasoning_effort".to_owned());
        }
        tell_effort(&mut told, &effort)
            .map_err(|expected| fields.out_of_range("reasoning_effort", expected, &Value::String(effort.clone())))?;
    }
    Ok(told)
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
