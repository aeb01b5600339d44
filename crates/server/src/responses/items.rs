//! Items: what a conversation consists of in `/v1/responses`.
//!
//! An item is kept as the JSON that the client sent, with an id if it had none, so that what is listed later is what came.
//! Items of OpenAI's own tools mean nothing to a model that has none: they are skipped, and listed as ignored.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::ids::Ids;
use crate::messages::{ChatMessage, Role};
use serde_json::{Value, json};
use std::sync::Arc;

/// An item as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptItem {
    pub(crate) id: Arc<str>,
    pub(crate) json: Arc<str>,
}

/// An item of a request.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) path: String,
    pub(crate) kept: KeptItem,
    pub(crate) what: What,
}

/// What an item means to the model.
#[derive(Debug)]
pub(crate) enum What {
    Said(ChatMessage),
    Call {
        call_id: String,
        name: String,
        arguments: String,
    },
    Result {
        call_id: String,
        content: String,
    },
    /// What an assistant thought; empty where nobody but its maker can read it.
    Thought(String),
    /// An item of before, by its id.
    Reference,
    /// Nothing.
    Skipped,
}

/// Takes `input`; it may be empty only if a response goes before it.
pub(crate) fn take(
    fields: &mut Fields,
    before: Before,
    ids: &Ids,
    ignored: &mut Vec<String>,
) -> Result<Vec<Item>, ApiError> {
    let items = match fields.take("input") {
        None => return Err(ApiError::Missing { param: "input".to_owned() }),
        Some(Value::String(text)) if text.is_empty() => {
            return Err(fields.out_of_range("input", "a text that is not empty, or items", &text.into()));
        }
        Some(Value::String(text)) => vec![json!({"type": "message", "role": "user", "content": text})],
        Some(Value::Array(items)) => items,
        Some(other) => return Err(fields.wrong_type("input", "a string or an array of items", &other)),
    };
    if items.is_empty() && before == Before::Nothing {
        return Err(fields.out_of_range("input", "at least one item", &Value::Array(items)));
    }
    let read = |(index, item)| Item::read(format!("input[{index}]"), item, ids, ignored);
    items.into_iter().enumerate().map(read).collect()
}

/// What was said before a request's own items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    Response,
}

impl KeptItem {
    /// An item of an answer.
    pub(crate) fn of(item: &Value) -> Self {
        Self { id: item["id"].as_str().unwrap_or_default().into(), json: item.to_string().into() }
    }

    /// What it means. (It was understood when it was kept.)
    pub(crate) fn what(&self, path: &str) -> Result<What, ApiError> {
        let item = serde_json::from_str(&self.json).map_err(|_| ApiError::Internal("an item was kept wrongly"))?;
        meaning(Fields::nested(path.to_owned(), item)?, &mut Vec::new())
    }
}

impl Item {
    fn read(path: String, mut item: Value, ids: &Ids, ignored: &mut Vec<String>) -> Result<Self, ApiError> {
        let id = complete(&mut item, ids);
        let kept = KeptItem { id: id.into(), json: item.to_string().into() };
        let what = meaning(Fields::nested(path.clone(), item)?, ignored)?;
        Ok(Self { path, kept, what })
    }
}

/// Gives an item the type and the id that it lacks, and a plain content the form of parts. Its id.
fn complete(item: &mut Value, ids: &Ids) -> String {
    let Value::Object(map) = item else { return String::new() };
    if map.get("type").is_none_or(Value::is_null) {
        let kind = if map.contains_key("role") { Some("message") } else { map.get("id").map(|_| "item_reference") };
        map.extend(kind.map(|kind| ("type".to_owned(), kind.into())));
    }
    let kind = map.get("type").and_then(Value::as_str).unwrap_or_default();
    let prefix = match kind {
        "message" => "msg_",
        "function_call" => "fc_",
        "function_call_output" => "fco_",
        "reasoning" => "rs_",
        _ => "item_",
    };
    if kind == "message"
        && let Some(Value::String(text)) = map.get("content")
    {
        let kind = if map.get("role").is_some_and(|role| role == "assistant") { "output_text" } else { "input_text" };
        let mut part = json!({"type": kind, "text": text});
        if kind == "output_text" {
            part["annotations"] = json!([]);
        }
        map.insert("content".to_owned(), json!([part]));
    }
    match map.get("id") {
        Some(Value::String(id)) => id.clone(),
        None | Some(Value::Null) => {
            let id = ids.next(prefix);
            map.insert("id".to_owned(), id.clone().into());
            id
        }
        // `meaning` refuses it.
        Some(_) => String::new(),
    }
}

