//! What a response says of its request: the fields that were honoured, with their defaults, as OpenAI lists them.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::options::Options;
use serde_json::{Map, Value, json};

/// The fields of a response that its request determines.
#[derive(Clone, Debug)]
pub(crate) struct Echo(Map<String, Value>);

impl Echo {
    /// Copies what is to be told before it is taken apart, and checks what is only told.
    pub(crate) fn of(fields: &Fields) -> Result<Self, ApiError> {
        let told = |name: &str, default: Value| (name.to_owned(), fields.peek(name).cloned().unwrap_or(default));
        let mut tools = fields.peek("tools").cloned().unwrap_or_else(|| json!([]));
        if let Value::Array(tools) = &mut tools {
            // The others are ignored.
            tools.retain(|tool| tool["type"] == "function");
            for tool in tools.iter_mut().filter_map(Value::as_object_mut) {
                for (name, default) in
                    [("description", Value::Null), ("parameters", Value::Null), ("strict", false.into())]
                {
                    tool.entry(name).or_insert(default);
                }
            }
        }
        let mut text = fields.peek("text").cloned().unwrap_or_else(|| json!({}));
        if let Value::Object(text) = &mut text {
            text.retain(|name, value| name == "format" && !value.is_null());
            text.entry("format").or_insert_with(|| json!({"type": "text"}));
        }
        let effort = fields.peek("reasoning").and_then(|reasoning| reasoning.get("effort")).cloned();
        metadata(fields)?;
        let fields = [
            told("background", false.into()),
            told("frequency_penalty", 0.into()),
            told("instructions", Value::Null),
            told("max_output_tokens", Value::Null),
            told("max_tool_calls", Value::Null),
            told("metadata", json!({})),
            told("parallel_tool_calls", true.into()),
            told("presence_penalty", 0.into()),
            told("previous_response_id", Value::Null),
            told("prompt_cache_key", Value::Null),
            ("reasoning".to_owned(), json!({"effort": effort, "summary": null})),
            told("safety_identifier", Value::Null),
            told("store", true.into()),
            ("text".to_owned(), text),
            told("tool_choice", "auto".into()),
            ("tools".to_owned(), tools),
            told("top_logprobs", 0.into()),
            ("truncation".to_owned(), "disabled".into()),
            told("user", Value::Null),
        ];
        Ok(Self(fields.into_iter().collect()))
    }

    /// Adds what was made of the options.
    pub(crate) fn add(&mut self, options: &Options) {
        // As written: 0.7 is not 0.699999988079071.
        let short = |number: f32| number.to_string().parse::<f64>().unwrap_or_else(|_| number.into());
        self.0.insert("temperature".to_owned(), short(options.sampling.temperature).into());
        self.0.insert("top_p".to_owned(), short(options.sampling.top_p).into());
    }

    /// The fields.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        self.0.clone()
    }
}

/// `metadata` comes back with the response, so it is bounded as OpenAI bounds it.
fn metadata(fields: &Fields) -> Result<(), ApiError> {
    let Some(Value::Object(map)) = fields.peek("metadata") else { return Ok(()) };
    if map.len() > METADATA_MAX {
        let expected = format!("of at most {METADATA_MAX} fields");
        return Err(fields.out_of_range("metadata", expected, &Value::Object(map.clone())));
    }
    for (name, value) in map {
        let fits = name.chars().count() <= NAME_CHARS_MAX
            && value.as_str().is_none_or(|text| text.chars().count() <= TEXT_CHARS_MAX);
        let path = format!("metadata.{}", name.chars().take(NAME_CHARS_MAX).collect::<String>());
        if !(value.is_string() || value.is_null()) {
            return Err(fields.wrong_type(&path, "a string", value));
        }
        if !fits {
            let expected = format!("a name of {NAME_CHARS_MAX} characters and a text of {TEXT_CHARS_MAX} at most");
            return Err(fields.out_of_range(&path, expected, value));
        }
    }
    Ok(())
}

const METADATA_MAX: usize = 16;
const NAME_CHARS_MAX: usize = 64;
const TEXT_CHARS_MAX: usize = 512;