fn meaning(mut item: Fields, ignored: &mut Vec<String>) -> Result<What, ApiError> {
    let kind = needed(&mut item, "type")?;
    let (_, _) = (item.string("id")?, item.take("status"));
    let what = match kind.as_str() {
        "message" => What::Said(message(&mut item, ignored)?),
        "function_call" => call(&mut item, "arguments")?,
        // Of other models: this server's call functions only.
        "custom_tool_call" => match call(&mut item, "input")? {
            What::Call { call_id, name, arguments } => {
                What::Call { call_id, name, arguments: json!({"input": arguments}).to_string() }
            }
            what => what,
        },
        "function_call_output" | "custom_tool_call_output" => {
            let call_id = needed(&mut item, "call_id")?;
            let output = item.take("output").ok_or_else(|| ApiError::Missing { param: item.path_of("output") })?;
            What::Result { call_id, content: text(&item, "output", output, ignored)? }
        }
        "reasoning" => What::Thought(thought(&mut item, ignored)?),
        "item_reference" => What::Reference,
        _ if SKIPPED.contains(&kind.as_str()) => {
            ignored.push(item.path_of("").trim_end_matches('.').to_owned());
            return Ok(What::Skipped);
        }
        _ => {
            let expected = "one of message, function_call, function_call_output, reasoning, item_reference";
            return Err(item.out_of_range("type", expected, &Value::String(kind)));
        }
    };
    ignored.extend(item.rest());
    Ok(what)
}

fn message(item: &mut Fields, ignored: &mut Vec<String>) -> Result<ChatMessage, ApiError> {
    let role = needed(item, "role")?;
    let role = match role.as_str() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => {
            let expected = "one of system, developer, user, assistant";
            return Err(item.out_of_range("role", expected, &Value::String(role)));
        }
    };
    // Says which part of an answer it was: a word of OpenAI's models.
    item.take("phase");
    let content = item.take("content").ok_or_else(|| ApiError::Missing { param: item.path_of("content") })?;
    let content = text(item, "content", content, ignored)?;
    Ok(ChatMessage::said(role, content))
}

/// What was thought, or else what its summary says.
fn thought(item: &mut Fields, ignored: &mut Vec<String>) -> Result<String, ApiError> {
    let (content, summary) = (item.take("content"), item.take("summary"));
    item.take("encrypted_content");
    for (name, value) in [("content", content), ("summary", summary)] {
        let Some(value) = value else { continue };
        let text = text(item, name, value, ignored)?;
        if !text.is_empty() {
            return Ok(text);
        }
    }
    Ok(String::new())
}

fn call(item: &mut Fields, arguments: &str) -> Result<What, ApiError> {
    let (call_id, name) = (needed(item, "call_id")?, needed(item, "name")?);
    // A function that wants none may be called without any.
    let arguments = match arguments {
        "arguments" => item.string(arguments)?.unwrap_or_default(),
        input => needed(item, input)?,
    };
    Ok(What::Call { call_id, name, arguments })
}

/// The text of a string or of parts.
fn text(item: &Fields, name: &str, content: Value, ignored: &mut Vec<String>) -> Result<String, ApiError> {
    let parts = match content {
        Value::String(text) => return Ok(text),
        Value::Array(parts) => parts,
        other => return Err(item.wrong_type(name, "a string or an array of parts", &other)),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for (index, part) in parts.into_iter().enumerate() {
        let mut part = Fields::nested(item.path_of(&format!("{name}[{index}]")), part)?;
        let kind = needed(&mut part, "type")?;
        let field = match kind.as_str() {
            "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => "text",
            "refusal" => "refusal",
            "input_image" | "input_file" | "input_audio" => {
                let why = "this model reads text only";
                return Err(ApiError::Unsupported { param: part.path_of(&kind), why });
            }
            _ => return Err(part.out_of_range("type", "input_text or output_text", &Value::String(kind))),
        };
        texts.push(needed(&mut part, field)?);
        // Of an answer that comes back.
        let (_, _) = (part.take("annotations"), part.take("logprobs"));
        ignored.extend(part.rest());
    }
    Ok(texts.join("\n"))
}

fn needed(fields: &mut Fields, name: &str) -> Result<String, ApiError> {
    fields.string(name)?.ok_or_else(|| ApiError::Missing { param: fields.path_of(name) })
}

/// They tell of tools that only OpenAI's models call, some of which its servers run. The message that follows says what came of
/// it; what a client's own shell has printed is lost, as is what a compaction holds, which only OpenAI can read.
const SKIPPED: [&str; 22] = [
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "computer_call",
    "computer_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "image_generation_call",
    "mcp_list_tools",
    "mcp_call",
    "mcp_approval_request",
    "mcp_approval_response",
    "additional_tools",
    "compaction",
    "program",
    "program_output",
    "tool_search_call",
    "tool_search_output",
];
